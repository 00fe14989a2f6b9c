"""How long a running job still takes: one posterior of the estimate and the log.

The prior is the estimate's distribution at submission. That the job still runs after a time t cuts
off all below t; what is left, renewed to 1, is the distribution of its whole run time. The
tracker's `eta_s` is an observation of the time left, with a spread of its own, and multiplies it.
Both are distributions of log times with Laplace tails, as the advisor's is (`run_time.py`): beyond
the last quantile the prior never ends, so that a job that outlived it has an answer as well, and
neither side can rule out what the other knows.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

from schedmate.base.inputs import format_duration
from schedmate.jobs import Estimate, Progress, Remaining

UNUSUAL = 0.99
"""Share of such jobs that have ended by now from which on that a job still runs is said."""

CELLS = 512
"""Cells of the time left, equal on a logarithmic scale."""

LEAST_S, MOST_S = 1.0, 1e9
"""The first and the last cell's times [s]."""

ETA_DOUBT = 0.1
"""Least half width of the 80 % interval of the log's time left [log of a factor], where most of
the run is over: evaluations and checkpoints are not evenly spread. An assumption."""

EARLY_DOUBT = 0.3
"""What is added to it where nothing is over yet: the speed may still change. An assumption."""

WITHIN = math.log(5.0)
"""Scales of a Laplace distribution that 80 % are within."""

Points = Sequence[tuple[float, float]]
"""Log times [log s], and where the shares that end by them lie in the standard Laplace
distribution, both ascending: between two points one is taken as proportional to the other."""


def remaining_time(
    elapsed_s: float,
    estimate: Estimate | None,
    progress: Progress | None = None,
    *,
    progress_age_s: float = 0.0,
) -> Remaining:
    """The time that a job still takes which has run for `elapsed_s` [s].

    `estimate` is that of its submission, `progress` what its log says, read `progress_age_s` [s]
    ago. Either may be missing or abstain.
    """
    elapsed_s = max(0.0, elapsed_s)
    answer = Remaining(elapsed_s=elapsed_s)
    if progress is not None and progress.ended is not None:
        over = {"remaining_s": 0.0, "remaining_p10_s": 0.0, "remaining_p90_s": 0.0}
        return answer.model_copy(update={**over, "sources": ["log"], "reason": "the run is over"})
    points = _points(estimate)
    update: dict[str, object] = {}
    if estimate is not None:
        update["failure"] = estimate.failing(elapsed_s)
    reasons: list[str] = []
    weights = [0.0] * CELLS
    if points is not None:
        update["sources"] = ["estimate"]
        update["outlived"] = outlived = 1.0 - math.exp(_log_beyond(points, elapsed_s))
        weights = _log_shares(points, elapsed_s)
        if outlived >= UNUSUAL:
            update["unusual"] = True
            reasons.append(
                f"it has run for {format_duration(elapsed_s)}, longer than "
                f"{min(math.floor(outlived * 1000) / 10, 99.9):g} % of such jobs"
            )
    if progress is not None and progress.eta_s is not None:
        update["sources"] = [*update.get("sources", ()), "log"]  # type: ignore[misc]
        observed = _log_likelihood(progress, elapsed_s, progress_age_s)
        weights = [weight + likely for weight, likely in zip(weights, observed, strict=True)]
    elif progress is not None and progress.stalled:
        reasons.append("its log is silent for much longer than usual: it may hang")
    if not update.get("sources"):
        why = (estimate.reason if estimate is not None else None) or "there is no estimate"
        return answer.model_copy(update={**update, "reason": "; ".join([*reasons, why])})
    low, median, high = _quantiles(weights, (0.1, 0.5, 0.9))
    update |= {"remaining_p10_s": low, "remaining_s": median, "remaining_p90_s": high}
    return answer.model_copy(update={**update, "reason": "; ".join(reasons) or None})


def _points(estimate: Estimate | None) -> Points | None:
    """The estimate's distribution function; None where it has none."""
    if estimate is None:
        return None
    quantiles = estimate.quantiles_s
    if quantiles:
        times = [(q, (at + 0.5) / len(quantiles)) for at, q in enumerate(quantiles)]
    else:
        stated = (estimate.duration_p10_s, estimate.duration_p50_s, estimate.duration_p90_s)
        times = [(q, level) for q, level in zip(stated, (0.1, 0.5, 0.9), strict=True) if q]
    if len(times) < 3:
        return None
    points: list[tuple[float, float]] = []
    for time_s, level in times:
        # equal times are drawn apart by so little that nobody sees it
        at = math.log(max(time_s, 1e-3))
        points.append((max(at, points[-1][0] + 1e-6) if points else at, _laplace(level)))
    return points


def _laplace(level: float) -> float:
    """The quantile of the standard Laplace distribution."""
    return math.log(2 * level) if level < 0.5 else -math.log(2 * (1 - level))


def _log_beyond(points: Points, time_s: float) -> float:
    """The logarithm of the share that runs longer than `time_s` [s]."""
    if time_s <= 0:
        return 0.0
    place = _place(points, math.log(time_s))
    return math.log(0.5) - place if place > 0 else math.log1p(-0.5 * math.exp(place))


def _place(points: Points, at: float) -> float:
    """Where a log time [log s] lies in the standard Laplace distribution; outside of the points
    along the line from the median through the outermost one."""
    if at <= points[0][0] or at >= points[-1][0]:
        outer, place = points[-1] if at >= points[-1][0] else points[0]
        scale = abs(outer - _median(points)) / max(abs(place), 1e-9)
        return place + (at - outer) / max(scale, 1e-3)
    right = bisect_left(points, (at, -math.inf))
    (left_at, left), (right_at, beyond) = points[right - 1], points[right]
    return left + (beyond - left) * (at - left_at) / (right_at - left_at)


def _median(points: Points) -> float:
    for (left_at, left), (right_at, right) in pairwise(points):
        if left <= 0 <= right:
            return left_at - left * (right_at - left_at) / (right - left)
    return points[-1][0]


_EDGES = [LEAST_S * (MOST_S / LEAST_S) ** (at / CELLS) for at in range(CELLS + 1)]
_MIDDLES = [math.sqrt(left * right) for left, right in pairwise(_EDGES)]


def _log_shares(points: Points, elapsed_s: float) -> list[float]:
    """For each cell of the time left, the logarithm of the share that ends in it, up to a factor.

    Shares of jobs that run longer than `elapsed_s` [s], as differences of logarithms: far out in
    the tail the shares themselves are too small for numbers. The first cell begins at 0.
    """
    begins = [0.0, *_EDGES[1:]]
    beyond = [_log_beyond(points, elapsed_s + left_s) for left_s in begins]
    return [
        here + math.log(max(-math.expm1(then - here), 1e-300)) for here, then in pairwise(beyond)
    ]


def _log_likelihood(progress: Progress, elapsed_s: float, age_s: float) -> list[float]:
    """For each cell, how likely the log's time left is if it is the cell's, up to a factor."""
    assert progress.eta_s is not None
    eta_s = max(progress.eta_s - age_s, LEAST_S)
    scale = _eta_width(progress, elapsed_s) / WITHIN
    return [-abs(math.log(middle / eta_s)) / scale for middle in _MIDDLES]


def _eta_width(progress: Progress, elapsed_s: float) -> float:
    """Half of the 80 % interval of the log's time left [log of a factor]: how far its readings lie
    apart, and no less than what is left to go wrong."""
    eta_s = progress.eta_s or 0.0
    left = eta_s / (eta_s + elapsed_s) if eta_s + elapsed_s > 0 else 1.0
    least = ETA_DOUBT + EARLY_DOUBT * left
    low, high = progress.step_time_p10_s, progress.step_time_p90_s
    if low is None or high is None or low <= 0:
        return least
    return max(least, math.log(max(high / low, 1.0)) / 2)


def _quantiles(weights: Sequence[float], levels: Sequence[float]) -> list[float]:
    """Times left [s] at the levels, from the logarithms of the cells' shares."""
    most = max(weights)
    shares = [math.exp(weight - most) for weight in weights]
    total = math.fsum(shares)
    times = []
    for level in levels:
        left = level * total
        for at, share in enumerate(shares):
            if left <= share:
                begin = 0.0 if at == 0 else _EDGES[at]
                times.append(begin + (_EDGES[at + 1] - begin) * left / share)
                break
            left -= share
        else:
            times.append(MOST_S)
    return times
