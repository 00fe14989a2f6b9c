"""Runs on seats: a seat is a runner with GPUs of one node, a run has one on each of its nodes.

Nothing here waits except `poll`, which gives what has happened. A seat that has nothing to run is
kept for a while, because a process takes a second to start; it goes at once when its GPUs are
needed in another number.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from schedmate.schedulers.live.queue.backend import (
    Backend,
    NodeSeen,
    SeatDeadError,
    SeatMethodError,
    SeatSilentError,
)
from schedmate.schedulers.live.queue.gangs import (
    Ended,
    Event,
    Gang,
    Lost,
    NotStarted,
    Seat,
    Started,
)
from schedmate.schedulers.live.queue.runner import News, Order

SIGTERM, SIGKILL = 15, 9
GANG_GRACE_S = 10.0
"""Time for the other nodes of a run to end once one has failed [s]."""
WAIT_S = 5.0
"""How long one call waits for news; each is a heartbeat [s]."""
AGAIN_S = 1.0
"""After a call that was not answered [s]."""
SILENT_S = 15.0
"""After which a runner that does not answer is given up, though its node is there [s]."""


class Seats:
    """All seats of one queue."""

    def __init__(
        self, backend: Backend, prefix: str, *, lease_s: float, keep_s: float, start_s: float
    ) -> None:
        """`keep_s`: how long a seat without a run is kept, `start_s`: how long one may take to
        come up, `lease_s`: after which commands end that nobody asks after [s]."""
        self._backend, self._prefix = backend, prefix
        self._lease_s, self._keep_s, self._start_s = lease_s, keep_s, start_s
        self._seats: dict[str, Seat] = {}
        self._gangs: dict[int, Gang] = {}
        self._calls: dict[Any, tuple[str, Seat, int]] = {}
        self._events: list[Event] = []
        self._alive: dict[str, NodeSeen] = {}
        self.uses: dict[int, dict[str, float] | None] = {}
        """What runs use of their GPUs, as they said last."""

    # -- nodes and what is there already -----------------------------------

    def nodes(self) -> list[NodeSeen]:
        """The nodes that are there now."""
        found = self._backend.nodes()
        self._alive = {node.id: node for node in found}
        return found

    def alive(self) -> list[NodeSeen]:
        """The nodes as `nodes` has seen them last."""
        return list(self._alive.values())

    def adopt(self, timeout_s: float = 10.0) -> dict[int, list[str]]:
        """Find existing seats; gives the nodes of each run."""
        calls = {}
        for name, handle in self._backend.found().items():
            node, gpus = name.removeprefix(f"{self._prefix}.").split(".")[:2]
            share = int(gpus) / 100
            seat = Seat(name, node, share, handle, born=time.monotonic())
            self._seats[name] = seat
            calls[self._backend.call(handle, "describe")] = seat
        until = time.monotonic() + timeout_s
        runs: dict[int, list[str]] = {}
        while calls and time.monotonic() < until:
            for reference in self._backend.ready(list(calls), 1.0):
                seat = calls.pop(reference)
                try:
                    known = self._backend.answer(reference)
                except (SeatDeadError, SeatSilentError):
                    self._drop(seat)
                    continue
                seat.ready, seat.idle_since = True, time.monotonic()
                seat.runs = set(known["runs"])
                for run in known["runs"]:
                    runs.setdefault(run, []).append(seat.node)
        for seat in calls.values():
            self._drop(seat)
        return runs

    def resume(self, run: int, nodes: Sequence[str], orders: Sequence[Order], at: float) -> None:
        """Take up a run that `adopt` has found, in the order of its ranks."""
        seats = [
            next(one for one in self._seats.values() if one.node == node and run in one.runs)
            for node in nodes
        ]
        started = dict.fromkeys(range(len(seats)), at)
        self._gangs[run] = Gang(run, seats, list(orders), sent=True, started=started)

    def stray(self, known: set[int]) -> None:
        """End the runs that the queue knows nothing of."""
        for seat in self._seats.values():
            for run in seat.runs - known:
                self._call("stop", seat, run, run, SIGKILL, 0.0)
                seat.runs.discard(run)

    # -- what is to be done ------------------------------------------------

    def launch(
        self,
        run: int,
        places: Sequence[tuple[str, float]],
        orders: Sequence[Order],
        beside: int | None = None,
    ) -> None:
        """Run commands on the given GPUs of each node, or on those of the run `beside`."""
        if beside is not None:
            host = self._gangs.get(beside)
            if host is None or host.over or not host.started:
                self._events.append(NotStarted(run, "the job to share GPUs with has ended"))
                return
            seats = list(host.seats)
        else:
            seats = [self._seat(node, gpus) for node, gpus in places]
        for seat in seats:
            seat.runs.add(run)
        self._gangs[run] = Gang(run, seats, list(orders))
        self._advance(self._gangs[run])

    def stop(self, run: int, number: int, grace_s: float) -> None:
        """Send a signal to a run and end it after the grace time [s]; `poll` says when it has."""
        gang = self._gangs.get(run)
        if gang is None:
            return
        gang.stop = (number, grace_s)
        if not gang.sent:
            self._close(gang, NotStarted(run, "it was told to stop"))
            return
        for rank, seat in enumerate(gang.seats):
            if rank not in gang.ended and rank not in gang.gone:
                self._call("stop", seat, run, run, number, grace_s)

    def use(self, run: int) -> None:
        """Ask what a run uses of its GPUs, to be read from `uses`."""
        gang = self._gangs.get(run)
        if gang is not None and gang.sent:
            self._call("use", gang.seats[0], run, run)

    def close(self) -> None:
        """End every seat, and what runs on it."""
        for seat in list(self._seats.values()):
            self._drop(seat)

    # -- what happens --------------------------------------------------------

    def poll(self, timeout_s: float) -> list[Event]:
        """Events since the last call; waits at most `timeout_s` for one [s]."""
        now = time.monotonic()
        for seat in list(self._seats.values()):
            self._look_after(seat, now)
        if self._calls:
            wait = 0.0 if self._events else timeout_s
            for reference in self._backend.ready(list(self._calls), wait):
                kind, seat, run = self._calls.pop(reference)
                self._answered(reference, kind, seat, run)
        elif not self._events:
            time.sleep(timeout_s)
        found, self._events = self._events, []
        return found

    def _look_after(self, seat: Seat, now: float) -> None:
        if not seat.ready:
            if now - seat.born > self._start_s:
                node = self._alive.get(seat.node)
                where = node.name if node else seat.node
                self._lose(
                    seat, f"Ray gave no {seat.gpus:g} GPUs of {where} within {self._start_s:g} s"
                )
        elif not seat.runs:
            if now - seat.idle_since > self._keep_s:
                self._drop(seat)
        elif not seat.waits and now >= seat.ask_at:
            seat.waits = True
            self._call("wait", seat, 0, WAIT_S, sorted(seat.seen))

    def _call(self, method: str, seat: Seat, run: int, *arguments: Any) -> None:
        reference = self._backend.call(seat.handle, method, *arguments)
        self._calls[reference] = (method, seat, run)

    def _answered(self, reference: Any, kind: str, seat: Seat, run: int) -> None:
        if kind == "wait":
            seat.waits = False
        try:
            answer = self._backend.answer(reference)
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
            self._begun(run, seat, answer)
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
            # The same order twice is one, and so is the same stop.
            if kind == "start":
                self._call("start", seat, run, gang.orders[gang.seats.index(seat)])
            elif gang.stop is not None:
                self._call("stop", seat, run, run, *gang.stop)

    # -- gangs ---------------------------------------------------------------

    def _seat(self, node: str, gpus: float) -> Seat:
        free = [one for one in self._seats.values() if one.node == node and not one.runs]
        for seat in free:
            if seat.gpus == gpus and seat.silent_since is None:
                return seat
        size = self._alive[node].gpus if node in self._alive else 0
        held = sum(one.gpus for one in self._seats.values() if one.node == node)
        for seat in free:
            if held + gpus <= size:
                break
            held -= seat.gpus
            self._drop(seat)
        name = f"{self._prefix}.{node}.{round(gpus * 100)}.{uuid4().hex[:12]}"
        handle = self._backend.create(name, node, gpus)
        seat = self._seats[name] = Seat(name, node, gpus, handle, born=time.monotonic())
        self._call("describe", seat, 0)
        return seat

    def _advance(self, gang: Gang) -> None:
        if not gang.sent and all(seat.ready for seat in gang.seats):
            gang.sent = True
            for seat, order in zip(gang.seats, gang.orders, strict=True):
                self._call("start", seat, gang.run, order)

    def _begun(self, run: int, seat: Seat, answer: dict[str, Any]) -> None:
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
                self._call("stop", seat, run, run, *gang.stop)
        if len(gang.started) == len(gang.seats):
            self._events.append(Started(run, max(gang.started.values())))
            if gang.over:
                self._conclude(gang)
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
            self._conclude(gang)

    def _end_rest(self, gang: Gang) -> None:
        if gang.stop is None:
            gang.stop = (SIGTERM, GANG_GRACE_S)
            for rank, seat in enumerate(gang.seats):  # the others as soon as they have started
                if rank in gang.started and rank not in gang.ended and rank not in gang.gone:
                    self._call("stop", seat, gang.run, gang.run, *gang.stop)
        if gang.over and (len(gang.started) == len(gang.seats) or gang.refused or gang.gone):
            self._conclude(gang)

    def _conclude(self, gang: Gang) -> None:
        if gang.gone:
            why = next(iter(gang.gone.values()))
            self._close(gang, Lost(gang.run, why, gang.safe_at))
        elif gang.refused:
            self._close(gang, NotStarted(gang.run, gang.refused))
        else:
            reports = sorted(gang.ended.values(), key=lambda one: float(one.get("ended", 0.0)))
            failed = [one for one in reports if one.get("exit_code") != 0]
            self._close(gang, Ended(gang.run, failed[0] if failed else reports[-1]))

    def _close(self, gang: Gang, event: Event) -> None:
        self._gangs.pop(gang.run, None)
        for seat in gang.seats:
            seat.runs.discard(gang.run)
            seat.idle_since = time.monotonic()
        self._events.append(event)

    # -- seats that go ---------------------------------------------------------

    def _lose(self, seat: Seat, why: str, *, certain: bool = True) -> None:
        """A seat is gone, with all that it ran."""
        # A runner that is known to be dead takes its commands along; one on a node that is gone,
        # or that says nothing, may run them until its lease is over.
        known_dead = certain and seat.node in {node.id for node in self.nodes()}
        safe_at = time.time() + (0.0 if known_dead else self._lease_s)
        self._drop(seat)
        for gang in [self._gangs[run] for run in sorted(seat.runs) if run in self._gangs]:
            gang.gone[gang.seats.index(seat)] = why
            gang.safe_at = max(gang.safe_at, safe_at)
            if gang.sent:
                self._end_rest(gang)
            else:
                self._close(gang, NotStarted(gang.run, why))

    def _drop(self, seat: Seat) -> None:
        self._seats.pop(seat.name, None)
        self._calls = {one: about for one, about in self._calls.items() if about[1] is not seat}
        self._backend.kill(seat.handle)
