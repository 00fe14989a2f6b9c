"""Estimates of queued jobs: from their code once, within a time budget, and again as runs end."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from schedmate.jobs import Estimate, WorkloadMetadata
from schedmate.mate import SchedMate
from schedmate.schedulers.live.adapter import ClusterAdapter, Description, LiveJob
from schedmate.schedulers.live.bounds import AdviseBounds
from schedmate.schedulers.live.ended import read_job
from schedmate.schedulers.live.memory import Memory
from schedmate.schedulers.live.report import Estimated, Pass

DESCRIBED = 20
"""Most new jobs described by one call of the adapter, which costs a command for each script."""


class Advising:
    """The Scheduling Advisor's part of the loop."""

    def __init__(
        self,
        adapter: ClusterAdapter,
        mate: SchedMate,
        memory: Memory,
        bounds: AdviseBounds,
        clock: Callable[[], float],
    ) -> None:
        self._adapter, self._mate, self._memory = adapter, mate, memory
        self._bounds, self._clock = bounds, clock
        self.estimates: dict[str, Estimate] = {}
        """Estimates of the jobs in the queue, by key."""
        self.stale: set[str] = set()
        """Keys of waiting jobs whose estimates are older than the last run that ended."""

    def advise(self, jobs: list[LiveJob], found: Pass) -> None:
        """Estimate the jobs that have no estimate yet, those that wait first."""
        deadline = time.monotonic() + self._bounds.seconds
        keys = {job.key for job in jobs}
        self.estimates = {key: one for key, one in self.estimates.items() if key in keys}
        missing = [key for key in keys if key not in self.estimates]
        self.estimates |= self._memory.estimates(missing)
        new = {job.key: job for job in jobs if job.key not in self.estimates}
        # waiting jobs first: running ones cannot be reordered any more
        queue = sorted(new.values(), key=lambda job: (job.state != "PENDING", job.submitted or 0.0))
        done = 0
        while done < len(queue) and time.monotonic() < deadline:
            some = queue[done : done + DESCRIBED]
            described = self._adapter.describe([job.id for job in some])
            for job in some:
                if time.monotonic() >= deadline:
                    break
                done += 1
                if job.id in described:
                    self._read_code(job, described[job.id], found)
        found.unread = len(queue) - done
        self._advise_again([job for job in jobs if job.state == "PENDING"], deadline, found)

    def _read_code(self, job: LiveJob, description: Description, found: Pass) -> None:
        known = read_job(self._mate, job.key, description, self._bounds.each, self._clock())
        self._memory.remember(known)
        self.estimates[job.key] = known.estimate
        found.problems += description.problems  # reported once, as the job is remembered
        found.estimated.append(Estimated(job=job.id, user=job.user, estimate=known.estimate))

    def _advise_again(self, pending: Sequence[LiveJob], deadline: float, found: Pass) -> None:
        """Update estimates of waiting jobs when more runs are known; code is not read again."""
        for job in pending:
            if time.monotonic() >= deadline:
                return
            if job.key not in self.stale:
                continue
            self.stale.discard(job.key)
            known = self._memory.known(job.key)
            if known is None or known.metadata == WorkloadMetadata():
                continue
            estimate = self._mate.estimate(known.metadata, known.spec.launch, self._clock())
            if estimate.duration_s != known.estimate.duration_s:
                self._memory.remember(known._replace(estimate=estimate))
                self.estimates[job.key] = estimate
                found.estimated.append(
                    Estimated(job=job.id, user=job.user, estimate=estimate, again=True)
                )
