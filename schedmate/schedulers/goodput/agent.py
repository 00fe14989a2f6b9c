"""The agent of an elastic job: it measures steps and predicts throughput elsewhere.

Pollux, OSDI'21, section 4.1. A policy only queries it; an executor, that is the simulator or a
training job, reports what was measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schedmate.schedulers.goodput.batches import best, gain
from schedmate.schedulers.goodput.throughput import Floats, Observation, Throughput, fit

MOST_REPLICAS = 64
"""Of one job, as in the published scheduler."""


class Limits(NamedTuple):
    """Limits of one replica of a job on one GPU type."""

    smallest: int
    """Batch size of one step."""
    largest: int
    """What its memory holds."""
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
    """It is loading its checkpoint until then [s]."""
    held_s: dict[str, float] = field(default_factory=dict)
    """Time it held GPUs, by type [s]."""
    noise: tuple[float, float] | None = None
    """Squared norm and variance of its gradients, at the initial batch size."""
    observations: dict[str, dict[tuple[int, int, int], Observation]] = field(default_factory=dict)
    """By GPU type and (nodes, replicas, batch of a step); the first of each is kept."""
    models: dict[str, Throughput] = field(default_factory=dict)
    """By GPU type."""
    version: int = 0
    """Goes up with everything that changes an answer."""
    _known: dict[tuple[Shape, ...], Floats] = field(default_factory=dict)

    def observe(self, gpu_type: str, one: Observation) -> None:
        """A configuration was measured."""
        seen = self.observations.setdefault(gpu_type, {})
        key = (one.nodes, one.replicas, one.batch)
        if key in seen:
            return
        seen[key] = one
        self.models[gpu_type] = fit(tuple(seen.values()), loose=self.ratios is not None)
        self._changed()

    def adopt(self, other: Agent) -> None:
        """Begin with what a similar job has learnt of its throughput."""
        for gpu_type, seen in other.observations.items():
            if gpu_type in self.limits:
                mine = self.observations.setdefault(gpu_type, {})
                for key, one in seen.items():
                    mine.setdefault(key, one)
                self.models[gpu_type] = fit(tuple(mine.values()), loose=self.ratios is not None)
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
        return gain(np.asarray(batch, dtype=float), self.initial_batch, self.noise)

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
            return best(rows, self.initial_batch, self.fixed_batch, 0, self.noise)
        return best(rows, self.initial_batch, self.largest_batch, most, self.noise)

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
            for other, model in self.models.items():
                return model, self.ratios.get(gpu_type, 0.0) / self.ratios[other]
            return None, float("nan")
        if own is None:
            return None, float("nan")
        if replicas == 1 or self._ran_several(gpu_type):
            return own, 1.0
        # Sia, section 3.2: a type tried with one replica scales like one tried with several.
        for other, model in self.models.items():
            if other != gpu_type and self._ran_several(other):
                return model, self._alone(gpu_type, own) / self._alone(other, model)
        return own, 1.0

    def _ran_several(self, gpu_type: str) -> bool:
        return any(key[1] > 1 for key in self.observations[gpu_type])

    def _alone(self, gpu_type: str, model: Throughput) -> float:
        """Samples a second of one replica that fills its memory."""
        return float(model.samples_s(1, 1, self.limits[gpu_type].largest, 0))


NEUTRAL = Throughput(1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0)
