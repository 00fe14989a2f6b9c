"""Axes of charts: positions of values, ticks, and how values are written."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schedmate.report import ticks

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Axis:
    """One direction of a chart: `kind` says how its values are written."""

    label: str
    low: float
    high: float
    ticks: tuple[float, ...]
    kind: str
    log: bool = False
    names: tuple[str, ...] = ()
    """An axis of categories, at 0, 1, ..."""

    def place(self, values: Any, start: float, end: float) -> Floats:
        """Where values lie between the pixels `start` and `end`; those beyond it, at its end."""
        scale = np.log if self.log else np.asarray
        low, high = float(scale(self.low)), float(scale(self.high))
        inside = np.clip(np.asarray(values, dtype=float), self.low, self.high)
        return start + (scale(inside) - low) / (high - low) * (end - start)

    def text(self, value: float) -> str:
        """A value as people read it."""
        return self.names[round(value)] if self.names else _TEXTS[self.kind](value)

    def labels(self) -> Sequence[str]:
        """The texts of the ticks.

        Those of a linear axis of times have one unit; those of a logarithmic one, each its own.
        """
        if self.kind == "logarithm":
            return _log_times([math.expm1(one) for one in self.ticks])
        if self.kind == "duration" and self.log:
            return _log_times(self.ticks)
        write = None if self.names else _LABELS.get(self.kind)
        return [self.text(one) for one in self.ticks] if write is None else write(self.ticks)


def _duration(seconds: float) -> str:
    for size, unit in ((ticks.DAY, "d"), (ticks.HOUR, "h"), (ticks.MINUTE, "min")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def factor(score: float) -> str:
    """What a term of a logarithm does: `x 1.20` or `: 1.50`."""
    return f"x {math.exp(score):.2f}" if score >= 0 else f": {math.exp(-score):.2f}"


def _moment(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M}"


def _ratio(value: float) -> str:
    return f"{value:,.0f}x" if value >= 100 else f"{value:.3g}x"


def _hours(value: float) -> str:
    if 0 < abs(value) < 0.01:
        return "0.00 h"
    return f"{value:,.0f} h" if abs(value) >= 100 else f"{value:.3g} h"


_TEXTS: dict[str, Callable[[float], str]] = {
    "duration": _duration,
    "count": lambda value: f"{value:,.6g}",
    "share": lambda value: f"{100 * value:.3g} %",
    "ratio": _ratio,
    "hours": _hours,
    "time": _moment,
    "effect": factor,
    "logarithm": lambda value: _duration(math.expm1(max(value, 0.0))),
}


def _log_times(times: Sequence[float]) -> Sequence[str]:
    """Labels of a logarithmic time axis: round times in their own unit, all others in one."""
    whole = [float(round(one)) for one in times]
    return [_duration(one) for one in whole] if ticks.are_round(whole) else ticks.durations(whole)


_LABELS: dict[str, Callable[[Sequence[float]], Sequence[str]]] = {
    "duration": ticks.durations,
    "time": ticks.dates,
    "effect": lambda scores: [
        f"{'x' if one >= 0 else ':'} {float(f'{math.exp(abs(one)):.4g}'):,g}" for one in scores
    ],
}


def log_durations(label: str, low: float, high: float) -> Axis:
    """Times [s] on a logarithmic axis."""
    low, high = max(1.0, low), max(10.0, high, 1.0001 * low)
    return Axis(label, low, high, ticks.round_times(low, high), "duration", log=True)


def logarithms(label: str, low: float, high: float) -> Axis:
    """Values of log(1 + time [s]); its ticks are round times."""
    high = max(high, low + 1e-6)
    times = ticks.round_times(math.expm1(max(low, 0.0)), math.expm1(max(high, 0.0)))
    return Axis(label, low, high, tuple(map(math.log1p, times)), "logarithm")


def log_ratios(label: str, low: float, high: float) -> Axis:
    """Factors on a logarithmic axis."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    powers = tuple(10.0**n for n in range(first, last + 1))
    return Axis(label, powers[0], powers[-1], powers, "ratio", log=True)


def effects(label: str, low: float, high: float) -> Axis:
    """Logarithms of factors; its ticks are round factors."""
    high = max(high, low + 1e-6)
    factors = ticks.round_factors(math.exp(low), math.exp(high))
    return Axis(label, low, high, tuple(map(math.log, factors)), "effect")


def linear(label: str, low: float, high: float, kind: str) -> Axis:
    """A linear axis with about five round ticks."""
    if kind == "time":
        high = max(high, low + 1.0)
        return Axis(label, low, high, ticks.moments(low, high), kind)
    step = ticks.linear_step(low, high, of_time=kind == "duration")
    high = max(high, low + step)
    return Axis(label, low, high, ticks.multiples(step, low, high), kind)


SHARE = Axis("share of jobs", 0.0, 1.0, (0.0, 0.25, 0.5, 0.75, 1.0), "share")
