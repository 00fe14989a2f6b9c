"""Runs on seats: a seat is a runner with GPUs of one node; a run has one on each of its nodes.

Only `poll` waits; it returns what has happened.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from schedmate.schedulers.live.queue.backend import (
    Backend,
    NodeSeen,
    SeatDeadError,
    SeatMethodError,
    SeatSilentError,
)
from schedmate.schedulers.live.queue.gangs import (
    Event,
    Gang,
    NotStarted,
    Seat,
    Started,
)
from schedmate.schedulers.live.queue.runner import News, Order
from schedmate.schedulers.live.queue.seat_pool import Call, SeatPool

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

    def stray(self, known: set[int]) -> None:
        """End the runs that the queue does not know."""
        for seat in self._pool.seats.values():
            for run in seat.runs - known:
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
                self._events.append(NotStarted(run, "the job to share GPUs with has ended"))
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
            self._close(gang, NotStarted(run, "it was asked to stop"))
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
        found, self._events = self._events, []
        return found

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
            self._events.append(Started(run, max(gang.started.values())))
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
                self._close(gang, NotStarted(gang.run, why))
