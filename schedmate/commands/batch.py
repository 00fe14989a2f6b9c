"""Many jobs at once: a pool of processes, results in order of completion."""

from __future__ import annotations

import os
import queue
import signal
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from schedmate.durations import parse_duration
from schedmate.errors import INTERNAL, InputError, SchedmateError
from schedmate.jobs import JobRecord, JobSpec, LaunchConfig
from schedmate.mate import SchedMate
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
    """Prepare one worker process."""
    global _mate  # noqa: PLW0603 - one object serves all jobs of this process
    # Ctrl-C reaches every process of the terminal; a worker just ends, without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # One core a process: the libraries' own threads would only get in each other's way.
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
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

    Lines are read no further ahead than the pool can use. A line that is wrong, or whose analysis
    kills its process, gives a result with an `error`; the others go on.
    """
    events: queue.Queue[_Line | Future[Result] | Exception | None] = queue.Queue()
    room = threading.Semaphore(4 * processes)

    def feed() -> None:
        try:
            for index, text in enumerate(lines):
                if text.strip():
                    room.acquire()
                    events.put(_Line(index, text))
            events.put(None)
        except Exception as error:  # noqa: BLE001 - raised again where the results are read
            events.put(error)

    threading.Thread(target=feed, daemon=True).start()
    pool = _pool(settings, processes)
    running: dict[Future[Result], _Line] = {}
    suspects: list[_Line] = []
    reading = True
    try:
        while reading or running:
            event = events.get()
            if event is None:
                reading = False
            elif isinstance(event, _Line):
                try:
                    future = pool.submit(_work, event)
                except BrokenProcessPool:
                    pool.shutdown(wait=False)
                    pool = _pool(settings, processes)
                    future = pool.submit(_work, event)
                running[future] = event
                future.add_done_callback(events.put)
            elif isinstance(event, Future):
                line = running.pop(event)
                room.release()
                if isinstance(event.exception(), BrokenProcessPool):
                    suspects.append(line)
                else:
                    yield event.result()
            else:
                raise event
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    # A dying process takes down all that ran beside it: run each again, alone.
    for line in suspects:
        with _pool(settings, 1) as single:
            try:
                yield single.submit(_work, line).result()
            except BrokenProcessPool:
                yield _failure(line, None, "the analysis ended its process", INTERNAL)


def _pool(settings: Settings, processes: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(processes, get_context("spawn"), _start, (settings,))
