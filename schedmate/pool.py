"""A pool of processes of this machine, for `schedmate.scale`."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from ctypes import c_int64
from multiprocessing import active_children, get_context, parent_process, resource_tracker
from typing import Any, Generic, Self, TypeVar

from schedmate.garbage import collect_seldom

MOST = 1000
"""Items of one task."""
TASK_S = 0.25
"""How long a task is meant to take [s]: a task costs a fifth of a millisecond."""

T = TypeVar("T")
R = TypeVar("R")
S = TypeVar("S")

_SAFE_PATH = "PYTHONSAFEPATH"
_STOPS = {signal.SIGINT, signal.SIGTERM}


class Processes(Generic[T, R, S]):
    """A pool (`schedmate.scale.flow.Pool`) of processes, each of which can die alone.

    Every process is sent `work` and `shared` once, when it starts, and says at which item it is.
    """

    task_s = TASK_S
    retries = 1  # alone: what ended a process may be that all of them took too much memory

    def __init__(
        self, work: Callable[[T, S], R], shared: S, size: int, most: int | None = None
    ) -> None:
        self.size = size
        self.most = MOST if most is None else most
        self._given = work, shared
        self._free: list[_Process] = []
        self._users: dict[Future[Any], _Process] = {}
        self._broken: list[_Process] = []
        with _undisturbed():
            resource_tracker.ensure_running()  # its own start would let signals through again
        self._others = set(active_children())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:  # whoever reads has left, as at Ctrl-C: nobody waits for the rest
            for process in set(active_children()) - self._others:
                process.kill()
        # Python's own exit would wake up the pool's thread while that closes its pipe.
        for one in [*self._free, *self._users.values(), *self._broken]:
            one.executor.shutdown(wait=True, cancel_futures=True)

    def submit(self, items: Sequence[T]) -> Future[tuple[list[R], float]]:
        """See `Pool.submit`."""
        while self._broken:
            self._broken.pop().executor.shutdown(wait=True)
        one = self._free.pop() if self._free else _Process(self._given)
        future: Future[tuple[list[R], float]]
        try:
            future = one.begin(items)
        except BrokenProcessPool:  # it was killed while it had nothing to do
            self._broken.append(one)
            one = _Process(self._given)
            future = one.begin(items)
        self._users[future] = one
        future.add_done_callback(self._back)
        return future

    def _back(self, future: Future[Any]) -> None:
        if not (future.cancelled() or isinstance(future.exception(), BrokenProcessPool)):
            self._free.append(self._users.pop(future))

    def died(self, error: BaseException) -> bool:
        """See `Pool.died`."""
        return isinstance(error, BrokenProcessPool)

    def reached(self, task: Future[tuple[list[R], float]]) -> int | None:
        """See `Pool.reached`."""
        one = self._users.pop(task)
        self._broken.append(one)
        return one.place.value


class _Process:
    """One process with an executor of its own, so that its death is that of its one task."""

    def __init__(self, given: tuple[Any, Any]) -> None:
        context = get_context("spawn")
        self.place = context.RawValue(c_int64, 0)
        self.executor = ProcessPoolExecutor(1, context, _begin, (*given, self.place))

    def begin(self, items: Sequence[Any]) -> Future[Any]:
        self.place.value = 0
        with _undisturbed():  # it may start the process
            return self.executor.submit(_work_through, list(items))


_given: tuple[Callable[[Any, Any], Any], Any, Any]


def _work_through(items: list[Any]) -> tuple[list[Any], float]:
    work, shared, place = _given
    begin = time.monotonic()
    outcomes = []
    for number, item in enumerate(items):
        place.value = number
        outcomes.append(work(item, shared))
    return outcomes, time.monotonic() - begin


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Nothing interrupts the start of a process, here or there; what comes meanwhile comes after.

    While it imports its modules, Ctrl-C would print a traceback there, and so would the end of a
    parent that has not yet told it what to do; `_begin` lets the signals through. Nor does it look
    for them in the current directory, which may be a job's repository.
    """
    path = os.environ.get(_SAFE_PATH)
    os.environ[_SAFE_PATH] = "1"
    came: list[int] = []
    handlers: dict[signal.Signals, Any] = {}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)  # which a new process inherits
    try:
        # other threads get them all the same, and Python would handle them in the main one
        if threading.current_thread() is threading.main_thread():
            for stop in _STOPS:
                if callable(handler := signal.getsignal(stop)):
                    handlers[stop] = handler
                    signal.signal(stop, lambda number, _: came.append(number))
        yield
    finally:
        if path is None:
            del os.environ[_SAFE_PATH]
        else:
            os.environ[_SAFE_PATH] = path
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for stop, handler in handlers.items():
            signal.signal(stop, handler)
        for number in came:
            signal.raise_signal(number)


def _begin(work: Callable[[Any, Any], Any], shared: Any, place: Any) -> None:
    """Prepare one worker process."""
    global _given  # noqa: PLW0603 - given once to each process, not with each item
    _given = work, shared, place
    # Ctrl-C reaches every process of the terminal; a worker just ends, without a traceback.
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPS)
    collect_seldom()
    # One core a process: the libraries' own threads would only get in each other's way.
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A pool's processes would wait for work for ever after their parent was killed."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
