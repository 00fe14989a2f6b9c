"""How many jobs are to come: what Lucid's dynamic strategy and time-aware scaling look at."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import ClassVar

BIN_S = 600.0
"""Throughput is counted in bins of ten minutes, as in Lucid's throughput model [s]."""

HOUR_S, DAY_S = 3600.0, 86_400.0


class Load:
    """Base of every forecast of submissions: the season, with no model.

    The last hour, and the same hour of the seven days before: trend and season (Lucid, 3.5.2).
    """

    name: ClassVar[str] = "season"
    _hours: _Hours | None = None

    def expected(self, submitted: Sequence[float], now: float) -> float:
        """Jobs to be submitted in the next ten minutes.

        `submitted` are the times of all submissions up to `now`, ascending [s].
        """
        return self._season(submitted, None, now)

    def expected_gpus(self, submitted: Sequence[float], asked: Sequence[int], now: float) -> float:
        """GPUs that the jobs of the next ten minutes will ask for together.

        `asked`: GPUs of the first jobs of `submitted`: none, the first, the first two and so on.
        """
        return self._season(submitted, asked, now)

    def _season(self, submitted: Sequence[float], asked: Sequence[int] | None, now: float) -> float:
        hours = self._hours
        if hours is None or hours.times is not submitted or now < hours.now:
            hours = self._hours = _Hours(submitted)
        counts = hours.counts(now, asked)
        return max(counts[0], sum(counts) / len(counts)) * BIN_S / HOUR_S


class _Hours:
    """The last hour and the same hour of the seven days before, as places in a growing list."""

    def __init__(self, times: Sequence[float]) -> None:
        self.times = times
        self.now = -inf
        self._low, self._high = [0] * 8, [0] * 8

    def counts(self, now: float, asked: Sequence[int] | None) -> list[int]:
        """Submissions in each of these hours that has been since the first, or their GPUs."""
        times, lows, highs = self.times, self._low, self._high
        self.now = now
        count, found = len(times), []
        for day in range(8):
            begin = now - day * DAY_S if day else now - HOUR_S
            if day and (not count or begin < times[0]):
                break
            # The clock goes on a little each time, so the places are near.
            end = begin + HOUR_S if day else now
            low, high = lows[day], highs[day]
            while low < count and times[low] < begin:
                low += 1
            while high < count and times[high] < end:
                high += 1
            lows[day], highs[day] = low, high
            found.append(high - low if asked is None else asked[high] - asked[low])
        return found
