"""How a running job is going."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Progress(BaseModel):
    """How fast a job goes and when it will end, read from its log (SchedMate paper, section 3.2).

    What the log does not say is None, and `reason` says why where that is the step time.
    """

    model_config = ConfigDict(extra="forbid")

    step_time_s: float | None = Field(
        default=None, gt=0, description="Time of one iteration [s], a median"
    )
    step_time_p10_s: float | None = Field(
        default=None, description="10th percentile of the readings [s]"
    )
    step_time_p90_s: float | None = Field(
        default=None, description="90th percentile of the readings [s]"
    )
    epoch_time_s: float | None = Field(default=None, gt=0, description="Time of one epoch [s]")
    loss: float | None = Field(
        default=None, description="Latest training loss; None where it is NaN"
    )
    loss_state: Literal["nan", "inf"] | None = Field(
        default=None, description="What the latest training loss is where it is not a number"
    )
    loss_state_since: int | None = Field(
        default=None,
        ge=0,
        description="Iteration of the first such loss among the lines that were read",
    )
    no_numbers: dict[str, Literal["nan", "inf"]] = Field(
        default_factory=dict,
        description="Gradient norms and validation losses, as the log names them, that are no "
        "numbers where they were last stated",
    )
    iteration: int | None = Field(
        default=None,
        ge=0,
        description="Latest iteration, over all epochs where their length is known",
    )
    total_iterations: int | None = Field(
        default=None, ge=0, description="Iterations of the whole run; of one epoch where `in_epoch`"
    )
    in_epoch: bool = Field(default=False, description="`iteration` begins anew with each epoch")
    epoch: float | None = Field(default=None, description="Latest epoch, as the log counts")
    total_epochs: int | None = None
    lr: float | None = Field(default=None, description="Latest learning rate")
    throughput: float | None = Field(default=None, description="In `throughput_unit`")
    throughput_unit: Literal["samples/s", "tokens/s", "iterations/s"] | None = None
    eta_s: float | None = Field(default=None, ge=0, description="Time until the run ends [s]")
    ended: Literal["finished", "stopped", "failed"] | None = Field(
        default=None,
        description="That the run is over, where the log shows it: it finished, ended before "
        "what it counts to, or failed; no time is left then",
    )
    failure: str | None = Field(
        default=None, description="The name of the error that ended it, where it is known"
    )
    ended_line: int | None = Field(
        default=None, ge=1, description="The line that shows it, 1-based"
    )
    source: Literal[
        "stated",  # the log says how long a step takes, or how many there are in a second
        "elapsed",  # differences of the elapsed time that it prints
        "samples",  # samples or tokens per second, and how many a step takes
        "eta",  # what the log itself expects to be left, over the iterations that are
        "timestamps",  # differences of the times its lines were written
        "summary",  # the run time and the number of steps of a run that has ended
        "model",  # an extraction pattern that a language model wrote
        "none",
    ] = "none"
    reader: str | None = Field(default=None, description="Pattern of the registry, or `general`")
    readings: int = Field(
        default=0, ge=0, description="Readings behind the step time, outliers left out"
    )
    steps_seen: int = Field(default=0, ge=0, description="Iterations that the readings cover")
    log_bytes: int = Field(
        default=0,
        ge=0,
        description="Size of the log when it was read [bytes]: where later readings begin",
    )
    lines: list[int] = Field(
        default_factory=list, description="1-based numbers of the latest lines used, newest first"
    )
    updated: float | None = Field(
        default=None,
        description="When the latest of them was written, as the log says [s since epoch]",
    )
    line_every_s: float | None = Field(
        default=None, gt=0, description="Usual time between two lines about progress [s]"
    )
    silence_limit_s: float | None = Field(
        default=None,
        gt=0,
        description="Longest silence to be expected of the log by its own rhythm, pauses for "
        "evaluation and checkpoints included [s]",
    )
    read_at: float | None = Field(
        default=None, description="When the log of a running job was read [s since epoch]"
    )
    silent_since: float | None = Field(
        default=None, description="When it was last seen to be written then [s since epoch]"
    )
    longest_silence_s: float = Field(
        default=0.0, ge=0, description="Longest silence so far that it came back from [s]"
    )
    stalled: bool = Field(
        default=False,
        description="It is silent for much longer than to be expected: the job may hang, and "
        "there is no `eta_s`",
    )
    notes: list[str] = Field(default_factory=list, description="Decisions on units and the like")
    reason: str | None = Field(default=None, description="Why there is no step time")

    @property
    def abstained(self) -> bool:
        """Whether the log does not say how long a step takes."""
        return self.step_time_s is None


class Remaining(BaseModel):
    """How long a running job still takes: its estimate, given that it still runs, and its log.

    All times are None, and `reason` says why, where neither says anything.
    """

    model_config = ConfigDict(extra="forbid")

    elapsed_s: float = Field(ge=0, description="Time since the job started [s]")
    remaining_s: float | None = Field(default=None, ge=0, description="Median [s]")
    remaining_p10_s: float | None = Field(default=None, ge=0, description="10th percentile [s]")
    remaining_p90_s: float | None = Field(default=None, ge=0, description="90th percentile [s]")
    sources: list[Literal["estimate", "log"]] = Field(
        default_factory=list, description="What it follows from"
    )
    outlived: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="Share of such jobs that had ended by now, by the estimate at submission",
    )
    unusual: bool = Field(
        default=False, description="It runs longer than 99 of 100 such jobs were expected to"
    )
    failure: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="Probability that it fails before its end, given that it has run for so long; "
        "null where too few past runs tell",
    )
    reason: str | None = Field(default=None, description="What limits the answer, in a sentence")
