"""The bundled policies with SchedMate's modules: Lucid, Sia, SJF, QSSF, SRTF and SpotGPU.

Lucid does without profiles of known jobs, gets better durations, and undoes harmful packings
(SchedMate paper, section 4.1).
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

from schedmate.base.errors import UsageError
from schedmate.logparse.progress.ratio import THRESHOLD
from schedmate.schedulers.adapters.modules import Advisor, WithSchedMate
from schedmate.schedulers.estimators import predicted_s, remaining_s
from schedmate.schedulers.lanes import Rank
from schedmate.schedulers.model import NEVER, Job, Profile
from schedmate.schedulers.policies.lucid import Bound, Lucid, has_room, newcomer
from schedmate.schedulers.policies.preemptive import Srtf
from schedmate.schedulers.policies.queues import Qssf, Sjf
from schedmate.schedulers.policies.sia import Sia
from schedmate.schedulers.policies.spot import Spot
from schedmate.schedulers.policy import Decision, Evict, Start, View
from schedmate.schedulers.sim.world import Equipment, World

if TYPE_CHECKING:
    from schedmate.jobs import Estimate
    from schedmate.schedulers.goodput import Agent


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
            for candidate in islice(lane, LOOKED_AT):
                theirs = candidate.profile
                if (
                    candidate.index in bound
                    or candidate.evictions
                    or candidate.profiling
                    or theirs is None
                ):
                    continue
                left_s = remaining_s(candidate, now)
                if left_s < needed or not has_room(use, theirs, self.rules):
                    continue
                if best is None or (theirs.gpu_util, -left_s) < best[:2]:
                    best = (theirs.gpu_util, -left_s, candidate)
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


# Sia with SchedMate: a job starts with the throughput models of similar past jobs (SchedMate
# paper, section 4.2, "pre-profiling-free bootstrapping").
#
# Only jobs without a match are profiled; afterwards all jobs measure their throughput.


class Bootstrap(Advisor):
    """The Scheduling Advisor, whose neighbours pass on their performance models.

    Only jobs that have ended are neighbours. The outcome of a match counts: a wrong one misleads
    the scheduler until the job has measured its own throughput.
    """

    match_rate = 1.0
    """Share of jobs that may be matched, for a curve."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.counts["bootstrapped"] = 0
        self._models: dict[str, Agent] = {}  # of jobs that have ended
        self._matched: dict[int, tuple[str, ...]] = {}

    def matched(self, job: Job, estimate: Estimate) -> None:
        """Remember the neighbours until the job is there."""
        draw = random.Random(f"match/{self.seed}/{job.id}")  # noqa: S311 - an experiment
        if not job.profiled and draw.random() < self.match_rate:
            self._matched[job.index] = tuple(neighbour.job_id for neighbour in estimate.neighbours)

    def submitted(self, job: Job) -> None:
        """The job's agent begins with the models of its neighbours, the nearest first."""
        neighbours = self._matched.pop(job.index, ())
        agents = [self._models[neighbour] for neighbour in neighbours if neighbour in self._models]
        if job.agent is None or not agents:
            return
        for agent in agents:
            job.agent.adopt(agent)
        self.counts["bootstrapped"] += 1

    def ended(self, job: Job) -> None:
        """From now on its models can be handed on."""
        if job.agent is not None and job.agent.models:
            self._models[job.id] = job.agent


class SiaWithSchedMate(WithSchedMate, Sia):
    """Sia with SchedMate: profiles only the jobs that are like no past one.

    Args:
        match_rate: share of jobs that may be matched, for a curve.
    """

    name: ClassVar[str] = "sia+schedmate"
    advisor_type = Bootstrap

    def __init__(self, match_rate: float = 1.0, tracker: bool = False, **settings: Any) -> None:
        super().__init__(tracker=tracker, **settings)
        if not 0 <= match_rate <= 1:
            raise UsageError(f"match_rate={match_rate} is not a share from 0 to 1.")
        self.match_rate = match_rate

    def equip(self, world: World) -> Equipment:
        """See `Equipped`."""
        parts = super().equip(world)
        if isinstance(parts.estimator, Bootstrap):
            parts.estimator.match_rate = self.match_rate
        return parts


# SchedMate as a scheduler: shortest job first by the advisor's estimates, failed jobs restarted by
# the handler (SchedMate paper, section 4.3).


class SjfWithSchedMate(WithSchedMate, Sjf):
    """Shortest job first with SchedMate's estimates and restarts.

    `backfill` is on, because one large job mistaken for a short one otherwise blocks the cluster,
    and `risk` is 1: among jobs that cannot be stopped, the least expected time goes first. A job
    that resumes from a checkpoint counts with its remaining time.
    """

    name: ClassVar[str] = "sjf+schedmate"

    def __init__(self, backfill: bool = True, risk: float = 1.0, **settings: Any) -> None:
        super().__init__(backfill=backfill, risk=risk, **settings)

    def rank(self, job: Job, now: float) -> Rank:
        return (-job.priority, remaining_s(job, now))


class QssfWithSchedMate(WithSchedMate, Qssf):
    """Least GPU time first with SchedMate: its estimates and its restarts."""

    name: ClassVar[str] = "qssf+schedmate"

    def __init__(self, backfill: bool = True, risk: float = 1.0, **settings: Any) -> None:
        super().__init__(backfill=backfill, risk=risk, **settings)

    def rank(self, job: Job, now: float) -> Rank:
        return (-job.priority, remaining_s(job, now) * job.gpus)


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


# SpotGPU with SchedMate: what jobs have left to do decides what the published rules cannot.


class SpotWithSchedMate(WithSchedMate, Spot):
    """SpotGPU with SchedMate: remaining times decide evictions, windows and the order of spot jobs.

    Ours: see `policies/spot.py`.
    """

    name: ClassVar[str] = "spot+schedmate"

    def __init__(
        self,
        victims: str = "remaining",
        windows: str = "worth",
        shortest: bool = True,
        **settings: Any,
    ) -> None:
        super().__init__(victims=victims, windows=windows, shortest=shortest, **settings)
