"""Read a trace: find its format, check every row, and say by line what is wrong."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import yaml

from schedmate.errors import InputError, UsageError
from schedmate.jobs import TaskType, WorkloadMetadata
from schedmate.schedulers.model import Job, Profile
from schedmate.schedulers.sim.traces.values import (
    gpus_of_tres,
    number,
    seconds,
    state_of,
    whole,
)
from schedmate.schedulers.sim.workload import Workload

_SHOWN = 5
"""Bad rows named in one message."""


class TraceError(InputError):
    """A trace has rows that no simulation could make sense of."""


@cache
def formats() -> tuple[Mapping[str, Any], ...]:
    """The known formats, from formats.yaml."""
    text = (files(__package__) / "formats.yaml").read_text(encoding="utf-8")
    return tuple(yaml.safe_load(text))


def read_trace(
    path: Path, *, columns: Mapping[str, str] | None = None, skip_bad: bool = False
) -> Workload:
    """The workload in a CSV or `sacct --parsable2` file.

    Args:
        path: the file; its format is found from its columns.
        columns: field -> column for a file of another format, as {"gpus": "n_gpu"}; fields as in
            formats.yaml.
        skip_bad: leave bad rows out and say how many, instead of refusing the trace.

    Raises `InputError` when the file cannot be read or no format has its columns, and `TraceError`
    naming the line and the reason of bad rows.
    """
    text = _text(path)
    header, _, _ = text.partition("\n")
    delimiter = "|" if header.count("|") > header.count(",") else ","
    reader = csv.DictReader(io.StringIO(text), delimiter=delimiter)
    layout = _layout(path, [name.strip() for name in reader.fieldnames or ()], columns)
    reader.fieldnames = [name.strip() for name in reader.fieldnames or ()]
    rows: list[dict[str, Any]] = []
    bad: list[str] = []
    seen: dict[str, int] = {}
    idle = 0
    try:
        for row in reader:
            try:
                job = _row(row, layout)
                if job is None:
                    idle += 1
                    continue
                key = job["id"] or f"line{reader.line_num}"
                if key in seen:
                    raise ValueError(f"job {key} is already on line {seen[key]}")
                seen[key] = reader.line_num
                job["id"] = key
                rows.append(job)
            except ValueError as error:
                bad.append(f"line {reader.line_num}: {error}")
    except csv.Error as error:
        raise TraceError(f"{path}, line {reader.line_num}: {error}.") from None
    if bad and not skip_bad:
        more = f"; and {len(bad) - _SHOWN} more" if len(bad) > _SHOWN else ""
        raise TraceError(
            f"{path} has {len(bad)} bad rows: {'; '.join(bad[:_SHOWN])}{more}. Mend them, or leave "
            "them out with --skip-bad."
        )
    if not rows:
        raise TraceError(f"{path} has no job that used a GPU.")
    notes = [f"{len(bad)} bad rows left out"] if bad else []
    notes += [f"{idle} rows that are no job with a GPU left out"] if idle else []
    return _workload(path, rows, notes)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{path} is no text in UTF-8; a trace is a CSV file.") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}.") from None


def _layout(path: Path, names: list[str], columns: Mapping[str, str] | None) -> Mapping[str, Any]:
    if columns:
        missing = [column for column in columns.values() if column not in names]
        if missing:
            raise UsageError(
                f"{path} has no column {missing[0]!r}; it has {', '.join(names) or 'none'}."
            )
        return {"fields": dict(columns), "times": "any", "used": names}
    for layout in formats():
        if set(layout["needs"]) <= set(names):
            used = layout["fields"].values()
            return {**layout, "used": names, "columns": [n for n in names if n not in used]}
    raise InputError(
        f"{path} has the columns {', '.join(names) or 'none'}, which are those of no known trace; "
        "name them with --map submit=COLUMN,duration=COLUMN,gpus=COLUMN, or see "
        "`schedmate traces list`."
    )


def _row(row: Mapping[str, str | None], layout: Mapping[str, Any]) -> dict[str, Any] | None:
    """One job; None for one without GPUs. Raises `ValueError` with the reason."""
    fields = layout["fields"]

    def cell(field: str) -> str:
        column = fields.get(field)
        return (row.get(column) or "").strip() if isinstance(column, str) else ""

    gpus = gpus_of_tres(cell("gpus_tres")) if "gpus_tres" in fields else whole(cell("gpus"), "gpus")
    # A step of a Slurm job (17.batch, 17.0) is a part of a job that has a row of its own.
    if gpus == 0 or ("gpus_tres" in fields and "." in cell("id")):
        return None
    submit = seconds(cell("submit"), "submission")
    duration = _duration(cell)
    share = number(cell("share_milli"), "gpu_milli", 1000.0) / 1000.0
    if not 0 < share <= 1 or (share < 1 and gpus != 1):
        raise ValueError(f"{share * 1000:g} thousandths of {gpus} GPUs is no request")
    util = cell("gpu_util")
    names = fields.get("config") or []
    limit = number(cell("time_limit_minutes"), "time limit", 0.0) * 60 or number(
        cell("time_limit"), "time limit", 0.0
    )
    return {
        "id": cell("id"),
        "submit": submit,
        "duration": duration,
        "gpus": gpus,
        "share": share,
        "vc": cell("vc"),
        "user": cell("user"),
        "name": cell("name"),
        "gpu_type": cell("gpu_type").split("|")[0],
        "state": state_of(cell("state")),
        "cpus": number(cell("cpus"), "cpus", 0.0)
        or number(cell("cpus_milli"), "cpu_milli", 0.0) / 1000.0,
        "memory": number(cell("host_memory_mb"), "memory", 0.0),
        "priority": whole(cell("priority") or "0", "priority", negative=True),
        "limit": limit or None,
        "profile": None
        if not util
        else Profile(
            number(util, "gpu_util"),
            number(cell("memory_util"), "memory_util", 0.0),
            number(cell("memory_mb"), "memory_mb", 0.0),
            cell("amp").lower() in ("1", "true"),
        ),
        "metadata": _metadata(cell, gpus),
        "config": "/".join((row.get(name) or "").strip() for name in names if name in row),
        "columns": {name: row.get(name) for name in layout.get("columns", ()) if name is not None},
    }


def _metadata(cell: Callable[[str], str], gpus: int) -> WorkloadMetadata | None:
    """What the trace says of the training, null where it does not; None: it says nothing."""
    if not any(cell(field) for field in ("model", "train", "iters")):
        return None
    batch, iters, lr = cell("batch_size"), cell("iters"), cell("lr")
    kind, task = cell("iter_type").lower() or None, cell("task") or None
    if kind not in (None, "step", "epoch"):
        raise ValueError(f"iter_type is {kind!r}, neither step nor epoch")
    if task not in (None, *get_args(TaskType)):
        raise ValueError(f"task is {task!r}, none of {', '.join(get_args(TaskType))}")
    training: dict[str, Any] = {
        "iters": whole(iters, "iterations") if iters else None,
        "iter_type": kind,
        "batch_size": whole(batch, "batch size") if batch else None,
        "lr": number(lr, "lr") if lr else None,
        "optimizer": cell("optimizer") or None,
        "precision": {"": None, "0": "fp32", "false": "fp32"}.get(cell("amp").lower(), "amp"),
    }
    given = {key: value for key, value in training.items() if value is not None}
    return WorkloadMetadata.model_validate(
        {
            "model_config": {"model_name": cell("model") or None, "task_type": task},
            "training_config": {**given, "num_gpus": gpus},
            "dataset_config": {"train": cell("train") or None, "valid": cell("valid") or None},
        }
    )


def _duration(cell: Any) -> float:
    text = cell("duration")
    if text:
        duration = seconds(text, "duration")
    else:
        start = cell("start") or cell("submit")
        duration = seconds(cell("end"), "end") - seconds(start, "start")
    if duration < 0:
        raise ValueError(f"the duration is negative ({duration:g} s)")
    return duration


def _workload(path: Path, rows: list[dict[str, Any]], notes: list[str]) -> Workload:
    unsorted = any(a["submit"] > b["submit"] for a, b in pairwise(rows))
    if unsorted:
        rows.sort(key=lambda row: row["submit"])
        notes.append("rows put in order of submission")
    jobs = [
        Job(
            row["id"],
            index,
            row["submit"],
            row["gpus"],
            name=row["name"],
            user=row["user"],
            vc=row["vc"],
            gpu_type=row["gpu_type"],
            share=row["share"],
            cpus=row["cpus"],
            memory_mb=row["memory"],
            priority=row["priority"],
            time_limit_s=row["limit"],
        )
        for index, row in enumerate(rows)
    ]
    metadata = [row["metadata"] for row in rows]
    columns: dict[str, list[float | None]] = {}
    for name in rows[0]["columns"]:
        values = [_optional(row["columns"].get(name)) for row in rows]
        if any(value is not None for value in values):
            columns[name] = values
    return Workload(
        path.name,
        jobs,
        [row["duration"] for row in rows],
        [row["profile"] for row in rows],
        states=[row["state"] for row in rows],
        vcs=[row["vc"] for row in rows],
        configs=[row["config"] for row in rows] if rows[0]["config"] else [],
        metadata=metadata if any(metadata) else [],
        columns=columns,
        notes=notes,
    )


def _optional(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None
