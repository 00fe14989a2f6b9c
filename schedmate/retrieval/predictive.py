"""The distribution of a new job's run time, given the run times of past jobs like it.

A Dirichlet-process posterior predictive with censoring (Susarla and Van Ryzin, 1976): the
weighted Kaplan-Meier estimate of the past runs, mixed with a prior spread around its median that
is worth a fixed number of runs. With one past run the interval is the prior's; with many it is
the runs' own, whatever their shape. Everything happens on logarithms, so the unit does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

_PRIOR_POINTS = 41
_QUANTILES = (0.1, 0.5, 0.9)


@dataclass(frozen=True, slots=True)
class Run:
    """One past run: its (adjusted) time [s], its relative weight, and whether it was cut short."""

    duration_s: float
    weight: float
    censored: bool = False


@dataclass(frozen=True, slots=True)
class Prior:
    """What is believed before any run is seen: Laplace on log run time around the runs' median.

    `spread` is the mean absolute log error of one run as a guess for the next, `runs` how many
    past runs that belief weighs as much as.
    """

    spread: float
    runs: float


@dataclass(frozen=True, slots=True)
class Prediction:
    """Quantiles of the run time [s]; `bounded` when the median rests on censored runs alone."""

    p10_s: float
    p50_s: float
    p90_s: float
    bounded: bool


def predict(runs: Sequence[Run], prior: Prior) -> Prediction | None:
    """The predictive quantiles, or None when no run completed: then there is only a bound.

    Durations and weights must be positive. The order of `runs` and a common factor of all
    weights do not matter; a common factor of all durations multiplies the result.
    """
    if all(run.censored for run in runs):
        return None
    heaviest = max(run.weight for run in runs)
    points = [(math.log(run.duration_s), run.weight / heaviest, run.censored) for run in runs]
    kaplan_meier, lost = _redistribute(points)
    centre = _quantile(kaplan_meier, 0.5)
    grid = [(index + 0.5) / _PRIOR_POINTS for index in range(_PRIOR_POINTS)]
    base = [
        (centre + prior.spread * _laplace(at), prior.runs / _PRIOR_POINTS, False) for at in grid
    ]
    mass, _ = _redistribute(points + base)
    p10, p50, p90 = (math.exp(_quantile(mass, level)) for level in _QUANTILES)
    return Prediction(p10, p50, p90, bounded=lost >= 0.5)


def _redistribute(
    points: list[tuple[float, float, bool]],
) -> tuple[list[tuple[float, float]], float]:
    """Efron's redistribution to the right: each censored point's mass moves to what lies beyond.

    Returns (log time, share) in order, shares adding up to 1, and the share that no completed
    run lies beyond, which stays on the last censored point.
    """
    # At equal times a completed run comes first: the censored one lasted at least as long.
    ordered = sorted(points, key=lambda point: (point[0], point[2]))
    total = sum(weight for _, weight, _ in ordered)
    remaining, shifted = total, 0.0
    mass: list[tuple[float, float]] = []
    factor = 1.0  # what one unit of original weight at or beyond this point is worth now
    for log_time, weight, censored in ordered:
        remaining -= weight
        if not censored:
            mass.append((log_time, factor * weight / total))
        elif remaining > total * 1e-12:
            factor *= (remaining + weight) / remaining
        else:
            shifted = factor * weight / total
            mass.append((log_time, shifted))
    return mass, shifted


def _quantile(mass: list[tuple[float, float]], level: float) -> float:
    """The least point at which the shares add up to `level`."""
    total = 0.0
    for point, share in mass:
        total += share
        if total >= level - 1e-9:
            return point
    return mass[-1][0]


def _laplace(level: float) -> float:
    """The quantile of the standard Laplace distribution."""
    return math.log(2 * level) if level < 0.5 else -math.log(2 * (1 - level))
