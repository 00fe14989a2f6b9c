"""Connecting this process to a Ray cluster, or saying at once that there is none."""

from __future__ import annotations

import os
import socket
from typing import Any

from schedmate.errors import InputError, require

CONNECT_S = 5.0
"""How long a HOST:PORT may take to answer [s]."""

_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is sent anywhere
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",  # it tells of dead workers on standard output, between ours
    "RAY_TQDM_PATCH_PRINT": "0",
}


def require_ray(what: str) -> None:
    """Set what has to be set before Ray is imported. Raises `MissingExtraError` without Ray, which
    `what` needs."""
    require(what, "ray", "ray")
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)


def connect(address: str, hint: str = "", **options: Any) -> None:
    """Connect to `auto`, `HOST:PORT`, `ray://HOST:PORT` or `local`; `options` go to `ray.init`.

    Raises `InputError` when there is no cluster; `hint` is what else to try then.
    """
    import ray

    instead = f"start one with `ray start --head`{hint}"
    try:
        _reach(address)
        ray.init(address, log_to_driver=False, logging_level="ERROR", **options)
    except (OSError, OverflowError, RuntimeError, ValueError) as error:
        raise InputError(f"no Ray cluster at {address}: {first_line(error)}; {instead}.") from None


def _reach(address: str) -> None:
    """Ray itself tries for minutes to reach a HOST:PORT where nothing listens, and says so in
    logs."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_S).close()


def first_line(error: BaseException) -> str:
    """What an exception of Ray's says, without its stack."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    lines = (line.strip() for line in str(error).splitlines())
    return next((line for line in lines if line), type(error).__name__)
