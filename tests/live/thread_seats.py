"""Seats without Ray: runners in this process, their calls in threads; nodes can be lost."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from threading import Event
from typing import Any

from schedmate.cluster.ray.runner import Runner
from schedmate.cluster.ray.seats import NodeSeen, SeatDeadError, SeatMethodError


class ThreadBackend:
    """A `Backend` whose runners are objects; its commands are real processes."""

    def __init__(self, *nodes: int, meter: tuple[str, ...] = ()) -> None:
        self.meter = meter
        self.alive = [NodeSeen(f"id{n}", f"node{n}", gpus) for n, gpus in enumerate(nodes)]
        self.runners: dict[str, Runner] = {}
        self.held: dict[str, list[str]] = {}
        self.dead: set[int] = set()
        self.asked: dict[Future[Any], int] = {}
        """Whose answer each is: of a runner that is dead there is none."""
        self.pool = ThreadPoolExecutor(32)
        self.created = 0
        self.gates: dict[str, Event] = {}
        """Calls of a method get to their runner only once its gate is open."""

    def nodes(self) -> list[NodeSeen]:
        return list(self.alive)

    def create(self, name: str, node: str, gpus: float) -> Any:
        self.created += 1
        (seen,) = [one for one in self.alive if one.id == node]
        taken = {gpu for one, some in self.held.items() if f".{node}." in one for gpu in some}
        free = [str(gpu) for gpu in range(seen.gpus) if str(gpu) not in taken]
        self.held[name] = free[: max(1, int(gpus))]
        runner = self.runners[name] = Runner(self.held[name], self.meter)
        return runner

    def existing(self) -> dict[str, Any]:
        return dict(self.runners)

    def call(self, handle: Any, method: str, *arguments: Any) -> Future[Any]:
        gate = self.gates.get(method)

        def called() -> Any:
            if gate is not None:
                gate.wait()
            return getattr(handle, method)(*arguments)

        future = self.pool.submit(called)
        self.asked[future] = id(handle)
        return future

    def ready(self, references: Sequence[Any], timeout_s: float) -> list[Any]:
        return list(wait(references, timeout_s, FIRST_COMPLETED).done)

    def answer(self, reference: Any) -> Any:
        if self.asked.pop(reference, None) in self.dead:
            raise SeatDeadError("it was killed")
        try:
            return reference.result()
        except Exception as error:
            raise SeatMethodError(str(error)) from error

    def kill(self, handle: Any) -> None:
        """Its commands end because their pipe is closed, as when its process dies."""
        self.dead.add(id(handle))
        for name, one in list(self.runners.items()):
            if one is handle:
                del self.runners[name], self.held[name]
        for running in list(handle._running.values()):
            running._process.stdin.close()

    def lose(self, node: str) -> None:
        """A node dies, with its runners."""
        self.alive = [one for one in self.alive if one.id != node]
        for name, runner in list(self.runners.items()):
            if f".{node}." in name:
                self.kill(runner)
