"""SpotGPU (ASI paper, section 4.2): spot jobs (LP) on what jobs of high priority (HP) leave
idle.

HP jobs are placed as if they were alone, and evict spot jobs if they do not fit; spot jobs never
evict. `Ranking` ranks nodes, `Victims` chooses the jobs to evict. A spot job without free GPUs
borrows those of a job that lends its own for a while (Standby). A tenant's HP jobs hold no more
GPUs together than its quota.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import ClassVar, NamedTuple

from schedmate.base.errors import UsageError, did_you_mean
from schedmate.schedulers.estimators import remaining_s
from schedmate.schedulers.free import bits, lowest_gpus
from schedmate.schedulers.lanes import Rank
from schedmate.schedulers.model import NEVER, Allocation, Job
from schedmate.schedulers.policies.preemptive import RESTART_S
from schedmate.schedulers.policy import Borrow, Decision, Drop, Evict, Policy, Start, View
from schedmate.schedulers.space import Order

# Which of equally full nodes a job goes to (ASI paper, section 4.2, non-preemptive scheduling).
#
# The fullest node that has room comes first; that is how `Space.find` packs. Of nodes that are
# equally full, those come first that host jobs of the same class, and of these the ones with the
# most evictions so far for a job of high priority, those with the fewest for a spot job.


class Ranking:
    """The two criteria of the node ranking, for one call of the policy.

    `colocation` and `history` switch them on.
    """

    def __init__(self, view: View, *, colocation: bool = True, history: bool = True) -> None:
        self._colocation = colocation
        self._high = view.census().high if colocation else 0
        self._levels: list[int] | None = None if history and view.evicted else [-1]
        self._evicted = view.evicted

    def order(self, *, low: bool) -> Order:
        """The order for a job of this class."""

        def order(nodes: int) -> Iterator[int]:
            # A spot job goes where only spot jobs are, one of high priority where others are.
            same = nodes & (~self._high if low else self._high) if self._colocation else nodes
            if same:
                yield from self._by_history(same, low=low)
            if other := nodes & ~same:
                yield from self._by_history(other, low=low)

        return order

    def placed(self, allocation: Allocation, *, low: bool) -> None:
        """A job of this class was just placed there."""
        if not low and self._colocation:
            for node, _ in allocation:
                self._high |= 1 << node

    def _by_history(self, nodes: int, *, low: bool) -> Iterator[int]:
        if self._levels is None:
            self._levels = self._evicted.levels()
        for level in self._levels if low else reversed(self._levels):
            if some := nodes & level:
                yield from bits(some)


# The GPUs that nodes could free for jobs of high priority, and at what cost.


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
        units = self._units.get(node)
        if units is None:
            units = self._units[node] = sorted(self._of(node), key=lambda unit: unit.cost)
        return units

    def _of(self, node: int) -> list[Unit]:
        units: list[Unit] = []
        shared: dict[int, list[Job]] = {}
        for job in self._view.on(node):
            if job.share != 1.0:
                shared.setdefault(job.allocation[0][1], []).append(job)
            elif self._may_go(job):
                units.append(Unit(self._cost(job), mask_on(job, node), [job]))
        for mask, jobs in shared.items():
            # A job that joined them in this call of the policy is not on the node yet.
            theirs = sum(job.share for job in jobs)
            joined = self._view.space.part_used(node, mask) > theirs + _SHARE_EPSILON
            if not joined and all(map(self._may_go, jobs)):
                units.append(Unit(sum(map(self._cost, jobs)), mask, jobs))
        return units

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
    mask = 0
    for node in nodes:
        mask |= 1 << node
    return mask


# The search for jobs to evict for a job of high priority (ASI paper, section 4.2).
#
# A spot job t with G_t GPUs costs C_t = G_t x (now - its last checkpoint). On each node that could
# host the job, or one of its pods, the smallest prefix of the spot jobs by ascending cost that
# frees enough GPUs is chosen, and then the node whose prefix costs least. GPUs that are free, or
# that jobs which were asked to stop are leaving, count first and cost nothing.


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
            trials = [one for group in groups if (one := self._search(job, pieces, group))]
            best = min(trials, key=lambda one: one[0], default=None)
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
            gpus_held = (self._taken.get(node, 0)).bit_count() + gpus
            need = host_share(job, gpus_held)
            cpus, memory = cpus - need[0], memory - need[1]
        units: list[Unit] = []
        for unit in supply.units(node):
            if have >= gpus and cpus >= -_EPSILON and memory >= -_EPSILON:
                break
            if any(victim.index in self.victims for victim in unit.jobs):
                continue
            units.append(unit)
            have += unit.mask.bit_count()
            if hosts:
                for victim in unit.jobs:
                    more = host_share(victim, mask_on(victim, node).bit_count())
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
            for victim in unit.jobs:
                self.victims[victim.index] = victim
                for at, mask in victim.allocation:
                    self._gone[at] = self._gone.get(at, 0) | mask
                    changed.add(at)
        free, soon = self._supply.ready(node)
        taken = self._taken.get(node, 0)
        mask = 0
        for have in (free, soon, self._gone.get(node, 0)):
            mask |= (
                lowest_gpus(usable, min(usable.bit_count(), gpus - mask.bit_count()))
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


# Costs of evictions and values of windows by SchedMate's estimates (ours).
#
# Advisor, log and history estimate the remaining time of a job. A job that is almost done is
# spared even if it is cheap to evict: it will leave by itself, and waiting again delays it most
# in proportion. GPUs that are lent for less time than a job needs to save any work are not used.


UNKNOWN_S = 4 * 3600.0
"""Assumed remaining time of an unknown job [s]."""
CHECKPOINT_S = 1800.0
"""Work between two checkpoints where the user did not say: an assumption [s]."""


def evicting_costs(view: View, job: Job) -> float:
    """Cost of an eviction as a part of the job's remaining time: lost work, and the restart.

    Without an estimate, only lost work counts.
    """
    left_s = remaining_s(job, view.now)
    wasted_s = view.lost_s(job) + RESTART_S
    return wasted_s / (UNKNOWN_S if left_s == NEVER else max(left_s, 60.0))


def window_is_worth(view: View, job: Job, allocation: Allocation) -> bool:
    """Whether a job that borrows these GPUs ends in the window, or keeps at least half of its work
    there: between two checkpoints half an interval is lost on average."""
    window_s = _lent_until(view, allocation) - view.now
    if remaining_s(job, view.now) <= window_s - RESTART_S:
        return True
    every = job.terms.checkpoint_s if job.terms is not None else None
    saves = job.terms is not None and job.terms.saves
    lost_s = 0.0 if saves else (CHECKPOINT_S if every is None else every) / 2
    return window_s - RESTART_S - lost_s >= window_s / 2


def _lent_until(view: View, allocation: Allocation) -> float:
    """The announced time at which the first lender of these GPUs reclaims them [s]."""
    until = NEVER
    for node, mask in allocation:
        for lender in view.on(node):
            if lender.status is not None and lender.status.lends:
                if any(at == node and theirs & mask for at, theirs in lender.allocation):
                    until = min(until, lender.status.lends_until)
    return until


# Jobs of high priority (HP) as if they were alone, and spot jobs (LP) on the idle GPUs.
#
# The rules are those of SpotGPU (ASI paper, section 4.2): nodes are ranked, and the jobs to evict
# chosen. HP jobs go first, and evict spot jobs if they do not fit; spot jobs never evict. A spot
# job without free GPUs borrows those of a job that lends its own for a while (Standby). A
# tenant's HP jobs hold no more GPUs together than its quota.


_VICTIMS = ("cost", "random", "remaining", "none")
_WINDOWS = ("all", "worth", "none")


class Spot(Policy):
    """SpotGPU (ASI, section 4.2): high-priority (HP) jobs first, spot jobs on the remaining GPUs.

    Args:
        victims: spot jobs that an HP job evicts: by `cost`, as published; `random` ones of a random
            node; `remaining`, by cost and estimated remaining time (ours); `none`.
        windows: GPUs that spot jobs borrow: `all` that are lent; those whose window is `worth`
            entering by the job's estimate and checkpoints (ours); `none`.
        colocation: whether HP jobs go to nodes with HP jobs and spot jobs to the others.
        history: whether the number of evictions on a node counts.
        shortest: whether the spot job with the least estimated remaining time goes first (ours);
            else the first submitted.
        protect: whether HP jobs are placed as if there were no spot jobs, and evict those in the
            way (ours); else they use free GPUs if there are any, as published, and scatter: large
            HP jobs then wait longer for each other than they would alone.
        grace_s: grace time of an evicted job: SIGKILL follows after 60 s [s].
    """

    name: ClassVar[str] = "spot"
    borrows: ClassVar[bool] = True
    steady = True

    def __init__(
        self,
        victims: str = "cost",
        windows: str = "all",
        colocation: bool = True,
        history: bool = True,
        shortest: bool = False,
        protect: bool = False,
        grace_s: float = 60.0,
    ) -> None:
        for name, value, choices in (
            ("victims", victims, _VICTIMS),
            ("windows", windows, _WINDOWS),
        ):
            if value not in choices:
                raise UsageError(
                    f"policy spot: {name}={value} is none of {', '.join(choices)}"
                    f"{did_you_mean(value, choices) or '.'}"
                )
        self.victims = victims
        self.windows = windows
        self.colocation = colocation
        self.history = history
        self.shortest = shortest
        self.protect = protect
        self.grace_s = grace_s

    def rank(self, job: Job, now: float) -> Rank:
        low = is_low(job)
        last = remaining_s(job, now) if low and self.shortest else job.submit_time
        return (low, -job.priority, last)

    def lane(self, job: Job) -> Hashable:
        # Quotas apply to jobs of high priority, so tenants distinguish only these.
        low = is_low(job)
        tenant = "" if job.terms is None or low else job.terms.tenant
        return (super().lane(job), low, tenant)

    def decide(self, view: View) -> Sequence[Decision]:
        return _Call(self, view).decisions()


class _Call:
    """The state of one call of `Spot.decide`."""

    def __init__(self, policy: Spot, view: View) -> None:
        self._policy = policy
        self._view = view
        self._ranking = Ranking(view, colocation=policy.colocation, history=policy.history)
        self._high = self._ranking.order(low=False)
        self._low = self._ranking.order(low=True)
        self._victims: Victims | None = None
        self._unlent: dict[str, int] = {}  # by GPU type: as many GPUs are lent nowhere
        self._decisions: list[Decision] = []
        self._quotas = dict(view.space.cluster.quotas)
        self._held: Counter[str] = Counter()
        if self._quotas:
            self._held.update(view.census().tenants)
            for job, _ in view.starting.values():
                if job.terms is not None and not job.terms.low:
                    self._held[job.terms.tenant] += job.gpus

    def decisions(self) -> list[Decision]:
        self._view.pending.walk(self._accept)
        return self._decisions

    def _accept(self, job: Job) -> bool:
        if is_low(job):
            return self._place(job, self._low, low=True) or self._borrow(job)
        tenant = "" if job.terms is None else job.terms.tenant
        quota = self._quotas.get(tenant)
        if quota is not None:
            if job.gpus > quota:
                self._decisions.append(Drop(job, f"the quota of {tenant} is {quota} GPUs"))
                return True
            if self._held[tenant] + job.gpus > quota:
                return False
        first, then = self._place_high, self._make_room
        if self._policy.protect:
            first, then = then, first
        if not (first(job) or then(job)):
            return False
        self._held[tenant] += job.gpus
        return True

    def _place_high(self, job: Job) -> bool:
        return self._place(job, self._high, low=False)

    def _place(self, job: Job, order: Order, *, low: bool) -> bool:
        """Start the job on free GPUs."""
        space = self._view.space
        if job.gpus > space.idle and job.share == 1.0:
            return False
        allocation = space.find(job, order=order)
        if allocation is None:
            return False
        space.take(job, allocation)
        self._start(job, allocation, low=low)
        return True

    def _make_room(self, job: Job) -> bool:
        """Start an HP job where spot jobs are evicted."""
        view, policy = self._view, self._policy
        if policy.victims == "none" or not view.can.evict:
            return False
        if self._victims is None:
            self._victims = self._search()
        room = self._victims.room(job)
        if room is None:
            return False
        victims, allocation = room
        self._decisions += [Evict(victim, policy.grace_s) for victim in victims]
        self._start(job, allocation, low=False)
        return True

    def _start(self, job: Job, allocation: Allocation, *, low: bool) -> None:
        self._ranking.placed(allocation, low=low)
        if self._victims is not None and job.share != 1.0:
            self._victims.forget(allocation[0][0])
        self._decisions.append(Start(job, allocation))

    def _search(self) -> Victims:
        view, how = self._view, self._policy.victims
        if how == "random":
            now = view.now

            def draw(*what: object) -> float:
                return random.Random(f"{now}/{what}").random()  # noqa: S311 - no secret

            return Victims(
                view,
                lambda victim: draw(victim.id),
                node_cost=lambda job, node: draw(job.id, node),
            )
        packed = self._policy.protect
        if how == "remaining":
            return Victims(
                view, lambda victim: evicting_costs(view, victim), prune=True, packed=packed
            )
        return Victims(
            view, lambda victim: victim.gpus * victim.share * view.lost_s(victim), packed=packed
        )

    def _borrow(self, job: Job) -> bool:
        """Start a spot job on GPUs that their holder lends."""
        view, windows = self._view, self._policy.windows
        if windows == "none" or not view.can.borrow or job.share != 1.0:
            return False
        plain = not (job.cpus or job.memory_mb or job.constraints)
        if plain and job.gpus >= self._unlent.get(job.gpu_type, job.gpus + 1):
            return False
        allocation = view.space.find_lent(job)
        if allocation is None:
            if plain:
                self._unlent[job.gpu_type] = job.gpus
            return False
        if windows == "worth" and not window_is_worth(view, job, allocation):
            return False
        view.space.take(job, allocation)
        self._decisions.append(Borrow(job, allocation))
        return True


def is_low(job: Job) -> bool:
    """Whether a job is a spot job, of low priority."""
    return job.terms is not None and job.terms.low
