"""Keeps the queue of `schedmate ray` as an actor on the head of a Ray cluster.

It decides, diagnoses and recovers, and answers what clients ask. It imports most of schedmate,
so commands import it only where they start the queue.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

from schedmate.base.errors import InputError, SchedmateError
from schedmate.base.reading import ANY_SIZE, open_binary
from schedmate.cluster import RECORD_FILE, SHADOW_FOLDER
from schedmate.cluster.adapter import NoRunner
from schedmate.cluster.bounds import (
    Bounds,
    DiagnoseBounds,
    FollowBounds,
    LearnBounds,
    load_bounds,
)
from schedmate.cluster.ended import BEGUN
from schedmate.cluster.loop import assembled, watch
from schedmate.cluster.memory import Memory
from schedmate.cluster.ray.adapter import QueueAdapter
from schedmate.cluster.ray.controller import Controller, expected_starts, waiting_reasons
from schedmate.cluster.ray.runs import QueueOptions, log_of
from schedmate.cluster.ray.seats import Backend, NodeSeen, Seats
from schedmate.cluster.ray.store import OVER, QUEUE_FILE, Request, Store, StoredJob
from schedmate.cluster.recovery.checkpoints import newest_checkpoint, resume_command
from schedmate.cluster.recovery.configuration import Configuration, load_configuration
from schedmate.cluster.recovery.recover import of_cluster
from schedmate.cluster.reloading import Reload
from schedmate.mate import SchedMate
from schedmate.schedulers import registry
from schedmate.schedulers.adapters.modules import LogFiles, PackingTracker, WithSchedMate
from schedmate.schedulers.model import Forecast, Job
from schedmate.settings import load_settings


class QueueSetup(NamedTuple):
    """What a queue is started with: it is what `up` says, kept for when the actor comes back."""

    name: str
    state: str
    """Directory of the queue's files; on the machine of the actor."""
    policy: str
    folder: str
    """Logs and locks, on a file system that all nodes share."""
    history: str | None = None
    bounds: str | None = None
    """bounds.yaml: how the queue's agent works; what it says of the order does not matter here."""
    recovery: str | None = None
    """recovery.yaml, in place of the one that the bounds name."""
    shadow: bool = False
    """Failures are diagnosed and plans made, and nothing is done."""
    restart: bool = False
    """Restart failed jobs as the Failure Handler says, within recovery's default limits."""
    estimate: bool = True
    """Estimate jobs from their code and the history."""
    meter: tuple[str, ...] | None = None
    lease_s: float = 60.0
    keep_s: float = 30.0
    poll_s: float = 1.0


def actor_prefix(name: str) -> str:
    """How the names of a queue's actors begin."""
    return f"schedmate-{name}"


# The parts of `QueueDocument`: nodes and jobs of a queue, as `schedmate ray queue` shows them.


def queue_rows(
    queue: Controller, nodes: Sequence[NodeSeen], ends: Mapping[int, float]
) -> dict[str, Any]:
    """All that waits or runs, and where; `ends` are those that logs tell [s since epoch]."""
    why, begins = waiting_reasons(queue), expected_starts(queue, ends)
    drains = queue.store.drains()
    free: dict[str, int] = {}
    if queue.board is not None:
        for id_, place in queue.places.items():
            free[id_] = queue.board.view.space.free[place].bit_count()
    return {
        "decided_s": queue.decided_s,
        "counts": queue.store.counts(),
        "nodes": [
            {
                "name": node.name,
                "gpus": node.gpus,
                "free": free.get(node.id, 0),
                "reason": drains.get(node.name, ""),
            }
            for node in nodes
        ],
        "jobs": [
            _live_row(
                queue, stored, why.get(stored.id, ""), begins.get(stored.id), ends.get(stored.id)
            )
            for stored in queue.store.jobs()
        ],
    }


def _live_row(
    queue: Controller, stored: StoredJob, why: str, begins: float | None, ends: float | None
) -> dict[str, Any]:
    job, run = queue.jobs.get(stored.id), queue.runs.get(stored.id)
    forecast = None if job is None else job.forecast
    started = None if run is None else run.started
    if ends is None and started and forecast is not None:
        ends = started + max(0.0, forecast.duration_s - stored.service_s)
    return _job_row(stored) | {
        "estimate_s": None if forecast is None else forecast.duration_s,
        "why": why,
        "nodes": [] if run is None else [place.name for place in run.places],
        "started": started,
        "profiling": job is not None and job.profiling,
        "partner": job.partner.index if job is not None and job.partner else None,
        "slowdown": None if job is None else job.slowdown,
        "starts": begins,
        "ends": ends,
    }


def ended_rows(store: Store, count: int) -> list[dict[str, Any]]:
    """Rows of the last `count` ended jobs, with the nodes and times of their last run."""
    rows = []
    for stored in store.jobs(over=True, limit=count) if count else ():
        runs = store.runs_of(stored.id)
        last = runs[-1] if runs else None
        rows.append(
            _job_row(stored)
            | {
                "nodes": [] if last is None else [place.name for place in last.places],
                "started": None if last is None else last.started,
                "ends": None if last is None else last.ended,
            }
        )
    return rows


def _job_row(stored: StoredJob) -> dict[str, Any]:
    spec = stored.request.spec
    return {
        "job": stored.id,
        "name": spec.name,
        "user": spec.user,
        "command": spec.command,
        "gpus": stored.request.gpus,
        "state": stored.state,
        "submitted": stored.submitted,
        "restarts": stored.restarts,
        "why": stored.why,
    }


# Recovery on the queue of `schedmate ray`: its bounds, and the command that resumes a job.


def load_recovery(
    path: str | None, state: Path, cluster: str, *, restart: bool
) -> Configuration | None:
    """recovery.yaml for this queue; without one, with `restart`, the defaults with restarts and
    notices automatic; else None.

    Raises `SettingsError` for that of another cluster.
    """
    if path is None:
        if not restart:
            return None
        return Configuration(
            version=1,
            cluster=cluster,
            record=state / RECORD_FILE,
            kill_switch=state / "stop",
            automatic=frozenset({"restart", "notify"}),
        )
    return of_cluster(load_configuration(Path(path)), cluster)


def bounds_of(setup: QueueSetup) -> Bounds:
    """The bounds of the queue's agent; raises `SettingsError` for a file with a fault."""
    if setup.bounds is not None:
        return load_bounds(Path(setup.bounds))
    return Bounds(
        poll=setup.poll_s,
        kill_switch=Path(setup.state) / "stop",
        learn=LearnBounds(every=setup.poll_s),
        diagnose=DiagnoseBounds(each=DIAGNOSIS_S),
        follow=FollowBounds(every=max(5.0, setup.poll_s)),
    )


def recovery_of(setup: QueueSetup, bounds: Bounds) -> Configuration | None:
    """What recovery of the queue may do: by `load_recovery`, of the file that either names."""
    path = setup.recovery or (None if bounds.recovery is None else str(bounds.recovery))
    return load_recovery(path, Path(setup.state), setup.name, restart=setup.restart)


def resumed_command(stored: StoredJob) -> str:
    """The command with which a job goes on from its newest complete checkpoint, if it named the
    directory of its checkpoints and there is one."""
    command, folder = stored.request.spec.command or "", stored.request.checkpoints
    if folder is None:
        return command
    try:
        # nobody writes to it any more: the job's processes have ended
        saved = newest_checkpoint(Path(stored.request.spec.repo or "/") / folder, settle_s=0.0)
        return command if saved is None else resume_command(command, saved)[0]
    except (SchedmateError, OSError):
        return command


# The queue actor: what runs on the head of a Ray cluster, and what clients ask of it.


TICK_S = 0.1
DIAGNOSIS_S = 300.0
"""Limit for the time that a failed job's logs are read; no job waits for it [s]."""
LONGEST_LOG = 1 << 20
"""Bytes of a log that one call gives."""
ADVISE_AGAIN_S = 10.0
"""Time after which the estimating thread starts again when it has failed [s]."""
ANSWER_S = 20.0
"""Limit for the time that a client waits for the scheduling thread [s]."""

_log = logging.getLogger("schedmate")


class Service:
    """One queue. Its methods may be called from any thread; two threads of its own work."""

    def __init__(self, setup: QueueSetup, backend: Backend) -> None:
        self.setup = setup
        self._began = float(int(time.time()))
        state, self._stack = Path(setup.state), ExitStack()
        self.store = self._stack.enter_context(Store(state / QUEUE_FILE))
        self._nodes: list[NodeSeen] = []
        self._forecasts: dict[int, Forecast | None] = {}
        self._progress: dict[int, tuple[float, float | None]] = {}
        self._asked: SimpleQueue[tuple[threading.Event, dict[str, Any]]] = SimpleQueue()
        self._ends = threading.Event()
        self.problems: list[str] = []
        policy = registry.make(setup.policy)
        options = QueueOptions(
            Path(setup.folder), lease_s=setup.lease_s, keep_s=setup.keep_s, resume=resumed_command
        )
        seats = Seats(
            backend,
            actor_prefix(setup.name),
            lease_s=setup.lease_s,
            keep_s=setup.keep_s,
            start_s=options.start_s,
        )
        observers = []
        self.tracker: PackingTracker | None = None
        if isinstance(policy, WithSchedMate) and policy.tracker:
            logs = LogFiles(self._log_of, self._kind_of, self._read_log)
            self.tracker = PackingTracker(logs, baseline=policy.baseline)
            observers.append(self.tracker)
        self.queue = Controller(
            self.store,
            policy,
            seats,
            options,
            forecasts=self._known_forecasts if setup.estimate else None,
            observers=observers,
        )
        self._mate = self._stack.enter_context(
            SchedMate(load_settings(history=setup.history or str(state / "history"), mode="static"))
        )
        self._threads = [
            threading.Thread(target=self._schedule, name="schedule", daemon=True),
            threading.Thread(target=self._advise, name="advise", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    # -- the two threads -----------------------------------------------------------

    def _schedule(self) -> None:
        recovered = False
        while not self._ends.is_set():
            try:
                if not recovered:
                    self.queue.recover()
                    recovered = True
                self.queue.tick(TICK_S)
            except Exception as error:  # noqa: BLE001 - one bad step ends no queue
                # the next step may do: what is stored and what runs is unharmed
                self._failed("a step of the queue", error)
                self._ends.wait(1.0)
            self._nodes = list(self.queue.seats.alive())
            while not self._asked.empty():
                done, answer = self._asked.get()
                answer.update(self._queue_fields())
                done.set()

    def _advise(self) -> None:
        while not self._ends.is_set():
            try:
                self._watch()
            except Exception as error:  # noqa: BLE001 - the queue goes on without advice, and says so
                self._failed("what estimates jobs and looks into failures", error)
                self._ends.wait(ADVISE_AGAIN_S)

    def _failed(self, what: str, error: Exception) -> None:
        _log.error("%s has failed", what, exc_info=error)
        problem = f"{type(error).__name__}: {error}"
        self.problems = [*(one for one in self.problems if one != problem), problem][-20:]

    def _watch(self) -> None:
        """Look at the jobs until the queue ends, or the bounds are to be read anew."""
        setup, bounds = self.setup, bounds_of(self.setup)
        adapter = QueueAdapter(self.store, setup.name, lambda: self._nodes)
        folder = Path(setup.state) / (SHADOW_FOLDER if setup.shadow else "")
        files = (None if one is None else Path(one) for one in (setup.bounds, setup.recovery))
        reload = Reload(*files, tell=self._tell)
        with assembled(
            *(adapter, self._mate, bounds, folder, recovery_of(setup, bounds), NoRunner("Ray")),
            by="schedmate ray",
            shadow=setup.shadow,
        ) as (memory, _, agent, _):
            if memory.mark(BEGUN) is None:  # jobs may have ended before the first look at them
                memory.set_mark(BEGUN, self._began)

            def tell(result: Any) -> None:
                self.problems = [*self.problems, *result.problems][-20:]
                self._take_over(adapter, memory)

            goes_on = reload.until(lambda: not self._ends.is_set())
            watch(agent, tell, _log.warning, wait=self._ends.wait, goes_on=goes_on)

    def _tell(self, what: str) -> None:
        _log.warning("%s", what)
        self.problems = [*self.problems, what][-20:]

    def _take_over(self, adapter: QueueAdapter, memory: Memory) -> None:
        """What the agent has found out goes to the policy and to those who look."""
        jobs = {one.key: int(one.id) for one in adapter.jobs()}
        self._forecasts = {
            jobs[key]: Forecast.of(estimate) for key, estimate in memory.estimates(jobs).items()
        }
        self._progress = {
            int(job): (at, progress.eta_s) for job, (at, progress) in memory.progress().items()
        }

    def _known_forecasts(self) -> dict[int, Forecast | None]:
        return self._forecasts

    # -- for the Metric Tracker ----------------------------------------------------------

    def _log_of(self, job: Job) -> Path | None:
        run = self.queue.runs.get(job.index)
        return None if run is None else log_of(run)

    def _kind_of(self, job: Job) -> str:
        stored = self.store.job(job.index)
        spec = None if stored is None else stored.request.spec
        return job.id if spec is None else f"{spec.repo}\0{spec.command}"

    def _read_log(self, path: Path, since: int) -> Any:
        from schedmate.jobs import JobSpec, Progress

        progress = self._mate.on_progress(JobSpec(), path, since=since, deadline_s=5.0)
        return progress or Progress(reason="the log does not say")

    # -- what clients ask -------------------------------------------------------------------

    def ping(self) -> dict[str, Any]:
        """Name, process id and policy of this queue."""
        return {"name": self.setup.name, "pid": os.getpid(), "policy": self.setup.policy}

    def counted(self) -> dict[str, int]:
        """The Metric Tracker's counters for jobs that share GPUs; empty without a tracker."""
        return {} if self.tracker is None else dict(self.tracker.counts)

    def submit(self, mark: str, request: str) -> int:
        """Keep a job (`Request` as JSON) and give its id; the same mark is the same job."""
        return self.store.submit(mark, Request.model_validate_json(request), time.time())

    def change(self, jobs: list[int], what: str) -> list[int]:
        """`cancel`, `hold` or `release` jobs; gives those that are in the queue."""
        values = {"cancel": {"cancelled": 1}, "hold": {"held": 1}, "release": {"held": 0}}[what]
        changed = []
        for id_ in jobs:
            stored = self.store.job(id_)
            if stored is not None and stored.state not in OVER:
                self.store.change(id_, asked=True, **values)
                changed.append(id_)
        return changed

    def look(self, ended: int = 0) -> dict[str, Any]:
        """The queue as it is now (`QueueDocument`), and so many of the last jobs that are over."""
        done = threading.Event()
        answer: dict[str, Any] = {"ended": ended_rows(self.store, ended)}
        self._asked.put((done, answer))
        if not done.wait(ANSWER_S):
            raise TimeoutError("the queue is busy")
        return answer

    def log(self, job: int, run: int | None, rank: int, offset: int) -> dict[str, Any]:
        """A part of a job's log, of its last run or the one of this number."""
        stored, runs = self.store.job(job), self.store.runs_of(job)
        chosen = [one for one in runs if run is None or one.number == run]
        answer: dict[str, Any] = {
            "job": stored is not None,
            "over": stored is None or stored.state in OVER,
            "state": "" if stored is None else stored.state,
            "why": "" if stored is None or stored.why == stored.state.lower() else stored.why,
            "runs": len(runs),
            "run": None,
            "text": b"",
            "next": offset,
        }
        if chosen:
            last = chosen[-1]
            answer["run"], answer["ended"] = last.number, last.state == "ended"
            answer["path"] = str(log_of(last, rank))
            try:
                with open_binary(log_of(last, rank), most=ANY_SIZE) as stream:
                    stream.seek(offset)
                    answer["text"] = stream.read(LONGEST_LOG)
                answer["next"] = offset + len(answer["text"])
            except (OSError, InputError) as error:
                answer["error"] = getattr(error, "strerror", None) or str(error)
        return answer

    def _queue_fields(self) -> dict[str, Any]:
        """The fields of a `QueueDocument`; runs on the scheduling thread, which makes changes."""
        ends = {id_: at + eta for id_, (at, eta) in self._progress.items() if eta is not None}
        return {
            "cluster": self.setup.name,
            "policy": self.setup.policy,
            "time": time.time(),
            "problems": self.problems,
            **queue_rows(self.queue, self._nodes, ends),
        }

    def close(self) -> None:
        """End the queue and every runner; jobs that run are stopped and stay in the store."""
        self._ends.set()
        for thread in self._threads:
            thread.join(ANSWER_S)
        self.queue.seats.close()
        with suppress(SchedmateError):
            self._stack.close()


class QueueActor(Service):
    """`Service` as a Ray actor: named, detached, restarted by Ray when its process dies."""

    def __init__(self, setup: QueueSetup) -> None:
        from schedmate.cluster.ray.backend import RayBackend

        super().__init__(setup, RayBackend(actor_prefix(setup.name), setup.meter))
