"""Reads Slurm's accounting to job records: `sacct --json` and `sacct --parsable2`.

`sacct --json` is one document whose `jobs` array is read one job at a time. Field shapes changed
over Slurm's data parsers v0.0.39 to v0.0.46: numbers are plain or `{set, infinite, number}`,
states a string or a list; both are read everywhere. `sacct --parsable2` is a header, then one
line a job or job step, fields separated by `|`. Slurm's spellings of times, sizes, states and
resources become plain numbers and names; the other importers read them the same way.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import IO, Any

from pydantic import ValidationError

from schedmate.base import inputs
from schedmate.base.data import load, whole_number
from schedmate.base.errors import InputError, UsageError
from schedmate.base.inputs import first_fault
from schedmate.base.terminal import clean
from schedmate.jobs import JobRecord, JobState, LaunchConfig

_CHUNK = 1 << 20
_MAX_VALUE = 64 << 20  # characters; no job of any cluster is near it


def import_sacct_json(
    stream: IO[str], report: ImportReport | None = None, analyse: Analyse | None = None
) -> Iterator[JobRecord]:
    """Job records from the output of `sacct --json`, with or without steps.

    Times are seconds since the epoch, limits minutes, GPU memory bytes in the document; they come
    out in the units of `JobRecord`. GPU utilisation and memory come from the steps' trackable
    resources where accounting gathers them. Raises `InputError` when the text is no such document.
    """
    for record, job in json_rows(stream, report or ImportReport()):
        workdir = job.get("working_directory") or job.get("current_working_directory")
        yield analyse(record, str(workdir) if workdir else None) if analyse else record


def json_rows(stream: IO[str], report: ImportReport) -> Iterator[tuple[JobRecord, dict[str, Any]]]:
    """Each record that `import_sacct_json` reads, with the object it was read from."""
    for job in JsonDocument(stream, SACCT_JSON).members("jobs"):
        place = f"job {report.rows + 1}"
        if isinstance(job, dict):
            place += f" ({clean(job.get('job_id'), 40)})"
        try:
            if not isinstance(job, dict):
                raise TypeError("not a JSON object")
            record = None if _pending_array(job) else _json_record(job)
        except (ValueError, TypeError, AttributeError, KeyError, OverflowError) as error:
            # what is not of the expected kind shows in one of these, wherever it stands
            report.rows += 1
            report.reject(place, unusable_reason(error))
            continue
        if record is not None:
            report.rows += 1
            yield record, job


def _queued_record(job: dict[str, Any]) -> JobRecord:
    """A job of `squeue --json` or `scontrol show job --json`, whose fields have other names."""
    state = _json_state(job.get("job_state"))
    start, end = (_json_time(job.get(name)) for name in ("start_time", "end_time"))
    over = state not in ("PENDING", "RUNNING")
    limit = plain_number(job.get("time_limit"))
    tres = job.get("tres_alloc_str") or job.get("tres_req_str") or job.get("tres_per_node") or ""
    gpus, gpu_type = gpus_of(parse_tres(tres))
    return JobRecord(
        job_id=str(int(job["job_id"])),
        name=job.get("name") or None,
        user=job.get("user_name") or None,
        command=job.get("command") or None,
        launch=LaunchConfig(
            gpus=gpus,
            nodes=int(plain_number(job.get("node_count")) or 0) or count_hosts(job.get("nodes")),
            gpu_type=gpu_type,
            time_limit_s=limit * 60 if limit is not None else None,
        ),
        state=state,
        submit_time=_json_time(job.get("submit_time")),
        start_time=start if state != "PENDING" else None,
        end_time=end if over else None,
        duration_s=max(0.0, end - start) if over and start and end else None,
    )


def _json_record(job: dict[str, Any]) -> JobRecord:
    if "job_state" in job:
        return _queued_record(job)
    times = job.get("time") or {}
    state = _json_state(job.get("state"))
    start = _json_time(times.get("start"))
    gpus, gpu_type = _json_gpus(job.get("tres") or {})
    util, memory = _json_usage(job.get("steps") or [])
    limit = plain_number(times.get("limit"))
    return JobRecord(
        job_id=_job_id(job),
        name=job.get("name") or None,
        user=job.get("user") or (job.get("association") or {}).get("user") or None,
        command=" ".join((job.get("submit_line") or "").split()) or None,
        launch=LaunchConfig(
            gpus=gpus,
            nodes=int(plain_number(job.get("allocation_nodes")) or 0)
            or count_hosts(job.get("nodes")),
            gpu_type=gpu_type,
            time_limit_s=limit * 60 if limit is not None else None,
        ),
        state=state,
        submit_time=_json_time(times.get("submission")),
        start_time=start,
        end_time=_json_time(times.get("end")),
        # A job that never started ran for no time at all, which says nothing about its work.
        duration_s=plain_number(times.get("elapsed")) if start is not None else None,
        gpu_util=util,
        gpu_mem_mb=memory,
    )


def plain_number(value: Any) -> float | None:
    """A number that may be wrapped as `{set, infinite, number}`; None when unset or infinite."""
    if isinstance(value, dict):
        if value.get("infinite") or not value.get("set", True):
            return None
        value = value.get("number")
    if value is None or isinstance(value, bool):
        return None
    return float(value)


def _json_time(value: Any) -> float | None:
    return plain_number(value) or None  # Slurm writes 0 for "not yet"


def _pending_array(job: dict[str, Any]) -> bool:
    """Whether this stands for the tasks of a job array that are still pending."""
    array = job.get("array") or {}
    return (
        bool(array.get("job_id") and array.get("task"))
        and plain_number(array.get("task_id")) is None
    )


def _job_id(job: dict[str, Any]) -> str:
    # `1234_5` and `1234+1` are what sacct's other format and every Slurm command call the job.
    array = job.get("array") or {}
    task = plain_number(array.get("task_id"))
    if array.get("job_id") and task is not None:
        return f"{int(array['job_id'])}_{int(task)}"
    het = job.get("het") or {}
    offset = plain_number(het.get("job_offset"))
    if het.get("job_id") and offset is not None:
        return f"{int(het['job_id'])}+{int(offset)}"
    return str(int(job["job_id"]))


def _json_state(state: Any) -> JobState:
    current = state.get("current") if isinstance(state, dict) else state
    names = [current] if isinstance(current, str) else list(current or [])
    # The first name is the base state; flags such as COMPLETING follow it.
    return parse_state(names[0] if names else "")


def _json_gpus(tres: dict[str, Any]) -> tuple[int | None, str | None]:
    for kind in ("allocated", "requested"):
        found = gpus_of(_json_tres(tres.get(kind)))
        if found[0] is not None:
            return found
    return None, None


def _json_tres(items: Any) -> dict[str, str]:
    return {
        "/".join(filter(None, (item.get("type"), item.get("name")))).lower(): str(item["count"])
        for item in items or []
        if item.get("count") is not None
    }


def _json_usage(steps: list[dict[str, Any]]) -> tuple[float | None, float | None]:
    """Mean GPU utilisation [%] weighted by step length, and the peak GPU memory [MB]."""
    shares: list[tuple[float, float]] = []
    peaks: list[float] = []
    for step in steps:
        # Slurm's "requested" here is TRESUsageIn*: what the step used.
        used = (step.get("tres") or {}).get("requested") or {}
        average, most = _json_tres(used.get("average")), _json_tres(used.get("max"))
        length = plain_number((step.get("time") or {}).get("elapsed")) or 0.0
        if "gres/gpuutil" in average:
            shares.append((float(average["gres/gpuutil"]), max(length, 1.0)))
        memory = most.get("gres/gpumem") or average.get("gres/gpumem")
        if memory is not None:
            peaks.append(float(memory) / 2**20)
    return mean_util(shares), max(peaks, default=None)


def mean_util(shares: list[tuple[float, float]]) -> float | None:
    """The mean of (utilisation [%], length [s]) pairs; None when it is not a percentage.

    Some gatherers add up over a task's GPUs, which cannot be told from here, so nothing above
    100 % is believed.
    """
    if not shares:
        return None
    mean = sum(util * length for util, length in shares) / sum(length for _, length in shares)
    return mean if 0 <= mean <= 100 else None


SACCT_JSON = "`sacct --json`"
"""What such a document is the output of."""


class JsonDocument:
    """A JSON document read from a stream, holding one member of an array at a time.

    `source` says in errors what it should be the output of.
    """

    def __init__(self, stream: IO[str], source: str) -> None:
        self._stream = stream
        self._source = source
        self._buffer = ""
        self._at = 0
        self._decoder = json.JSONDecoder(parse_int=whole_number)

    def members(self, array: str | None) -> Iterator[Any]:
        """Members of the top-level array of this name; what else the object has is passed over.

        None: of the document itself, which is an array.
        """
        if array is None:
            yield from self._members()
            return
        self._expect("{")
        while self._peek() == '"':
            key = self._value()
            self._expect(":")
            if key == array:
                yield from self._members()
                return
            self._value()
            if self._peek() == ",":
                self._at += 1
        raise InputError(
            f'the file has no "{array}" array, so it is not the output of {self._source}; '
            "name its format with --format."
        )

    def _members(self) -> Iterator[Any]:
        self._expect("[")
        while self._peek() != "]":
            yield self._value()
            if self._peek() == ",":
                self._at += 1
            elif self._peek() != "]":
                raise self._broken()

    def _fill(self) -> bool:
        chunk = self._stream.read(_CHUNK)
        self._buffer = self._buffer[self._at :] + chunk
        self._at = 0
        return bool(chunk)

    def _peek(self) -> str:
        while True:
            while self._at < len(self._buffer) and self._buffer[self._at] in " \t\r\n\ufeff":
                self._at += 1
            if self._at < len(self._buffer):
                return self._buffer[self._at]
            if not self._fill():
                raise self._broken()

    def _expect(self, token: str) -> None:
        if self._peek() != token:
            raise self._broken()
        self._at += 1

    def _value(self) -> Any:
        self._peek()
        while True:
            try:
                value, end = self._decoder.raw_decode(self._buffer, self._at)
            except json.JSONDecodeError:
                end = len(self._buffer)
            except RecursionError:
                raise self._broken() from None
            # What ends with the buffer may go on in the next chunk: `12` of `123`.
            if end < len(self._buffer):
                self._at = end
                return value
            if len(self._buffer) - self._at > _MAX_VALUE or not self._fill():
                raise self._broken()

    def _broken(self) -> InputError:
        return InputError(
            f"the file is not the whole output of {self._source}: the JSON ends or breaks early; "
            "export it again, or name its format with --format."
        )


# `sacct --parsable2`: a header, then one line a job or job step, fields separated by `|`.


SACCT_CALL = (
    "sacct --parsable2 --format=JobID,JobName,User,State,Submit,Start,End,ElapsedRaw,"
    "TimelimitRaw,AllocTRES,ReqTRES,NNodes,TRESUsageInAve,TRESUsageInMax,WorkDir,SubmitLine"
)
"""The sacct call that gives the importer everything it can use."""

DELIMITER = "|"

Row = dict[str, str]


def import_sacct_parsable(
    stream: IO[str],
    report: ImportReport | None = None,
    analyse: Analyse | None = None,
) -> Iterator[JobRecord]:
    """Job records from `sacct --parsable2` (or `--parsable`), any columns in any order.

    Needs the header, `JobID` or `JobIDRaw`, and `State`. The steps of a job (`17.batch`, `17.0`)
    follow it; their GPU utilisation and memory are folded into the job. Times without a zone are
    in this machine's zone. Raises `InputError` when the header is missing or lacks those columns.
    """
    for record, row in parsable_rows(stream, report or ImportReport()):
        yield analyse(record, row.get("workdir")) if analyse else record


def parsable_rows(stream: IO[str], report: ImportReport) -> Iterator[tuple[JobRecord, Row]]:
    """Each record that `import_sacct_parsable` reads, with its row, keys in lower case."""
    lines = enumerate(stream, start=1)
    header = _header(lines)
    for number, job, steps in _grouped(lines, header):
        report.rows += 1
        if job is None:
            report.reject(f"line {number}", f"not {len(header)} fields as in the header")
            continue
        try:
            record = record_of(job, steps)
        except ValueError as error:
            report.reject(f"line {number}", unusable_reason(error))
            continue
        yield record, job


def _grouped(
    lines: Iterator[tuple[int, str]], header: list[str]
) -> Iterator[tuple[int, Row | None, list[Row]]]:
    """Line number, job and steps; the job is None where the line does not fit the header."""
    job: tuple[int, Row | None] | None = None
    steps: list[Row] = []
    for number, line in lines:
        text = line.rstrip("\r\n")
        if not text.strip():
            continue
        row = _table_row(text, header)
        job_id = _row_id(row) if row else ""
        if "[" in job_id:
            continue  # what is still pending of a job array: not a job of its own yet
        if row and "." in job_id:
            parent = job[1] if job else None
            if parent and job_id.partition(".")[0] in (parent.get("jobid"), parent.get("jobidraw")):
                steps.append(row)
            continue
        if job:
            yield *job, steps
        job, steps = (number, row), []
    if job:
        yield *job, steps


def _header(lines: Iterator[tuple[int, str]]) -> list[str]:
    first = next((line for _, line in lines if line.strip()), "")
    header = [name.strip().lower() for name in first.strip().lstrip("\ufeff").split(DELIMITER)]
    if header and not header[-1]:
        header.pop()  # --parsable ends every line with the delimiter
    if not {"jobid", "jobidraw"} & set(header) or "state" not in header:
        raise InputError(
            "the first line is not a sacct header with JobID and State "
            f"(it begins {first.strip()[:60]!r}); export with `{SACCT_CALL}`."
        )
    return header


def _table_row(text: str, header: list[str]) -> Row | None:
    cells = text.split(DELIMITER)
    if len(cells) == len(header) + 1 and not cells[-1]:
        cells.pop()
    extra = len(cells) - len(header)
    if extra > 0 and "submitline" in header:
        # `python train.py | tee log`: the delimiter inside the one column that holds a command.
        at = header.index("submitline")
        cells[at : at + extra + 1] = [DELIMITER.join(cells[at : at + extra + 1])]
    if len(cells) != len(header):
        return None
    return dict(zip(header, cells, strict=True))


def _row_id(row: Row) -> str:
    return (row.get("jobid") or row.get("jobidraw") or "").strip()


def record_of(row: Row, steps: list[Row]) -> JobRecord:
    """The record of one run: its row, and those of its steps, keys in lower case.

    Raises `ValueError` for what cannot be used.
    """
    if not _row_id(row):
        raise ValueError("no JobID")
    start = parse_time(row.get("start"))
    # Without a Start column, an elapsed time above zero is proof enough that the job ran.
    elapsed = parse_duration(row.get("elapsedraw")) or parse_duration(row.get("elapsed"))
    started = start is not None if "start" in row else bool(elapsed)
    gpus, gpu_type = _row_gpus(row)
    util, memory = _row_usage(steps)
    end = parse_time(row.get("end"))
    duration = (elapsed or 0.0) if started and _has_elapsed(row) else None
    if duration is None and start is not None and end is not None:
        duration = max(0.0, end - start)  # the export has no elapsed time
    return JobRecord(
        job_id=_row_id(row),
        name=_row_text(row, "jobname"),
        user=_row_text(row, "user"),
        command=_row_text(row, "submitline"),
        launch=LaunchConfig(
            gpus=gpus, nodes=_row_nodes(row), gpu_type=gpu_type, time_limit_s=_time_limit(row)
        ),
        state=parse_state(row["state"]),
        submit_time=parse_time(row.get("submit")),
        start_time=start,
        end_time=end,
        duration_s=duration,
        gpu_util=util,
        gpu_mem_mb=memory,
    )


def _has_elapsed(row: Row) -> bool:
    return not (is_missing(row.get("elapsedraw")) and is_missing(row.get("elapsed")))


def _row_text(row: Row, column: str) -> str | None:
    return " ".join(row.get(column, "").split()) or None


def _row_gpus(row: Row) -> tuple[int | None, str | None]:
    for column in ("alloctres", "reqtres"):
        found = gpus_of(parse_tres(row.get(column)))
        if found[0] is not None:
            return found
    return None, None


def _row_nodes(row: Row) -> int | None:
    for text in (
        row.get("nnodes"),
        row.get("allocnodes"),
        parse_tres(row.get("alloctres")).get("node"),
    ):
        if text and re.fullmatch(r"\s*\d{1,9}\s*", text) and int(text):
            return int(text)
    return count_hosts(row.get("nodelist"))


def _time_limit(row: Row) -> float | None:
    minutes = row.get("timelimitraw")
    if minutes is not None and not is_missing(minutes):
        return float(minutes) * 60
    return parse_duration(row.get("timelimit"))


def _row_usage(steps: list[Row]) -> tuple[float | None, float | None]:
    """Mean GPU utilisation [%] weighted by step length, and the peak GPU memory [MB]."""
    shares: list[tuple[float, float]] = []
    peaks: list[float] = []
    for step in steps:
        average = parse_tres(step.get("tresusageinave"))
        most = parse_tres(step.get("tresusageinmax"))
        length = parse_duration(step.get("elapsedraw")) or parse_duration(step.get("elapsed"))
        if "gres/gpuutil" in average:
            shares.append((float(average["gres/gpuutil"].rstrip("%")), max(length or 0.0, 1.0)))
        memory = parse_size(most.get("gres/gpumem") or average.get("gres/gpumem"))
        if memory is not None:
            peaks.append(memory / 2**20)
    return mean_util(shares), max(peaks, default=None)


# Slurm's spellings of times, sizes, states and resources, as plain numbers and names.


_SIZE = re.compile(r"([0-9.]+)\s*([KMGTP]?)(?:i?B)?[nc]?", re.IGNORECASE)
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


@cache
def value_table(name: str) -> dict[str, Any]:
    """A data file of this package."""
    loaded: dict[str, Any] = load(f"retrieval/{name}.yaml")
    return loaded


@cache
def _missing() -> frozenset[str]:
    return frozenset(value_table("slurm")["missing"])


def is_missing(text: str | None) -> bool:
    """Whether a cell holds one of Slurm's words for "no value"."""
    return text is None or text.strip().lower() in _missing()


def parse_number(text: str) -> float:
    """A number; raises `ValueError` for anything else."""
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number") from None


def parse_time(text: str | None) -> float | None:
    """A point in time [s since epoch], or None for "no value".

    Takes ISO 8601 (without a zone: this machine's zone, as sacct prints it) and plain seconds
    since the epoch (`SLURM_TIME_FORMAT=%s`). Raises `ValueError` for anything else.
    """
    if text is None or is_missing(text):
        return None
    text = text.strip()
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if math.isfinite(seconds):
        return seconds
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        raise ValueError(
            f"{text!r} is not a time: give 2024-01-31T12:00:00 or seconds since the epoch"
        ) from None


def parse_duration(text: str | None) -> float | None:
    """A length of time [s]: Slurm's `1-02:03:04`, `2h` or plain seconds; None for "no value".

    Raises `ValueError` for anything else.
    """
    if text is None or is_missing(text):
        return None
    try:
        return inputs.parse_duration(text)
    except UsageError as error:
        raise ValueError(str(error)) from None


def parse_size(text: str | None) -> float | None:
    """A size [bytes] with an optional binary suffix K, M, G, T or P, or None for "no value"."""
    if text is None or is_missing(text):
        return None
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise ValueError(f"{text!r} is not a size: give a number with K, M, G, T or P")
    return float(match[1]) * 1024.0 ** " KMGTP".index(match[2].upper() or " ")


@cache
def parse_state(text: str) -> JobState:
    """The state a job is in, under the name a `JobRecord` uses.

    Takes `CANCELLED by 1000`, the truncated `OUT_OF_ME+` and the two-letter codes. Raises
    `ValueError` for a state Slurm does not have.
    """
    states: dict[str, JobState] = value_table("slurm")["states"]
    word = (text.split() or [""])[0].upper()
    word = value_table("slurm")["codes"].get(word, word)
    if word in states:
        return states[word]
    if word.endswith("+"):
        found = {states[name] for name in states if name.startswith(word[:-1])}
        if len(found) == 1 and len(word) > 1:
            return found.pop()
    raise ValueError(f"{text!r} is no Slurm job state")


def parse_tres(text: str | None) -> dict[str, str]:
    """`cpu=64,gres/gpu:a100=8,mem=500G` as a dictionary.

    The numbers that Slurm's database has for them are the same everywhere up to 1000; what a site
    adds, such as GPUs, has numbers of its own from 1001 on.
    """
    if text is None or is_missing(text):
        return {}
    pairs = (item.partition("=") for item in re.split("[,;]", text))
    named = {name.strip().lower(): value.strip() for name, _, value in pairs if value}
    return {_TRES.get(name, name): value for name, value in named.items()}


_TRES = {"1": "cpu", "2": "mem", "3": "energy", "4": "node", "5": "billing"}


def gpus_of(tres: dict[str, str]) -> tuple[int | None, str | None]:
    """Number and type of the GPUs among trackable resources; the type only when all agree."""
    typed = {
        name.removeprefix("gres/gpu:"): _count(count)
        for name, count in tres.items()
        if name.startswith("gres/gpu:")
    }
    total = tres.get("gres/gpu")
    count = _count(total) if total is not None else (sum(typed.values()) if typed else None)
    return count, next(iter(typed)) if len(typed) == 1 else None


def _count(text: str) -> int:
    number = parse_number(text)
    if not math.isfinite(number):
        raise ValueError(f"{text!r} is not a number of GPUs")
    return int(number)


def count_hosts(nodelist: str | None) -> int | None:
    """How many nodes `gpu[01-04,07],login2` names, or None when it names none."""
    if nodelist is None or is_missing(nodelist) or nodelist.strip().lower() == "none assigned":
        return None
    return sum(_count_host(name) for name in _split_hosts(nodelist.strip()))


def _split_hosts(nodelist: str) -> Iterable[str]:
    # Commas inside brackets separate ranges, not hosts.
    return filter(None, re.split(r",(?![^\[]{0,1000}\])", nodelist))


def _count_host(name: str) -> int:
    count = 1
    for ranges in re.findall(r"\[([^\[\]]*+)\]", name):
        count *= sum(
            int(match[2] or match[1]) - int(match[1]) + 1
            for match in map(_RANGE.fullmatch, ranges.split(","))
            if match
        )
    return count


# What an import read, kept and could not use.


MAX_PROBLEMS = 5
"""Bad rows whose reason is kept; the rest are only counted."""

Analyse = Callable[[JobRecord, str | None], JobRecord]
"""Fills a record's metadata, given the directory its command was typed in, if known."""


@dataclass(slots=True)
class ImportReport:
    """Counts of one import, filled while its records are drawn.

    `rows` counts jobs read, `bad` those that could not be used; `problems` holds the first
    `MAX_PROBLEMS` reasons, each with its place (`line 17`, `job 4`). `guessed` are the columns that
    were taken for a field by a name that is not the field's own.
    """

    rows: int = 0
    bad: int = 0
    problems: list[str] = field(default_factory=list)
    guessed: dict[str, str] = field(default_factory=dict)
    unnamed: set[str] = field(default_factory=set)
    """Trackable resources that are stated by a site's own number only."""
    lacking: set[str] = field(default_factory=set)
    """Fields that no column holds and without which a reader assumes something."""

    def reject(self, place: str, reason: str) -> None:
        """Count one bad row."""
        self.bad += 1
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(f"{place}: {reason}")


def unusable_reason(error: Exception) -> str:
    """One line that says why a row cannot be used, with the field where that is known."""
    if isinstance(error, KeyError):
        return f"no {clean(error.args[0], 100)}"
    if not isinstance(error, ValidationError):
        return clean(error, 400)
    return first_fault(error)
