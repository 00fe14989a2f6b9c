"""The numbers of a run: summary, one row for each job, where GPU time went, and fairness.

JCT: end less submission. Queueing delay: the part of it in which the job held no GPU. Makespan:
last end less first submission. Utilisation: GPU time held over GPU time available.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schedmate.base.errors import InputError
from schedmate.schedulers.model import NEVER, Allocation, Cluster, Job, gpus_in
from schedmate.schedulers.sim.record import KINDS, Ledger, Outcome, Segments
from schedmate.schedulers.sim.workload import Workload

HOUR = 3600.0
SIZES = ((1, 1, "1 GPU"), (2, 8, "2-8 GPUs"), (9, 1 << 62, "over 8 GPUs"))
"""Size classes by which results are broken down."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class PerJob:
    """Columns by position in the workload, all times in seconds."""

    jct_s: Floats
    queue_s: Floats
    gpus: NDArray[np.int64]
    packed: NDArray[np.bool_]
    preemptions: NDArray[np.int64]

    @classmethod
    def of(cls, workload: Workload, outcome: Outcome) -> PerJob:
        """From what a simulation recorded."""
        requests, none = workload.requests, np.zeros(len(workload), np.int64)
        jct = np.array(outcome.end) - requests.submit_s
        packed = np.zeros(len(workload), dtype=bool)
        packed[np.array(outcome.segments.jobs)[_joined(outcome)]] = True
        return cls(
            jct,
            np.maximum(0.0, jct - np.array(outcome.held_s)),
            requests.gpus,
            packed,
            np.array(outcome.counts.get("preemptions", none)),
        )


def summary(
    workload: Workload, cluster: Cluster, outcome: Outcome, per_job: PerJob, spent: Spent | None
) -> dict[str, Any]:
    """The numbers of one run; in hours if the name says `_h`.

    Times of jobs are of those that ended; `besides` counts those that did not.
    """
    if NEVER in outcome.end:
        return _of_ended(workload, cluster, outcome)
    makespan = float(np.max(outcome.end) - workload.requests.submit_s[0])
    gpus = gpus_held(workload, outcome) if spent is None else spent.gpus
    held_gpu_s = _held_gpu_s(outcome, gpus)
    rare = rare_numbers(workload, outcome)
    return {
        **_distribution(per_job.jct_s / HOUR, per_job.queue_s / HOUR),
        "makespan_h": makespan / HOUR,
        "utilisation": _utilisation(cluster, held_gpu_s, rare, makespan),
        "gpu_time_h": None if spent is None else spent.hours(held_gpu_s),
        "fairness": fairness(workload, per_job.jct_s),
        "preemptions": outcome.decisions.get("Preempt", 0),
        "evictions": outcome.decisions.get("Evict", 0),
        "failures": len(outcome.failures),
        "failed": sum(again is None for _, again in outcome.failures.values()),
        "profiled": outcome.decisions.get("Profile", 0),
        "packed": int(per_job.packed.sum()),
        "bad_estimates": outcome.bad_estimates,
        "events": outcome.events,
        "by_size": {
            label: _part(per_job, chosen)
            for low, high, label in SIZES
            if (chosen := (per_job.gpus >= low) & (per_job.gpus <= high)).any()
        },
        "by_vc": _by_vc(workload, per_job),
        **rare,
    }


def _utilisation(
    cluster: Cluster, held_gpu_s: float, rare: dict[str, Any], makespan: float
) -> float:
    """Share of the cluster's GPU time that jobs held; what one lent to another counts once."""
    held_gpu_s -= HOUR * rare.get("borrowed_gpu_h", 0.0)
    return held_gpu_s / (cluster.gpus * makespan) if makespan else 0.0


def _of_ended(workload: Workload, cluster: Cluster, outcome: Outcome) -> dict[str, Any]:
    """The summary if some jobs never ended: times of the others, but all GPU time."""
    jobs, cut = ended_only(workload, outcome._replace(ledger=Ledger()))
    if not len(jobs):
        raise InputError(
            "no job of the trace ended, so there is nothing to measure; take a longer trace, or a "
            "policy under which some job can end."
        )
    numbers = summary(jobs, cluster, cut, PerJob.of(jobs, cut), None)
    makespan = max(outcome.segments.ends) - workload.jobs[0].submit_time
    held_gpu_s = _held_gpu_s(outcome, gpus_held(workload, outcome))
    rare = rare_numbers(workload, outcome)
    numbers["makespan_h"] = makespan / HOUR
    numbers["utilisation"] = _utilisation(cluster, held_gpu_s, rare, makespan)
    return numbers | rare


_PERCENTILES = {"median": 50.0, "p90": 90.0, "p99": 99.0, "p999": 99.9}


def paired_difference(
    one: Floats, other: Floats, seed: int = 0, rounds: int = 1000
) -> tuple[float, float, float]:
    """Mean of `one - other` over the same jobs, and its 95 % bootstrap interval."""
    difference = one - other
    generator = np.random.default_rng(seed)
    count = len(difference)
    means = np.array(
        [difference[generator.integers(0, count, count)].mean() for _ in range(rounds)]
    )
    low, high = np.percentile(means, (2.5, 97.5))
    return float(difference.mean()), float(low), float(high)


def _held_gpu_s(outcome: Outcome, each: Floats) -> float:
    """GPU time held [s], by the GPUs of each segment."""
    segments = outcome.segments
    allocations, starts, ends = segments.allocations, segments.starts, segments.ends
    total = float((each * (np.array(ends) - np.array(starts))).sum())
    # A pair holds its GPUs once: the one that joined is not counted while it shares.
    shared = {allocations[position] for position in _joined(outcome).tolist()}
    if shared:
        pairs = [
            position for position, allocation in enumerate(allocations) if allocation in shared
        ]
        until: dict[Allocation, float] = {}
        for position in sorted(pairs, key=starts.__getitem__):
            allocation, start, end = allocations[position], starts[position], ends[position]
            before = until.get(allocation, start)
            total -= each[position] * max(0.0, min(before, end) - start)
            until[allocation] = max(before, end)
    return total


def _joined(outcome: Outcome) -> NDArray[np.int64]:
    """Positions of the segments of jobs that joined another."""
    kinds = outcome.segments.kinds
    return np.flatnonzero(np.array(kinds, np.uint8) == KINDS.index("packed"))


def _distribution(jct_h: Floats, queue_h: Floats) -> dict[str, float]:
    numbers: dict[str, float] = {"jobs": len(jct_h)}
    for name, hours in (("jct", jct_h), ("queue", queue_h)):
        numbers[f"avg_{name}_h"] = float(hours.mean())
        values = np.percentile(hours, list(_PERCENTILES.values()))
        numbers |= {
            f"{p}_{name}_h": float(one) for p, one in zip(_PERCENTILES, values, strict=True)
        }
    return numbers


def _part(per_job: PerJob, chosen: NDArray[np.bool_]) -> dict[str, float]:
    """Times and counts of the chosen jobs."""
    return {
        **_distribution(per_job.jct_s[chosen] / HOUR, per_job.queue_s[chosen] / HOUR),
        "preemptions": int(per_job.preemptions[chosen].sum()),
        "packed": int(per_job.packed[chosen].sum()),
    }


def _by_vc(workload: Workload, per_job: PerJob) -> dict[str, dict[str, float]]:
    kinds = sorted(set(workload.vcs))
    if len(kinds) < 2:
        return {}
    numbers = {name: number for number, name in enumerate(kinds)}
    of_job = np.fromiter(map(numbers.__getitem__, workload.vcs), np.int64, len(workload))
    return {name: _part(per_job, of_job == number) for name, number in numbers.items()}


# Where GPU time went: work that was kept, and what profiling, restarts, failures, sharing took.
#
# Two jobs on the same GPUs each hold them, so that what a pair does can be more than the time that
# its GPUs were held. Only where work is seconds of the trace, not for measured tables
# (`sim/elastic.py`).


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
    allocations = outcome.segments.allocations
    return np.array([float(gpus_in(one)) for one in allocations])


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
    gpus = gpus_held(workload, outcome)
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
        scale = _gpus_requested(workload, outcome) / gpus
        useful, failures = useful * scale, failures * scale
    other = length - restarts - failures - useful
    return Spent(useful, restarts, failures, other, profiling, gpus)


# Numbers of what few simulations have: evictions, loans, moves, deadlines, jobs that never end.


def rare_numbers(workload: Workload, outcome: Outcome) -> dict[str, Any]:
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


def ended_only(workload: Workload, outcome: Outcome) -> tuple[Workload, Outcome]:
    """The jobs that ended alone, and what happened to them."""
    ended = [position for position, end in enumerate(outcome.end) if end < NEVER]
    place = {old: new for new, old in enumerate(ended)}
    segments, positions = Segments(), {}
    for position, segment in enumerate(outcome.segments):
        if segment.job in place:
            positions[position] = len(segments)
            segments.append(segment._replace(job=place[segment.job]))
    cut = outcome._replace(
        first_start=[outcome.first_start[old] for old in ended],
        end=[outcome.end[old] for old in ended],
        held_s=[outcome.held_s[old] for old in ended],
        segments=segments,
        work=[outcome.work[old] for old in ended],
        failures={
            positions[at]: (failure._replace(job=place[failure.job]), again)
            for at, (failure, again) in outcome.failures.items()
            if at in positions
        },
        assumed_s=[outcome.assumed_s[old] for old in ended] if outcome.assumed_s else (),
        counts={name: [each[old] for old in ended] for name, each in outcome.counts.items()},
    )
    selected = workload.select(ended)
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
    for segment in outcome.segments:
        if segment.kind == "loan":
            for node, mask in segment.allocation:
                for start, end, lent in by_node.get(node, ()):
                    overlap = min(end, segment.end) - max(start, segment.start)
                    used += max(0.0, overlap) * (mask & lent).bit_count()
    return {
        "lent_gpu_h": _gpu_h(
            (segment.start, segment.called, gpus_in(segment.allocation)) for segment in loans
        ),
        "borrowed_gpu_h": used / HOUR,
        "longest_wait_for_lent_s": max(segment.back - segment.called for segment in loans),
    }


def _gpu_h(periods: Iterable[tuple[float, float, int]]) -> float:
    return sum((end - start) * gpus for start, end, gpus in periods) / HOUR


# Whether some users or virtual clusters wait for others: how evenly jobs are slowed down.


def fairness(workload: Workload, jct_s: Floats) -> dict[str, dict[str, Any]]:
    """Fairness among users and virtual clusters, if there are several.

    The slowdown of a group is the sum of its jobs' JCTs over the time that they would take alone.
    Jain's index over the groups' slowdowns (Jain et al., 1984) is 1 if all are equal and 1/n if one
    of n has all of it.
    """
    groups = {"user": workload.requests.values("user"), "vc": workload.vcs}
    result = {}
    for kind, names in groups.items():
        group_names = sorted(set(names)) if names is not None else []
        if names is None or len(group_names) < 2:
            continue
        number = {name: position for position, name in enumerate(group_names)}
        which = np.fromiter(map(number.__getitem__, names), np.int64, len(names))
        jct = np.bincount(which, weights=np.asarray(jct_s))
        alone = np.bincount(which, weights=np.asarray(workload.duration_s))
        some = np.flatnonzero(alone > 0)
        if not len(some):
            continue
        slowdown = jct[some] / alone[some]
        worst = some[int(slowdown.argmax())]
        result[kind] = {
            "groups": len(some),
            "jain": float(slowdown.sum() ** 2 / (len(some) * (slowdown**2).sum())),
            "median_slowdown": float(np.median(slowdown)),
            "max_slowdown": float(slowdown.max()),
            "slowest": group_names[worst],
            "slowest_jobs": int((which == worst).sum()),
        }
    return result
