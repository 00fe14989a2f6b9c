"""CSV with a mapping of columns to record fields, and JSON lines of whole records."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import yaml

from schedmate.errors import InputError, UsageError, reason_of
from schedmate.jobs import JobRecord, LaunchConfig
from schedmate.retrieval.importers.report import Analyse, ImportReport, reason
from schedmate.retrieval.importers.values import (
    is_missing,
    parse_duration,
    parse_number,
    parse_state,
    parse_time,
    table,
)

ROW_NUMBER = "#"
"""As a column: the number of the row, 1 for the first after the header."""

_TIMES = ("submit_time", "start_time", "end_time")
_METADATA = re.compile(r"metadata\.(model_config|training_config|dataset_config)\.\w+")
_FIELDS = frozenset(
    [name for name in JobRecord.model_fields if name not in ("launch", "metadata", "throughput")]
    + [f"launch.{name}" for name in LaunchConfig.model_fields]
    + ["workdir"]
)


@dataclass(frozen=True, slots=True)
class Column:
    """Where a field's value is: a column of the file, in a unit (a key of `columns.yaml`)."""

    name: str
    unit: str | None = None


def parse_mapping(items: list[str]) -> dict[str, Column]:
    """Repeated `FIELD=COLUMN[:UNIT]`, as `duration=hours:h`, as a mapping.

    FIELD is a dotted field of `JobRecord` or a short name of `columns.yaml`; COLUMN `#` is the
    number of the row. Raises `UsageError` for one that does not fit.
    """
    mapping: dict[str, Column] = {}
    for item in items:
        name, equals, column = item.partition("=")
        if not (equals and name.strip() and column.strip()):
            raise UsageError(f"--map {item!r}: write FIELD=COLUMN or FIELD=COLUMN:UNIT.")
        field = _field(name.strip())
        mapping[field] = _column(field, column.strip())
    return mapping


def read_mapping(path: Path) -> dict[str, Column]:
    """A mapping file: YAML or JSON, `FIELD: COLUMN[:UNIT]` a line."""
    try:
        loaded = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise InputError(
            f"cannot read the mapping file {path}: {reason_of(error)}; it has lines such as "
            "`job_id: COLUMN`."
        ) from None
    if not isinstance(loaded, dict) or not all(
        isinstance(value, str) for item in loaded.items() for value in item
    ):
        raise InputError(
            f"the mapping file {path} is not a list of `FIELD: COLUMN` lines; write one a line, "
            "such as `job_id: id`."
        )
    return parse_mapping([f"{field}={column}" for field, column in loaded.items()])


def _field(name: str) -> str:
    field: str = table("columns")["aliases"].get(name, name)
    if field not in _FIELDS and not _METADATA.fullmatch(field):
        short = ", ".join(sorted(table("columns")["aliases"]))
        raise UsageError(
            f"{name!r} is not a field of a job record; use a dotted name such as launch.gpus or "
            f"metadata.training_config.lr, or one of {short}."
        )
    return field


def _column(field: str, text: str) -> Column:
    units = _units(field)
    name, colon, unit = text.rpartition(":")
    if not colon or (not units and unit):
        return Column(text)  # a colon in the name of a column without units is part of it
    if unit not in units:
        raise UsageError(f"{unit!r} is no unit of {field}; use one of {', '.join(units)}.")
    return Column(name, unit)


def _units(field: str) -> dict[str, float]:
    data = table("columns")
    for kind, fields in data["fields"].items():
        if field in fields:
            units: dict[str, float] = data["units"][kind]
            return units
    return {}


def import_csv(
    stream: IO[str],
    mapping: Mapping[str, Column] | None = None,
    report: ImportReport | None = None,
    analyse: Analyse | None = None,
) -> Iterator[JobRecord]:
    """Job records from CSV with a header line; comma, semicolon, tab or bar, as its header has.

    Columns called as a field is (`duration_s`, `launch.gpus`) need no mapping, and neither do those
    of schedmate's own traces. Without a state
    column, a row with a duration is a completed job and one without is pending. Raises
    `InputError` for a mapped column that is not there and when nothing gives the job id.
    """
    report = report or ImportReport()
    first = stream.readline().lstrip("\ufeff")
    delimiter = max(",;\t|", key=first.count)
    try:
        header = [name.strip() for name in next(csv.reader([first], delimiter=delimiter), [])]
    except csv.Error as error:
        raise InputError(f"line 1 is not CSV: {error}; export the file again.") from None
    columns = _resolve(header, mapping or {})
    aliases = table("columns")["aliases"]
    report.ignored = [name for name in header if name in aliases and aliases[name] not in columns]
    rows = csv.reader(stream, delimiter=delimiter)
    while True:
        try:
            cells = next(rows, None)
        except csv.Error as error:
            raise InputError(
                f"line {rows.line_num + 1} is not CSV: {error}; correct that line, or export the "
                "file again."
            ) from None
        if cells is None:
            return
        if not any(cells):
            continue
        report.rows += 1
        place = f"line {rows.line_num + 1}"
        if len(cells) != len(header):
            report.reject(place, f"{len(cells)} fields, the header has {len(header)}")
            continue
        try:
            record, workdir = _csv_record(cells, columns, report.rows)
        except ValueError as error:
            report.reject(place, reason(error))
            continue
        yield analyse(record, workdir) if analyse else record


def _resolve(header: list[str], mapping: Mapping[str, Column]) -> dict[str, tuple[int, Column]]:
    named = {name: Column(name) for name in header if name in _FIELDS or _METADATA.fullmatch(name)}
    wanted = {**_of_trace(header), **named, **mapping}
    present = ", ".join(header) or "none"
    missing = sorted({column.name for column in wanted.values()} - set(header) - {ROW_NUMBER})
    if missing:
        raise InputError(
            f"no column {', '.join(missing)} in the file; correct --map: the file has {present}."
        )
    if "job_id" not in wanted:
        raise InputError(
            f"no column gives the job id; add --map job_id=COLUMN with one of: {present}, "
            "or --map 'job_id=#' for the number of the row."
        )
    return {
        field: (-1 if column.name == ROW_NUMBER else header.index(column.name), column)
        for field, column in wanted.items()
    }


def _of_trace(header: list[str]) -> dict[str, Column]:
    """Further columns of schedmate's own traces, by field; empty for any other file."""
    trace = table("columns")["trace"]
    if not set(trace["marks"]) <= set(header):
        return {}
    found = {}
    for name, what in trace["columns"].items():
        field, _, unit = what.partition(":")
        if name in header:
            found[field] = Column(name, unit or None)
    return found


def _csv_record(
    cells: list[str], columns: dict[str, tuple[int, Column]], row: int
) -> tuple[JobRecord, str | None]:
    values = {
        field: (str(row) if index < 0 else cells[index].strip(), column.unit)
        for field, (index, column) in columns.items()
    }
    return _record(values)


def parse_assignments(items: list[str]) -> JobRecord:
    """`FIELD=VALUE` items, as `duration=2h model=resnet50`, as a record.

    Fields are those of `parse_mapping`. Raises `UsageError` for an item that does not fit.
    """
    values: dict[str, tuple[str, str | None]] = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals:
            raise UsageError(f"--set {item!r}: write FIELD=VALUE.")
        values[_field(name.strip())] = (value.strip(), None)
    try:
        return _record(values)[0]
    except ValueError as error:
        raise UsageError(f"not a job record: {reason(error).rstrip('.')}.") from None


def _record(values: Mapping[str, tuple[str, str | None]]) -> tuple[JobRecord, str | None]:
    """A record and its working directory from texts, each in a unit."""
    document: dict[str, Any] = {}
    for field, (text, unit) in values.items():
        if is_missing(text):
            continue
        *parents, leaf = field.split(".")
        section = document
        for parent in parents:
            section = section.setdefault(parent, {})
        try:
            section[leaf] = _convert(field, text, unit)
        except ValueError as error:
            raise ValueError(f"{field}: {error}") from None
    workdir = document.pop("workdir", None)
    if "state" not in document and document.get("duration_s") is not None:
        document["state"] = "COMPLETED"
    return JobRecord.model_validate(document), workdir


def _convert(field: str, text: str, unit: str | None) -> Any:
    if field == "state":
        return parse_state(text)
    if field in ("job_id", "name", "user", "command", "workdir", "synthetic"):
        return text
    scale = _units(field).get(unit or "", 1.0)
    if field in _TIMES:
        return parse_number(text) * scale if unit else parse_time(text)
    if field in ("duration_s", "launch.time_limit_s"):
        return parse_number(text) * scale if unit else parse_duration(text)
    if field in ("gpu_util", "sm_util", "gpu_mem_mb"):
        return parse_number(text) * scale
    if field in ("launch.gpus", "launch.nodes"):
        return parse_number(text)  # `8.0` is eight GPUs; pydantic refuses 0.5
    if field.startswith("metadata.training_config."):
        return _number_or_text(text)
    return text


def _number_or_text(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def import_jsonl(
    stream: IO[str], report: ImportReport | None = None, analyse: Analyse | None = None
) -> Iterator[JobRecord]:
    """Job records from JSON lines, one `JobRecord` document each: what `history export` writes."""
    report = report or ImportReport()
    for number, line in enumerate(stream, start=1):
        text = line.strip().lstrip("\ufeff")
        if not text:
            continue
        report.rows += 1
        try:
            record = JobRecord.model_validate_json(text)
        except ValueError as error:
            report.reject(f"line {number}", reason(error))
            continue
        yield analyse(record, None) if analyse else record
