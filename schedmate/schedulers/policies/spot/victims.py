"""The search for jobs to evict for a job of high priority (ASI paper, section 4.2).

A spot job t with G_t GPUs costs C_t = G_t x (now - its last checkpoint). On each node that could
host the job, or one of its pods, the smallest prefix of the spot jobs by ascending cost that frees
enough GPUs is chosen, and then the node whose prefix costs least. GPUs that are free, or that jobs
which were asked to stop are leaving, count first and cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush

from schedmate.schedulers.model import Allocation, Job
from schedmate.schedulers.policies.spot.supply import Offer, Supply, Unit, host_share, mask_on
from schedmate.schedulers.pools import lowest
from schedmate.schedulers.view import View

_EPSILON = 1e-9


class Victims:
    """The search, for one call of the policy.

    Args:
        cost: the cost of evicting a spot job; only comparisons matter.
        node_cost: the cost of choosing a node, instead of the sum of its victims' costs.
        prune: spare those of the prefix that are not needed (not in the paper).
        packed: prefer the node that would be fullest without spot jobs, then the cheapest (not in
            the paper).
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
        self._packed = packed
        self._prune = prune
        self._supply = Supply(view, cost, node_cost=node_cost, packed=packed)

    def room(self, job: Job) -> tuple[list[Job], Allocation] | None:
        """The jobs to evict so that the job fits, and its allocation; None if it cannot fit.

        The allocation is claimed in the view's space.
        """
        space = self._view.space
        nodes, size = space.open_to(job)
        pieces = _pieces(job, size)
        constraints = job.constraints
        # A node with nothing but free GPUs only helps a gang.
        useful = nodes
        if len(pieces) == 1 and not self._packed:
            useful &= self._supply.sources()
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
            self._supply.stop(victim)
        return victims, allocation

    def forget(self, node: int) -> None:
        """Examine the node again: a job was placed there."""
        self._supply.forget(node)

    def _search(
        self, job: Job, pieces: list[int], nodes: int
    ) -> tuple[float, list[Job], Allocation] | None:
        apart = job.constraints is not None and job.constraints.apart
        trial = _Trial(self._supply, job, prune=self._prune)
        heap: list[tuple[float, int, int]] = []
        total, at = 0.0, 0
        for number, gpus in enumerate(pieces):
            if not number or gpus != pieces[number - 1]:
                heap = [
                    (offer.cost, -self._view.evicted[node], node)
                    for node in self._supply.candidates(nodes, gpus)
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


class _Trial:
    """One job, placed piece by piece."""

    def __init__(self, supply: Supply, job: Job, *, prune: bool) -> None:
        self._supply = supply
        self._job = job
        self._prune = prune
        self._taken: dict[int, int] = {}
        self._gone: dict[int, int] = {}  # GPUs that these victims leave, by node
        self.victims: dict[int, Job] = {}

    def offer(self, node: int, gpus: int) -> Offer | None:
        """The victims that free `gpus` GPUs for the job on the node; None: not enough."""
        supply, job = self._supply, self._job
        free, soon = supply.ready(node)
        taken = self._taken.get(node, 0)
        have = ((free | soon | self._gone.get(node, 0)) & ~taken).bit_count()
        room = have + supply.most(node)
        if room < gpus:
            return None
        hosts = bool(job.cpus or job.memory_mb)
        cpus = memory = 0.0
        if hosts:
            cpus, memory = supply.spare(node)
            held = (self._taken.get(node, 0)).bit_count() + gpus
            need = host_share(job, held)
            cpus, memory = cpus - need[0], memory - need[1]
        units: list[Unit] = []
        for unit in supply.units(node):
            if have >= gpus and cpus >= -_EPSILON and memory >= -_EPSILON:
                break
            if any(one.index in self.victims for one in unit.jobs):
                continue
            units.append(unit)
            have += unit.mask.bit_count()
            if hosts:
                for one in unit.jobs:
                    more = host_share(one, mask_on(one, node).bit_count())
                    cpus, memory = cpus + more[0], memory + more[1]
        if have < gpus or cpus < -_EPSILON or memory < -_EPSILON:
            return None
        if self._prune and not hosts:
            for unit in reversed(units[:-1]):
                if have - unit.mask.bit_count() >= gpus:
                    units.remove(unit)
                    have -= unit.mask.bit_count()
        return Offer(supply.price(job, node, units, room), units)

    def accept(self, node: int, gpus: int, offer: Offer) -> set[int]:
        """Place the piece there; return the nodes whose offers have changed."""
        changed = {node}
        for unit in offer.units:
            for one in unit.jobs:
                self.victims[one.index] = one
                for at, mask in one.allocation:
                    self._gone[at] = self._gone.get(at, 0) | mask
                    changed.add(at)
        free, soon = self._supply.ready(node)
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
        """The allocation of all pieces so far."""
        return tuple(sorted(self._taken.items()))


def _pieces(job: Job, size: int) -> list[int]:
    """GPUs of each piece of a job that goes to one node."""
    if job.constraints is not None and job.constraints.pods:
        return [job.gpus // job.constraints.pods] * job.constraints.pods
    whole, rest = divmod(job.gpus, size) if size else (0, job.gpus)
    return [size] * whole + [rest] * bool(rest)
