"""Independent work as tasks of a Ray cluster (extra `ray`)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from schedmate import ray_clusters
from schedmate.errors import InputError

AHEAD = 2
"""Tasks under way for each core of the cluster: the next one is there when one ends."""
MOST = 1000
"""Items of one task."""
TASK_S = 2.0
"""How long a task is meant to take [s]: a task costs its driver one to two milliseconds."""

T = TypeVar("T")
R = TypeVar("R")
S = TypeVar("S")


def require_ray() -> None:
    """Raise `MissingExtraError` when Ray is not installed."""
    ray_clusters.require_ray("--ray")


class RayTasks(Generic[T, R, S]):
    """A pool (`schedmate.scale.flow.Pool`) of the tasks that a Ray cluster runs at once.

    `address` is what `ray.init` takes: `auto`, `HOST:PORT`, `ray://HOST:PORT`, or `local` for a
    cluster of this machine alone. Its machines need the same version of schedmate. Raises
    `MissingExtraError` without Ray and `InputError` without cluster.
    """

    task_s = TASK_S

    def __init__(
        self, work: Callable[[T, S], R], shared: S, address: str, most: int | None = None
    ) -> None:
        require_ray()
        import ray

        self._mine = not ray.is_initialized()
        if self._mine:
            options: dict[str, Any] = {"include_dashboard": False} if address == "local" else {}
            ray_clusters.connect(address, **options)
        self.most = MOST if most is None else most
        self.size = self.retries = AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
        # what ended a worker is found here, so that a task never ends two of them
        self._task = ray.remote(max_retries=0)(_work_through)
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
        future.add_done_callback(lambda ended: _pass_on(ended, outcome))
        return outcome

    def died(self, error: BaseException) -> bool:
        """See `Pool.died`: its worker, its machine, or whoever holds the result."""
        from ray.exceptions import RayError

        return isinstance(error, RayError)

    def reached(self, task: Future[tuple[list[R], float]]) -> int | None:
        """See `Pool.reached`: a worker that has ended tells nothing more."""
        return None


def _pass_on(ended: Future[Any], outcome: Future[Any]) -> None:
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


_known: dict[Any, tuple[Callable[[Any, Any], Any], Any, Path]] = {}


def _work_through(given: list[Any], items: list[Any]) -> tuple[list[Any], float]:
    """One task, in a process of the cluster."""
    import ray

    from schedmate.garbage import collect_seldom

    if given[0] not in _known:
        collect_seldom()
        _known.clear()  # of an earlier driver's
        _known[given[0]] = ray.get(given[0])
    work, shared, folder = _known[given[0]]
    with suppress(OSError):  # relative paths mean the same there
        os.chdir(folder)
    begin = time.monotonic()
    outcomes = [work(item, shared) for item in items]
    return outcomes, time.monotonic() - begin
