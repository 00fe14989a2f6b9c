"""Algorithm 1 of Arena: launch by priority queues, scale down to launch, scale up when idle."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from schedmate.errors import UsageError
from schedmate.schedulers.goodput.agent import Shape
from schedmate.schedulers.goodput.planned import PlannedAgent
from schedmate.schedulers.model import Job
from schedmate.schedulers.policies.arena.scaling import (
    Allocations,
    Options,
    Size,
    launch,
    scale_up,
)
from schedmate.schedulers.policies.sia.configurations import of_size, shape_of
from schedmate.schedulers.policies.sia.placement import Placement, Wish, capacity_of, decisions
from schedmate.schedulers.policy import Decision, Policy, View


class Arena(Policy):
    """Arena: large models over GPU types by planned throughput, elastic, run to completion."""

    name = "arena"
    rounds = True
    one_pool = True

    def __init__(
        self,
        queues: int = 3,
        depth: int = 3,
        interval_s: float = 300.0,
        promote_s: float = 3600.0,
        least_gain: float = 0.1,
        elastic: bool = True,
        hetero: bool = True,
        remaining: bool = False,
    ) -> None:
        """
        Args:
            queues: priority queues P; a job's is by its priority, the highest first.
            depth: search depth D: jobs that are scaled at most to launch one, and at most in all
                where GPUs are idle.
            interval_s: length of a round [s]; section 4: 5 minutes.
            promote_s: a job that waits this long moves up a queue [s]; the paper gives no number.
            least_gain: part of its throughput that a job must gain to be moved; the paper gives
                no number.
            elastic: whether numbers of GPUs change; without, jobs get what they ask for.
            hetero: whether GPU types change; without, jobs stay on the type that they get first.
            remaining: weigh gains by the time that jobs are estimated to have left, up to an hour:
                what ends soon is not moved. Not in the paper.
        """
        if queues < 1 or depth < 0:
            raise UsageError("policy arena: queues has to be at least 1 and depth at least 0.")
        self.queues = queues
        self.depth = depth
        self.interval_s = interval_s
        self.promote_s = promote_s
        self.least_gain = least_gain
        self.elastic = elastic
        self.hetero = hetero
        self.remaining = remaining

    def level(self, job: Job, now: float) -> int:
        """The queue of a waiting job: 1 is the first."""
        waited = int(max(0.0, now - job.submit_time) // self.promote_s)
        return max(1, self.queues - max(0, min(job.priority, self.queues - 1)) - waited)

    def decide(self, view: View) -> Sequence[Decision]:
        cluster = view.space.cluster
        now = Allocations(dict(capacity_of(view)))
        for job in view.running:
            shape = shape_of(cluster, job.allocation)
            now.set(job, (shape.gpu_type, shape.gpus))
            if job.agent is None or job.agent.restoring_until > view.now:
                now.pinned.add(job)
        known: dict[Job, dict[Size, float]] = {}

        def options(job: Job) -> dict[Size, float]:
            if job not in known:
                known[job] = self._options(job, now.held.get(job), view)
            return known[job]

        def weight(job: Job) -> float:
            return self._weight(job, view.now)

        now = self._launch(view, options, now, weight)
        scale_up(options, now, self.depth, weight, self.least_gain)
        wishes = [Wish(job, self._shape(view, size)) for job, size in now.held.items()]
        placement = Placement(view, wishes)
        if any(job.allocation for job in placement.unplaced):
            view.warn("a round was skipped: a running job would have lost its GPUs")
            return []
        return decisions(view, placement.placed, list(now.held))

    def _launch(
        self, view: View, options: Options, now: Allocations, weight: Callable[[Job], float]
    ) -> Allocations:
        """Lines 6 to 9: by queue, then by submission; a blocked queue holds up those behind it."""
        waiting = sorted(
            view.pending, key=lambda job: (self.level(job, view.now), job.submit_time, job.index)
        )
        blocked = self.queues + 1
        for job in waiting:
            level = self.level(job, view.now)
            if level > blocked:
                break
            found = launch(job, options, now, self.depth if self.elastic else 0, weight)
            if found is None:
                blocked = min(blocked, level)
            else:
                now = found
        return now

    def _options(self, job: Job, held: Size | None, view: View) -> dict[Size, float]:
        """Throughput by size, over that of the size it asks for (or its best, where that fails)."""
        agent = job.agent
        if not isinstance(agent, PlannedAgent):
            view.warn("a job has no plans: it gets the GPUs that it asks for")
            return {(one.gpu_type, one.gpus): 1.0 for one in of_size(job, view.space.cluster)}
        speeds = {
            size: speed
            for size, speed in agent.speeds.items()
            if (self.elastic or size[1] == job.gpus)
            and (self.hetero or held is None or size[0] == held[0])
            and max(job.min_gpus, 1) <= size[1] <= max(job.max_gpus, job.gpus)
        }
        asked = [speed for size, speed in speeds.items() if size[1] == job.gpus]
        unit = max(asked or speeds.values(), default=1.0)
        return {size: speed / unit for size, speed in speeds.items()}

    def _weight(self, job: Job, now: float) -> float:
        if not self.remaining or job.forecast is None:
            return 1.0
        left = job.forecast.duration_s - job.attained_s(now)
        return max(0.05, min(1.0, left / 3600.0))

    def _shape(self, view: View, size: Size) -> Shape:
        """On as few nodes as can hold it: jobs are on GPUs of one type, side by side."""
        each = max(node.gpus for node in view.space.cluster.nodes if node.gpu_type == size[0])
        return Shape(size[0], -(-size[1] // each), size[1])
