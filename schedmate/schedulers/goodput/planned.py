"""The throughputs of a job that was planned and profiled before it runs (Arena)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from schedmate.schedulers.goodput.agent import NEUTRAL, Agent, Limits, Shape
from schedmate.schedulers.goodput.throughput import Floats

Size = tuple[str, int]
"""GPU type and number of GPUs."""

Speeds = Mapping[Size, float]
"""Throughput by GPU type and number of GPUs [samples/s]; combinations not listed cannot run."""


class Seen(NamedTuple):
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
        self.seen = None if samples is None else Seen(samples, 0.0, 0.0)

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
            [self.speeds.get((one.gpu_type, one.gpus), 0.0) / self.initial_batch for one in shapes]
        )

    def rate(self, gpus: int) -> float:
        """Iterations per second on this number of GPUs of the fastest type; NaN if unknown."""
        found = [speed for (_, count), speed in self.speeds.items() if count == gpus]
        return max(found, default=math.nan) / self.initial_batch

    def options(self) -> Sequence[Size]:
        """(GPU type, GPUs) on which it runs, fewest GPUs first."""
        return sorted(self.speeds, key=lambda one: (one[1], one[0]))
