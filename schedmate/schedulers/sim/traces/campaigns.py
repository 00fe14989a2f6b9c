"""Campaigns: jobs that one person submits one after the other, much the same.

Real traces are not jobs drawn one by one: on Helios Venus every fifth job runs as long as the one
before it, within 10 %, and an hour's submissions vary twice as much as the time of day explains.
Here submissions come in campaigns of heavy-tailed size. Their jobs follow each other at
heavy-tailed intervals, on the same number of GPUs, and a share of them runs as long as the
campaign does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Campaigns:
    """How submissions cluster; fitted, not published (benchmarks/traces_campaigns.py)."""

    tail: float
    """Exponent of the sizes: a campaign has n jobs with probability ~ n ** -tail."""
    most: int
    """Jobs of the largest campaign."""
    alike: float
    """Share of a campaign's jobs that run as long as it does."""
    spread: float
    """How far these are from it, in standard deviations of the logarithm of all run times."""
    gap_s: float
    """Median time from one job of a campaign to the next [s]."""
    gap_spread: float
    """Standard deviation of the logarithm of that time."""
    rate_spread: float
    """Standard deviation of the logarithm of the number of campaigns that begin in an hour, beyond
    the effect of hour and weekday."""

    @classmethod
    def of(cls, values: Mapping[str, Any] | None) -> Self | None:
        """From a calibration; None: every job is a separate campaign. Raises `ValueError`."""
        if values is None:
            return None
        made = cls(**{**values, "most": int(values["most"])})
        for name in ("tail", "most", "gap_s"):
            if not getattr(made, name) > 0:
                raise ValueError(f"campaigns.{name} is not above 0")
        if (
            not 0 <= made.alike <= 1
            or made.spread < 0
            or min(made.gap_spread, made.rate_spread) < 0
        ):
            raise ValueError("campaigns: alike is a share, spreads are not negative")
        return made

    def sizes(self, jobs: int, rng: np.random.Generator) -> Integers:
        """Jobs of each campaign, `jobs` together."""
        numbers = np.arange(1, min(self.most, jobs) + 1)
        shares = numbers**-self.tail
        shares /= shares.sum()
        mean = float(numbers @ shares)
        drawn: Integers = rng.choice(numbers, int(2 * jobs / mean) + 10, p=shares)
        while drawn.sum() < jobs:
            drawn = np.concatenate([drawn, drawn])
        ends = np.searchsorted(np.cumsum(drawn), jobs)
        drawn = drawn[: ends + 1].copy()
        drawn[-1] -= drawn.sum() - jobs
        return drawn

    def times(
        self, begun: Floats, sizes: Integers, rng: np.random.Generator
    ) -> tuple[Floats, Integers]:
        """Submission times [whole s] of all jobs, ascending, and the campaign of each.

        One campaign begins at each of `begun`; those that reach beyond the end continue at the
        start.
        """
        of = np.repeat(rng.permutation(len(sizes)), sizes)
        gaps = self.gap_s * np.exp(rng.normal(0.0, self.gap_spread, len(of)))
        starts = np.cumsum(sizes) - sizes
        gaps[starts] = 0.0
        total = np.cumsum(gaps)
        since = total - np.repeat(total[starts], sizes)
        first = begun[0]
        later = (begun[of] - first + since) % (begun[-1] - first + 1)
        order = np.argsort(later, kind="stable")
        return np.floor(first + later[order]), of[order]

    def latent(self, of: Integers, rng: np.random.Generator) -> Floats:
        """A standard normal number for each job, by its campaign: similar jobs have close ones."""
        count = len(of)
        middle = rng.standard_normal(int(of.max()) + 1)[of]
        close = middle + self.spread * rng.standard_normal(count)
        alike = rng.random(count) < self.alike
        drawn: Floats = np.where(alike, close, rng.standard_normal(count))
        return drawn


def ranked(values: Floats, like: Floats) -> Floats:
    """The same values in the order of others: the n-th smallest where those have theirs."""
    placed = np.empty_like(values)
    placed[np.argsort(like, kind="stable")] = np.sort(values)
    return placed
