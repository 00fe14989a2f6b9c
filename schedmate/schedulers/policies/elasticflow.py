"""ElasticFlow (ASPLOS'23): elastic jobs that are promised to meet their deadlines.

Every round: admission, minimum shares, and the rest by marginal returns.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from schedmate.base.errors import UsageError
from schedmate.schedulers.estimators import remaining_s
from schedmate.schedulers.goodput import Floats, PlannedAgent, Shape
from schedmate.schedulers.model import Cluster, Job
from schedmate.schedulers.policies.elastic import (
    Wish,
    allowed_shapes,
    capacity_of,
    changeable,
    decisions_for,
    place_without_stopping,
    shape_of,
)
from schedmate.schedulers.policy import Decision, Drop, Policy, View

# The fewest GPUs with which jobs meet their deadlines (ElasticFlow, section 4.1).
#
# Time is divided into slots, of one round at first, then longer and longer: in the far future only
# totals matter. A job's share is found by progressive filling: the smallest number of GPUs that
# completes it in time, as far as earlier deadlines leave them free.


EVEN_SLOTS = 12
"""Slots of the length of a round; each one after them is longer than the one before."""
SLOT_GROWTH = 1.25
MOST_SLOTS = 200
"""Slots at most: more than a year ahead in rounds of a second."""


@dataclass(frozen=True, eq=False)
class Demand:
    """A job within the GPUs of one type."""

    job: Job
    sizes: tuple[int, ...]
    """Numbers of GPUs on which it runs, ascending."""
    speeds: tuple[float, ...]
    """Progress a second on each."""
    left: float
    """Remaining work; infinity: unknown."""
    deadline_s: float = math.inf
    """Time until its deadline [s]."""
    held: int = 0
    """GPUs that it has."""
    change_s: float = 0.0
    """What giving it another number of GPUs costs [s]."""
    pinned: bool = False
    """Whether it is being started or moved, and is not changed."""

    def speed(self, gpus: int) -> float:
        """Progress per second on this many GPUs; 0 if it cannot run on them."""
        return self.speeds[self.sizes.index(gpus)] if gpus in self.sizes else 0.0

    def larger(self, gpus: int) -> int:
        """The next larger number of GPUs on which it runs; 0: none."""
        return next((size for size in self.sizes if size > gpus), 0)

    def rest_s(self, gpus: int) -> float:
        """Time that it needs on this number of GPUs from now on [s]."""
        speed = self.speed(gpus)
        if speed <= 0:
            return math.inf
        return self.left / speed + (0.0 if gpus == self.held else self.change_s)


def slot_ends(interval_s: float, horizon_s: float) -> Floats:
    """Where slots end, from now until at least the horizon [s]."""
    ends: list[float] = []
    length, at = interval_s, 0.0
    while at < horizon_s and len(ends) < MOST_SLOTS:
        at += length
        ends.append(at)
        if len(ends) >= EVEN_SLOTS:
            length *= SLOT_GROWTH
    return np.array(ends or [interval_s])


class Share(NamedTuple):
    """The GPUs that a job is promised."""

    gpus: int
    """With at most this number in each slot: the minimum satisfactory share."""
    plan: Floats
    """In each slot."""


def share(demand: Demand, free: Floats, ends: Floats) -> Share | None:
    """The minimum satisfactory share within the GPUs that are free in each slot.

    None: no number of GPUs gets it done by its deadline.
    """
    starts = np.concatenate([[0.0], ends[:-1]])
    lengths = np.clip(np.minimum(ends, demand.deadline_s) - starts, 0.0, None)
    sizes, speeds = np.array([0, *demand.sizes]), np.array([0.0, *demand.speeds])
    for gpus in demand.sizes:
        place = np.searchsorted(sizes, np.minimum(gpus, free), side="right") - 1
        useful = lengths.copy()
        first = int(np.argmax(place > 0))
        if sizes[place[first]] != demand.held:
            useful[first] -= demand.change_s
        done = np.cumsum(speeds[place] * useful)
        if done[-1] >= demand.left * (1 - 1e-9):
            last = int(np.searchsorted(done, demand.left * (1 - 1e-9)))
            plan = sizes[place].astype(float)
            plan[last + 1 :] = 0.0
            return Share(gpus, plan)
    return None


def shares(demands: Iterable[Demand], free: Floats | int, ends: Floats) -> dict[int, Share | None]:
    """The shares of jobs by position, by ascending deadline; None: it misses its deadline.

    `free` is the number of GPUs, or the number in each slot.
    """
    left = np.zeros(len(ends)) + free
    granted: dict[int, Share | None] = {}
    for demand in sorted(demands, key=_urgency):
        granted[demand.job.index] = promised = share(demand, left, ends)
        if promised is not None:
            left -= promised.plan
    return granted


def _urgency(demand: Demand) -> tuple[float, int]:
    return demand.deadline_s, demand.job.index


def admit(
    running: Sequence[Demand], new: Sequence[Demand], capacity: int, ends: Floats
) -> tuple[dict[int, Share | None], list[Demand]]:
    """Shares of all admitted jobs, and the refused new jobs.

    A new job is admitted if it meets its deadline and makes no other miss one; the first submitted
    goes first.
    """
    admitted = list(running)
    granted = shares(admitted, capacity, ends)
    refused = []
    for demand in new:
        free = np.full(len(ends), float(capacity))
        later = []
        for admitted_demand in admitted:
            promised = granted[admitted_demand.job.index]
            if _urgency(admitted_demand) > _urgency(demand):
                later.append(admitted_demand)
            elif promised is not None:
                free -= promised.plan
        own = share(demand, free, ends)  # later deadlines do not reduce it
        if own is None:
            refused.append(demand)
            continue
        trial = shares(later, free - own.plan, ends)
        if any(trial[index] is None and granted[index] is not None for index in trial):
            refused.append(demand)
            continue
        admitted.append(demand)
        granted |= {**trial, demand.job.index: own}
    return granted, refused


# ElasticFlow's rounds: admission, minimum shares, and the rest by marginal returns.


LATE = ("drop", "wait")


class ElasticFlow(Policy):
    """ElasticFlow: deadlines promised at submission and kept by elastic scaling."""

    name = "elasticflow"
    rounds = True
    one_pool = True
    interval_s: float

    def __init__(self, late: str = "drop", interval_s: float = 300.0, suspend: bool = True) -> None:
        """Args:
        late: treatment of a job whose deadline cannot be guaranteed at submission: `drop` as
            published, or `wait` for GPUs that no guarantee needs, like a job without a
            deadline. As policies store nothing between calls, a waiting job that has begun and
            can meet its deadline after all precedes one with a guarantee that has not begun,
            which few jobs then miss.
        interval_s: length of a round [s].
        suspend: whether a job may lose all its GPUs for a while, if its guarantee allows that
            or it has none. If not, guarantees may be broken: GPUs in use are not available for
            them."""
        if late not in LATE:
            raise UsageError(f"policy elasticflow: late={late} is none of {', '.join(LATE)}.")
        self.late = late
        self.interval_s = interval_s
        self.suspend = suspend

    def decide(self, view: View) -> Sequence[Decision]:
        capacity = capacity_of(view)
        pools: dict[str, list[Demand]] = {gpu_type: [] for gpu_type in capacity}
        asked = dict.fromkeys(capacity, 0.0)
        for job in changeable(view):
            options = list(_demands(job, view))
            if not options:
                view.warn("a job waits, as no GPU type can run it")
                continue
            # ElasticFlow treats each GPU type as a cluster: the one with the least demand is used.
            gpu_type, demand = min(
                options, key=lambda pair: asked[pair[0]] / max(capacity[pair[0]], 1)
            )
            asked[gpu_type] += demand.held or demand.sizes[0]
            pools[gpu_type].append(demand)
        wishes: list[Wish] = []
        dropped: list[Decision] = []
        for gpu_type, demands in pools.items():
            sizes, refused = self._pool(view, demands, capacity[gpu_type])
            dropped += [Drop(demand.job, "its deadline cannot be met") for demand in refused]
            wishes += [
                Wish(demand.job, _shape(view.space.cluster, gpu_type, gpus), pinned=demand.pinned)
                for demand in demands
                if (gpus := sizes.get(demand.job.index, 0))
            ]
        placed = place_without_stopping(view, wishes)
        jobs = changeable(view)
        gone = {drop.job.index for drop in dropped}
        remaining = [job for job in jobs if job.index not in gone]
        return [*dropped, *decisions_for(view, placed, remaining)]

    def _pool(
        self, view: View, demands: list[Demand], capacity: int
    ) -> tuple[dict[int, int], list[Demand]]:
        """GPUs of each job of one GPU type by its position, and the jobs to drop."""
        due = [demand for demand in demands if demand.deadline_s < math.inf and not demand.pinned]
        pinned = {demand.job.index: demand.held for demand in demands if demand.pinned}
        capacity -= sum(pinned.values())
        horizon = max((demand.deadline_s for demand in due), default=0.0)
        ends = slot_ends(self.interval_s, horizon)
        # Nothing records the guarantees: a job that has had GPUs had one, unless refused jobs
        # may wait and use spare GPUs. All others are admitted again, after those.
        begun = [demand for demand in due if _has_begun(demand.job)]
        asking = [demand for demand in due if not _has_begun(demand.job)]
        promised, refused = admit(begun, asking, capacity, ends)
        may_drop = self.late == "drop" and view.can.drop
        if not may_drop and any(promised[demand.job.index] is None for demand in begun):
            promised, _ = admit([], [*begun, *asking], capacity, ends)
        whole = capacity + sum(pinned.values())
        refused = [
            demand for demand in refused if may_drop and self._is_hopeless(demand, view, whole)
        ]
        gone = {demand.job.index for demand in refused}
        rest = [demand for demand in demands if demand.job.index not in {*gone, *pinned}]
        least: dict[int, int] = {}
        for demand in rest:
            promise = promised.get(demand.job.index)
            least[demand.job.index] = 0 if promise is None else int(promise.plan[0])
        if not self.suspend:
            self._keep(rest, least, capacity)
        sizes = _scaled(rest, least, capacity)
        return {**sizes, **pinned}, refused

    def _is_hopeless(self, demand: Demand, view: View, capacity: int) -> bool:
        """Whether a refused job is dropped: in its first round, or when it would be late even
        alone.

        Until then it may have a guarantee for GPUs later.
        """
        if view.now - demand.job.submit_time < self.interval_s:
            return True
        ends = slot_ends(self.interval_s, demand.deadline_s)
        return share(demand, np.full(len(ends), float(capacity)), ends) is None

    def _keep(self, demands: list[Demand], least: dict[int, int], capacity: int) -> None:
        """Running jobs keep enough GPUs before other jobs get more."""
        running = [demand for demand in demands if demand.held]
        for demand in running:
            least[demand.job.index] = max(
                least[demand.job.index], min(demand.sizes[0], demand.held)
            )
        excess = sum(least.values()) - capacity
        waiting = [demand for demand in demands if not demand.held]
        for demand in [*reversed(waiting), *reversed(running)]:
            floor = min(demand.sizes[0], demand.held) if demand.held else 0
            while excess > 0 and least[demand.job.index] > floor:
                below = [size for size in demand.sizes if size < least[demand.job.index]]
                reduced = max([floor, *below]) if below else floor
                excess -= least[demand.job.index] - reduced
                least[demand.job.index] = reduced


def _has_begun(job: Job) -> bool:
    return bool(job.allocation) or job.service_s > 0


def _scaled(demands: list[Demand], least: dict[int, int], capacity: int) -> dict[int, int]:
    """Sizes by position: minimum shares, then waiting jobs, then the rest by marginal returns.

    Running jobs get their GPUs back: they lose GPUs only where other jobs need them.
    """
    sizes = dict(least)
    left = capacity - sum(sizes.values())
    for demand in demands:
        index = demand.job.index
        if not sizes[index] and demand.sizes[0] <= left:
            sizes[index] = demand.sizes[0]
            left -= demand.sizes[0]
    for most in (True, False):
        heap: list[tuple[float, int, int, Demand]] = []

        def offer(
            demand: Demand, to_held: bool, heap: list[tuple[float, int, int, Demand]]
        ) -> None:
            now = sizes[demand.job.index]
            gpus = demand.larger(now)
            if not now or not gpus or (to_held and gpus > demand.held):
                return
            if not to_held and demand.rest_s(gpus) >= demand.rest_s(now):
                return  # the restart costs more than the GPUs gain
            heappush(heap, (-_marginal_return(demand, now, gpus), demand.job.index, gpus, demand))

        for demand in demands:
            offer(demand, most, heap)
        while heap and left > 0:
            _, index, gpus, demand = heappop(heap)
            if gpus - sizes[index] <= left:
                left -= gpus - sizes[index]
                sizes[index] = gpus
                offer(demand, most, heap)
    return sizes


def _marginal_return(demand: Demand, now: int, gpus: int) -> float:
    """Marginal return: the part of its GPU time that a job saves on more GPUs.

    It is negative where throughput grows by less than the number of GPUs does.
    """
    before, after = now / demand.speed(now), gpus / demand.speed(gpus)
    return 1.0 - after / before


def _demands(job: Job, view: View) -> Iterator[tuple[str, Demand]]:
    """The job on each GPU type that it may use: on its present one if it runs."""
    cluster, now, agent = view.space.cluster, view.now, job.agent
    present = shape_of(cluster, job.allocation) if job.allocation else None
    speeds_of: dict[str, dict[int, float]] = {}
    shapes = tuple(one for one in allowed_shapes(job, cluster) if one.gpus & (one.gpus - 1) == 0)
    shapes = shapes or allowed_shapes(job, cluster)
    speeds = [1.0] * len(shapes) if agent is None else agent.goodputs(shapes).tolist()
    for shape, speed in zip(shapes, speeds, strict=True):
        if speed > 0 and math.isfinite(speed):
            speeds_of.setdefault(shape.gpu_type, {})[shape.gpus] = speed
    if agent is not None and agent.restoring_until > now and present:
        speeds_of.setdefault(present.gpu_type, {}).setdefault(present.gpus, 1e-9)
    left = agent.left(now) if isinstance(agent, PlannedAgent) else None
    deadline_s = math.inf if job.terms is None else job.terms.deadline - now
    for gpu_type, sizes in speeds_of.items():
        if present is not None and gpu_type != present.gpu_type:
            continue
        order = sorted(sizes)
        if left is not None and agent is not None:
            work = left / agent.initial_batch
        else:
            near = min(order, key=lambda gpus: abs(gpus - job.gpus))
            work = remaining_s(job, now) * sizes[near]
        change_s = 0.0 if agent is None else agent.restart_s
        if isinstance(agent, PlannedAgent) and not (present or job.service_s):
            change_s = agent.launch_s
        yield (
            gpu_type,
            Demand(
                job,
                tuple(order),
                tuple(sizes[gpus] for gpus in order),
                work,
                deadline_s,
                present.gpus if present else 0,
                change_s,
                bool(present)
                and (not job.migratable or bool(agent and agent.restoring_until > now)),
            ),
        )


def _shape(cluster: Cluster, gpu_type: str, gpus: int) -> Shape:
    """On as few nodes as can hold it."""
    each = max(node.gpus for node in cluster.nodes if not node.role and node.gpu_type == gpu_type)
    return Shape(gpu_type, -(-gpus // each), gpus)
