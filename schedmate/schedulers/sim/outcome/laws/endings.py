"""Jobs without an ordinary end (dropped, endless, stopped by the horizon) or start (running
already)."""

from __future__ import annotations

from schedmate.schedulers.sim.engine.record import Outcome
from schedmate.schedulers.sim.outcome.laws.broken import LawBrokenError
from schedmate.schedulers.sim.workload import Workload
from schedmate.schedulers.terms import NEVER


def check_endings(workload: Workload, outcome: Outcome) -> None:
    """Check that a job without an end has a reason, and nothing happens after the horizon.

    A dropped job must not run on, and jobs that run from the start must do so where stated. Raises
    `LawBrokenError`.
    """
    ledger = outcome.ledger
    asked = workload.requests.values("terms") is not None
    if asked or ledger.dropped or NEVER in outcome.end:
        _check_ends(workload, outcome)
    if not (ledger.dropped or workload.initial or ledger.horizon < NEVER):
        return
    first: set[int] = set()
    for one in outcome.segments:
        job = workload.jobs[one.job]
        if one.end > ledger.horizon:
            raise LawBrokenError(f"job {job.id} ran at {one.end}, after the simulation's end.")
        if one.job in ledger.dropped and one.end > ledger.dropped[one.job].time:
            raise LawBrokenError(f"job {job.id} ran after it had been dropped.")
        if one.job in workload.initial and one.job not in first:
            first.add(one.job)
            if one.start != job.submit_time or one.allocation != workload.initial[one.job]:
                raise LawBrokenError(f"job {job.id} did not run from the start where it is said.")


def _check_ends(workload: Workload, outcome: Outcome) -> None:
    ledger = outcome.ledger
    for job, end in zip(workload.jobs, outcome.end, strict=True):
        endless = job.terms is not None and job.terms.endless
        if end < NEVER and (endless or job.index in ledger.dropped):
            what = "endless" if endless else "given up"
            raise LawBrokenError(f"job {job.id} is {what}, and ended at {end}.")
        if end == NEVER and ledger.horizon == NEVER and job.index not in ledger.dropped:
            raise LawBrokenError(f"job {job.id} never ended and was not dropped.")
