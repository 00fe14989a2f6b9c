"""The prior of how much runs of the same work vary.

A distance is the absolute logarithm of the ratio of two run times; the one used throughout is that
which `LEVEL` of all pairs stay within. It is learned from the history's own resubmissions, and,
the fewer there are, from clusters where it was measured (spread.yaml).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from schedmate.data import load

if TYPE_CHECKING:
    from schedmate.retrieval.adjust import Adjustment

LEVEL = 0.8
"""Share of pairs within the distance: that of an interval from p10 to p90."""

LATEST = 600
"""Ended jobs of the history that are looked at: those submitted last."""

WORTH = 10.0
"""Jobs with resubmissions that the measured clusters weigh as much as."""

GROWTH = 1.02
"""A history this much larger than when it was last looked at is looked at again."""

LEAST = 0.02
"""Least distance that a history can teach: runs in one burst are closer than later ones."""


@dataclass(frozen=True, slots=True)
class Spread:
    """How far a run lies from the one before it of the same job.

    `distance` is what `LEVEL` of them stay within, `jobs` how many jobs of this history that ran
    several times had a say in it.
    """

    distance: float
    jobs: int = 0

    def between(self, same: bool, adjustment: Adjustment, doubt: float | None = None) -> float:
        """The distance of a past run from the new job; `same` when their workloads are.

        `doubt` stands in for that of the adjustment: without what all runs have in common.
        """
        table = measured()
        return math.hypot(
            self.distance * (1.0 if same else table["similar"] / table["exact on these"]),
            adjustment.doubt if doubt is None else doubt,
            table["gpu type"] if adjustment.other_gpu else 0.0,
            table["unknown length"] if adjustment.unknown_length else 0.0,
        )


@dataclass(frozen=True, slots=True)
class Learned:
    """Statistics learned from a history of `size` jobs."""

    size: int
    spread: Spread

    def fits(self, size: int) -> bool:
        """Whether a history that now has `size` jobs has not grown much since."""
        return self.size <= size < self.size * GROWTH


UNLEARNED = Learned(0, Spread(0.0))


@cache
def measured() -> dict[str, float]:
    """Distances by what differs: the means over the clusters where they were measured."""
    table: dict[str, dict[str, float]] = load("retrieval/spread.yaml")
    table["exact on these"] = {name: table["exact"][name] for name in table["similar"]}
    return {
        what: math.fsum(map(math.log, factors.values())) / len(factors)
        for what, factors in table.items()
    }


def learn(runs: Iterable[tuple[str, float]]) -> Spread:
    """From completed runs in order of time: fingerprint and run time [s], above zero."""
    last: dict[str, float] = {}
    distances: dict[str, list[float]] = defaultdict(list)
    for fingerprint, duration_s in runs:
        here = math.log(duration_s)
        if fingerprint in last:
            distances[fingerprint].append(abs(here - last[fingerprint]))
        last[fingerprint] = here
    known = measured()["exact"]
    own = apart(distances.values(), LEVEL)
    if own is None:
        return Spread(known)
    jobs = len(distances)
    logs = WORTH * math.log(known) + jobs * math.log(max(own, LEAST))
    return Spread(math.exp(logs / (WORTH + jobs)), jobs)


def apart(groups: Iterable[Sequence[float]], level: float) -> float | None:
    """The least value that `level` of all do not exceed, every group counting the same.

    None without a value.
    """
    values = sorted((value, 1 / len(group)) for group in groups for value in group)
    left = level * math.fsum(weight for _, weight in values)
    for value, weight in values:
        left -= weight
        if left <= 1e-9:
            return value
    return None
