"""The queue actor: what runs on the head of a Ray cluster, and what clients ask of it."""

from __future__ import annotations

import logging
import os
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from schedmate.commands.ray_document import ended_rows, rows
from schedmate.commands.ray_recovery import load_recovery, resumed_command
from schedmate.commands.ray_setup import Setup, prefix_of
from schedmate.errors import SchedmateError
from schedmate.mate import SchedMate
from schedmate.recovery.cluster import ClusterRecovery, NoRunner
from schedmate.schedulers import registry
from schedmate.schedulers.adapters.modules import WithSchedMate
from schedmate.schedulers.adapters.sources import LogFiles
from schedmate.schedulers.adapters.tracker import PackingTracker
from schedmate.schedulers.live.bounds import Bounds, DiagnoseBounds, FollowBounds, LearnBounds
from schedmate.schedulers.live.ended import BEGUN
from schedmate.schedulers.live.loop import Agent
from schedmate.schedulers.live.memory import Memory
from schedmate.schedulers.live.queue.adapter import QueueAdapter
from schedmate.schedulers.live.queue.backend import Backend, NodeSeen
from schedmate.schedulers.live.queue.controller import Controller
from schedmate.schedulers.live.queue.options import Options
from schedmate.schedulers.live.queue.orders import log_of
from schedmate.schedulers.live.queue.requests import OVER, Request
from schedmate.schedulers.live.queue.seats import Seats
from schedmate.schedulers.live.queue.store import Store
from schedmate.schedulers.live.record import Record
from schedmate.schedulers.live.watch import watch
from schedmate.schedulers.model import Forecast, Job
from schedmate.settings import load_settings

TICK_S = 0.1
DIAGNOSIS_S = 300.0
"""How long a failed job's logs are read at most; nothing waits for that [s]."""
LONGEST_LOG = 1 << 20
"""Bytes of a log that one call gives."""
ADVISE_AGAIN_S = 10.0
"""After which the thread that estimates begins anew when it has failed [s]."""
ANSWER_S = 20.0
"""How long a client waits for the thread that schedules [s]."""

_log = logging.getLogger("schedmate")


class Service:
    """One queue. Its methods may be called from any thread; two threads of its own work."""

    def __init__(self, setup: Setup, backend: Backend) -> None:
        self.setup = setup
        self._began = float(int(time.time()))
        state, self._stack = Path(setup.state), ExitStack()
        self.store = self._stack.enter_context(Store(state / "queue.db"))
        self._nodes: list[NodeSeen] = []
        self._forecasts: dict[int, Forecast | None] = {}
        self._progress: dict[int, tuple[float, float | None]] = {}
        self._asked: SimpleQueue[tuple[threading.Event, dict[str, Any]]] = SimpleQueue()
        self._ends = threading.Event()
        self.problems: list[str] = []
        policy = registry.make(setup.policy)
        options = Options(
            Path(setup.folder), lease_s=setup.lease_s, keep_s=setup.keep_s, resume=resumed_command
        )
        seats = Seats(
            backend,
            prefix_of(setup.name),
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
                answer.update(self._seen())
                done.set()

    def _advise(self) -> None:
        while not self._ends.is_set():
            try:
                self._watch()
                return
            except Exception as error:  # noqa: BLE001 - the queue goes on without advice, and says so
                self._failed("what estimates jobs and looks into failures", error)
                self._ends.wait(ADVISE_AGAIN_S)

    def _failed(self, what: str, error: Exception) -> None:
        _log.error("%s has failed", what, exc_info=error)
        problem = f"{type(error).__name__}: {error}"
        self.problems = [*(one for one in self.problems if one != problem), problem][-20:]

    def _watch(self) -> None:
        """Look at the jobs until the queue ends."""
        setup, state = self.setup, Path(self.setup.state)
        adapter = QueueAdapter(self.store, setup.name, lambda: self._nodes)
        configuration = load_recovery(setup.recovery, state, setup.name, restart=setup.restart)
        place = state / "record.db" if configuration is None else configuration.record
        bounds = Bounds(
            poll=setup.poll_s,
            kill_switch=state / "stop",
            learn=LearnBounds(every=setup.poll_s),
            diagnose=DiagnoseBounds(each=DIAGNOSIS_S),
            follow=FollowBounds(every=max(5.0, setup.poll_s)),
        )
        with Memory(state / "memory.db") as memory, Record(place) as record:
            if memory.mark(BEGUN) is None:  # jobs may have ended before the first look at them
                memory.set_mark(BEGUN, self._began)
            healer = None
            if configuration is not None:
                runner = NoRunner("Ray")
                healer = ClusterRecovery(adapter, configuration, record, runner, by="schedmate ray")
            agent = Agent(adapter, self._mate, memory, record, bounds, healer=healer)

            def tell(found: Any) -> None:
                self.problems = [*self.problems, *found.problems][-20:]
                self._take_over(adapter, memory)

            watch(
                agent,
                tell,
                _log.warning,
                wait=self._ends.wait,
                goes_on=lambda: not self._ends.is_set(),
            )

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

        found = self._mate.on_progress(JobSpec(), path, since=since, deadline_s=5.0)
        return found or Progress(reason="the log does not say")

    # -- what clients ask -------------------------------------------------------------------

    def ping(self) -> dict[str, Any]:
        """Who this is."""
        return {"name": self.setup.name, "pid": os.getpid(), "policy": self.setup.policy}

    def counted(self) -> dict[str, int]:
        """What the Metric Tracker has done for jobs that share GPUs."""
        return {} if self.tracker is None else dict(self.tracker.counts)

    def submit(self, mark: str, request: str) -> int:
        """Keep a job (`Request` as JSON) and give its id; the same mark is the same job."""
        return self.store.submit(mark, Request.model_validate_json(request), time.time())

    def change(self, jobs: list[int], what: str) -> list[int]:
        """`cancel`, `hold` or `release` jobs; gives those that are in the queue."""
        values = {"cancel": {"cancelled": 1}, "hold": {"held": 1}, "release": {"held": 0}}[what]
        found = []
        for id_ in jobs:
            stored = self.store.job(id_)
            if stored is not None and stored.state not in OVER:
                self.store.change(id_, asked=True, **values)
                found.append(id_)
        return found

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
                with log_of(last, rank).open("rb") as stream:
                    stream.seek(offset)
                    answer["text"] = stream.read(LONGEST_LOG)
                answer["next"] = offset + len(answer["text"])
            except OSError as error:
                answer["error"] = error.strerror
        return answer

    def _seen(self) -> dict[str, Any]:
        """By the thread that schedules, so that nothing changes meanwhile."""
        ends = {id_: at + eta for id_, (at, eta) in self._progress.items() if eta is not None}
        return {
            "cluster": self.setup.name,
            "policy": self.setup.policy,
            "time": time.time(),
            "problems": self.problems,
            **rows(self.queue, self._nodes, ends),
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
    """The same as a Ray actor: named, detached, restarted by Ray when its process dies."""

    def __init__(self, setup: Setup) -> None:
        from schedmate.schedulers.live.ray.backend import RayBackend

        super().__init__(setup, RayBackend(prefix_of(setup.name), setup.meter))
