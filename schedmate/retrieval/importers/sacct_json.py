"""`sacct --json`: one document whose `jobs` array is read one job at a time.

Field shapes changed over Slurm's data parsers v0.0.39 to v0.0.46: numbers are plain or
`{set, infinite, number}`, states a string or a list. Both are read everywhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import IO, Any

from schedmate.errors import InputError
from schedmate.jobs import JobRecord, JobState, LaunchConfig
from schedmate.plain import whole
from schedmate.retrieval.importers.report import Analyse, ImportReport, reason
from schedmate.retrieval.importers.values import count_hosts, gpus_of, parse_state
from schedmate.terminal import clean

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
    report = report or ImportReport()
    for job in _Document(stream).jobs():
        place = f"job {report.rows + 1}"
        if isinstance(job, dict):
            place += f" ({clean(job.get('job_id'), 40)})"
        try:
            if not isinstance(job, dict):
                raise TypeError("not a JSON object")
            record = None if _pending_array(job) else _record(job)
        except (ValueError, TypeError, AttributeError, KeyError, OverflowError) as error:
            # what is not of the expected kind shows in one of these, wherever it stands
            report.rows += 1
            report.reject(place, reason(error))
            continue
        if record is not None:
            report.rows += 1
            workdir = job.get("working_directory")
            yield analyse(record, str(workdir) if workdir else None) if analyse else record


def _record(job: dict[str, Any]) -> JobRecord:
    times = job.get("time") or {}
    state = _state(job.get("state"))
    start = _when(times.get("start"))
    gpus, gpu_type = _gpus(job.get("tres") or {})
    util, memory = _usage(job.get("steps") or [])
    limit = number(times.get("limit"))
    return JobRecord(
        job_id=_job_id(job),
        name=job.get("name") or None,
        user=job.get("user") or (job.get("association") or {}).get("user") or None,
        command=" ".join((job.get("submit_line") or "").split()) or None,
        launch=LaunchConfig(
            gpus=gpus,
            nodes=int(number(job.get("allocation_nodes")) or 0) or count_hosts(job.get("nodes")),
            gpu_type=gpu_type,
            time_limit_s=limit * 60 if limit is not None else None,
        ),
        state=state,
        submit_time=_when(times.get("submission")),
        start_time=start,
        end_time=_when(times.get("end")),
        # A job that never started ran for no time at all, which says nothing about its work.
        duration_s=number(times.get("elapsed")) if start is not None else None,
        gpu_util=util,
        gpu_mem_mb=memory,
    )


def number(value: Any) -> float | None:
    """A number that may be wrapped as `{set, infinite, number}`; None when unset or infinite."""
    if isinstance(value, dict):
        if value.get("infinite") or not value.get("set", True):
            return None
        value = value.get("number")
    if value is None or isinstance(value, bool):
        return None
    return float(value)


def _when(value: Any) -> float | None:
    return number(value) or None  # Slurm writes 0 for "not yet"


def _pending_array(job: dict[str, Any]) -> bool:
    """Whether this stands for the tasks of a job array that are still pending."""
    array = job.get("array") or {}
    return bool(array.get("job_id") and array.get("task")) and number(array.get("task_id")) is None


def _job_id(job: dict[str, Any]) -> str:
    # `1234_5` and `1234+1` are what sacct's other format and every Slurm command call the job.
    array = job.get("array") or {}
    task = number(array.get("task_id"))
    if array.get("job_id") and task is not None:
        return f"{int(array['job_id'])}_{int(task)}"
    het = job.get("het") or {}
    offset = number(het.get("job_offset"))
    if het.get("job_id") and offset is not None:
        return f"{int(het['job_id'])}+{int(offset)}"
    return str(int(job["job_id"]))


def _state(state: Any) -> JobState:
    current = state.get("current") if isinstance(state, dict) else state
    names = [current] if isinstance(current, str) else list(current or [])
    # The first name is the base state; flags such as COMPLETING follow it.
    return parse_state(names[0] if names else "")


def _gpus(tres: dict[str, Any]) -> tuple[int | None, str | None]:
    for kind in ("allocated", "requested"):
        found = gpus_of(_tres(tres.get(kind)))
        if found[0] is not None:
            return found
    return None, None


def _tres(items: Any) -> dict[str, str]:
    return {
        "/".join(filter(None, (item.get("type"), item.get("name")))).lower(): str(item["count"])
        for item in items or []
        if item.get("count") is not None
    }


def _usage(steps: list[dict[str, Any]]) -> tuple[float | None, float | None]:
    """Mean GPU utilisation [%] weighted by step length, and the peak GPU memory [MB]."""
    shares: list[tuple[float, float]] = []
    peaks: list[float] = []
    for step in steps:
        # Slurm's "requested" here is TRESUsageIn*: what the step used.
        used = (step.get("tres") or {}).get("requested") or {}
        average, most = _tres(used.get("average")), _tres(used.get("max"))
        length = number((step.get("time") or {}).get("elapsed")) or 0.0
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


class _Document:
    """A JSON object read from a stream, holding one member of its `jobs` array at a time."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._buffer = ""
        self._at = 0
        self._decoder = json.JSONDecoder(parse_int=whole)

    def jobs(self) -> Iterator[Any]:
        """Members of the top-level `jobs` array; other members of the object are passed over."""
        self._expect("{")
        while self._peek() == '"':
            key = self._value()
            self._expect(":")
            if key == "jobs":
                yield from self._members()
                return
            self._value()
            if self._peek() == ",":
                self._at += 1
        raise InputError(
            'the file has no "jobs" array, so it is not the output of `sacct --json`; '
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
            "the file is not the whole output of `sacct --json`: the JSON ends or breaks early; "
            "export it again, or name its format with --format."
        )
