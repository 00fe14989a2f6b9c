"""Has a job become slower? An online change-point detector on the step times of its log.

Step times of a log have no known distribution: they have pauses for evaluation and checkpoints,
first steps that are slow, and steps of several lengths. So each reading is replaced by its rank
among the readings before it, turned into a normal score (sequential normal scores: Conover,
Tercero-Gomez and Cordero-Franco, "The sequential normal scores transformation", Sequential Analysis
36, 2017). If nothing changes, the scores are standard normal whatever the distribution was, so the
threshold of a CUSUM over them (Page, Biometrika 41, 1954) has a known average run length until a
false alarm. A pause is one high rank among others: it moves the sum by a bounded amount, and a
pause that recurs ranks among the earlier ones.

Statistical evidence alone is not a reason to call somebody: the change must also be large.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Sequence
from statistics import NormalDist, median
from typing import NamedTuple

DRIFT = 0.5
"""What a score must exceed to count [standard deviations]: half the shift that is searched for."""
THRESHOLD = 9.0
"""CUSUM at which a change is certain. By Siegmund's approximation 50,000 readings pass on average
before it is reached without a change."""
FIRST = 30
"""Readings that are learned from before any is judged."""
WARM_UP = 3
"""First readings of a run, which pay for starting up, are left out."""
SLOWER = 1.2
"""The step time must have grown to this many times what it was."""
FEWEST = 5
"""Readings since the change that its size is taken from."""
BACK = 1.1
"""The change is over when the latest readings are below this many times what was usual."""

_NORMAL = NormalDist()


class Slowdown(NamedTuple):
    """From `first`, an index of the readings, on, steps take `after_s` instead of `before_s`."""

    first: int
    before_s: float
    after_s: float
    found: int
    """Index of the reading at which that was certain."""
    over: int | None = None
    """Index of the reading at which steps had become as fast as before."""

    @property
    def ratio(self) -> float:
        """How many times longer a step takes."""
        return self.after_s / self.before_s


def slowdowns(
    readings: Sequence[float], *, threshold: float = THRESHOLD, slower: float = SLOWER
) -> list[Slowdown]:
    """All slowdowns of a run, in order; `after_s` is by all readings until each was over.

    What follows a slowdown is compared with what was usual before it, until it is over. A change
    that is certain but too small to matter becomes usual.
    """
    usual: list[float] = []  # sorted
    total, since = 0.0, 0
    found: list[Slowdown] = []
    for at, reading in enumerate(readings):
        if at < WARM_UP or not (reading > 0 and math.isfinite(reading)):
            continue
        if found and found[-1].over is None:
            if median(readings[at + 1 - FEWEST : at + 1]) < BACK * found[-1].before_s:
                after_s = median(readings[found[-1].first : at + 1 - FEWEST // 2])
                found[-1] = found[-1]._replace(over=at, after_s=after_s)
                total = 0.0
            continue
        if len(usual) >= FIRST:
            rank = (bisect_left(usual, reading) + bisect_right(usual, reading)) / 2 + 0.5
            if total == 0.0:
                since = at
            total = max(0.0, total + _NORMAL.inv_cdf(rank / (len(usual) + 1)) - DRIFT)
        # at once, so that the ranks of a run without a change are independent
        insort(usual, reading)
        if total > threshold and at + 1 - since >= FEWEST:
            changed = [
                each for each in readings[since : at + 1] if each > 0 and math.isfinite(each)
            ]
            before = sorted((Counter(usual) - Counter(changed)).elements())
            before_s, after_s = median(before or usual), median(changed)
            if after_s >= slower * before_s:
                found.append(Slowdown(since, before_s, after_s, at))
                usual = before
            elif len(changed) >= FIRST:
                total = 0.0
    if found and found[-1].over is None:
        found[-1] = found[-1]._replace(after_s=median(readings[found[-1].first :]))
    return found


def present_slowdown(
    readings: Sequence[float], *, threshold: float = THRESHOLD, slower: float = SLOWER
) -> Slowdown | None:
    """The slowdown that a run is in now; None if it is in none."""
    found = slowdowns(readings, threshold=threshold, slower=slower)
    return found[-1] if found and found[-1].over is None else None
