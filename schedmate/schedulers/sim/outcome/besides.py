"""Numbers of what few simulations have: evictions, loans, moves, deadlines, jobs that never end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from schedmate.schedulers.model import Job, gpus_in
from schedmate.schedulers.sim.engine.ledger import Ledger
from schedmate.schedulers.sim.engine.record import Outcome, Segments
from schedmate.schedulers.sim.workload import Workload
from schedmate.schedulers.terms import NEVER

HOUR = 3600.0


def besides(workload: Workload, outcome: Outcome) -> dict[str, Any]:
    """Numbers of rare events, only those that occurred; empty for a run of ordinary jobs.

    GPU hours if the name says so.
    """
    ledger = outcome.ledger
    numbers: dict[str, Any] = {}
    open_jobs = sum(1 for end in outcome.end if end == NEVER)
    if open_jobs:
        numbers["unended"] = open_jobs
        numbers["dropped"] = len(ledger.dropped)
    if workload.requests.values("terms") is not None:
        numbers |= _by_terms(workload, outcome)
    if any(one.grace_s for one in ledger.evictions.values()) or numbers:
        numbers["evicted_lost_gpu_h"] = _lost(workload, ledger)
    if ledger.holds:
        numbers["moving_gpu_h"] = _gpu_h(
            (one.start, one.end, gpus_in(one.allocation)) for one in ledger.holds
        )
    if ledger.loans:
        numbers |= _lending(outcome)
    if ledger.outages:
        numbers["outages"] = len(ledger.outages)
    if ledger.refused:
        numbers["refused"] = dict(sorted(ledger.refused.items()))
    return numbers


def of_ended(workload: Workload, outcome: Outcome) -> tuple[Workload, Outcome]:
    """The jobs that ended alone, and what happened to them."""
    kept = [position for position, end in enumerate(outcome.end) if end < NEVER]
    place = {old: new for new, old in enumerate(kept)}
    segments, positions = Segments(), {}
    for position, one in enumerate(outcome.segments):
        if one.job in place:
            positions[position] = len(segments)
            segments.append(one._replace(job=place[one.job]))
    cut = outcome._replace(
        first_start=[outcome.first_start[old] for old in kept],
        end=[outcome.end[old] for old in kept],
        held_s=[outcome.held_s[old] for old in kept],
        segments=segments,
        work=[outcome.work[old] for old in kept],
        failures={
            positions[at]: (failure._replace(job=place[failure.job]), again)
            for at, (failure, again) in outcome.failures.items()
            if at in positions
        },
        assumed_s=[outcome.assumed_s[old] for old in kept] if outcome.assumed_s else (),
        counts={name: [each[old] for old in kept] for name, each in outcome.counts.items()},
    )
    selected = workload.select(kept)
    return selected, cut


def _by_terms(workload: Workload, outcome: Outcome) -> dict[str, Any]:
    numbers: dict[str, Any] = {}
    low = [job.terms is not None and job.terms.low for job in workload.jobs]
    if any(low):
        numbers["by_class"] = {
            name: _class(workload, outcome, [job for job, is_low in pairs if is_low is want])
            for name, want in (("high", False), ("low", True))
            if (pairs := list(zip(workload.jobs, low, strict=True)))
        }
    due = [job for job in workload.jobs if job.terms is not None and job.terms.deadline < NEVER]
    if due:
        met = sum(outcome.end[job.index] <= _deadline(job) for job in due)
        numbers["deadlines"] = {"jobs": len(due), "met": met, "missed": len(due) - met}
    return numbers


def _class(workload: Workload, outcome: Outcome, jobs: list[Job]) -> dict[str, float]:
    ended = [job for job in jobs if outcome.end[job.index] < NEVER]
    jct = np.array([outcome.end[job.index] - job.submit_time for job in ended])
    queue = np.maximum(jct - np.array([outcome.held_s[job.index] for job in ended]), 0.0)
    return {
        "jobs": len(jobs),
        "avg_jct_h": float(jct.mean()) / HOUR if ended else 0.0,
        "avg_queue_h": float(queue.mean()) / HOUR if ended else 0.0,
        "p99_queue_h": float(np.percentile(queue, 99)) / HOUR if ended else 0.0,
        "evictions": sum(job.evictions for job in jobs),
        "gpu_h": sum(outcome.held_s[job.index] * job.gpus * job.share for job in jobs) / HOUR,
    }


def _deadline(job: Job) -> float:
    return NEVER if job.terms is None else job.terms.deadline


def _lost(workload: Workload, ledger: Ledger) -> float:
    return (
        sum(
            (one.done - one.kept) * workload.jobs[one.job].gpus for one in ledger.evictions.values()
        )
        / HOUR
    )


def _lending(outcome: Outcome) -> dict[str, float]:
    """GPU hours that were lent, those of them that were used, and the wait to have them back."""
    loans = outcome.ledger.loans
    by_node: dict[int, list[tuple[float, float, int]]] = {}
    for loan in loans:
        for node, mask in loan.allocation:
            by_node.setdefault(node, []).append((loan.start, loan.back, mask))
    used = 0.0
    for one in outcome.segments:
        if one.kind == "loan":
            for node, mask in one.allocation:
                for start, end, lent in by_node.get(node, ()):
                    overlap = min(end, one.end) - max(start, one.start)
                    used += max(0.0, overlap) * (mask & lent).bit_count()
    return {
        "lent_gpu_h": _gpu_h((one.start, one.called, gpus_in(one.allocation)) for one in loans),
        "borrowed_gpu_h": used / HOUR,
        "longest_wait_for_lent_s": max(one.back - one.called for one in loans),
    }


def _gpu_h(held: Iterable[tuple[float, float, int]]) -> float:
    return sum((end - start) * gpus for start, end, gpus in held) / HOUR
