"""The Metric Tracker beside a policy that shares GPUs (SchedMate paper, section 4.1).

Once a job shares its GPUs, its log is read from before and after, as real text in one of many
formats. What the tracker finds becomes `Job.slowdown`, which the policy reads; where it abstains,
nothing does.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from schedmate.logparse.progress.ratio import WARM_UP, throughput_ratio
from schedmate.logparse.progress.tracker import track
from schedmate.logparse.reading import LogFile
from schedmate.logparse.reading.storage import Memory
from schedmate.schedulers.model import Job
from schedmate.schedulers.sim.logs.writer import JobLog, Stretch, choose
from schedmate.schedulers.sim.observer import Observer

if TYPE_CHECKING:
    from schedmate.jobs import Progress
    from schedmate.schedulers.sim.workload import Workload

TRIES = 6
"""Readings after which nothing more is expected of a log; each waits twice as long as the last."""
LEAST_WAIT_S = 30.0
"""Between two readings of one log [s]."""


@dataclass
class _Watched:
    """A job that shares its GPUs, and what its log said while it was alone."""

    log: JobLog
    text: str
    before: Progress
    at: float
    step: int
    partner: Job
    wait_s: float
    tries: int = 0


class PackingTracker(Observer):
    """Measures the slowdown of the job that was there first, from its log alone.

    `detection_rate`: share of pairs whose slowdown may be found at all (section 5.5); how many are
    found is up to the logs.
    """

    def __init__(self, workload: Workload, *, detection_rate: float = 1.0, seed: int = 0) -> None:
        self._workload = workload
        self._rate = detection_rate
        self._seed = seed
        self._logs: dict[int, JobLog] = {}
        self._alone_since: dict[int, int] = {}  # the step from which it has been as it is now
        self._watched: dict[int, _Watched] = {}
        self.counts = {"pairs": 0, "read": 0, "measured": 0, "untracked": 0}

    def started(self, job: Job) -> None:
        """It begins to log."""
        self._alone_since[job.index] = self._step(job)

    def packed(self, job: Job) -> None:
        """What it logged so far is what it will be compared with."""
        assert job.partner is not None
        self.counts["pairs"] += 1
        draw = random.Random(f"{self._seed}/{job.id}/{job.partner.id}")  # noqa: S311
        if draw.random() >= self._rate:
            return
        log, now, step = self._log(job), self.watch.now, self._step(job)
        first = self._alone_since[job.index]
        began = now - (step - first) * log.step_s
        alone = Stretch(began, first + 1, step, log.step_s, fresh=True)
        text = log.head(began) + log.lines(alone)
        before = self._read(text)
        if before.step_time_s is None:
            self.counts["untracked"] += 1
            return
        wait_s = max(LEAST_WAIT_S, 2 * WARM_UP * before.step_time_s)
        pair = _Watched(log, text, before, now, step, job.partner, wait_s)
        self._watched[job.index] = pair
        self.watch.wake(self, job, now + wait_s)

    def woken(self, job: Job) -> None:
        """Read on; try again later while the log says too little."""
        pair = self._watched.get(job.index)
        if pair is None or job.partner is not pair.partner or self.watch.now < pair.at:
            return
        step = self._step(job)
        step_s = (self.watch.now - pair.at) / max(step - pair.step, 1)
        shared = Stretch(pair.at, pair.step + 1, step, step_s)
        after = self._read(pair.text + pair.log.lines(shared), since=pair.before.log_bytes)
        ratio = throughput_ratio(pair.before, after).ratio
        if ratio is not None:
            self.counts["measured"] += 1
            del self._watched[job.index]
            job.slowdown = ratio
            self.watch.changed(job)
            return
        pair.tries += 1
        if pair.tries == TRIES:
            self.counts["untracked"] += 1
            del self._watched[job.index]
            return
        pair.wait_s *= 2
        self.watch.wake(self, job, self.watch.now + pair.wait_s)

    def unpacked(self, job: Job) -> None:
        """It is alone again, and what was measured no longer holds."""
        self._watched.pop(job.index, None)
        self._alone_since[job.index] = self._step(job)
        job.slowdown = None
        # Who was evicted may go elsewhere at once.
        self.watch.changed(job)

    def stopped(self, job: Job) -> None:
        """It logs no more."""
        self._watched.pop(job.index, None)
        job.slowdown = None

    def _log(self, job: Job) -> JobLog:
        index = job.index
        if index not in self._logs:
            seed = f"{self._seed}/{job.id}"
            self._logs[index] = choose(seed, self._workload.duration_s[index])
        return self._logs[index]

    def _step(self, job: Job) -> int:
        return int(self.watch.work_done(job) / self._log(job).step_s)

    def _read(self, text: str, since: int = 0) -> Progress:
        self.counts["read"] += 1
        return track(LogFile("job.out", Memory(text.encode())), since=since)
