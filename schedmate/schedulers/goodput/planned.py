"""What a job says of its speed where it was planned and profiled before it runs (Arena)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from schedmate.schedulers.goodput.agent import NEUTRAL, Agent, Limits, Shape
from schedmate.schedulers.goodput.throughput import Floats

Speeds = Mapping[tuple[str, int], float]
"""Throughput by GPU type and number of GPUs [samples/s]; what is not there cannot run."""


class PlannedAgent(Agent):
    """An agent whose every throughput is known from the beginning, by GPU type and number."""

    def __init__(self, speeds: Speeds, batch: int, restart_s: float) -> None:
        """
        Args:
            speeds: what the scheduler is to believe.
            batch: global batch size, which stays [samples].
            restart_s: what a change of GPUs costs [s].
        """
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

    @property
    def most_replicas(self) -> int:
        """The most GPUs that were planned for."""
        return max((gpus for _, gpus in self.speeds), default=1)

    def goodputs(self, shapes: tuple[Shape, ...]) -> Floats:
        """Iterations a second on each shape; 0 where the job cannot run."""
        return np.array(
            [self.speeds.get((one.gpu_type, one.gpus), 0.0) / self.initial_batch for one in shapes]
        )

    def options(self) -> Sequence[tuple[str, int]]:
        """(GPU type, GPUs) on which it runs, fewest GPUs first."""
        return sorted(self.speeds, key=lambda one: (one[1], one[0]))
