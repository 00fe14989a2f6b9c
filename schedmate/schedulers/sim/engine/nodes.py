"""Nodes that fail, if they do, and are repaired."""

from __future__ import annotations

import random
from heapq import heappush

from schedmate.schedulers.model import Allocation, Cluster, Job
from schedmate.schedulers.sim.engine.execution import Execution
from schedmate.schedulers.sim.engine.progress import DOWN, UP
from schedmate.schedulers.sim.parameters import Parameters


class Nodes:
    """Each node fails at random, takes all that runs on it along, and comes back after a while."""

    def __init__(
        self, cluster: Cluster, execution: Execution, parameters: Parameters, seed: int
    ) -> None:
        self._cluster = cluster
        self._execution = execution
        self._mtbf_s = parameters.node_mtbf_s
        self._repair_s = parameters.repair_s
        self._draw = random.Random(seed)  # noqa: S311 - an experiment, not a secret
        self._down: dict[int, tuple[Job, Allocation]] = {}  # node -> what keeps its GPUs

    def begin(self, now: float) -> None:
        """All nodes are well now, and for as long as it lasts."""
        for node in range(len(self._cluster.nodes)):
            self._next(node, now)

    def fail(self, node: int, now: float) -> list[Job]:
        """A node fails; the jobs that ended by it."""
        execution = self._execution
        hit = [job for job in execution.view.running if any(at == node for at, _ in job.allocation)]
        ended = [job for job in hit if not execution.fail(job, node)]
        gpus, name = self._cluster.nodes[node].gpus, self._cluster.nodes[node].name
        keeper = Job(f"repair of {name}", -1, now, gpus)
        everything = ((node, (1 << gpus) - 1),)
        execution.space.take(keeper, everything)
        self._down[node] = (keeper, everything)
        execution.coming += 1
        heappush(execution.events, (now + self._repair_s, UP, node, -1))
        return ended

    def back(self, node: int, now: float) -> None:
        """A node is repaired."""
        self._execution.coming -= 1
        self._execution.space.give(*self._down.pop(node))
        self._next(node, now)

    def _next(self, node: int, now: float) -> None:
        if self._mtbf_s is not None:
            wait_s = self._draw.expovariate(1.0 / self._mtbf_s)
            heappush(self._execution.events, (now + wait_s, DOWN, node, -1))
