"""Whose GPUs are taken back for a job of high priority (ASI paper, section 4.2, preemptive
scheduling).

A spot job t with G_t GPUs costs C_t = G_t x (now - its last checkpoint). On each node that could
host the job, or one of its pods, the smallest prefix of the spot jobs by ascending cost is taken
that gives enough, and the node whose prefix costs least is chosen. GPUs that are free, or are being
left by jobs that were told to stop before, count first and cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from schedmate.schedulers.model import Allocation, Job
from schedmate.schedulers.pools import bits, lowest
from schedmate.schedulers.view import View

_EPSILON = 1e-9
_SHARE_EPSILON = 1e-6
_FULLER = 1e15
"""What a GPU of more room counts, beside which no cost of an eviction does."""


class Unit(NamedTuple):
    """Spot jobs that leave GPUs of a node together: one, or all that share one GPU."""

    cost: float
    mask: int
    jobs: list[Job]


class Offer(NamedTuple):
    """The victims on one node for a part of a job."""

    cost: float
    units: list[Unit]


class Victims:
    """The search, for one call of the policy.

    Args:
        cost: what evicting a spot job costs; only comparisons count.
        node_cost: instead of the sum of its victims' costs, what choosing a node costs.
        prune: leave those of the prefix alone without which there is enough (ours).
        packed: the fullest node comes first, were no spot jobs there, then the cheapest (ours).
    """

    def __init__(
        self,
        view: View,
        cost: Callable[[Job], float],
        *,
        node_cost: Callable[[Job, int], float] | None = None,
        prune: bool = False,
        packed: bool = False,
    ) -> None:
        self._view = view
        self._cost = cost
        self._node_cost = node_cost
        self._prune = prune
        self._packed = packed
        self._low = view.census()
        self._stopped: set[int] = set()
        self._soon: dict[int, int] = {}  # by node: GPUs that are being left
        self._units: dict[int, list[Unit]] = {}
        for job in view.leaving.values():
            self._leaves(job)

    def room(self, job: Job) -> tuple[list[Job], Allocation] | None:
        """The jobs to evict so that the job fits, and its place; None if that is not enough.

        The allocation is claimed in the view's space.
        """
        space = self._view.space
        nodes, size = space.open_to(job)
        pieces = _pieces(job, size)
        constraints = job.constraints
        # A node that gives nothing beyond what is free is of use to a gang alone.
        useful = nodes
        if len(pieces) == 1 and not self._packed:
            useful &= self._low.low | _set(self._soon)
        if constraints is not None and constraints.within_switch:
            groups = [one & useful for one in space.sites.switches()]
            found = [one for group in groups if (one := self._search(job, pieces, group))]
            best = min(found, key=lambda one: one[0], default=None)
        else:
            best = self._search(job, pieces, useful)
        if best is None:
            return None
        _, victims, allocation = best
        space.claim(job, allocation)
        for victim in victims:
            self._stopped.add(victim.index)
            self._leaves(victim)
            for node, _ in victim.allocation:
                self._units.pop(node, None)
        return victims, allocation

    def _search(
        self, job: Job, pieces: list[int], nodes: int
    ) -> tuple[float, list[Job], Allocation] | None:
        apart = job.constraints is not None and job.constraints.apart
        trial = _Trial(self, job)
        heap: list[tuple[float, int, int]] = []
        total, at = 0.0, 0
        for number, gpus in enumerate(pieces):
            if not number or gpus != pieces[number - 1]:
                heap = [
                    (offer.cost, -self._view.evicted[node], node)
                    for node in self._candidates(nodes, gpus)
                    if (offer := trial.offer(node, gpus)) is not None
                ]
                heapify(heap)
            while heap:
                cost, _, at = heappop(heap)
                offer = trial.offer(at, gpus)
                if offer is not None and offer.cost <= cost + _EPSILON:
                    break
                if offer is not None:
                    heappush(heap, (offer.cost, -self._view.evicted[at], at))
            else:
                return None
            changed = trial.accept(at, gpus, offer)
            total += offer.cost
            if apart:
                nodes &= ~(1 << at)
                changed.discard(at)
            for node in changed:
                again = trial.offer(node, gpus) if nodes >> node & 1 else None
                if again is not None:
                    heappush(heap, (again.cost, -self._view.evicted[node], node))
        return total, list(trial.victims.values()), trial.allocation()

    def _candidates(self, nodes: int, gpus: int) -> list[int]:
        """The nodes that have as many GPUs that are free, being left or spot jobs'."""
        free, low, soon = self._view.space.free, self._low.low_gpus, self._soon
        return [
            node
            for node in bits(nodes)
            if free[node].bit_count() + low.get(node, 0) >= gpus or node in soon
        ]

    # What nodes would give.

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
                found.append(Unit(self._cost(job), _mask(job, node), [job]))
        for mask, jobs in shared.items():
            # Whoever joined them in this very call is not among them yet.
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
        """Look at the node anew: a job was put there."""
        self._units.pop(node, None)

    def _leaves(self, job: Job) -> None:
        if job.share == 1.0:
            for node, mask in job.allocation:
                self._soon[node] = self._soon.get(node, 0) | mask

    def ready(self, node: int) -> tuple[int, int]:
        """Bit masks of the GPUs of a node that are free, and that are being left for nobody."""
        space = self._view.space
        soon = self._soon.get(node, 0)
        return space.free[node], soon & ~space.owed(node) if soon else 0

    def most(self, node: int) -> int:
        """GPUs of spot jobs on a node: no more can be taken back."""
        return self._low.low_gpus[node]

    def spare(self, node: int) -> tuple[float, float]:
        """Processors and memory of a node, with those that are being left [cores, MB]."""
        cpus, memory = self._view.space.spare(node)
        for job in self._view.on(node) if node in self._soon else ():
            if job.index in self._view.leaving or job.index in self._stopped:
                more = _host(job, _mask(job, node).bit_count())
                cpus, memory = cpus + more[0], memory + more[1]
        return cpus, memory

    def price(self, job: Job, node: int, units: list[Unit], room: int) -> float:
        """What it costs to take these back on a node with so much room for high priority."""
        if units and self._node_cost is not None:
            return self._node_cost(job, node)
        cost = sum(unit.cost for unit in units)
        return cost + _FULLER * room if self._packed else cost

    @property
    def prunes(self) -> bool:
        """Whether those are left alone without whom there is enough."""
        return self._prune


class _Trial:
    """One job, placed piece by piece."""

    def __init__(self, search: Victims, job: Job) -> None:
        self._search = search
        self._job = job
        self._taken: dict[int, int] = {}
        self._gone: dict[int, int] = {}  # by node: GPUs that these victims leave
        self.victims: dict[int, Job] = {}

    def offer(self, node: int, gpus: int) -> Offer | None:
        """What it takes to put so many GPUs of the job on the node; None: it is not enough."""
        search, job = self._search, self._job
        free, soon = search.ready(node)
        taken = self._taken.get(node, 0)
        have = ((free | soon | self._gone.get(node, 0)) & ~taken).bit_count()
        room = have + search.most(node)
        if room < gpus:
            return None
        hosts = bool(job.cpus or job.memory_mb)
        cpus = memory = 0.0
        if hosts:
            cpus, memory = search.spare(node)
            held = (self._taken.get(node, 0)).bit_count() + gpus
            need = _host(job, held)
            cpus, memory = cpus - need[0], memory - need[1]
        units: list[Unit] = []
        for unit in search.units(node):
            if have >= gpus and cpus >= -_EPSILON and memory >= -_EPSILON:
                break
            if any(one.index in self.victims for one in unit.jobs):
                continue
            units.append(unit)
            have += unit.mask.bit_count()
            if hosts:
                for one in unit.jobs:
                    more = _host(one, _mask(one, node).bit_count())
                    cpus, memory = cpus + more[0], memory + more[1]
        if have < gpus or cpus < -_EPSILON or memory < -_EPSILON:
            return None
        if search.prunes and not hosts:
            for unit in reversed(units[:-1]):
                if have - unit.mask.bit_count() >= gpus:
                    units.remove(unit)
                    have -= unit.mask.bit_count()
        return Offer(search.price(job, node, units, room), units)

    def accept(self, node: int, gpus: int, offer: Offer) -> set[int]:
        """Put the piece there; the nodes whose offers are others now."""
        changed = {node}
        for unit in offer.units:
            for one in unit.jobs:
                self.victims[one.index] = one
                for at, mask in one.allocation:
                    self._gone[at] = self._gone.get(at, 0) | mask
                    changed.add(at)
        free, soon = self._search.ready(node)
        taken = self._taken.get(node, 0)
        mask = 0
        for have in (free, soon, self._gone.get(node, 0)):
            mask |= (
                lowest(usable, min(usable.bit_count(), gpus - mask.bit_count()))
                if (usable := have & ~taken & ~mask)
                else 0
            )
        self._taken[node] = taken | mask
        return changed

    def allocation(self) -> Allocation:
        """Where the job goes."""
        return tuple(sorted(self._taken.items()))


def _pieces(job: Job, size: int) -> list[int]:
    """GPUs of each part of a job that is on one node."""
    if job.constraints is not None and job.constraints.pods:
        return [job.gpus // job.constraints.pods] * job.constraints.pods
    whole, rest = divmod(job.gpus, size) if size else (0, job.gpus)
    return [size] * whole + [rest] * bool(rest)


def _mask(job: Job, node: int) -> int:
    return next(mask for at, mask in job.allocation if at == node)


def _host(job: Job, gpus: int) -> tuple[float, float]:
    """Processors and memory that go with so many of its GPUs [cores, MB]."""
    return job.cpus * gpus / job.gpus, job.memory_mb * gpus / job.gpus


def _set(nodes: Iterable[int]) -> int:
    found = 0
    for node in nodes:
        found |= 1 << node
    return found
