"""Lucid with SchedMate: no profiling of known jobs, better durations, and harmful packings undone
(SchedMate paper, section 4.1)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import islice
from typing import Any, ClassVar

from schedmate.logparse.progress.ratio import THRESHOLD
from schedmate.schedulers.adapters.modules import WithSchedMate
from schedmate.schedulers.decisions import Decision, Evict, Start
from schedmate.schedulers.model import Job, Profile
from schedmate.schedulers.policies.lucid.binder import Bound, has_room
from schedmate.schedulers.policies.lucid.policy import Lucid, newcomer
from schedmate.schedulers.remaining import predicted_s, remaining_s
from schedmate.schedulers.view import View

SLOWED = "slowed"
"""Lane of running jobs whose partner is to be evicted."""

LOOKED_AT = 64
"""Partners of one score that are compared; the ones with most to do come first."""


class LucidWithSchedMate(WithSchedMate, Lucid):
    """Lucid with SchedMate: fewer profiling runs, other estimates, packings that are undone.

    Args:
        bypass: jobs with a match are not profiled; the use of their neighbours is assumed.
        max_slowdown: loss of speed of the first job of a pair above which the other is evicted,
            never to be packed again; 0.35 in simulation, 0.5 on the paper's cluster, 1: never.
        spread: share GPUs only if none are free, and evict a newcomer only if it gets other GPUs at
            once or its pair is slower than one job alone (ours; Lucid shares first).
        affine: join the partner with the lowest GPU utilisation whose remaining time, by its
            estimate and its time so far, is long enough (ours; Lucid takes the longest whose score
            fits).
    """

    name: ClassVar[str] = "lucid+schedmate"

    def __init__(
        self,
        bypass: bool = True,
        max_slowdown: float = THRESHOLD,
        spread: bool = False,
        affine: bool = False,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self.bypass = bypass
        self.max_slowdown = max_slowdown
        self.spread = spread
        self.affine = affine

    def decide(self, view: View) -> Sequence[Decision]:
        evicted = [
            Evict(newcomer(job)) for job in view.running.lane(SLOWED) if self._gains(view, job)
        ]
        # The tracker makes the policy decide again once they are gone.
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

    def is_unprofiled(self, job: Job) -> bool:
        return super().is_unprofiled(job) and self.use_of(job) is None

    def start(self, view: View, job: Job, bound: Bound) -> list[Decision]:
        if self.spread and (allocation := view.space.place(job)):
            return [Start(job, allocation)]
        return super().start(view, job, bound)

    def find_partner(
        self, view: View, job: Job, use: Profile, capacity: int, bound: Bound
    ) -> Job | None:
        if not self.affine:
            return super().find_partner(view, job, use, capacity, bound)
        needed, now = predicted_s(job) / self.patience, view.now
        best: tuple[float, float, Job] | None = None
        for score in range(capacity - self.scorer.score(use) + 1):
            lane = view.running.lane((job.vc, job.gpu_type, job.gpus, score))
            for other in islice(lane, LOOKED_AT):
                theirs = other.profile
                if other.index in bound or other.evictions or other.profiling or theirs is None:
                    continue
                left_s = remaining_s(other, now)
                if left_s < needed or not has_room(use, theirs, self.rules):
                    continue
                if best is None or (theirs.gpu_util, -left_s) < best[:2]:
                    best = (theirs.gpu_util, -left_s, other)
        return None if best is None else best[2]

    def _gains(self, view: View, job: Job) -> bool:
        """Whether it is worth taking the newcomer off these GPUs."""
        assert job.slowdown is not None
        # Both together do twice what the one that was measured does.
        return not self.spread or 2 * job.slowdown < 1 or view.space.find(job) is not None

    def _is_slowed(self, job: Job) -> bool:
        return (
            job.partner is not None
            and job.slowdown is not None
            and job.slowdown <= 1.0 - self.max_slowdown
        )
