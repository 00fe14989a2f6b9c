"""The pool of seats: found after a restart, created, called and removed.

An idle seat is kept for a while, because a process takes a second to start; it is removed at once
if its GPUs are needed in another number.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple
from uuid import uuid4

from schedmate.schedulers.live.queue.backend import (
    Backend,
    NodeSeen,
    SeatDeadError,
    SeatSilentError,
)
from schedmate.schedulers.live.queue.gangs import Seat


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
        found = self._backend.nodes()
        self.alive = {node.id: node for node in found}
        return found

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
                    known = self._backend.answer(reference)
                except (SeatDeadError, SeatSilentError):
                    self.drop(seat)
                    continue
                seat.ready, seat.idle_since = True, time.monotonic()
                seat.runs = set(known["runs"])
                for run in known["runs"]:
                    runs.setdefault(run, []).append(seat.node)
        for seat in calls.values():
            self.drop(seat)
        return runs

    def seat(self, node: str, gpus: float) -> Seat:
        """An idle seat with this number of GPUs of a node, or a new one.

        Idle seats of other sizes are removed if the node would not have enough GPUs otherwise.
        """
        idle = [one for one in self.seats.values() if one.node == node and not one.runs]
        for seat in idle:
            if seat.gpus == gpus and seat.silent_since is None:
                return seat
        size = self.alive[node].gpus if node in self.alive else 0
        used = sum(one.gpus for one in self.seats.values() if one.node == node)
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
