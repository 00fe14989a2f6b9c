"""GPUs that are lent: by jobs that do not use them, and by other virtual clusters."""

from __future__ import annotations

from schedmate.schedulers.model import Allocation, Cluster
from schedmate.schedulers.sim.engine.ledger import Loan
from schedmate.schedulers.sim.engine.record import Outcome, Segment, Segments
from schedmate.schedulers.sim.outcome.laws.broken import LawBrokenError
from schedmate.schedulers.sim.workload import Workload


def in_use(outcome: Outcome) -> Outcome:
    """The segments by the users of GPUs instead of their owners.

    A job does not use what it lends; where it is being started it does not run yet, but no other
    job may. So no GPU is used twice.
    """
    ledger = outcome.ledger
    if not (ledger.loans or ledger.holds):
        return outcome
    loans: dict[int, list[Loan]] = {}
    for loan in sorted(ledger.loans, key=lambda one: one.start):
        loans.setdefault(loan.job, []).append(loan)
    used = Segments()
    for one in outcome.segments:
        start = one.start
        for loan in loans.get(one.job, ()):
            if one.start <= loan.start and loan.back <= one.end:
                used.append(one._replace(start=start, end=loan.start))
                start = loan.back
        used.append(one._replace(start=start))
    for hold in ledger.holds:
        used.append(Segment(hold.job, hold.start, hold.end, hold.allocation, 0.0, "run"))
    return outcome._replace(segments=used)


def check_loans(workload: Workload, cluster: Cluster, outcome: Outcome) -> None:
    """Check that GPUs are lent within the trace's windows, by the jobs that hold them, to jobs that
    may borrow them.

    Raises `LawBrokenError`.
    """
    loans = outcome.ledger.loans
    lent: dict[int, list[Loan]] = {}
    for loan in loans:
        name = workload.jobs[loan.job].id
        windows = workload.standby.get(loan.job, [])
        if not any(start == loan.start and loan.called <= until for start, until in windows):
            raise LawBrokenError(f"job {name} lent its GPUs at {loan.start}, in no window of its.")
        if not loan.start <= loan.called <= loan.back:
            raise LawBrokenError(f"job {name} had its GPUs back before it wanted them.")
        for node, _ in loan.allocation:
            lent.setdefault(node, []).append(loan)
    held: dict[int, list[Segment]] = {loan.job: [] for loan in loans}
    borrowers = []
    for one in outcome.segments:
        if one.job in held:
            held[one.job].append(one)
        if one.kind == "loan" or any(node in lent for node, _ in one.allocation):
            borrowers.append(one)
    for loan in loans:
        if not any(
            one.start <= loan.start and loan.back <= one.end and one.allocation == loan.allocation
            for one in held[loan.job]
        ):
            raise LawBrokenError(
                f"job {workload.jobs[loan.job].id} lent GPUs at {loan.start} that it did not hold."
            )
    for one in borrowers:
        _check_borrower(workload, cluster, one, lent)


def _check_borrower(
    workload: Workload, cluster: Cluster, one: Segment, lent: dict[int, list[Loan]]
) -> None:
    job = workload.jobs[one.job]
    for node, mask in one.allocation:
        offered = 0
        for loan in lent.get(node, ()):
            theirs = _mask(loan.allocation, node) & mask
            # A lender can end at the instant at which others get what it lends.
            if loan.job == one.job or not theirs or not loan.start <= one.start <= loan.back:
                continue
            offered |= theirs
            if one.start == loan.back:
                continue
            if one.kind != "loan":
                raise LawBrokenError(f"job {job.id} took GPUs that another lends.")
            if loan.called <= one.start:
                raise LawBrokenError(f"job {job.id} borrowed GPUs that were wanted back.")
        others = cluster.nodes[node].vc not in ("", job.vc)
        if one.kind == "loan" and not others and offered != mask:
            raise LawBrokenError(f"job {job.id} borrowed GPUs that no job lends.")


def _mask(allocation: Allocation, node: int) -> int:
    return next((mask for at, mask in allocation if at == node), 0)
