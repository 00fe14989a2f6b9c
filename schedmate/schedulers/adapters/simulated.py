"""The logs of simulated jobs as a `LogSource`, written on demand."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from schedmate.logparse.progress.ratio import WARM_UP
from schedmate.logparse.progress.tracker import track
from schedmate.logparse.reading import Log, LogFile
from schedmate.logparse.reading.storage import Memory
from schedmate.schedulers.model import Job
from schedmate.schedulers.sim.logs.endings import draw_ending
from schedmate.schedulers.sim.logs.writer import JobLog, Stretch, choose
from schedmate.schedulers.sim.observer import Observer

if TYPE_CHECKING:
    from schedmate.jobs import Progress
    from schedmate.schedulers.sim.workload import Workload
    from schedmate.schedulers.sim.world.faults import Failure

RUNS_DIFFER = 0.1
"""Standard deviation of the logarithm of step times between runs of a workload, on other nodes and
with other users of their storage: an assumption."""


@dataclass
class SimulatedWindow:
    """Part of a job's log, after the parts before it."""

    log: JobLog
    stretch: Stretch
    before: SimulatedWindow | None = None

    @cached_property
    def text(self) -> str:
        """The whole log so far."""
        head = self.log.head(self.stretch.start) if self.before is None else self.before.text
        return head + self.log.lines(self.stretch)

    def progress(self) -> Progress:
        """The real Metric Tracker's reading of it."""
        since = 0 if self.before is None else len(self.before.text.encode())
        return track(LogFile("job.out", Memory(self.text.encode())), since=since)


class SimulatedLogs(Observer):
    """A `LogSource` of a simulation: what each job has written follows from its progress."""

    def __init__(self, workload: Workload, seed: int = 0) -> None:
        """
        Args:
            workload: whose jobs write logs; those of one workload in one format.
            seed: of the logs.
        """
        self._workload = workload
        self._seed = seed
        self._logs: dict[int, JobLog] = {}
        self._marks: dict[int, tuple[float, int, SimulatedWindow | None]] = {}

    def kind_of(self, job: Job) -> str:
        """The workload of a job, if its metadata states it; else the job itself."""
        metadata = self._workload.metadata_of(job)
        return job.id if metadata is None else metadata.fingerprint()

    def mark(self, job: Job) -> None:
        """See `LogSource`; there is nothing before to compare a single job with."""
        before = None if job.partner is None else self.window(job)
        self._marks[job.index] = (self.watch.now, self._step(job), before)

    def window(self, job: Job) -> SimulatedWindow:
        """See `LogSource`."""
        log, step = self._log(job), self._step(job)
        at, first, before = self._marks[job.index]
        if before is None:
            began = self.watch.now - (step - first) * log.step_s
            return SimulatedWindow(log, Stretch(began, first + 1, step, log.step_s, fresh=True))
        step_s = (self.watch.now - at) / max(step - first, 1)
        return SimulatedWindow(log, Stretch(at, first + 1, step, step_s), before)

    def alone(self, job: Job) -> SimulatedWindow | None:
        """See `LogSource`."""
        found = self.window(job)
        return found if found.stretch.last - found.stretch.first >= WARM_UP else None

    def _log(self, job: Job) -> JobLog:
        index = job.index
        if index not in self._logs:
            seed, kind = f"{self._seed}/{job.id}", self.kind_of(job)
            log = choose(f"{self._seed}/{kind}", self._workload.duration_s[index])
            if kind != job.id:
                draw = random.Random(seed)  # noqa: S311 - an experiment
                step_s = log.step_s * math.exp(draw.gauss(0.0, RUNS_DIFFER))
                total = max(1, round(self._workload.duration_s[index] / step_s))
                log = replace(log, step_s=step_s, total=total, seed=seed)
            self._logs[index] = log
        return self._logs[index]

    def _step(self, job: Job) -> int:
        return int(self.watch.work_done(job) / self._log(job).step_s)


def log_of_failure(workload: Workload, failure: Failure, seed: int, *, bug: bool) -> Log:
    """The log that a failure leaves, of the infrastructure or of a bug of the job."""
    job = failure.job
    drawn = f"{seed}/{job}/{failure.attempt}"
    # One bug fails in the same way each time.
    ending = draw_ending(not bug, f"{seed}/{job}/bug" if bug else drawn)
    log = choose(f"{seed}/{job}", workload.duration_s[job])
    step = int(failure.done / log.step_s)
    began = failure.time - step * log.step_s
    text = log.head(began) + log.lines(Stretch(began, max(1, step - 5000), step, log.step_s))
    text += ending.write(drawn, step)
    return Log("job", [LogFile("job.out", Memory(text.encode()))])
