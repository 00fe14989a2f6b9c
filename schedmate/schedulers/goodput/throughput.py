"""The throughput model of Pollux (OSDI'21, section 3.2), which Sia fits for each GPU type.

One iteration runs `s` accumulation steps and then one step with synchronisation:

    T_acc = a_c + b_c m                           m: batch size of one replica and step
    T_net = 0, a_r + b_r (r - 2) on one node, a_n + b_n (r - 2) over nodes       r: replicas
    T_opt = (T_acc^g + T_net^g)^(1/g)             g: overlap, from 1 (none) to 10 (nearly full)
"""

from __future__ import annotations

import math
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_LOWEST = 1e-8
_START = (0.1, 0.01, 0.1, 0.01, 0.1, 0.01, 1.001)
_OVERLAP_COST = 1e-3
_SLOPE_COST = 1e-2
_TOLERANCE, _SMOOTH = 1e-7, 1e-6
"""Tolerance of a fit, and the term added to mean squares: without it their roots have a kink at 0,
where a fit would end too early."""
_LOOSE_TOLERANCE, _KINK = 1e-5, 1e-16
_ABOVE = 1.1
"""Over nodes, synchronisation is taken to be at least this much slower than on one (Pollux)."""


class Observation(NamedTuple):
    """The measured times of one configuration."""

    nodes: int
    replicas: int
    batch: int
    """Samples of one replica in one step."""
    accumulation_s: float
    """A step without synchronisation [s]."""
    step_s: float
    """A step with it [s]."""


class Throughput(NamedTuple):
    """The seven parameters: all times in seconds, slopes per sample or per replica."""

    compute: float
    compute_slope: float
    across: float
    across_slope: float
    within: float
    within_slope: float
    overlap: float

    def step_times(self, nodes: Any, replicas: Any, batch: Any) -> tuple[Floats, Floats]:
        """(T_acc, T_opt) [s] of arrays or numbers that broadcast."""
        accumulation = np.asarray(self.compute + self.compute_slope * batch, dtype=float)
        more = np.maximum(replicas - 2, 0)
        network = np.where(
            nodes > 1,
            self.across + self.across_slope * more,
            self.within + self.within_slope * more,
        )
        network = np.where(replicas > 1, network, 0.0)
        # Powers of a ratio of at most 1 neither overflow nor vanish together.
        larger = np.maximum(accumulation, network)
        ratio = np.minimum(accumulation, network) / larger
        return accumulation, larger * (1.0 + ratio**self.overlap) ** (1.0 / self.overlap)

    def samples_s(self, nodes: Any, replicas: Any, batch: Any, steps: Any) -> Floats:
        """Samples a second with `steps` accumulation steps an iteration."""
        accumulation, step = self.step_times(nodes, replicas, batch)
        return np.asarray(replicas * batch * (steps + 1) / (steps * accumulation + step))


def fit(observations: tuple[Observation, ...], *, loose: bool = False) -> Throughput:
    """Fit the model to observations of one job on one GPU type.

    Unobserved effects are assumed to be as good as possible, so that they will be tried (Pollux,
    section 4.1): no synchronisation cost until several replicas ran, half of the compute time fixed
    if only one batch size was seen. `loose` fits end early, as those of the published scheduler.
    Raises `ValueError` without observations, or for times that are not positive numbers.
    """
    if not observations:
        raise ValueError("a throughput model cannot be fitted without observations")
    if not all(0 < one.accumulation_s < np.inf and 0 < one.step_s < np.inf for one in observations):
        raise ValueError("a step time is not a positive number")
    return _fit(observations, loose)


@lru_cache(maxsize=1 << 14)
def _fit(observations: tuple[Observation, ...], loose: bool) -> Throughput:
    """Cached: jobs of one program often have equal measurements, and a fit is a pure function."""
    from scipy.optimize import minimize

    data = np.array(observations, dtype=float)
    nodes, replicas, batch = data[:, 0], data[:, 1], data[:, 2]
    start, low = np.array(_START), np.full(7, _LOWEST)
    high = np.full(7, np.inf)
    low[6], high[6] = 1.0, 10.0

    def hold(*which: int, at: float = _LOWEST) -> None:
        for one in which:
            start[one] = low[one] = high[one] = at

    if len(np.unique(batch)) == 1:
        hold(0, at=float(data[:, 3].mean() / 2))
    across, within = nodes > 1, (nodes == 1) & (replicas > 1)
    if not across.any():
        hold(2, 3)
    if not within.any():
        hold(4, 5)
    if not (replicas > 2).any():
        hold(3, 5)
    free = np.flatnonzero(low < high)
    tolerance = _LOOSE_TOLERANCE if loose else _TOLERANCE
    problem = _Problem(data, _KINK if loose else _SMOOTH)

    slopes = np.empty(0)

    def objective(chosen: Floats) -> float:
        nonlocal slopes
        everything = start.copy()
        everything[free] = chosen
        value, gradient = problem(everything)
        slopes = gradient[free]
        return value

    bounds = list(zip(low[free], high[free], strict=True))
    with _threads().limit(limits=1):  # threads only get in the way of seven numbers
        # The gradient is always evaluated where the objective was evaluated last.
        found = minimize(
            objective,
            start[free],
            jac=lambda _: slopes,
            method="L-BFGS-B",
            bounds=bounds,
            tol=tolerance,
        ).x
    start[free] = found
    if not across.any():
        start[2] = max(start[2], _ABOVE * start[4])
        start[3] = max(start[3], _ABOVE * start[5])
    return Throughput(*(float(one) for one in start))


@cache
def _threads() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


class _Problem:
    """Objective and gradient: root mean square errors of log times, and what keeps it sober."""

    def __init__(self, data: Floats, smooth: float = _SMOOTH) -> None:
        nodes, replicas, batch = data[:, 0], data[:, 1], data[:, 2]
        self.count, self.smooth = len(data), smooth
        more = np.maximum(replicas - 2, 0)
        several = replicas > 1
        across = (several & (nodes > 1)).astype(float)
        within = (several & (nodes == 1)).astype(float)
        # Rows: how T_acc and T_net depend on the first six parameters.
        self.compute = np.stack([np.ones_like(batch), batch])
        self.network = np.stack([across, across * more, within, within * more])
        self.log_accumulation, self.log_step = np.log(data[:, 3]), np.log(data[:, 4])

    def __call__(self, x: Floats) -> tuple[float, Floats]:
        # Called tens of times in each fit on few numbers: no term is computed twice.
        *times, overlap = x.tolist()
        accumulation = x[:2] @ self.compute
        network = x[2:6] @ self.network
        above_zero = np.maximum(network, 1e-300)
        log_acc, log_net = np.log(accumulation), np.log(above_zero)
        power_acc, power_net = overlap * log_acc, overlap * log_net
        summed = np.logaddexp(power_acc, power_net)
        mean = summed / overlap
        error_acc = log_acc - self.log_accumulation
        error_step = mean - self.log_step
        root_acc = math.sqrt(float(error_acc @ error_acc) / self.count + self.smooth)
        root_step = math.sqrt(float(error_step @ error_step) / self.count + self.smooth)
        weight_acc = error_acc / (root_acc * self.count)
        weight_step = error_step / (root_step * self.count)
        part_acc = np.exp(power_acc - summed)
        part_net = np.exp(power_net - summed)
        gradient = np.empty(7)
        gradient[:2] = self.compute @ ((weight_acc + weight_step * part_acc) / accumulation)
        gradient[2:6] = self.network @ (weight_step * part_net / above_zero * (network > 0))
        slopes = (part_acc * log_acc + part_net * log_net) / overlap - summed / overlap**2
        value = root_acc + root_step + _OVERLAP_COST * (overlap - 1) ** 2
        gradient[6] = float(weight_step @ slopes) + 2 * _OVERLAP_COST * (overlap - 1)
        for base in (2, 4):
            slope = times[base + 1] / times[base]
            value += _SLOPE_COST * slope**2
            gradient[base + 1] += 2 * _SLOPE_COST * slope / times[base]
            gradient[base] -= 2 * _SLOPE_COST * slope**2 / times[base]
        return value, gradient
