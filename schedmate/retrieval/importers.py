"""Reads past jobs from a file, or standard input, in any of the formats that clusters have.

Every importer is a generator of `JobRecord`s that reads its stream a piece at a time. A row
that cannot be used is counted in the `ImportReport` given to it, never raised; a file that is
not what it should be raises `InputError`. Here are CSV with a mapping of columns to record
fields, and JSON lines of whole records; Slurm's accounting is in `sacct.py`. Packages register
further formats as entry points.
"""

from __future__ import annotations

import csv
import gzip
import io
import os
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, cast

from schedmate.base.data import load
from schedmate.base.errors import (
    InputError,
    SchedmateError,
    UsageError,
    did_you_mean,
    ends_the_program,
    reason_of,
    unreadable,
)
from schedmate.base.plugins import IMPORTERS, load_plugin, plugins
from schedmate.base.reading import (
    MOST_SETTINGS,
    limit_lines,
    open_binary,
    parse_document,
    read_text,
)
from schedmate.jobs import JobRecord, LaunchConfig
from schedmate.retrieval.lists import import_kubernetes, import_ray, refuse_other_lists
from schedmate.retrieval.sacct import (
    Analyse,
    ImportReport,
    count_hosts,
    import_sacct_json,
    import_sacct_parsable,
    is_missing,
    parse_duration,
    parse_number,
    parse_state,
    parse_time,
    unusable_reason,
    value_table,
)

# Which of the formats a file is in, from its beginning.


Format = Literal["sacct-json", "sacct", "csv", "jsonl", "kubectl-json", "ray-json"]

FORMATS: tuple[Format, ...] = ("sacct-json", "sacct", "csv", "jsonl", "kubectl-json", "ray-json")

_SACCT_JSON = re.compile(r'\{\s*(?:"(?:jobs|meta|errors|warnings)"|$)')


def formats() -> tuple[str, ...]:
    """The formats that can be read: ours, and those that packages register."""
    return (*FORMATS, *plugins(IMPORTERS, FORMATS))


def detect_format(head: str) -> Format:
    """The format of a file that begins with `head`; raises `InputError` when none fits."""
    text = re.sub(r"\A(?:#[^\n]*+(?:\n|\Z)\s*+)++", "", head.lstrip("\ufeff \t\r\n"))
    if not text:
        raise InputError(
            "the file is empty, so there is nothing to import; export it again, and look at what "
            "the exporting command said."
        )
    first = text.splitlines()[0]
    refuse_other_lists(text)
    if text.startswith(("{", "[")):
        if re.search(r'"apiVersion"\s*:', text):
            return "kubectl-json"
        if text.startswith("[") and re.search(r'"(?:submission_id|entrypoint)"\s*:', text):
            return "ray-json"
    if first.startswith("{"):
        return "sacct-json" if _SACCT_JSON.match(text) else "jsonl"
    if re.search(r"(?:^|\|)jobid(?:raw)?(?:\||$)", first, re.IGNORECASE):
        return "sacct"
    if re.search(r"[,;\t|]", first):
        return "csv"
    raise InputError(
        f"cannot tell the file's format from its first line {first[:60]!r}; "
        f"name it with --format, one of {', '.join(FORMATS)}."
    )


# CSV with a mapping of columns to record fields, and JSON lines of whole records.


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
    guessed: bool = False
    """Taken by a name that job lists use: a cell that does not fit leaves the field open."""


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
    import yaml

    try:
        loaded = parse_document(read_text(path, most=MOST_SETTINGS), path)
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
    field: str = value_table("columns")["aliases"].get(name, name)
    if field not in _FIELDS and not _METADATA.fullmatch(field):
        short = ", ".join(sorted(value_table("columns")["aliases"]))
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
    data = value_table("columns")
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
    of schedmate's own traces, short names of fields, and the columns of a job list that `triage`
    reads (`elapsed`, `nodelist`). Without a state column, a row with a duration is a completed job
    and one without is pending. Raises `InputError` for a mapped column that is not there and when
    nothing gives the job id.
    """
    report = report or ImportReport()
    header, rows = csv_table(stream, report)
    columns = _resolve(header, mapping or {})
    report.guessed = {
        column.name: field for field, (_, column) in columns.items() if column.guessed
    }
    for place, cells in rows:
        try:
            record, workdir = _csv_record(cells, columns, report.rows)
        except ValueError as error:
            report.reject(place, unusable_reason(error))
            continue
        yield analyse(record, workdir) if analyse else record


def csv_table(
    stream: IO[str], report: ImportReport
) -> tuple[list[str], Iterator[tuple[str, list[str]]]]:
    """The header, which may stand below lines that begin with `#`, and the rows, each with its
    place.

    The delimiter is `,`, `;`, `|` or a tab. Rows are counted in `report`, which also has those
    that are not as long as the header. Raises `InputError`.
    """
    first, above = stream.readline().lstrip("\ufeff"), 1
    while first.startswith("#") or first.isspace():
        first, above = stream.readline(), above + 1
    delimiter = max(",;\t|", key=first.count)
    try:
        header = [name.strip() for name in next(csv.reader([first], delimiter=delimiter), [])]
    except csv.Error as error:
        raise InputError(f"line {above} is not CSV: {error}; export the file again.") from None
    return header, _csv_rows(csv.reader(stream, delimiter=delimiter), above, len(header), report)


def _csv_rows(
    rows: Any, above: int, columns: int, report: ImportReport
) -> Iterator[tuple[str, list[str]]]:
    while True:
        try:
            cells = next(rows, None)
        except csv.Error as error:
            raise InputError(
                f"line {rows.line_num + above} is not CSV: {error}; correct that line, or export "
                "the file again."
            ) from None
        if cells is None:
            return
        if not any(cells):
            continue
        report.rows += 1
        place = f"line {rows.line_num + above}"
        if len(cells) == columns:
            yield place, cells
        else:
            report.reject(place, f"{len(cells)} fields, the header has {columns}")


def _resolve(header: list[str], mapping: Mapping[str, Column]) -> dict[str, tuple[int, Column]]:
    named = {name: Column(name) for name in header if name in _FIELDS or _METADATA.fullmatch(name)}
    wanted = {**_of_lists(header), **_of_trace(header), **named, **mapping}
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


def _of_lists(header: list[str]) -> dict[str, Column]:
    """Columns that have a field's short name, or one that job lists use, by field."""
    table = value_table("columns")
    fields = dict(table["aliases"])
    for kind, names in load("logparse/triage/columns.yaml").items():
        if field := table["lists"].get(kind):
            fields.update({name: field for name in names if name not in fields})
    columns: dict[str, Column] = {}
    for name in header:
        plain = name.lower()
        field = fields.get(plain) or fields.get(re.sub(r"[^a-z]", "", plain))
        if field is not None:
            columns.setdefault(field, Column(name, guessed=True))
    return columns


def _of_trace(header: list[str]) -> dict[str, Column]:
    """Further columns of schedmate's own traces, by field; empty for any other file."""
    trace = value_table("columns")["trace"]
    if not set(trace["marks"]) <= set(header):
        return {}
    columns = {}
    for name, what in trace["columns"].items():
        field, _, unit = what.partition(":")
        if name in header:
            columns[field] = Column(name, unit or None)
    return columns


def _csv_record(
    cells: list[str], columns: dict[str, tuple[int, Column]], row: int
) -> tuple[JobRecord, str | None]:
    values = {
        field: (str(row) if index < 0 else cells[index].strip(), column.unit)
        for field, (index, column) in columns.items()
    }
    guessed = {field for field, (_, column) in columns.items() if column.guessed}
    return _record_of_cells(values, guessed)


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
        return _record_of_cells(values)[0]
    except ValueError as error:
        raise UsageError(f"not a job record: {unusable_reason(error).rstrip('.')}.") from None


def _record_of_cells(
    values: Mapping[str, tuple[str, str | None]], guessed: Collection[str] = ()
) -> tuple[JobRecord, str | None]:
    """A record and its working directory from texts, each in a unit.

    Raises `ValueError` for a text that is no value of its field, unless the field is `guessed`.
    """
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
            if field not in guessed:
                raise ValueError(f"{field}: {error}") from None
    workdir = document.pop("workdir", None)
    start, end = document.get("start_time"), document.get("end_time")
    if document.get("duration_s") is None and start is not None and end is not None:
        document["duration_s"] = end - start if end >= start else None
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
    if field == "launch.nodes" and not text[:1].isdigit():
        return count_hosts(text)
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
            report.reject(f"line {number}", unusable_reason(error))
            continue
        yield analyse(record, None) if analyse else record


# One file, or standard input, in any of the formats.


_HEAD = 1 << 16


@dataclass(frozen=True, slots=True)
class Source:
    """Text to import. `size` [bytes] is None where it is not known beforehand."""

    stream: IO[str]
    head: str
    size: int | None
    _position: Callable[[], int]

    def position(self) -> int:
        """Bytes read so far."""
        return self._position() if self.size is not None else 0

    def records(
        self,
        wanted: str | None = None,
        mapping: Mapping[str, Column] | None = None,
        report: ImportReport | None = None,
        analyse: Analyse | None = None,
    ) -> Iterator[JobRecord]:
        """The records in the text; without a wanted format, in the one its beginning shows.

        Raises `UsageError` for a format that is none of `formats()`.
        """
        match "csv" if mapping and wanted is None else wanted or detect_format(self.head):
            case "sacct-json":
                return import_sacct_json(self.stream, report, analyse)
            case "sacct":
                return import_sacct_parsable(self.stream, report, analyse)
            case "kubectl-json":
                return import_kubernetes(self.stream, report, analyse)
            case "ray-json":
                return import_ray(self.stream, report, analyse)
            case "jsonl":
                return import_jsonl(self.stream, report, analyse)
            case "csv":
                return import_csv(self.stream, mapping, report, analyse)
            case name:
                return _registered_records(name, self.stream, report, analyse)


def _registered_records(
    name: str, stream: IO[str], report: ImportReport | None, analyse: Analyse | None
) -> Iterator[JobRecord]:
    """The records of an importer that a package registers, called as `import_jsonl` is."""
    target = plugins(IMPORTERS).get(name)
    if target is None:
        raise UsageError(
            f"no format {name!r}; there are {', '.join(formats())}"
            f"{did_you_mean(name, formats()) or '.'}"
        )
    read = load_plugin(f"the importer {name!r}", target)
    try:
        yield from read(stream, report or ImportReport(), analyse)
    except (SchedmateError, OSError):
        raise
    except BaseException as error:
        if ends_the_program(error):
            raise
        raise UsageError(
            f"the importer {name!r} fails: {type(error).__name__}: {error}; correct it ({target})."
        ) from error


@contextmanager
def open_source(path: Path) -> Iterator[Source]:
    """The text of a file, unpacked when it ends in .gz; `-` is standard input.

    Bytes that are not UTF-8 become replacement characters. Raises `InputError` when the file
    cannot be opened, and for a damaged .gz while it is read.
    """
    with ExitStack() as stack:
        try:
            raw, position, size = _open_raw(path, stack)
            head = raw.peek(_HEAD)
            if not head.lstrip().startswith((b"{", b"[")):  # a whole JSON document may be one line
                limit_lines(raw)
        except OSError as error:
            raise unreadable(path, error) from None
        # newline="" leaves line ends inside quoted CSV fields as they are.
        stream = io.TextIOWrapper(raw, encoding="utf-8", errors="replace", newline="")
        try:
            yield Source(stream, head.decode("utf-8", errors="replace"), size, position)
        except (EOFError, gzip.BadGzipFile) as error:
            raise InputError(f"{path} is damaged: {error}; export it again.") from None
        finally:
            stream.detach()


def _open_raw(
    path: Path, stack: ExitStack
) -> tuple[io.BufferedReader, Callable[[], int], int | None]:
    """The unpacked bytes of a file, how far it was read, and its size [bytes] if it has one."""
    if str(path) == "-":
        unbuffered = getattr(sys.stdin.buffer, "raw", sys.stdin.buffer)
        reader = io.BufferedReader(cast("io.RawIOBase", unbuffered), _HEAD)
        stack.callback(reader.detach)  # standard input stays open
        return cast("io.BufferedReader", reader), reader.tell, None
    raw = stack.enter_context(open_binary(path, pipe=True, unpack=True, buffer=_HEAD))
    descriptor = raw.fileno()

    def position() -> int:
        return os.lseek(descriptor, 0, os.SEEK_CUR)

    return raw, position, path.stat().st_size if path.is_file() else None
