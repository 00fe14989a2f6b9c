"""Audit of evicted jobs and the work they lost."""

from __future__ import annotations

from schedmate.schedulers.sim.engine.record import Outcome
from schedmate.schedulers.sim.outcome.laws.broken import LawBrokenError, same
from schedmate.schedulers.sim.workload import Workload


def check_evictions(workload: Workload, outcome: Outcome) -> None:
    """Check that an eviction takes no longer than its grace time, and that no job gains work.

    A job that saved its work or set its checkpoints loses no more than these leave. Raises
    `LawBrokenError`.
    """
    segments = outcome.segments
    for position, one in outcome.ledger.evictions.items():
        job = workload.jobs[one.job]
        ended = segments[position]
        if (ended.job, ended.end) != (one.job, one.left):
            raise LawBrokenError(f"job {job.id} was evicted at {one.left} while it did not run.")
        if not ended.start <= one.asked <= one.left:
            raise LawBrokenError(f"job {job.id} left its GPUs before it was asked to.")
        if one.left - one.asked > one.grace_s * (1 + 1e-9) + 1e-6:
            raise LawBrokenError(
                f"job {job.id} held its GPUs for {one.left - one.asked} s after it was asked to "
                f"leave them within {one.grace_s} s."
            )
        if one.kept > one.done:
            raise LawBrokenError(f"job {job.id} gained work by an eviction.")
        if one.saves and not same(one.done, one.kept):
            raise LawBrokenError(f"job {job.id} saved its work, and lost {one.done - one.kept}.")
        every = job.terms.checkpoint_s if job.terms is not None else None
        if every is not None and one.done - one.kept > every * (1 + 1e-9) + 1e-6:
            raise LawBrokenError(
                f"job {job.id} makes a checkpoint every {every} s, and lost {one.done - one.kept}."
            )
