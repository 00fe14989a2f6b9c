"""Many jobs at once: a pool of processes, results in order of completion."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from schedmate.durations import parse_duration
from schedmate.errors import INTERNAL, InputError, SchedmateError
from schedmate.jobs import JobRecord, JobSpec, LaunchConfig
from schedmate.mate import SchedMate
from schedmate.pool import unordered
from schedmate.settings import PROJECT_FILE, Settings, is_inside, project_file

ERROR_SCHEMA = "schedmate.error/v1"


class BatchJob(BaseModel):
    """One line of a batch file."""

    model_config = ConfigDict(extra="forbid")

    repo: str
    command: str | None = None
    gpus: int | None = Field(None, ge=0)
    nodes: int | None = Field(None, ge=1)
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


_mate: SchedMate


def _start(settings: Settings) -> None:
    global _mate  # noqa: PLW0603 - one object serves all jobs of this process
    _mate = SchedMate(settings)


def _work(line: _Line) -> Result:
    job_id: str | None = None
    try:
        job = _parse(line)
        job_id = job.job_id
        analysis = _mate.analyze(job.spec())
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
    project = project_file()
    if project is not None and is_inside(project, project.parent / job.repo):
        raise InputError(
            f"{PROJECT_FILE} in the current directory lies inside {job.repo}, which is to be "
            "analysed; run from another directory."
        )
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


def analyze_many(lines: Iterable[str], settings: Settings, processes: int) -> Iterator[Result]:
    """Analyse each JSON line in a pool of processes; results come as they are done.

    A line that is wrong, or whose analysis kills its process, gives a result with an `error`; the
    others go on.
    """
    items = (_Line(index, text) for index, text in enumerate(lines) if text.strip())
    for line, result in unordered(_work, items, processes, _start, (settings,)):
        yield result or _failure(line, None, "the analysis ended its process", INTERNAL)
