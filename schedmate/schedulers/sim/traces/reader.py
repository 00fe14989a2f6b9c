"""Read a trace: find its format, check every row, and say by line what is wrong."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from sys import intern

from schedmate.errors import InputError
from schedmate.plain import encodable
from schedmate.schedulers.model import Job
from schedmate.schedulers.sim.elastic import workload as elastic
from schedmate.schedulers.sim.traces.layout import Layout, layout_of
from schedmate.schedulers.sim.traces.row import Entry, entry_of
from schedmate.schedulers.sim.traces.table import rows_of
from schedmate.schedulers.sim.workload import Workload
from schedmate.terminal import counted

_SHOWN = 5
"""Bad rows named in one message."""
UNSTATED = (
    "nothing says whether these jobs ran on a cluster or were made up; say it with "
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
        columns: field -> column for a file of another format, as {"gpus": "n_gpu"}; fields as in
            formats.yaml. A time in another unit than seconds says it: {"submit": "t0:m"}.
        tables: the folder with the measured step times of a workload of elastic jobs.
        skip_bad: leave bad rows out and say how many, instead of refusing the trace.
        origin: `recorded`, or `synthetic: WHAT` was made up, where the file does not say.

    Raises `InputError` when the file cannot be read or no format has its columns, and `TraceError`
    naming the line and the reason of bad rows.
    """
    names, rows = rows_of(path)
    if not columns and set(names) >= elastic.COLUMNS:
        found = elastic.read(path, names, rows, tables=tables)
    else:
        found = _read(path, names, rows, columns, skip_bad=skip_bad)
    if origin is not None:
        found = found.labelled(origin)
    if found.origin == "unstated":
        found.notes.append(UNSTATED)
    return replace(found, notes=[*found.notes, *(f"synthetic: {one}" for one in found.made_up)])


def _read(
    path: Path,
    names: list[str],
    rows: Iterator[tuple[int, list[str]]],
    columns: Mapping[str, str] | None,
    *,
    skip_bad: bool,
) -> Workload:
    layout = layout_of(path, names, columns)
    has = frozenset(layout.at)
    entries: list[Entry] = []
    others = list((layout.others or {}).values())
    kept: list[tuple[str, list[float | None]]] = []
    bad: list[str] = []
    seen: dict[str, tuple[int, int]] = {}
    idle, several, line = 0, 0, 1
    current: list[str] = []

    def cell(field: str) -> str:
        position = layout.at.get(field)
        return "" if position is None else current[position].strip()

    try:
        for line, row in rows:
            current = row
            try:
                if len(row) != len(names):
                    raise ValueError(f"it has {len(row)} cells, the header {len(names)}")
                entry = entry_of(cell, layout.units, has)
                if entry is None:
                    idle += 1
                    continue
                entry.id = entry.id or f"line{line}"
                if entry.id in seen:
                    first, position = seen[entry.id]
                    if not layout.sums:
                        raise ValueError(f"job {entry.id} is already on line {first}")
                    entries[position] = _sum(entries[position], entry)
                    continue
                seen[entry.id] = (line, len(entries))
                entries.append(entry)
                several += "|" in cell("gpu_type")
                config = intern("/".join(row[at].strip() for at in layout.config))
                kept.append((config, [_optional(row[at]) for at in others]))
            except ValueError as error:
                bad.append(f"line {line}: {error}")
    except csv.Error as error:
        raise TraceError(f"{path}, after line {line}: {error}.") from None
    if bad and not skip_bad:
        more = f"; and {len(bad) - _SHOWN} more" if len(bad) > _SHOWN else ""
        rows_ = "a bad row" if len(bad) == 1 else f"{len(bad)} bad rows"
        raise TraceError(
            f"{path} has {rows_}: {'; '.join(bad[:_SHOWN])}{more}. Mend what is wrong, or leave "
            "such rows out with --skip-bad."
        )
    if not entries:
        why = f"none of its {idle:,} rows is a job that used a GPU" if idle else "it has no rows"
        raise TraceError(f"{path} has no job: {why}{', but for bad ones' * bool(bad)}.")
    notes = [f"{counted(len(bad), 'bad row')} left out"] if bad else []
    if idle:
        notes.append(
            f"{counted(idle, 'row')} left out: no GPU, not a job of its own, never ran or not over"
        )
    if several:
        notes.append(f"{several:,} jobs that take any of several GPU types ask for the first only")
    return _workload(encodable(path.name), entries, kept, layout, notes)


def _sum(one: Entry, other: Entry) -> Entry:
    """Two parts of a job: their GPUs together, from the first start to the last end."""
    submit = min(one.submit, other.submit)
    end = max(one.submit + one.duration, other.submit + other.duration)
    worse = other.state if one.state == "COMPLETED" else one.state
    return replace(
        one,
        submit=submit,
        duration=end - submit,
        gpus=one.gpus + other.gpus,
        cpus=one.cpus + other.cpus,
        state=worse,
    )


def _workload(
    name: str,
    entries: list[Entry],
    rows: list[tuple[str, list[float | None]]],
    layout: Layout,
    notes: list[str],
) -> Workload:
    if any(a.submit > b.submit for a, b in pairwise(entries)):
        order = sorted(range(len(entries)), key=lambda at: entries[at].submit)
        entries, rows = [entries[at] for at in order], [rows[at] for at in order]
        notes.append("rows put in order of submission")
    if rounded := sum(one.gpus > 1 and one.gpus % 1 != 0 for one in entries):
        notes.append(f"{rounded:,} jobs with a part of a further GPU were given all of it")
    jobs = [
        Job(
            one.id,
            index,
            one.submit,
            math.ceil(one.gpus),
            name=one.name,
            user=one.user,
            vc=one.vc,
            gpu_type=one.gpu_type,
            share=min(1.0, one.gpus),
            cpus=one.cpus,
            memory_mb=one.memory_mb,
            priority=one.priority,
            time_limit_s=one.time_limit_s,
        )
        for index, one in enumerate(entries)
    ]
    columns: dict[str, list[float | None]] = {}
    for at, column in enumerate(layout.others or ()):
        values = [numbers[at] for _, numbers in rows]
        if any(value is not None for value in values):
            columns[column] = values
    metadata = [one.metadata for one in entries]
    labels = sorted({one.synthetic for one in entries} - {""})
    made_up = tuple(dict.fromkeys(part for label in labels for part in label.split("; ")))
    found = Workload(
        name,
        jobs,
        [one.duration for one in entries],
        [one.profile for one in entries],
        states=[one.state for one in entries],
        vcs=[one.vc for one in entries],
        configs=[config for config, _ in rows] if layout.config else [],
        metadata=metadata if any(metadata) else [],
        columns=columns,
        made_up=made_up,
        # An empty column is what is written of jobs of which nothing was made up.
        recorded="synthetic" in layout.at and not made_up,
        notes=notes,
    )
    return found.labelled(layout.origin) if layout.origin else found


def _optional(text: str) -> float | None:
    try:
        return float(text) if text else None  # an estimator counts what is no time
    except ValueError:
        return None
