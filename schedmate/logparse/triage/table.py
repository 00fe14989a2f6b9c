"""The verdicts of a batch as a table, for spreadsheets."""

from __future__ import annotations

import csv
from typing import TextIO

from schedmate.logparse.triage.document import JobVerdict, Triage
from schedmate.logparse.triage.groups import deciding_line
from schedmate.visible import visible

FOUND = (
    *("error_type", "error_name", "faulty_component", "recoverable", "file", "line", "rank"),
    *("node", "time", "rule", "source"),
)
"""Columns that the diagnosis fills."""
COLUMNS = (
    *("job_id", *FOUND, "evidence", "plan", "group", "gpu_hours", "duration_s", "gpus"),
    *("nodes", "workload", "state", "user", "log", "error"),
)


def write_csv(found: Triage, stream: TextIO) -> None:
    """A row a job, in the order of the batch.

    Text that a spreadsheet would take for a formula gets an apostrophe before it, and characters
    that cannot be seen are written as escapes.
    """
    table = csv.writer(stream, lineterminator="\n")
    table.writerow(COLUMNS)
    for job in found.jobs:
        row = _row(job)
        table.writerow([_cell(row.get(name)) for name in COLUMNS])


def _row(job: JobVerdict) -> dict[str, object]:
    row: dict[str, object] = job.model_dump(exclude={"nodes", "diagnosis"})
    row["nodes"] = " ".join(job.nodes)
    if (one := job.diagnosis) is not None:
        row |= {name: getattr(one, name) for name in FOUND}
        row["evidence"] = deciding_line(one)
        row["plan"] = one.plan.id if one.plan is not None else None
    return row


def _cell(value: object) -> object:
    if not isinstance(value, str):
        return value
    text = visible(value).replace("\n", "\\n")
    return "'" + text if text[:1] in ("=", "+", "-", "@", "\t") else text
