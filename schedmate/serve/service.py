"""`Service`: what the routes call, with a thread for each kind of work.

It reads repositories and logs in a bounded number of confined processes (`Reading`), writes to the
history many requests at a time (`Writer`), looks up jobs (`Browsing`) and plans that wait for
approval (`Plans`), and keeps what the dashboard shows (`Dashboard`). A `Lane` is one thread that
does short pieces of work for the event loop, in their order. Advice, writes to the history and
updates of the dashboard have a lane each; none waits for another, nor for a log that is read.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Generic, NamedTuple, TypeVar

from schedmate.base.errors import SchedmateError
from schedmate.base.inputs import format_duration
from schedmate.base.terminal import clean, counted
from schedmate.cluster.record import OPEN, PlanStatus, Record, StateError
from schedmate.jobs import (
    Diagnosis,
    Estimate,
    JobRecord,
    JobSpec,
    LaunchConfig,
    Progress,
    Remaining,
    WorkloadMetadata,
)
from schedmate.jobs.health import Health
from schedmate.llm.store import recent_verdicts
from schedmate.logparse.watch.health import WatchLimits, written_at
from schedmate.mate import embedder_of, sure_enough
from schedmate.readers import Readers
from schedmate.retrieval.history import JobHistory
from schedmate.retrieval.learning import RunTimes
from schedmate.retrieval.remaining import remaining_time
from schedmate.retrieval.shared import open_history
from schedmate.serve import board as shown
from schedmate.serve.agents import AgentNews
from schedmate.serve.board import Board, Checked, Update
from schedmate.serve.metrics import Metrics
from schedmate.serve.models import (
    AbsentError,
    Advice,
    AdviseRequest,
    BusyError,
    ConflictError,
    DiagnoseRequest,
    FinishRequest,
    ProgressRequest,
    TrackRequest,
)
from schedmate.serve.options import ServeOptions
from schedmate.serve.roots import allowed_path
from schedmate.settings import Settings, data_dir

log = logging.getLogger("schedmate.serve")

LEARNING_S = 0.05
"""After so much learning [s] it is looked whether the service is asked something."""
WRITES_TOGETHER = 256
"""Most writes committed together."""


DAY_S = 86_400.0
MONTH = 30
"""Days of the dashboard's trends."""
FOLLOWED = 10_000
"""Jobs whose last look at their log is remembered."""
MONTH_EVERY_S = 300.0
"""Time between two counts of the month, which take longer than a page may [s]."""


class Month(NamedTuple):
    """What ended in the last days by the history, as `JobTable.by_day` gives it."""

    counted: float
    """When this was counted [s since epoch]."""
    since: float
    """Its first moment [s since epoch]."""
    by_day: list[tuple[int, str, int, float]]


@dataclass(frozen=True, slots=True)
class _Question:
    metadata: WorkloadMetadata
    launch: LaunchConfig
    now: float | None
    job: JobSpec | JobRecord | None = None


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
        self._health: dict[str | None, Health] = {}
        """What the last look found at logs that are followed, by job."""

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
            learning = stack.enter_context(JobHistory.open(writing.path, embedder, create=False))
            self._browse = Browsing(browsing)
            prepare = getattr(embedder, "prepare", None)
            if prepare is not None:
                prepare()
            self._run_times = RunTimes.of(self._advising, settings)
            self._asked = 0
            self._learner = Learner(RunTimes.of(learning, settings), lambda: self._asked)
            stack.callback(self._learner.close)
            self.dashboard = Dashboard(self.options.state, self.metrics)
            self.board = self.dashboard.board
            agent = self.options.agent
            self._agent = None if agent is None else AgentNews(agent, time.time())
            stack.callback(self.dashboard.close)
            limits = self.options.limits
            readers = Readers(
                settings.memory_mb, rules_folder=settings.rules_folder, at_once=limits.reading
            )
            self.reading = Reading(readers, self.options.roots, limits.reading)
            stack.callback(self.reading.close)
            if self.options.roots:
                readers.prepare()
            self.dashboard.start()
            stack.callback(self.dashboard.stop)
            self._writes: Lane[Write, Written] = Lane(
                "writing", Writer(writing, self._written), batch=WRITES_TOGETHER
            )
            stack.callback(self._writes.close)
            self._advice: Lane[_Question, tuple[Estimate, int]] = Lane("advice", self._estimates)
            stack.callback(self._advice.close)
            self._warm()
            self._count_month(time.time())
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
                extraction = readers.extract(spec, min(budget_s, left_s), left_s)
                warnings.extend(extraction.warnings)
                least = self.settings.min_confidence
                return sure_enough(extraction.metadata, least, warnings), extraction.launch

            metadata, launch = await self.reading.do(read, deadline)
        question = _Question(metadata, launch, job.submit_time, job)
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
            summary=estimate_line(estimate),
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

        progress = await self.reading.do(read, deadline)
        self.dashboard.tell(
            shown.Tracked(
                request.job, progress, time.time(), request.log, request.batch_size, request.follow
            )
        )
        return progress

    def report(self, request: ProgressRequest) -> Progress:
        """Progress of a running job, as its program states it."""
        progress = Progress(
            **request.model_dump(exclude={"job"}, exclude_none=True),
            source="none" if request.step_time_s is None else "stated",
            reader="report",
            readings=0 if request.step_time_s is None else 1,
            updated=time.time(),
        )
        left = max(0, (request.total_iterations or 0) - request.iteration)
        if request.step_time_s is not None and request.total_iterations is not None:
            progress.eta_s = left * request.step_time_s
        if request.total_iterations is not None and not left:
            progress.ended = "finished"
        self.dashboard.tell(
            shown.Tracked(request.job, progress, time.time(), None, None, follow=False)
        )
        return progress

    async def remaining(
        self, request: TrackRequest, progress: Progress, deadline: float
    ) -> Remaining | None:
        """How long a job still takes, by its estimate and its log; None if nobody asked for it."""
        if request.elapsed_s is None:
            return None
        job_id, estimate = request.job.job_id, None
        stored = None
        if job_id is not None:
            stored = await asyncio.to_thread(self._browse.get, job_id)
        if stored is not None:
            question = _Question(stored.metadata, stored.launch, stored.submit_time, stored)
            estimate = (await self._advice.do(question, deadline))[0]
        return remaining_time(request.elapsed_s, estimate, progress)

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

        diagnosis = await self.reading.do(read, deadline)
        self.metrics.verdicts.labels(diagnosis.error_type).inc()
        self.dashboard.tell(shown.Diagnosed(request.job, diagnosis, time.time()))
        return diagnosis

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
        calls = recent_verdicts(data_dir(), time.time() - 3600.0)
        return self.metrics.show(self.plans.counts(), len(self._browse), calls)

    # -- the dashboard ------------------------------------------------------

    async def known(self, job_id: str) -> tuple[JobRecord | None, Estimate | None]:
        """A job of the history, and what would be estimated of it now."""
        stored = await asyncio.to_thread(self._browse.get, job_id)
        if stored is None:
            return None, None
        question = _Question(stored.metadata, stored.launch, stored.submit_time, stored)
        return stored, (await self._advice.do(question, time.monotonic() + 5.0))[0]

    @property
    def browse(self) -> Browsing:
        """The history, to be looked at."""
        return self._browse

    def _count_month(self, now: float) -> None:
        since = now - now % DAY_S - (MONTH - 1) * DAY_S
        self.month = Month(now, since, self._browse.by_day(since))

    async def look_again(self) -> None:
        """Read the logs that are followed, look up in the history how open jobs ended, and count
        the month anew."""
        if time.time() - self.month.counted > MONTH_EVERY_S:
            await asyncio.to_thread(self._count_month, time.time())
        if self._agent is not None:
            for update in await asyncio.to_thread(self._agent.look, time.time()):
                self.dashboard.tell(update)
        heard = await asyncio.to_thread(self._news)
        for one in heard:
            self.dashboard.tell(one)
        for job in await asyncio.to_thread(self.board.followed, 32):
            if self.stopping or not self.reading.idle:
                return  # requests come first; the next pass begins with the log read longest ago
            await self._watch(job)

    async def _watch(self, job: shown.Job) -> None:
        """Read the log of a job that is followed."""
        spec, name, batch = JobSpec(job_id=job["job_id"]), job["log"], job["batch_size"]
        start, limit_s = job["start_time"], job["limit_s"]
        limits = WatchLimits(
            ends_at=start + limit_s if start is not None and limit_s else None,
            gpus=job["gpus"] or None,
        )

        def read(readers: Readers, left_s: float) -> Health:
            path, now = self.reading.allowed(name), time.time()
            return readers.watch(
                path,
                now=now,
                written=written_at(Path(path), now),
                limits=limits,
                before=self._health.get(spec.job_id),
                batch_size=batch,
                wall_s=left_s,
            )

        try:
            health = await self.reading.do(read, time.monotonic() + self.options.limits.deadline_s)
        except (SchedmateError, TimeoutError, OSError) as error:
            log.info("the log of job %s was not read: %s", spec.job_id, error)
            nothing = Progress(reason=str(error) or "it was not read in time")
            self.dashboard.tell(shown.Tracked(spec, nothing, time.time(), name, batch, False))
            return
        self._health[spec.job_id] = health
        if len(self._health) > FOLLOWED:
            del self._health[next(iter(self._health))]
        self.dashboard.tell(
            shown.Tracked(spec, health.progress, time.time(), name, batch, False, health.conditions)
        )

    @property
    def starts(self) -> dict[str, dict[str, float | None]]:
        """See `AgentNews.starts`; empty without an agent."""
        return {} if self._agent is None else self._agent.starts

    @property
    def used(self) -> dict[str, dict[str, float | None]]:
        """See `AgentNews.used`; empty without an agent."""
        return {} if self._agent is None else self._agent.used

    def _news(self) -> list[shown.Heard]:
        now = time.time()
        records = map(self._browse.get, self.board.open(500))
        return [shown.Heard(record, now) for record in records if record is not None]

    # -- in the lanes -------------------------------------------------------

    def _estimates(
        self, questions: Sequence[_Question]
    ) -> Sequence[tuple[Estimate, int] | Exception]:
        self._asked += len(questions)
        return [
            (
                self._run_times.estimate(one.metadata, one.launch, one.now, one.job),
                len(self._advising),
            )
            for one in questions
        ]

    def _written(self, jobs: Written) -> None:
        self.metrics.stored.inc(len(jobs))
        if any(job.ended for job in jobs):
            self._learner.wake()
        now = time.time()
        for job in jobs:
            self.dashboard.tell(shown.Heard(job, now))


# Writes to the history: many requests are committed together, in their order.


@dataclass(frozen=True, slots=True)
class Store:
    """Store these jobs; with `new`, not in the place of one that has ended."""

    jobs: Sequence[JobRecord]
    new: bool = False


Write = Store | FinishRequest
Written = Sequence[JobRecord]


class Learner:
    """Has the experts learn from jobs that ended, in a thread of its own.

    `asked` counts the questions that the service has been asked: while it grows, learning a backlog
    takes a fifth of the time, so that answers and writes need not wait for it.
    """

    def __init__(self, run_times: RunTimes, asked: Callable[[], int]) -> None:
        self._run_times = run_times
        self._asked = asked
        self._news = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="schedmate-learning", daemon=True)
        self._news.set()  # what ended while no service was there
        self._thread.start()

    def wake(self) -> None:
        """Say that jobs have ended."""
        self._news.set()

    def close(self) -> None:
        """End the thread after what it is at, a moment at most."""
        self._stopping.set()
        self._news.set()
        self._thread.join()

    def _run(self) -> None:
        while self._news.wait() and not self._stopping.is_set():
            self._news.clear()
            try:
                began, asked = time.monotonic(), self._asked()
                while not self._stopping.is_set() and self._run_times.learn(most_s=LEARNING_S):
                    if self._asked() > asked:
                        self._stopping.wait(4 * (time.monotonic() - began))
                    began, asked = time.monotonic(), self._asked()
            except SchedmateError as error:
                log.warning("run times were not learned: %s", error)


class Writer:
    """Answers a batch of writes, in order. An answer means that the disk has it."""

    def __init__(self, history: JobHistory, on_written: Callable[[Written], None]) -> None:
        self._history = history
        self._on_written = on_written

    def __call__(self, writes: Sequence[Write]) -> list[Written | Exception]:
        """The result for each: its jobs as stored, or the error."""
        answers: list[Written | Exception] = []
        at = 0
        while at < len(writes):
            write = writes[at]
            if isinstance(write, FinishRequest):
                answers.append(self._alone(write))
                at += 1
                continue
            run = [write]
            for other in writes[at + 1 :]:
                if not isinstance(other, Store) or other.new:
                    break
                run.append(other)
            answers += self._together(run)
            at += len(run)
        for answer in answers:
            if not isinstance(answer, Exception):
                self._on_written(answer)
        return answers

    def _together(self, run: Sequence[Store]) -> list[Written | Exception]:
        if len(run) > 1:
            try:
                self._history.add_many(job for write in run for job in write.jobs)
            except SchedmateError:
                pass  # one of them cannot be stored: each for itself
            else:
                return [write.jobs for write in run]
        return [self._alone(write) for write in run]

    def _alone(self, write: Write) -> Written | Exception:
        try:
            if isinstance(write, FinishRequest):
                return [self._finish(write)]
            if write.new:
                self._refuse_ended(write.jobs)
            self._history.add_many(write.jobs)
        except SchedmateError as error:
            return error
        return write.jobs

    def _finish(self, request: FinishRequest) -> JobRecord:
        if self._history.get(request.job_id) is None:
            raise AbsentError(f"no job {request.job_id!r} in the history; store it first.")
        usage = request.model_dump(exclude_none=True, exclude={"job_id"})
        return self._history.finish(request.job_id, **usage)

    def _refuse_ended(self, jobs: Sequence[JobRecord]) -> None:
        for job in jobs:
            stored = self._history.get(job.job_id)
            if stored is not None and stored.ended:
                raise ConflictError(
                    f"job {job.job_id} is in the history as {stored.state}; record this one under "
                    "another job id."
                )


# Reads repositories and logs for requests in a bounded number of confined processes.


T = TypeVar("T")


class Reading:
    """At most `at_once` processes; the same number of requests may wait, and more are refused.

    `roots` are the directories that may be read, links resolved; a path counts by the target of its
    links.
    """

    def __init__(self, readers: Readers, roots: Sequence[Path], at_once: int) -> None:
        self.readers = readers
        self._roots = tuple(roots)
        self._at_once = at_once
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix="schedmate-reading")
        self._taken = 0

    def close(self) -> None:
        """Cancel all reads in progress."""
        self.readers.close()
        self._threads.shutdown(wait=True, cancel_futures=True)

    @property
    def idle(self) -> bool:
        """Whether a request would start at once."""
        return self._taken < self._at_once

    async def do(self, work: Callable[[Readers, float], T], deadline: float) -> T:
        """The result of `work(readers, left_s)`; raises `BusyError`, or `TimeoutError` past the
        deadline [s, `time.monotonic`]."""
        if self._taken >= 2 * self._at_once:
            raise BusyError("as many repositories and logs as allowed are being read; try again.")
        self._taken += 1
        loop = asyncio.get_running_loop()
        try:
            task = loop.run_in_executor(self._threads, self._work, work, deadline)
        except BaseException:
            self._taken -= 1
            raise
        # a reading process counts until it has ended, even if its request has timed out
        task.add_done_callback(self._done)
        async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
            return await asyncio.shield(task)

    def _done(self, task: asyncio.Future[T]) -> None:
        self._taken -= 1
        if not task.cancelled():
            task.exception()  # the client may be gone

    def _work(self, work: Callable[[Readers, float], T], deadline: float) -> T:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        return work(self.readers, left_s)

    def allowed(self, path: str) -> str:
        """The path without links; raises `OutsideError` if it is not below a root."""
        return allowed_path(path, self._roots)


# Looking up jobs in the history, from several threads over one connection.


class Browsing:
    """A read-only history behind a lock."""

    def __init__(self, history: JobHistory) -> None:
        self._history = history
        self._lock = threading.Lock()

    def __len__(self) -> int:
        with self._lock:
            return len(self._history)

    def get(self, job_id: str) -> JobRecord | None:
        """The job with this id; None: there is none."""
        with self._lock:
            return self._history.get(job_id)

    def one(self, job_id: str) -> tuple[int, list[JobRecord]]:
        """Number of jobs, and the one with this id. Raises `AbsentError` if there is none."""
        record = self.get(job_id)
        if record is None:
            raise AbsentError(f"no job {job_id!r} in the history.")
        return len(self), [record]

    def find(self, text: str, limit: int, newest: int) -> list[JobRecord]:
        """As `JobTable.find`."""
        with self._lock:
            return self._history.find(text, limit, newest)

    def by_day(self, since: float) -> list[tuple[int, str, int, float]]:
        """As `JobTable.by_day`."""
        with self._lock:
            return self._history.by_day(since)

    def page(
        self, limit: int, offset: int, state: str | None, user: str | None
    ) -> tuple[int, list[JobRecord]]:
        """Number of jobs, and some of them: newest first, of a state and user if given."""
        with self._lock:
            return len(self._history), self._history.list(limit, offset, state, user)


# Plans that wait for approval, as the record of live actions holds them.


PLANS_SHOWN = 100


class Plans:
    """Reads the record, and approves or rejects plans; the agent carries them out.

    Without a record, because no agent has written one yet, there are no plans.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()

    def list(self, *, open_only: bool = False, limit: int = PLANS_SHOWN) -> list[PlanStatus]:
        """The newest plans first."""
        states = OPEN if open_only else None
        return self._ask(lambda one: one.plans(states=states, limit=limit), [])

    def counts(self) -> dict[str, int]:
        """How many plans are in each state."""
        return self._ask(lambda one: {str(k): n for k, n in one.counts().items()}, {})

    def decide(self, plan: str, *, approve: bool, by: str, note: str = "") -> PlanStatus:
        """Approve or reject a plan.

        Raises `AbsentError`, or `ConflictError` if its state does not allow that any more.
        """
        if not self.path.exists():
            raise AbsentError(f"no plan {plan!r}: no plan has been recorded yet.")
        with self._lock, Record(self.path) as record:
            try:
                status = record.plan(plan)
            except StateError as error:
                raise AbsentError(str(error)) from None
            try:
                decide = record.approve if approve else record.reject
                return decide(status.plan.id, by=by, note=note)
            except StateError as error:
                raise ConflictError(str(error)) from None

    def _ask(self, question: Callable[[Record], T], without: T) -> T:
        if not self.path.exists():
            return without
        with self._lock, Record(self.path, read_only=True) as record:
            return question(record)


# The dashboard's state: updates from answers, stored in the background.


UPDATES_TOGETHER = 1024
"""Most updates stored together."""


class Dashboard:
    """The board and the thread that writes it; a failure there never affects an answer."""

    def __init__(self, state: Path, metrics: Metrics) -> None:
        self._metrics = metrics
        self.board = Board(state, self._count_estimate)

    def start(self) -> None:
        """Start the thread."""
        self._lane: Lane[Update, None] = Lane("board", self._write, batch=UPDATES_TOGETHER)

    def tell(self, update: Update) -> None:
        """Store an update soon; it is dropped, and counted, if too many wait."""
        if not self._lane.tell(update):
            self._metrics.unshown.inc()

    def stop(self) -> None:
        """Store what waits, and end the thread."""
        self._lane.close()

    def close(self) -> None:
        """Close the board's database."""
        self.board.close()

    def _write(self, updates: Sequence[Update]) -> Sequence[Exception | None]:
        try:
            self.board.write(updates)
        except Exception as error:  # noqa: BLE001 - the answers were given
            log.warning("the dashboard missed %d updates: %s", len(updates), error)
        return [None] * len(updates)

    def _count_estimate(self, checked: Checked) -> None:
        """Count how an estimate compares with the run time of its job."""
        self._metrics.error.observe(checked.duration_s / checked.estimate_s)
        self._metrics.within.labels(checked.place).inc()


# `Lane`: one thread that does short pieces of work for the event loop, in their order.
#
# One thread, because the work is Python under one interpreter lock and a database with one
# connection: more threads would only slow each other down, and the slowest answers most.


R = TypeVar("R")

_LaneEntry = tuple[T, float, "asyncio.Future[R] | None"]


class Lane(Generic[T, R]):
    """A thread that answers requests in batches.

    `work` gets up to `batch` items and returns an answer or an exception for each, in order. Items
    whose deadline has passed, or whose request was cancelled, are skipped.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[Sequence[T]], Sequence[R | Exception]],
        *,
        batch: int = 1,
        most: int = 100_000,
    ) -> None:
        self._work = work
        self._batch = batch
        self._most = most
        self._queue: SimpleQueue[_LaneEntry[T, R] | None] = SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name=f"schedmate-{name}", daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        return self._queue.qsize()

    async def do(self, item: T, deadline: float) -> R:
        """The answer for an item; raises `TimeoutError` past `deadline` [s, `time.monotonic`]."""
        self._loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = self._loop.create_future()
        self._queue.put((item, deadline, future))
        async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
            return await future

    def tell(self, item: T) -> bool:
        """Have an item worked on without waiting; False where too much is waiting already."""
        if self._queue.qsize() >= self._most:
            return False
        self._queue.put((item, float("inf"), None))
        return True

    def close(self) -> None:
        """Complete what was given so far and end the thread. May be called again."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        ended = False
        while not ended:
            entries = [self._queue.get()]
            while len(entries) < self._batch and entries[-1] is not None:
                try:
                    entries.append(self._queue.get_nowait())
                except Empty:
                    break
            ended = entries[-1] is None
            now = time.monotonic()
            live = [
                entry
                for entry in entries
                if entry is not None
                and now < entry[1]
                and not (entry[2] is not None and entry[2].cancelled())
            ]
            if live:
                self._answer(live, self._answers([entry[0] for entry in live]))

    def _answers(self, items: Sequence[T]) -> Sequence[R | Exception]:
        try:
            return self._work(items)
        except Exception as error:  # noqa: BLE001 - the thread serves the next ones
            return [error] * len(items)

    def _answer(
        self, entries: Sequence[_LaneEntry[T, R]], answers: Sequence[R | Exception]
    ) -> None:
        waiting = [
            (entry[2], answer)
            for entry, answer in zip(entries, answers, strict=True)
            if entry[2] is not None
        ]
        if waiting and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(_settle_future, waiting)


def _settle_future(waiting: Sequence[tuple[asyncio.Future[R], R | Exception]]) -> None:
    for future, answer in waiting:
        if not future.done():
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)


# An estimate in one line, for a job's comment or a table.


def estimate_line(estimate: Estimate) -> str:
    """`2 h 05 min (1 h 40 min to 3 h 10 min), from 5 past runs`, or why there is none."""
    if estimate.abstained or estimate.duration_s is None:
        return clean(f"no estimate: {estimate.reason or 'nothing is known'}", 300)
    interval = ""
    if estimate.duration_p10_s is not None and estimate.duration_p90_s is not None:
        low, high = map(format_duration, (estimate.duration_p10_s, estimate.duration_p90_s))
        interval = f" ({low} to {high})"
    runs = counted(estimate.past_jobs, "past run")
    return f"{format_duration(estimate.duration_s)}{interval}, from {runs}"
