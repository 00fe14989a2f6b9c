"""How many jobs are to come: what Lucid's dynamic strategy and time-aware scaling look at."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import ClassVar

BIN_S = 600.0
"""Throughput is counted in bins of ten minutes, as in Lucid's throughput model [s]."""

HOUR_S, DAY_S = 3600.0, 86_400.0


class Load:
    """Base of every forecast of submissions: the season, with no model.

    The last hour, and the same hour of the seven days before: trend and season (Lucid, 3.5.2).
    """

    name: ClassVar[str] = "season"

    def expected(self, submitted: Sequence[float], now: float) -> float:
        """Jobs to be submitted in the next ten minutes.

        `submitted` are the times of all submissions up to `now`, ascending [s].
        """
        hours = [between(submitted, now - HOUR_S, now)]
        for day in range(1, 8):
            begin = now - day * DAY_S
            if not submitted or begin < submitted[0]:
                break
            hours.append(between(submitted, begin, begin + HOUR_S))
        return max(hours[0], sum(hours) / len(hours)) * BIN_S / HOUR_S


def between(times: Sequence[float], begin: float, end: float) -> int:
    """How many of the ascending times lie in [begin, end)."""
    return bisect_left(times, end) - bisect_left(times, begin)
