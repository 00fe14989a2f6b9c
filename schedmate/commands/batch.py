"""Many jobs at once, results in order of completion."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from schedmate.durations import parse_duration
from schedmate.errors import INTERNAL, InputError, SchedmateError
from schedmate.jobs import JobRecord, JobSpec, LaunchConfig
from schedmate.jobs.bounds import Gpus, Nodes
from schedmate.mate import SchedMate
from schedmate.scale.spread import spread

ERROR_SCHEMA = "schedmate.error/v1"


class BatchJob(BaseModel):
    """One line of a batch file."""

    model_config = ConfigDict(extra="forbid")

    repo: str
    command: str | None = None
    gpus: Gpus | None = None
    nodes: Nodes | None = None
    gpu_type: str | None = None
    time_limit: str | float | None = None
    job_id: str | None = None
    name: str | None = None
    user: str | None = None
    submit_time: float | None = None

    def spec(self) -> JobSpec:
        """The same as a `JobSpec`; raises `UsageError` for a time limit that is none."""
        limit = None if self.time_limit is None else parse_duration(str(self.time_limit))
        return JobSpec(
            **self.model_dump(include={"repo", "command", "job_id", "name", "user", "submit_time"}),
            launch=LaunchConfig(
                gpus=self.gpus, nodes=self.nodes, gpu_type=self.gpu_type, time_limit_s=limit
            ),
        )


class Result(NamedTuple):
    """What one line came to: a document to print, and the record to store when it went well."""

    document: dict[str, Any]
    record: JobRecord | None
    abstained: bool = False

    @property
    def failed(self) -> bool:
        """Whether the line could not be analysed."""
        return self.record is None


@dataclass(frozen=True, slots=True)
class _Line:
    index: int
    text: str


def _work(line: _Line, mate: SchedMate) -> Result:
    job_id: str | None = None
    try:
        job = _parse(line)
        job_id = job.job_id
        analysis = mate.analyze(job.spec())
    except SchedmateError as error:
        return _failure(line, job_id, str(error), error.exit_code)
    except Exception as error:  # noqa: BLE001 - one bad job must not end the others
        return _failure(line, job_id, f"internal error, {type(error).__name__}: {error}", INTERNAL)
    document = {"index": line.index, "job_id": job_id, **analysis.document()}
    return Result(document, analysis.record(), analysis.estimate.abstained)


def _parse(line: _Line) -> BatchJob:
    try:
        job = BatchJob.model_validate_json(line.text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the line"
        raise InputError(f"line {line.index + 1}: {where}: {first['msg']}") from None
    return job


def _failure(line: _Line, job_id: str | None, message: str, exit_code: int) -> Result:
    document = {
        "index": line.index,
        "job_id": job_id,
        "schema": ERROR_SCHEMA,
        "error": message,
        "exit_code": exit_code,
    }
    return Result(document, None)


def analyze_many(lines: Iterable[str], mate: SchedMate, at_once: int) -> Iterator[Result]:
    """Analyse each JSON line, `at_once` of them at the same time; results come as they are done.

    A line that is wrong, or whose analysis has to be ended, gives a result with an `error`; the
    others go on. Lines are read no further ahead than needed; what reading them raises is raised.
    """
    items = (_Line(index, text) for index, text in enumerate(lines) if text.strip())
    # its threads only wait: each repository is read in a process of its own
    for _, result in spread(_work, items, mate, threads=at_once):
        assert result is not None
        yield result
