"""What one line of a log says about a job's progress."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Sample:
    """Quantities read from one line; what it does not say is None.

    `reader` names the pattern that read it, or is `general`. `group` is the same for all lines of
    one kind. `offset` [bytes] is where the line stands in its file, `time` [s since epoch] when it
    was written. `iteration` counts optimiser steps, within the epoch where `in_epoch` is true.
    `bare` means that the line calls it just `time`, `unit` that it gives the unit. `run_s` [s] and
    `run_rate` [steps/s] are what is said of a whole run when it has ended.
    """

    reader: str
    group: str = ""
    offset: int = 0
    time: float | None = None
    stream: str = ""
    iteration: int | None = None
    total: int | None = None
    in_epoch: bool = False
    grain: float = 1.0
    """To how many iterations the counter is rounded: 1000 where it is written as `49K`."""
    epoch: float | None = None
    total_epochs: int | None = None
    epoch_name: str = ""
    """What the line calls the epoch; of two names the one that is written out counts."""
    loss: float | None = None
    part: bool = False
    """Whether the line has no loss as such and `loss` is the first one under another name."""
    loss_rank: int = 2
    """How much of the loss its name says it is, see `words.loss_rank`."""
    watched: tuple[tuple[str, float], ...] = ()
    """Norms of gradients and losses of validation, with their names."""
    lr: float | None = None
    step_time_s: float | None = None
    bare: bool = False
    unit: bool = True
    since_last: bool = False
    """Whether the time is that of all iterations since the line before."""
    meter: bool = False
    """Whether the mean of the time stands behind it in brackets."""
    beside_data: bool = False
    """Whether the time of loading the data stands beside it, as meters of one step print them."""
    rated: bool = False
    """Whether the time is the inverse of a rate of steps that the line states."""
    elapsed_s: float | None = None
    eta_s: float | None = None
    epoch_time_s: float | None = None
    samples_per_s: float | None = None
    tokens_per_s: float | None = None
    samples: int | None = None
    tokens: int | None = None
    """Tokens seen so far."""
    step_tokens: int | None = None
    """Tokens of a step."""
    batch: int | None = None
    """The global batch size."""
    line_batch: int | None = None
    """A batch size that is not said to be the global one."""
    run_s: float | None = None
    run_rate: float | None = None
    again: int = 0
    """Of the newest of its kind: how often the counter of that kind began anew before it."""
    outer: int | None = None
    """Another counter of the same line, which stands before the one that has a total."""
    nameless: tuple[int, ...] = ()
    """Whole numbers without a name, unit or total, where nothing else counts; one may count."""
    unread: tuple[tuple[str, float], ...] = ()
    """Times [s] under names that say nothing, with these; how they go on may say what they are."""
    wording: int = 0
    """The same for lines with the same words."""
    returns: bool = False
    """Whether it says what an agent that learns gets: a reward or a return."""
    named: bool = False
    """Whether its counter is called step, iteration, batch or the like."""
    placed: bool = False
    """Whether it is one only by standing behind the epoch, as that of samples may, too."""

    @property
    def training(self) -> bool:
        """Whether it shows what only training shows."""
        return self.loss is not None or self.lr is not None

    @property
    def surely_training(self) -> bool:
        """Whether no other loop of the same program would write such a line."""
        return self.training and (self.named or self.iteration is None or self.reader != "general")

    @property
    def timed(self) -> bool:
        """Whether it states how long a step takes."""
        return self.step_time_s is not None
