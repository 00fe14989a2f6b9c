"""Sia with SchedMate: a job starts with the throughput models of similar past jobs (SchedMate
paper, section 4.2, "pre-profiling-free bootstrapping").

Only jobs without a match are profiled; afterwards all jobs measure their throughput.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, ClassVar

from schedmate.errors import UsageError
from schedmate.schedulers.adapters.advisor import Advisor
from schedmate.schedulers.adapters.modules import WithSchedMate
from schedmate.schedulers.model import Job
from schedmate.schedulers.policies.sia import Sia
from schedmate.schedulers.sim.equipment import Equipment, World

if TYPE_CHECKING:
    from schedmate.jobs import Estimate
    from schedmate.schedulers.goodput import Agent


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
            self._matched[job.index] = tuple(one.job_id for one in estimate.neighbours)

    def submitted(self, job: Job) -> None:
        """It begins with the models of its neighbours, the nearest first."""
        neighbours = self._matched.pop(job.index, ())
        agents = [self._models[one] for one in neighbours if one in self._models]
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
