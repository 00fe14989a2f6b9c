"""Policies that take GPUs back: the shortest remaining time first, and Tiresias."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import ClassVar

from schedmate.schedulers.lanes import Rank
from schedmate.schedulers.model import Allocation, Job
from schedmate.schedulers.policies.queues import predicted_s
from schedmate.schedulers.policy import NEVER, Decision, Policy, Preempt, Start, View


class Preemptive(Policy):
    """Run the jobs that rank first; whoever ranks after a waiting job may have to make room.

    Victims are taken from the last rank upwards, and only those on the nodes the job will get.
    `backfill`: a job that cannot be placed even so lets later ones pass, until they make room.
    """

    backfill: bool = True

    def decide(self, view: View) -> Sequence[Decision]:
        space = view.space
        decisions: list[Decision] = []
        stopped: set[Job] = set()
        # Jobs are offered by rank, so a later one has fewer victims: where the demand of an
        # earlier one could not be met, the same or a larger one cannot be met either.
        unmet: dict[Hashable, int] = {}

        def accept(job: Job) -> bool:
            group = (job.vc, job.gpu_type)
            if group in unmet and not self.backfill:
                return False
            allocation = space.find(job)
            if allocation is None:
                if job.gpus >= unmet.get(group, job.gpus + 1):
                    return False
                found = self._room(view, job, stopped)
                if found is None:
                    unmet[group] = job.gpus
                    return False
                victims, allocation = found
                stopped.update(victims)
                decisions.extend(Preempt(victim) for victim in victims)
            space.take(job, allocation)
            decisions.append(Start(job, allocation))
            return True

        view.pending.walk(accept)
        return decisions

    def lane(self, job: Job) -> Hashable:
        # The running are only ever walked from the last, so one lane a group keeps them sorted.
        return (job.vc, job.gpu_type) if job.allocation else super().lane(job)

    def rank_if_running(self, job: Job, now: float) -> Rank:
        """The rank that this waiting job would have among the running."""
        return self.rank(job, now)

    def _room(self, view: View, job: Job, stopped: set[Job]) -> tuple[list[Job], Allocation] | None:
        """The last-ranking jobs whose GPUs, released, let `job` in, and where; released here."""
        space, free = view.space, view.space.free
        victims: list[Job] = []
        freed: dict[int, int] = {}
        gpus, left = space.idle, min(job.gpus, space.largest)
        bar = self.rank_if_running(job, view.now)
        for victim in view.running.after(bar, (job.vc, job.gpu_type)):
            if victim in stopped or not victim.preemptible:
                continue
            victims.append(victim)
            enough = False
            for node, mask in victim.allocation:
                gpus += mask.bit_count()
                freed[node] = mask | freed.get(node, free[node])
                enough = enough or freed[node].bit_count() >= left
            if enough and gpus >= job.gpus and (found := self._release(view, job, victims)):
                return found
        return None

    def _release(
        self, view: View, job: Job, victims: list[Job]
    ) -> tuple[list[Job], Allocation] | None:
        space = view.space
        mark = space.mark()
        for victim in victims:
            space.give(victim, victim.allocation)
        allocation = space.find(job)
        space.return_to(mark)
        if allocation is None:
            return None
        wanted = dict(allocation)
        needed = [
            victim
            for victim in victims
            if any(wanted.get(node, 0) & mask for node, mask in victim.allocation)
        ]
        for victim in needed:
            space.give(victim, victim.allocation)
        return needed, allocation


class Srtf(Preemptive):
    """Shortest remaining time first: the estimate less the time it has run."""

    name: ClassVar[str] = "srtf"

    def __init__(self, backfill: bool = True) -> None:
        self.backfill = backfill

    def rank(self, job: Job, now: float) -> Rank:
        # A running job's rank is when it would end, which does not move while it runs.
        remaining = max(predicted_s(job) - job.attained_s(now), 0.0)
        return now + remaining if job.allocation else remaining

    def rank_if_running(self, job: Job, now: float) -> Rank:
        return now + max(predicted_s(job) - job.attained_s(now), 0.0)


class Tiresias(Preemptive):
    """Two-dimensional least attained service in two queues (Tiresias, NSDI'19, section 3.3).

    A job whose GPUs x time pass `threshold_gpu_s` goes down to the second queue for good; inside a
    queue the first submitted goes first. The default threshold, 5 GPU hours, is the one with which
    Lucid's authors compare.
    """

    name: ClassVar[str] = "tiresias"

    def __init__(
        self, threshold_gpu_s: float = 18_000.0, interval_s: float = 0.0, backfill: bool = True
    ) -> None:
        self.backfill = backfill
        self.threshold_gpu_s = threshold_gpu_s
        self.interval_s = interval_s or None

    def rank(self, job: Job, now: float) -> Rank:
        attained = job.attained_s(now) * job.gpus
        # Woken at the threshold, rounding may leave the service a hair below it.
        return (float(attained >= self.threshold_gpu_s * (1 - 1e-9)), job.submit_time)

    def rank_until(self, job: Job, now: float) -> float:
        left = self.threshold_gpu_s - job.attained_s(now) * job.gpus
        return now + left / job.gpus if left > self.threshold_gpu_s * 1e-9 else NEVER
