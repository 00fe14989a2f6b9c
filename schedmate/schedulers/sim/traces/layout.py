"""The columns of a job's fields in a file: of a known format, or mapped by the user."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from schedmate.data import load
from schedmate.durations import parse_duration
from schedmate.errors import InputError, UsageError
from schedmate.schedulers.sim.traces.row import FIELDS, TIMES


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
        return _mapped(path, names, columns)
    for one in formats():
        if set(one["needs"]) <= set(names):
            used = one["fields"]
            return Layout(
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


def _mapped(path: Path, names: list[str], columns: Mapping[str, str]) -> Layout:
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
