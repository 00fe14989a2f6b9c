"""`Service`: what the routes call. It has a thread for each kind of work.

Advice, writes to the history and updates of the dashboard have a thread each (`lane.py`);
repositories and logs are read in confined processes (`reading.py`). None waits for another.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from schedmate.advice import embedder_of
from schedmate.errors import SchedmateError
from schedmate.jobs import (
    Diagnosis,
    Estimate,
    JobRecord,
    JobSpec,
    LaunchConfig,
    Progress,
    WorkloadMetadata,
)
from schedmate.readers import Readers
from schedmate.retrieval.advisor import SchedulingAdvisor
from schedmate.retrieval.history import JobHistory
from schedmate.retrieval.stores import open_history
from schedmate.serve import board as shown
from schedmate.serve.browsing import Browsing
from schedmate.serve.dashboard import Dashboard
from schedmate.serve.lane import Lane
from schedmate.serve.metrics import Metrics
from schedmate.serve.models import (
    Advice,
    AdviseRequest,
    DiagnoseRequest,
    FinishRequest,
    TrackRequest,
)
from schedmate.serve.options import ServeOptions
from schedmate.serve.plans import Plans
from schedmate.serve.reading import Reading
from schedmate.serve.summary import summary
from schedmate.serve.writing import Store, Write, Writer, Written
from schedmate.settings import Settings

log = logging.getLogger("schedmate.serve")

BATCH = 256
"""Most writes committed together."""


@dataclass(frozen=True, slots=True)
class _Question:
    metadata: WorkloadMetadata
    launch: LaunchConfig
    now: float | None


class Service:
    """Opened by `start`, which may take seconds; `close` completes what was accepted."""

    def __init__(self, settings: Settings, options: ServeOptions) -> None:
        self.settings = settings
        self.options = options
        self.metrics = Metrics()
        self.plans = Plans(options.record)
        self._stack = ExitStack()
        self.ready = False
        self.failure: str | None = None
        """Why it could not start; None: it has started, or still may."""
        self.stopping = False

    # -- life ---------------------------------------------------------------

    def start(self) -> None:
        """Open the history, load the embedder, start the readers. Raises `InputError`."""
        settings, stack = self.settings, self._stack
        try:
            embedder = embedder_of(settings)
            # the writer's commits wait for the disk, so reading has separate connections
            writing = stack.enter_context(open_history(settings.history, embedder, poll=True))
            self._advising, browsing = (
                stack.enter_context(JobHistory.open(writing.path, embedder, read_only=True))
                for _ in range(2)
            )
            self._browse = Browsing(browsing)
            prepare = getattr(embedder, "prepare", None)
            if prepare is not None:
                prepare()
            self._advisor = SchedulingAdvisor(
                self._advising,
                threshold=settings.threshold,
                k=settings.top_k,
                method=settings.method,
            )
            self.dashboard = Dashboard(self.options.state, self.metrics)
            self.board = self.dashboard.board
            stack.callback(self.dashboard.close)
            limits = self.options.limits
            readers = Readers(settings.memory_mb, at_once=limits.reading)
            self.reading = Reading(readers, self.options.roots, limits.reading)
            stack.callback(self.reading.close)
            if self.options.roots:
                readers.prepare()
            self.dashboard.start()
            stack.callback(self.dashboard.stop)
            self._writes: Lane[Write, Written] = Lane(
                "writing", Writer(writing, self._written), batch=BATCH
            )
            stack.callback(self._writes.close)
            self._advice: Lane[_Question, tuple[Estimate, int]] = Lane("advice", self._estimates)
            stack.callback(self._advice.close)
            self._warm()
        except BaseException:
            stack.close()
            raise
        self.ready = True

    def unavailable(self) -> str | None:
        """Why requests cannot be answered now, as the end of a sentence; None when they can."""
        if self.stopping:
            return "is stopping"
        if self.failure is not None:
            return f"could not start: {self.failure.rstrip('.')}"
        return None if self.ready else "is starting"

    def _warm(self) -> None:
        """Make a first estimate now, so that the first request need not wait for imports."""
        sample = {"model_config": {"model_name": "resnet50"}, "dataset_config": {"train": "cifar"}}
        try:
            self._estimates([_Question(WorkloadMetadata.model_validate(sample), LaunchConfig(), 0)])
        except SchedmateError as error:
            # every answer will say so
            log.warning("the history cannot be asked: %s", error)

    def close(self) -> None:
        """Complete what was accepted, and release everything. May be called again."""
        self.stopping = True
        self._stack.close()

    # -- answers ------------------------------------------------------------

    async def advise(self, request: AdviseRequest, deadline: float) -> Advice:
        """Estimate a job's run time; `deadline` is a time of `time.monotonic` [s]."""
        job = request.job
        launch = job.launch
        warnings: list[str] = []
        if request.metadata is not None:
            metadata = request.metadata
        else:
            budget_s = self.settings.budget_s

            def read(readers: Readers, left_s: float) -> tuple[WorkloadMetadata, LaunchConfig]:
                spec = job
                if job.repo:
                    spec = job.model_copy(update={"repo": self.reading.allowed(job.repo)})
                found = readers.extract(spec, min(budget_s, left_s), left_s)
                warnings.extend(found.warnings)
                return found.metadata, found.launch

            metadata, launch = await self.reading.do(read, deadline)
        question = _Question(metadata, launch, job.submit_time)
        estimate, size = await self._advice.do(question, deadline)
        if request.record:
            assert job.job_id is not None
            record = JobRecord(
                job_id=job.job_id,
                name=job.name,
                user=job.user,
                command=job.command,
                launch=launch,
                metadata=metadata,
                submit_time=time.time() if job.submit_time is None else job.submit_time,
            )
            await self._writes.do(Store([record], new=True), deadline)
        self.metrics.advice.labels("abstained" if estimate.abstained else "estimated").inc()
        self.dashboard.tell(
            shown.Advised(job.model_copy(update={"launch": launch}), estimate, time.time())
        )
        return Advice(
            duration_s=estimate.duration_s,
            summary=summary(estimate),
            job_id=job.job_id,
            source="static" if request.metadata is None else "metadata",
            recorded=request.record,
            history_size=size,
            metadata=metadata if request.metadata is None else None,
            warnings=warnings,
            estimate=estimate,
        )

    async def track(self, request: TrackRequest, deadline: float) -> Progress:
        """Progress of a running job, by its log."""

        def read(readers: Readers, left_s: float) -> Progress:
            return readers.track(
                self.reading.allowed(request.log),
                since=request.since,
                batch_size=request.batch_size,
                wall_s=left_s,
            )

        found = await self.reading.do(read, deadline)
        self.dashboard.tell(
            shown.Tracked(
                request.job, found, time.time(), request.log, request.batch_size, request.follow
            )
        )
        return found

    async def diagnose(self, request: DiagnoseRequest, deadline: float) -> Diagnosis:
        """The first failure of a job, by its logs."""

        def read(readers: Readers, left_s: float) -> Diagnosis:
            allowed = self.reading.allowed
            return readers.diagnose(
                [allowed(one) for one in request.logs],
                node_logs=[allowed(one) for one in request.node_logs],
                nodes=request.job.node_names,
                wall_s=left_s,
            )

        found = await self.reading.do(read, deadline)
        self.metrics.verdicts.labels(found.error_type).inc()
        self.dashboard.tell(shown.Diagnosed(request.job, found, time.time()))
        return found

    async def store(self, jobs: Sequence[JobRecord], deadline: float) -> int:
        """Store jobs durably; return their number."""
        return len(await self._writes.do(Store(jobs), deadline))

    async def finish(self, request: FinishRequest, deadline: float) -> JobRecord:
        """Store how a stored job ended."""
        return (await self._writes.do(request, deadline))[0]

    async def jobs(
        self, job_id: str | None, *, limit: int, offset: int, state: str | None, user: str | None
    ) -> tuple[int, list[JobRecord]]:
        """Number of jobs in the history, and a page of them or the one with `job_id`.

        Raises `AbsentError` if no job has this id.
        """
        if job_id is not None:
            return await asyncio.to_thread(self._browse.one, job_id)
        return await asyncio.to_thread(self._browse.page, limit, offset, state, user)

    def text_of_metrics(self) -> bytes:
        """The metrics in Prometheus' format."""
        return self.metrics.show(self.plans.counts(), len(self._browse))

    # -- the dashboard ------------------------------------------------------

    async def look_again(self) -> None:
        """Read the logs that are followed, and look up in the history how open jobs ended."""
        heard = await asyncio.to_thread(self._news)
        for one in heard:
            self.dashboard.tell(one)
        for job in await asyncio.to_thread(self.board.followed, 32):
            if self.stopping or not self.reading.idle:
                return  # requests come first; the next pass begins with the log read longest ago
            spec = JobSpec(job_id=job["job_id"])
            request = TrackRequest(job=spec, log=job["log"], batch_size=job["batch_size"])
            try:
                await self.track(request, time.monotonic() + self.options.limits.deadline_s)
            except (SchedmateError, TimeoutError, OSError) as error:
                log.info("the log of job %s was not read: %s", job["job_id"], error)
                nothing = Progress(reason=str(error) or "it was not read in time")
                self.dashboard.tell(
                    shown.Tracked(spec, nothing, time.time(), job["log"], None, False)
                )

    def _news(self) -> list[shown.Heard]:
        now = time.time()
        records = map(self._browse.get, self.board.open(500))
        return [shown.Heard(record, now) for record in records if record is not None]

    # -- in the lanes -------------------------------------------------------

    def _estimates(
        self, questions: Sequence[_Question]
    ) -> Sequence[tuple[Estimate, int] | Exception]:
        return [
            (
                self._advisor.estimate(one.metadata, one.launch, one.now),
                len(self._advising),
            )
            for one in questions
        ]

    def _written(self, jobs: Written) -> None:
        self.metrics.stored.inc(len(jobs))
        now = time.time()
        for job in jobs:
            self.dashboard.tell(shown.Heard(job, now))
