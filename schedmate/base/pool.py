"""Where tasks run: processes of this machine, threads of this process, or a Ray cluster (extra
`ray`).

`Processes`, `Threads` and `RayTasks` are the pools of `schedmate.base.spread`. `connect_to_ray`
says at once where there is no cluster.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from ctypes import c_int64
from multiprocessing import active_children, get_context, parent_process, resource_tracker
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from schedmate.base import collect_seldom
from schedmate.base.errors import InputError, require

MOST_ITEMS = 1000
"""Items of one task."""
TASK_S = 0.25
"""How long a task is meant to take [s]: a task costs a fifth of a millisecond."""

T = TypeVar("T")
R = TypeVar("R")
S = TypeVar("S")

_SAFE_PATH = "PYTHONSAFEPATH"
_STOPS = {signal.SIGINT, signal.SIGTERM}


class Processes(Generic[T, R, S]):
    """A pool (`schedmate.base.spread.Pool`) of processes, each of which can die alone.

    Every process is sent `work` and `shared` once, when it starts, and says at which item it is.
    """

    task_s = TASK_S
    retries = 1  # alone: what ended a process may be that all of them took too much memory

    def __init__(
        self, work: Callable[[T, S], R], shared: S, size: int, most: int | None = None
    ) -> None:
        self.size = size
        self.most = MOST_ITEMS if most is None else most
        self._given = work, shared
        self._free: list[_Process] = []
        self._users: dict[Future[Any], _Process] = {}
        self._broken: list[_Process] = []
        with _uninterrupted():
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
    """One process with a separate executor, so that its death ends only its own task."""

    def __init__(self, given: tuple[Any, Any]) -> None:
        context = get_context("spawn")
        self.place = context.RawValue(c_int64, 0)
        self.executor = ProcessPoolExecutor(1, context, _begin_process, (*given, self.place))

    def begin(self, items: Sequence[Any]) -> Future[Any]:
        self.place.value = 0
        with _uninterrupted():  # it may start the process
            return self.executor.submit(_work_through, list(items))


_assignment: tuple[Callable[[Any, Any], Any], Any, Any]


def _work_through(items: list[Any]) -> tuple[list[Any], float]:
    work, shared, place = _assignment
    begin = time.monotonic()
    outcomes = []
    for number, item in enumerate(items):
        place.value = number
        outcomes.append(work(item, shared))
    return outcomes, time.monotonic() - begin


@contextmanager
def _uninterrupted() -> Iterator[None]:
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


def _begin_process(work: Callable[[Any, Any], Any], shared: Any, place: Any) -> None:
    """Prepare one worker process."""
    global _assignment  # noqa: PLW0603 - given once to each process, not with each item
    _assignment = work, shared, place
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


# Tasks in threads of this process, for work that waits for other processes.


class Threads(Generic[T, R, S]):
    """A pool (`schedmate.base.spread.Pool`) of threads; each item is a task."""

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


# Independent work as tasks of a Ray cluster (extra `ray`).


RAY_AHEAD = 2
"""Tasks under way for each core of the cluster: the next one is there when one ends."""
RAY_TASK_S = 2.0
"""How long a task is meant to take [s]: a task costs its driver one to two milliseconds."""


def require_ray_tasks() -> None:
    """Raise `MissingExtraError` when Ray is not installed."""
    require_ray("--ray")


class RayTasks(Generic[T, R, S]):
    """A pool (`schedmate.base.spread.Pool`) of the tasks that a Ray cluster runs at once.

    `address` is what `ray.init` takes: `auto`, `HOST:PORT`, `ray://HOST:PORT`, or `local` for a
    cluster of this machine alone. Its machines need the same version of schedmate. Raises
    `MissingExtraError` without Ray and `InputError` without cluster.
    """

    task_s = RAY_TASK_S

    def __init__(
        self, work: Callable[[T, S], R], shared: S, address: str, most: int | None = None
    ) -> None:
        require_ray_tasks()
        import ray

        self._mine = not ray.is_initialized()
        if self._mine:
            options: dict[str, Any] = {"include_dashboard": False} if address == "local" else {}
            connect_to_ray(address, **options)
        self.most = MOST_ITEMS if most is None else most
        self.size = self.retries = RAY_AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
        # what ended a worker is found here, so that a task never ends two of them
        self._task = ray.remote(max_retries=0)(_work_through_on_ray)
        # in a list Ray leaves it as it is: each process gets the object once, not with each task
        self._given = [ray.put((work, shared, Path.cwd()))]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        import ray

        if self._mine:
            ray.shutdown()

    def submit(self, items: Sequence[T]) -> Future[tuple[list[R], float]]:
        """See `Pool.submit`."""
        future: Future[Any] = self._task.remote(self._given, list(items)).future()
        outcome: Future[tuple[list[R], float]] = Future()
        future.add_done_callback(lambda ended: _pass_outcome_on(ended, outcome))
        return outcome

    def died(self, error: BaseException) -> bool:
        """See `Pool.died`: its worker, its machine, or whoever holds the result."""
        from ray.exceptions import RayError

        return isinstance(error, RayError)

    def reached(self, task: Future[tuple[list[R], float]]) -> int | None:
        """See `Pool.reached`: a worker that has ended tells nothing more."""
        return None


def _pass_outcome_on(ended: Future[Any], outcome: Future[Any]) -> None:
    """The same outcome, but what the work raised as it was raised."""
    from ray.exceptions import RayTaskError

    error = ended.exception()
    if error is None:
        outcome.set_result(ended.result())
    else:
        cause = error.cause if isinstance(error, RayTaskError) else None
        if isinstance(cause, ModuleNotFoundError):
            cause = InputError(
                f"a machine of the Ray cluster cannot run schedmate: {cause}; install the same "
                "version with the same extras on all of them."
            )
        outcome.set_exception(cause or error)


_received: dict[Any, tuple[Callable[[Any, Any], Any], Any, Path]] = {}


def _work_through_on_ray(references: list[Any], items: list[Any]) -> tuple[list[Any], float]:
    """One task, in a process of the cluster."""
    import ray

    from schedmate.base import collect_seldom

    if references[0] not in _received:
        collect_seldom()
        _received.clear()  # of an earlier driver's
        _received[references[0]] = ray.get(references[0])
    work, shared, folder = _received[references[0]]
    with suppress(OSError):  # relative paths mean the same there
        os.chdir(folder)
    begin = time.monotonic()
    outcomes = [work(item, shared) for item in items]
    return outcomes, time.monotonic() - begin


# Connecting this process to a Ray cluster, or saying at once that there is none.


RAY_CONNECT_S = 5.0
"""How long a HOST:PORT may take to answer [s]."""

_QUIET_RAY = {
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is sent anywhere
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",  # it tells of dead workers on standard output, between ours
    "RAY_TQDM_PATCH_PRINT": "0",
}


def require_ray(what: str) -> None:
    """Set what has to be set before Ray is imported. Raises `MissingExtraError` without Ray, which
    `what` needs."""
    require(what, "ray", "ray")
    for name, value in _QUIET_RAY.items():
        os.environ.setdefault(name, value)


def connect_to_ray(address: str, hint: str = "", **options: Any) -> None:
    """Connect to `auto`, `HOST:PORT`, `ray://HOST:PORT` or `local`; `options` go to `ray.init`.

    Raises `InputError` when there is no cluster; `hint` is what else to try then.
    """
    import ray

    instead = f"start one with `ray start --head`{hint}"
    try:
        _reach_ray(address)
        ray.init(address, log_to_driver=False, logging_level="ERROR", **options)
    except (OSError, OverflowError, RuntimeError, ValueError) as error:
        raise InputError(
            f"no Ray cluster at {address}: {ray_error_line(error)}; {instead}."
        ) from None


def _reach_ray(address: str) -> None:
    """Ray itself tries for minutes to reach a HOST:PORT where nothing listens, and says so in
    logs."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=RAY_CONNECT_S).close()


def ray_error_line(error: BaseException) -> str:
    """What an exception of Ray's says, without its stack."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    lines = (line.strip() for line in str(error).splitlines())
    return next((line for line in lines if line), type(error).__name__)
