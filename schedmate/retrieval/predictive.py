"""The distribution of a new job's run time, given the run times of past jobs like it.

A Dirichlet-process posterior predictive with censoring (Susarla and Van Ryzin, 1976): the
weighted Kaplan-Meier estimate of the past runs, mixed with a prior around its median. How wide that
prior is, is itself estimated: from how far such runs are expected to lie apart, and from how far
these do. With one past run the interval is the expected one; runs that agree narrow it, runs that
do not widen it, and with many it is nearly their own, whatever their shape. Everything happens on
logarithms, so the unit does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

_PRIOR_POINTS = 41


@dataclass(frozen=True, slots=True)
class Run:
    """One past run: its (adjusted) time [s], its relative weight, whether it was cut short, and
    how far it is expected to lie from the new one: the mean absolute log error of a guess."""

    duration_s: float
    weight: float
    censored: bool = False
    spread: float = 1.0


@dataclass(frozen=True, slots=True)
class Prior:
    """The prior: a Laplace distribution of log run time around the runs' median.

    `runs` is how many past runs that belief weighs as much as, plus `share` of the runs' own
    weight: what happened will not cover all that may. `spreads` is how many distances between runs
    the expected one weighs as much as. The median has a belief of its own, of a fixed spread and
    weight: one that narrows would give runs that were cut short more say, and errs more.
    """

    runs: float
    spreads: float
    share: float = 0.0
    median_spread: float = 1.2
    median_runs: float = 3.0


@dataclass(frozen=True, slots=True)
class Prediction:
    """Quantiles of the run time [s]; `bounded` when the median rests on censored runs alone.

    `expected` is the mean absolute log error of one past run as a guess, as believed before these;
    `own` [0 to 1] how much of the spread that was used comes from how far these lie apart.
    """

    p10_s: float
    p50_s: float
    p90_s: float
    bounded: bool
    expected: float
    own: float


def predict(runs: Sequence[Run], prior: Prior, shared: float = 0.0) -> Prediction | None:
    """The predictive quantiles, or None when no run completed: then there is only a bound.

    `shared` [log of a factor] is what all runs may be wrong by together, eight of ten times at
    most: it widens the interval however many runs agree. Durations, weights and spreads must be
    positive. The order of `runs` and a common factor of all weights do not matter; a common factor
    of all durations multiplies the result.
    """
    if all(run.censored for run in runs):
        return None
    heaviest = max(run.weight for run in runs)
    points = [(math.log(run.duration_s), run.weight / heaviest, run.censored) for run in runs]
    total = sum(weight for _, weight, _ in points)
    kaplan_meier, lost = _redistribute(points)
    centre = _quantile(kaplan_meier, 0.5)
    expected = sum(run.weight / heaviest * run.spread for run in runs) / total
    # A run cut short before the median says nothing of the spread, one after it at least so much.
    away = [(weight, abs(at - centre)) for at, weight, cut in points if not cut or at > centre]
    distances = max(sum(weight for weight, _ in away) - 1.0, 0.0)
    seen = sum(weight * distance for weight, distance in away)
    believed = prior.spreads * expected
    spread = (believed + seen) / (prior.spreads + distances)
    mass = _mixed(points, centre, spread, prior.runs + prior.share * total)
    wide = _mixed(points, centre, prior.median_spread, prior.median_runs)
    p10, p50, p90 = _quantile(mass, 0.1), _quantile(wide, 0.5), _quantile(mass, 0.9)
    return Prediction(
        math.exp(p50 - math.hypot(max(p50 - p10, 0.0), shared)),
        math.exp(p50),
        math.exp(p50 + math.hypot(max(p90 - p50, 0.0), shared)),
        bounded=lost >= 0.5,
        expected=expected,
        own=seen / (believed + seen),
    )


def _mixed(
    points: list[tuple[float, float, bool]], centre: float, spread: float, runs: float
) -> list[tuple[float, float]]:
    """The runs and a Laplace distribution that weighs as much as `runs` of them."""
    base = [(centre + spread * at, runs / _PRIOR_POINTS, False) for at in _LAPLACE]
    return _redistribute(points + base)[0]


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


_LAPLACE = [_laplace((index + 0.5) / _PRIOR_POINTS) for index in range(_PRIOR_POINTS)]
