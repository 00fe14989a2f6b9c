"""The GPUs that nodes could free for jobs of high priority, and at what cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from schedmate.schedulers.model import Job
from schedmate.schedulers.pools import bits
from schedmate.schedulers.view import View

_SHARE_EPSILON = 1e-6
_FULLER = 1e15
"""Weight of a GPU of room, which exceeds the cost of any eviction."""


class Unit(NamedTuple):
    """Spot jobs that can only be evicted together: one, or all that share a GPU."""

    cost: float
    mask: int
    jobs: list[Job]


class Offer(NamedTuple):
    """The victims on one node for a piece of a job."""

    cost: float
    units: list[Unit]


class Supply:
    """The GPUs that nodes can free, during one call of the policy; see `Victims` for the
    arguments."""

    def __init__(
        self,
        view: View,
        cost: Callable[[Job], float],
        *,
        node_cost: Callable[[Job, int], float] | None,
        packed: bool,
    ) -> None:
        self._view = view
        self._cost = cost
        self._node_cost = node_cost
        self._packed = packed
        self._low = view.census()
        self._stopped: set[int] = set()
        self._soon: dict[int, int] = {}  # GPUs that are being left, by node
        self._units: dict[int, list[Unit]] = {}
        for job in view.leaving.values():
            self._leaves(job)

    def sources(self) -> int:
        """Bit set of the nodes that have more than free GPUs to offer."""
        return self._low.low | _bit_set(self._soon)

    def stop(self, job: Job) -> None:
        """A job was chosen for eviction."""
        self._stopped.add(job.index)
        self._leaves(job)
        for node, _ in job.allocation:
            self.forget(node)

    def candidates(self, nodes: int, gpus: int) -> list[int]:
        """The nodes with enough GPUs that are free, being left, or held by spot jobs."""
        free, low, soon = self._view.space.free, self._low.low_gpus, self._soon
        return [
            node
            for node in bits(nodes)
            if free[node].bit_count() + low.get(node, 0) >= gpus or node in soon
        ]

    def units(self, node: int) -> list[Unit]:
        """The evictable jobs on a node, cheapest first."""
        found = self._units.get(node)
        if found is None:
            found = self._units[node] = sorted(self._of(node), key=lambda unit: unit.cost)
        return found

    def _of(self, node: int) -> list[Unit]:
        found: list[Unit] = []
        shared: dict[int, list[Job]] = {}
        for job in self._view.on(node):
            if job.share != 1.0:
                shared.setdefault(job.allocation[0][1], []).append(job)
            elif self._may_go(job):
                found.append(Unit(self._cost(job), mask_on(job, node), [job]))
        for mask, jobs in shared.items():
            # A job that joined them in this call of the policy is not on the node yet.
            theirs = sum(job.share for job in jobs)
            joined = self._view.space.part_used(node, mask) > theirs + _SHARE_EPSILON
            if not joined and all(map(self._may_go, jobs)):
                found.append(Unit(sum(map(self._cost, jobs)), mask, jobs))
        return found

    def _may_go(self, job: Job) -> bool:
        low = job.terms is not None and job.terms.low
        return (
            low
            and job.preemptible
            and job.partner is None
            and job.index not in self._stopped
            and not self._view.space.borrows(job.allocation)
        )

    def forget(self, node: int) -> None:
        """Examine the node again: a job was placed there."""
        self._units.pop(node, None)

    def _leaves(self, job: Job) -> None:
        if job.share == 1.0:
            for node, mask in job.allocation:
                self._soon[node] = self._soon.get(node, 0) | mask

    def ready(self, node: int) -> tuple[int, int]:
        """Bit masks of the GPUs of a node that are free, and that are being left unreserved."""
        space = self._view.space
        soon = self._soon.get(node, 0)
        return space.free[node], soon & ~space.owed(node) if soon else 0

    def most(self, node: int) -> int:
        """GPUs of spot jobs on a node: the most that can be reclaimed."""
        return self._low.low_gpus[node]

    def spare(self, node: int) -> tuple[float, float]:
        """Free CPUs and memory of a node, with those that are being left [cores, MB]."""
        cpus, memory = self._view.space.spare(node)
        for job in self._view.on(node) if node in self._soon else ():
            if job.index in self._view.leaving or job.index in self._stopped:
                more = host_share(job, mask_on(job, node).bit_count())
                cpus, memory = cpus + more[0], memory + more[1]
        return cpus, memory

    def price(self, job: Job, node: int, units: list[Unit], room: int) -> float:
        """Cost of reclaiming these on a node with `room` GPUs for high priority."""
        if units and self._node_cost is not None:
            return self._node_cost(job, node)
        cost = sum(unit.cost for unit in units)
        return cost + _FULLER * room if self._packed else cost


def mask_on(job: Job, node: int) -> int:
    """Bit mask of the GPUs that the job holds on a node."""
    return next(mask for at, mask in job.allocation if at == node)


def host_share(job: Job, gpus: int) -> tuple[float, float]:
    """CPUs and memory that belong to `gpus` of the job's GPUs [cores, MB]."""
    return job.cpus * gpus / job.gpus, job.memory_mb * gpus / job.gpus


def _bit_set(nodes: Iterable[int]) -> int:
    found = 0
    for node in nodes:
        found |= 1 << node
    return found
