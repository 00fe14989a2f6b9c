"""`SchedMate`, the library hook: what a job trains, how long it runs, its progress, its failure.

    with SchedMate(load_settings()) as mate:
        estimate = mate.on_submit(JobSpec(repo="/jobs/17", command="python train.py"))

One object serves many threads. It composes the extraction of metadata, the job history with its
Scheduling Advisor (`Advice`), and the reading of logs in confined processes (`schedmate.readers`).
`Analysis` is its answer about a job before it runs.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from schedmate.agent import Extraction
from schedmate.base.data import plain
from schedmate.base.errors import (
    InputError,
    LimitError,
    ModelError,
    SchedmateError,
    UsageError,
)
from schedmate.base.terminal import clean
from schedmate.jobs import (
    Diagnosis,
    Estimate,
    JobRecord,
    JobSpec,
    JobState,
    LaunchConfig,
    ModelUse,
    Progress,
    Remaining,
    WorkloadMetadata,
)
from schedmate.readers import Readers
from schedmate.settings import Settings, load_settings

if TYPE_CHECKING:
    from schedmate.agent.react.extractor import MetadataExtractor
    from schedmate.jobs.health import Health
    from schedmate.llm import LLM
    from schedmate.logparse.watch.health import WatchLimits
    from schedmate.retrieval.embedders import Embedder
    from schedmate.retrieval.history import JobHistory
    from schedmate.retrieval.learning import RunTimes


ANALYSIS_SCHEMA = "schedmate.analyze/v1"


def _has_files(repo: str | None) -> bool:
    try:
        return bool(repo) and any(Path(repo or "").iterdir())
    except OSError:
        return False


class Analysis(BaseModel):
    """Everything schedmate can say about one job before it runs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    spec: JobSpec
    metadata: WorkloadMetadata
    launch: LaunchConfig = Field(description="`spec.launch`, completed from command and scripts")
    estimate: Estimate
    history_size: int = Field(ge=0, description="Records in the history that was asked")
    source: Literal["static", "hybrid", "agent", "opening"] = Field(
        "static",
        description="Who decided the metadata: static analysis, it and a model (hybrid, opening), "
        "a model",
    )
    model: ModelUse | None = Field(None, description="What a language model was asked, if any was")
    timing_s: dict[str, float] = Field(description="Wall time of each part [s]")
    warnings: list[str] = Field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """The JSON document `schedmate.analyze/v1` (docs/schemas/analyze-v1.schema.json)."""
        whole = plain(self.model_dump(mode="json", by_alias=True))
        metadata, estimate = whole["metadata"], whole["estimate"]
        evidence = metadata.pop("evidence")
        neighbours = estimate.pop("neighbours")
        return {
            "schema": ANALYSIS_SCHEMA,
            "job": {
                key: whole["spec"][key] for key in ("job_id", "name", "user", "repo", "command")
            },
            "metadata": metadata,
            "evidence": evidence,
            "unsure": self.metadata.unsure(),
            "fingerprint": self.metadata.fingerprint(),
            "launch": whole["launch"],
            "estimate": estimate,
            "neighbours": neighbours,
            "history_size": self.history_size,
            "source": self.source,
            "model": whole["model"],
            "timing_s": {name: round(value, 6) for name, value in self.timing_s.items()},
            "warnings": whole["warnings"],
        }

    def record(self) -> JobRecord:
        """The job as a pending record of the history; without a job id, a new one."""
        return JobRecord(
            job_id=self.spec.job_id or f"job-{uuid.uuid4().hex[:12]}",
            name=self.spec.name,
            user=self.spec.user,
            command=self.spec.command,
            launch=self.launch,
            metadata=self.metadata,
            submit_time=time.time() if self.spec.submit_time is None else self.spec.submit_time,
        )


def sure_enough(metadata: WorkloadMetadata, least: float, warnings: list[str]) -> WorkloadMetadata:
    """The metadata without values that are less sure than `least`, which `warnings` then names."""
    kept, left_out = metadata.without_unsure(least)
    if left_out:
        warnings.append(f"left out for a confidence below {least:g}: {', '.join(left_out)}")
    return kept


# The job history that the settings name, and the Scheduling Advisor on it.


def embedder_of(settings: Settings) -> Embedder:
    """The embedder that the settings name; raises what `load_embedder` raises."""
    from schedmate.retrieval.embedders import load_embedder

    return load_embedder(
        settings.embedder, model=settings.embedder_model, base_url=settings.embedder_base_url
    )


LEARNING_S = 2.0
"""Limit for the time that a write goes on learning from ended runs [s]; the next one goes on."""


class Advice:
    """Opened when first needed; may be used from any thread."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._opened: tuple[JobHistory, RunTimes] | None = None
        self._closed = False

    def close(self) -> None:
        """Close the history; whoever asks later gets `UsageError`. May be repeated."""
        with self._lock:
            self._closed = True
            opened, self._opened = self._opened, None
        if opened is not None:
            opened[0].close()

    def prepare(self, *, create: bool) -> None:
        """Open the history and load what makes vectors, if it can be loaded before it is used."""
        opened = self.open(create=create)
        prepare = None if opened is None else getattr(opened[0].embedder, "prepare", None)
        if prepare is not None:
            prepare()

    def open(self, *, create: bool) -> tuple[JobHistory, RunTimes] | None:
        """The history and the advisor on it; None when there is no history and none is wanted."""
        with self._lock:
            if self._closed:
                raise UsageError("this SchedMate is closed; make a new one.")
            if self._opened is None:
                from schedmate.retrieval.database import DATABASE
                from schedmate.retrieval.shared import open_history

                settings, place = self.settings, self.settings.history
                here = not isinstance(place, str)
                if here and not create and not (Path(place) / DATABASE).exists():
                    return None
                from schedmate.retrieval.learning import RunTimes

                history = open_history(
                    place,
                    embedder_of(settings),
                    create=create,
                    read_only=not create and here and not os.access(place, os.W_OK),
                    poll=True,
                )
                self._opened = history, RunTimes.of(history, settings)
            return self._opened

    def estimate(
        self,
        metadata: WorkloadMetadata,
        launch: LaunchConfig,
        now: float | None,
        job: JobSpec | JobRecord | None,
    ) -> tuple[Estimate, int]:
        """The estimate at the time `now` [s since epoch] (`RunTimes.estimate`), and how many jobs
        the history has."""
        opened = self.open(create=False)
        if opened is None and metadata.endless:
            return Estimate.without_end(metadata.job_kind), 0
        if opened is None:
            return Estimate(reason=f"there is no history at {self.settings.history} yet"), 0
        history, run_times = opened
        return run_times.estimate(metadata, launch, now, job), len(history)

    def started(self, since: float) -> list[tuple[float, float, str | None]]:
        """See `JobTable.started`; none as long as there is no history."""
        opened = self.open(create=False)
        return [] if opened is None else opened[0].started(since)

    def version(self) -> tuple[int, int] | None:
        """See `JobTable.version`; None as long as there is no history."""
        opened = self.open(create=False)
        return None if opened is None else opened[0].version()

    def store(self, record: JobRecord) -> str:
        """Add a record to the history; gives its job id.

        A pending job of the same id is replaced. Raises `InputError` when the history cannot be
        written or says that the job of that id has ended.
        """
        opened = self.open(create=True)
        assert opened is not None
        history = opened[0]
        with self._writing:
            stored = history.get(record.job_id)
            if stored is not None and stored.ended:
                raise InputError(
                    f"job {record.job_id} is in the history as {stored.state}; "
                    "record this one under another job id."
                )
            history.add(record)
            opened[1].learn(most_s=LEARNING_S)
        return record.job_id

    def learn(self, records: Sequence[JobRecord]) -> None:
        """Add jobs that have ended; those of the same ids are replaced.

        Raises `InputError` when the history cannot be written.
        """
        opened = self.open(create=True)
        assert opened is not None
        with self._writing:
            opened[0].add_many(records)
            opened[1].learn(most_s=LEARNING_S)


T = TypeVar("T")


THREADS = 2

LONGEST_DEADLINE_S = 1e6
"""The longest deadline [s]; clocks of the system do not take an endless one."""

DIAGNOSIS_S = 60.0
"""Limit for the time that a failed job's logs are read [s]; no job waits in a queue for it."""

_log = logging.getLogger("schedmate")
_log.addHandler(logging.NullHandler())


class SchedMate:
    """The Scheduling Advisor behind one object (SchedMate paper, section 3.1).

    `analyze` answers or raises; `on_submit` is for a scheduler's submit path: it answers within
    the deadline or returns None, never raises and never waits for a language model. Repositories
    and logs are read in processes that are ended at the deadline, whatever they do. All methods
    may be called from any thread, and in a child that the scheduler forks.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        record: bool = False,
        llm: LLM | None = None,
        at_once: int | None = None,
        own_process: bool = False,
    ) -> None:
        """Nothing is opened yet; `record` makes `on_submit` store each job in the history.

        `llm` stands in for the language model that the settings name. `at_once` is how many
        repositories and logs are read at the same time, each in a process. `own_process` is for
        commands that call `analyze` in a process with a single thread, which is then forked itself.
        """
        self.settings = settings if settings is not None else load_settings()
        self._record = record
        self._llm = llm
        self._readers = Readers(
            self.settings.memory_mb,
            rules_folder=self.settings.rules_folder,
            at_once=at_once,
            own_process=own_process,
        )
        self._closed = False
        self._reset()
        _alive.add(self)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._advice = Advice(self.settings)
        # Python code under one interpreter lock: more threads would only slow each other.
        self._workers = ThreadPoolExecutor(THREADS, thread_name_prefix="schedmate")
        self._places = threading.BoundedSemaphore(2 * THREADS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Cancel running reads, wait for the rest, close the history. May be repeated."""
        with self._lock:
            self._closed = True
        self._readers.close()
        self._workers.shutdown(wait=True, cancel_futures=True)
        self._advice.close()
        with self._lock:
            llm, self._llm = self._llm, None
        if llm is not None:
            llm.close()

    def prepare(self) -> None:
        """Load code and embedder and open the history now, so that the first job need not wait.

        Raises `InputError` for a history that cannot be read.
        """
        self._readers.prepare()
        self._advice.prepare(create=self._record)

    def analyze(self, spec: JobSpec, *, budget_s: float | None = None) -> Analysis:
        """The metadata of a job and an estimate of its run time.

        `budget_s` [s of CPU time] is the limit for static analysis; a warning says what it left
        out. A language model is asked if the settings name one and their `mode` is not static; if
        it fails, the answer is that of static analysis and `Analysis.model` gives the reason. If
        static analysis has none, the model alone answers, with a warning, or the error stands.
        Raises `UsageError` without `spec.repo`, `InputError` for a repository or history that
        cannot be read, `LimitError` for a repository that takes too much time or memory.
        """
        self._ensure_open()
        began = time.perf_counter()
        unread: SchedmateError | None = None
        try:
            extraction = self._readers.extract(
                spec, self.settings.budget_s if budget_s is None else budget_s
            )
        except (InputError, LimitError) as error:
            # A job file that is made at run time, say: a model may tell what it reads.
            if not _has_files(spec.repo) or self._extractor() is None:
                raise
            unread = error
            extraction = Extraction(WorkloadMetadata(), spec.launch, [str(error)], cut_off=True)
        analysis = self._conclude(spec, extraction, began, with_model=True)
        use = analysis.model
        if unread is not None and (use is None or not use.filled):
            reason = (use.reason if use is not None else None) or "it found nothing that it proved"
            message = f"{unread} The language model has no answer either: {reason}"
            raise ModelError("malformed", message) from unread
        return analysis

    def analyze_variants(
        self, specs: Sequence[JobSpec], *, budget_s: float | None = None
    ) -> list[Analysis | SchedmateError]:
        """`analyze` for jobs of one repository with different commands, in one process.

        `budget_s` [s of CPU time] is for each. No language model is asked. What `analyze` would
        raise for a job is in its place. Raises `UsageError` for jobs of several repositories.
        """
        self._ensure_open()
        budget_s = self.settings.budget_s if budget_s is None else budget_s
        analyses: list[Analysis | SchedmateError] = []
        for spec, found in zip(specs, self._readers.extract_variants(specs, budget_s), strict=True):
            if isinstance(found, SchedmateError):
                analyses.append(found)
                continue
            began = time.perf_counter()
            try:
                analyses.append(self._conclude(spec, found, began, with_model=False))
            except SchedmateError as error:
                analyses.append(error)
        return analyses

    def prompt(self, spec: JobSpec) -> dict[str, Any] | None:
        """The request that `analyze` would send first, or None if it would send none.

        Raises `UsageError` without a model or with `mode` static, else as `analyze`.
        """
        extractor = self._extractor()
        if extractor is None:
            raise UsageError(
                "no language model would be asked; name one with --llm-base-url and --model."
            )
        return extractor.prompt(spec, self._readers.extract(spec, self.settings.budget_s))

    def _conclude(
        self, spec: JobSpec, extraction: Extraction, began: float, *, with_model: bool
    ) -> Analysis:
        """The analysis that follows from an extraction; `began` [s] by `time.perf_counter`."""
        extracted = time.perf_counter()
        timing = {"static": extracted - began}
        metadata, use = extraction.metadata, None
        extractor = self._extractor() if with_model else None
        if extractor is not None:
            metadata, use = extractor.extract(spec, extraction)
            timing["model"] = time.perf_counter() - extracted
        warnings = list(extraction.warnings)
        metadata = sure_enough(metadata, self.settings.min_confidence, warnings)
        asked = time.perf_counter()
        estimate, history_size = self._advice.estimate(
            metadata, extraction.launch, spec.submit_time, spec
        )
        ended = time.perf_counter()
        return Analysis(
            spec=spec,
            metadata=metadata,
            launch=extraction.launch,
            estimate=estimate,
            history_size=history_size,
            source=use.mode if use is not None and use.filled and use.outcome == "ok" else "static",
            model=use,
            timing_s={**timing, "retrieval": ended - asked, "total": ended - began},
            warnings=warnings,
        )

    def _extractor(self) -> MetadataExtractor | None:
        """The model's half of extraction; None when no model is to be asked."""
        mode = self.settings.mode
        if mode == "static":
            return None
        llm = self._open_llm()
        if llm is None:
            if mode is not None:
                raise UsageError(
                    f"mode {mode} needs a language model; give --llm-base-url and --model."
                )
            return None
        from schedmate.agent.react.extractor import MetadataExtractor

        return MetadataExtractor(llm, self.settings, mode or "hybrid")

    def _open_llm(self) -> LLM | None:
        with self._lock:
            self._ensure_open()
            if self._llm is None:
                from schedmate.llm import open_llm

                self._llm = open_llm(self.settings)
            return self._llm

    def on_submit(self, spec: JobSpec, *, deadline_s: float | None = None) -> Estimate | None:
        """An estimate for a job at its submission, or None: proceed as without schedmate.

        None if no past job is similar, if `deadline_s` [s] (default: the setting) has passed, and
        on any failure. The logger `schedmate` says why: failures are warnings, no similar job is
        information. Never raises. Of a job that does not end by itself, a server, the estimate is
        `endless` and has no run time.
        """
        estimate = self._in_time(
            "estimate",
            spec,
            lambda deadline: self._advise(spec, deadline, record=self._record),
            deadline_s,
        )
        if estimate is not None and estimate.abstained and not estimate.endless:
            _log.info("no estimate for job %s: %s", _called(spec), clean(estimate.reason))
            return None
        return estimate

    def on_progress(
        self,
        job: JobSpec,
        log: Path | str,
        *,
        since: int = 0,
        batch_size: int | None = None,
        deadline_s: float | None = None,
    ) -> Progress | None:
        """The progress of a running job by its log, or None if unknown (section 3.2).

        `log` is a file or a directory with a file per rank. `since` [bytes] leaves out what was
        written before a change (`Progress.log_bytes` of an earlier call);
        `progress.ratio.throughput_ratio` compares the two. `batch_size` is the global one, for logs
        that state only samples a second. A log that counts epochs alone has no step time, but a
        time until the end. None also if `deadline_s` [s] (default: the setting) has passed and on
        any failure, which is logged. Never raises.
        """
        progress = self._in_time(
            "progress",
            job,
            lambda deadline: self._readers.track(
                log, since=since, batch_size=batch_size, wall_s=_left_s(deadline)
            ),
            deadline_s,
        )
        if progress is None or (progress.abstained and progress.eta_s is None):
            return None
        return progress

    def on_watch(
        self,
        job: JobSpec,
        log: Path | str,
        *,
        now: float,
        written: float,
        limits: WatchLimits,
        before: Health | None = None,
        deadline_s: float | None = None,
    ) -> Health | None:
        """Whether a running job goes on as it should, by its log; None if nothing can be said.

        `now` and `written`, when the log was written last, are in [s since epoch]; `before` is what
        the look before found. None also if `deadline_s` [s] (default: the setting) has passed and
        on any failure, which is logged. Never raises.
        """
        health = self._in_time(
            "health",
            job,
            lambda deadline: self._readers.watch(
                log,
                now=now,
                written=written,
                limits=limits,
                before=before,
                wall_s=_left_s(deadline),
            ),
            deadline_s,
        )
        if health is None or health.conditions:
            return health
        progress = health.progress
        return None if progress.abstained and progress.eta_s is None else health

    def estimate_remaining(
        self,
        job: JobSpec,
        elapsed_s: float,
        *,
        log: Path | str | None = None,
        estimate: Estimate | None = None,
        deadline_s: float | None = None,
    ) -> Remaining | None:
        """How long a job still takes which has run for `elapsed_s` [s].

        One distribution: that of its submission, given that it still runs, updated by its `log`
        (as `on_progress` reads it). `estimate` is that of its submission; without it, the one that
        the history gives for the job of this id as it was recorded, or for the code in `job.repo`.
        `Remaining.unusual` marks a job that outlived 99 of 100 such jobs. None if `deadline_s` [s]
        (default: the setting) has passed and on any failure, which is logged. Never raises.
        """

        def work(deadline: float) -> Remaining:
            from schedmate.retrieval.remaining import remaining_time

            at_submission = self._estimate_of(job, deadline) if estimate is None else estimate
            progress = None
            if log is not None:
                progress = self._readers.track(log, since=0, wall_s=_left_s(deadline))
            return remaining_time(elapsed_s, at_submission, progress)

        return self._in_time("remaining time", job, work, deadline_s)

    def _estimate_of(self, job: JobSpec, deadline: float) -> Estimate | None:
        """The estimate of a job at its submission; None if nothing says what it trains."""
        opened = self._advice.open(create=False)
        stored = opened[0].get(job.job_id) if opened is not None and job.job_id else None
        if stored is not None:
            return self.estimate(stored.metadata, stored.launch, stored.submit_time, stored)
        return self._advise(job, deadline, record=False) if job.repo is not None else None

    def on_failure(
        self,
        job: JobSpec,
        logs: Path | str | Sequence[Path | str],
        *,
        node_logs: Sequence[Path | str] = (),
        state: JobState | None = None,
        failed_nodes: Sequence[str] = (),
        deadline_s: float = DIAGNOSIS_S,
    ) -> Diagnosis | None:
        """The first failure of a job, its type and a plan for it (section 3.3).

        `logs` is a file, a directory with a file per rank, or several; `node_logs` are kernel logs
        of its nodes, `job.node_names` their names. `state` is the scheduler's state of the run,
        which is evidence by itself (`logs` may then be empty), and `failed_nodes` are nodes that
        the scheduler lost. `error_type` is `unknown` if the logs do not show the cause. None if
        `deadline_s` [s] has passed and on any failure, which is logged. Never raises, never waits
        for a language model.
        """

        def diagnose(deadline: float) -> Diagnosis | None:
            paths = [logs] if isinstance(logs, Path | str) else list(logs)
            nodes, diagnosis = tuple(job.node_names), None
            if paths or state is None:
                wall_s = _left_s(deadline)
                diagnosis = self._readers.diagnose(
                    paths, node_logs=node_logs, nodes=nodes, wall_s=wall_s
                )
            if state is None:
                return diagnosis
            from schedmate.logparse.failure.states import of_state

            return of_state(
                diagnosis, state, job=job.job_id, nodes=nodes, failed_nodes=failed_nodes
            )

        return self._in_time("diagnosis", job, diagnose, deadline_s)

    def _in_time(
        self, what: str, spec: JobSpec, work: Callable[[float], T], deadline_s: float | None
    ) -> T | None:
        """The result of `work(deadline)`, if it succeeds in time."""
        job = _called(spec)
        allowed_s = self.settings.deadline_s if deadline_s is None else deadline_s
        try:
            self._ensure_open()
            return work(time.monotonic() + min(allowed_s, LONGEST_DEADLINE_S))
        except TimeoutError:
            _log.warning("no %s for job %s within %.3g s (deadline_s)", what, job, allowed_s)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - advice fails open
            # an embedder of somebody else's that calls `sys.exit` ends no scheduler
            _log.warning("no %s for job %s: %s", what, job, clean(f"{error}" or repr(error)))
        return None

    def store(self, record: JobRecord) -> str:
        """Add a record to the history; returns its job id.

        A pending job with the same id is replaced. Raises `InputError` if the history cannot be
        written or has the job of that id as ended.
        """
        return self._advice.store(record)

    def stored(self, job_id: str) -> JobRecord:
        """The job of this id in the history; raises `InputError` if there is none."""
        from schedmate.retrieval.table import unknown_job

        opened = self._advice.open(create=False)
        record = None if opened is None else opened[0].get(job_id)
        if record is None:
            raise unknown_job(job_id)
        return record

    def learn(self, records: Sequence[JobRecord]) -> None:
        """Add ended jobs to the history; those with the same ids are replaced.

        Raises `InputError` if the history cannot be written.
        """
        self._advice.learn(records)

    def started(self, since: float) -> list[tuple[float, float, str | None]]:
        """Of GPU jobs of the history that have run and were submitted after a time: submission,
        start [s since epoch], user; none without a history that can be read."""
        try:
            return self._advice.started(since)
        except SchedmateError as error:
            _log.warning("earlier waits are unknown: %s", error)
            return []

    def history_version(self) -> tuple[int, int] | None:
        """What differs from before once the history was written, by whomever (or there is one now).

        Raises `InputError` if the history cannot be read.
        """
        return self._advice.version()

    def estimate(
        self,
        metadata: WorkloadMetadata,
        launch: LaunchConfig,
        now: float | None = None,
        job: JobSpec | JobRecord | None = None,
    ) -> Estimate:
        """An estimate from known metadata, at the time `now` [s since epoch]; `job` says whose it
        is, its name and its command.

        Raises `InputError` if the history cannot be read.
        """
        return self._advice.estimate(metadata, launch, now, job)[0]

    def _advise(self, spec: JobSpec, deadline: float, *, record: bool) -> Estimate:
        began = time.perf_counter()
        left_s = _left_s(deadline)
        budget_s = min(left_s, self.settings.budget_s)
        extraction = self._readers.extract(spec, budget_s, left_s)

        def conclude() -> Estimate:
            # A model takes longer than a scheduler can wait.
            analysis = self._conclude(spec, extraction, began, with_model=False)
            if record:
                self.store(analysis.record())
            return analysis.estimate

        places = self._places
        # a thread of its own: the history may lie on a disk that does not answer
        if not self._places.acquire(timeout=_left_s(deadline)):
            raise TimeoutError
        task = self._workers.submit(conclude)
        task.add_done_callback(lambda _: places.release())
        try:
            return task.result(timeout=_left_s(deadline))
        finally:
            task.cancel()

    def _ensure_open(self) -> None:
        if self._closed:
            raise UsageError("this SchedMate is closed; make a new one.")


def _called(spec: JobSpec) -> str:
    """What a job is called in a message; it may be no job at all."""
    return clean(getattr(spec, "job_id", None) or getattr(spec, "name", None))


def _left_s(deadline: float) -> float:
    """Time until the deadline by `time.monotonic` [s]; raises `TimeoutError` when there is none."""
    left_s = deadline - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    return left_s


_alive: weakref.WeakSet[SchedMate] = weakref.WeakSet()
_inherited: list[object] = []


def _forget_after_fork() -> None:
    """In a child that the host forked: threads, locks and connections are its parent's."""
    for one in list(_alive):
        # kept for ever: closing a connection of SQLite would disturb the parent's
        _inherited.append(one._advice)  # noqa: SLF001 - the same module
        one._reset()  # noqa: SLF001


os.register_at_fork(after_in_child=_forget_after_fork)
