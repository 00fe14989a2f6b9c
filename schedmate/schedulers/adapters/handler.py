"""The Failure Handler in charge of restarts (SchedMate paper, sections 3.3 and 4.3).

A failed job leaves a log, as real text. The handler's verdict decides, right or wrong: a failure of
the infrastructure that it misses waits for the job's user, and a bug that it mistakes for one is
restarted for nothing.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from schedmate.logparse.failure.handler import diagnose
from schedmate.logparse.reading import Log
from schedmate.schedulers.adapters.simulated import log_of_failure
from schedmate.schedulers.adapters.sources import FailureLogs
from schedmate.schedulers.sim.world.failures import JobFailures

if TYPE_CHECKING:
    from schedmate.schedulers.sim.workload import Workload
    from schedmate.schedulers.sim.world.failures import FailureRates
    from schedmate.schedulers.sim.world.faults import Again, Failure

HANDLING_S = 300.0
"""Test of the node and restart: an assumption; the diagnosis itself takes milliseconds [s]."""
MOST_RESTARTS = 1
"""Restarts of one job at about the same progress after which its user is notified: a job that fails
twice at one point will fail there again, whatever its log says."""


class Restarts:
    """Decides by their logs whether failed jobs are restarted unchanged."""

    def __init__(self, logs: FailureLogs) -> None:
        self._logs = logs
        self._restarts: dict[str, tuple[int, float]] = {}

    def says(self, job: str, attempt: int) -> bool:
        """The verdict on the log of this attempt, counted from 0; none: no."""
        log = self._logs.of_failure(job, attempt)
        if log is None:
            return False
        with log:
            plan = diagnose(log).plan
        return plan is not None and plan.restart != "no"

    def may(self, job: str, done: float) -> bool:
        """Whether a job that failed after this much work may be restarted [s]."""
        return self._count(job, done) < MOST_RESTARTS

    def restarted(self, job: str, done: float) -> None:
        """It is."""
        self._restarts[job] = (self._count(job, done) + 1, done)

    def _count(self, job: str, done: float) -> int:
        count, work = self._restarts.get(job, (0, -1.0))
        return count if abs(work - done) <= 0.01 * done + 60 else 0


class HandledFailures(JobFailures):
    """The same failures, restarted by the handler if its plan is a restart.

    `recall` and `false_alarms` replace its verdict by random draws: the share of infrastructure
    failures that it recognises, and of bugs that it mistakes for one.
    """

    def __init__(
        self,
        workload: Workload,
        rates: FailureRates,
        seed: int = 0,
        *,
        handling_s: float = HANDLING_S,
        recall: float | None = None,
        false_alarms: float | None = None,
    ) -> None:
        super().__init__(workload, rates, seed)
        self._handling_s = handling_s
        self._dice = (recall, false_alarms)
        self._failure: Failure | None = None
        self._restarts = Restarts(self)
        self.counts = {"handled": 0, "missed": 0, "in_vain": 0, "left_to_user": 0}

    def after(self, failure: Failure) -> Again | None:
        """See `Faults.after`."""
        if failure.node is not None:
            return super().after(failure)
        bug, name = self.is_bug(failure), self._workload.jobs[failure.job].id
        if self._restarts.may(name, failure.done) and self.says_restart(failure):
            self.counts["in_vain" if bug else "handled"] += 1
            self._restarts.restarted(name, failure.done)
            return self.restart(failure, self._handling_s)
        self.counts["left_to_user" if bug else "missed"] += 1
        return self.by_user(failure)

    def says_restart(self, failure: Failure) -> bool:
        """Whether the verdict on this failure's log is to restart the job."""
        said = self._dice[self.is_bug(failure)]
        if said is not None:
            seed = f"{self.seed}/{failure.job}/{failure.attempt}"
            return random.Random(seed).random() < said  # noqa: S311 - an experiment
        self._failure = failure
        return self._restarts.says(self._workload.jobs[failure.job].id, failure.attempt)

    def of_failure(self, job: str, attempt: int) -> Log | None:
        """See `FailureLogs`: the logs of the failure that is being handled."""
        failure = self._failure
        if failure is None:
            return None
        return log_of_failure(self._workload, failure, self.seed, bug=self.is_bug(failure))
