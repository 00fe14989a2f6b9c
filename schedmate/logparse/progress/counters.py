"""Which number of one kind of line counts, and which one is that of the epochs around it.

A number that rises by the same amount from line to line counts, whatever it is called; of two
counters of a line, the one that begins anew when the other counts on is that of the inner loop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from schedmate.logparse.progress.sample import Sample
from schedmate.logparse.progress.series import EVEN, FEWEST


def find_counter(samples: list[Sample]) -> None:
    """Sets `iteration` of samples that count without a name.

    The counter is the first of their nameless whole numbers that rises from line to line, by the
    same amount nearly always. Where there is none, the samples stay as they are.
    """
    if len(samples) < FEWEST or any(s.iteration is not None for s in samples):
        return
    for index in range(min(len(sample.nameless) for sample in samples)):
        counts = [sample.nameless[index] for sample in samples]
        outer = _outer(samples, counts, index)
        steps = [
            b - a
            for (a, b), (before, after) in zip(pairwise(counts), pairwise(outer), strict=True)
            if before == after
        ]
        usual = sorted(steps)[len(steps) // 2] if len(steps) >= FEWEST - 2 else 0
        if usual > 0 and sum(step == usual for step in steps) >= EVEN * len(steps):
            for sample, count, epoch in zip(samples, counts, outer, strict=True):
                sample.iteration = count
                if epoch is not None:
                    sample.epoch, sample.in_epoch = float(epoch), True
            return


def _outer(samples: list[Sample], counts: list[int], index: int) -> Sequence[float | None]:
    """The epochs in which a counter begins anew: named, or by a number that stands before it.

    None of each where there are none.
    """
    found: list[list[float | None]] = [[s.epoch for s in samples]]
    found += [[s.nameless[other] for s in samples] for other in range(index)]
    for outer in found:
        if any(epoch is None for epoch in outer):
            continue
        turns = [
            (after - before, b < a)  # type: ignore[operator]
            for (before, after), (a, b) in zip(pairwise(outer), pairwise(counts), strict=True)
            if after != before or b < a
        ]
        if turns and all(step == 1 and anew for step, anew in turns):
            return outer
    named = found[0]
    constant = named[0] is not None and len(set(named)) == 1
    return named if constant else [None] * len(samples)


def unplaced(samples: list[Sample]) -> None:
    """Makes the time of an epoch of a time that stands beside nothing that counts within it."""
    for sample in samples:
        if sample.nameless and sample.epoch is not None and sample.iteration is None:
            if sample.bare and sample.reader == "general":
                sample.epoch_time_s = sample.step_time_s
            sample.step_time_s, sample.bare = None, False


def swap_totals(groups: dict[str, list[Sample]]) -> None:
    """Makes counters of totals that count: `(3/1490)` of which the second number goes on.

    Lines of one kind are in groups by their totals. Takes groups of the newest first and puts
    what it mends into one group.
    """
    kinds: dict[str, list[Sample]] = {}
    for name, group in groups.items():
        if group[0].reader == "general" and not group[0].named and group[0].total is not None:
            kinds.setdefault(name.rpartition(" of ")[0], []).extend(group)
    for kind, samples in kinds.items():
        samples.sort(key=lambda s: -s.offset)
        up = [(a.total or 0) > (b.total or 0) for a, b in pairwise(samples)]
        if len(samples) < FEWEST or sum(up) < EVEN * len(up):
            continue
        for name in [n for n in groups if n.rpartition(" of ")[0] == kind]:
            del groups[name]
        for sample in samples:
            sample.group, sample.nameless = kind, (sample.iteration or 0, sample.total or 0)
            sample.iteration = sample.total = None
        groups[kind] = samples


def nest(samples: list[Sample]) -> None:
    """Decides between two counters of each line: which loop is the inner one, if it is one.

    `iteration: 7 step: 26/29` counts on by the same amount from line to line in all, 7 x 29 + 26,
    where the outer counter is one of epochs; the outer one does where it counts the same steps on.
    """
    if len(samples) < FEWEST or any(s.outer is None or not s.total for s in samples):
        return
    inner = [s.iteration or 0 for s in samples]
    outer = [s.outer or 0 for s in samples]
    run = [a * (s.total or 0) + b for s, a, b in zip(samples, outer, inner, strict=True)]
    counts = max((inner, outer, run), key=_evenness)
    if counts is inner:
        return
    for sample, count in zip(samples, counts, strict=True):
        if counts is run and sample.epoch is None:
            sample.epoch = float(sample.outer or 0)
        sample.iteration, sample.total, sample.in_epoch = count, None, False


def _evenness(counts: list[int]) -> float:
    """The share of the differences that are the usual one, which must be one of counting on."""
    steps = Counter(b - a for a, b in pairwise(counts))
    step, often = steps.most_common(1)[0]
    return often / len(counts) if step > 0 else 0.0
