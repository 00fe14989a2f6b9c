"""Spreads much independent work over a pool, and gives results in order of completion.

Items travel in tasks, no more of them under way than the pool can use. How many items make a task
follows from how long they take: short ones travel together, since a task costs a millisecond or
two, long ones alone, since the last task is waited for. An item that ends its process is found by
dividing its task, and costs the others nothing.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from schedmate.base.errors import SchedmateError
from schedmate.base.journal import Memo

T = TypeVar("T")
R = TypeVar("R")
S = TypeVar("S")


def spread(
    work: Callable[[T, S], R],
    items: Iterable[T],
    shared: S,
    *,
    processes: int = 1,
    threads: int | None = None,
    ray: str | None = None,
    memo: Memo[T, R] | None = None,
    most: int | None = None,
) -> Iterator[tuple[T, R | None]]:
    """Each item with `work(item, shared)`, or None when that ended its process; as they end.

    On `processes` of this machine, on `threads` of this process, or as tasks of the Ray cluster at
    the address `ray`. What is shared travels once to each process. What `memo` knows is not done
    again. A task has `most` items at most, else what the pool takes. Items are read no further
    ahead than the pool can use. What `work` raises is raised here: to let the others go on, return
    errors.
    """
    if ray is not None:
        from schedmate.base.pool import RayTasks

        with RayTasks(work, shared, ray, most) as cluster:
            yield from Flow(cluster, memo).results(items)
    elif threads is not None:
        from schedmate.base.pool import Threads

        with Threads(work, shared, threads) as pool:
            yield from Flow(pool, memo).results(items)
    else:
        from schedmate.base.pool import Processes

        with Processes(work, shared, processes, most) as workers:
            yield from Flow(workers, memo).results(items)


# The flow of items through a pool: tasks of many, no more under way than the pool can use.
#
# How many items make a task follows from how long they take: short ones travel together, since a
# task costs a millisecond or two, long ones alone, since the last task is waited for. An item that
# ends its process is found by dividing its task, and costs the others nothing.


TASK_PARTS = 8
"""Into how many parts the items of a task are divided whose process ended."""
TASKS_AHEAD = 2
"""Tasks whose items are drawn for each one that runs."""
RECENT_WEIGHT = 0.2
"""Weight of the last task in the mean time of an item."""
HOPELESS_TASKS = 100
"""Tasks that end their processes before any has gone well, after which there is no use in more."""

T_contra = TypeVar("T_contra", contravariant=True)


class Pool(Protocol[T_contra, R]):
    """A place where tasks run, each over some items: threads, processes or a Ray cluster."""

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
        """Refuse further items, and wake up whoever waits for room."""
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
                    recalled = None if self._memo is None else self._memo.recall(event.value)
                    if recalled is None:
                        self._drawn.append(event.value)
                    else:
                        self._limit(1)
                        yield event.value, recalled[0]
                elif isinstance(event, Future):
                    yield from self._remembered(self._ended(event))
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

    def _remembered(self, ended: Iterable[tuple[T, R | None]]) -> Iterator[tuple[T, R | None]]:
        """Each item with its result; after the caller took one, it is stored in the memo."""
        for item, outcome in ended:
            yield item, outcome
            if self._memo is not None:
                self._memo.keep(item, outcome)

    def _limit(self, given: int) -> None:
        self._room.give(given, TASKS_AHEAD * self._pool.size * self._items_of_a_task())

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
                    size = min(size, -(-len(self._drawn) // (TASKS_AHEAD * self._pool.size)))
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
                last_s
                if self._mean_s is None
                else (1 - RECENT_WEIGHT) * self._mean_s + RECENT_WEIGHT * last_s
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
            if self._deaths >= HOPELESS_TASKS:
                raise SchedmateError(
                    f"the processes of the first {HOPELESS_TASKS} tasks were killed or crashed, "
                    "and no task went well; is there memory for them?"
                )
        if len(items) == 1:
            place = 0
        if place is not None:
            self._suspects.append(items[place])
            parts = [items[:place], items[place + 1 :]]
        else:
            size = -(-len(items) // TASK_PARTS)
            parts = [items[start : start + size] for start in range(0, len(items), size)]
        self._again.extend(part for part in parts if part)
