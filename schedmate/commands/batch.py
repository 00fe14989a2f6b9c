"""Many jobs at once, results in order of completion."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from schedmate.base.data import dumps
from schedmate.base.errors import INTERNAL, InputError, SchedmateError
from schedmate.base.files import ColumnKind
from schedmate.base.inputs import fault_sentence, parse_duration
from schedmate.base.journal import Journal, Memo
from schedmate.base.objects import copy_tree, is_object, url_of
from schedmate.base.spread import spread
from schedmate.jobs import JobRecord, JobSpec, LaunchConfig
from schedmate.jobs.metadata import Gpus, Nodes
from schedmate.mate import Analysis, SchedMate
from schedmate.settings import Settings

ERROR_SCHEMA = "schedmate.error/v1"

ENDED = (
    "the process that read it was killed or crashed, alone and twice; is the repository too large "
    "for that machine?"
)

COLUMNS: dict[str, ColumnKind] = {
    "index": "int64",
    **dict.fromkeys(("job_id", "name", "user", "repo", "command"), "string"),
    **dict.fromkeys(("model_name", "task_type"), "string"),
    "iters": "float64",
    "iter_type": "string",
    "batch_size": "float64",
    "gpus": "int64",
    "nodes": "int64",
    **dict.fromkeys(
        ("duration_s", "duration_p10_s", "duration_p50_s", "duration_p90_s"), "float64"
    ),
    "abstained": "bool",
    **dict.fromkeys(("unsure", "method", "source", "error"), "string"),
    "exit_code": "int64",
    "document": "string",
}
"""Columns of the results as Parquet; `unsure` has the fields that are, with commas between them,
and `document` is the whole result as JSON."""


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
        """The line as a `JobSpec`; raises `UsageError` for an invalid time limit."""
        limit = None if self.time_limit is None else parse_duration(str(self.time_limit))
        return JobSpec(
            **self.model_dump(include={"repo", "command", "job_id", "name", "user", "submit_time"}),
            launch=LaunchConfig(
                gpus=self.gpus, nodes=self.nodes, gpu_type=self.gpu_type, time_limit_s=limit
            ),
        )


class Result(NamedTuple):
    """What became of one line: a document to print, and the record to store when it went well."""

    document: dict[str, Any]
    record: JobRecord | None
    abstained: bool = False

    @property
    def failed(self) -> bool:
        """Whether the line could not be analysed."""
        return bool(self.document["schema"] == ERROR_SCHEMA)

    def row(self) -> dict[str, Any]:
        """The row of the Parquet table: all parts of the document in one mapping."""
        document = self.document
        parts = [
            document,
            document.get("job", {}),
            document.get("launch", {}),
            document.get("estimate", {}),
        ]
        parts += document.get("metadata", {}).values()
        merged: dict[str, Any] = {}
        for part in reversed(parts):
            merged |= part if isinstance(part, dict) else {}
        unsure = ", ".join(document.get("unsure", ()))
        return merged | {"unsure": unsure, "document": dumps(document)}


@dataclass(frozen=True, slots=True)
class _Line:
    index: int
    text: str


class Analyst:
    """Analyses jobs in one process of a pool; pickled as its settings alone."""

    def __init__(self, settings: Settings, mate: SchedMate | None = None) -> None:
        """`mate` is what this very process has; another one makes its own."""
        from schedmate.retrieval.database import DATABASE

        place = settings.history
        if not isinstance(place, str):  # another process may be in another directory
            settings = settings.model_copy(update={"history": Path(place).absolute()})
        self._settings = settings
        self._needs = None if isinstance(place, str) else Path(place).absolute() / DATABASE
        if self._needs is not None and not self._needs.exists():
            self._needs = None
        if mate is not None:
            self.mate = mate

    @cached_property
    def mate(self) -> SchedMate:
        """The one of this process. Raises `InputError` where the history cannot be seen."""
        if self._needs is not None and not self._needs.exists():
            raise InputError(
                f"a machine of the Ray cluster does not see the history {self._needs.parent}; keep "
                "it where all machines see it under this path, or in PostgreSQL (docs/scale.md)."
            )
        return SchedMate(self._settings, at_once=1)

    def __getstate__(self) -> dict[str, Any]:
        return {"_settings": self._settings, "_needs": self._needs}


def _work(line: _Line, analyst: Analyst) -> Result:
    job_id: str | None = None
    mate = analyst.mate
    try:
        job = _parse(line)
        job_id = job.job_id
        analysis = _analysis(job.spec(), mate)
    except SchedmateError as error:
        return _failure(line, job_id, str(error), error.exit_code)
    except Exception as error:  # noqa: BLE001 - one bad job must not end the others
        return _failure(line, job_id, f"internal error, {type(error).__name__}: {error}", INTERNAL)
    document = {"index": line.index, "job_id": job_id, **analysis.document()}
    return Result(document, analysis.record(), analysis.estimate.abstained)


def _analysis(spec: JobSpec, mate: SchedMate) -> Analysis:
    """The analysis of a job whose repository may be in object storage."""
    if spec.repo is None or not is_object(spec.repo):
        return mate.analyze(spec)
    with TemporaryDirectory(prefix="schedmate-") as folder:
        copied = Path(folder) / PurePosixPath(spec.repo).name
        notes = copy_tree(url_of(spec.repo), copied)
        try:
            analysis = mate.analyze(spec.model_copy(update={"repo": str(copied)}))
        except InputError as error:
            raise type(error)(str(error).replace(str(copied), spec.repo)) from None
        warnings = [text.replace(str(copied), spec.repo) for text in analysis.warnings]
        return analysis.model_copy(update={"spec": spec, "warnings": [*warnings, *notes]})


def _parse(line: _Line) -> BatchJob:
    try:
        job = BatchJob.model_validate_json(line.text)
    except ValidationError as error:
        fault = fault_sentence(error, BatchJob.model_fields, place="the line")
        raise InputError(f"line {line.index + 1}: {fault}") from None
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


def analyze_many(
    lines: Iterable[str],
    analyst: Analyst,
    *,
    at_once: int = 1,
    ray: str | None = None,
    journal: Journal | None = None,
) -> Iterator[Result]:
    """Analyse each JSON line; results come as they are done.

    `at_once` of them on this machine, or as tasks of the Ray cluster at the address `ray`, whose
    machines must see the repositories and the history under the same names. What `journal` holds is
    not done again. A line that is wrong, or whose analysis has to be ended, gives a result with an
    `error`; the others go on. Lines are read no further ahead than needed; what reading them raises
    is raised.
    """
    items = (_Line(index, text) for index, text in enumerate(lines) if text.strip())
    memo = None if journal is None else Memo(journal, _key, _packed, _unpacked)
    # threads only wait: each repository is read in a process of its own
    results = spread(
        _work, items, analyst, threads=None if ray else at_once, ray=ray, memo=memo, most=MOST
    )
    for line, result in results:
        if result is None:
            yield _failure(line, None, ENDED, InputError.exit_code)
        elif (
            result.record is not None and journal is not None and result.document["job_id"] is None
        ):
            # stored again after a kill, it is still the same job
            name = hashlib.sha256(f"{journal.token} {line.index}".encode()).hexdigest()[:12]
            yield result._replace(record=result.record.model_copy(update={"job_id": f"job-{name}"}))
        else:
            yield result


MOST = 100
"""Lines of one task of a Ray cluster: a repository takes far longer than a task costs."""


def _key(line: _Line) -> str:
    return f"{line.index} {hashlib.sha256(line.text.encode(errors='replace')).hexdigest()}"


def _packed(result: Result) -> str | None:
    """The journal's text of a result; None for an error, which may be gone the next time."""
    if result.failed:
        return None
    return dumps({"document": result.document, "abstained": result.abstained})


def _unpacked(text: str) -> Result:
    fields = json.loads(text)
    return Result(fields["document"], None, fields["abstained"])
