"""The queue's control loop: jobs from the store, a policy over a `Board`, commands on seats.

`Controller.tick` does everything, in one thread; others only write to the store. Any process may be
killed: decisions are in the store, running commands on the seats, and the board is rebuilt from
both. Also why a job waits, and about when it will start.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Any

from schedmate.base.inputs import format_duration
from schedmate.base.terminal import counted
from schedmate.cluster.ray.runs import Outcomes, QueueOptions, job_of, profile_of
from schedmate.cluster.ray.seats import Event, NodeSeen, Seats
from schedmate.cluster.ray.store import OVER, Store, StoredJob, StoredRun
from schedmate.schedulers.board import Board
from schedmate.schedulers.estimators import predicted_s, remaining_s
from schedmate.schedulers.free import lowest_gpus
from schedmate.schedulers.model import NEVER, Allocation, Cluster, Forecast, Job, Node
from schedmate.schedulers.policy import Observer, Policy

RECENT_S = 8 * 86_400.0
"""Age of the submissions that a new board gets for its forecast of load [s]."""


class NodesOnBoard(Outcomes):
    """Rebuilds the board when nodes come, and marks nodes that are gone or drained."""

    def see_nodes(self) -> None:
        """Bring the board up to date with nodes that came, went, or are drained."""
        seen = {node.id: node for node in self.seats.nodes()}
        drains = self.store.drains()
        if set(seen) - set(self.places) and (self.board is None or not self.board.in_flight()):
            self._build(seen)
        if self.board is None:
            return
        for id_ in set(self.places) - set(seen) - self._gone:
            self._gone.add(id_)
            self._dirty = True
            # its runs end when their seats are found to be gone
            self.board.down(self.places[id_], self.now)
        for name in self._drains ^ set(drains):
            for id_, position in self.places.items():
                if self.board.cluster.nodes[position].name == name and id_ not in self._gone:
                    self._dirty = True
                    if name in drains:
                        self.board.drain(position, self.now)
                    else:
                        self.board.up(position, self.now)
        self._drains = set(drains)

    def _build(self, seen: Mapping[str, NodeSeen]) -> None:
        """Build a board of the present nodes with all waiting and running jobs."""
        nodes = sorted(seen.values(), key=lambda node: (node.name, node.id))
        cluster = Cluster(
            tuple(
                Node(node.name, node.gpus, node.gpu_type, node.cpus, node.memory_mb)
                for node in nodes
            )
        )
        running = [job for job in self.jobs.values() if job.allocation]
        before = {job.index: job.partner for job in running}
        since = {job.index: job.started for job in running}
        where = {job.index: self._ids_of(job.allocation) for job in running}
        self.board = Board(cluster, self.policy, self.options.can, self.options.late_s)
        self.places = {node.id: position for position, node in enumerate(nodes)}
        self._gone, self._drains, self._dirty = set(), set(), True
        view = self.board.view
        for number, submitted, gpus in self.store.submissions(self.now - RECENT_S):
            self._counted = number
            view.submitted.append(submitted)
            view.requested.append(view.requested[-1] + max(1, int(gpus)))
        for job in self.jobs.values():
            job.settle()
            job.allocation, job.partner = (), None
        for job in running:
            partner = before[job.index]
            host = partner if partner is not None and partner.allocation else None
            self.place(job, where[job.index], since[job.index], host)
        for job in self.jobs.values():
            if not job.allocation and job.index not in self.runs and job.index not in self._outside:
                self.board.rejoin(job, self.now)

    def _ids_of(self, allocation: Allocation) -> list[tuple[str, int]]:
        ids = {position: id_ for id_, position in self.places.items()}
        return [(ids[node], mask.bit_count()) for node, mask in allocation]

    def place(
        self, job: Job, where: Sequence[tuple[str, int]], since: float, host: Job | None
    ) -> None:
        """Put a running job on the board: this number of GPUs of each node, or those of `host`."""
        assert self.board is not None
        free = self.board.view.space.free
        parts = []
        for id_, gpus in where:
            position = self.places.get(id_)
            if position is None or (host is None and free[position].bit_count() < gpus):
                return  # its node is gone: its seat will be lost too
            parts.append((position, lowest_gpus(free[position], gpus)))
        allocation = host.allocation if host is not None else tuple(sorted(parts))
        self.board.resume(job, allocation, self.now, since, host)


# The queue's control loop: jobs from the store, a policy over a `Board`, commands on seats.
#
# `Controller.tick` does everything, in one thread; others only write to the store. Any process may
# be killed: decisions are in the store, running commands on the seats, and `recover` reconciles
# them.


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
        options: QueueOptions,
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
        adopted = self.seats.adopt()
        for run in self.store.open_runs():
            nodes = [place.node for place in run.places]
            if set(nodes) <= set(adopted.get(run.id, ())):
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
        if stored.losses and stored.not_before:
            # an earlier queue lost it, and how long ago the clock may not tell
            self._alive_until[job.index] = time.monotonic() + self.options.lease_s
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


# Why a job waits, and about when it will start: what `schedmate ray queue` shows.


def waiting_reasons(queue: Controller) -> dict[int, str]:
    """For each waiting job, in words, why it does not run."""
    reasons = {}
    board, now = queue.board, queue.now
    if board is None:
        return dict.fromkeys(queue.jobs, "the cluster has no node with GPUs")
    order = board.view.pending.by_rank(board.view.pending)
    before = {job.index: place for place, job in enumerate(order)}
    for id_, job in queue.jobs.items():
        if job.allocation:
            continue
        until = queue.outside(id_)
        if id_ in queue.runs:
            reasons[id_] = "its processes are being started"
        elif until == NEVER:
            reasons[id_] = "held"
        elif queue.is_unadvised(id_):
            reasons[id_] = "its code is being read"
        elif until is not None:
            stored = queue.store.job(id_)
            problem = stored.why if stored is not None and stored.why else "it could not be started"
            reasons[id_] = f"{problem}; tried again in {format_duration(max(0.0, until - now))}"
        elif id_ in before:
            reasons[id_] = _lacks(queue, job, before[id_])
        else:
            reasons[id_] = "a decision about it is being carried out"
    return reasons


def _lacks(queue: Controller, job: Job, ahead: int) -> str:
    board = queue.board
    assert board is not None
    space, nodes = board.view.space, board.cluster.nodes
    fitting = [
        place
        for place, node in enumerate(nodes)
        if not job.gpu_type or node.gpu_type == job.gpu_type
    ]
    asked = f"{job.gpus if job.share == 1.0 else job.share:g} GPU{'s' * (job.gpus != 1)}"
    asked += f" of type {job.gpu_type}" if job.gpu_type else ""
    total = sum(nodes[place].gpus for place in fitting)
    if job.gpus > total:
        return f"asks for {asked}, the cluster has {total}"
    free = [space.free[place].bit_count() for place in fitting]
    if job.gpus > sum(free) or space.find(job) is None:
        most = max(free, default=0)
        text = f"asks for {asked}; {sum(free)} free, at most {most} on one node"
        return text + (f"; {counted(ahead, 'job')} before it" if ahead else "")
    if ahead:
        return f"{counted(ahead, 'job')} before it"
    return "the policy keeps it waiting"


def expected_starts(
    queue: Controller, etas: Mapping[int, float], order: Sequence[Job] | None = None
) -> dict[int, float]:
    """Expected start of waiting jobs [s since epoch], as far as the ends of others are known.

    By numbers of GPUs in the order of the queue, without placement and sharing. `etas` are ends of
    running jobs by their logs.
    """
    board, now = queue.board, queue.now
    if board is None:
        return {}
    view = board.view
    ends = [
        (etas.get(job.index, now + remaining_s(job, now)), job.index, job.gpus)
        for job in view.running
        if job.partner is None or job.index < job.partner.index
    ]
    heapify(ends)
    free, at, starts = view.space.idle, now, {}
    for job in order or view.pending.by_rank(view.pending):
        while free < job.gpus and ends:
            end, _, gpus = heappop(ends)
            at, free = max(at, end), free + gpus
        if free < job.gpus or at == NEVER:
            break
        starts[job.index] = at
        free -= job.gpus
        heappush(ends, (at + predicted_s(job), job.index, job.gpus))
    return starts
