"""Which number on one kind of line is the step counter, and which one counts epochs.

A number that rises by the same amount from line to line is a counter, whatever its name. Of two
counters on a line, the one that restarts whenever the other advances belongs to the inner loop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from schedmate.logparse.progress.sample import Sample
from schedmate.logparse.progress.series import EVEN, FEWEST


def find_counter(samples: list[Sample]) -> None:
    """Set `iteration` of samples whose counter has no name.

    The counter is the first of their nameless whole numbers that rises from line to line, nearly
    always by the same amount. Without one, the samples are unchanged.
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
    """The epochs in which a counter restarts, by name or by a number before it; None without."""
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
    """Turn a time without a counter within the epoch into the time of an epoch."""
    for sample in samples:
        if sample.nameless and sample.epoch is not None and sample.iteration is None:
            if sample.bare and sample.reader == "general":
                sample.epoch_time_s = sample.step_time_s
            sample.step_time_s, sample.bare = None, False


def swap_totals(groups: dict[str, list[Sample]]) -> None:
    """Swap counter and total if the total is what counts: `(3/1490)`, `(3/1491)`.

    Groups are lines of one kind by their totals. Takes groups of the newest first and merges those
    it corrects into one.
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
    """Decide between two counters on each line: which one is the inner loop's, if they are nested.

    `iteration: 7 step: 26/29` advances evenly in total, 7 x 29 + 26, if the outer counter is one of
    epochs; if it counts the same steps, the outer counter advances evenly by itself.
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
    """The share of differences equal to the usual one, which must be positive."""
    steps = Counter(b - a for a, b in pairwise(counts))
    step, often = steps.most_common(1)[0]
    return often / len(counts) if step > 0 else 0.0
