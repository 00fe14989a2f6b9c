"""Much independent work on a pool of processes; results in order of completion."""

from __future__ import annotations

import os
import queue
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import active_children, get_context, parent_process, resource_tracker
from typing import Any, Generic, TypeVar

from schedmate.garbage import collect_seldom

T = TypeVar("T")
R = TypeVar("R")
S = TypeVar("S")

_SAFE_PATH = "PYTHONSAFEPATH"
_STOPS = {signal.SIGINT, signal.SIGTERM}


@dataclass(frozen=True, slots=True)
class _Item(Generic[T]):
    value: T


def spread(
    work: Callable[[T, S], R],
    items: Iterable[T],
    shared: S,
    *,
    processes: int = 1,
    ray: str | None = None,
) -> Iterator[tuple[T, R | None]]:
    """Each item with `work(item, shared)`, or None when that ended its process; as they end.

    On `processes` of this machine, or as tasks of the Ray cluster at the address `ray`. What is
    shared travels once to each process. What `work` raises is raised here.
    """
    if ray is not None:
        from schedmate.ray_tasks import on_ray

        return on_ray(work, items, shared, ray)
    return unordered(_with_shared, items, processes, _share, (work, shared))


_shared: tuple[Callable[[Any, Any], Any], Any]


def _share(work: Callable[[Any, Any], Any], shared: Any) -> None:
    global _shared  # noqa: PLW0603 - given once to each process, not with each item
    _shared = (work, shared)


def _with_shared(item: Any) -> Any:
    work, shared = _shared
    return work(item, shared)


def unordered(
    work: Callable[[T], R],
    items: Iterable[T],
    processes: int,
    start: Callable[..., None],
    arguments: tuple[Any, ...] = (),
) -> Iterator[tuple[T, R | None]]:
    """Each item with what `work` makes of it, or None when that ended its process.

    Every process calls `start(*arguments)` first. Items are read no further ahead than the pool
    can use. What `work` raises is raised here: to let the others go on, return errors.
    """

    def pool(size: int) -> ProcessPoolExecutor:
        with _undisturbed():
            return ProcessPoolExecutor(size, get_context("spawn"), _begin, (start, arguments))

    with _undisturbed():
        resource_tracker.ensure_running()  # its own start would let signals through again
    others = set(active_children())
    workers = pool(processes)
    suspects: list[T] = []
    ended = False

    def submit(value: T) -> Future[R]:
        nonlocal workers
        try:
            return _submit(workers, work, value)
        except BrokenProcessPool:
            workers.shutdown()
            workers = pool(processes)
            return _submit(workers, work, value)

    try:
        for value, future in completed(submit, items, 4 * processes):
            if isinstance(future.exception(), BrokenProcessPool):
                suspects.append(value)
            else:
                yield value, future.result()
        ended = True
    finally:
        if not ended:  # whoever reads has left, as at Ctrl-C: nobody waits for what is unfinished
            for process in set(active_children()) - others:
                process.kill()
        # Python's own exit would wake up the pool's thread while that closes its pipe.
        workers.shutdown(wait=True, cancel_futures=True)
    # A dying process takes down all that ran beside it: run each again, alone.
    for value in suspects:
        with pool(1) as single:
            try:
                yield value, _submit(single, work, value).result()
            except BrokenProcessPool:
                yield value, None


def completed(
    submit: Callable[[T], Future[R]], items: Iterable[T], most: int
) -> Iterator[tuple[T, Future[R]]]:
    """Each item with what `submit` gave for it, once that is done; `most` are under way at once.

    Items are drawn in a thread of its own, as they may take long to come; what drawing them raises
    is raised here. `submit` is called in the thread that reads the results.
    """
    events: queue.Queue[_Item[T] | Future[R] | Exception | None] = queue.Queue()
    room = threading.Semaphore(most)

    def feed() -> None:
        try:
            for value in items:
                room.acquire()
                events.put(_Item(value))
            events.put(None)
        except Exception as error:  # noqa: BLE001 - raised again where the results are read
            events.put(error)

    threading.Thread(target=feed, daemon=True).start()
    running: dict[Future[R], T] = {}
    reading = True
    while reading or running:
        event = events.get()
        if event is None:
            reading = False
        elif isinstance(event, _Item):
            future = submit(event.value)
            running[future] = event.value
            future.add_done_callback(events.put)
        elif isinstance(event, Future):
            room.release()
            yield running.pop(event), event
        else:
            raise event


def _submit(workers: ProcessPoolExecutor, work: Callable[[T], R], value: T) -> Future[R]:
    """Hand work to a pool, which may start a process for it."""
    with _undisturbed():
        return workers.submit(work, value)


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


def _begin(start: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    """Prepare one worker process."""
    # Ctrl-C reaches every process of the terminal; a worker just ends, without a traceback.
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPS)
    collect_seldom()
    # One core a process: the libraries' own threads would only get in each other's way.
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    threading.Thread(target=_end_with_parent, daemon=True).start()
    start(*arguments)


def _end_with_parent() -> None:
    """A pool's processes would wait for work for ever after their parent was killed."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
