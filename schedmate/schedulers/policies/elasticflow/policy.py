"""ElasticFlow's rounds: admission, minimum shares, and the rest by marginal returns."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush

import numpy as np

from schedmate.errors import UsageError
from schedmate.schedulers.decisions import Decision, Drop
from schedmate.schedulers.goodput.agent import Shape
from schedmate.schedulers.goodput.planned import PlannedAgent
from schedmate.schedulers.model import Cluster, Job
from schedmate.schedulers.policies.elasticflow.shares import Demand, admit, share, slots
from schedmate.schedulers.policies.sia.configurations import allowed, shape_of
from schedmate.schedulers.policies.sia.placement import Wish, capacity_of, decisions, settled
from schedmate.schedulers.policy import Policy
from schedmate.schedulers.remaining import remaining_s
from schedmate.schedulers.view import View

LATE = ("drop", "wait")


class ElasticFlow(Policy):
    """ElasticFlow: deadlines promised at submission and kept by elastic scaling."""

    name = "elasticflow"
    rounds = True
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
        for job in view.jobs():
            if job.profiling:
                continue
            found = list(_demands(job, view))
            if not found:
                view.warn("a job waits, as no GPU type can run it")
                continue
            # ElasticFlow treats each GPU type as a cluster: the one with the least demand is used.
            gpu_type, one = min(found, key=lambda pair: asked[pair[0]] / max(capacity[pair[0]], 1))
            asked[gpu_type] += one.held or one.sizes[0]
            pools[gpu_type].append(one)
        wishes: list[Wish] = []
        dropped: list[Decision] = []
        for gpu_type, demands in pools.items():
            sizes, refused = self._pool(view, demands, capacity[gpu_type])
            dropped += [Drop(one.job, "its deadline cannot be met") for one in refused]
            wishes += [
                Wish(one.job, _shape(view.space.cluster, gpu_type, gpus), pinned=one.pinned)
                for one in demands
                if (gpus := sizes.get(one.job.index, 0))
            ]
        placed = settled(view, wishes)
        jobs = [job for job in view.jobs() if not job.profiling]
        gone = {drop.job.index for drop in dropped}
        kept = [job for job in jobs if job.index not in gone]
        return [*dropped, *decisions(view, placed, kept)]

    def _pool(
        self, view: View, demands: list[Demand], capacity: int
    ) -> tuple[dict[int, int], list[Demand]]:
        """GPUs of each job of one GPU type by its position, and the jobs to drop."""
        due = [one for one in demands if one.deadline_s < math.inf and not one.pinned]
        pinned = {one.job.index: one.held for one in demands if one.pinned}
        capacity -= sum(pinned.values())
        horizon = max((one.deadline_s for one in due), default=0.0)
        ends = slots(self.interval_s, horizon)
        # Nothing records the guarantees: a job that has had GPUs had one, unless refused jobs
        # may wait and use spare GPUs. All others are admitted again, after those.
        known = [one for one in due if _has_begun(one.job)]
        asking = [one for one in due if not _has_begun(one.job)]
        promised, refused = admit(known, asking, capacity, ends)
        may_drop = self.late == "drop" and view.can.drop
        if not may_drop and any(promised[one.job.index] is None for one in known):
            promised, _ = admit([], [*known, *asking], capacity, ends)
        whole = capacity + sum(pinned.values())
        refused = [one for one in refused if may_drop and self._is_hopeless(one, view, whole)]
        gone = {one.job.index for one in refused}
        rest = [one for one in demands if one.job.index not in {*gone, *pinned}]
        least: dict[int, int] = {}
        for one in rest:
            found = promised.get(one.job.index)
            least[one.job.index] = 0 if found is None else int(found.plan[0])
        if not self.suspend:
            self._keep(rest, least, capacity)
        sizes = _scaled(rest, least, capacity)
        return {**sizes, **pinned}, refused

    def _is_hopeless(self, one: Demand, view: View, capacity: int) -> bool:
        """Whether a refused job is dropped: in its first round, or when it would be late even
        alone.

        Until then it may have a guarantee for GPUs later.
        """
        if view.now - one.job.submit_time < self.interval_s:
            return True
        ends = slots(self.interval_s, one.deadline_s)
        return share(one, np.full(len(ends), float(capacity)), ends) is None

    def _keep(self, demands: list[Demand], least: dict[int, int], capacity: int) -> None:
        """Running jobs keep enough GPUs before other jobs get more."""
        running = [one for one in demands if one.held]
        for one in running:
            least[one.job.index] = max(least[one.job.index], min(one.sizes[0], one.held))
        excess = sum(least.values()) - capacity
        waiting = [one for one in demands if not one.held]
        for one in [*reversed(waiting), *reversed(running)]:
            floor = min(one.sizes[0], one.held) if one.held else 0
            while excess > 0 and least[one.job.index] > floor:
                below = [size for size in one.sizes if size < least[one.job.index]]
                given = max([floor, *below]) if below else floor
                excess -= least[one.job.index] - given
                least[one.job.index] = given


def _has_begun(job: Job) -> bool:
    return bool(job.allocation) or job.service_s > 0


def _scaled(demands: list[Demand], least: dict[int, int], capacity: int) -> dict[int, int]:
    """Sizes by position: minimum shares, then waiting jobs, then the rest by marginal returns.

    Running jobs get their GPUs back: they lose GPUs only where other jobs need them.
    """
    sizes = dict(least)
    left = capacity - sum(sizes.values())
    for one in demands:
        index = one.job.index
        if not sizes[index] and one.sizes[0] <= left:
            sizes[index] = one.sizes[0]
            left -= one.sizes[0]
    for most in (True, False):
        heap: list[tuple[float, int, int, Demand]] = []

        def offer(one: Demand, to_held: bool, heap: list[tuple[float, int, int, Demand]]) -> None:
            now = sizes[one.job.index]
            gpus = one.larger(now)
            if not now or not gpus or (to_held and gpus > one.held):
                return
            if not to_held and one.rest_s(gpus) >= one.rest_s(now):
                return  # the restart costs more than the GPUs gain
            heappush(heap, (-_return(one, now, gpus), one.job.index, gpus, one))

        for one in demands:
            offer(one, most, heap)
        while heap and left > 0:
            _, index, gpus, one = heappop(heap)
            if gpus - sizes[index] <= left:
                left -= gpus - sizes[index]
                sizes[index] = gpus
                offer(one, most, heap)
    return sizes


def _return(one: Demand, now: int, gpus: int) -> float:
    """Marginal return: the part of its GPU time that a job saves on more GPUs.

    It is negative where throughput grows by less than the number of GPUs does.
    """
    before, after = now / one.speed(now), gpus / one.speed(gpus)
    return 1.0 - after / before


def _demands(job: Job, view: View) -> Iterator[tuple[str, Demand]]:
    """The job on each GPU type that it may use: on its present one if it runs."""
    cluster, now, agent = view.space.cluster, view.now, job.agent
    held = shape_of(cluster, job.allocation) if job.allocation else None
    known: dict[str, dict[int, float]] = {}
    shapes = tuple(one for one in allowed(job, cluster) if one.gpus & (one.gpus - 1) == 0)
    shapes = shapes or allowed(job, cluster)
    speeds = [1.0] * len(shapes) if agent is None else agent.goodputs(shapes).tolist()
    for shape, speed in zip(shapes, speeds, strict=True):
        if speed > 0 and math.isfinite(speed):
            known.setdefault(shape.gpu_type, {})[shape.gpus] = speed
    if agent is not None and agent.restoring_until > now and held:
        known.setdefault(held.gpu_type, {}).setdefault(held.gpus, 1e-9)
    left = agent.left(now) if isinstance(agent, PlannedAgent) else None
    deadline_s = math.inf if job.terms is None else job.terms.deadline - now
    for gpu_type, sizes in known.items():
        if held is not None and gpu_type != held.gpu_type:
            continue
        order = sorted(sizes)
        if left is not None and agent is not None:
            work = left / agent.initial_batch
        else:
            near = min(order, key=lambda gpus: abs(gpus - job.gpus))
            work = remaining_s(job, now) * sizes[near]
        change_s = 0.0 if agent is None else agent.restart_s
        if isinstance(agent, PlannedAgent) and not (held or job.service_s):
            change_s = agent.launch_s
        yield (
            gpu_type,
            Demand(
                job,
                tuple(order),
                tuple(sizes[gpus] for gpus in order),
                work,
                deadline_s,
                held.gpus if held else 0,
                change_s,
                bool(held) and (not job.migratable or bool(agent and agent.restoring_until > now)),
            ),
        )


def _shape(cluster: Cluster, gpu_type: str, gpus: int) -> Shape:
    """On as few nodes as can hold it."""
    each = max(node.gpus for node in cluster.nodes if node.gpu_type == gpu_type)
    return Shape(gpu_type, -(-gpus // each), gpus)
