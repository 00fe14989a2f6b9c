"""Tasks in threads of this process, for work that waits for other processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, Self, TypeVar

T = TypeVar("T")
R = TypeVar("R")
S = TypeVar("S")


class Threads(Generic[T, R, S]):
    """A pool (`schedmate.scale.flow.Pool`) of threads; each item is a task."""

    most = 1
    task_s = 0.0

    def __init__(self, work: Callable[[T, S], R], shared: S, size: int) -> None:
        self.size = self.retries = size
        self._work = work
        self._shared = shared
        self._threads = ThreadPoolExecutor(size, thread_name_prefix="batch")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def submit(self, items: Sequence[T]) -> Future[tuple[list[R], float]]:
        """See `Pool.submit`."""
        return self._threads.submit(
            lambda: ([self._work(item, self._shared) for item in items], 0.0)
        )

    def died(self, error: BaseException) -> bool:
        """See `Pool.died`: a thread does not die alone."""
        return False

    def reached(self, task: Future[tuple[list[R], float]]) -> int | None:
        """See `Pool.reached`."""
        return None
