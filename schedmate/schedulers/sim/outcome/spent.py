"""Where GPU time went: work that was kept, and what profiling, restarts, failures, sharing took.

Two jobs on the same GPUs each hold them, so that what a pair does can be more than the time that
its GPUs were held. Only where work is seconds of the trace, not for measured tables (`elastic/`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schedmate.schedulers.model import gpus_in
from schedmate.schedulers.sim.engine.record import KINDS, Outcome
from schedmate.schedulers.sim.workload import Workload

HOUR = 3600.0
Floats = NDArray[np.float64]


class Spent(NamedTuple):
    """The time of each segment by its use; the four parts add up to its length [s]."""

    useful: Floats
    """Work done and kept, as seconds of the job alone on the requested GPUs.

    Negative if a failure lost more than the segment had done.
    """
    restarts: Floats
    """Time between getting GPUs and resuming work."""
    failures: Floats
    """Work undone by a failure."""
    other: Floats
    """Time of profiling that is repeated later; else time lost to a partner, or by an eviction."""
    profiling: NDArray[np.bool_]
    """Whether the job held its GPUs to be profiled."""
    gpus: Floats
    """GPUs held; below 1: a part of one."""

    def hours(self, held_gpu_s: float) -> dict[str, float]:
        """GPU hours by their use.

        `held_gpu_s` counts GPUs shared by two jobs once; then useful, profiling, restarts, failures
        and slowed add up to held plus shared.
        """

        def total(seconds: Floats) -> float:
            return float((seconds * self.gpus).sum()) / HOUR

        every = self.useful + self.restarts + self.failures + self.other
        return {
            "held": held_gpu_s / HOUR,
            "shared": max(0.0, total(every) - held_gpu_s / HOUR),
            "useful": total(self.useful),
            "profiling": total(np.where(self.profiling, self.other, 0.0)),
            "restarts": total(self.restarts),
            "failures": total(self.failures),
            "slowed": total(np.where(self.profiling, 0.0, self.other)),
        }


def gpus_held(workload: Workload, outcome: Outcome) -> Floats:
    """GPUs held in each segment: those requested (below 1: a part of one), or the number that an
    elastic job got."""
    if workload.requests.values("min_gpus") is None:
        return _gpus_requested(workload, outcome)
    given = outcome.segments.allocations
    return np.array([float(gpus_in(one)) for one in given])


def _gpus_requested(workload: Workload, outcome: Outcome) -> Floats:
    requests = workload.requests
    requested: Floats = requests.gpus * np.array(requests.values("share") or 1.0)
    return requested[np.array(outcome.segments.jobs, dtype=np.int64)]


def spent(workload: Workload, outcome: Outcome, restart: Callable[[int], float]) -> Spent | None:
    """Use of the time of each segment; None if work is not seconds of the trace.

    `restart` returns the time that a restart of a job with this number of GPUs takes [s].
    """
    if outcome.work is not workload.duration_s:
        return None
    requests, segments = workload.requests, outcome.segments
    which = np.array(segments.jobs, dtype=np.int64)
    length = np.array(segments.ends) - np.array(segments.starts)
    held = gpus_held(workload, outcome)
    profiling = np.frombuffer(bytes(segments.kinds), np.uint8) == KINDS.index("profile")
    restarts, failures = np.zeros(len(which)), np.zeros(len(which))
    # A job that held GPUs before, other than for profiling, resumes its work.
    runs = np.bincount(which[~profiling], minlength=len(requests))
    ran: set[int] = set()
    for position in np.flatnonzero(runs[which] > 1).tolist():
        index = segments.jobs[position]
        if index in ran:
            restarts[position] = min(restart(int(requests.gpus[index])), length[position])
        if not profiling[position]:
            ran.add(index)
    if handovers := outcome.ledger.handovers:
        for position, began in enumerate(zip(segments.jobs, segments.starts, strict=True)):
            if began in handovers:
                restarts[position] = min(handovers[began], length[position])
    for position, (failure, again) in outcome.failures.items():
        failures[position] = failure.done - (failure.saved if again is None else again.work)
    useful = np.array(segments.works) - failures
    if requests.values("min_gpus") is not None:
        # A job on another number of GPUs than requested counts by those that it had.
        scale = _gpus_requested(workload, outcome) / held
        useful, failures = useful * scale, failures * scale
    other = length - restarts - failures - useful
    return Spent(useful, restarts, failures, other, profiling, held)
