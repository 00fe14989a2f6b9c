"""Policies that take GPUs back: the shortest remaining time first, and Tiresias."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from heapq import merge
from itertools import islice
from typing import ClassVar

from schedmate.schedulers.lanes import Rank
from schedmate.schedulers.model import Allocation, Job
from schedmate.schedulers.policies.queues import predicted_s
from schedmate.schedulers.policy import NEVER, Decision, Policy, Preempt, Start, View
from schedmate.schedulers.pools import lowest


class _Stopped(set[Job]):
    """The running jobs that a decision has stopped so far."""

    def __init__(self) -> None:
        super().__init__()
        self.first: dict[Hashable, int] = {}
        """Of each group, how many from the last on need not be looked at again."""


class Preemptive(Policy):
    """Run the jobs that rank first; whoever ranks after a waiting job may have to make room.

    Victims are taken from the last rank upwards, and only those on the nodes the job will get.
    `backfill`: a job that cannot be placed even so lets later ones pass, until they make room.
    `quota`: who may run is decided by the count of GPUs alone; a job that then fits on no nodes
    waits, its count reserved. So do published simulators.
    """

    backfill: bool = True
    quota: bool = False
    steady = True

    def decide(self, view: View) -> Sequence[Decision]:
        if self.quota:
            return self._by_quota(view)
        space = view.space
        decisions: list[Decision] = []
        stopped = _Stopped()
        # Jobs are offered by rank, so a later one has fewer victims: what could not be made room
        # for before an earlier one cannot be either.
        unmet: dict[Hashable, int] = {}

        def accept(job: Job) -> bool:
            group = (job.vc, job.gpu_type)
            if group in unmet and not self.backfill:
                return False
            allocation = space.place(job)
            if allocation is None:
                if job.gpus >= unmet.get(group, job.gpus + 1):
                    return False
                victims, allocation, room = self._room(view, job, stopped)
                if allocation is None:
                    unmet[group] = min(job.gpus, room + 1)
                    return False
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

    def _room(
        self, view: View, job: Job, stopped: _Stopped
    ) -> tuple[list[Job], Allocation | None, int]:
        """The last-ranking jobs whose GPUs, released, let `job` in, and where; released here.

        Without any, the most GPUs that a node could give.
        """
        space, free = view.space, view.space.free
        one_node = job.gpus <= space.largest and job.share == 1.0
        one_node = one_node and not job.cpus and not job.memory_mb
        left = min(job.gpus, space.largest)
        missing = 1 if one_node else job.gpus // left - space.whole(job)
        gpus, bar = space.idle, self.rank_if_running(job, view.now)
        counts: dict[int, int] = {}  # free GPUs of a node, were those so far released
        group = (job.vc, job.gpu_type)
        first = walked = stopped.first.get(group, 0)
        for victim in islice(view.running.after(bar, group), first, None):
            walked += 1
            if not victim.preemptible or victim in stopped:
                if walked == first + 1:
                    first = stopped.first[group] = walked
                continue
            enough = -1
            for node, mask in victim.allocation:
                released = mask.bit_count()
                gpus += released
                before = counts.get(node)
                if before is None:
                    before = free[node].bit_count()
                count = counts[node] = before + released
                if before < left <= count:
                    enough = node
                    missing -= 1
            if enough < 0 or missing > 0 or gpus < job.gpus:
                continue
            victims = (
                [victim]
                if walked == first + 1
                else [
                    one
                    for one in islice(view.running.after(bar, group), first, walked)
                    if one.preemptible and one not in stopped
                ]
            )
            if one_node and all(one.share == 1.0 for one in victims):
                # No other node has enough, or it would have been found before.
                mask = free[enough]
                for one in victims:
                    mask |= dict(one.allocation).get(enough, 0)
                return self._release(view, victims, ((enough, lowest(mask, left)),))
            if found := self._try(view, job, victims):
                return self._release(view, victims, found)
        if not one_node:
            return [], None, job.gpus
        return [], None, max(space.freest(job), max(counts.values(), default=0))

    def _by_quota(self, view: View) -> Sequence[Decision]:
        """Let those run that rank first while the count of GPUs lasts, as far as they fit."""
        now, left = view.now, view.space.cluster.gpus
        starts: list[Job] = []
        stops: list[Decision] = []

        def place(job: Job) -> tuple[Rank, int]:
            return (self.rank_if_running(job, now), job.index)

        for job in merge(view.running, view.pending, key=place):
            if job.gpus <= left or not (job.preemptible or not job.allocation):
                left -= job.gpus
                if not job.allocation:
                    starts.append(job)
            elif job.allocation:
                stops.append(Preempt(job))
                view.space.give(job, job.allocation)
        decisions = stops
        for job in starts:
            if allocation := view.space.find(job):
                view.space.take(job, allocation)
                decisions.append(Start(job, allocation))
        return decisions

    def _try(self, view: View, job: Job, victims: list[Job]) -> Allocation | None:
        """Where the job would go, were all of these released."""
        space = view.space
        mark = space.mark()
        for victim in victims:
            space.give(victim, victim.allocation)
        allocation = space.find(job)
        space.return_to(mark)
        return allocation

    def _release(
        self, view: View, victims: list[Job], allocation: Allocation
    ) -> tuple[list[Job], Allocation, int]:
        """Release those of the victims that are in the way."""
        wanted = dict(allocation)
        needed = [
            victim
            for victim in victims
            if any(wanted.get(node, 0) & mask for node, mask in victim.allocation)
        ]
        for victim in needed:
            view.space.give(victim, victim.allocation)
        return needed, allocation, 0


class Srtf(Preemptive):
    """Shortest remaining time first: the estimate less the time it has run."""

    name: ClassVar[str] = "srtf"

    def __init__(self, backfill: bool = True, quota: bool = False) -> None:
        self.backfill = backfill
        self.quota = quota

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
        self,
        threshold_gpu_s: float = 18_000.0,
        interval_s: float = 0.0,
        backfill: bool = True,
        quota: bool = False,
    ) -> None:
        self.backfill = backfill
        self.quota = quota
        self.threshold_gpu_s = threshold_gpu_s
        self.interval_s = interval_s or None

    def rank(self, job: Job, now: float) -> Rank:
        attained = job.attained_s(now) * job.gpus
        # Woken at the threshold, rounding may leave the service a hair below it.
        return (float(attained >= self.threshold_gpu_s * (1 - 1e-9)), job.submit_time)

    def rank_until(self, job: Job, now: float) -> float:
        left = self.threshold_gpu_s - job.attained_s(now) * job.gpus
        return now + left / job.gpus if left > self.threshold_gpu_s * 1e-9 else NEVER
