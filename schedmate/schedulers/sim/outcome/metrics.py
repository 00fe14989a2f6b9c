"""Summary numbers of a run, and one row for each job.

JCT: end less submission. Queueing delay: the part of it in which the job held no GPU. Makespan:
last end less first submission. Utilisation: GPU time held over GPU time available.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schedmate.errors import InputError
from schedmate.schedulers.model import Allocation, Cluster
from schedmate.schedulers.sim.engine.ledger import Ledger
from schedmate.schedulers.sim.engine.record import KINDS, Outcome
from schedmate.schedulers.sim.outcome.besides import besides, of_ended
from schedmate.schedulers.sim.outcome.fairness import fairness
from schedmate.schedulers.sim.outcome.spent import Spent, gpus_held
from schedmate.schedulers.sim.workload import Workload
from schedmate.schedulers.terms import NEVER

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
        return _of_ended(workload, cluster, outcome) | besides(workload, outcome)
    makespan = float(np.max(outcome.end) - workload.requests.submit_s[0])
    gpus = gpus_held(workload, outcome) if spent is None else spent.gpus
    held = _held_gpu_s(outcome, gpus)
    return {
        **_distribution(per_job.jct_s / HOUR, per_job.queue_s / HOUR),
        "makespan_h": makespan / HOUR,
        "utilisation": held / (cluster.gpus * makespan) if makespan else 0.0,
        "gpu_time_h": None if spent is None else spent.hours(held),
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
        **besides(workload, outcome),
    }


def _of_ended(workload: Workload, cluster: Cluster, outcome: Outcome) -> dict[str, Any]:
    """The same where some jobs never ended: of the others, but all GPU time."""
    jobs, cut = of_ended(workload, outcome._replace(ledger=Ledger()))
    if not len(jobs):
        raise InputError(
            "no job of the trace ended, so there is nothing to measure; take a longer trace, or a "
            "policy under which some job can end."
        )
    numbers = summary(jobs, cluster, cut, PerJob.of(jobs, cut), None)
    makespan = max(outcome.segments.ends) - workload.jobs[0].submit_time
    held = _held_gpu_s(outcome, gpus_held(workload, outcome))
    numbers["makespan_h"] = makespan / HOUR
    numbers["utilisation"] = held / (cluster.gpus * makespan) if makespan else 0.0
    return numbers


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
        pairs = [position for position, held in enumerate(allocations) if held in shared]
        until: dict[Allocation, float] = {}
        for position in sorted(pairs, key=starts.__getitem__):
            held, start, end = allocations[position], starts[position], ends[position]
            before = until.get(held, start)
            total -= each[position] * max(0.0, min(before, end) - start)
            until[held] = max(before, end)
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
    """The same for some of the jobs."""
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
