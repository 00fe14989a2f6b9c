"""Reads a trace: finds its format, checks every row, and reports errors by line."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from schedmate.errors import InputError
from schedmate.plain import encodable
from schedmate.schedulers.sim.elastic import COLUMNS as ELASTIC
from schedmate.schedulers.sim.requests import Jobs, Requests, further
from schedmate.schedulers.sim.traces.columns import Columns, read_block, varied, without_repeats
from schedmate.schedulers.sim.traces.layout import Layout, layout_of
from schedmate.schedulers.sim.traces.table import Table, opened
from schedmate.schedulers.sim.workload import Workload
from schedmate.terminal import counted

_SHOWN = 5
"""Bad rows named in one message."""
UNSTATED = (
    "nothing says whether these jobs are recorded or synthetic; state it with "
    "--origin recorded or --origin 'synthetic: WHAT' (`traces convert` keeps it)"
)


class TraceError(InputError):
    """A trace has rows that no simulation could make sense of."""


def read_trace(
    path: Path,
    *,
    columns: Mapping[str, str] | None = None,
    skip_bad: bool = False,
    tables: Path | None = None,
    origin: str | None = None,
) -> Workload:
    """The workload in a CSV, Parquet or `sacct --parsable2` file.

    Args:
        path: the file; its format is found from its columns.
        columns: field -> column for a file of another format, as in {"gpus": "n_gpu"}; fields as in
            formats.yaml. A time in another unit than seconds is written as {"submit": "t0:m"}.
        tables: the folder with the measured step times of a workload of elastic jobs.
        skip_bad: skip bad rows and report their number, instead of refusing the trace.
        origin: `recorded`, or `synthetic: WHAT`, if the file does not state it.

    Raises `InputError` if the file cannot be read or no format has its columns, and `TraceError`
    with the lines and reasons of bad rows.
    """
    with opened(path) as table:
        if not columns and set(table.names) >= ELASTIC:
            from schedmate.schedulers.sim.elastic import workload as elastic

            found = elastic.read_workload(path, table.names, table.rows, tables=tables)
        else:
            found = _read_table(path, table, columns, skip_bad=skip_bad)
    if origin is not None:
        found = found.labelled(origin)
    if found.origin == "unstated":
        found.notes.append(UNSTATED)
    return replace(found, notes=[*found.notes, *(f"synthetic: {one}" for one in found.made_up)])


def _read_table(
    path: Path, table: Table, mapping: Mapping[str, str] | None, *, skip_bad: bool
) -> Workload:
    layout = layout_of(path, table.names, mapping)
    parts: list[Columns] = []
    bad: list[tuple[int, str]] = []
    idle, line = 0, 1
    try:
        for block in table.blocks(varied(layout)):
            found = read_block(block, layout, len(table.names))
            parts.append(found.jobs)
            bad += found.bad
            idle += found.idle
            line = max(line, *block.lines[-1:].tolist(), *(row for row, _ in block.ragged[-1:]))
    except csv.Error as error:
        raise TraceError(
            f"{path}, after line {line}: {error}; correct that line, or export the trace again."
        ) from None
    jobs: Columns = {}
    for name in list(parts[0]) if parts else ():
        jobs[name] = np.concatenate([part.pop(name) for part in parts])
    if parts and "id" in layout.at:
        jobs, repeated = without_repeats(jobs, sums=layout.sums)
        bad = sorted(bad + repeated, key=itemgetter(0))
    if bad and not skip_bad:
        more = f"; and {len(bad) - _SHOWN} more" if len(bad) > _SHOWN else ""
        rows = "a bad row" if len(bad) == 1 else f"{len(bad)} bad rows"
        shown = "; ".join(f"line {number}: {reason}" for number, reason in bad[:_SHOWN])
        raise TraceError(
            f"{path} has {rows}: {shown}{more}. Mend what is wrong, or leave such rows out with "
            "--skip-bad."
        )
    if not parts or not len(jobs["line"]):
        why = f"none of its {idle:,} rows is a job that used a GPU" if idle else "it has no rows"
        raise TraceError(
            f"{path} has no job: {why}{', but for bad ones' * bool(bad)}; `schedmate traces check "
            f"{path}` says what is in a trace, `schedmate traces list` what it may look like."
        )
    notes = [f"{counted(len(bad), 'bad row')} left out"] if bad else []
    if idle:
        notes.append(
            f"{counted(idle, 'row')} left out: no GPU, not a job of its own, never ran or not over"
        )
    if several := int(jobs["several"].sum()) if "several" in jobs else 0:
        notes.append(f"{several:,} jobs that take any of several GPU types ask for the first only")
    return _workload(encodable(path.name), jobs, layout, notes)


def _workload(name: str, jobs: Columns, layout: Layout, notes: list[str]) -> Workload:
    if (np.diff(jobs["submit"]) < 0).any():
        order = np.argsort(jobs["submit"], kind="stable")
        jobs = {column: values[order] for column, values in jobs.items()}
        notes.append("rows put in order of submission")
    gpus, count = jobs["gpus"], len(jobs["gpus"])
    if rounded := int(((gpus > 1) & (gpus % 1 != 0)).sum()):
        notes.append(f"{rounded:,} jobs with a part of a further GPU were given all of it")

    def values(column: str, default: Any) -> list[Any]:
        return jobs[column].tolist() if column in jobs else [default] * count

    if (gpus < 1).any():
        jobs["share"] = np.minimum(1.0, gpus)
    said = {column: jobs[column].tolist() for column in further() if column in jobs}
    requests = Requests(
        jobs["id"],
        jobs["submit"],
        np.ceil(gpus).astype(np.int64),
        {one: values for one, values in said.items() if values.count(further()[one]) < count},
    )
    columns: dict[str, list[float | None]] = {}
    for column, at in (layout.others or {}).items():
        numbers = jobs[str(at)].tolist()
        if numbers.count(None) < count:
            columns[column] = numbers
    metadata = values("metadata", None)
    lends = enumerate(jobs["standby"].tolist()) if "standby" in jobs else ()
    labels = sorted({*jobs["synthetic"].tolist()} - {""}) if "synthetic" in jobs else []
    made_up = tuple(dict.fromkeys(part for label in labels for part in label.split("; ")))
    found = Workload(
        name,
        Jobs(requests),
        jobs["duration"].tolist(),
        values("profile", None),
        states=values("state", "COMPLETED"),
        vcs=said.get("vc", [""] * count),
        configs=values("config", "") if layout.config else [],
        metadata=metadata if metadata.count(None) < count else [],
        columns=columns,
        standby={position: list(one) for position, one in lends if one},
        made_up=made_up,
        # An empty column is written for jobs without synthetic parts.
        recorded="synthetic" in layout.at and not made_up,
        notes=notes,
    )
    return found.labelled(layout.origin) if layout.origin else found
