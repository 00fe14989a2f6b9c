"""Snapshots in files, `schedmate.fleet/v1`: one JSON document, JSON lines, or a Parquet table.

A JSON document is read item by item, so that it is never held as Python objects as a whole. In JSON
lines and Parquet each row is a node (it has a `name`) or a task. Also estimates of how long tasks
will still run, from a CSV.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from schedmate.base.data import encodable
from schedmate.base.errors import InputError, reason_of, require, unreadable
from schedmate.base.files import open_output, replaced
from schedmate.base.reading import bounded_rows, open_parquet, open_text
from schedmate.schedulers.fleet.snapshot import MILLI, NONE, UNLIMITED, Builder, FleetSnapshot

SCHEMA = "schedmate.fleet/v1"
_SPACE = re.compile(r"[ \t\r\n]*")
_NESTED = {"labels": dict, "require": dict, "avoid": list}
_BATCH = 20_000
_ORIGIN = re.compile(r"recorded|unstated|synthetic: .+")


def read_json(path: Path, text: str) -> FleetSnapshot:
    """The snapshot in the text of a JSON document; raises `InputError`."""
    builder = Builder(path.name)
    late: list[Any] = []
    header: dict[str, Any] = {}
    nodes_read = False
    for key, value in _items(path, text):
        if key == "nodes":
            builder.node(value)
            nodes_read = True
        elif key == "tasks":
            # tasks before nodes wait
            builder.task(value) if nodes_read else late.append(value)
        else:
            header[key] = value
    for row in late:
        builder.task(row)
    return builder.build(_origin(path, header))


def read_lines(path: Path, lines: Iterable[str]) -> FleetSnapshot:
    """The snapshot in JSON lines; a first line may be the document's head. Raises `InputError`."""
    builder = Builder(path.name)
    header: dict[str, Any] = {"schema": SCHEMA}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            _broken_document(path, f"line {number}: {error}")
        if not isinstance(row, dict):
            _broken_document(path, f"line {number} is not an object")
        if "schema" in row:
            header = row
        elif "id" in row:
            builder.task(row)
        else:
            builder.node(row)
    return builder.build(_origin(path, header))


def read_parquet(path: Path) -> FleetSnapshot:
    """The snapshot in a Parquet file; raises `InputError`, or `UsageError` without the extra."""
    builder = Builder(path.name)
    try:
        with open_parquet(path) as table:
            header = {"schema": SCHEMA, **json.loads(table.metadata.get("schedmate", "{}"))}
            for batch in table.batches:
                for row in zip(*batch, strict=True):
                    fields = {
                        key: dict(value) if _NESTED.get(key) is dict else value
                        for key, value in zip(table.names, row, strict=True)
                        if value is not None
                    }
                    builder.task(fields) if "id" in fields else builder.node(fields)
    except (TypeError, ValueError) as error:
        _broken_document(path, str(error))
    return builder.build(_origin(path, header))


def node_rows(snapshot: FleetSnapshot) -> Iterator[dict[str, Any]]:
    """A row of the document for each node, without empty values."""
    nodes = snapshot.nodes
    for n, name in enumerate(nodes.name):
        row: dict[str, Any] = {"name": encodable(name)}
        if kind := snapshot.gpu_types[nodes.gpu_type[n]]:
            row["gpu_type"] = kind
        row["gpus"] = int(nodes.gpus[n])
        if nodes.cpus[n] != UNLIMITED:
            row["cpus"] = _shortest(int(nodes.cpus[n]), MILLI)
        if nodes.memory[n] != UNLIMITED:
            row["memory_mb"] = _shortest(int(nodes.memory[n]), 1000)
        if nodes.switch[n] != NONE:
            row["switch"] = snapshot.switches[nodes.switch[n]]
        if nodes.aggregation[n] != NONE:
            row["aggregation"] = snapshot.aggregations[nodes.aggregation[n]]
        if labels := snapshot.label_sets[nodes.labels[n]]:
            row["labels"] = dict(labels)
        yield row


def task_rows(snapshot: FleetSnapshot) -> Iterator[dict[str, Any]]:
    """A row of the document for each task, without empty values."""
    tasks, names = snapshot.tasks, snapshot.nodes.name
    for t, name in enumerate(tasks.name):
        row: dict[str, Any] = {
            "id": encodable(name),
            "job": snapshot.jobs[tasks.job[t]],
            "node": names[tasks.node[t]],
            "gpus": _shortest(int(tasks.gpus[t]), MILLI),
            "cpus": _shortest(int(tasks.cpus[t]), MILLI),
            "memory_mb": _shortest(int(tasks.memory[t]), 1000),
            "class": "lp" if tasks.low_priority[t] else "hp",
            "locked": bool(tasks.locked[t]),
        }
        if tasks.device[t] != NONE:
            row["device"] = int(tasks.device[t])
        if tasks.any_type[t]:
            row["any_gpu_type"] = True
        if tasks.group[t] != NONE:
            row["group"] = snapshot.groups[tasks.group[t]]
        if tasks.avoid[t]:
            row["avoid"] = [snapshot.groups[g] for g in snapshot.avoid_sets[tasks.avoid[t]]]
        if tasks.require[t]:
            row["require"] = dict(snapshot.require_sets[tasks.require[t]])
        if tasks.checkpoint_age_s[t]:
            row["checkpoint_age_s"] = float(tasks.checkpoint_age_s[t])
        if np.isfinite(tasks.remaining_s[t]):
            row["remaining_s"] = float(tasks.remaining_s[t])
        yield row


def write_snapshot(snapshot: FleetSnapshot, path: Path | None) -> None:
    """Write a snapshot completely or not at all: `.jsonl` as lines, `.parquet`, else as a document.

    None or `-`: the document to standard output. Raises `InputError` if it cannot be written.
    """
    head = {"schema": SCHEMA, "origin": snapshot.origin}
    if path is not None and path.suffix == ".parquet":
        _write_parquet(snapshot, path, head)
        return
    with open_output(path) as stream:
        if path is not None and path.suffix == ".jsonl":
            for row in chain((head,), node_rows(snapshot), task_rows(snapshot)):
                stream.write(json.dumps(row) + "\n")
            return
        stream.write(json.dumps(head)[:-1])
        for key, rows in (("nodes", node_rows(snapshot)), ("tasks", task_rows(snapshot))):
            stream.write(f',\n"{key}": [')
            for number, row in enumerate(rows):
                stream.write((",\n" if number else "\n") + json.dumps(row))
            stream.write("\n]")
        stream.write("\n}\n")


def _write_parquet(snapshot: FleetSnapshot, path: Path, head: dict[str, Any]) -> None:
    require("writing Parquet", "parquet", "pyarrow")
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    texts = ("name", "id", "gpu_type", "switch", "aggregation", "job", "node", "class", "group")
    numbers = ("gpus", "cpus", "memory_mb", "checkpoint_age_s", "remaining_s")
    mapping = pa.map_(pa.string(), pa.string())
    fields = [pa.field(name, pa.string()) for name in texts]
    fields += [pa.field(name, pa.float64()) for name in numbers]
    fields += [pa.field(name, pa.bool_()) for name in ("locked", "any_gpu_type")]
    fields += [pa.field("device", pa.int32())]
    fields += [pa.field("labels", mapping), pa.field("require", mapping)]
    fields += [pa.field("avoid", pa.list_(pa.string()))]
    about = {b"schedmate": json.dumps(head).encode()}
    schema = pa.schema(fields, metadata=about)
    rows = chain(node_rows(snapshot), task_rows(snapshot))
    try:
        with (
            replaced(path) as temporary,
            temporary.open("wb") as stream,
            ParquetWriter(stream, schema) as writer,
        ):
            while batch := list(islice(rows, _BATCH)):
                writer.write_batch(pa.RecordBatch.from_pylist(batch, schema=schema))
    except OSError as error:
        raise InputError(
            f"cannot write {path}: {error.strerror}; choose another place with -o."
        ) from None


def _items(path: Path, text: str) -> Iterator[tuple[str, Any]]:
    """The items of the lists `nodes` and `tasks`, each with its key, and the other values."""
    decode = json.JSONDecoder().raw_decode

    def after(position: int) -> int:
        return _SPACE.match(text, position).end()  # type: ignore[union-attr]

    def value(position: int) -> tuple[Any, int]:
        try:
            found, end = decode(text, position)
        except (ValueError, RecursionError) as error:
            _broken_document(path, str(error))
        return found, after(end)

    def mark(position: int, *expected: str) -> str:
        found = text[position : position + 1]
        if found not in expected or not found:
            where = f"line {text.count(chr(10), 0, position) + 1}"
            _broken_document(path, f"{' or '.join(map(repr, expected))} expected in {where}")
        return found

    at = after(0)
    mark(at, "{")
    at = after(at + 1)
    if text[at : at + 1] == "}":
        return
    while True:
        key, at = value(at)
        mark(at, ":")
        at = after(at + 1)
        if key in ("nodes", "tasks"):
            mark(at, "[")
            at = after(at + 1)
            while text[at : at + 1] != "]":
                item, at = value(at)
                yield key, item
                if mark(at, ",", "]") == ",":
                    at = after(at + 1)
            at = after(at + 1)
        else:
            found, at = value(at)
            yield key, found
        if mark(at, ",", "}") == "}":
            return
        at = after(at + 1)


def _origin(path: Path, header: dict[str, Any]) -> str:
    if header.get("schema") != SCHEMA:
        raise InputError(
            f"{path.name} says schema {header.get('schema')!r} and not {SCHEMA!r}; see "
            "docs/fleet.md for what `schedmate fleet` reads."
        )
    origin = header.get("origin", "unstated")
    if not isinstance(origin, str) or not _ORIGIN.fullmatch(origin):
        _broken_document(path, f"origin is {origin!r}, not recorded, unstated or synthetic: WHAT")
    return origin


def _broken_document(path: Path, what: str) -> NoReturn:
    raise InputError(f"{path.name} is not a complete {SCHEMA} document: {what}; export it again.")


def _shortest(value: int, unit: int) -> int | float:
    return value // unit if value % unit == 0 else value / unit


# Estimates of how long tasks will still run, from a table of jobs or tasks.


_MOST_SECONDS = 1e12


def read_remaining(path: Path) -> dict[str, float]:
    """Seconds by name, from a CSV with the columns `remaining_s` and `job` or `task`.

    Rows without a number are skipped: unknown. Raises `InputError`.
    """
    remaining_s: dict[str, float] = {}
    try:
        with open_text(path, encoding="utf-8-sig", newline="") as stream:
            reader = csv.DictReader(stream)
            columns = reader.fieldnames or ()
            key = next(
                (name_column for name_column in ("task", "job") if name_column in columns), None
            )
            if key is None or "remaining_s" not in columns:
                raise InputError(
                    f"{path} needs the columns remaining_s and job (or task); add what is missing "
                    f"to {', '.join(columns) or 'its header, which is empty'}."
                )
            for row in bounded_rows(reader, path):
                name, text = row[key], (row["remaining_s"] or "").strip()
                if not text:
                    continue
                if name is None or "\0" in name:
                    raise InputError(
                        f"{path} line {reader.line_num} has no {key}, or one with a NUL byte; "
                        "correct that line."
                    )
                if name in remaining_s:
                    raise InputError(
                        f"{path} line {reader.line_num}: {key} {name!r} comes twice; leave one out."
                    )
                remaining_s[name] = _seconds(text, f"{path} line {reader.line_num}")
    except OSError as error:
        raise unreadable(path, error) from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(
            f"{path} is not CSV in UTF-8: {reason_of(error)}; export it again."
        ) from None
    return remaining_s


def with_remaining(
    snapshot: FleetSnapshot, by_name: dict[str, float], source: str
) -> FleetSnapshot:
    """The snapshot with these estimates instead of its own, by task or else by job.

    Raises `InputError` if no name occurs in the snapshot.
    """
    tasks = snapshot.tasks
    left = tasks.remaining_s.copy()
    of_job = np.array([by_name.get(name, math.nan) for name in snapshot.jobs])
    matched = 0
    for t, name in enumerate(tasks.name):
        seconds = by_name.get(name, of_job[tasks.job[t]])
        if not math.isnan(seconds):
            left[t] = seconds
            matched += 1
    if by_name and not matched:
        raise InputError(
            f"{source} names no task or job of the snapshot: it begins with "
            f"{next(iter(by_name))!r}, the snapshot with {(snapshot.jobs or ['none'])[0]!r}; "
            "export both from the same cluster."
        )
    return replace(snapshot, tasks=replace(tasks, remaining_s=left))


def _seconds(text: str, where: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= _MOST_SECONDS:
        raise InputError(f"{where}: remaining_s is {text!r}; write a time in seconds, as 3600.")
    return seconds
