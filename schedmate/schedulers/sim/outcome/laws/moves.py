"""Jobs that are started on new GPUs before they leave the old ones."""

from __future__ import annotations

from schedmate.schedulers.model import gpus_in
from schedmate.schedulers.sim.engine.record import Outcome, Segment
from schedmate.schedulers.sim.outcome.laws.broken import LawBrokenError
from schedmate.schedulers.sim.workload import Workload


def check_moves(workload: Workload, outcome: Outcome) -> None:
    """Check that a job that is started elsewhere runs meanwhile, on the same number of GPUs.

    It moves there or stays. Raises `LawBrokenError`.
    """
    holds = outcome.ledger.holds
    if not holds:
        return
    moved = {one.job for one in holds}
    ran: dict[int, list[Segment]] = {index: [] for index in moved}
    for one in outcome.segments:
        if one.job in moved:
            ran[one.job].append(one)
    for hold in holds:
        name = workload.jobs[hold.job].id
        during = [one for one in ran[hold.job] if one.start <= hold.start and hold.end <= one.end]
        if hold.end < hold.start or not during:
            raise LawBrokenError(f"job {name} was brought up elsewhere while it did not run.")
        if gpus_in(hold.allocation) != gpus_in(during[0].allocation):
            raise LawBrokenError(f"job {name} was moved to another number of GPUs.")
        if hold.moved and not any(
            one.start == hold.end and one.allocation == hold.allocation for one in ran[hold.job]
        ):
            raise LawBrokenError(f"job {name} was brought up on GPUs on which it did not go on.")
