"""From readings to one number: outliers removed, the median, and clocks turned into a pace."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

FAR = 3.0
"""Factor above the median that makes a reading a stall (checkpoint, evaluation, first steps).

A reading below the median by this factor is not of a step.
"""
TICKS = 10
"""A difference of clock readings must be this many times their resolution to count."""
PLENTY = 40
"""The same if there are many readings: the longer the difference, the smaller the error."""
MOST = 1000
"""Limit for the weight of one reading."""
ENOUGH = 4


class Spread(NamedTuple):
    """A median with the 10th and 90th percentile of `n` readings."""

    median: float
    p10: float
    p90: float
    n: int
    across: bool = False
    """Whether the readings span epochs, with possible work between them."""

    def times(self, factor: float) -> Spread:
        """The same readings in another unit."""
        return self._replace(
            median=self.median * factor, p10=self.p10 * factor, p90=self.p90 * factor
        )


def typical(readings: Sequence[float]) -> Spread | None:
    """The median of the readings without outliers, or None without readings."""
    if not readings:
        return None
    middle = median(readings)
    kept = sorted(value for value in readings if middle / FAR <= value <= middle * FAR)
    last = len(kept) - 1
    return Spread(median(kept), kept[round(0.1 * last)], kept[round(0.9 * last)], len(kept))


def _typical_step(rates: Sequence[tuple[float, int]]) -> Spread | None:
    """The same for steps, if each reading covers several."""
    least = min((steps for _, steps in rates), default=1)
    return typical([rate for rate, steps in rates for _ in range(min(MOST, steps // least))])


class Tick(NamedTuple):
    """A clock [s] and a counter on one line, with the epoch if the line states it."""

    clock: float
    steps: int
    epoch: int | None = None


def pace(ticks: Sequence[Tick]) -> Spread | None:
    """Seconds per count between readings in the order of the log.

    A counter or a clock that falls starts a new run (a new epoch, a restart). If the clock's
    resolution is coarse relative to the differences, several are combined. An evaluation may lie
    between two epochs, so differences across epochs count only if there are no others.
    """
    inside = _pace(ticks, across=False)
    if inside is not None:
        return inside
    found = _pace(ticks, across=True)
    return found and found._replace(across=len({tick.epoch for tick in ticks}) > 1)


def _pace(ticks: Sequence[Tick], *, across: bool) -> Spread | None:
    finest = resolution([tick.clock for tick in ticks])
    for least in (PLENTY * finest, TICKS * finest):
        runs = _rates(ticks, least, across=across)
        rates = [rate for run in runs for rate in run]
        if len(rates) >= ENOUGH:
            break
    else:
        # of a few, those of the run before may be of another speed altogether
        rates = next((run for run in reversed(runs) if run), [])
    found = _typical_step(rates)
    return found and found._replace(n=min(found.n, len(rates)))


def _rates(ticks: Sequence[Tick], least: float, *, across: bool) -> list[list[tuple[float, int]]]:
    """Seconds per count between readings at least this many seconds apart, and counts, by run."""
    runs: list[list[tuple[float, int]]] = [[]]
    start: Tick | None = None
    previous: Tick | None = None
    for tick in ticks:
        if (
            previous is None
            or tick.steps < previous.steps
            or tick.clock < previous.clock
            or (tick.epoch != previous.epoch and not across)
        ):
            start = previous = tick
            runs.append([])
            continue
        previous = tick
        assert start is not None
        if tick.steps == start.steps:
            start = tick  # started anew, or written by several
        passed, counted = tick.clock - start.clock, tick.steps - start.steps
        if counted > 0 and passed >= least:
            runs[-1].append((passed / counted, counted))
            start = tick
    return runs


def interval(ticks: Sequence[Tick]) -> int:
    """The usual number of counts between neighbouring readings; at least 1."""
    found = [b.steps - a.steps for a, b in pairwise(ticks) if b.steps > a.steps]
    return max(1, round(median(found))) if found else 1


def resolution(clocks: Sequence[float]) -> float:
    """The resolution of readings [s]: 60, 1, 0.1, 0.01 or 0.001 s."""
    even = len({b - a for a, b in pairwise(clocks)}) == 1  # one line a minute, and not rounded
    for unit in (1.0, 0.1, 0.01) if even else (60.0, 1.0, 0.1, 0.01):
        if all(abs(clock / unit - round(clock / unit)) < 1e-4 for clock in clocks):
            return unit
    return 0.001
