"""Parts of a trace, and what a trace holds in figures."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from schedmate.errors import UsageError
from schedmate.schedulers.sim.workload import Workload


def window(workload: Workload, start_s: float, end_s: float) -> Workload:
    """The jobs submitted in [start, end), times since the first submission [s]."""
    first = workload.jobs[0].submit_time
    return _subset(
        workload,
        [
            position
            for position, job in enumerate(workload.jobs)
            if start_s <= job.submit_time - first < end_s
        ],
        "no job was submitted in that window",
    )


def share_of(workload: Workload, names: Sequence[str], share: float, seed: int) -> Workload:
    """All jobs of a share of the names (users, virtual clusters), which are drawn at random.

    `names` has one for each job. What the chosen ones do stays as it was, resubmissions included.
    """
    if not 0 < share <= 1:
        raise UsageError(f"{share:g} must be a share above 0 and up to 1, such as 0.5.")
    there = sorted(set(names))
    if there == [""]:
        raise UsageError(
            "the trace has no users or virtual clusters; draw a number of jobs with --jobs instead."
        )
    wanted = max(1, round(share * len(there)))
    chosen = set(np.random.default_rng(seed).permutation(there)[:wanted].tolist())
    positions = [position for position, name in enumerate(names) if name in chosen]
    return _subset(workload, positions, "no job is left")


def count_of(workload: Workload, count: int, seed: int) -> Workload:
    """`count` jobs drawn at random: arrivals keep their shape and get rarer by the same factor."""
    if not 0 < count <= len(workload):
        raise UsageError(
            f"{count:,} of {len(workload):,} jobs cannot be drawn; give a number from 1 to "
            f"{len(workload)}."
        )
    chosen = np.random.default_rng(seed).choice(len(workload), count, replace=False)
    return workload.select(chosen.tolist())


def up_to(workload: Workload, gpus: float) -> Workload:
    """The jobs that request at most this many GPUs."""
    kept = [at for at, job in enumerate(workload.jobs) if job.gpus * job.share <= gpus]
    return _subset(workload, kept, f"no job asks for {gpus:g} GPUs or fewer")


def facts(workload: Workload) -> dict[str, float]:
    """Statistics of a trace.

    Durations and span in seconds; `load` is how many GPUs its jobs keep busy on average between the
    first and the last submission. Where jobs have users and names, `recurrence` is the share of
    jobs with an earlier one of the same user, name and GPUs, and `spread` the standard deviation of
    the logarithm of run times among those.
    """
    jobs, durations = workload.jobs, workload.duration_s
    span = jobs[-1].submit_time - jobs[0].submit_time
    gpus = [job.gpus * job.share for job in jobs]
    gpu_s = sum(duration * held for duration, held in zip(durations, gpus, strict=True))
    found: dict[str, float] = {
        "jobs": len(jobs),
        "span_s": span,
        "median_s": statistics.median(durations),
        "mean_s": statistics.fmean(durations),
        "max_s": max(durations),
        "mean_gpus": statistics.fmean(gpus),
        "max_gpus": max(gpus),
        "gpu_h": gpu_s / 3600,
        "load_gpus": gpu_s / span if span else float("inf"),
        "vcs": len(set(workload.vcs) - {""}),
        "users": len({job.user for job in jobs} - {""}),
    }
    if any(job.user for job in jobs) and any(job.name for job in jobs):
        table: dict[tuple[str, str, int], int] = {}
        groups = np.array(
            [table.setdefault((job.user, job.name, job.gpus), len(table)) for job in jobs]
        )
        logs = np.log(np.maximum(durations, 1.0))
        none = np.zeros(len(jobs), dtype=bool)
        found["recurrence"], found["spread"] = recurrence_of(groups, logs, none)
    return found


def recurrence_of(
    groups: NDArray[np.int64], logs: NDArray[np.float64], early: NDArray[np.bool_]
) -> tuple[float, float]:
    """How often workloads recur and how far their run times spread.

    Returns the share of jobs that are not the first of their workload, and the standard deviation
    of the logarithms of run times [log s] within workloads, without jobs that ended early.
    """
    recurrence = 1 - len(np.unique(groups)) / len(groups)
    kept, logs = groups[~early], logs[~early]
    if not len(kept):
        return recurrence, 0.0
    sizes = np.bincount(kept)
    means = np.bincount(kept, logs) / np.maximum(sizes, 1)
    freedom = int(len(kept) - (sizes > 0).sum())
    squares = float(((logs - means[kept]) ** 2).sum())
    return recurrence, math.sqrt(squares / freedom) if freedom else 0.0


def _subset(workload: Workload, positions: list[int], otherwise: str) -> Workload:
    if not positions:
        raise UsageError(
            f"{otherwise}; the trace has {len(workload):,} jobs, so ask for less to be cut off."
        )
    return workload.select(positions)
