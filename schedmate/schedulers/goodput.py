"""How fast an elastic job would train elsewhere: throughput, efficiency, and both as goodput.

`Agent` is what one job knows of itself (Pollux, OSDI'21, section 4.1), `PlannedAgent` the same for
a job that was planned and profiled before it runs (Arena); `Throughput` is the fitted model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

# The throughput model of Pollux (OSDI'21, section 3.2), which Sia fits for each GPU type.
#
# One iteration runs `s` accumulation steps and then one step with synchronisation:
#
#     T_acc = a_c + b_c m                           m: batch size of one replica and step
#     T_net = 0, a_r + b_r (r - 2) on one node, a_n + b_n (r - 2) over nodes       r: replicas
#     T_opt = (T_acc^g + T_net^g)^(1/g)             g: overlap, from 1 (none) to 10 (nearly full)


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


def fit_throughput(observations: tuple[Observation, ...], *, loose: bool = False) -> Throughput:
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
    return _fit_once(observations, loose)


@lru_cache(maxsize=1 << 14)
def _fit_once(observations: tuple[Observation, ...], loose: bool) -> Throughput:
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
        solution = minimize(
            objective,
            start[free],
            jac=lambda _: slopes,
            method="L-BFGS-B",
            bounds=bounds,
            tol=tolerance,
        ).x
    start[free] = solution
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


# Which batch size is best on some GPUs: candidates, and the goodput of each.


_CANDIDATES = 50
"""Global batch sizes that are compared, spaced geometrically."""
_EPSILON = 1e-8
_SPREAD = np.linspace(0.0, 1.0, _CANDIDATES)


def iteration_gain(batch: Floats, initial: int, noise: tuple[float, float] | None) -> Floats:
    """Progress of one iteration at these batch sizes, in iterations of the initial one.

    `noise`: squared norm and variance of the gradient; None: unknown.
    """
    scale = batch / initial
    if noise is None:
        return np.minimum(scale, 1.0)
    squared, variance = noise
    return np.asarray((variance + squared) / (variance / scale + squared))


class _Candidates(NamedTuple):
    """Batch sizes to choose from, arrays (shapes, candidates): what noise does not change."""

    size: Floats
    """Batch size of one replica and step."""
    steps: Floats
    """Accumulation steps."""
    batch: Floats
    """Batch size over all replicas and steps."""
    fits: NDArray[np.bool_]
    seconds: Floats
    """Of an iteration."""
    factor: Floats


@lru_cache(maxsize=1 << 13)
def best_batches(
    rows: tuple[tuple[float, ...], ...],
    initial: int,
    largest_total: int,
    most: int,
    noise: tuple[float, float] | None,
) -> Floats:
    """Goodput, batch per step and accumulation steps: read-only array of shape (shapes, 3).

    With `most` 0 the global batch size is `largest_total`, else the best one up to `most`. Cached,
    since jobs of one program in one phase have the same arguments.
    """
    candidates = _batch_candidates(rows, initial, largest_total, most)
    progress = iteration_gain(candidates.batch, initial, noise)
    goodput = np.where(candidates.fits, candidates.factor * progress / candidates.seconds, 0.0)
    place = np.arange(len(rows)), goodput.argmax(axis=1)
    best = np.empty((len(rows), 3))
    best[:, 0], best[:, 1], best[:, 2] = (
        goodput[place],
        candidates.size[place],
        candidates.steps[place],
    )
    best.flags.writeable = False
    return best


@lru_cache(maxsize=1 << 11)
def _batch_candidates(
    rows: tuple[tuple[float, ...], ...], initial: int, largest_total: int, most: int
) -> _Candidates:
    columns = np.array(rows, dtype=float)[:, :, None].transpose(1, 0, 2)
    nodes, replicas, smallest, largest, factor = columns[:5]
    model = Throughput(*columns[5:])
    if most:
        least = np.maximum(initial, smallest * replicas)
        total = least * np.maximum(most / least, 1.0) ** _SPREAD
    else:
        total = np.full((len(rows), 1), float(largest_total))
    each = total / replicas
    steps = np.maximum(np.ceil(each / largest - _EPSILON) - 1, 0)
    if most:
        # With one replica, the gradient's variance can only be measured over several steps.
        alone = (replicas == 1) & (total > initial * (1 + _EPSILON))
        steps = np.where(alone, np.maximum(steps, 1), steps)
    size = np.ceil(each / (steps + 1) - _EPSILON)
    batch = replicas * size * (steps + 1)
    fits = (size <= largest) & (size >= smallest)
    fits &= smallest * replicas <= largest_total
    accumulation, step = model.step_times(nodes, replicas, size)
    return _Candidates(size, steps, batch, fits, steps * accumulation + step, factor)


# The agent of an elastic job: it measures steps and predicts throughput elsewhere.
#
# Pollux, OSDI'21, section 4.1. A policy only queries it; an executor, that is the simulator or a
# training job, reports what was measured.


MOST_REPLICAS = 64
"""Of one job, as in the published scheduler."""


class Limits(NamedTuple):
    """Limits of one replica of a job on one GPU type."""

    smallest: int
    """Batch size of one step."""
    largest: int
    """Largest batch size of one step that fits into its memory."""
    nodes: int = MOST_REPLICAS
    """Most nodes that it may use."""
    gpus: int = 1
    """GPUs of one replica: more than 1 when the model is spread over a pipeline of them."""


class Shape(NamedTuple):
    """GPUs of one type, as far as throughput depends on them."""

    gpu_type: str
    nodes: int
    gpus: int


class Batch(NamedTuple):
    """How the samples of an iteration are spread over a replica's steps."""

    size: int
    """Samples of one step."""
    steps: int
    """Accumulation steps before the one that synchronises."""


@dataclass(eq=False)
class Agent:
    """What one job has measured about itself."""

    limits: Mapping[str, Limits]
    """By GPU type; a type that is not there cannot run the job."""
    initial_batch: int
    """Global batch size in whose iterations progress is measured."""
    largest_batch: int
    """Largest global batch size with which training is known to converge."""
    fixed_batch: int | None = None
    """The global batch size of a job that may not change it."""
    offered_batch: int | None = None
    """Largest global batch size that `goodputs` assumes; None: `largest_batch`.

    The published Sia simulator assumes batch sizes up to the user's, and then trains with up to the
    largest.
    """
    restart_s: float = 30.0
    """Cost of a change of GPUs, as far as it is known [s]."""
    ratios: Mapping[str, float] | None = None
    """Oracle speed of one GPU by type; None: only measurements count."""
    restarts: int = 0
    """Times it was started or changed."""
    restoring_until: float = 0.0
    """Time until which it loads its checkpoint [s]."""
    held_s: dict[str, float] = field(default_factory=dict)
    """Time it held GPUs, by type [s]."""
    noise: tuple[float, float] | None = None
    """Squared norm and variance of its gradients, at the initial batch size."""
    observations: dict[str, dict[tuple[int, int, int], Observation]] = field(default_factory=dict)
    """By GPU type and (nodes, replicas, batch of a step); the first of each is kept."""
    models: dict[str, Throughput] = field(default_factory=dict)
    """By GPU type."""
    version: int = 0
    """Increases with everything that changes a prediction."""
    _known: dict[tuple[Shape, ...], Floats] = field(default_factory=dict)

    def observe(self, gpu_type: str, observation: Observation) -> None:
        """Add the measured times of a configuration, if it is new, and fit the model again."""
        seen = self.observations.setdefault(gpu_type, {})
        key = (observation.nodes, observation.replicas, observation.batch)
        if key in seen:
            return
        seen[key] = observation
        self.models[gpu_type] = fit_throughput(tuple(seen.values()), loose=self.ratios is not None)
        self._changed()

    def adopt(self, other: Agent) -> None:
        """Begin with what a similar job has learnt of its throughput."""
        for gpu_type, seen in other.observations.items():
            if gpu_type in self.limits:
                mine = self.observations.setdefault(gpu_type, {})
                for key, observation in seen.items():
                    mine.setdefault(key, observation)
                self.models[gpu_type] = fit_throughput(
                    tuple(mine.values()), loose=self.ratios is not None
                )
        self._changed()

    def set_noise(self, squared: float, variance: float) -> None:
        """The gradient's statistics have changed."""
        if self.noise != (squared, variance):
            self.noise = (squared, variance)
            self._changed()

    def _changed(self) -> None:
        self.version += 1
        self._known.clear()

    def knows(self, gpu_type: str) -> bool:
        """Whether it has been measured on this type."""
        return gpu_type in self.models

    @property
    def most_replicas(self) -> int:
        """Twice the most it ran on, so that no untried size is trusted far (Sia, section 3.2)."""
        tried = [key[1] for seen in self.observations.values() for key in seen]
        smallest = min((limit.smallest for limit in self.limits.values()), default=1)
        batch = self.fixed_batch or self.largest_batch
        return max(1, min(2 * max(tried, default=0), MOST_REPLICAS, batch // smallest))

    def gain(self, batch: float | NDArray[np.generic]) -> Floats:
        """Progress of one iteration at this global batch size, in iterations of the initial one."""
        return iteration_gain(np.asarray(batch, dtype=float), self.initial_batch, self.noise)

    def batch(self, shape: Shape) -> Batch | None:
        """The best batch size there; None when the job cannot run so."""
        if self.ratios is not None and self.fixed_batch is None and not self.knows(shape.gpu_type):
            return self._first(shape)
        ((goodput, size, steps),) = self._search((shape,), self.largest_batch)
        return None if goodput <= 0 else Batch(int(size), int(steps))

    def goodputs(self, shapes: tuple[Shape, ...]) -> Floats:
        """Progress per second on each [iterations of the initial batch size]; 0 if impossible.

        NaN if there is no data to predict it from.
        """
        if shapes not in self._known:
            if len(self._known) > 64:
                self._known.clear()
            most = self.largest_batch if self.offered_batch is None else self.offered_batch
            self._known[shapes] = self._search(shapes, most)[:, 0]
        return self._known[shapes]

    def rate(self, gpus: int) -> float:
        """Iterations per second at its fixed batch size on its fastest type, if scaling were
        linear.

        NaN if there is no data to predict it from.
        """
        batch = self.fixed_batch or self.initial_batch
        alone = {name: self._alone(name, model) for name, model in self.models.items()}
        return max(
            (
                samples_s * (gpus // self.limits[name].gpus) / batch
                for name, samples_s in (alone or self.ratios or {}).items()
            ),
            default=math.nan,
        )

    def _first(self, shape: Shape) -> Batch | None:
        """As the published simulator: no batch size is chosen on a type that was never measured."""
        limit = self.limits.get(shape.gpu_type)
        if limit is None or shape.gpus % limit.gpus:
            return None
        replicas = shape.gpus // limit.gpus
        each = math.ceil(max(self.initial_batch, limit.smallest * replicas) / replicas)
        steps = math.ceil(each / limit.largest) - 1
        return Batch(math.ceil(each / (steps + 1)), steps)

    def _search(self, shapes: Sequence[Shape], most: int) -> Floats:
        """Of each shape the best goodput, its batch of a step and its accumulation steps.

        Of global batch sizes up to `most`.
        """
        rows = tuple(map(self._row, shapes))
        if self.fixed_batch is not None:
            return best_batches(rows, self.initial_batch, self.fixed_batch, 0, self.noise)
        return best_batches(rows, self.initial_batch, self.largest_batch, most, self.noise)

    def _row(self, shape: Shape) -> tuple[float, ...]:
        """nodes, replicas, limits, factor and the model's parameters of one shape."""
        limit = self.limits.get(shape.gpu_type)
        if limit is None or shape.gpus % limit.gpus or shape.nodes > limit.nodes:
            return (1, 1, 1, 1, 0.0, *NEUTRAL)
        replicas = shape.gpus // limit.gpus
        model, factor = self._model(shape.gpu_type, replicas)
        parameters = NEUTRAL if model is None else model
        return (shape.nodes, replicas, limit.smallest, limit.largest, factor, *parameters)

    def _model(self, gpu_type: str, replicas: int) -> tuple[Throughput | None, float]:
        """The model used for this type, and the factor by which its prediction is scaled."""
        own = self.models.get(gpu_type)
        if self.ratios is not None:
            # As the published simulator: own model, or the first one by the true ratio.
            if own is not None:
                return own, 1.0
            for other_type, model in self.models.items():
                return model, self.ratios.get(gpu_type, 0.0) / self.ratios[other_type]
            return None, float("nan")
        if own is None:
            return None, float("nan")
        if replicas == 1 or self._ran_several(gpu_type):
            return own, 1.0
        # Sia, section 3.2: a type tried with one replica scales like one tried with several.
        for other_type, model in self.models.items():
            if other_type != gpu_type and self._ran_several(other_type):
                return model, self._alone(gpu_type, own) / self._alone(other_type, model)
        return own, 1.0

    def _ran_several(self, gpu_type: str) -> bool:
        return any(key[1] > 1 for key in self.observations[gpu_type])

    def _alone(self, gpu_type: str, model: Throughput) -> float:
        """Samples a second of one replica that fills its memory."""
        return float(model.samples_s(1, 1, self.limits[gpu_type].largest, 0))


NEUTRAL = Throughput(1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0)


# The throughputs of a job that was planned and profiled before it runs (Arena).


Size = tuple[str, int]
"""GPU type and number of GPUs."""

Speeds = Mapping[Size, float]
"""Throughput by GPU type and number of GPUs [samples/s]; combinations not listed cannot run."""


class SpeedSource(NamedTuple):
    """The last progress in a job's log."""

    left: float
    """Samples that it had left to do."""
    at: float
    """[s]; in the future while it restarts."""
    speed: float
    """[samples/s]; 0 while it waits."""


class PlannedAgent(Agent):
    """An agent whose throughputs are known from the start, by GPU type and number."""

    def __init__(
        self,
        speeds: Speeds,
        batch: int,
        restart_s: float,
        samples: float | None = None,
        launch_s: float | None = None,
    ) -> None:
        """Args:
        speeds: throughputs that the scheduler assumes.
        batch: fixed global batch size [samples].
        restart_s: cost of a change of GPUs [s].
        samples: total work, by its number of iterations; None: unknown.
        launch_s: cost of its first start, with profiling; None: `restart_s` [s]."""
        types = {gpu_type for gpu_type, _ in speeds}
        super().__init__(
            limits={name: Limits(1, batch) for name in sorted(types)},
            initial_batch=batch,
            largest_batch=batch,
            fixed_batch=batch,
            restart_s=restart_s,
        )
        self.speeds = dict(speeds)
        self.models = dict.fromkeys(types, NEUTRAL)
        self.launch_s = restart_s if launch_s is None else launch_s
        self.samples = samples
        self.seen = None if samples is None else SpeedSource(samples, 0.0, 0.0)

    @property
    def most_replicas(self) -> int:
        """The most GPUs that were planned for."""
        return max((gpus for _, gpus in self.speeds), default=1)

    def left(self, now: float) -> float | None:
        """Remaining samples; None if the number of iterations is unknown."""
        if self.seen is None:
            return None
        left, at, speed = self.seen
        return max(0.0, left - speed * max(0.0, now - at))

    def learn(self, size: Size, samples_s: float) -> None:
        """Use this measured throughput for this size from now on [samples/s]."""
        if self.speeds.get(size) != samples_s:
            self.speeds[size] = samples_s
            self._changed()

    def goodputs(self, shapes: tuple[Shape, ...]) -> Floats:
        """Iterations a second on each shape; 0 where the job cannot run."""
        return np.array(
            [
                self.speeds.get((shape.gpu_type, shape.gpus), 0.0) / self.initial_batch
                for shape in shapes
            ]
        )

    def rate(self, gpus: int) -> float:
        """Iterations per second on this number of GPUs of the fastest type; NaN if unknown."""
        speeds = [speed for (_, count), speed in self.speeds.items() if count == gpus]
        return max(speeds, default=math.nan) / self.initial_batch

    def options(self) -> Sequence[Size]:
        """(GPU type, GPUs) on which it runs, fewest GPUs first."""
        return sorted(self.speeds, key=lambda one: (one[1], one[0]))
