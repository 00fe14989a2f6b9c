"""Arena (EuroSys'26): elastic scheduling of large models over GPU types, by planned throughput.

Algorithm 1 of the paper: launch by priority queues, scale down to launch, scale up when idle; for
throughput, deadlines or fairness (section 3.5).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush, nlargest
from typing import NamedTuple

from schedmate.base.errors import UsageError, did_you_mean
from schedmate.schedulers.estimators import predicted_s, remaining_s
from schedmate.schedulers.goodput import PlannedAgent, Shape, Size
from schedmate.schedulers.model import Job
from schedmate.schedulers.policies.elastic import (
    Wish,
    capacity_of,
    changeable,
    decisions_for,
    place_without_stopping,
    requested_shapes,
    shape_of,
)
from schedmate.schedulers.policy import Decision, Drop, Policy, View

# Objectives of Arena's scheduler: throughput, deadlines or fairness (section 3.5).
#
# Speed and remaining time of a job are relative to the speed on its requested GPUs, so that
# different jobs can be added up.


Gain = tuple[float, float]
"""Compared in order; the second number decides between equals."""

NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class Prospect:
    """How a job could continue."""

    speeds: dict[Size, float]
    """Throughput by size, relative to that of the requested size (or its best, if that fails)."""
    held: Size | None = None
    """Its present size."""
    left_s: float = NEVER
    """Remaining time at speed 1 [s]; infinity: unknown."""
    total_s: float = NEVER
    """Total time at speed 1 [s]."""
    age_s: float = 0.0
    """Time since it was submitted [s]."""
    change_s: float = 0.0
    """Cost of a change of its size [s]."""
    busy_s: float = 0.0
    """Time until it makes progress on its present GPUs [s]."""
    deadline_s: float = NEVER
    """Time until its deadline [s]."""

    def ends_s(self, size: Size) -> float:
        """Time until it is done if it has this size from now on [s]."""
        speed = self.speeds.get(size, 0.0)
        if speed <= 0:
            return NEVER
        return self.left_s / speed + (self.busy_s if size == self.held else self.change_s)


class Objective:
    """Equation 5: the most throughput in all."""

    def __init__(self, *, remaining: bool = False) -> None:
        """`remaining`: only what a change gains in the time that a job has left counts."""
        self.remaining = remaining

    def gain(self, job: Prospect, before: Size, after: Size) -> Gain:
        """Worth of giving a job a better size."""
        more = job.speeds[after] - job.speeds.get(before, 0.0)
        if self.remaining and job.left_s < NEVER:
            # The part of its remaining time that it saves.
            now_s = job.ends_s(before)
            more *= max(0.0, 1.0 - job.ends_s(after) / now_s) if now_s < NEVER else 1.0
        return more, 0.0

    def loss(self, job: Prospect, before: Size, after: Size, freed: int) -> Gain:
        """Worth of giving a job a worse size, for each GPU that is freed: negative."""
        return (job.speeds[after] - job.speeds.get(before, 0.0)) / freed, 0.0

    def sizes(self, job: Prospect) -> dict[Size, float]:
        """The sizes among which it may get one."""
        return job.speeds


class Deadlines(Objective):
    """Equation 6: the same, of sizes on which every job meets its deadline."""

    def __init__(self, *, remaining: bool = False, margin: float = 0.05) -> None:
        """`margin`: the part by which a change must be early, as throughputs are estimates."""
        super().__init__(remaining=remaining)
        self.margin = margin

    def sizes(self, job: Prospect) -> dict[Size, float]:
        """Sizes with which it meets its deadline; empty: none."""
        if job.deadline_s == NEVER:
            return job.speeds
        within = job.deadline_s / (1 + self.margin)
        return {
            size: speed
            for size, speed in job.speeds.items()
            if job.ends_s(size) <= (job.deadline_s if size == job.held else within)
        }


class Fairness(Objective):
    """Equation 7: minimise the largest finish-time ratio.

    The equation divides the remaining time by "allocated resources" that it does not define; this
    is the ratio of Themis (NSDI'20), to which it refers: the time from submission to the end over
    the time that the job takes alone on its requested GPUs.
    """

    def ratio(self, job: Prospect, size: Size) -> float:
        """The finish-time ratio if it has this size from now on."""
        if job.total_s == NEVER or job.total_s <= 0:
            return 1.0 / max(job.speeds.get(size, 0.0), 1e-9)
        return (job.age_s + job.ends_s(size)) / job.total_s

    def gain(self, job: Prospect, before: Size, after: Size) -> Gain:
        """The worst-treated job comes first."""
        now, then = self.ratio(job, before), self.ratio(job, after)
        return (now, now - then) if then < now else (0.0, 0.0)

    def loss(self, job: Prospect, before: Size, after: Size, freed: int) -> Gain:
        """The job that is then best treated comes first."""
        return -self.ratio(job, after), super().loss(job, before, after, freed)[0]


OBJECTIVES: dict[str, type[Objective]] = {
    "throughput": Objective,
    "deadline": Deadlines,
    "fairness": Fairness,
}


# Scaling jobs down to launch another, and up where GPUs are idle (Arena, section 3.5).


Prospects = Callable[[Job], Prospect]


class Change(NamedTuple):
    """A job gets other GPUs."""

    job: Job
    size: Size
    freed: int
    """GPUs of its present type that others can have then."""
    worth: Gain
    """Gain of the objective; negative for a loss."""


@dataclass
class Allocations:
    """The GPUs of each job by type, while a round decides."""

    free: dict[str, int]
    held: dict[Job, Size] = field(default_factory=dict)
    pinned: set[Job] = field(default_factory=set)
    """Jobs that are being started or moved: they are left alone."""

    def set(self, job: Job, size: Size | None) -> None:
        """Give a job these GPUs instead of its present ones."""
        before = self.held.pop(job, None)
        if before is not None:
            self.free[before[0]] += before[1]
        if size is not None:
            self.free[size[0]] -= size[1]
            self.held[job] = size

    def fits(self, size: Size, besides: Size | None = None) -> bool:
        """Whether this number of GPUs is free once those of `besides` are returned."""
        left = self.free.get(size[0], 0)
        if besides is not None and besides[0] == size[0]:
            left += besides[1]
        return size[1] <= left


class Scaling:
    """The launching and scaling of one round, on allocations that it changes."""

    def __init__(self, now: Allocations, prospects: Prospects, objective: Objective) -> None:
        self.now, self.prospects, self.objective = now, prospects, objective
        # Jobs that can be scaled down, with their options: in a full cluster they are few.
        self._shrinks: dict[Job, list[Change]] = {}
        for one, size in now.held.items():
            self._remember(one, size)
        # Whether a job can be launched depends on its smallest sizes alone: those that cannot be
        # now, so that a long queue of equal jobs costs one attempt.
        self._hopeless: set[tuple[Size, ...]] = set()
        self.launched: list[Job] = []

    def launch(self, job: Job, depth: int) -> bool:
        """Launch `job`, after scaling down at most `depth` others; False: nothing was changed.

        Each step scales down the job with the least loss for each GPU that it frees. No job loses
        all its GPUs: launched jobs run to completion.
        """
        now, own = self.now, self.prospects(job)
        least: dict[str, int] = {}
        for gpu_type, gpus in own.speeds:
            least[gpu_type] = min(gpus, least.get(gpu_type, gpus))
        smallest = tuple(sorted(least.items()))
        if not least or smallest in self._hopeless:
            return False
        undo: list[tuple[Job, Size]] = []
        for step in range(depth + 1):
            size = self._best_fit(own)
            if size is not None:
                self._give(job, size)
                self.launched.append(job)
                self._hopeless.clear()
                return True
            change = None
            if step < depth:
                ways = list(self._smaller(least))
                if self._enough(ways, least, depth - step):
                    change = max(ways, key=lambda one: (one.worth, -one.job.index))
            if change is None:
                break
            undo.append((change.job, now.held[change.job]))
            self._give(change.job, change.size)
        for changed, before in reversed(undo):
            self._give(changed, before)
        self._hopeless.add(smallest)
        return False

    def _best_fit(self, own: Prospect) -> Size | None:
        """The free size with the most throughput for each GPU; of equals the largest.

        GPUs that are idle once all jobs are launched go to the jobs that gain most (`scale_up`).
        """
        speeds = own.speeds
        fitting = [size for size in speeds if self.now.fits(size)]
        return max(fitting, key=lambda size: (speeds[size] / size[1], size[1]), default=None)

    def _enough(self, ways: list[Change], least: dict[str, int], depth: int) -> bool:
        """Whether this number of changes could free the GPUs that are needed of some type."""
        freed: dict[str, list[int]] = {gpu_type: [] for gpu_type in least}
        for change in ways:
            freed[self.now.held[change.job][0]].append(change.freed)
        return any(
            bool(freed[gpu_type])
            and self.now.free.get(gpu_type, 0) + sum(nlargest(depth, freed[gpu_type])) >= gpus
            for gpu_type, gpus in least.items()
        )

    def _smaller(self, types: dict[str, int]) -> Iterator[Change]:
        """Ways to free GPUs of the types: a job gets half of them, or the same number of another
        type."""
        now = self.now
        for job, changes in self._shrinks.items():
            gpu_type = now.held[job][0]
            if gpu_type in types:
                for change in changes:
                    if change.size[0] == gpu_type or now.fits(change.size):
                        yield change

    def _give(self, job: Job, size: Size) -> None:
        self.now.set(job, size)
        self._remember(job, size)

    def _remember(self, job: Job, size: Size) -> None:
        """Keep how a job could be scaled down from this size."""
        gpu_type, gpus = size
        changes = []
        if job not in self.now.pinned:
            prospect = self.prospects(job)
            changes = [
                Change(job, smaller, freed, self.objective.loss(prospect, size, smaller, freed))
                for smaller in prospect.speeds
                if (freed := gpus - smaller[1] if smaller[0] == gpu_type else gpus) > 0
                and (
                    smaller == (gpu_type, gpus // 2)
                    or (smaller[0] != gpu_type and smaller[1] <= gpus)
                )
            ]
        if changes:
            self._shrinks[job] = changes
        else:
            self._shrinks.pop(job, None)

    def enlarge(self, least: float) -> None:
        """Give idle GPUs to the jobs that are launched now, as that costs them no restart.

        Repeatedly to the job with the largest gain for each GPU, if each doubling gains at least
        the part `least` of its throughput.
        """
        now = self.now
        heap: list[tuple[float, int, Size, Job]] = []
        for job in self.launched:
            self._offer(heap, job, least)
        while heap:
            _, _, size, job = heappop(heap)
            present = now.held[job]
            if now.fits(size, present):
                now.set(job, size)
                self._offer(heap, job, least)

    def _offer(self, heap: list[tuple[float, int, Size, Job]], job: Job, least: float) -> None:
        """Twice the GPUs of a job, for each type that has them."""
        prospect, present = self.prospects(job), self.now.held[job]
        for size, speed in prospect.speeds.items():
            if size[1] == 2 * present[1] and speed >= prospect.speeds[present] * (1 + least):
                worth = self.objective.gain(prospect, present, size)[0]
                if worth > 0 and self.now.fits(size, present):
                    heappush(heap, (-worth / present[1], job.index, size, job))

    def scale_up(self, depth: int, least: float) -> None:
        """Give idle GPUs to the jobs with the largest gains, at most `depth` times.

        A change has to gain at least the part `least` of the job's throughput.
        """
        now = self.now
        gains: list[Change] = []
        for job, size in now.held.items():
            if job in now.pinned:
                continue
            prospect = self.prospects(job)
            enough = prospect.speeds.get(size, 0.0) * (1 + least)
            for larger, speed in prospect.speeds.items():
                grown = larger[0] != size[0] or larger[1] == 2 * size[1]
                if grown and speed >= enough and now.fits(larger, size):
                    worth = self.objective.gain(prospect, size, larger)
                    if worth[0] > 0:
                        gains.append(Change(job, larger, 0, worth))
        gains.sort(key=lambda change: change.worth, reverse=True)  # stable: first come first
        for change in gains:
            if depth == 0:
                return
            # What a change leaves free is offered in the next round: it opens no others in this.
            if change.job not in now.pinned and now.fits(change.size, now.held[change.job]):
                now.set(change.job, change.size)
                now.pinned.add(change.job)
                depth -= 1


# Algorithm 1 of Arena: launch by priority queues, scale down to launch, scale up when idle.


class Arena(Policy):
    """Arena: large models over GPU types by planned throughput, elastic, run to completion."""

    name = "arena"
    rounds = True
    one_pool = True

    def __init__(
        self,
        objective: str = "throughput",
        queues: int = 3,
        depth: int = 3,
        interval_s: float = 300.0,
        promote_s: float = 3600.0,
        least_gain: float = 0.1,
        launch_gain: float = 0.3,
        elastic: bool = True,
        hetero: bool = True,
        remaining: bool = False,
    ) -> None:
        """Args:
        objective: `throughput` (Equation 5); `deadline`: the same for jobs that meet theirs,
            while the others are dropped (Equation 6); `fairness` of finish times (Equation 7).
        queues: number of priority queues P; a job's queue follows from its priority, the
            highest first.
        depth: search depth D: most jobs that are scaled to launch one, and most that are scaled
            up when GPUs are idle.
        interval_s: length of a round [s]; section 4: 5 minutes.
        promote_s: a job that waits this long moves up a queue [s]; the paper gives no number.
        least_gain: part of its throughput that a job must gain to be moved; the paper gives no
            number.
        launch_gain: part of its throughput that a job must gain from twice the GPUs to be
            launched on these, if they are idle; the paper does not say how large jobs are
            launched.
        elastic: whether numbers of GPUs change; if not, jobs get what they request.
        hetero: whether GPU types change; if not, jobs stay on their first type.
        remaining: weigh a gain by the part of a job's remaining time that it saves, restart
            included, so that jobs about to end are not moved. Not in the paper."""
        if queues < 1 or depth < 0:
            raise UsageError("policy arena: queues must be at least 1 and depth at least 0.")
        if objective not in OBJECTIVES:
            raise UsageError(
                f"policy arena: objective={objective} is none of {', '.join(OBJECTIVES)}"
                f"{did_you_mean(objective, OBJECTIVES) or '.'}"
            )
        self.objective = objective
        self.queues = queues
        self.depth = depth
        self.interval_s = interval_s
        self.promote_s = promote_s
        self.least_gain = least_gain
        self.launch_gain = launch_gain
        self.elastic = elastic
        self.hetero = hetero
        self.remaining = remaining

    def level(self, job: Job, now: float) -> int:
        """The queue of a waiting job: 1 is the first."""
        waited = int(max(0.0, now - job.submit_time) // self.promote_s)
        return max(1, self.queues - max(0, min(job.priority, self.queues - 1)) - waited)

    def decide(self, view: View) -> Sequence[Decision]:
        cluster = view.space.cluster
        objective = OBJECTIVES[self.objective](remaining=self.remaining)
        now = Allocations(dict(capacity_of(view)))
        for job in changeable(view):
            if not job.allocation:
                continue
            shape = shape_of(cluster, job.allocation)
            now.set(job, (shape.gpu_type, shape.gpus))
            if job.agent is None or job.agent.restoring_until > view.now or not job.migratable:
                now.pinned.add(job)
        prospects: dict[Job, Prospect] = {}

        def prospect(job: Job) -> Prospect:
            if job not in prospects:
                unscaled = self._prospect(job, view)
                prospects[job] = replace(unscaled, speeds=objective.sizes(unscaled))
            return prospects[job]

        lost: list[Decision] = []
        if self.objective == "deadline" and view.can.drop:
            lost = [
                Drop(job, "it cannot meet its deadline")
                for job in view.jobs()
                if not prospect(job).speeds and prospect(job).deadline_s < NEVER
            ]
            for drop in lost:
                now.set(drop.job, None)
        gone = {drop.job.index for drop in lost}
        scaling = Scaling(now, prospect, objective)
        self._launch(view, scaling, gone)
        if self.elastic:
            scaling.enlarge(self.launch_gain)
        scaling.scale_up(self.depth, self.least_gain)
        # Powers of two, the largest first, leave no gaps between jobs: buddy allocation.
        wishes = [Wish(job, self._shape(view, size)) for job, size in now.held.items()]
        return [*lost, *decisions_for(view, place_without_stopping(view, wishes), list(now.held))]

    def _launch(self, view: View, scaling: Scaling, gone: set[int]) -> None:
        """Lines 6 to 9: by queue, then by submission; a blocked queue blocks those behind it."""
        waiting = sorted(
            (self.level(job, view.now), job.submit_time, job.index, job)
            for job in view.pending
            if job.index not in gone
        )
        blocked = self.queues + 1
        for level, _, _, job in waiting:
            if level > blocked:
                break
            if not scaling.launch(job, self.depth if self.elastic else 0):
                blocked = min(blocked, level)

    def _prospect(self, job: Job, view: View) -> Prospect:
        present, now = None, view.now
        if job.allocation:
            shape = shape_of(view.space.cluster, job.allocation)
            present = (shape.gpu_type, shape.gpus)
        deadline_s = NEVER if job.terms is None else job.terms.deadline - now
        age_s = now - job.submit_time
        agent = job.agent
        if not isinstance(agent, PlannedAgent):
            view.warn("a job has no plans and gets the requested GPUs")
            sizes = {
                (one.gpu_type, one.gpus): 1.0 for one in requested_shapes(job, view.space.cluster)
            }
            left_s, total_s = remaining_s(job, now), predicted_s(job)
            return Prospect(sizes, present, left_s, total_s, age_s, deadline_s=deadline_s)
        speeds = {
            size: speed
            for size, speed in agent.speeds.items()
            if (self.elastic or size[1] == job.gpus)
            and job.gpu_type in ("", size[0])
            and (self.hetero or present is None or size[0] == present[0])
            and max(job.min_gpus, 1) <= size[1] <= max(job.max_gpus, job.gpus)
        }
        asked = [speed for size, speed in speeds.items() if size[1] == job.gpus]
        unit = max(asked or speeds.values(), default=1.0)
        left, total = agent.left(now), agent.samples
        began = job.allocation or job.service_s > 0
        return Prospect(
            {size: speed / unit for size, speed in speeds.items()},
            present,
            remaining_s(job, now) if left is None else left / unit,
            predicted_s(job) if total is None else total / unit,
            age_s,
            agent.restart_s if began else agent.launch_s,
            max(0.0, agent.restoring_until - now),
            deadline_s,
        )

    def _shape(self, view: View, size: Size) -> Shape:
        """On as few nodes as can hold it: jobs are on GPUs of one type, side by side."""
        nodes = view.space.cluster.nodes
        each = max(node.gpus for node in nodes if not node.role and node.gpu_type == size[0])
        return Shape(size[0], -(-size[1] // each), size[1])
