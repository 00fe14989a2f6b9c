"""Axes of charts: where a value lies, which ticks there are, and how values are written."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Axis:
    """What one direction of a chart means: `kind` says how its values are written."""

    label: str
    low: float
    high: float
    ticks: tuple[float, ...]
    kind: str
    log: bool = False
    names: tuple[str, ...] = ()
    """Of the values 0, 1, ..., where they stand for things."""

    def place(self, values: Any, start: float, end: float) -> Floats:
        """Where values lie between the pixels `start` and `end`; those beyond it, at its end."""
        scale = np.log if self.log else np.asarray
        low, high = float(scale(self.low)), float(scale(self.high))
        inside = np.clip(np.asarray(values, dtype=float), self.low, self.high)
        return start + (scale(inside) - low) / (high - low) * (end - start)

    def text(self, value: float) -> str:
        """A value as people read it."""
        return self.names[round(value)] if self.names else _TEXTS[self.kind](value)


def _duration(seconds: float) -> str:
    days, rest = divmod(seconds, 86_400.0)
    if days and rest >= 3600 and rest % 3600 < 1:
        return f"{days:.0f} d {rest / 3600:.0f} h"
    for size, unit in ((86_400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def factor(score: float) -> str:
    """What a term of a logarithm does: `x 1.20` or `: 1.50`."""
    return f"x {math.exp(score):.2f}" if score >= 0 else f": {math.exp(-score):.2f}"


def _moment(seconds: float) -> str:
    moment = datetime.fromtimestamp(seconds, UTC)
    return f"{moment:%Y-%m-%d}" if seconds % 86_400 == 0 else f"{moment:%m-%d %H:%M}"


_TEXTS: dict[str, Callable[[float], str]] = {
    "duration": _duration,
    "count": lambda value: f"{value:,.6g}",
    "share": lambda value: f"{100 * value:.3g} %",
    "ratio": lambda value: f"{value:.3g}x",
    "hours": lambda value: f"{value:,.4g} h",
    "time": _moment,
    "effect": factor,
    "logarithm": lambda value: _duration(math.expm1(max(value, 0.0))),
}
_STEPS = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, *(3600 * n for n in (1, 2, 3, 6, 12, 24)))
"""Round steps of time below a day [s]."""
_TIMES = (1, 10, 60, 600, 3600, 6 * 3600, 86_400, 7 * 86_400, 30 * 86_400, 365 * 86_400)


def log_durations(label: str, low: float, high: float) -> Axis:
    """Times [s] on a logarithmic axis."""
    low, high = max(1.0, low), max(10.0, high, 1.0001 * low)
    ticks = tuple(float(one) for one in _TIMES if low <= one <= high)
    return Axis(label, low, high, ticks, "duration", log=True)


def log_ratios(label: str, low: float, high: float) -> Axis:
    """Factors on a logarithmic axis."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    ticks = tuple(10.0**n for n in range(first, last + 1))
    return Axis(label, ticks[0], ticks[-1], ticks, "ratio", log=True)


def linear(label: str, low: float, high: float, kind: str) -> Axis:
    """A linear axis with about five round ticks."""
    rough = max(high - low, 1e-9) / 5
    of_time = kind in ("duration", "time")
    unit = 86_400.0 if of_time and rough >= 86_400 else 1.0
    power = unit * 10.0 ** math.floor(math.log10(rough / unit))
    steps = (
        _STEPS
        if kind in ("duration", "time") and 1 <= rough < 86_400
        else [power * n for n in (1, 2, 5, 10)]
    )
    step = min(steps, key=lambda one: abs(one - rough))
    high = max(high, low + step)
    first = math.ceil(low / step - 1e-9)
    ticks = tuple(step * n for n in range(first, math.floor(high / step + 1e-9) + 1))
    return Axis(label, low, high, ticks, kind)


SHARE = Axis("share of jobs", 0.0, 1.0, (0.0, 0.25, 0.5, 0.75, 1.0), "share")
