"""Algorithm 1 of Arena: launch by priority queues, scale down to launch, scale up when idle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from schedmate.errors import UsageError, did_you_mean
from schedmate.schedulers.decisions import Decision, Drop
from schedmate.schedulers.goodput.agent import Shape
from schedmate.schedulers.goodput.planned import PlannedAgent, Size
from schedmate.schedulers.model import Job
from schedmate.schedulers.policies.arena.objectives import NEVER, OBJECTIVES, Prospect
from schedmate.schedulers.policies.arena.scaling import Allocations, Scaling
from schedmate.schedulers.policies.sia.configurations import of_size, shape_of
from schedmate.schedulers.policies.sia.placement import Wish, capacity_of, decisions, settled
from schedmate.schedulers.policy import Policy
from schedmate.schedulers.remaining import predicted_s, remaining_s
from schedmate.schedulers.view import View


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
        for job in view.running:
            shape = shape_of(cluster, job.allocation)
            now.set(job, (shape.gpu_type, shape.gpus))
            if job.agent is None or job.agent.restoring_until > view.now or not job.migratable:
                now.pinned.add(job)
        known: dict[Job, Prospect] = {}

        def prospect(job: Job) -> Prospect:
            if job not in known:
                found = self._prospect(job, view)
                known[job] = replace(found, speeds=objective.sizes(found))
            return known[job]

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
        return [*lost, *decisions(view, settled(view, wishes), list(now.held))]

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
        held, now = None, view.now
        if job.allocation:
            shape = shape_of(view.space.cluster, job.allocation)
            held = (shape.gpu_type, shape.gpus)
        deadline_s = NEVER if job.terms is None else job.terms.deadline - now
        age_s = now - job.submit_time
        agent = job.agent
        if not isinstance(agent, PlannedAgent):
            view.warn("a job has no plans and gets the requested GPUs")
            sizes = {(one.gpu_type, one.gpus): 1.0 for one in of_size(job, view.space.cluster)}
            left_s, total_s = remaining_s(job, now), predicted_s(job)
            return Prospect(sizes, held, left_s, total_s, age_s, deadline_s=deadline_s)
        speeds = {
            size: speed
            for size, speed in agent.speeds.items()
            if (self.elastic or size[1] == job.gpus)
            and job.gpu_type in ("", size[0])
            and (self.hetero or held is None or size[0] == held[0])
            and max(job.min_gpus, 1) <= size[1] <= max(job.max_gpus, job.gpus)
        }
        asked = [speed for size, speed in speeds.items() if size[1] == job.gpus]
        unit = max(asked or speeds.values(), default=1.0)
        left, total = agent.left(now), agent.samples
        began = job.allocation or job.service_s > 0
        return Prospect(
            {size: speed / unit for size, speed in speeds.items()},
            held,
            remaining_s(job, now) if left is None else left / unit,
            predicted_s(job) if total is None else total / unit,
            age_s,
            agent.restart_s if began else agent.launch_s,
            max(0.0, agent.restoring_until - now),
            deadline_s,
        )

    def _shape(self, view: View, size: Size) -> Shape:
        """On as few nodes as can hold it: jobs are on GPUs of one type, side by side."""
        each = max(node.gpus for node in view.space.cluster.nodes if node.gpu_type == size[0])
        return Shape(size[0], -(-size[1] // each), size[1])
