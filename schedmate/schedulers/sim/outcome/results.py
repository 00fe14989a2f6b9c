"""What a run leaves behind: its numbers, a row a job, and a row a stretch of GPUs held.

Both tables are columns of equal length.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from schedmate.schedulers.sim.tables import Table
from schedmate.schedulers.sim.workload import Workload

if TYPE_CHECKING:
    from schedmate.schedulers.sim.runs import Run

JOBS: Mapping[str, type] = {
    "job_id": str,
    "vc": str,
    "user": str,
    "gpus": int,
    "submit_s": float,
    "start_s": float,  # of the first run, profiling included
    "end_s": float,
    "jct_s": float,
    "queue_s": float,
    "predicted_s": float,  # what the policy was told last; NaN: nothing
    "duration_s": float,  # alone on the GPUs asked for
    "packed": int,  # 1: joined another job at least once
    "preemptions": int,
    "evictions": int,
    "failures": int,
}
"""Columns of `jobs.csv` and `jobs.parquet`, in order of submission; times in seconds."""

SEGMENTS: Mapping[str, type] = {
    "job": int,  # row of the table of jobs, from 0
    "kind": str,  # run, packed (it joined another job) or profile
    "start_s": float,
    "end_s": float,
    "node": int,  # position in the cluster
    "first_gpu": int,
    "gpus": float,  # from the first on; below 1: a part of that one
    "failed": int,  # 1: a failure of the job or its node ended it
    "useful_s": float,  # what of it was done and kept, as seconds alone; NaN: not known
}
"""Columns of `segments.csv` and `segments.parquet`: who held which GPUs of a node, and when."""


@dataclass(frozen=True)
class Result:
    """One run of one policy; `numbers` is its part of the JSON document."""

    numbers: dict[str, Any]
    jobs: Table
    segments: Table


def result_of(run: Run, workload: Workload) -> Result:
    """From what a simulation recorded, before the jobs of the workload are used again."""
    jobs, outcome, per_job = workload.jobs, run.outcome, run.per_job
    forecasts = [job.forecast for job in jobs]
    rows: dict[str, Any] = {
        "job_id": [job.id for job in jobs],
        "vc": workload.vcs or [""] * len(jobs),
        "user": [job.user for job in jobs],
        "gpus": per_job.gpus,
        "submit_s": [job.submit_time for job in jobs],
        "start_s": outcome.first_start,
        "end_s": outcome.end,
        "jct_s": per_job.jct_s,
        "queue_s": per_job.queue_s,
        "predicted_s": [one.duration_s if one else np.nan for one in forecasts],
        "duration_s": workload.duration_s,
        "packed": per_job.packed,
        "preemptions": [job.preemptions for job in jobs],
        "evictions": [job.evictions for job in jobs],
        "failures": [job.failures for job in jobs],
    }
    stretches = []
    useful = np.full(len(outcome.segments), np.nan) if run.spent is None else run.spent.useful
    for number, (one, kept) in enumerate(zip(outcome.segments, useful.tolist(), strict=True)):
        failed = number in outcome.failures
        share = jobs[one.job].share
        for node, mask in one.allocation:
            for first, count in runs_of(mask):
                held = count if share >= 1 else share
                when = (one.start, one.end)
                stretches.append((one.job, one.kind, *when, node, first, held, failed, kept))
    columns = list(zip(*stretches, strict=True)) or [()] * len(SEGMENTS)
    return Result(
        run.numbers,
        {name: np.array(rows[name], dtype=kind) for name, kind in JOBS.items()},
        {
            name: np.array(values, dtype=kind)
            for (name, kind), values in zip(SEGMENTS.items(), columns, strict=True)
        },
    )


def runs_of(mask: int) -> list[tuple[int, int]]:
    """The runs of consecutive GPUs in a bit mask, as (first, how many)."""
    found, position = [], 0
    while mask:
        skip = (mask & -mask).bit_length() - 1
        mask >>= skip
        count = (~mask & (mask + 1)).bit_length() - 1
        found.append((position + skip, count))
        mask >>= count
        position += skip + count
    return found
