"""Runs on seats: a seat is a runner with GPUs of one node; a run has one on each of its nodes.

Only `Seats.poll` waits; it returns what has happened. `SeatPool` finds seats after a restart,
creates, calls and removes them; `Backend` is what provides nodes and runners.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol
from uuid import uuid4

from schedmate.cluster.ray.runner import News, Order


class GangStarted(NamedTuple):
    """All commands of a run have started."""

    run: int
    at: float
    """[s since epoch]"""


class GangNotStarted(NamedTuple):
    """A run did not start on all of its nodes, and no part of it remains."""

    run: int
    why: str


class GangEnded(NamedTuple):
    """All commands of a run have ended; `report` is that of the one that failed first, if any."""

    run: int
    report: dict[str, Any]


class GangLost(NamedTuple):
    """A runner or its node is gone; its commands have ended by `safe_at` [s since epoch]."""

    run: int
    why: str
    safe_at: float


Event = GangStarted | GangNotStarted | GangEnded | GangLost


@dataclass(eq=False)
class Seat:
    """A runner that holds GPUs of one node."""

    name: str
    node: str
    gpus: float
    handle: Any
    runs: set[int] = field(default_factory=set)
    ready: bool = False
    born: float = 0.0
    idle_since: float = 0.0
    waits: bool = False
    """Whether a call for news is pending."""
    silent_since: float | None = None
    ask_at: float = 0.0
    seen: set[int] = field(default_factory=set)
    """Runs whose end is known, which the next call acknowledges."""


@dataclass(eq=False)
class Gang:
    """One run on its seats, by rank."""

    run: int
    seats: list[Seat]
    orders: list[Order]
    sent: bool = False
    started: dict[int, float] = field(default_factory=dict)
    ended: dict[int, dict[str, Any]] = field(default_factory=dict)
    gone: dict[int, str] = field(default_factory=dict)
    refused: str = ""
    safe_at: float = 0.0
    stop: tuple[int, float] | None = None
    """Signal and grace time [s] of the request to stop."""

    @property
    def over(self) -> bool:
        """Whether every seat's command has ended or is lost."""
        return len(self.ended) + len(self.gone) == len(self.seats)

    def result(self) -> Event:
        """The outcome of a run that is over."""
        if self.gone:
            return GangLost(self.run, next(iter(self.gone.values())), self.safe_at)
        if self.refused:
            return GangNotStarted(self.run, self.refused)
        reports = sorted(self.ended.values(), key=lambda report: float(report.get("ended", 0.0)))
        failed = [report for report in reports if report.get("exit_code") != 0]
        return GangEnded(self.run, failed[0] if failed else reports[-1])


# The interface to a provider of GPUs: nodes, and runners that hold GPUs on them.


class NodeSeen(NamedTuple):
    """One node that is there now."""

    id: str
    """Ray's id of the node; a node that comes back has another."""
    name: str
    gpus: int
    gpu_type: str = ""
    cpus: float = 0
    memory_mb: float = 0


class SeatDeadError(Exception):
    """The runner's process has ended for certain."""


class SeatSilentError(Exception):
    """The runner does not answer: it, its node or the network may be gone."""


class SeatMethodError(Exception):
    """A request failed on the runner: a full disk, a folder that cannot be created."""


class Backend(Protocol):
    """Starts runners (`Runner`) on nodes and calls them without waiting.

    A handle identifies a runner, a reference a call; both are the backend's own objects.
    """

    def nodes(self) -> list[NodeSeen]:
        """The nodes with GPUs that are alive."""
        ...

    def create(self, name: str, node: str, gpus: float) -> Any:
        """Create a runner that holds this many GPUs of a node; it may still be starting."""
        ...

    def existing(self) -> dict[str, Any]:
        """Existing runners by name, after a restart of the queue."""
        ...

    def call(self, handle: Any, method: str, *arguments: Any) -> Any:
        """Call a method of a runner; return the reference of the answer."""
        ...

    def ready(self, references: Sequence[Any], timeout_s: float) -> list[Any]:
        """The references with an answer; waits for at least one, at most `timeout_s`."""
        ...

    def answer(self, reference: Any) -> Any:
        """The answer of a ready call. Raises `SeatDeadError`, `SeatSilentError`, or
        `SeatMethodError` for what the method raised."""
        ...

    def kill(self, handle: Any) -> None:
        """Kill a runner, with the commands that it runs."""
        ...


# The pool of seats: found after a restart, created, called and removed.
#
# An idle seat is kept for a while, because a process takes a second to start; it is removed at
# once if its GPUs are needed in another number.


class Call(NamedTuple):
    """A call of a seat's runner that has been answered."""

    reference: Any
    method: str
    seat: Seat
    run: int
    """The run that it is about; 0: none."""


class SeatPool:
    """All seats of one queue; their names begin with `prefix`."""

    def __init__(self, backend: Backend, prefix: str) -> None:
        self._backend, self._prefix = backend, prefix
        self._calls: dict[Any, Call] = {}
        self.seats: dict[str, Seat] = {}
        self.alive: dict[str, NodeSeen] = {}
        """The nodes as of the last call of `nodes`."""

    def nodes(self) -> list[NodeSeen]:
        """The nodes of the cluster now."""
        nodes = self._backend.nodes()
        self.alive = {node.id: node for node in nodes}
        return nodes

    def adopt(self, timeout_s: float) -> dict[int, list[str]]:
        """Find the seats of an earlier process; return the nodes of each run on them.

        Seats that do not answer within `timeout_s` are removed.
        """
        calls = {}
        for name, handle in self._backend.existing().items():
            node, gpus = name.removeprefix(f"{self._prefix}.").split(".")[:2]
            share = int(gpus) / 100
            seat = Seat(name, node, share, handle, born=time.monotonic())
            self.seats[name] = seat
            calls[self._backend.call(handle, "describe")] = seat
        until = time.monotonic() + timeout_s
        runs: dict[int, list[str]] = {}
        while calls and time.monotonic() < until:
            for reference in self._backend.ready(list(calls), 1.0):
                seat = calls.pop(reference)
                try:
                    answer = self._backend.answer(reference)
                except (SeatDeadError, SeatSilentError):
                    self.drop(seat)
                    continue
                seat.ready, seat.idle_since = True, time.monotonic()
                seat.runs = set(answer["runs"])
                for run in answer["runs"]:
                    runs.setdefault(run, []).append(seat.node)
        for seat in calls.values():
            self.drop(seat)
        return runs

    def seat(self, node: str, gpus: float) -> Seat:
        """An idle seat with this number of GPUs of a node, or a new one.

        Idle seats of other sizes are removed if the node would not have enough GPUs otherwise.
        """
        idle = [
            present for present in self.seats.values() if present.node == node and not present.runs
        ]
        for seat in idle:
            if seat.gpus == gpus and seat.silent_since is None:
                return seat
        size = self.alive[node].gpus if node in self.alive else 0
        used = sum(present.gpus for present in self.seats.values() if present.node == node)
        for seat in idle:
            if used + gpus <= size:
                break
            used -= seat.gpus
            self.drop(seat)
        name = f"{self._prefix}.{node}.{round(gpus * 100)}.{uuid4().hex[:12]}"
        handle = self._backend.create(name, node, gpus)
        seat = self.seats[name] = Seat(name, node, gpus, handle, born=time.monotonic())
        self.call("describe", seat, 0)
        return seat

    def call(self, method: str, seat: Seat, run: int, *arguments: Any) -> None:
        """Call a method of a seat's runner, about a run."""
        reference = self._backend.call(seat.handle, method, *arguments)
        self._calls[reference] = Call(reference, method, seat, run)

    @property
    def waits(self) -> bool:
        """Whether any call has not been answered yet."""
        return bool(self._calls)

    def answered(self, timeout_s: float) -> list[Call]:
        """Calls that have been answered; waits at most `timeout_s` for the first."""
        return [
            call
            for reference in self._backend.ready(list(self._calls), timeout_s)
            if (call := self._calls.pop(reference, None)) is not None
        ]

    def result(self, call: Call) -> Any:
        """The answer to a call.

        Raises `SeatDeadError`, `SeatSilentError` or `SeatMethodError` if there is none.
        """
        return self._backend.answer(call.reference)

    def drop(self, seat: Seat) -> None:
        """Remove a seat, and kill its runner."""
        self.seats.pop(seat.name, None)
        self._calls = {ref: call for ref, call in self._calls.items() if call.seat is not seat}
        self._backend.kill(seat.handle)


# Runs on seats: a seat is a runner with GPUs of one node; a run has one on each of its nodes.
#
# Only `poll` waits; it returns what has happened.


SIGTERM, SIGKILL = 15, 9
GANG_GRACE_S = 10.0
"""Time for the other nodes of a run to end once one has failed [s]."""
WAIT_S = 5.0
"""Time that a call waits for news; each call is a heartbeat [s]."""
AGAIN_S = 1.0
"""Pause after a call without an answer [s]."""
SILENT_S = 15.0
"""Time after which a silent runner is given up although its node is up [s]."""


class Seats:
    """All seats of one queue."""

    def __init__(
        self, backend: Backend, prefix: str, *, lease_s: float, keep_s: float, start_s: float
    ) -> None:
        """Times in seconds: commands end `lease_s` after the last call to their runner, an idle
        seat is removed after `keep_s`, and one that has not started after `start_s` is given up."""
        self._pool = SeatPool(backend, prefix)
        self._lease_s, self._keep_s, self._start_s = lease_s, keep_s, start_s
        self._gangs: dict[int, Gang] = {}
        self._events: list[Event] = []
        self.uses: dict[int, dict[str, float] | None] = {}
        """GPU use of runs, as last reported."""

    # -- nodes and existing runs -----------------------------------

    def nodes(self) -> list[NodeSeen]:
        """The nodes of the cluster now."""
        return self._pool.nodes()

    def alive(self) -> list[NodeSeen]:
        """The nodes as of the last call of `nodes`."""
        return list(self._pool.alive.values())

    def adopt(self, timeout_s: float = 10.0) -> dict[int, list[str]]:
        """Find the seats of an earlier process; return the nodes of each run on them."""
        return self._pool.adopt(timeout_s)

    def resume(self, run: int, nodes: Sequence[str], orders: Sequence[Order], at: float) -> None:
        """Resume watching a run that `adopt` has found; `nodes` are in order of rank."""
        seats = [
            next(one for one in self._pool.seats.values() if one.node == node and run in one.runs)
            for node in nodes
        ]
        started = dict.fromkeys(range(len(seats)), at)
        self._gangs[run] = Gang(run, seats, list(orders), sent=True, started=started)

    def stray(self, run_ids: set[int]) -> None:
        """End the runs that the queue does not know."""
        for seat in self._pool.seats.values():
            for run in seat.runs - run_ids:
                self._pool.call("stop", seat, run, run, SIGKILL, 0.0)
                seat.runs.discard(run)

    # -- starting and stopping ------------------------------------------------

    def launch(
        self,
        run: int,
        places: Sequence[tuple[str, float]],
        orders: Sequence[Order],
        beside: int | None = None,
    ) -> None:
        """Start a run: a command on GPUs of each node, or on the GPUs of the run `beside`."""
        if beside is not None:
            host = self._gangs.get(beside)
            if host is None or host.over or not host.started:
                self._events.append(GangNotStarted(run, "the job to share GPUs with has ended"))
                return
            seats = list(host.seats)
        else:
            seats = [self._pool.seat(node, gpus) for node, gpus in places]
        for seat in seats:
            seat.runs.add(run)
        self._gangs[run] = Gang(run, seats, list(orders))
        self._advance(self._gangs[run])

    def stop(self, run: int, number: int, grace_s: float) -> None:
        """Signal a run, and kill it after the grace time [s]; `poll` reports its end."""
        gang = self._gangs.get(run)
        if gang is None:
            return
        gang.stop = (number, grace_s)
        if not gang.sent:
            self._close(gang, GangNotStarted(run, "it was asked to stop"))
            return
        for rank, seat in enumerate(gang.seats):
            if rank not in gang.ended and rank not in gang.gone:
                self._pool.call("stop", seat, run, run, number, grace_s)

    def use(self, run: int) -> None:
        """Request the GPU use of a run, which will be in `uses`."""
        gang = self._gangs.get(run)
        if gang is not None and gang.sent:
            self._pool.call("use", gang.seats[0], run, run)

    def close(self) -> None:
        """Remove every seat, with what runs on it."""
        for seat in list(self._pool.seats.values()):
            self._pool.drop(seat)

    # -- what happens --------------------------------------------------------

    def poll(self, timeout_s: float) -> list[Event]:
        """Events since the last call; waits at most `timeout_s` for one [s]."""
        now = time.monotonic()
        for seat in list(self._pool.seats.values()):
            self._look_after(seat, now)
        if self._pool.waits:
            for call in self._pool.answered(0.0 if self._events else timeout_s):
                if call.seat.name in self._pool.seats:  # an earlier answer may have removed it
                    self._answered(call)
        elif not self._events:
            time.sleep(timeout_s)
        events, self._events = self._events, []
        return events

    def _look_after(self, seat: Seat, now: float) -> None:
        if not seat.ready:
            if now - seat.born > self._start_s:
                node = self._pool.alive.get(seat.node)
                where = node.name if node else seat.node
                self._lose(
                    seat, f"Ray gave no {seat.gpus:g} GPUs of {where} within {self._start_s:g} s"
                )
        elif not seat.runs:
            if now - seat.idle_since > self._keep_s:
                self._pool.drop(seat)
        elif not seat.waits and now >= seat.ask_at:
            seat.waits = True
            self._pool.call("wait", seat, 0, WAIT_S, sorted(seat.seen))

    def _answered(self, call: Call) -> None:
        kind, seat, run = call.method, call.seat, call.run
        if kind == "wait":
            seat.waits = False
        try:
            answer = self._pool.result(call)
        except SeatDeadError as error:
            self._lose(seat, f"the runner has ended: {error}")
            return
        except SeatSilentError as error:
            self._silent(seat, kind, run, str(error))
            return
        except SeatMethodError as error:
            if kind != "start":
                return
            answer = {"refused": str(error)}
        seat.silent_since = None
        if kind == "describe":
            seat.ready, seat.idle_since = True, time.monotonic()
            for gang in list(self._gangs.values()):
                if seat in gang.seats:
                    self._advance(gang)
        elif kind == "start":
            self._reported_start(run, seat, answer)
        elif kind == "wait":
            for news in answer:
                self._news(seat, news)
        elif kind == "use":
            self.uses[run] = answer

    def _silent(self, seat: Seat, kind: str, run: int, why: str) -> None:
        now = time.monotonic()
        seat.silent_since = seat.silent_since or now
        seat.ask_at = now + AGAIN_S
        if seat.node not in {node.id for node in self.nodes()}:
            self._lose(seat, "its node is gone")
        elif now - seat.silent_since > SILENT_S or kind == "describe":
            self._lose(seat, f"the runner does not answer: {why}", certain=False)
        elif kind in ("start", "stop") and (gang := self._gangs.get(run)) is not None:
            # Runners ignore a repeated order or stop.
            if kind == "start":
                self._pool.call("start", seat, run, gang.orders[gang.seats.index(seat)])
            elif gang.stop is not None:
                self._pool.call("stop", seat, run, run, *gang.stop)

    # -- gangs ---------------------------------------------------------------

    def _advance(self, gang: Gang) -> None:
        if not gang.sent and all(seat.ready for seat in gang.seats):
            gang.sent = True
            for seat, order in zip(gang.seats, gang.orders, strict=True):
                self._pool.call("start", seat, gang.run, order)

    def _reported_start(self, run: int, seat: Seat, answer: dict[str, Any]) -> None:
        gang = self._gangs.get(run)
        if gang is None:
            return
        rank = gang.seats.index(seat)
        if "refused" in answer:
            gang.refused = answer["refused"]
            gang.ended[rank] = {}
        else:
            gang.started[rank] = answer["started"]
            if gang.stop is not None and rank not in gang.ended:
                self._pool.call("stop", seat, run, run, *gang.stop)
        if len(gang.started) == len(gang.seats):
            self._events.append(GangStarted(run, max(gang.started.values())))
            if gang.over:
                self._close(gang, gang.result())
        elif gang.refused and len(gang.started) + len(gang.ended) >= len(gang.seats):
            self._end_rest(gang)

    def _news(self, seat: Seat, news: News) -> None:
        seat.seen.add(news.run)
        gang = self._gangs.get(news.run)
        if gang is None or seat not in gang.seats:
            seat.runs.discard(news.run)
            return
        gang.ended[news.rank] = news.report
        if gang.refused or gang.gone or news.report.get("exit_code") != 0:
            self._end_rest(gang)
        elif gang.over and len(gang.started) == len(gang.seats):
            self._close(gang, gang.result())

    def _end_rest(self, gang: Gang) -> None:
        if gang.stop is None:
            gang.stop = (SIGTERM, GANG_GRACE_S)
            for rank, seat in enumerate(gang.seats):  # the others as soon as they have started
                if rank in gang.started and rank not in gang.ended and rank not in gang.gone:
                    self._pool.call("stop", seat, gang.run, gang.run, *gang.stop)
        if gang.over and (len(gang.started) == len(gang.seats) or gang.refused or gang.gone):
            self._close(gang, gang.result())

    def _close(self, gang: Gang, event: Event) -> None:
        self._gangs.pop(gang.run, None)
        for seat in gang.seats:
            seat.runs.discard(gang.run)
            seat.idle_since = time.monotonic()
        self._events.append(event)

    # -- seats that go ---------------------------------------------------------

    def _lose(self, seat: Seat, why: str, *, certain: bool = True) -> None:
        """A seat is gone, with all its runs."""
        # A dead runner takes its commands along; a silent one, or one on a lost node, may run
        # them until its lease is over.
        known_dead = certain and seat.node in {node.id for node in self.nodes()}
        safe_at = time.time() + (0.0 if known_dead else self._lease_s)
        self._pool.drop(seat)
        for gang in [self._gangs[run] for run in sorted(seat.runs) if run in self._gangs]:
            gang.gone[gang.seats.index(seat)] = why
            gang.safe_at = max(gang.safe_at, safe_at)
            if gang.sent:
                self._end_rest(gang)
            else:
                self._close(gang, GangNotStarted(gang.run, why))
