"""The Metric Tracker beside a policy that shares GPUs (SchedMate paper, section 4.1).

Once a job shares its GPUs, its log is read from before and after, as real text in one of many
formats. Where it says nothing of the time before, because the job got company too soon, the log of
the last job of the same workload does that ran alone (ours). What the tracker finds becomes
`Job.slowdown`, which the policy reads; where it abstains, nothing does.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
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
RUNS_DIFFER = 0.1
"""Standard deviation of the logarithm of step times from one run of a workload to the next, on
other nodes and beside other users of their storage: an assumption."""


@dataclass
class _Watched:
    """A job that shares its GPUs, what its log said until then, and what is known of it alone."""

    log: JobLog
    text: str
    size: int
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

    def __init__(
        self,
        workload: Workload,
        *,
        detection_rate: float = 1.0,
        baseline: bool = True,
        seed: int = 0,
    ) -> None:
        """
        Args:
            workload: whose jobs write logs; those of one workload in one format.
            detection_rate: see above.
            baseline: whether logs of past jobs stand in for what a log does not say.
            seed: of the logs, and of what is not detected.
        """
        self._workload = workload
        self._baseline = baseline
        self._rate = detection_rate
        self._seed = seed
        self._logs: dict[int, JobLog] = {}
        self._alone_since: dict[int, int] = {}  # the step from which it has been as it is now
        self._watched: dict[int, _Watched] = {}
        self._past: dict[str, tuple[JobLog, Stretch] | Progress] = {}
        self.counts = {"pairs": 0, "read": 0, "measured": 0, "by_past_job": 0, "untracked": 0}

    def started(self, job: Job) -> None:
        """It begins to log."""
        if job.partner is None:
            self._alone_since[job.index] = self._step(job)

    def packed(self, job: Job) -> None:
        """What it logged so far is what it will be compared with."""
        assert job.partner is not None
        self.counts["pairs"] += 1
        log, now, alone = self._log(job), self.watch.now, self._alone(job)
        del self._alone_since[job.index]
        draw = random.Random(f"{self._seed}/{job.id}/{job.partner.id}")  # noqa: S311
        if draw.random() >= self._rate:
            return
        text = log.head(alone.start) + log.lines(alone)
        own = before = self._read(text)
        if own.step_time_s is not None:
            self._past[self._kind(job)] = own
        elif (past := self._of_past_job(job)) is not None:
            self.counts["by_past_job"] += 1
            before = past
        if before.step_time_s is None:
            self.counts["untracked"] += 1
            return
        wait_s = max(LEAST_WAIT_S, 2 * WARM_UP * before.step_time_s)
        pair = _Watched(log, text, own.log_bytes, before, now, alone.last, job.partner, wait_s)
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
        after = self._read(pair.text + pair.log.lines(shared), since=pair.size)
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

    def ended(self, job: Job) -> None:
        """Its log is kept as that of a past job, and read when it is needed."""
        if self._baseline and job.index in self._alone_since:
            alone = self._alone(job)
            if alone.last - alone.first >= WARM_UP:
                self._past[self._kind(job)] = (self._log(job), alone)

    def stopped(self, job: Job) -> None:
        """It logs no more."""
        self._watched.pop(job.index, None)
        self._alone_since.pop(job.index, None)
        job.slowdown = None

    def _alone(self, job: Job) -> Stretch:
        """The steps since it has been alone, up to now."""
        log, first, last = self._log(job), self._alone_since[job.index], self._step(job)
        began = self.watch.now - (last - first) * log.step_s
        return Stretch(began, first + 1, last, log.step_s, fresh=True)

    def _of_past_job(self, job: Job) -> Progress | None:
        """How fast the last job of this workload was alone, by its log."""
        past = self._past.get(self._kind(job)) if self._baseline else None
        if isinstance(past, tuple):
            log, alone = past
            past = self._past[self._kind(job)] = self._read(
                log.head(alone.start) + log.lines(alone)
            )
        return past

    def _kind(self, job: Job) -> str:
        """The workload of a job, where its metadata tells it; else only itself."""
        metadata = self._workload.metadata[job.index] if self._workload.metadata else None
        return job.id if metadata is None else metadata.fingerprint()

    def _log(self, job: Job) -> JobLog:
        index = job.index
        if index not in self._logs:
            seed, kind = f"{self._seed}/{job.id}", self._kind(job)
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

    def _read(self, text: str, since: int = 0) -> Progress:
        self.counts["read"] += 1
        return track(LogFile("job.out", Memory(text.encode())), since=since)
