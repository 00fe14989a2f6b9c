"""The Metric Tracker beside a policy that shares GPUs (SchedMate paper, section 4.1).

Once a job shares its GPUs, its log from before and after is read, as real text in one of many
formats. If the log has nothing of the time before, because the job was packed too soon, that of the
last job of the same workload that ran alone is used (ours). The result becomes `Job.slowdown`,
which the policy reads; if the tracker abstains, nothing changes.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from schedmate.jobs import Progress
from schedmate.logparse.progress.ratio import WARM_UP, throughput_ratio
from schedmate.schedulers.adapters.sources import LogSource, Window
from schedmate.schedulers.model import Job
from schedmate.schedulers.observer import Observer

TRIES = 6
"""Most readings of a log; each waits twice as long as the last."""
LEAST_WAIT_S = 30.0
"""Between two readings of one log [s]."""


@dataclass
class _Watched:
    """A job that shares its GPUs, and its speed alone."""

    before: Progress
    at: float
    partner: Job
    wait_s: float
    tries: int = 0


class PackingTracker(Observer):
    """Measures the slowdown of the first job of a pair from its log.

    `detection_rate`: share of pairs whose slowdown may be detected at all (section 5.5); the number
    actually detected depends on the logs.
    """

    def __init__(
        self,
        logs: LogSource,
        *,
        detection_rate: float = 1.0,
        baseline: bool = True,
        seed: int = 0,
    ) -> None:
        """Args:
        logs: the logs of jobs.
        detection_rate: see above.
        baseline: whether logs of past jobs replace what a log lacks.
        seed: of the pairs that are not detected."""
        self._logs = logs
        self._baseline = baseline
        self._rate = detection_rate
        self._seed = seed
        self._is_alone: set[int] = set()
        self._watched: dict[int, _Watched] = {}
        self._past: dict[str, Window | Progress] = {}
        self.counts = {"pairs": 0, "read": 0, "measured": 0, "by_past_job": 0, "untracked": 0}

    def started(self, job: Job) -> None:
        """It begins to log."""
        if job.partner is None:
            self._is_alone.add(job.index)
            self._logs.mark(job)

    def packed(self, job: Job) -> None:
        """Its log so far is the baseline for later comparison."""
        assert job.partner is not None
        self.counts["pairs"] += 1
        self._is_alone.discard(job.index)
        alone, now = self._logs.window(job), self.watch.now
        self._logs.mark(job)
        draw = random.Random(f"{self._seed}/{job.id}/{job.partner.id}")  # noqa: S311
        if draw.random() >= self._rate:
            return
        own = before = self._measure(alone)
        if own.step_time_s is not None:
            self._past[self._logs.kind_of(job)] = own
        elif (past := self._of_past_job(job)) is not None:
            self.counts["by_past_job"] += 1
            before = past
        if before.step_time_s is None:
            self.counts["untracked"] += 1
            return
        wait_s = max(LEAST_WAIT_S, 2 * WARM_UP * before.step_time_s)
        self._watched[job.index] = _Watched(before, now, job.partner, wait_s)
        self.watch.wake(self, job, now + wait_s)

    def woken(self, job: Job) -> None:
        """Read on; try again later if the log has too little."""
        pair = self._watched.get(job.index)
        if pair is None or job.partner is not pair.partner or self.watch.now < pair.at:
            return
        ratio = throughput_ratio(pair.before, self._measure(self._logs.window(job))).ratio
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
        """The job is alone again; the measurement no longer applies."""
        self._watched.pop(job.index, None)
        self._is_alone.add(job.index)
        self._logs.mark(job)
        job.slowdown = None
        # An evicted job may start elsewhere at once.
        self.watch.changed(job)

    def ended(self, job: Job) -> None:
        """Its log is kept as that of a past job, and read when it is needed."""
        if self._baseline and job.index in self._is_alone:
            alone = self._logs.alone(job)
            if alone is not None:
                self._past[self._logs.kind_of(job)] = alone

    def stopped(self, job: Job) -> None:
        """It logs no more."""
        self._watched.pop(job.index, None)
        self._is_alone.discard(job.index)
        job.slowdown = None

    def _of_past_job(self, job: Job) -> Progress | None:
        """How fast the last job of this workload was alone, by its log."""
        kind = self._logs.kind_of(job)
        past = self._past.get(kind) if self._baseline else None
        if past is None or isinstance(past, Progress):
            return past
        read = self._past[kind] = self._measure(past)
        return read

    def _measure(self, window: Window) -> Progress:
        self.counts["read"] += 1
        return window.progress()
