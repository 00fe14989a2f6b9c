"""The conservation laws, checked from the record of a run, independently of the simulator.

What is plainly correct is proved at once, in columns; the rest, and rare events, job by job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schedmate.base.errors import SchedmateError
from schedmate.base.terminal import counted
from schedmate.schedulers.model import NEVER, Allocation, Cluster, Job, gpus_in, without
from schedmate.schedulers.sim.record import (
    KINDS,
    HeldGpus,
    HeldPieces,
    Ints,
    Loan,
    Outage,
    Outcome,
    Segment,
    Segments,
)
from schedmate.schedulers.sim.workload import Workload

_SHARERS = 2


def audit(workload: Workload, cluster: Cluster, outcome: Outcome) -> None:
    """Check that the run was possible.

    No GPU is held by two jobs that do not share it or by three, no job holds a GPU before its
    submission, and a job has one allocation at a time, of a permitted size and of the requested
    type. The work that a job did, less what failures lost, adds up to the work it needs; after a
    failure it runs no earlier than its new submission, and not at all if the failure was its end.
    Time never runs backwards, and every job ends unless `check_laws` knows a reason. Raises
    `LawBrokenError`.
    """
    holdings = HeldGpus.of(outcome.segments)
    doubtful = doubtful_jobs(workload, cluster, outcome, holdings)
    if doubtful.any():
        _check_jobs(
            workload, cluster, outcome, np.flatnonzero(doubtful).tolist(), doubtful[holdings.jobs]
        )
    used = in_use(outcome)
    users = holdings if used is outcome else HeldGpus.of(used.segments)
    _check_gpus(workload, cluster, used, doubtful_segments(cluster, users).tolist())
    check_laws(workload, cluster, outcome)


def _check_jobs(
    workload: Workload, cluster: Cluster, outcome: Outcome, chosen: list[int], theirs: Flags
) -> None:
    """Follow some of the jobs, one by one, through the segments that are theirs."""
    jobs = {index: workload.jobs[index] for index in chosen}
    done, held_s = dict.fromkeys(chosen, 0.0), dict.fromkeys(chosen, 0.0)
    last = dict.fromkeys(chosen, float("-inf"))
    earliest = {index: job.submit_time for index, job in jobs.items()}
    for position in np.flatnonzero(theirs).tolist():
        segment = outcome.segments[position]
        index, job = segment.job, jobs[segment.job]
        if segment.start < earliest[index]:
            raise LawBrokenError(f"job {job.id} ran at {segment.start}, before its submission.")
        if segment.end < segment.start or segment.start < last[index]:
            raise LawBrokenError(f"job {job.id} was in two places at {segment.start}.")
        _check_request(job, cluster, segment.allocation, segment.kind)
        last[index] = segment.end
        done[index] += segment.work
        held_s[index] += segment.end - segment.start
        if position in outcome.failures:
            failure, again = outcome.failures[position]
            if (failure.job, failure.time) != (index, segment.end):
                raise LawBrokenError(f"job {job.id} failed at {failure.time} while it did not run.")
            if not _nearly_same(failure.done, done[index]):
                raise LawBrokenError(f"job {job.id} did {done[index]}, not {failure.done}.")
            if again is None:
                earliest[index] = float("inf")
            else:
                if again.work > failure.done:
                    raise LawBrokenError(f"job {job.id} gained work by a failure.")
                earliest[index] = segment.end + again.wait_s
                done[index] = again.work
    for index, job in jobs.items():
        needed, got, time = outcome.work[index], done[index], held_s[index]
        if outcome.end[index] == float("inf"):
            continue
        # Clock times are large, so a difference of two of them is rounded.
        if not _nearly_same(needed, got) and (earliest[index] < float("inf") or got > needed):
            raise LawBrokenError(f"job {job.id} needs {needed} of work and got {got}.")
        if outcome.end[index] != last[index] or not _nearly_same(time, outcome.held_s[index]):
            raise LawBrokenError(f"job {job.id}: its times do not agree with its segments.")


def _nearly_same(one: float, other: float) -> bool:
    return abs(one - other) <= 1e-6 * max(1.0, one)


def _check_request(job: Job, cluster: Cluster, allocation: Allocation, kind: str) -> None:
    gpus = sum(mask.bit_count() for _, mask in allocation)
    fits = gpus == job.gpus or (job.elastic and job.min_gpus <= gpus <= job.max_gpus)
    if not fits and kind != "profile":
        raise LawBrokenError(f"job {job.id} asks for {counted(job.gpus, 'GPU')} and got {gpus}.")
    has_vcs = any(node.vc for node in cluster.nodes)
    for position, _ in allocation:
        node = cluster.nodes[position]
        if job.gpu_type and node.gpu_type not in ("", job.gpu_type):
            raise LawBrokenError(f"job {job.id} asks for {job.gpu_type} and got {node.gpu_type}.")
        # A profile is short; what else runs elsewhere has borrowed it.
        if has_vcs and node.vc not in ("", job.vc) and kind not in ("loan", "profile"):
            raise LawBrokenError(f"job {job.id} of {job.vc!r} ran in {node.vc!r}.")


def _check_gpus(
    workload: Workload, cluster: Cluster, outcome: Outcome, chosen: Sequence[int]
) -> None:
    """Sweep over time: at one instant, what ends is released before what starts is booked."""
    segments = {position: outcome.segments[position] for position in chosen}
    changes = sorted(
        (time, kind, position)
        for position, segment in segments.items()
        if segment.end > segment.start
        for time, kind in ((segment.end, 0), (segment.start, 1))
    )
    holders: dict[tuple[int, int], set[int]] = {}
    for time, kind, position in changes:
        segment = segments[position]
        for node, mask in segment.allocation:
            if mask >> cluster.nodes[node].gpus:
                raise LawBrokenError(f"node {cluster.nodes[node].name} has no GPU {mask:b}.")
            for gpu in range(mask.bit_length()):
                if not mask >> gpu & 1:
                    continue
                sharing = holders.setdefault((node, gpu), set())
                if kind == 0:
                    sharing.discard(position)
                    continue
                sharing.add(position)
                _check_sharing(workload, outcome, sharing, f"GPU {gpu} of node {node} at {time}")


def _check_sharing(workload: Workload, outcome: Outcome, sharing: set[int], where: str) -> None:
    if len(sharing) == 1:
        return
    sharers = [outcome.segments[position] for position in sharing]
    shares = [workload.jobs[segment.job].share for segment in sharers]
    if all(share < 1.0 for share in shares):
        if sum(shares) > 1.0 + 1e-6:
            raise LawBrokenError(f"{where} is given to several jobs at once.")
    elif (
        len(sharers) > _SHARERS
        or any(segment.kind == "profile" for segment in sharers)
        or all(segment.kind != "packed" for segment in sharers)
        or len({segment.allocation for segment in sharers}) > 1
    ):
        raise LawBrokenError(f"{where} is used by two jobs that do not share it.")


# Laws of rare events: constraints, odd ends, evictions, loans, moves, outages.


def check_laws(workload: Workload, cluster: Cluster, outcome: Outcome) -> None:
    """Check the laws of all rare events. Raises `LawBrokenError` for the first that is broken."""
    check_constraints(workload, cluster, outcome)
    check_endings(workload, outcome)
    check_evictions(workload, outcome)
    check_loans(workload, cluster, outcome)
    check_moves(workload, outcome)
    check_outages(cluster, outcome)


# Pods, labels, switches and groups that keep apart.


def check_constraints(workload: Workload, cluster: Cluster, outcome: Outcome) -> None:
    """Check that every job ran where its constraints allow, and not with a job that it avoids.

    Raises `LawBrokenError`.
    """
    if workload.requests.values("constraints") is None:
        return
    jobs = workload.jobs
    periods = [
        (period.job, period.start, period.end, period.allocation)
        for period in (*outcome.segments, *outcome.ledger.holds)
        if jobs[period.job].constraints is not None
    ]
    for index, _, _, allocation in periods:
        _check_place(jobs[index], cluster, allocation)
    changes = sorted(
        (time, kind, node, index)
        for index, start, end, allocation in periods
        if end > start
        for node, _ in allocation
        for time, kind in ((end, 0), (start, 1))
    )
    there: dict[int, Counter[int]] = {}
    for time, kind, node, index in changes:
        beside = there.setdefault(node, Counter())
        if kind == 0:
            beside[index] -= 1
            continue
        for other, count in beside.items():
            if count > 0 and other != index and _keep_apart(jobs[index], jobs[other]):
                raise LawBrokenError(
                    f"jobs {jobs[index].id} and {jobs[other].id} keep apart, and shared node "
                    f"{cluster.nodes[node].name} at {time}."
                )
        beside[index] += 1


def _check_place(job: Job, cluster: Cluster, allocation: Allocation) -> None:
    asked = job.constraints
    assert asked is not None
    nodes = [cluster.nodes[node] for node, _ in allocation]
    for node in nodes:
        missing = [label for label in asked.require if label not in node.labels]
        if missing:
            raise LawBrokenError(
                f"job {job.id} asks for {missing[0][0]}={missing[0][1]}; node {node.name} is none."
            )
    if asked.within_switch and len({node.switch for node in nodes}) > 1:
        raise LawBrokenError(f"job {job.id} asks for one switch and was below several.")
    if not asked.pods or job.share != 1.0:
        return
    each = job.gpus // asked.pods
    for node, (_, mask) in zip(nodes, allocation, strict=True):
        gpus = mask.bit_count()
        if gpus % each:
            raise LawBrokenError(
                f"job {job.id} has pods of {each} GPUs, and {gpus} GPUs of {node.name}."
            )
        if asked.group and asked.group in asked.avoid and gpus > each:
            raise LawBrokenError(f"two pods of job {job.id} keep apart, and shared {node.name}.")


def _keep_apart(job: Job, neighbour: Job) -> bool:
    first, second = job.constraints, neighbour.constraints
    assert first is not None
    assert second is not None
    return (bool(second.group) and second.group in first.avoid) or (
        bool(first.group) and first.group in second.avoid
    )


# Jobs without an ordinary end (dropped, endless, stopped by the horizon) or start (running
# already).


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
    for segment in outcome.segments:
        job = workload.jobs[segment.job]
        if segment.end > ledger.horizon:
            raise LawBrokenError(f"job {job.id} ran at {segment.end}, after the simulation's end.")
        if segment.job in ledger.dropped and segment.end > ledger.dropped[segment.job].time:
            raise LawBrokenError(f"job {job.id} ran after it had been dropped.")
        if segment.job in workload.initial and segment.job not in first:
            first.add(segment.job)
            if (
                segment.start != job.submit_time
                or segment.allocation != workload.initial[segment.job]
            ):
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


# Audit of evicted jobs and the work they lost.


def check_evictions(workload: Workload, outcome: Outcome) -> None:
    """Check that an eviction takes no longer than its grace time, and that no job gains work.

    A job that saved its work or set its checkpoints loses no more than these leave. Raises
    `LawBrokenError`.
    """
    segments = outcome.segments
    for position, eviction in outcome.ledger.evictions.items():
        job = workload.jobs[eviction.job]
        ended = segments[position]
        if (ended.job, ended.end) != (eviction.job, eviction.left):
            raise LawBrokenError(
                f"job {job.id} was evicted at {eviction.left} while it did not run."
            )
        if not ended.start <= eviction.asked <= eviction.left:
            raise LawBrokenError(f"job {job.id} left its GPUs before it was asked to.")
        if eviction.left - eviction.asked > eviction.grace_s * (1 + 1e-9) + 1e-6:
            raise LawBrokenError(
                f"job {job.id} held its GPUs for {eviction.left - eviction.asked} s after it was "
                f"asked to leave them within {eviction.grace_s} s."
            )
        if eviction.kept > eviction.done:
            raise LawBrokenError(f"job {job.id} gained work by an eviction.")
        if eviction.saves and not same_but_for_rounding(eviction.done, eviction.kept):
            raise LawBrokenError(
                f"job {job.id} saved its work, and lost {eviction.done - eviction.kept}."
            )
        every = job.terms.checkpoint_s if job.terms is not None else None
        if every is not None and eviction.done - eviction.kept > every * (1 + 1e-9) + 1e-6:
            raise LawBrokenError(
                f"job {job.id} makes a checkpoint every {every} s, and lost "
                f"{eviction.done - eviction.kept}."
            )


# GPUs that are lent: by jobs that do not use them, and by other virtual clusters.


def in_use(outcome: Outcome) -> Outcome:
    """The segments by the users of GPUs instead of their owners.

    A job does not use what it lends; where it is being started it does not run yet, but no other
    job may. So no GPU is used twice.
    """
    ledger = outcome.ledger
    if not (ledger.loans or ledger.holds):
        return outcome
    loans: dict[int, list[Loan]] = {}
    for loan in sorted(ledger.loans, key=lambda loan: loan.start):
        loans.setdefault(loan.job, []).append(loan)
    used = Segments()
    for segment in outcome.segments:
        start = segment.start
        for loan in loans.get(segment.job, ()):
            if segment.start <= loan.start and loan.back <= segment.end:
                used.append(segment._replace(start=start, end=loan.start))
                start = loan.back
                if kept := without(segment.allocation, loan.allocation):
                    used.append(segment._replace(start=loan.start, end=start, allocation=kept))
        used.append(segment._replace(start=start))
    for hold in ledger.holds:
        used.append(Segment(hold.job, hold.start, hold.end, hold.allocation, 0.0, "run"))
    return outcome._replace(segments=used)


def check_loans(workload: Workload, cluster: Cluster, outcome: Outcome) -> None:
    """Check that GPUs are lent within the trace's windows, or are idle in a job's phase, by the
    jobs that hold them, to jobs that may borrow them.

    Raises `LawBrokenError`.
    """
    loans, segments = outcome.ledger.loans, outcome.segments
    if not loans and KINDS.index("loan") not in segments.kinds:
        return
    lent: dict[int, list[Loan]] = {}
    for loan in loans:
        name = workload.jobs[loan.job].id
        windows = workload.standby.get(loan.job, [])
        if loan.job not in workload.phases and not any(
            start == loan.start and loan.called <= until for start, until in windows
        ):
            raise LawBrokenError(f"job {name} lent its GPUs at {loan.start}, in no window of its.")
        if not loan.start <= loan.called <= loan.back:
            raise LawBrokenError(f"job {name} had its GPUs back before it wanted them.")
        for node, _ in loan.allocation:
            lent.setdefault(node, []).append(loan)
    lender_segments: dict[int, dict[int, Segment]] = {loan.job: {} for loan in loans}
    borrowers = []
    for position, segment in enumerate(outcome.segments):
        if segment.job in lender_segments:
            lender_segments[segment.job][position] = segment
        if segment.kind == "loan" or any(node in lent for node, _ in segment.allocation):
            borrowers.append(segment)
    for loan in loans:
        if not any(
            segment.start <= loan.start
            and loan.back <= segment.end
            and (loan.job in workload.phases or segment.allocation == loan.allocation)
            for segment in lender_segments[loan.job].values()
        ):
            raise LawBrokenError(
                f"job {workload.jobs[loan.job].id} lent GPUs at {loan.start} that it did not hold."
            )
    for index in workload.phases.keys() & lender_segments.keys():
        theirs = [loan for loan in loans if loan.job == index]
        _check_phases(workload, outcome, theirs, lender_segments[index])
    for segment in borrowers:
        _check_borrower(workload, cluster, segment, lent)


def _check_phases(
    workload: Workload, outcome: Outcome, loans: list[Loan], segments: Mapping[int, Segment]
) -> None:
    """Check that a job lends what each phase leaves idle, exactly until the phase ends, and that it
    does not work while it waits to have it back."""
    index = loans[0].job
    phases, name, done = workload.phases[index], workload.jobs[index].id, 0.0
    for position, segment in segments.items():
        theirs = [one for one in loans if segment.start <= one.start and one.back <= segment.end]
        # Time in which it did not work: its start, its last minutes if it was asked to stop, waits.
        waits = sum(one.back - one.called for one in theirs)
        idle_s = segment.end - segment.start - waits - segment.work
        at, before = segment.start, done
        for loan in theirs:
            gained = loan.done - before
            if not -_HAIR_S <= gained <= loan.start - at + _HAIR_S:
                raise LawBrokenError(f"job {name} worked while it waited for GPUs that it lent.")
            begun, left = _phase_of(workload, index, loan.done)
            gpus, lent = _gpus_of(segment.allocation), _gpus_of(loan.allocation)
            used = phases[begun].gpus
            if lent != (gpus[:-used] if begun % 2 else gpus[used:]):
                raise LawBrokenError(f"job {name} lent GPUs at {loan.start} that its phase uses.")
            lasted = loan.called - loan.start
            early = lasted < left - _HAIR_S and loan.called != segment.end
            if early or lasted > left + max(idle_s, 0.0) + _HAIR_S:
                raise LawBrokenError(
                    f"job {name} lent GPUs for {lasted} s in a phase that lasts {left} s more."
                )
            before, at = loan.done, loan.start + loan.back - loan.called
        done += segment.work
        if done - before > segment.end - at + _HAIR_S:
            raise LawBrokenError(f"job {name} worked while it waited for GPUs that it lent.")
        if position in outcome.failures:
            again = outcome.failures[position][1]
            done = done if again is None else again.work


_HAIR_S = 1e-3


def _gpus_of(allocation: Allocation) -> list[tuple[int, int]]:
    return [(node, gpu) for node, mask in allocation for gpu in range(mask.bit_length())
            if mask >> gpu & 1]  # fmt: skip


def _phase_of(workload: Workload, index: int, done: float) -> tuple[int, float]:
    """The number of a job's phase after this much work, and how long it still lasts [s]."""
    phases = workload.phases[index]
    rest = done % sum(phase.work_s for phase in phases)
    for number, phase in enumerate(phases):
        if rest < phase.work_s - _HAIR_S / 2:
            return number, min(phase.work_s - rest, workload.duration_s[index] - done)
        rest -= phase.work_s
    return 0, min(phases[0].work_s, workload.duration_s[index] - done)


def _check_borrower(
    workload: Workload, cluster: Cluster, segment: Segment, lent: dict[int, list[Loan]]
) -> None:
    job = workload.jobs[segment.job]
    for node, mask in segment.allocation:
        offered = 0
        for loan in lent.get(node, ()):
            theirs = _mask(loan.allocation, node) & mask
            # A lender can end at the instant at which others get what it lends.
            if (
                loan.job == segment.job
                or not theirs
                or not loan.start <= segment.start <= loan.back
            ):
                continue
            offered |= theirs
            if segment.start == loan.back:
                continue
            if segment.kind != "loan":
                if segment.end <= loan.start:  # it came and went before, at the same instant
                    continue
                raise LawBrokenError(f"job {job.id} took GPUs that another lends.")
            if loan.called <= segment.start:
                raise LawBrokenError(f"job {job.id} borrowed GPUs that were wanted back.")
        others = cluster.nodes[node].vc not in ("", job.vc)
        if segment.kind == "loan" and not others and offered != mask:
            raise LawBrokenError(f"job {job.id} borrowed GPUs that no job lends.")


def _mask(allocation: Allocation, node: int) -> int:
    return next((mask for at, mask in allocation if at == node), 0)


# Jobs that are started on new GPUs before they leave the old ones.


def check_moves(workload: Workload, outcome: Outcome) -> None:
    """Check that a job that is started elsewhere runs meanwhile, on the same number of GPUs.

    It moves there or stays. Raises `LawBrokenError`.
    """
    holds = outcome.ledger.holds
    if not holds:
        return
    moved = {segment.job for segment in holds}
    ran: dict[int, list[Segment]] = {index: [] for index in moved}
    for segment in outcome.segments:
        if segment.job in moved:
            ran[segment.job].append(segment)
    for hold in holds:
        name = workload.jobs[hold.job].id
        during = [
            segment
            for segment in ran[hold.job]
            if segment.start <= hold.start and hold.end <= segment.end
        ]
        if hold.end < hold.start or not during:
            raise LawBrokenError(f"job {name} was brought up elsewhere while it did not run.")
        if gpus_in(hold.allocation) != gpus_in(during[0].allocation):
            raise LawBrokenError(f"job {name} was moved to another number of GPUs.")
        if hold.moved and not any(
            segment.start == hold.end and segment.allocation == hold.allocation
            for segment in ran[hold.job]
        ):
            raise LawBrokenError(f"job {name} was brought up on GPUs on which it did not go on.")


# Nodes that are drained or down.


def check_outages(cluster: Cluster, outcome: Outcome) -> None:
    """Check that no job gets GPUs of a drained node, except to share them, or holds GPUs of one
    that is down.

    Raises `LawBrokenError`.
    """
    outages: dict[int, list[Outage]] = {}
    for outage in outcome.ledger.outages:
        if not outage.closed <= outage.down <= outage.up:
            # One that was to come after the end of the simulation never did.
            raise LawBrokenError(
                f"node {cluster.nodes[outage.node].name} came back before it went."
            )
        outages.setdefault(outage.node, []).append(outage)
    if not outages:
        return
    for period in (*outcome.segments, *outcome.ledger.holds):
        for node, _ in period.allocation:
            for out in outages.get(node, ()):
                joined = isinstance(period, Segment) and period.kind == "packed"
                if (out.down if joined else out.closed) <= period.start < out.up:
                    raise LawBrokenError(
                        f"a job started on node {cluster.nodes[node].name} at {period.start}, "
                        f"which was closed from {out.closed} to {out.up}."
                    )
                if period.start < out.down < period.end:
                    raise LawBrokenError(
                        f"a job held GPUs of node {cluster.nodes[node].name} until {period.end}, "
                        f"which was down from {out.down} on."
                    )


# The error raised when a law is broken, and the tolerance for rounding.


class LawBrokenError(SchedmateError):
    """A simulation broke a law of conservation: a bug in the simulator, never in its input."""


def same_but_for_rounding(one: float, other: float) -> bool:
    """Whether two times or amounts of work are the same but for rounding."""
    return abs(one - other) <= 1e-6 * max(1.0, abs(one))


# Selects the jobs and GPUs of a run that an audit has to check one by one.
#
# All others are proved at once, in columns. What is not plainly correct is left to the audit,
# which alone decides: for example, two jobs on one GPU may be correct.


Flags = NDArray[np.bool_]

_PLAIN = {"name", "user", "vc", "gpu_type", "cpus", "memory_mb", "priority", "time_limit_s"}
_PLAIN |= {"share", "min_gpus", "max_gpus", "preemptible", "migratable"}
"""Requests that are supported here."""
_RECORDED = {
    *("first_start", "end", "held_s", "segments", "events", "decisions", "failures", "work"),
    *("bad_estimates", "assumed_s", "counts"),
}
"""Fields of an outcome that are supported here."""
_AT_ONCE = 1 << 20
"""Rows sorted at once."""


def doubtful_jobs(
    workload: Workload, cluster: Cluster, outcome: Outcome, holdings: HeldGpus
) -> Flags:
    """Whether each job is not plainly in order."""
    requests, count = workload.requests, len(workload)
    recorded: Sequence[Segment] = outcome.segments
    usual = outcome._field_defaults
    unknown = [
        name
        for name in outcome._fields
        if name not in _RECORDED and getattr(outcome, name) != usual.get(name)
    ]
    if unknown or not (isinstance(recorded, Segments) and requests.only(_PLAIN)):
        return np.ones(count, bool)
    jobs, starts, ends = holdings.jobs, holdings.starts, holdings.ends
    odd = np.zeros(len(jobs), bool)
    odd |= np.frombuffer(bytes(outcome.segments.kinds), np.uint8) >= len(_KNOWN)
    odd |= ~(starts >= requests.submit_s[jobs]) | ~(ends >= starts)
    order = np.argsort(jobs, kind="stable")
    same = jobs[order][1:] == jobs[order][:-1]
    odd[order[1:]] |= same & ~(starts[order][1:] >= ends[order][:-1])
    odd |= holdings.each(gpus_in) != requests.gpus[jobs]
    odd |= _elsewhere(workload, cluster, holdings)
    doubt = np.zeros(count, bool)
    doubt[jobs[odd]] = True
    doubt[[jobs[position] for position in outcome.failures if position < len(jobs)]] = True
    done = np.bincount(jobs, holdings.works, count)
    time = np.bincount(jobs, ends - starts, count)
    last = np.full(count, -np.inf)
    last[jobs[order]] = ends[order]  # the last of each job stays
    needed, stated = np.asarray(outcome.work, float), np.asarray(outcome.held_s, float)
    doubt |= (
        ~_strictly_same(needed, done)
        | ~_strictly_same(time, stated)
        | (np.asarray(outcome.end) != last)
    )
    return doubt


_KNOWN = KINDS[:3]


def _strictly_same(one: NDArray[Any], other: NDArray[Any]) -> Flags:
    """Stricter than the audit, which adds in another order."""
    flags: Flags = np.abs(one - other) <= 0.5e-6 * np.maximum(1.0, one)
    return flags


def _elsewhere(workload: Workload, cluster: Cluster, holdings: HeldGpus) -> Flags:
    """Whether a segment is on a node of another GPU type or virtual cluster than it may be."""
    misplaced = np.zeros(len(holdings.jobs), bool)
    requests = workload.requests
    numbers: dict[str, int] = {"": 0}

    def codes(names: Sequence[str]) -> Ints:
        return np.array([numbers.setdefault(name, len(numbers)) for name in names], np.int64)

    has_vcs = any(node.vc for node in cluster.nodes)
    types = requests.values("gpu_type")
    if types is None and not has_vcs:
        return misplaced
    segment, (node,) = HeldPieces(holdings, _nodes).rows()
    job = holdings.jobs[segment]
    if types is not None:
        asked = codes(types)[job]
        got = codes([node_.gpu_type for node_ in cluster.nodes])[node]
        misplaced[segment[(asked != 0) & (got != 0) & (got != asked)]] = True
    if has_vcs:
        own = codes(workload.vcs or [""] * len(workload))[job]
        at = codes([node_.vc for node_ in cluster.nodes])[node]
        misplaced[segment[(at != 0) & (at != own)]] = True
    return misplaced


def _nodes(allocation: Allocation) -> Iterator[tuple[int, ...]]:
    return ((node,) for node, _ in allocation)


def doubtful_segments(cluster: Cluster, holdings: HeldGpus) -> Ints:
    """The segments that share a GPU with another at some time, or name one that is not there."""
    stride = max(node.gpus for node in cluster.nodes)
    nodes = len(cluster.nodes)
    lasts = holdings.ends > holdings.starts
    strange = np.array(
        [
            not all(
                0 <= node < nodes and 0 <= mask >> cluster.nodes[node].gpus == 0
                for node, mask in allocation
            )
            for allocation in holdings.allocations
        ],
        bool,
    )[holdings.code]
    doubtful = strange & lasts
    pieces = HeldPieces(holdings, lambda allocation: _gpu_numbers(allocation, stride))
    gpu = pieces.columns[0]
    blocks = pieces.count() // _AT_ONCE + 1
    per_block = -(-stride * nodes // blocks)
    for block in range(blocks):
        chosen = gpu // per_block == block
        segment, (which,) = pieces.rows(chosen)
        _mark_shared(segment[lasts[segment]], which[lasts[segment]], holdings, doubtful)
    return np.flatnonzero(doubtful)


def _gpu_numbers(allocation: Allocation, stride: int) -> Iterator[tuple[int, ...]]:
    for node, mask in allocation:
        for gpu in range(min(mask.bit_length(), stride)):
            if mask >> gpu & 1:
                yield (node * stride + gpu,)


def _mark_shared(segment: Ints, gpu: Ints, holdings: HeldGpus, doubtful: Flags) -> None:
    """Mark the segments that overlap with another on one of these GPUs."""
    order = np.lexsort((holdings.starts[segment], gpu))
    segment, gpu = segment[order], gpu[order]
    starts, ends = holdings.starts[segment], holdings.ends[segment]
    # Where any two overlap on a GPU, two that follow each other do.
    overlap = (gpu[1:] == gpu[:-1]) & ~(starts[1:] >= ends[:-1])
    for one in sorted({*gpu[1:][overlap].tolist()}):
        first, last = np.searchsorted(gpu, (one, one + 1))
        until = np.maximum.accumulate(ends[first:last])
        begins = np.concatenate(([True], starts[first + 1 : last] >= until[:-1]))
        group = np.cumsum(begins) - 1
        doubtful[segment[first:last][np.bincount(group)[group] > 1]] = True
