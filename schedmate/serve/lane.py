"""`Lane`: one thread that does short pieces of work for the event loop, in their order.

One thread, because the work is Python under one interpreter lock and a database with one
connection: more threads would only slow each other down, and the slowest answers most.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")

_Entry = tuple[T, float, "asyncio.Future[R] | None"]


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
        self._queue: SimpleQueue[_Entry[T, R] | None] = SimpleQueue()
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

    def _answer(self, entries: Sequence[_Entry[T, R]], answers: Sequence[R | Exception]) -> None:
        waiting = [
            (entry[2], answer)
            for entry, answer in zip(entries, answers, strict=True)
            if entry[2] is not None
        ]
        if waiting and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(_settle, waiting)


def _settle(waiting: Sequence[tuple[asyncio.Future[R], R | Exception]]) -> None:
    for future, answer in waiting:
        if not future.done():
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)
