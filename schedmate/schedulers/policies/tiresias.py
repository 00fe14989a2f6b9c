"""Tiresias (NSDI'19): two-dimensional attained service in two queues, preemptive."""

from __future__ import annotations

import csv
import re
from bisect import bisect_right
from collections.abc import Hashable
from itertools import accumulate
from pathlib import Path
from typing import ClassVar

from schedmate.errors import UsageError, reason_of
from schedmate.schedulers.lanes import Rank
from schedmate.schedulers.model import Allocation, Job
from schedmate.schedulers.policies.preemptive import Preemptive
from schedmate.schedulers.policy import HAIR, ServiceRank
from schedmate.schedulers.pools import lowest
from schedmate.schedulers.terms import NEVER
from schedmate.schedulers.view import View

_STEPS = 64
"""Values that a Gittins index takes; at each the rank of a running job changes."""


class Tiresias(Preemptive):
    """Two-dimensional least attained service, or Gittins index, in two queues (section 3.3).

    A job whose GPUs x time exceed `threshold_gpu_s` moves to the second queue; within a queue the
    first submitted goes first, or the one with the highest Gittins index.

    Args:
        threshold_gpu_s: Lucid's authors compare with 5 GPU hours [GPU s].
        interval_s: time between decisions; 0: after every change [s].
        promote: PROMOTEKNOB: a job that has waited for this many times its run time so far moves to
            the first queue with its service reset, until it is stopped again; 0: never.
        history: CSV with a column `gpu_s`, the GPUs x time of past jobs: then jobs go by Gittins
            index within a queue (2D-Gittins); empty: by submission (2D-LAS).
        consolidate: regular expression of the names of jobs whose model has large tensors and so
            needs all GPUs together; the others may be spread over any free ones (section 3.4).
            Empty: all need it.
        backfill: a job that cannot be placed lets later ones pass.
        quota: jobs are chosen by the number of GPUs alone, as in published simulators.
    """

    name: ClassVar[str] = "tiresias"

    def __init__(
        self,
        threshold_gpu_s: float = 18_000.0,
        interval_s: float = 0.0,
        backfill: bool = True,
        quota: bool = False,
        promote: float = 0.0,
        history: str = "",
        consolidate: str = "",
    ) -> None:
        self.backfill = backfill
        self.quota = quota
        self.threshold_gpu_s = threshold_gpu_s
        self.interval_s = interval_s or None
        if not 0 <= promote < NEVER:
            raise UsageError(
                f"policy tiresias: promote={promote} must be at least 0 (0: no job is promoted)."
            )
        self.promote = promote
        self.gittins = Gittins.read(Path(history), threshold_gpu_s) if history else None
        try:
            self.together = re.compile(consolidate) if consolidate else None
        except re.error as error:
            raise UsageError(
                f"policy tiresias: consolidate={consolidate} is not a regular expression: {error}; "
                "correct it."
            ) from None

    def rank(self, job: Job, now: float) -> Rank:
        attained = self._attained_gpu_s(job, now)
        queue = float(attained >= self.threshold_gpu_s * (1 - HAIR))
        if self.gittins is None:
            return (queue, job.submit_time)
        return (queue, -self.gittins.index(attained * (1 + HAIR)), job.submit_time)

    def rank_until(self, job: Job, now: float) -> float:
        attained = self._attained_gpu_s(job, now)
        left = self.threshold_gpu_s - attained
        if left <= self.threshold_gpu_s * HAIR:
            left = NEVER
        if self.gittins is not None:
            left = min(left, self.gittins.next(attained * (1 + HAIR)) - attained)
        return now + left / job.gpus

    def waiting_until(self, job: Job, now: float) -> float:
        if not self.promote or not job.service_s:
            return NEVER
        at = job.stopped + self.promote * job.service_s
        return at if at > now and self._attained_gpu_s(job, now) > 0 else NEVER

    def service_rank(self) -> ServiceRank | None:
        usual = self.backfill and not (self.quota or self.promote or self.interval_s)
        if not usual or self.gittins is not None or self.together is not None:
            return None
        return ServiceRank(self.threshold_gpu_s)

    def lane(self, job: Job) -> Hashable:
        lane = super().lane(job)
        # One that may be spread fits where another does not.
        return lane if self.together is None or job.allocation else (lane, self._spreads(job))

    def _spreads(self, job: Job) -> bool:
        return self.together is not None and self.together.search(job.name) is None

    def place(self, view: View, job: Job) -> Allocation | None:
        found = view.space.place(job)
        if found is not None or not self._spreads(job):
            return found
        found = _spread(view, job)
        return found if found and view.space.take(job, found) else None

    def _attained_gpu_s(self, job: Job, now: float) -> float:
        """GPUs x time since the job was submitted, or promoted."""
        if self.promote and job.service_s:
            since = job.started if job.allocation else now
            if since - job.stopped >= self.promote * job.service_s * (1 - HAIR):
                return (now - job.started) * job.gpus if job.allocation else 0.0
        return job.attained_s(now) * job.gpus


def _spread(view: View, job: Job) -> Allocation | None:
    """Any free GPUs of the nodes that the job may use, the smallest leftovers first."""
    space, left, chosen = view.space, job.gpus, []
    if job.share != 1.0 or job.cpus or job.memory_mb or job.constraints or space.idle < job.gpus:
        return None
    has_vcs = any(node.vc for node in space.cluster.nodes)
    open_nodes = [
        (space.free[position].bit_count(), position)
        for position, node in enumerate(space.cluster.nodes)
        if space.free[position]
        and not node.role
        and (not has_vcs or node.vc in ("", job.vc))
        and (not job.gpu_type or node.gpu_type in ("", job.gpu_type))
    ]
    for count, position in sorted(open_nodes):
        taken = min(count, left)
        chosen.append((position, lowest(space.free[position], taken)))
        left -= taken
        if not left:
            return tuple(sorted(chosen))
    return None


class Gittins:
    """The Gittins index of a job by its attained service, from the total service of past jobs.

    Of the past jobs that needed more: the share that ended within `quantum` more, over the mean of
    their further service, at most `quantum`.
    """

    def __init__(self, taken: list[float], quantum: float) -> None:
        """Args:
        taken: service of past jobs [GPU s], at least one.
        quantum: service to look ahead [GPU s]."""
        taken = sorted(taken)
        sums = [0.0, *accumulate(taken)]
        steps = sorted({0.0, *(taken[len(taken) * n // _STEPS] for n in range(_STEPS))})
        self._from = steps
        self._index = []
        for attained in steps:
            first, last = (bisect_right(taken, one) for one in (attained, attained + quantum))
            still = sums[last] - sums[first] - attained * (last - first)
            still += quantum * (len(taken) - last)
            self._index.append((last - first) / still if still else 0.0)

    def index(self, attained: float) -> float:
        """At this attained service [GPU s], 1 / [GPU s]."""
        return self._index[bisect_right(self._from, attained) - 1]

    def next(self, attained: float) -> float:
        """Service at which the index changes next; infinity: never [GPU s]."""
        place = bisect_right(self._from, attained)
        return self._from[place] if place < len(self._from) else NEVER

    @classmethod
    def read(cls, path: Path, quantum: float) -> Gittins:
        """From a CSV with a column gpu_s. Raises `UsageError` when it is not one."""
        try:
            with path.open(encoding="utf-8", newline="") as stream:
                taken = [float(row["gpu_s"]) for row in csv.DictReader(stream)]
        except (OSError, KeyError, TypeError, ValueError, UnicodeError, csv.Error) as error:
            raise UsageError(
                f"policy tiresias: {path} is not a table ({reason_of(error)}); it needs a column "
                "gpu_s."
            ) from None
        if not taken or not all(0 <= one < NEVER for one in taken):
            raise UsageError(
                f"policy tiresias: the column gpu_s of {path} has to hold times, and at least one."
            )
        return cls(taken, quantum)
