"""The Failure Handler in charge of restarts (SchedMate paper, sections 3.3 and 4.3).

A failed job leaves a log, as real text. The handler's verdict decides, right or wrong: a failure of
the infrastructure that it misses waits for the job's user, and a bug that it takes for one is
restarted in vain.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from schedmate.logparse.failure.handler import diagnose
from schedmate.logparse.reading import Log, LogFile
from schedmate.logparse.reading.storage import Memory
from schedmate.schedulers.sim.logs.endings import draw_ending
from schedmate.schedulers.sim.logs.writer import Stretch, choose
from schedmate.schedulers.sim.world.failures import JobFailures

if TYPE_CHECKING:
    from schedmate.schedulers.sim.workload import Workload
    from schedmate.schedulers.sim.world.failures import FailureRates
    from schedmate.schedulers.sim.world.faults import Again, Failure

HANDLING_S = 300.0
"""Test of the node and restart: an assumption; the diagnosis itself takes milliseconds [s]."""
MOST_RESTARTS = 1
"""Restarts of one job at about the same work, after which its user is told: who fails twice at
one point fails there again, whatever its log says."""


class HandledFailures(JobFailures):
    """The same failures, restarted by the handler where its plan says so.

    `recall` and `false_alarms` replace its verdict by dice: the share of infrastructure failures
    that it recognises, and of bugs that it takes for one.
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
        self._restarts: dict[int, tuple[int, float]] = {}
        self.counts = {"handled": 0, "missed": 0, "in_vain": 0, "left_to_user": 0}

    def after(self, failure: Failure) -> Again | None:
        """See `Faults.after`."""
        if failure.node is not None:
            return super().after(failure)
        bug, job = self.is_bug(failure), failure.job
        count, work = self._restarts.get(job, (0, -1.0))
        count = count if abs(work - failure.done) <= 0.01 * failure.done + 60 else 0
        if count < MOST_RESTARTS and self.says_restart(failure):
            self.counts["in_vain" if bug else "handled"] += 1
            self._restarts[job] = (count + 1, failure.done)
            return self.restart(failure, self._handling_s)
        self.counts["left_to_user" if bug else "missed"] += 1
        return self.by_user(failure)

    def says_restart(self, failure: Failure) -> bool:
        """The verdict on the log that this failure leaves."""
        bug = self.is_bug(failure)
        said = self._dice[bug]
        seed = f"{self.seed}/{failure.job}/{failure.attempt}"
        if said is not None:
            return random.Random(seed).random() < said  # noqa: S311 - an experiment
        # One bug fails in the same way each time.
        ending = draw_ending(not bug, f"{self.seed}/{failure.job}/bug" if bug else seed)
        log = choose(f"{self.seed}/{failure.job}", self._workload.duration_s[failure.job])
        step = int(failure.done / log.step_s)
        began = failure.time - step * log.step_s
        text = log.head(began) + log.lines(Stretch(began, max(1, step - 5000), step, log.step_s))
        text += ending.write(seed, step)
        verdict = diagnose(Log("job", [LogFile("job.out", Memory(text.encode()))]))
        return verdict.plan is not None and verdict.plan.restart != "no"
