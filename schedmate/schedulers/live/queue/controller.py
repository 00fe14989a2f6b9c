"""The queue's control loop: jobs from the store, a policy over a `Board`, commands on seats.

`Controller.tick` does everything, in one thread; others only write to the store. Any process may be
killed: decisions are in the store, running commands on the seats, and `recover` reconciles them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any

from schedmate.schedulers.live.queue.gangs import Event
from schedmate.schedulers.live.queue.jobs import job_of, profile_of
from schedmate.schedulers.live.queue.nodes import NodesOnBoard
from schedmate.schedulers.live.queue.options import Options
from schedmate.schedulers.live.queue.requests import OVER, StoredJob, StoredRun
from schedmate.schedulers.live.queue.seats import Seats
from schedmate.schedulers.live.queue.store import Store
from schedmate.schedulers.model import Forecast, Job
from schedmate.schedulers.observer import Observer
from schedmate.schedulers.policy import Policy
from schedmate.schedulers.terms import NEVER

MEASURE_S = 2.0
"""Interval of measuring the use of jobs without a profile [s]."""
LOOK_S = 0.5
"""Interval of checking the nodes [s]."""


class Controller(NodesOnBoard):
    """One queue on one cluster; the `Watch` of its observers."""

    def __init__(
        self,
        store: Store,
        policy: Policy,
        seats: Seats,
        options: Options,
        *,
        forecasts: Callable[[], Mapping[int, Forecast | None]] | None = None,
        observers: Sequence[Observer] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`forecasts` returns the present estimates by job, None for a job without one; if it is
        None, jobs do not wait for an estimate."""
        super().__init__(store, policy, seats, options, observers, clock)
        self._forecasts = forecasts
        self._change = 0
        self._events: deque[Event] = deque()
        self._looked = self._measure_at = 0.0
        self._round = 0.0
        self._wakes: list[tuple[float, int, Observer, Job]] = []
        self.decided_s = 0.0
        """Time that the last decision took [s]."""
        for observer in observers:
            observer.attach(self)

    # -- for observers ------------------------------------------------

    def wake(self, observer: Any, job: Job, at: float) -> None:
        """See `Watch.wake`."""
        heappush(self._wakes, (at, len(self._wakes) + job.index * 1000, observer, job))

    def changed(self, job: Job | None = None) -> None:
        """See `Watch.changed`."""
        self._dirty = True
        if job is not None and self.board is not None:
            self.board.changed(job, self.now)

    # -- state ---------------------------------------------------

    def outside(self, id_: int) -> float | None:
        """Time until which the policy does not see a job [s since epoch]; None: it sees it."""
        return self._outside.get(id_)

    def is_unadvised(self, id_: int) -> bool:
        """Whether a job waits for its estimate."""
        return id_ in self._unadvised

    # -- one step -----------------------------------------------------------------

    def recover(self) -> None:
        """Resume running jobs after a restart of this process or of the cluster."""
        self.see_nodes()
        found = self.seats.adopt()
        for run in self.store.open_runs():
            nodes = [place.node for place in run.places]
            if set(nodes) <= set(found.get(run.id, ())):
                self._take_up(run, nodes)
            else:
                self._look_for(run)
        self.seats.stray({run.id for run in self.runs.values()})
        self._change = self.store.last_change()
        for stored in self.store.jobs():
            if stored.cancelled:
                self._know(stored)
                self.cancel(stored)
            elif stored.id not in self.jobs:
                self._arrive(stored)

    def tick(self, timeout_s: float) -> None:
        """Handle what has happened, waiting at most `timeout_s` for it, and decide."""
        self._events.extend(self.seats.poll(0.0 if self._events else timeout_s))
        while self._events:
            self.handle(self._events[0])
            self._events.popleft()  # only now, so that a failed one is handled again
        if time.monotonic() - self._looked >= LOOK_S:
            self._looked = time.monotonic()
            self.see_nodes()
        self._see_changes()
        self._see_forecasts()
        self._see_times()
        self._decide()

    def _decide(self) -> None:
        board, now = self.board, self.now
        if board is None:
            return
        every = self.policy.interval_s
        due = self._dirty or board.next_change() <= now
        if every is not None:
            if now < self._round:
                return
            self._round = now + every
            due = due or self.policy.rounds
        if not due:
            return
        self._dirty = False
        began = time.perf_counter()
        decisions = board.decide(now)
        self.decided_s = time.perf_counter() - began
        self.carry_out(decisions)

    # -- after a restart -----------------------------------------------------------------

    def _take_up(self, run: StoredRun, nodes: list[str]) -> None:
        stored = self.store.job(run.job)
        assert stored is not None
        at = run.started or run.decided
        if run.state == "starting":
            self.store.started(run.id, at)
            run = run._replace(state="running", started=at)
        job = self._know(stored)
        self.runs[job.index] = run
        self.seats.resume(run.id, nodes, self.orders(stored, run), at)
        if self.board is not None:
            hosts = [self.jobs[id_] for id_, one in self.runs.items() if one.id == run.beside]
            where = [(place.node, max(1, int(place.gpus))) for place in run.places]
            host = hosts[0] if hosts and hosts[0].allocation else None
            self.place(job, where, at, host)
        self.watch_over(job, run)
        if run.stop:
            self.stop_again(run)

    def _look_for(self, run: StoredRun) -> None:
        """A run that is on no seat has ended meanwhile, or is lost."""
        stored = self.store.job(run.job)
        assert stored is not None
        self._know(stored)
        self.runs[run.job] = run
        self.missing(run)

    # -- jobs --------------------------------------------------------------------------------

    def _know(self, stored: StoredJob) -> Job:
        job = self.jobs.get(stored.id)
        if job is None:
            job = self.jobs[stored.id] = job_of(stored)
        return job

    def _see_changes(self) -> None:
        self._change, changes = self.store.changes(self._change)
        for stored in changes:
            if stored.state in OVER:
                continue
            if stored.cancelled:
                self._know(stored)
                self.cancel(stored)
            elif stored.state == "PENDING" and stored.id not in self.runs:
                if (before := self.jobs.get(stored.id)) is None:
                    self._arrive(stored)
                elif stored.held != (self._outside.get(stored.id) == NEVER):
                    self._outside.pop(stored.id, None)
                    if stored.held:
                        self.leave_out(before, NEVER)
                    elif stored.not_before > self.now:
                        self._outside[stored.id] = stored.not_before
                    else:
                        self.let_in(before)

    def _arrive(self, stored: StoredJob) -> None:
        job = self._know(stored)
        waits = self._forecasts is not None and stored.queued + self.options.advise_s > self.now
        if self.board is not None and stored.id > self._counted:
            view, self._counted = self.board.view, stored.id
            view.submitted.append(stored.submitted)
            view.requested.append(view.requested[-1] + job.gpus)
        for observer in self.observers:
            observer.submitted(job)
        until = stored.not_before
        if stored.held:
            until = NEVER
        elif waits:
            until = max(until, stored.queued + self.options.advise_s)
            self._unadvised.add(job.index)
        if until > self.now:
            self._outside[job.index] = until
        else:
            self.let_in(job)

    def _see_forecasts(self) -> None:
        if self._forecasts is None:
            return
        for id_, forecast in self._forecasts().items():
            job = self.jobs.get(id_)
            if job is None:
                continue
            if forecast is not None and forecast != job.forecast:
                job.forecast = forecast
                self.changed(job)
            if id_ in self._unadvised:
                self._unadvised.discard(id_)
                if self._outside.get(id_, 0.0) < NEVER:
                    stored = self.store.job(id_)
                    if stored is not None and stored.not_before <= self.now:
                        self._outside.pop(id_, None)
                        self.let_in(job)

    def _see_times(self) -> None:
        now = self.now
        for id_ in [one for one, until in self._outside.items() if until <= now]:
            del self._outside[id_]
            self._unadvised.discard(id_)
            self.let_in(self.jobs[id_])
        while self._wakes and self._wakes[0][0] <= now:
            _, _, observer, job = heappop(self._wakes)
            if job.index in self.jobs:
                observer.woken(job)
        self.enforce_limits()
        self._see_use(now)

    def _see_use(self, now: float) -> None:
        """Update the measured use of running jobs, if anything measures it."""
        uses, self.seats.uses = self.seats.uses, {}
        for run in list(self.runs.values()) if now >= self._measure_at or uses else ():
            job = self.jobs[run.job]
            if job.profile is not None or run.state != "running":
                continue
            use = profile_of(uses.get(run.id))
            if use is not None:
                job.profile = use
                self.changed(job)
            elif now >= self._measure_at:
                self.seats.use(run.id)
        if now >= self._measure_at:
            self._measure_at = now + MEASURE_S
