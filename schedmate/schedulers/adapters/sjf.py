"""SchedMate as a scheduler: shortest job first by the advisor's estimates, failed jobs restarted by
the handler (SchedMate paper, section 4.3)."""

from __future__ import annotations

from typing import Any, ClassVar

from schedmate.schedulers.adapters.modules import WithSchedMate
from schedmate.schedulers.lanes import Rank
from schedmate.schedulers.model import Job
from schedmate.schedulers.policies.preemptive import Srtf
from schedmate.schedulers.policies.queues import Qssf, Sjf
from schedmate.schedulers.remaining import remaining_s
from schedmate.schedulers.terms import NEVER


class SjfWithSchedMate(WithSchedMate, Sjf):
    """Shortest job first with SchedMate's estimates and restarts.

    `backfill` is on, because one large job mistaken for a short one otherwise blocks the cluster,
    and `risk` is 1: among jobs that cannot be stopped, the least expected time goes first. A job
    that resumes from a checkpoint counts with its remaining time.
    """

    name: ClassVar[str] = "sjf+schedmate"

    def __init__(self, backfill: bool = True, risk: float = 1.0, **settings: Any) -> None:
        super().__init__(backfill=backfill, risk=risk, **settings)

    def key(self, job: Job) -> float:
        return remaining_s(job, 0.0)


class QssfWithSchedMate(WithSchedMate, Qssf):
    """Least GPU time first with SchedMate: its estimates and its restarts."""

    name: ClassVar[str] = "qssf+schedmate"

    def __init__(self, backfill: bool = True, risk: float = 1.0, **settings: Any) -> None:
        super().__init__(backfill=backfill, risk=risk, **settings)

    def key(self, job: Job) -> float:
        return remaining_s(job, 0.0) * job.gpus


class SrtfWithSchedMate(WithSchedMate, Srtf):
    """Shortest remaining time first with SchedMate: doubles an estimate that a job outruns.

    Ours. A job that was estimated too short may be stopped.
    """

    name: ClassVar[str] = "srtf+schedmate"

    def rank(self, job: Job, now: float) -> Rank:
        # A running job's rank is when it would end, which does not move until then.
        return now + remaining_s(job, now) if job.allocation else remaining_s(job, now)

    def rank_if_running(self, job: Job, now: float) -> Rank:
        return now + remaining_s(job, now)

    def rank_until(self, job: Job, now: float) -> float:
        left_s = remaining_s(job, now)
        return now + left_s if left_s < NEVER else NEVER
