"""Work for confined processes that does what hostile input would make a reader do."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

from schedmate.base.errors import InputError
from schedmate.readers import extract_work


def echo(request: Any) -> Any:
    return request


def hold_the_interpreter(_: Any) -> bool:
    """C code that never lets another thread run, nor a signal's handler."""
    return re.match("(?:a+)+b", "a" * 64) is None


def spin(_: Any) -> None:
    while True:
        pass


def sleep(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def late_and_long(seconds: float) -> str:
    time.sleep(seconds)
    return "x" * 1_000_000


def sleep_deaf(_: Any) -> None:
    """As code that handles every signal it can, and blocks the rest."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    time.sleep(300)


def eat_memory(_: Any) -> int:
    return len([bytes(1 << 20) for _ in range(1 << 20)])


def crash(_: Any) -> None:
    ctypes.string_at(0)


def recurse(_: Any) -> int:
    return 1 + recurse(_)


def list_as_nobody(folder: str) -> list[str]:
    """The names in a directory, without the rights of a root user."""
    if os.geteuid() == 0:
        os.setresuid(65_534, 65_534, 0)
    try:
        return [path.name for path in Path(folder).iterdir()]
    finally:
        if os.getresuid()[2] == 0:
            os.setresuid(0, 0, 0)


def refuse(message: str) -> None:
    raise InputError(message)


def refuse_in_red(_: Any) -> None:
    raise InputError("deep \x1b[31mred")


def fail(message: str) -> None:
    raise ZeroDivisionError(message)


def leave(status: int) -> None:
    os._exit(status)


def exit_politely(_: Any) -> None:
    sys.exit(0)


def say_too_much(_: Any) -> str:
    return "x" * (80 << 20)


def unspeakable(_: Any) -> object:
    return object()


def print_noise(_: Any) -> str:
    os.write(1, b"noise on standard output\n")
    os.write(2, b"noise on standard error\n")
    return "done"


def write_file(path: str) -> str:
    try:
        Path(path).write_text("written")
    except OSError as error:
        return f"refused: {error.errno}"
    return "written"


def connect(port: int) -> str:
    """Whether a server on this machine can be reached."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError as error:
        return f"refused: {error.errno}"
    return "connected"


def look_around(_: Any) -> dict[str, Any]:
    return {
        "environment": sorted(os.environ),
        "threads": threading.active_count(),
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "parent": os.getppid(),
        "directory": str(Path.cwd()),
    }


def die_for_die_py(request: Any) -> Any:
    """Static extraction, except of a certain command."""
    if "die.py" in request["command"]:
        os.kill(os.getpid(), signal.SIGKILL)
    return extract_work({**request, "command": None})
