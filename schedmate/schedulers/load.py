"""How many jobs are to come: what Lucid's dynamic strategy and time-aware scaling look at."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import ClassVar

BIN_S = 600.0
"""Throughput is counted in bins of ten minutes, as in Lucid's throughput model [s]."""

HOUR_S, DAY_S = 3600.0, 86_400.0
_HOURS = 8


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

    def expected_gpus(
        self, submitted: Sequence[float], requested: Sequence[int], now: float
    ) -> float:
        """Forecast number of GPUs that the jobs of the next ten minutes will request together.

        `requested`: running totals of the GPUs requested by `submitted`, beginning with 0.
        """
        return self._season(submitted, requested, now)

    def _season(
        self, submitted: Sequence[float], requested: Sequence[int] | None, now: float
    ) -> float:
        hours = self._hours
        if hours is None or hours.times is not submitted or now < hours.now:
            hours = self._hours = _Hours(submitted)
        last, total, hours_seen = hours.counts(now, requested)
        mean = total / hours_seen
        return (max(mean, last)) * BIN_S / HOUR_S


class _Hours:
    """The last hour, and the same hour of the seven days before, as indices of a growing list."""

    def __init__(self, times: Sequence[float]) -> None:
        self.times = times
        self.now = -inf
        self._low, self._high = [0] * _HOURS, [0] * _HOURS

    def counts(self, now: float, requested: Sequence[int] | None) -> tuple[int, int, int]:
        """Submissions, or their GPUs: in the last hour, in all of these hours that have been since
        the first submission, and how many hours that is."""
        times, lows, highs = self.times, self._low, self._high
        self.now = now
        count = len(times)
        first = times[0] if count else inf
        last = total = day = 0
        begin, end = now - HOUR_S, now
        while True:
            # The clock advances in small steps, so the places are near.
            low, high = lows[day], highs[day]
            if low < count and times[low] < begin:
                low += 1
                while low < count and times[low] < begin:
                    low += 1
                lows[day] = low
            if high < count and times[high] < end:
                high += 1
                while high < count and times[high] < end:
                    high += 1
                highs[day] = high
            found = high - low if requested is None else requested[high] - requested[low]
            total += found
            if not day:
                last = found
            day += 1
            begin = now - day * DAY_S
            if day == _HOURS or begin < first:
                return last, total, day
            end = begin + HOUR_S
