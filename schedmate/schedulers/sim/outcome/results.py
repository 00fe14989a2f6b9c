"""The results of a run: its numbers, a row for each job, and a row for each period of holding GPUs.

Both tables are columns of equal length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from schedmate.schedulers.model import Allocation
from schedmate.schedulers.sim.engine.record import KINDS
from schedmate.schedulers.sim.outcome.held import Held, Pieces
from schedmate.schedulers.sim.tables import Later, Table
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
    "predicted_s": float,  # the last run time that the policy assumed; NaN: none
    "duration_s": float,  # alone on the requested GPUs
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
    "useful_s": float,  # work done and kept, as seconds of the job alone; NaN: unknown
}
"""Columns of `segments.csv` and `segments.parquet`: the job, GPUs of one node, and times."""


@dataclass(frozen=True)
class Result:
    """One run of one policy; `numbers` is its part of the JSON document."""

    numbers: dict[str, Any]
    jobs: Table
    segments: Table


def result_of(run: Run, workload: Workload) -> Result:
    """Build the result from a simulation's record; columns are computed on first use."""
    return Result(run.numbers, _jobs(run, workload), _segments(run, workload))


def _jobs(run: Run, workload: Workload) -> Table:
    requests, outcome, per_job = workload.requests, run.outcome, run.per_job
    none = [""] * len(requests)
    columns: dict[str, Callable[[], Any]] = {
        "job_id": requests.names,
        "vc": lambda: workload.vcs or none,
        "user": lambda: requests.values("user") or none,
        "gpus": lambda: per_job.gpus,
        "submit_s": lambda: requests.submit_s,
        "start_s": lambda: outcome.first_start,
        "end_s": lambda: outcome.end,
        "jct_s": lambda: per_job.jct_s,
        "queue_s": lambda: per_job.queue_s,
        "predicted_s": lambda: _estimates(outcome.assumed_s),
        "duration_s": lambda: workload.duration_s,
        "packed": lambda: per_job.packed,
        "preemptions": lambda: per_job.preemptions,
        "evictions": lambda: outcome.counts.get("evictions", np.zeros(len(requests))),
        "failures": lambda: outcome.counts.get("failures", np.zeros(len(requests))),
    }

    def column(name: str) -> NDArray[Any]:
        values = columns[name]()
        return np.array(list(values) if isinstance(values, Sequence) else values, JOBS[name])

    return Later({name: partial(column, name) for name in JOBS})


def _estimates(said: Sequence[float]) -> NDArray[np.float64]:
    """NaN where there is none."""
    seconds = np.array(list(said), np.float64)
    return np.where(np.isinf(seconds), np.nan, seconds)


def _segments(run: Run, workload: Workload) -> Table:
    """A row for each run of GPUs of each segment."""
    outcome = run.outcome
    share = workload.requests.values("share")

    @cache
    def pieces() -> tuple[Held, NDArray[np.int64], list[NDArray[np.int64]]]:
        found = Held.of(outcome.segments)
        return found, *Pieces(found, _runs).rows()

    def gpus() -> NDArray[np.float64]:
        found, segment, (_, _, count) = pieces()
        if share is None:
            return count.astype(float)
        part = np.array(share, float)[found.jobs[segment]]
        return np.where(part < 1, part, count)

    def useful() -> NDArray[np.float64]:
        found, segment, _ = pieces()
        kept = np.full(len(found.jobs), np.nan) if run.spent is None else run.spent.useful
        return kept[segment]

    def of(name: str) -> NDArray[Any]:
        found, segment, (node, first, _) = pieces()
        if name == "kind":
            kinds = np.frombuffer(bytes(outcome.segments.kinds), np.uint8)
            return np.array(KINDS)[kinds[segment]]
        if name == "failed":
            failed = np.zeros(len(found.jobs), np.int64)
            failed[list(outcome.failures)] = 1
            return failed[segment]
        if name in ("node", "first_gpu"):
            return node if name == "node" else first
        return {"job": found.jobs, "start_s": found.starts, "end_s": found.ends}[name][segment]

    own: dict[str, Callable[[], NDArray[Any]]] = {"gpus": gpus, "useful_s": useful}
    return Later({name: own.get(name, partial(of, name)) for name in SEGMENTS})


def _runs(allocation: Allocation) -> Iterator[tuple[int, ...]]:
    return ((node, *run) for node, mask in allocation for run in runs_of(mask))


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
