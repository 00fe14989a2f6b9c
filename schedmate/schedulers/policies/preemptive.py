"""Policies that take GPUs back, and the one that does so for the shortest remaining time."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import partial
from typing import ClassVar

from schedmate.schedulers.decisions import Decision, Preempt, Start
from schedmate.schedulers.lanes import Rank
from schedmate.schedulers.model import Allocation, Job
from schedmate.schedulers.policies.room import Stopped, make_room
from schedmate.schedulers.policy import Policy
from schedmate.schedulers.remaining import predicted_s
from schedmate.schedulers.view import View


class Preemptive(Policy):
    """Run the jobs that rank first; jobs that rank after a waiting job may be stopped for it.

    Victims are taken from the last rank upwards, and only on the nodes that the job will get.
    `backfill`: a job that cannot be placed even so lets later ones pass, until these can be stopped
    for it. `quota`: jobs are chosen by the number of GPUs alone; one that then fits on no nodes
    waits, with its number reserved. Published simulators do so.
    """

    backfill: bool = True
    quota: bool = False
    steady = True

    def decide(self, view: View) -> Sequence[Decision]:
        if self.quota:
            return self._by_quota(view)
        space, now, backfill = view.space, view.now, self.backfill
        place = space.place
        if type(self).place is not Preemptive.place:
            place = partial(self.place, view)
        decisions: list[Decision] = []
        stopped = Stopped()
        # Jobs are offered by rank, so a later one has fewer victims: what could not be made room
        # for before an earlier one cannot be either.
        unmet: dict[Hashable, int] = {}

        def accept(job: Job) -> bool:
            group = (job.vc, job.gpu_type)
            least = unmet.get(group)
            if least is not None and (not backfill or (job.gpus >= least and not space.idle)):
                return False
            allocation = place(job)
            if allocation is None:
                if least is not None and job.gpus >= least:
                    return False
                bar = self.rank_if_running(job, now)
                victims, allocation, largest = make_room(view, job, bar, stopped)
                if allocation is None:
                    unmet[group] = min(job.gpus, largest + 1)
                    return False
                stopped.update(victims)
                decisions.extend(map(Preempt, victims))
                space.take(job, allocation)
            decisions.append(Start(job, allocation))
            return True

        view.pending.walk(accept)
        return decisions

    def lane(self, job: Job) -> Hashable:
        # The running are only ever walked from the last, so one lane a group keeps them sorted.
        return (job.vc, job.gpu_type) if job.allocation else super().lane(job)

    def place(self, view: View, job: Job) -> Allocation | None:
        """Find free GPUs for a job and book them; None: there are none."""
        return view.space.place(job)

    def rank_if_running(self, job: Job, now: float) -> Rank:
        """The rank that this waiting job would have among the running."""
        return self.rank(job, now)

    def _by_quota(self, view: View) -> Sequence[Decision]:
        """Let those run that rank first while the count of GPUs lasts, as far as they fit."""
        now, left = view.now, view.space.cluster.gpus
        running, stops, known = list(view.running), list[Decision](), 0

        def place(job: Job) -> tuple[Rank, int]:
            return (self.rank_if_running(job, now), job.index)

        def keep(bar: tuple[Rank, int] | None) -> None:
            """Keep the running jobs up to that rank, or stop them."""
            nonlocal known, left
            while known < len(running) and (bar is None or place(running[known]) < bar):
                job = running[known]
                known += 1
                if job.gpus <= left or not job.preemptible:
                    left -= job.gpus
                else:
                    stops.append(Preempt(job))
                    view.space.give(job, job.allocation)

        def accept(job: Job) -> bool:
            nonlocal left
            keep(place(job))
            if job.gpus > left:
                return False
            left -= job.gpus
            return True

        starts = view.pending.walk(accept)
        keep(None)
        decisions = stops
        for job, _ in starts:
            if allocation := self.place(view, job):
                decisions.append(Start(job, allocation))
        return decisions


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
