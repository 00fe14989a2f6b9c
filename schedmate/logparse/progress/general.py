"""Reads progress lines of unknown formats by the labels of their numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from schedmate.logparse.progress.labels import DATE, LARGEST, Labelled, labelled, shared_time
from schedmate.logparse.progress.losses import Losses
from schedmate.logparse.progress.nameless import by_what_follows, has_place, is_pair, nameless
from schedmate.logparse.progress.sample import Sample
from schedmate.logparse.progress.words import (
    about,
    is_of_data,
    is_of_returns,
    is_some_loss,
    is_watched,
    meaning,
    names_a_part,
    seconds,
)

EPOCH_ONLY = "an epoch and nothing else"
"""The kind of lines that state an epoch and nothing else; their log is likely of a training."""
LATEST = 1e8
"""A larger time [s] is a date, not a duration."""
SHORTEST = 1e-9
"""A shorter time [s] is not that of a step."""

_LASTS = re.compile(r"ms|s|secs?|seconds?|m|mins?|minutes?|h|hours?")
_TOOK = frozenset(["took", "takes", "finished in", "completed in", "done in", "took about"])


def read_general(text: str) -> Sample | None:
    """The sample stated by a line, or None if it is not about training."""
    numbers = labelled(text)
    if not numbers or is_about_something_else(text):
        return None
    sample = Sample("general")
    kinds: list[str] = []
    shared = shared_time(text)
    if shared is not None:
        sample.step_time_s, sample.named = shared, True
    losses = Losses()
    for number in numbers:
        _take(sample, number, kinds, losses)
    losses.settle(sample)
    sample.watched = tuple((n.key, n.value) for n in numbers if is_watched(n.key))
    if sample.loss == 0 and any(math.isnan(n.value) and "norm" in n.key.lower() for n in numbers):
        sample.loss = math.nan  # trainers that leave NaN out of the mean have nothing left to add
    if sample.loss is None and any(map(_is_number_of_epochs, numbers)):
        return Sample("general", EPOCH_ONLY)
    if sample.iteration is None and (sample.epoch is None or has_place(numbers)):
        sample.nameless = nameless(numbers)
    if sample.iteration is None and sample.epoch is None:
        return _of_nothing_counted(sample, kinds, pair=is_pair(numbers))
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
    said = sample.training and not sample.part
    if (said or (sample.timed and not sample.bare)) and sample.nameless:
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
    # beside a number that may count within the epoch nothing is known yet: `counters.py`
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
        and about(re.split(r"\d", number.behind)[0]) == "other"
        for number in numbers
    )


_PATH = re.compile(r"(?:\w:)?[/\\]?(?:[\w.~-]+[/\\]){2,}[\w.~-]+")
_HEAD = re.compile(r"[^\W\d_][^\d:=|]*")


def is_about_something_else(text: str) -> bool:
    """Whether the head of a line names evaluation, data preparation or the like."""
    bare = _PATH.sub(" ", DATE.sub(" ", text[:200]))
    bare = re.sub(r"\b(?:INFO|DEBUG|WARNING|ERROR|root|__main__|main)\b", " ", bare)
    head = _HEAD.search(bare)
    return head is not None and about(head[0][:60]) == "other"


def _take(sample: Sample, number: Labelled, kinds: list[str], losses: Losses) -> None:
    known = meaning(number.key, number.unit) or by_what_follows(number)
    unnamed = known is None and not number.key and _LASTS.fullmatch(number.unit) is not None
    if unnamed:
        known = meaning("time", number.unit)  # `loss=0.5 (5.0s)`, `step 2290 | loss 3.4 | 1122.0s`
    if known is None:
        _take_unknown(sample, number, kinds, losses)
        return
    if number.clock and known[0] == "iteration":
        known = "step_time", 1.0, True  # `Step: 1s41ms`
    whole = number.value % 1 == 0 and number.unit != "ms"
    if known[0] == "step_time" and sample.iteration is None and whole:
        own = meaning(number.key, "")  # `step 100 s`
        known = own if own is not None and own[0] == "iteration" else known
    quantity, factor, stated = known
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
        _count(sample, number, kinds)
    elif (number.clock or seconds(number.unit) is not None) and not names_a_part(number.key):
        value = number.value * (1.0 if number.clock else seconds(number.unit) or 1.0)
        sample.unread += ((number.key, value),)


def _count(sample: Sample, number: Labelled, kinds: list[str]) -> None:
    """`[150/445]` behind `Epoch 20`, `[3/10], [150/445]`, `Trainer: 150/445`."""
    if number.key and about(number.key) != "training":
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


def _iteration(sample: Sample, number: Labelled, value: float, stated: bool) -> bool:
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


_FROM = re.compile(r"\+|\s?[-\u2013]\s?\d")
"""Text behind the first epoch of a range: `Epochs 1-5: lr 0.01`, `Epochs 11+`."""


_NAME = re.compile(r"[^\W\d_]+")


def _shortens(short: str, name: str) -> bool:
    """Whether a name may abbreviate another word: `ep` beside `epch` is an episode."""
    return len(short) < len(name) and name.startswith(short)


def _epoch(sample: Sample, number: Labelled, value: float, stated: bool) -> bool:
    name = _NAME.findall(number.key.lower())[-1:]
    clearer = sample.epoch_name and name and _shortens(sample.epoch_name, name[0])
    if (sample.epoch is not None and not clearer) or not value >= 0 or _FROM.match(number.behind):
        return False
    sample.epoch, sample.total_epochs = value, number.total
    sample.epoch_name = name[0] if name else ""
    sample.in_epoch = sample.iteration is not None and sample.total is not None
    return True


def _step_time(sample: Sample, number: Labelled, value: float, stated: bool) -> bool:
    if not SHORTEST < value < LATEST or (sample.step_time_s is not None and not sample.bare):
        return False
    so_far = sample.step_time_s if sample.bare and sample.unit else None
    sample.step_time_s, sample.bare, sample.unit = value, False, stated
    if so_far is not None and sample.iteration:
        sample.step_time_s = _finer(so_far, sample.iteration, value, number)
    return True


def _finer(so_far_s: float, steps: int, stated_s: float, number: Labelled) -> float:
    """The step time from the total so far, if that has more digits: `10/10 - 13s 1s/step`."""
    digit = seconds(number.unit.partition("/")[0])
    if digit is None or number.value % 1 != 0 or digit / stated_s < 1 / so_far_s:
        return stated_s
    mean = so_far_s / steps
    return mean if abs(mean - stated_s) < digit else stated_s


def _time(sample: Sample, number: Labelled, value: float, stated: bool) -> bool:
    if not 0 < value < LATEST or sample.step_time_s is not None:
        return False
    sample.step_time_s, sample.bare, sample.unit = value, True, stated
    return True


def _rate(sample: Sample, number: Labelled, value: float, stated: bool) -> bool:
    taken = value > 1 / LARGEST and _step_time(sample, number, 1 / value, True)
    sample.rated = sample.rated or taken
    return taken


def _sample_time(sample: Sample, number: Labelled, value: float, stated: bool) -> bool:
    if not SHORTEST < value < LATEST or sample.samples_per_s is not None:
        return False
    sample.samples_per_s = 1 / value
    return True


_TAKERS: dict[str, Callable[[Sample, Labelled, float, bool], bool]] = {
    "iteration": _iteration,
    "epoch": _epoch,
    "step_time": _step_time,
    "time": _time,
    "rate": _rate,
    "sample_time": _sample_time,
}
_FIELDS = {"elapsed": "elapsed_s", "eta": "eta_s", "epoch_time": "epoch_time_s"}
