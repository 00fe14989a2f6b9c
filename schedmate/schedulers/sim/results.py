"""What a run leaves behind: its numbers, a row a job, and a row a stretch of GPUs held.

Both tables are columns of equal length. Files hold every digit, so a result that is read back is
the result that was written.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from schedmate.errors import InputError
from schedmate.files import open_output, replaced
from schedmate.schedulers.model import Cluster
from schedmate.schedulers.sim.workload import Workload

if TYPE_CHECKING:
    from schedmate.schedulers.sim.runs import Run

Table = Mapping[str, NDArray[Any]]

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


def write(result: Result, folder: Path, cluster: Cluster, inputs: str) -> None:
    """Put the tables, `trace.json` (for Perfetto) and, last, `summary.json` into `folder`.

    `inputs` stands for all that the result depends on; it goes into the summary. Raises
    `InputError` when the folder cannot be written.
    """
    from schedmate.schedulers.sim.chrome import events

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make {folder}: {error.strerror}.") from None
    for name, table in (("jobs", result.jobs), ("segments", result.segments)):
        write_csv(folder / f"{name}.csv", table)
        if parquet_is_there():
            write_parquet(folder / f"{name}.parquet", table)
    with open_output(folder / "trace.json") as stream:
        # event by event: all of a long run at once would not fit into memory
        stream.write('{"traceEvents": [')
        for number, event in enumerate(events(result, cluster)):
            stream.write(",\n" * (number > 0) + json.dumps(event))
        stream.write("]}\n")
    with open_output(folder / "summary.json") as stream:
        json.dump({"inputs": inputs, **result.numbers}, stream, indent=1)


def read(folder: Path) -> Result | None:
    """What `write` has put there; None when that is missing, broken or of another version."""
    try:
        numbers = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        return Result(
            numbers,
            _read_csv(folder / "jobs.csv", JOBS),
            _read_csv(folder / "segments.csv", SEGMENTS),
        )
    except (OSError, ValueError, KeyError, csv.Error):
        return None


def parquet_is_there() -> bool:
    """Whether Parquet files can be written (extra `parquet`)."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        return False
    return True


def write_csv(path: Path | None, table: Table) -> None:
    """The columns as CSV, whole or not at all; None: to standard output."""
    columns: list[Sequence[Any]] = [values.tolist() for values in table.values()]
    with open_output(path) as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(table)
        writer.writerows(zip(*columns, strict=True))


def _read_csv(path: Path, kinds: Mapping[str, type]) -> Table:
    columns: list[list[str]] = [[] for _ in kinds]
    with path.open(encoding="utf-8", newline="") as stream:
        reader = csv.reader(stream)
        if next(reader) != list(kinds):
            raise ValueError(f"{path} has other columns")
        while rows := list(islice(reader, 10_000)):
            for column, values in zip(columns, zip(*rows, strict=True), strict=True):
                column.extend(values)
    return {
        name: np.array(values if kind is str else list(map(kind, values)), dtype=kind)
        for (name, kind), values in zip(kinds.items(), columns, strict=True)
    }


def write_parquet(path: Path, table: Table) -> None:
    """The columns as Parquet, whole or not at all."""
    import pyarrow as pa
    from pyarrow.parquet import write_table

    with replaced(path) as temporary:
        columns = {
            name: values.tolist() if values.dtype.kind == "U" else values
            for name, values in table.items()
        }
        write_table(pa.table(columns), temporary)
