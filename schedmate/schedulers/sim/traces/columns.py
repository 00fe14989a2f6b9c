"""Converts rows of a block to jobs, column by column; unusual rows are converted one by one.

Distinct cells are few, so each is parsed once; only times differ from row to row. `row.py` alone
defines what a row means and what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from sys import intern
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schedmate.plain import LONGEST_S
from schedmate.schedulers.sim.traces.block import Block, Floats, Ints, moments, numbers
from schedmate.schedulers.sim.traces.layout import Layout
from schedmate.schedulers.sim.traces.row import (
    CALLED,
    GPUS,
    MOMENTS,
    PARTS,
    STATE,
    Cell,
    Fields,
    Part,
    entry_of,
)
from schedmate.schedulers.sim.traces.values import seconds

Columns = dict[str, NDArray[Any]]


def varied(layout: Layout) -> set[int]:
    """The columns of a file whose cells are hardly ever the same in two rows."""
    names = [layout.at[field] for field in (*MOMENTS, "id") if field in layout.at]
    return {*names, *(layout.others or {}).values()}


class Found(NamedTuple):
    """The jobs of some rows, the errors of others, and the number of rows without a job."""

    jobs: Columns
    """`line`, `id`, `submit`, `duration`, `gpus`; where the file has columns for them `state`, the
    names of `PARTS`, `several` (whether a job would take any of several GPU types) and `config`;
    and the columns that are no field, by their position."""
    bad: list[tuple[int, str]]
    """Line and reason."""
    idle: int


def read_block(block: Block, layout: Layout, width: int) -> Found:
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
    kept, bad = ~(odd | idle), []
    for at in np.flatnonzero(odd).tolist():
        row = block.row(at)
        try:
            entry = entry_of(_cells(row, layout.at), fields)
        except ValueError as error:
            bad.append((int(block.lines[at]), str(error)))
            continue
        if entry is not None:
            kept[at] = True
            jobs["submit"][at], jobs["duration"][at] = entry.submit, entry.duration
            jobs["gpus"][at] = entry.gpus
            for name, value in {"state": entry.state, **entry.more}.items():
                if name in jobs:
                    jobs[name][at] = value
    bad += [(n, f"it has {cells} cells, the header {width}") for n, cells in block.ragged]
    none = len(block) - int(kept.sum()) - (len(bad) - len(block.ragged))
    return Found({name: values[kept] for name, values in jobs.items()}, bad, none)


def without_repeats(jobs: Columns, *, sums: bool) -> tuple[Columns, list[tuple[int, str]]]:
    """The first job of each name, and line and reason of each other; their sum with `sums`."""
    hashes = np.fromiter(map(hash, jobs["id"]), np.int64, len(jobs["id"]))
    if len(np.unique(hashes)) == len(hashes):
        return jobs, []
    seen: dict[str, int] = {}
    kept, bad = np.ones(len(hashes), bool), []
    for at, name in enumerate(jobs["id"].tolist()):
        first = seen.setdefault(name, at)
        if first == at:
            continue
        kept[at] = False
        if sums:
            _add(jobs, first, at)
        else:
            bad.append(
                (int(jobs["line"][at]), f"job {name} is already on line {jobs['line'][first]}")
            )
    return {name: values[kept] for name, values in jobs.items()}, bad


def _add(jobs: Columns, first: int, other: int) -> None:
    """Two parts of a job: their GPUs together, from the first start to the last end."""
    both = (first, other)
    submit = min(jobs["submit"][at] for at in both)
    jobs["duration"][first] = max(jobs["submit"][at] + jobs["duration"][at] for at in both) - submit
    jobs["submit"][first] = submit
    for name in ("gpus", "cpus"):
        if name in jobs:
            jobs[name][first] += jobs[name][other]
    if "state" in jobs and jobs["state"][first] == "COMPLETED":
        jobs["state"][first] = jobs["state"][other]


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
    for number, found in enumerate(cells):
        said = dict(zip(reads, found, strict=True))
        try:
            values.append(part.make(lambda field: said.get(field, ""), fields))  # noqa: B023
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
            combined = [(*combined[0], cell.strip()) for cell in cells]
            continue
        used, codes = np.unique(codes, return_inverse=True)
        pairs = (divmod(pair, len(cells)) for pair in used.tolist())
        combined = [(*combined[one], cells[other].strip()) for one, other in pairs]
    return codes, combined


def _ids(block: Block, column: int | None) -> NDArray[Any]:
    """The names of the jobs, or only their lines if there is no column of names."""
    if column is None:
        return block.lines
    ids = [cell.strip() for cell in block.text(column)]
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
    found = numbers(cells)
    if found is not None:
        found = found * unit
        return np.where(np.abs(found) <= LONGEST_S, found, np.nan)
    found = moments(cells)
    if found is not None:
        return found
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
    found = numbers(block.text(column))
    if found is not None:
        return found
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
    found = np.empty(len(items), object)
    for at, item in enumerate(items):  # a tuple is one object here, not a row of numbers
        found[at] = item
    return found


def _cells(row: Sequence[str], at: Mapping[str, int]) -> Cell:
    def cell(field: str) -> str:
        position = at.get(field)
        return "" if position is None else row[position].strip()

    return cell
