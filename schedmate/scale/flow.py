"""The flow of items through a pool: tasks of many, no more under way than the pool can use.

How many items make a task follows from how long they take: short ones travel together, since a task
costs a millisecond or two, long ones alone, since the last task is waited for. An item that ends
its process is found by dividing its task, and costs the others nothing.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from schedmate.errors import SchedmateError
from schedmate.scale.journal import Memo

PARTS = 8
"""Into how many parts the items of a task are divided whose process ended."""
AHEAD = 2
"""Tasks whose items are drawn for each one that runs."""
RECENT = 0.2
"""Weight of the last task in the mean time of an item."""
HOPELESS = 100
"""Tasks that end their processes before any has gone well, after which there is no use in more."""

T = TypeVar("T")
R = TypeVar("R")
T_contra = TypeVar("T_contra", contravariant=True)


class Pool(Protocol[T_contra, R]):
    """Where tasks run."""

    size: int
    """Tasks under way at the same time."""
    most: int
    """Items of one task at most."""
    task_s: float
    """How long a task is meant to take [s]."""
    retries: int
    """Items under way at the same time that may have ended a process before."""

    def submit(self, items: Sequence[T_contra]) -> Future[tuple[list[R], float]]:
        """Begin a task; its future gives a result for each item, and the time it took [s]."""
        ...

    def died(self, error: BaseException) -> bool:
        """Whether a task's error says that its process ended, rather than what was raised."""
        ...

    def reached(self, task: Future[tuple[list[R], float]]) -> int | None:
        """The position of the item at which a task's process ended, where that is known."""
        ...


@dataclass(frozen=True, slots=True)
class _Drawn(Generic[T]):
    value: T


class _Room:
    """How many items may be drawn that are in no task yet; `limit` may change at any time."""

    def __init__(self) -> None:
        self.limit = 1
        self._held = 0
        self._open = True
        self._changed = threading.Condition()

    def take(self) -> bool:
        """Wait for room for one item; False when no more are wanted."""
        with self._changed:
            self._changed.wait_for(lambda: self._held < self.limit or not self._open)
            self._held += 1
            return self._open

    def give(self, count: int, limit: int) -> None:
        """Make the room of items free, and set the limit."""
        with self._changed:
            self._held -= count
            self.limit = limit
            self._changed.notify()

    def close(self) -> None:
        """Want no more."""
        with self._changed:
            self._open = False
            self._changed.notify()


class Flow(Generic[T, R]):
    """One run of many items through a pool; `results` gives them as they end."""

    def __init__(self, pool: Pool[T, R], memo: Memo[T, R] | None = None) -> None:
        self._pool = pool
        self._memo = memo
        self._events: queue.SimpleQueue[
            _Drawn[T] | Future[tuple[list[R], float]] | Exception | None
        ] = queue.SimpleQueue()
        self._room = _Room()
        self._drawn: deque[T] = deque()
        self._again: deque[list[T]] = deque()
        self._suspects: deque[T] = deque()
        self._running: dict[Future[tuple[list[R], float]], list[T]] = {}
        self._accused: set[Future[tuple[list[R], float]]] = set()
        self._reading = True
        self._mean_s: float | None = None
        self._deaths = 0

    def results(self, items: Iterable[T]) -> Iterator[tuple[T, R | None]]:
        """Each item with its result, None when it ended its process twice.

        Items are drawn in a thread of its own, as they may take long to come; what drawing them
        raises, and what the work raises, is raised here.
        """
        self._limit(0)
        threading.Thread(target=self._feed, args=(items,), daemon=True).start()
        try:
            while True:
                self._begin_tasks()
                if not (self._reading or self._drawn or self._running):
                    return
                event = self._events.get()
                if event is None:
                    self._reading = False
                elif isinstance(event, _Drawn):
                    known = None if self._memo is None else self._memo.recall(event.value)
                    if known is None:
                        self._drawn.append(event.value)
                    else:
                        self._limit(1)
                        yield event.value, known[0]
                elif isinstance(event, Future):
                    yield from self._kept(self._ended(event))
                else:
                    raise event
        finally:
            self._room.close()

    def _feed(self, items: Iterable[T]) -> None:
        try:
            for value in items:
                if not self._room.take():
                    return
                self._events.put(_Drawn(value))
            self._events.put(None)
        except Exception as error:  # noqa: BLE001 - raised again where the results are read
            self._events.put(error)

    def _kept(self, ended: Iterable[tuple[T, R | None]]) -> Iterator[tuple[T, R | None]]:
        """The same; whoever reads it has dealt with a result before it counts as done."""
        for item, outcome in ended:
            yield item, outcome
            if self._memo is not None:
                self._memo.keep(item, outcome)

    def _limit(self, given: int) -> None:
        self._room.give(given, AHEAD * self._pool.size * self._items_of_a_task())

    def _items_of_a_task(self) -> int:
        if self._mean_s is None:
            return 1
        return max(1, min(self._pool.most, int(self._pool.task_s / max(self._mean_s, 1e-9))))

    def _begin_tasks(self) -> None:
        while len(self._running) < self._pool.size:
            if self._again:
                self._submit(self._again.popleft())
            elif self._drawn and (
                len(self._drawn) >= self._items_of_a_task()
                or not self._reading
                or self._events.empty()  # a place would be idle until somebody types more
            ):
                size = self._items_of_a_task()
                if not self._reading:  # the last ones end at about the same time
                    size = min(size, -(-len(self._drawn) // (AHEAD * self._pool.size)))
                task = [self._drawn.popleft() for _ in range(min(size, len(self._drawn)))]
                self._submit(task)
                self._limit(len(task))
            elif self._suspects and not self._others() and self._may_retry():
                self._submit([self._suspects.popleft()], accused=True)
            else:
                return

    def _others(self) -> bool:
        """Whether there is work now besides that which has ended a process."""
        more = self._drawn or not self._events.empty()
        return bool(more or len(self._running) > len(self._accused))

    def _may_retry(self) -> bool:
        return len(self._accused) < self._pool.retries

    def _submit(self, items: list[T], *, accused: bool = False) -> None:
        task = self._pool.submit(items)
        self._running[task] = items
        if accused:
            self._accused.add(task)
        task.add_done_callback(self._events.put)

    def _ended(self, task: Future[tuple[list[R], float]]) -> Iterator[tuple[T, R | None]]:
        items = self._running.pop(task)
        error = task.exception()
        accused = task in self._accused
        self._accused.discard(task)
        if error is None:
            outcomes, seconds = task.result()
            self._deaths = -1
            last_s = seconds / len(items)
            self._mean_s = (
                last_s if self._mean_s is None else (1 - RECENT) * self._mean_s + RECENT * last_s
            )
            self._limit(0)
            yield from zip(items, outcomes, strict=True)
        elif not self._pool.died(error):
            raise error
        else:
            place = self._pool.reached(task)
            if accused:
                yield items[0], None
            else:
                self._divide(items, place)

    def _divide(self, items: list[T], place: int | None) -> None:
        """Have the items of a task again whose process ended, so as to find which one did it.

        A single one is a suspect: what ended the process may have been the others' memory, so it
        runs once more when nothing else does.
        """
        if self._deaths >= 0:
            self._deaths += 1
            if self._deaths >= HOPELESS:
                raise SchedmateError(
                    f"the processes of the first {HOPELESS} tasks were killed or crashed, and no "
                    "task went well; is there memory for them?"
                )
        if len(items) == 1:
            place = 0
        if place is not None:
            self._suspects.append(items[place])
            parts = [items[:place], items[place + 1 :]]
        else:
            size = -(-len(items) // PARTS)
            parts = [items[start : start + size] for start in range(0, len(items), size)]
        self._again.extend(part for part in parts if part)
