"""Reads one progress line of any shape into a `Sample`.

Known lines are matched by the registry (`patterns.yaml`), progress bars in the form of tqdm by
their clock and counter (`Epoch 3:  42%|##  | 42/100 [00:10<00:14, 4.1it/s]`), lines of unknown
formats by the labels of their numbers, and numbers without a name by the text around them. Of
several losses on a line one named as the sum (`total_loss`) precedes plain `loss`, that precedes a
specific one (`ce_loss`), and that precedes parts (`loss_box`), in any order on the line.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from schedmate.base.data import load
from schedmate.logparse.numbers import LARGEST, read_clock, read_number
from schedmate.logparse.progress.words import (
    DATE,
    Labelled,
    counted_by,
    counts_only,
    is_of_data,
    is_of_returns,
    is_some_loss,
    is_watched_metric,
    labelled_numbers,
    loss_rank,
    meaning,
    names_a_part,
    shared_time,
    subject_of,
    unit_seconds,
)

_INTEGER_GROUPS = frozenset(["iteration", "total", "total_epochs", "batch", "samples"])


class Shape(NamedTuple):
    """A known form of progress line, as an entry of patterns.yaml describes it."""

    name: str
    pattern: str
    alone: bool
    ignore: bool
    headed: bool = False


@cache
def shapes() -> tuple[Shape, ...]:
    """All entries, in the order in which they are tried."""
    return tuple(
        Shape(
            entry["name"],
            entry["pattern"],
            entry.get("alone", False),
            entry.get("ignore", False),
            entry.get("headed", False),
        )
        for entry in load("logparse/progress/patterns.yaml")
    )


@cache
def _set_of_shapes() -> Any:
    """All patterns at once: most lines match none, and this says so in a microsecond."""
    import re2

    patterns = re2.Set.SearchSet()
    for shape in shapes():
        patterns.Add(shape.pattern)
    patterns.Compile()
    return patterns


@cache
def _compiled_shape(pattern: str) -> Any:
    import re2

    # only those that are met: to compile all takes longer than to track a log
    return re2.compile(pattern)


def read_line(text: str) -> Sample | None:
    """What one line or one refresh of a bar says about training, or None."""
    sample = _read_line(text)
    if sample is not None:
        # a counter beyond its total is not the one that total is of
        if sample.total is not None and (sample.iteration or 0) > sample.total:
            sample.total, sample.in_epoch = None, False
        if sample.total_epochs is not None and (sample.epoch or 0) > sample.total_epochs:
            sample.total_epochs = None
    return sample


def _read_line(text: str) -> Sample | None:
    bar = read_bar(text) if "[" in text and ":" in text else None
    if bar is NOT_TRAINING:
        return None
    for index in sorted(_set_of_shapes().Match(text.encode("utf-8", "replace")) or []):
        shape = shapes()[index]
        if match := _compiled_shape(shape.pattern).search(text):
            if shape.ignore or (shape.headed and is_about_something_else(text)):
                return None
            return read_match(shape, match, text, bar)
    return bar or read_general(text)


def read_match(shape: Shape, match: re.Match[str], text: str, bar: Sample | None) -> Sample | None:
    """What the groups of a match say; what they leave open is read as the shape allows."""
    sample = bar or (None if shape.alone else read_general(text)) or Sample(shape.name)
    sample.reader = shape.name
    stated = [name for name, value in match.groupdict().items() if value is not None]
    for name in stated:
        try:
            _set_group(sample, name, match[name].rstrip(".,;"))
        except ValueError:
            continue
    if "per" in stated and sample.step_time_s is not None:
        per = float(match["per"])
        sample.step_time_s = sample.step_time_s / max(1.0, per) if per <= LARGEST else None
        sample.since_last = False
    if sample.epoch is not None and sample.total is not None and "iteration" in stated:
        sample.in_epoch = sample.in_epoch or "epoch" in stated or "epoch_eta" in stated
    sample.named = True
    sample.group = sample.group if bar else f"{shape.name} {' '.join(stated)}"
    return sample


def _set_group(sample: Sample, name: str, text: str) -> None:
    value = read_clock(text) if ":" in text or re.search(r"\dm\b", text) else read_number(text)
    if name != "loss" and not abs(value) <= LARGEST:
        return
    if name == "loss" and value == 0 and sample.loss is not None and math.isnan(sample.loss):
        return  # see `read_general`: the gradient says what the mean of the loss leaves out
    if name in _INTEGER_GROUPS:
        setattr(sample, name, int(value))
    elif name in ("step_time_s", "step_time_ms", "interval_s", "rate"):
        if value > 1 / LARGEST:
            sample.step_time_s = {"step_time_ms": value / 1000, "rate": 1 / value}.get(name, value)
            sample.rated = name == "rate"
            sample.bare, sample.unit = False, True
            sample.since_last = name == "interval_s"
    elif name == "so_far_s":
        steps = sample.iteration or 0
        sample.step_time_s = value / steps if steps and value > 0 else None
    elif name == "elapsed_ms":
        sample.elapsed_s = value / 1000
    elif name == "eta":
        sample.eta_s = value
    elif name not in ("per", "epoch_eta"):
        setattr(sample, name, value)


# What one line of a log says about a job's progress.


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
        """Whether the line states a loss or a learning rate, as only training does."""
        return self.loss is not None or self.lr is not None

    @property
    def surely_training(self) -> bool:
        """Whether no other loop of the same program would write such a line."""
        return self.training and (self.named or self.iteration is None or self.reader != "general")

    @property
    def timed(self) -> bool:
        """Whether the line states how long a step takes."""
        return self.step_time_s is not None


# Progress bars in the form of tqdm: `Epoch 3:  42%|##  | 42/100 [00:10<00:14, 4.1it/s]`.


# In two parts, so that a long line without a bar is passed over in one go: the clock, and the
# counter in front of it.
_BAR_CLOCK = re.compile(
    r"\[(?P<elapsed>\d{1,9}:\d\d(?::\d\d)?)(?:<(?P<left>[^,\]]{1,40}))?"
    r"(?:,\s*(?P<value>[\d.]{1,15})(?P<kilo>[kM]?)\s?(?P<unit>s/[^\W\d_]+|[^\W\d_]*/s))?(?P<tail>[^\]]*)\]?"
)
_BAR_COUNT = re.compile(
    r"(?:(?P<percent>\d{1,4})%(?:\|[^|]*\|)?\s*(?P<iteration>[\d.]{1,15}[kM]?)/(?P<total>[\d.]{1,15}[kM]?)"
    r"|(?<![\d.])(?P<count>\d{1,15})[^\W\d_]*)\s*[^\W\d_]*\s*$"
)


_PRINTED = re.compile(r"\W*epochs?\W{1,3}\d+\b", re.IGNORECASE)

SUMMARY_TOLERANCE = 0.01
"""Limit for the relative difference of a bar and its run's summary, beyond rounding to seconds."""
_UNRATED = re.compile(r"\?\s?[^\W\d_]+/s|\?\s?s/")
_MAPPED = "ba/s"
"""The unit in which data sets are prepared; training that uses it is named as such."""

NOT_TRAINING = Sample("other")
"""What `read_bar` returns for a bar of something other than training."""


def read_bar(text: str) -> Sample | None:
    """The sample stated by a bar; None if there is no bar, `OTHER` if it is not of training."""
    match = _BAR_CLOCK.search(text)
    counter = _BAR_COUNT.search(text[: match.start()][-400:]) if match is not None else None
    if match is None or counter is None:
        return None
    head = text[: match.start()][-400:][: counter.start()].strip(" :-|")
    kind = subject_of(head[-80:])
    unit = (match["unit"] or "").strip()
    unit = f"it{unit}" if unit == "/s" else unit
    unit_meaning = meaning("", unit) if unit else None
    if counter["percent"] is None and unit_meaning is None:
        # a number before a clock in brackets is no bar
        return NOT_TRAINING if _UNRATED.search(text, match.start()) else None
    if counter["total"] and _bar_number(counter["total"]) <= 1:
        return NOT_TRAINING  # one thing is downloaded, installed, written
    mapped = unit == _MAPPED and kind is None
    if kind == "other" or mapped or (unit and unit_meaning is None and not _odd_unit(unit)):
        return NOT_TRAINING
    sample = Sample("tqdm", named=kind == "training" and not counts_only(head[-80:]))
    for number in [*labelled_numbers(head), *labelled_numbers(_printed(text, match))]:
        key_meaning = meaning(number.key, "")
        if key_meaning is not None and key_meaning[0] == "epoch" and sample.epoch is None:
            sample.epoch, sample.total_epochs = number.value, number.total
    inside = read_general("step 0, " + match["tail"])
    if inside is not None:
        sample.loss, sample.lr, sample.epoch = inside.loss, inside.lr, sample.epoch or inside.epoch
    count = int(_bar_number(counter["iteration"] or counter["count"]))
    total = int(_bar_number(counter["total"])) if counter["total"] else None
    sample.elapsed_s = read_clock(match["elapsed"])
    left = match["left"]
    if left and re.fullmatch(r"\d{1,9}(?::\d\d)+", left.strip()):
        sample.eta_s = read_clock(left.strip())
    value = _bar_number((match["value"] or "") + (match["kilo"] or ""))
    if _counts_epochs(head, unit):
        sample.epoch, sample.total_epochs = float(count), total
        if unit_meaning is not None and value > 0:
            sample.epoch_time_s = 1 / value if unit_meaning[0] == "rate" else value
        sample.elapsed_s = None
    else:
        sample.iteration, sample.total = count, total
        sample.in_epoch = sample.epoch is not None and bool(
            re.search(r"epoch", head, re.IGNORECASE)
        )
        if unit_meaning is not None and value > 0:
            _take_bar_rate(sample, unit_meaning[0], value)
        elif inside is not None and not inside.bare and not unit:
            sample.step_time_s = inside.step_time_s
    sample.group = f"tqdm {re.sub(r'[0-9.]+', '0', ' '.join(head[-60:].split()))} {total}"
    return sample


def _take_bar_rate(sample: Sample, quantity: str, value: float) -> None:
    if quantity == "rate":
        sample.step_time_s = 1 / value
    elif quantity == "step_time":
        sample.step_time_s = value
    elif quantity == "samples_per_s":
        sample.samples_per_s = value
        sample.iteration = sample.total = None


def name_by_run_time(groups: Iterable[list[Sample]]) -> None:
    """Mark a bar as training if it took as long as the run, according to its summary."""
    kinds = list(groups)
    runs = [s.run_s for group in kinds for s in group if s.run_s]
    for group in kinds:
        last = group[0]
        if last.reader == "tqdm" and last.elapsed_s and last.iteration == last.total:
            if any(abs(last.elapsed_s - run) <= 1 + SUMMARY_TOLERANCE * run for run in runs):
                for sample in group:
                    sample.named = True


def _printed(text: str, bar: re.Match[str]) -> str:
    """The epoch that a loop printed directly behind its bar."""
    printed = _PRINTED.match(text[bar.end() :])
    return "" if printed is None else printed[0]


def _bar_number(text: str) -> float:
    """`1.5k` as 1500; 0 if two overlapping redraws have left no number."""
    number = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)([kM]?)", text)
    try:
        value = read_number(number[1]) * _BAR_UNITS[number[2]] if number else 0.0
    except ValueError:
        return 0.0
    return value if value <= LARGEST else 0.0


_BAR_UNITS = {"": 1, "k": 1e3, "M": 1e6}


def _counts_epochs(head: str, unit: str) -> bool:
    return (
        "epoch" in unit.lower() or re.fullmatch(r"\W*epochs?\W*", head, re.IGNORECASE) is not None
    )


def _odd_unit(unit: str) -> bool:
    """Units such as `s/epoch`, which are not rates of steps."""
    return "epoch" in unit.lower()


# Reads progress lines of unknown formats by the labels of their numbers.


EPOCH_ONLY = "an epoch and nothing else"
"""The kind of lines that state an epoch and nothing else; their log is likely of a training."""
LONGEST_TIME = 1e8
"""A larger time [s] is a date, not a duration."""
SHORTEST_TIME = 1e-9
"""A shorter time [s] is not that of a step."""

_TIME_UNIT = re.compile(r"ms|s|secs?|seconds?|m|mins?|minutes?|h|hours?")
_TOOK = frozenset(["took", "takes", "finished in", "completed in", "done in", "took about"])


def read_general(text: str) -> Sample | None:
    """The sample stated by a line, or None if it is not about training."""
    numbers = labelled_numbers(text)
    if not numbers or is_about_something_else(text):
        return None
    sample = Sample("general")
    kinds: list[str] = []
    shared = shared_time(text)
    if shared is not None:
        sample.step_time_s, sample.named = shared, True
    losses = Losses()
    for number in numbers:
        _take_number(sample, number, kinds, losses)
    losses.settle(sample)
    sample.watched = tuple((n.key, n.value) for n in numbers if is_watched_metric(n.key))
    if sample.loss == 0 and any(math.isnan(n.value) and "norm" in n.key.lower() for n in numbers):
        sample.loss = math.nan  # trainers that leave NaN out of the mean have nothing left to add
    if sample.loss is None and any(map(_is_number_of_epochs, numbers)):
        return Sample("general", EPOCH_ONLY)
    if sample.iteration is None and (sample.epoch is None or has_count_beside_epoch(numbers)):
        sample.nameless = nameless_counts(numbers)
    if sample.iteration is None and sample.epoch is None:
        return _of_nothing_counted(sample, kinds, pair=is_bracketed_pair(numbers))
    _place_time(sample, kinds)
    if sample.iteration is None and not (sample.training or sample.timed or sample.named):
        sample.group = EPOCH_ONLY
        return sample
    if not sample.training and (not sample.named or (not sample.timed and _is_handled(numbers))):
        return None
    sample.group = "general " + " ".join(kinds)
    if not sample.named and sample.total is not None:
        sample.group += f" of {sample.total}"  # another loop may be counted in the same way
    return sample


def _of_nothing_counted(sample: Sample, kinds: list[str], *, pair: bool) -> Sample | None:
    """A line without a named counter; a nameless number may count if it is of training."""
    if sample.bare and not pair:
        if sample.step_time_s is not None and sample.nameless:
            sample.unread += (("", sample.step_time_s),)  # it may be what has passed
        sample.step_time_s = None
    states_training = sample.training and not sample.part
    if (states_training or (sample.timed and not sample.bare)) and sample.nameless:
        sample.group = "general nameless " + " ".join(kinds)
        return sample
    if sample.loss is None or sample.part:
        return None
    if not sample.unit:
        sample.step_time_s = None
    sample.group = "general loss" + " and time" * sample.timed
    return sample


def _place_time(sample: Sample, kinds: list[str]) -> None:
    """What a time with no other name is the time of, by what the line counts."""
    anything = "unnamed" in kinds and not sample.training  # `12s` in any text
    elapsed = sample.elapsed_s and (sample.step_time_s or 0) >= sample.elapsed_s / 2
    if sample.bare and (anything or elapsed):  # or the elapsed time under another name
        sample.step_time_s, sample.bare = None, False
    if sample.meter and (sample.iteration is not None or sample.nameless):
        sample.bare = False
    # beside a number that may count within the epoch nothing is known yet: `series.py`
    if sample.iteration is None and sample.bare and not sample.nameless:
        # only epochs are counted: the time is that of an epoch
        sample.epoch_time_s, sample.step_time_s = sample.step_time_s, None


_EPOCHS = re.compile(r"epochs['\"]?$", re.IGNORECASE)


def _is_number_of_epochs(number: Labelled) -> bool:
    """Whether a number is the total of epochs, as in `epochs=3, batch=16, lr0=0.01`."""
    return _EPOCHS.search(number.key) is not None and number.total is None and not number.unit


def _is_handled(numbers: list[Labelled]) -> bool:
    """Whether the line reports other work than training: `batch 6 processed`."""
    return any(
        meaning(number.key, number.unit) == ("iteration", 1.0, True)
        and subject_of(re.split(r"\d", number.behind)[0]) == "other"
        for number in numbers
    )


_PATH = re.compile(r"(?:\w:)?[/\\]?(?:[\w.~-]+[/\\]){2,}[\w.~-]+")
_LINE_HEAD = re.compile(r"[^\W\d_][^\d:=|]*")


def is_about_something_else(text: str) -> bool:
    """Whether the head of a line names evaluation, data preparation or the like."""
    bare = _PATH.sub(" ", DATE.sub(" ", text[:200]))
    bare = re.sub(r"\b(?:INFO|DEBUG|WARNING|ERROR|root|__main__|main)\b", " ", bare)
    head = _LINE_HEAD.search(bare)
    return head is not None and subject_of(head[0][:60]) == "other"


def _take_number(sample: Sample, number: Labelled, kinds: list[str], losses: Losses) -> None:
    key_meaning = meaning(number.key, number.unit) or quantity_behind(number)
    unnamed = (
        key_meaning is None and not number.key and _TIME_UNIT.fullmatch(number.unit) is not None
    )
    if unnamed:
        key_meaning = meaning(
            "time", number.unit
        )  # `loss=0.5 (5.0s)`, `step 2290 | loss 3.4 | 1122.0s`
    if key_meaning is None:
        _take_unknown(sample, number, kinds, losses)
        return
    if number.clock and key_meaning[0] == "iteration":
        key_meaning = "step_time", 1.0, True  # `Step: 1s41ms`
    whole = number.value % 1 == 0 and number.unit != "ms"
    if key_meaning[0] == "step_time" and sample.iteration is None and whole:
        own = meaning(number.key, "")  # `step 100 s`
        key_meaning = own if own is not None and own[0] == "iteration" else key_meaning
    quantity, factor, stated = key_meaning
    if quantity == "loss":
        if losses.add(number.key, number.value, named=True):
            kinds.append("loss")
        return
    if not math.isfinite(number.value) and quantity != "lr":
        return
    if quantity == "time" and kinds[-1:] == ["iteration"] and number.key.lower() in _TOOK:
        quantity = "step_time"  # `step 100 took 0.5 s`
    value = number.value * factor
    take = _TAKERS.get(quantity)
    if take is not None:
        taken = take(sample, number, value, stated or number.clock)
    elif quantity in ("batch", "line_batch", "samples", "tokens", "step_tokens", "total"):
        taken = False
        if value >= 1 and getattr(sample, quantity) is None:
            setattr(sample, quantity, int(value))
    else:
        taken = value >= 0 and getattr(sample, _FIELDS.get(quantity, quantity)) is None
        if taken:
            setattr(sample, _FIELDS.get(quantity, quantity), value)
    if taken:
        kinds.append("unnamed" if unnamed and not number.bracketed else quantity)


def _take_unknown(sample: Sample, number: Labelled, kinds: list[str], losses: Losses) -> None:
    """Interpret a number with an unknown name: a part of something, or a counter."""
    if is_some_loss(number.key):
        if losses.add(number.key, number.value):
            kinds.append("part")
        return
    sample.returns = sample.returns or is_of_returns(number.key)
    if number.bracketed and not (number.key or number.unit or number.clock):
        # `Time 0.54 (0.53)`: the latest and the mean, of one step as all meters are
        sample.meter = sample.meter or kinds[-1:] == ["time"]
    if sample.bare and is_of_data(number.key):
        sample.beside_data = 0 <= number.value <= (sample.step_time_s or 0.0)
    if number.total and not number.unit and 0 <= number.value <= number.total + 1:
        _take_count(sample, number, kinds)
    elif (number.clock or unit_seconds(number.unit) is not None) and not names_a_part(number.key):
        value = number.value * (1.0 if number.clock else unit_seconds(number.unit) or 1.0)
        sample.unread += ((number.key, value),)


def _take_count(sample: Sample, number: Labelled, kinds: list[str]) -> None:
    """`[150/445]` behind `Epoch 20`, `[3/10], [150/445]`, `Trainer: 150/445`."""
    if number.key and subject_of(number.key) != "training":
        return
    if sample.iteration is not None and not (kinds == ["count"] and not number.key):
        return
    if sample.iteration is not None:  # two counters without a name: epochs, then iterations
        sample.epoch, sample.total_epochs = float(sample.iteration), sample.total
    sample.iteration, sample.total = int(number.value), number.total
    sample.in_epoch = sample.epoch is not None
    sample.placed = not (sample.named or number.key)
    sample.named = sample.named or sample.epoch is not None or bool(number.key)
    kinds.append("count")


def _take_iteration(sample: Sample, number: Labelled, value: float, stated: bool) -> bool:
    if value % 1 != 0 or value < 0:
        return False
    if "global" in number.key.lower() and sample.in_epoch:
        sample.iteration, sample.total, sample.in_epoch = int(value), None, False
        return True
    if sample.iteration is not None and not (number.total and sample.total is None):
        return False
    if sample.iteration is not None and sample.named:
        sample.outer = sample.iteration
    sample.iteration, sample.total = int(value), number.total or sample.total
    sample.named, sample.grain = True, number.grain
    counts = bool(number.total) or "batch" in number.key.lower()
    sample.in_epoch = sample.in_epoch or (sample.epoch is not None and counts)
    return True


_EPOCH_RANGE = re.compile(r"\+|\s?[-\u2013]\s?\d")
"""Text behind the first epoch of a range: `Epochs 1-5: lr 0.01`, `Epochs 11+`."""


_NAME = re.compile(r"[^\W\d_]+")


def _shortens(short: str, name: str) -> bool:
    """Whether a name may abbreviate another word: `ep` beside `epch` is an episode."""
    return len(short) < len(name) and name.startswith(short)


def _take_epoch(sample: Sample, number: Labelled, value: float, stated: bool) -> bool:
    name = _NAME.findall(number.key.lower())[-1:]
    clearer = sample.epoch_name and name and _shortens(sample.epoch_name, name[0])
    if (
        (sample.epoch is not None and not clearer)
        or not value >= 0
        or _EPOCH_RANGE.match(number.behind)
    ):
        return False
    sample.epoch, sample.total_epochs = value, number.total
    sample.epoch_name = name[0] if name else ""
    sample.in_epoch = sample.iteration is not None and sample.total is not None
    return True


def _take_step_time(sample: Sample, number: Labelled, value: float, stated: bool) -> bool:
    if not SHORTEST_TIME < value < LONGEST_TIME or (
        sample.step_time_s is not None and not sample.bare
    ):
        return False
    so_far = sample.step_time_s if sample.bare and sample.unit else None
    sample.step_time_s, sample.bare, sample.unit = value, False, stated
    if so_far is not None and sample.iteration:
        sample.step_time_s = _finer(so_far, sample.iteration, value, number)
    return True


def _finer(so_far_s: float, steps: int, stated_s: float, number: Labelled) -> float:
    """The step time from the total so far, if that has more digits: `10/10 - 13s 1s/step`."""
    digit = unit_seconds(number.unit.partition("/")[0])
    if digit is None or number.value % 1 != 0 or digit / stated_s < 1 / so_far_s:
        return stated_s
    mean = so_far_s / steps
    return mean if abs(mean - stated_s) < digit else stated_s


def _take_time(sample: Sample, number: Labelled, value: float, stated: bool) -> bool:
    if not 0 < value < LONGEST_TIME or sample.step_time_s is not None:
        return False
    sample.step_time_s, sample.bare, sample.unit = value, True, stated
    return True


def _take_step_rate(sample: Sample, number: Labelled, value: float, stated: bool) -> bool:
    taken = value > 1 / LARGEST and _take_step_time(sample, number, 1 / value, True)
    sample.rated = sample.rated or taken
    return taken


def _take_sample_time(sample: Sample, number: Labelled, value: float, stated: bool) -> bool:
    if not SHORTEST_TIME < value < LONGEST_TIME or sample.samples_per_s is not None:
        return False
    sample.samples_per_s = 1 / value
    return True


_TAKERS: dict[str, Callable[[Sample, Labelled, float, bool], bool]] = {
    "iteration": _take_iteration,
    "epoch": _take_epoch,
    "step_time": _take_step_time,
    "time": _take_time,
    "rate": _take_step_rate,
    "sample_time": _take_sample_time,
}
_FIELDS = {"elapsed": "elapsed_s", "eta": "eta_s", "epoch_time": "epoch_time_s"}


# Numbers without a name, interpreted by the text around them.


LARGEST_COUNT = 1e8
"""A larger number is a date, not a count."""

_LEVEL = re.compile(r"|INFO|DEBUG|NOTICE")


def nameless_counts(numbers: list[Labelled]) -> tuple[int, ...]:
    """The whole numbers of a line without name, unit or total, one of which may be the counter."""
    return tuple(
        int(number.value)
        for number in numbers
        if (_LEVEL.fullmatch(number.key) or (number.bracketed and _is_unnamed(number)))
        and not (number.unit or number.clock or number.total)
        and number.value % 1 == 0
        and 0 <= number.value < LARGEST_COUNT
    )


_BESIDE = re.compile(r"\s?[\])>}]?\s?[\[(<{,/:|-]\s?")
"""Text between two counters that belong together: `[3][50]`, `[3, 50]`, `<3> <50>`."""


def has_count_beside_epoch(numbers: list[Labelled]) -> bool:
    """Whether a whole number without a name directly follows that of an epoch."""
    return any(
        meaning(a.key, a.unit) == ("epoch", 1.0, True) and not a.total and _is_beside(b)
        for a, b in pairwise(numbers)
    )


def is_bracketed_pair(numbers: list[Labelled]) -> bool:
    """Whether a line has two nameless counters in brackets."""
    return any(
        _is_unnamed(a) and a.bracketed and a.value % 1 == 0 and _is_beside(b)
        for a, b in pairwise(numbers)
    )


def _is_unnamed(number: Labelled) -> bool:
    """Whether the text before a number is a log level or `training`, not a quantity."""
    return _LEVEL.fullmatch(number.key) is not None or (
        meaning(number.key, number.unit) is None and subject_of(number.key) == "training"
    )


def _is_beside(number: Labelled) -> bool:
    plain = not (number.key or number.unit or number.clock or number.total)
    return plain and number.value % 1 == 0 and _BESIDE.fullmatch(number.gap) is not None


_FOLLOWS = re.compile(r"\s?([^\W\d_]{2,})\b(?!\s*[/:=(\[])")


def quantity_behind(number: Labelled) -> tuple[str, float, bool] | None:
    """The quantity named behind a nameless number: `1.2M samples`, `3,000 tokens`."""
    if number.key or number.unit or number.clock or number.total or number.bracketed:
        return None
    follows = _FOLLOWS.match(number.behind)
    kind = counted_by(follows[1]) if follows is not None else None
    return (kind, 1.0, True) if kind in ("samples", "tokens") else None


# Which loss of a line is the training loss, and since when it has been NaN or infinite.
#
# A loss named as the sum (`total_loss`) precedes plain `loss`, that precedes a specific one
# (`ce_loss`), and that precedes parts (`loss_box`), in any order on the line.


RANK_OF_PART, RANK_OF_WHOLE = 0, 3
"""The lowest and the highest rank of a loss's name, by `words.loss_rank`."""
ACCUMULATED = 1.5
"""A sum this many times larger than the losses beside it accumulates several steps."""
LOSS_DISTANCE = 2000
"""Distance up to which losses of one step may be on lines of their own [bytes]."""


class Losses:
    """The losses of one line, from left to right."""

    def __init__(self) -> None:
        self._ranked: list[tuple[int, float]] = []

    def add(self, key: str, value: float, *, named: bool = False) -> bool:
        """Add a loss; `named` if its key is known as that of a loss.

        Returns whether it is the first of its rank, which distinguishes kinds of lines.
        """
        rank = loss_rank(key, named=named)
        best = max((rank for rank, _ in self._ranked), default=None)
        self._ranked.append((rank, value))
        return best is None or best == RANK_OF_PART < rank

    def settle(self, sample: Sample) -> None:
        """Set the loss of a line's sample."""
        if not self._ranked:
            return
        rank, value = max(self._ranked, key=lambda candidate: candidate[0])
        if rank == RANK_OF_WHOLE and math.isfinite(value):
            others = [candidate for candidate in self._ranked if candidate[0] != RANK_OF_WHOLE]
            beside = sum(abs(other) for _, other in others if math.isfinite(other))
            if others and max(others)[0] > RANK_OF_PART and abs(value) > ACCUMULATED * beside:
                rank, value = max(others, key=lambda candidate: candidate[0])
        sample.loss, sample.loss_rank, sample.part = value, rank, rank == RANK_OF_PART


def latest_loss(samples: Iterable[Sample]) -> Sample | None:
    """The sample with the current loss; samples of the preferred kind come first, newest first."""
    with_loss = [sample for sample in samples if sample.loss is not None]
    whole = [sample for sample in with_loss if not sample.part] or with_loss
    near = [sample for sample in whole if abs(sample.offset - whole[0].offset) <= LOSS_DISTANCE]
    return max(near, key=lambda sample: sample.loss_rank, default=None)


def non_finite_since(latest: Sample, samples: Iterable[Sample]) -> Sample:
    """The first of the uninterrupted NaN or infinite losses up to the latest."""
    first = latest
    of_kind = [s for s in samples if s.group == latest.group and s.loss is not None]
    for sample in sorted(of_kind, key=lambda s: -s.offset):
        if sample.offset <= latest.offset:
            if math.isfinite(sample.loss or 0.0):
                break
            first = sample
    return first


def non_finite_metrics(latest: Iterable[Sample]) -> dict[str, Literal["nan", "inf"]]:
    """The gradient norms and validation losses that were NaN or infinite when last stated."""
    last: dict[str, float] = {}
    for sample in latest:
        for name, value in sample.watched:
            last.setdefault(name, value)
    return {
        name: "nan" if math.isnan(value) else "inf"
        for name, value in last.items()
        if not math.isfinite(value)
    }
