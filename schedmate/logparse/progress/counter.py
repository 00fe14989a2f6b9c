"""The counter of lines that have one without calling it step or iteration."""

from __future__ import annotations

from itertools import pairwise

from schedmate.logparse.progress.sample import Sample

FEWEST = 5
"""Lines below which nothing is said of a number without a name."""
EVEN = 0.8
"""Share of the differences between lines that must be the usual one."""


def find_counter(group: list[Sample]) -> None:
    """Sets `iteration` of samples of one kind, the newest first, that count without a name.

    The counter is the first of their nameless whole numbers that rises from line to line, by the
    same amount nearly always. Where there is none, the samples stay as they are.
    """
    if len(group) < FEWEST or any(s.iteration is not None for s in group):
        return
    width = min(len(sample.nameless) for sample in group)
    for index in range(width):
        counts = [sample.nameless[index] for sample in reversed(group)]
        steps = [newer - older for older, newer in pairwise(counts)]
        usual = sorted(steps)[len(steps) // 2]
        if usual > 0 and sum(step == usual for step in steps) >= EVEN * len(steps):
            for sample in group:
                sample.iteration = sample.nameless[index]
            return
