"""Which values of an axis get a tick, and how all ticks of one axis are written.

Ticks are round values of the quantity, and those of one linear axis share one unit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import count

MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
_UNITS = ((DAY, "d"), (HOUR, "h"), (MINUTE, "min"))
_STEPS = (
    *(1.0, 2.0, 5.0, 10.0, 30.0),
    *(MINUTE * n for n in (1, 2, 5, 10, 30)),
    *(HOUR * n for n in (1, 2, 3, 6, 12, 24)),
)
"""Round steps of time up to a day [s]."""
_COARSE = (1.0, 10.0, MINUTE, 10 * MINUTE, HOUR, 6 * HOUR, DAY, 7 * DAY, 30 * DAY, 365 * DAY)
_FINE = (
    *(n * unit for unit in (1.0, MINUTE) for n in (1, 2, 5, 10, 20, 30)),
    *(HOUR * n for n in (1, 2, 3, 6, 12)),
    *(DAY * n for n in (1, 2, 3, 7, 14, 30, 60, 90, 180, 365, 730, 1825, 3650)),
)
"""Round times of a logarithmic axis [s]."""
_FACTORS = ((1.0,), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 5.0, 7.0))
"""Round factors from 1 up to 10, ever closer."""
FEW, DATES = 8, 6
"""Ticks that a chart has room for, and such as are dates."""


def linear_step(low: float, high: float, *, of_time: bool) -> float:
    """The round step with about five ticks."""
    rough = max(high - low, 1e-9) / 5
    unit = DAY if of_time and rough >= DAY else 1.0
    power = unit * 10.0 ** math.floor(math.log10(rough / unit))
    round_ones = _STEPS if of_time and 1 <= rough < DAY else [power * n for n in (1, 2, 5, 10)]
    return min(round_ones, key=lambda one: abs(one - rough))


def multiples(step: float, low: float, high: float) -> tuple[float, ...]:
    """The multiples of a step from `low` to `high`."""
    first = math.ceil(low / step - 1e-9)
    return tuple(step * n for n in range(first, math.floor(high / step + 1e-9) + 1))


def round_times(low: float, high: float) -> tuple[float, ...]:
    """Round times [s] for a logarithmic axis from `low` to `high`."""
    for times in (_COARSE, _FINE):
        inside = tuple(one for one in times if low <= one <= high)
        if len(inside) >= 3:
            return inside
    return _thinned(multiples(linear_step(low, high, of_time=True), low, high))


def _thinned(ticks: Sequence[float], most: int = FEW) -> tuple[float, ...]:
    return tuple(ticks[:: math.ceil(len(ticks) / most)] if ticks else ())


def are_round(times: Sequence[float]) -> bool:
    """Whether all times [s] are round in the sense of `round_times`, each in its own unit."""
    return all(one in _COARSE or one in _FINE for one in times)


def round_factors(low: float, high: float) -> tuple[float, ...]:
    """Round factors from `low` to `high`, both above 0; 1/2 is as round as 2."""
    for digits in _FACTORS:
        most = math.ceil(max(math.log10(high), -math.log10(low), 0.0))
        above = {digit * 10.0**power for power in range(most + 1) for digit in digits}
        inside = sorted(one for one in above | {1 / one for one in above} if low <= one <= high)
        if len(inside) >= 3:
            return _thinned(inside)
    step = linear_step(1.0, max(high, 1 / low), of_time=False)
    near = multiples(step, 0.0, max(high, 1 / low) - 1.0)
    inside = sorted({one for n in near for one in (1 + n, 1 / (1 + n)) if low <= one <= high})
    if len(inside) >= 2:
        return _thinned(inside)
    return _thinned(multiples(linear_step(low, high, of_time=False), low, high))


def moments(low: float, high: float) -> tuple[float, ...]:
    """Round moments [s since epoch, UTC]: hours, days, or the first days of months or years."""
    span = high - low
    if span <= 90 * DAY:
        step = max(MINUTE, linear_step(low, high, of_time=True))
        if step > DAY:
            step = next(n * DAY for n in (2, 3, 4, 7, 14, 28) if span <= (DATES - 1) * n * DAY)
        return _thinned(multiples(step, low, high), DATES)
    months = next((n for n in (1, 3, 6, 12) if span <= (DATES - 1) * n * 31 * DAY), 0)
    months = months or 12 * math.ceil(span / (DATES * 366 * DAY))
    first = datetime.fromtimestamp(low, UTC).year
    found: list[float] = []
    for month in count(0, months):
        moment = datetime(1, 1, 1, tzinfo=UTC).replace(
            year=first - first % max(1, months // 12) + month // 12, month=1 + month % 12
        )
        if (at := moment.timestamp()) > high:
            return _thinned(found, DATES)
        if at >= low:
            found.append(at)
    raise AssertionError  # months have no largest unit


def durations(ticks: Sequence[float]) -> list[str]:
    """Times [s] in the largest unit of which all are whole multiples.

    If the numbers would be large, in two units as on a clock: `1 d 06 h`, `2:30 h`.
    """
    whole = [round(one) for one in ticks]
    if any(abs(one - round(one)) > 1e-3 for one in ticks):
        return [f"{one:,.9g} s" for one in ticks]
    size, unit = next(
        ((int(size), unit) for size, unit in _UNITS if not any(one % size for one in whole)),
        (1, "s"),
    )
    most = max(map(abs, whole), default=0)
    if unit in ("h", "min") and most >= 4 * DAY:
        clock = "{0} d {1:02d} h" if unit == "h" else "{0} d {1:02d}:{2:02d}"
    elif unit == "min" and most > 3 * HOUR:
        clock = "{3}:{2:02d} h"
    elif unit == "s" and most > 5 * MINUTE:
        clock = "{3}:{2:02d}:{4:02d} h" if most >= HOUR else "{2}:{4:02d} min"
    else:
        return [f"{one // size:,} {unit}" for one in whole]
    return [
        clock.format(one // 86_400, one // 3600 % 24, one // 60 % 60, one // 3600, one % 60)
        for one in whole
    ]


def dates(ticks: Sequence[float]) -> list[str]:
    """Moments [s since epoch] as years, months, days or minutes of UTC, all in one form."""
    found = [datetime.fromtimestamp(0, UTC) + timedelta(seconds=one) for one in ticks]
    if any(one % DAY for one in ticks):
        days = {one.date() for one in found}
        return [f"{one:%H:%M}" if len(days) == 1 else f"{one:%m-%d %H:%M}" for one in found]
    if any(one.day != 1 for one in found) or len(found) < 2:
        return [f"{one:%Y-%m-%d}" for one in found]
    if any(one.month != 1 for one in found):
        return [f"{one:%Y-%m}" for one in found]
    return [f"{one:%Y}" for one in found]
