"""Lucid with SchedMate: no profiling of what is known, better durations, and packings undone that
slow a job down (SchedMate paper, section 4.1)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, ClassVar

from schedmate.logparse.progress.ratio import THRESHOLD
from schedmate.schedulers.adapters.modules import WithSchedMate
from schedmate.schedulers.model import Job, Profile
from schedmate.schedulers.policies.lucid import Lucid
from schedmate.schedulers.policy import Decision, Evict, View

SLOWED = "slowed"
"""The lane of running jobs whose partner is to leave."""


class LucidWithSchedMate(WithSchedMate, Lucid):
    """Lucid with SchedMate: fewer profiling runs, other estimates, packings that are undone.

    Args:
        bypass: jobs with a match are not profiled; what their neighbours used is believed.
        max_slowdown: loss of speed of the job that was there first from which the other is evicted,
            never to be packed again; 0.35 in simulation, 0.5 on the paper's cluster, 1: never.
    """

    name: ClassVar[str] = "lucid+schedmate"

    def __init__(
        self, bypass: bool = True, max_slowdown: float = THRESHOLD, **settings: Any
    ) -> None:
        super().__init__(**settings)
        self.bypass = bypass
        self.max_slowdown = max_slowdown

    def decide(self, view: View) -> Sequence[Decision]:
        evicted = [Evict(_newcomer(job)) for job in view.running.lane(SLOWED)]
        # The tracker has the policy asked again once they are gone.
        return evicted or super().decide(view)

    def lane(self, job: Job) -> Hashable:
        if job.allocation:
            return SLOWED if self._is_slowed(job) else super().lane(job)
        lane = super().lane(job)
        # An evicted job is never packed again: what does not fit for it may fit for others.
        return (*lane, "evicted") if job.evictions and isinstance(lane, tuple) else lane

    def use_of(self, job: Job) -> Profile | None:
        if job.profile is not None or not self.bypass:
            return job.profile
        forecast = job.forecast
        if forecast is None or forecast.gpu_util is None:
            return None
        return Profile(forecast.gpu_util, 0.0, forecast.gpu_mem_mb or self.gpu_memory_mb)

    def _unprofiled(self, job: Job) -> bool:
        return super()._unprofiled(job) and self.use_of(job) is None

    def _is_slowed(self, job: Job) -> bool:
        return (
            job.partner is not None
            and job.slowdown is not None
            and job.slowdown <= 1.0 - self.max_slowdown
        )


def _newcomer(job: Job) -> Job:
    """Of the pair, the one that joined the other."""
    assert job.partner is not None
    return max(job, job.partner, key=lambda one: (one.started, one.index))
