"""A run in a folder: its tables, its numbers, and a trace to look at."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from schedmate.errors import InputError
from schedmate.files import open_output
from schedmate.schedulers.model import Cluster
from schedmate.schedulers.sim.outcome.chrome import events
from schedmate.schedulers.sim.outcome.results import JOBS, SEGMENTS, Result
from schedmate.schedulers.sim.tables import parquet_is_there, read_csv, write_csv, write_parquet


def write(result: Result, folder: Path, cluster: Cluster, inputs: str) -> None:
    """Write the tables, `trace.json` (for Perfetto) and, last, `summary.json` to `folder`.

    `inputs` is a digest of everything that the result depends on, and becomes part of the summary.
    Raises `InputError` if the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make {folder}: {error.strerror}; choose another --out.") from None
    for name, table in (("jobs", result.jobs), ("segments", result.segments)):
        write_csv(folder / f"{name}.csv", table)
        if parquet_is_there():
            write_parquet(folder / f"{name}.parquet", table)
    with open_output(folder / "trace.json") as stream:
        # event by event, as a long run does not fit into memory
        stream.write('{"traceEvents": [')
        for number, event in enumerate(events(result, cluster)):
            stream.write(",\n" * (number > 0) + json.dumps(event))
        stream.write("]}\n")
    with open_output(folder / "summary.json") as stream:
        json.dump({"inputs": inputs, **result.numbers}, stream, indent=1)


def read_result(folder: Path) -> Result | None:
    """The result that `write` has stored; None if missing, broken or of another version."""
    try:
        numbers = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        return Result(
            numbers,
            read_csv(folder / "jobs.csv", JOBS),
            read_csv(folder / "segments.csv", SEGMENTS),
        )
    except (OSError, ValueError, KeyError, RecursionError, csv.Error):
        return None
