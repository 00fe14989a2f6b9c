"""Much independent work, wherever it is to be done; results in order of completion."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from schedmate.scale.flow import Flow
from schedmate.scale.journal import Memo

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
        from schedmate.ray_tasks import RayTasks

        with RayTasks(work, shared, ray, most) as cluster:
            yield from Flow(cluster, memo).results(items)
    elif threads is not None:
        from schedmate.scale.threads import Threads

        with Threads(work, shared, threads) as pool:
            yield from Flow(pool, memo).results(items)
    else:
        from schedmate.pool import Processes

        with Processes(work, shared, processes, most) as workers:
            yield from Flow(workers, memo).results(items)
