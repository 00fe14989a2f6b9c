"""Logs that print the counter and its time on separate lines: the two are joined."""

from __future__ import annotations

from bisect import bisect_left
from statistics import median
from typing import NamedTuple

from schedmate.logparse.progress.general import is_about_something_else
from schedmate.logparse.progress.labels import LARGEST, labelled
from schedmate.logparse.progress.sample import Sample
from schedmate.logparse.progress.series import counts_on
from schedmate.logparse.progress.words import meaning

SHORT = 160
"""Limit for the characters of a line with a single time."""
NEAR = 2000
"""Limit for the distance between a counter and its time [bytes]."""
PAIRED = 0.8
"""Share of the counters that must have a time of their own."""
FEWEST = 3


class Part(NamedTuple):
    """A time alone on its line: its kind, value [s], and whether the line states the unit.

    `eta` [s] is the remaining time of the run if the same line states it.
    """

    quantity: str
    value: float
    stated: bool
    key: str
    eta: float | None = None
    offset: int = 0


def read_part(text: str) -> Part | None:
    """The time on a line that states nothing else, except the remaining time, or None."""
    if len(text) > SHORT or is_about_something_else(text):
        return None
    numbers = labelled(text)
    if not 1 <= len(numbers) <= 2 or numbers[0].bracketed:
        return None
    number, *more = numbers
    known = meaning(number.key, number.unit)
    if known is None or known[0] not in ("step_time", "time", "rate", "elapsed"):
        return None
    eta = None
    for other in more:
        left = meaning(other.key, other.unit)
        if left is None or left[0] != "eta":
            return None
        eta = other.value * left[1] if 0 <= other.value <= LARGEST else None
    value = number.value * known[1]
    if not 1 / LARGEST < value <= LARGEST:
        return None
    return Part(known[0], value, known[2] or number.clock, number.key.lower(), eta)


def join(samples: list[Sample], parts: list[Part]) -> None:
    """Give samples with a counter, the newest first, the times on lines near them.

    Only if the samples of one kind have no time, and nearly each has one of the same name, on the
    same side and before the next counter.
    """
    kinds: dict[str, list[Part]] = {}
    for part in sorted(parts, key=lambda part: part.offset):
        kinds.setdefault(part.key, []).append(part)
    groups: dict[str, list[Sample]] = {}
    for sample in reversed(samples):
        if sample.iteration is not None:
            groups.setdefault(sample.group, []).append(sample)
    for group in groups.values():
        if len(group) < FEWEST or any(s.timed or s.elapsed_s is not None for s in group):
            continue
        if not counts_on(group):
            continue
        for found in sorted(kinds.values(), key=lambda kind: kind[0].quantity != "step_time"):
            pairs = _pairs(group, found)
            if pairs is not None:
                for sample, part in pairs:
                    _give(sample, part)
                break


def _pairs(group: list[Sample], parts: list[Part]) -> list[tuple[Sample, Part]] | None:
    """Each sample with the part after it, or each with the one before it; None if neither fits."""
    places = [part.offset for part in parts]
    starts = [sample.offset for sample in group]
    after: list[tuple[Sample, Part]] = []
    before: list[tuple[Sample, Part]] = []
    for index, sample in enumerate(group):
        at = bisect_left(places, sample.offset)
        following = starts[index + 1] if index + 1 < len(starts) else sample.offset + NEAR
        preceding = starts[index - 1] if index else sample.offset - NEAR
        if at < len(parts) and places[at] < min(following, sample.offset + NEAR):
            after.append((sample, parts[at]))
        if at and places[at - 1] > max(preceding, sample.offset - NEAR):
            before.append((sample, parts[at - 1]))
    fitting = [pairs for pairs in (after, before) if len(pairs) >= max(FEWEST, PAIRED * len(group))]
    if not fitting:
        return None
    # where they alternate, one of both sides leaves the last or the first counter without a time
    return max(
        fitting, key=lambda pairs: (len(pairs), -median(abs(s.offset - p.offset) for s, p in pairs))
    )


def _give(sample: Sample, part: Part) -> None:
    sample.eta_s = part.eta if sample.eta_s is None else sample.eta_s
    if part.quantity == "elapsed":
        sample.elapsed_s = part.value
        return
    sample.step_time_s = 1 / part.value if part.quantity == "rate" else part.value
    sample.bare, sample.unit = part.quantity == "time", part.stated or part.quantity == "rate"
