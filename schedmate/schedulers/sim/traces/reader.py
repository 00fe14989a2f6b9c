"""Reads a trace: finds its format, checks every row, and reports errors by line.

Columns are converted as a whole; `row.py` alone defines what a row means and what is wrong with it.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from operator import itemgetter
from pathlib import Path
from sys import intern
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schedmate.base.data import LONGEST_S, encodable, load
from schedmate.base.errors import InputError, UsageError
from schedmate.base.inputs import parse_duration
from schedmate.base.terminal import counted, from_cell
from schedmate.schedulers.sim.tables import (
    Block,
    Floats,
    Ints,
    TextTable,
    numbers,
    open_table,
    seconds_since_epoch,
)
from schedmate.schedulers.sim.traces.row import (
    CALLED,
    FIELDS,
    GPUS,
    MOMENTS,
    PARTS,
    STATE,
    TIMES,
    Cell,
    Fields,
    Part,
    entry_of,
    seconds,
)
from schedmate.schedulers.sim.workload import Jobs, Requests, Workload, request_defaults

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
    with open_table(path) as table:
        if not columns and set(table.names) >= ELASTIC_COLUMNS:
            from schedmate.schedulers.sim import elastic

            workload = elastic.read_elastic_workload(path, table.names, table.rows, tables=tables)
        else:
            workload = _read_table(path, table, columns, skip_bad=skip_bad)
    if origin is not None:
        workload = workload.labelled(origin)
    if workload.origin == "unstated":
        workload.notes.append(UNSTATED)
    return replace(
        workload, notes=[*workload.notes, *(f"synthetic: {one}" for one in workload.made_up)]
    )


def _read_table(
    path: Path, table: TextTable, mapping: Mapping[str, str] | None, *, skip_bad: bool
) -> Workload:
    layout = layout_of(path, table.names, mapping)
    parts: list[Columns] = []
    bad: list[tuple[int, str]] = []
    idle, line = 0, 1
    try:
        for block in table.blocks(varied_columns(layout)):
            block_jobs = read_block(block, layout, len(table.names))
            parts.append(block_jobs.jobs)
            bad += block_jobs.bad
            idle += block_jobs.idle
            line = max([line, *block.lines[-1:].tolist(), *(row for row, _ in block.ragged[-1:])])
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
    cells = {column: jobs[column].tolist() for column in request_defaults() if column in jobs}
    requests = Requests(
        jobs["id"],
        jobs["submit"],
        np.ceil(gpus).astype(np.int64),
        {
            one: values
            for one, values in cells.items()
            if values.count(request_defaults()[one]) < count
        },
    )
    columns: dict[str, list[float | None]] = {}
    for column, at in (layout.others or {}).items():
        numbers = jobs[str(at)].tolist()
        if numbers.count(None) < count:
            columns[column] = numbers
    metadata = values("metadata", None)

    def some(field: str) -> Iterable[tuple[int, Any]]:
        return ((at, one) for at, one in enumerate(values(field, ())) if one)

    labels = sorted({*jobs["synthetic"].tolist()} - {""}) if "synthetic" in jobs else []
    made_up = tuple(dict.fromkeys(part for label in labels for part in label.split("; ")))
    workload = Workload(
        name,
        Jobs(requests),
        jobs["duration"].tolist(),
        values("profile", None),
        states=values("state", "COMPLETED"),
        vcs=cells.get("vc", [""] * count),
        configs=values("config", "") if layout.config else [],
        metadata=metadata if metadata.count(None) < count else [],
        columns=columns,
        standby={position: list(one) for position, one in some("standby")},
        phases=dict(some("phases")),
        made_up=made_up,
        # An empty column is written for jobs without synthetic parts.
        recorded="synthetic" in layout.at and not made_up,
        notes=notes,
    )
    return workload.labelled(layout.origin) if layout.origin else workload


ELASTIC_COLUMNS = frozenset({"name", "time", "application", "num_replicas", "batch_size"})
"""Columns that distinguish a workload of elastic jobs from a trace."""


# The columns of a job's fields in a file: of a known format, or mapped by the user.


@cache
def formats() -> tuple[Mapping[str, Any], ...]:
    """The known formats, from formats.yaml."""
    return tuple(load("schedulers/sim/traces/formats.yaml"))


@dataclass(frozen=True)
class Layout:
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
    """Origin of every file of this format; empty: the file has to state it."""


def layout_of(path: Path, names: list[str], columns: Mapping[str, str] | None) -> Layout:
    """The columns of the fields in a file with these column names, by format or by `columns`.

    Raises `InputError` if neither applies.
    """
    position = {name: at for at, name in enumerate(names)}
    if columns:
        return _mapped_layout(path, names, columns)
    for known_format in formats():
        if set(known_format["needs"]) <= set(names):
            used = known_format["fields"]
            return Layout(
                known_format["name"],
                {field: position[name] for field, name in used.items() if name in position},
                dict.fromkeys(TIMES, float(known_format.get("unit", 1))),
                [position[name] for name in known_format.get("config", ()) if name in position],
                {name: at for name, at in position.items() if name not in used.values()},
                known_format.get("sum", False),
                known_format.get("origin", ""),
            )
    if not names:
        raise InputError(f"{path} is empty; a trace has a header and a row for each job.")
    nearest = max(formats(), key=lambda known_format: _likeness(known_format["needs"], names))
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


def _mapped_layout(path: Path, names: list[str], columns: Mapping[str, str]) -> Layout:
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
    return Layout("mapped", at, units, others=others)


# Converts rows of a block to jobs, column by column; unusual rows are converted one by one.
#
# Distinct cells are few, so each is parsed once; only times differ from row to row. `row.py` alone
# defines what a row means and what is wrong with it.


Columns = dict[str, NDArray[Any]]


def varied_columns(layout: Layout) -> set[int]:
    """The columns of a file whose cells are hardly ever the same in two rows."""
    names = [layout.at[field] for field in (*MOMENTS, "id") if field in layout.at]
    return {*names, *(layout.others or {}).values()}


class BlockJobs(NamedTuple):
    """The jobs of some rows, the errors of others, and the number of rows without a job."""

    jobs: Columns
    """`line`, `id`, `submit`, `duration`, `gpus`; where the file has columns for them `state`, the
    names of `PARTS`, `several` (whether a job would take any of several GPU types) and `config`;
    and the columns that are no field, by their position."""
    bad: list[tuple[int, str]]
    """Line and reason."""
    idle: int


def read_block(block: Block, layout: Layout, width: int) -> BlockJobs:
    """The jobs in the rows of a block, in their order."""
    fields = Fields(layout.units, frozenset(layout.at))
    jobs, odd = _by_column(block, layout, fields)
    jobs["line"] = block.lines
    jobs["id"] = _ids(block, layout.at.get("id"))
    if "gpus_tres" in fields.has:
        odd |= np.array(["." in name for name in jobs["id"]], bool)
    idle = ~odd & (jobs["gpus"] == 0)
    odd |= _times(block, layout, fields, jobs)
    odd &= ~idle
    valid, bad = ~(odd | idle), []
    for at in np.flatnonzero(odd).tolist():
        row = block.row(at)
        try:
            entry = entry_of(_cells(row, layout.at), fields)
        except ValueError as error:
            bad.append((int(block.lines[at]), str(error)))
            continue
        if entry is not None:
            valid[at] = True
            jobs["submit"][at], jobs["duration"][at] = entry.submit, entry.duration
            jobs["gpus"][at] = entry.gpus
            for name, value in {"state": entry.state, **entry.more}.items():
                if name in jobs:
                    jobs[name][at] = value
    bad += [(n, f"it has {cells} cells, the header {width}") for n, cells in block.ragged]
    none = len(block) - int(valid.sum()) - (len(bad) - len(block.ragged))
    return BlockJobs({name: values[valid] for name, values in jobs.items()}, bad, none)


def without_repeats(jobs: Columns, *, sums: bool) -> tuple[Columns, list[tuple[int, str]]]:
    """The first job of each name, and line and reason of each other; their sum with `sums`."""
    hashes = np.fromiter(map(hash, jobs["id"]), np.int64, len(jobs["id"]))
    if len(np.unique(hashes)) == len(hashes):
        return jobs, []
    seen: dict[str, int] = {}
    first_rows, bad = np.ones(len(hashes), bool), []
    for at, name in enumerate(jobs["id"].tolist()):
        first = seen.setdefault(name, at)
        if first == at:
            continue
        first_rows[at] = False
        if sums:
            _add(jobs, first, at)
        else:
            bad.append(
                (int(jobs["line"][at]), f"job {name} is already on line {jobs['line'][first]}")
            )
    return {name: values[first_rows] for name, values in jobs.items()}, bad


def _add(jobs: Columns, first: int, second: int) -> None:
    """Two parts of a job: their GPUs together, from the first start to the last end."""
    both = (first, second)
    submit = min(jobs["submit"][at] for at in both)
    jobs["duration"][first] = max(jobs["submit"][at] + jobs["duration"][at] for at in both) - submit
    jobs["submit"][first] = submit
    for name in ("gpus", "cpus"):
        if name in jobs:
            jobs[name][first] += jobs[name][second]
    if "state" in jobs and jobs["state"][first] == "COMPLETED":
        jobs["state"][first] = jobs["state"][second]


def _by_column(block: Block, layout: Layout, fields: Fields) -> tuple[Columns, NDArray[np.bool_]]:
    """The value that follows from a few cells, and the rows where one of them is invalid."""
    jobs: Columns = {}
    odd = np.zeros(len(block), bool)
    for name, part in {"gpus": GPUS, "state": STATE, **PARTS}.items():
        if not fields.has.isdisjoint(part.needs):
            jobs[name], wrong = _part(block, layout.at, part, fields)
            odd |= wrong
    jobs["gpus"] = jobs["gpus"].astype(float)  # NaN where there was none
    odd |= ~(jobs["gpus"] >= 0)
    if "gpu_type" in fields.has:
        codes, types = block.coded(layout.at["gpu_type"])
        jobs["several"] = np.array(["|" in one for one in types], bool)[codes]
    if layout.config:
        codes, cells = _joined(block, layout.config)
        jobs["config"] = _objects([intern("/".join(one)) for one in cells])[codes]
    for column in (layout.others or {}).values():
        jobs[str(column)] = _optional(block, column)
    return jobs, odd


def _part(
    block: Block, at: Mapping[str, int], part: Part, fields: Fields
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """One object for each row, made once for all rows with the same cells, and rows where it cannot
    be made."""
    reads = [field for field in part.reads if field in at]
    codes, cells = _joined(block, [at[field] for field in reads])
    values, wrong = [], np.zeros(len(cells), bool)
    for number, cell_values in enumerate(cells):
        by_field = dict(zip(reads, cell_values, strict=True))
        try:
            values.append(part.make(lambda field: by_field.get(field, ""), fields))  # noqa: B023
        except ValueError:
            values.append(None)
            wrong[number] = True
    return _objects(values)[codes], wrong[codes]


def _joined(block: Block, columns: Sequence[int]) -> tuple[Ints, list[tuple[str, ...]]]:
    """The distinct combinations of cells, stripped, and which of them each row has."""
    codes = np.zeros(len(block), np.int64)
    combined: list[tuple[str, ...]] = [()]
    for column in columns:
        own, cells = block.coded(column)
        codes = codes * len(cells) + own
        if len(combined) == 1:
            combined = [(*combined[0], from_cell(cell.strip())) for cell in cells]
            continue
        used, codes = np.unique(codes, return_inverse=True)
        pairs = (divmod(pair, len(cells)) for pair in used.tolist())
        combined = [(*combined[one], from_cell(cells[other].strip())) for one, other in pairs]
    return codes, combined


def _ids(block: Block, column: int | None) -> NDArray[Any]:
    """The names of the jobs, or only their lines if there is no column of names."""
    if column is None:
        return block.lines
    ids = [from_cell(cell.strip()) for cell in block.text(column)]
    if not all(ids):
        lines = zip(ids, block.lines.tolist(), strict=True)
        ids = [name or f"line{line}" for name, line in lines]
    return np.array(ids, np.dtypes.StringDType())


def _times(block: Block, layout: Layout, fields: Fields, jobs: Columns) -> NDArray[np.bool_]:
    """Set submission and run time of each job; return the rows where they are not plain."""
    times: dict[str, Floats] = {}
    odd = np.zeros(len(block), bool)
    for field in MOMENTS:
        if field in fields.has:
            times[field] = _moments(block, layout.at[field], field, fields.units.get(field, 1.0))
            odd |= np.isnan(times[field])
    jobs["submit"] = times["submit"]
    if "duration" in times:
        jobs["duration"] = times["duration"].copy()
    elif "end" in times:
        jobs["duration"] = times["end"] - times.get("start", times["submit"])
    else:
        jobs["duration"] = np.full(len(block), np.nan)
    return odd | ~(jobs["duration"] >= 0)


def _moments(block: Block, column: int, field: str, unit: float) -> Floats:
    """Seconds; NaN where a cell does not say them."""
    cells = block.text(column)
    moments = numbers(cells)
    if moments is not None:
        moments = moments * unit
        return np.where(np.abs(moments) <= LONGEST_S, moments, np.nan)
    moments = seconds_since_epoch(cells)
    if moments is not None:
        return moments
    codes, cells = block.coded(column)
    values = []
    for cell in cells:
        try:
            values.append(seconds(cell.strip(), CALLED.get(field, field), unit))
        except ValueError:
            values.append(np.nan)
    return np.array(values, float)[codes]


def _optional(block: Block, column: int) -> NDArray[Any]:
    """A column that is not a field as numbers, None if it has none."""
    parsed = numbers(block.text(column))
    if parsed is not None:
        return parsed
    codes, cells = block.coded(column)
    values: list[float | None] = []
    for cell in cells:
        try:
            values.append(float(cell) if cell else None)  # an estimator counts impossible times
        except ValueError:
            values.append(None)
    return _objects(values)[codes]


def _objects(values: Iterable[Any]) -> NDArray[Any]:
    """An array of just these objects, whatever they are."""
    items = list(values)
    objects = np.empty(len(items), object)
    for at, item in enumerate(items):  # a tuple is one object here, not a row of numbers
        objects[at] = item
    return objects


def _cells(row: Sequence[str], at: Mapping[str, int]) -> Cell:
    def cell(field: str) -> str:
        position = at.get(field)
        return "" if position is None else from_cell(row[position].strip())

    return cell
