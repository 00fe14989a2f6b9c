"""The host's side of a process that does one job: a connection, and how the process ended."""

from __future__ import annotations

import os
import signal
import socket
import time
from contextlib import suppress
from typing import Self

from schedmate.confine.child import LENGTH, MOST_BACK, CrashError
from schedmate.confine.template import NO_PROCESS


class Job:
    """A connection to a process that does one job."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def finish(self, data: bytes) -> tuple[bytes, int]:
        """The answer in all that came over the connection, and the signal that ended the process.

        The template adds a byte; raises `ConnectionError` without it, as the template has gone.
        """
        answer = _answer(data)
        if answer is None and not data:
            raise ConnectionError("it has ended")
        if answer is None and data[-1] == NO_PROCESS:
            raise CrashError("no process can be started: the system has no more")
        return (b"", data[-1]) if answer is None else (answer, 0)


class Forked(Job):
    """A child of this very process."""

    def __init__(self, connection: socket.socket, child: int) -> None:
        super().__init__(connection)
        self._child = child

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        if self._child:
            # a host that ignores SIGCHLD, or collects all processes, has nothing left to wait for
            with suppress(ProcessLookupError, ChildProcessError):
                os.kill(self._child, signal.SIGKILL)
                os.waitpid(self._child, 0)

    def finish(self, data: bytes) -> tuple[bytes, int]:
        status = 0
        with suppress(ChildProcessError):
            _, status = os.waitpid(self._child, 0)
        self._child = 0
        answer = _answer(data)
        if answer is None:
            return b"", os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        return answer, 0


def exchange(connection: socket.socket, message: bytes, deadline: float | None) -> bytes:
    """Send the message and read a whole answer, or what there is until the other end closes.

    Raises `TimeoutError` past the deadline.
    """
    data = bytearray()
    try:
        connection.settimeout(None if deadline is None else left_s(deadline))
        connection.sendall(message)
    except (BrokenPipeError, ConnectionResetError):
        pass  # it ended before it had read everything: how, it says now
    while len(data) <= MOST_BACK + LENGTH.size and _answer(data) is None:
        connection.settimeout(None if deadline is None else left_s(deadline))
        try:
            part = connection.recv(1 << 20)
        except ConnectionResetError:
            break
        if not part:
            break
        data += part
    return bytes(data)


def left_s(deadline: float) -> float:
    """Time until the deadline [s], never 0, which would be no waiting but another mode."""
    return max(deadline - time.monotonic(), 1e-4)


def _answer(data: bytes | bytearray) -> bytes | None:
    """The answer if it is whole."""
    if len(data) < LENGTH.size:
        return None
    end = LENGTH.size + LENGTH.unpack_from(data)[0]
    return bytes(data[LENGTH.size : end]) if end <= len(data) else None
