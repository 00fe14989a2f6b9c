"""The verdicts of a batch as a table, for spreadsheets."""

from __future__ import annotations

import csv
from typing import TextIO

from schedmate.logparse.triage.document import JobVerdict, Triage
from schedmate.logparse.triage.groups import deciding_line
from schedmate.scale.rows import Kind
from schedmate.visible import visible

FOUND = (
    *("error_type", "error_name", "faulty_component", "recoverable", "file", "line", "rank"),
    *("node", "time", "rule", "source"),
)
"""Columns that come from the diagnosis."""
COLUMNS = (
    *("job_id", *FOUND, "evidence", "plan", "group", "gpu_hours", "duration_s", "gpus"),
    *("nodes", "workload", "state", "user", "log", "error"),
)


KINDS: dict[str, Kind] = {
    **dict.fromkeys(("index", *COLUMNS), "string"),
    **dict.fromkeys(("index", "line", "rank"), "int64"),
    **dict.fromkeys(("gpu_hours", "duration_s", "gpus", "time"), "float64"),
    "recoverable": "bool",
    "nodes": "strings",
}
"""The column types in Parquet."""


def write_csv(found: Triage, stream: TextIO) -> None:
    """Write one row for each job, in the order of the batch.

    Text that a spreadsheet would take as a formula gets an apostrophe before it, and invisible
    characters are written as escapes.
    """
    table = csv.writer(stream, lineterminator="\n")
    table.writerow(COLUMNS)
    for job in found.jobs:
        values = row(job) | {"nodes": " ".join(job.nodes)}
        table.writerow([_cell(values.get(name)) for name in COLUMNS])


def row(job: JobVerdict) -> dict[str, object]:
    """The values of the columns, `nodes` as a list."""
    values: dict[str, object] = job.model_dump(exclude={"diagnosis"})
    if (one := job.diagnosis) is not None:
        values |= {name: getattr(one, name) for name in FOUND}
        values["evidence"] = deciding_line(one)
        values["plan"] = one.plan.id if one.plan is not None else None
    return values


def _cell(value: object) -> object:
    if not isinstance(value, str):
        return value
    text = visible(value).replace("\n", "\\n")
    return "'" + text if text[:1] in ("=", "+", "-", "@", "\t") else text
