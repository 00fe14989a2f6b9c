"""Independent work as tasks of a Ray cluster (extra `ray`)."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from schedmate.errors import InputError, require

AHEAD = 4
"""Tasks submitted for each core of the cluster."""

T = TypeVar("T")
R = TypeVar("R")
S = TypeVar("S")


def require_ray() -> None:
    """Raise `MissingExtraError` when Ray is not installed."""
    require("--ray", "ray", "ray")


def on_ray(
    work: Callable[[T, S], R], items: Iterable[T], shared: S, address: str
) -> Iterator[tuple[T, R | None]]:
    """Each item with `work(item, shared)`, None when its task died twice; as they end.

    `address` is what `ray.init` takes: `auto`, `HOST:PORT`, `ray://HOST:PORT`, or `local` for a
    cluster of this machine alone. Its machines need schedmate. Raises what `work` raises,
    `MissingExtraError` without Ray and `InputError` without cluster.
    """
    require_ray()
    import ray

    _reachable(address)
    mine = not ray.is_initialized()
    if mine:
        try:
            ray.init(address, log_to_driver=False, logging_level="ERROR", include_dashboard=None)
        except (ConnectionError, RuntimeError, ValueError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise InputError(
                f"no Ray cluster at {address}: {reason}; start one with `ray start --head`."
            ) from None
    try:
        task = ray.remote(max_retries=1)(work)
        common = ray.put(shared)
        ahead = AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
        running: dict[ray.ObjectRef[R], T] = {}
        waiting = iter(items)
        while True:
            for item in waiting:
                running[task.remote(item, common)] = item
                if len(running) >= ahead:
                    break
            if not running:
                return
            done, _ = ray.wait(list(running), num_returns=1)
            for reference in done:
                outcome: R | None
                try:
                    outcome = ray.get(reference)
                except ray.exceptions.RayTaskError as error:
                    raise (error.cause or error) from None
                except ray.exceptions.RayError:
                    outcome = None
                yield running.pop(reference), outcome
    finally:
        if mine:
            ray.shutdown()


def _reachable(address: str) -> None:
    """Ray itself tries for ever to reach a HOST:PORT where nothing listens."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
    except (OSError, OverflowError) as error:
        raise InputError(
            f"no Ray cluster at {address}: {error}; start one with `ray start --head`."
        ) from None
