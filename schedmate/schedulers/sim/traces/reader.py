"""Read a trace: find its format, check every row, and say by line what is wrong."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from sys import intern
from typing import Any

import yaml

from schedmate.durations import parse_duration
from schedmate.errors import InputError, UsageError
from schedmate.schedulers.model import Job
from schedmate.schedulers.sim.elastic import workload as elastic
from schedmate.schedulers.sim.traces.row import FIELDS, TIMES, Entry, entry_of
from schedmate.schedulers.sim.workload import Workload

_SHOWN = 5
"""Bad rows named in one message."""
UNSTATED = (
    "nothing says whether these jobs ran on a cluster or were made up; say it with "
    "--origin recorded or --origin 'synthetic: WHAT' (`traces convert` keeps it)"
)


class TraceError(InputError):
    """A trace has rows that no simulation could make sense of."""


@cache
def formats() -> tuple[Mapping[str, Any], ...]:
    """The known formats, from formats.yaml."""
    text = (files(__package__) / "formats.yaml").read_text(encoding="utf-8")
    return tuple(yaml.safe_load(text))


@dataclass(frozen=True)
class _Layout:
    """Where the fields are in the rows of one file."""

    name: str
    at: Mapping[str, int]
    """Field -> position in the row."""
    units: Mapping[str, float]
    """Seconds in a unit of each time field."""
    config: Sequence[int] = ()
    others: Mapping[str, int] | None = None
    """Columns that are no field."""
    sums: bool = False
    """Whether rows of one id are parts of one job."""
    origin: str = ""
    """What any file of this format is; empty: it has to say so itself."""


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
    names, rows = _table(path)
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
    layout = _layout(path, names, columns)
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
    notes = [f"{len(bad)} bad rows left out"] if bad else []
    if idle:
        notes.append(f"{idle:,} rows left out: no GPU, not a job of its own, never ran or not over")
    if several:
        notes.append(f"{several:,} jobs that take any of several GPU types ask for the first only")
    return _workload(path.name, entries, kept, layout, notes)


def _table(path: Path) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    """The header, and each row with its line."""
    if path.suffix == ".parquet":
        return _parquet(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{path} is no text in UTF-8; a trace is a CSV file.") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}.") from None
    header, _, _ = text.partition("\n")
    delimiter = max(",|\t;", key=header.count)
    reader = csv.reader(io.StringIO(text), delimiter=delimiter)
    names = [name.strip() for name in next(reader, [])]
    return names, ((reader.line_num, row) for row in reader if row)


def _parquet(path: Path) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    try:
        from pyarrow import ArrowInvalid
        from pyarrow.parquet import read_table
    except ImportError:
        raise UsageError(
            f"{path} needs pyarrow: pip install 'schedmate[parquet]', or give a CSV file."
        ) from None
    try:
        table = read_table(path)
    except (OSError, ArrowInvalid) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"cannot read {path} as Parquet: {reason}.") from None
    columns = [column.to_pylist() for column in table.columns]
    rows = (
        ["" if value is None else str(value) for value in row] for row in zip(*columns, strict=True)
    )
    return list(table.column_names), enumerate(rows, 1)


def _layout(path: Path, names: list[str], columns: Mapping[str, str] | None) -> _Layout:
    position = {name: at for at, name in enumerate(names)}
    if columns:
        return _mapped(path, names, columns)
    for one in formats():
        if set(one["needs"]) <= set(names):
            used = one["fields"]
            return _Layout(
                one["name"],
                {field: position[name] for field, name in used.items() if name in position},
                dict.fromkeys(TIMES, float(one.get("unit", 1))),
                [position[name] for name in one.get("config", ()) if name in position],
                {name: at for name, at in position.items() if name not in used.values()},
                one.get("sum", False),
                one.get("origin", ""),
            )
    if not names:
        raise InputError(f"{path} is empty; a trace has a header and a row for each job.")
    nearest = max(formats(), key=lambda one: _likeness(one["needs"], names))
    lacks = ""
    if _likeness(nearest["needs"], names) > 0:
        absent = [name for name in nearest["needs"] if name not in names]
        lacks = f" (the format {nearest['name']} needs {' and '.join(absent)} too)"
    raise InputError(
        f"{path} has the columns {', '.join(names)}, which are those of no known trace{lacks}; "
        "name them with --map submit=COLUMN,duration=COLUMN,gpus=COLUMN, or see "
        "`schedmate traces list`."
    )


def _likeness(needs: Sequence[str], names: Sequence[str]) -> float:
    return len(set(needs) & set(names)) / len(needs)


def _mapped(path: Path, names: list[str], columns: Mapping[str, str]) -> _Layout:
    at, units = {}, {}
    for field, text in columns.items():
        if field not in FIELDS:
            raise UsageError(f"--map: no field {field!r}; there are {', '.join(sorted(FIELDS))}.")
        column, _, unit = text.rpartition(":")
        if text in names or field not in TIMES or unit not in ("s", "m", "h", "d"):
            column, unit = text, "s"
        if column not in names:
            raise UsageError(
                f"{path} has no column {column!r}; it has {', '.join(names) or 'none'}."
            )
        at[field], units[field] = names.index(column), parse_duration(f"1{unit}")
    asked = {"submit"} | (set() if "end" in at else {"duration"})
    if missing := sorted(asked - set(at)):
        raise UsageError(f"--map names no column for {missing[0]}; write {missing[0]}=COLUMN.")
    if not any(field.startswith("gpus") for field in at):
        raise UsageError("--map names no column for gpus; write gpus=COLUMN.")
    used = set(at.values())
    others = {name: position for position, name in enumerate(names) if position not in used}
    return _Layout("mapped", at, units, others=others)


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
    layout: _Layout,
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
        return float(text) if text else None
    except ValueError:
        return None
