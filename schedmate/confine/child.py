"""One piece of work in a separate process: the messages to and from it.

A stream socket carries the length of the request and the request, then the length of the answer and
the answer; the process that collects the child adds one byte, 0 or the number of the signal that
ended it. Both messages are JSON, since output of such a process is no more trusted than its input.
"""

from __future__ import annotations

import faulthandler
import gc
import importlib
import json
import os
import socket
import struct
import time
import traceback
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from schedmate.confine.limits import Limits, end_with_parent, keep, shut_off
from schedmate.errors import InputError, SchedmateError, SettingsError, UsageError

MOST = 64 << 20
"""Limit for a request [bytes]."""
MOST_BACK = 4 << 20
"""Limit for an answer [bytes]: other threads of the host wait while it is decoded."""

LENGTH = struct.Struct("!I")
_TRAVEL = {one.__name__: one for one in (SchedmateError, UsageError, SettingsError, InputError)}
"""The errors that are raised again as what they were, or as the nearest that is listed here."""


class CrashError(Exception):
    """The work failed unexpectedly; the message names the exception."""


def encode(work: str, request: Any, limits: Limits, deadline: float | None) -> bytes:
    """A request, with its deadline by the clock `time.monotonic`, as it travels.

    Raises `InputError` for one that is too long.
    """
    document = {"work": work, "request": request, "limits": asdict(limits), "deadline": deadline}
    with suppress(OSError):  # relative paths mean the same there; a removed directory has none
        document["cwd"] = os.getcwd()  # noqa: PTH109 - as bytes that need not be UTF-8
    body = json.dumps(document).encode()
    if len(body) > MOST:
        raise InputError(f"the request has {len(body):,} bytes, of at most {MOST:,}.")
    return LENGTH.pack(len(body)) + body


def decode(answer: bytes) -> Any:
    """What the work returned; raises what it raised, `CrashError` for what nobody foresaw."""
    try:
        document = json.loads(answer)
        if "error" not in document:
            return document["result"]
        kind, message = document["error"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise CrashError("its answer cannot be read") from None
    if isinstance(kind, str) and kind in _TRAVEL:
        raise _TRAVEL[kind](message)
    raise CrashError(f"{kind}: {message}" if message else kind)


def serve(connection: socket.socket, parent: int) -> None:
    """Read the request, do the work within its limits, send the answer. The process then ends."""
    end_with_parent(parent)
    gc.freeze()
    faulthandler.disable()  # its text would be on the host's screen
    connection.setblocking(True)
    message = json.loads(_read(connection, LENGTH.unpack(_read(connection, 4))[0]))
    deadline = message["deadline"]
    left_s = None if deadline is None else deadline - time.monotonic()
    if left_s is None or left_s > 0:
        with suppress(OSError, KeyError):
            os.chdir(message["cwd"])
        keep(Limits(**message["limits"]), left_s)
        answer = _answer(message["work"], message["request"])
        connection.sendall(LENGTH.pack(len(answer)) + answer)


def _answer(work: str, request: Any) -> bytes:
    module, _, name = work.partition(":")
    try:
        do = getattr(importlib.import_module(module), name)
        answer = json.dumps({"result": do(request)}).encode()
        if len(answer) <= MOST_BACK:
            return answer
        error = ["InputError", f"the answer has {len(answer):,} bytes, of at most {MOST_BACK:,}."]
    except SchedmateError as caught:
        kinds = (one.__name__ for one in type(caught).__mro__)
        error = [next(kind for kind in kinds if kind in _TRAVEL), str(caught)]
    except MemoryError:
        error = ["MemoryError", ""]
    except Exception as caught:  # noqa: BLE001 - it is raised again where the answer is read
        frame = traceback.extract_tb(caught.__traceback__)[-1]
        place = f"{os.path.basename(frame.filename)}:{frame.lineno}"  # noqa: PTH119 - just a name
        error = [type(caught).__name__, f"{caught} ({place})"]
    return json.dumps({"error": error}).encode()


def _read(connection: socket.socket, size: int) -> bytes:
    parts = []
    while size:
        part = connection.recv(min(size, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def fork(
    connection: socket.socket, others: Iterable[socket.socket], *, of_host: bool = False
) -> int:
    """Serve `connection` in a child of this process, which must have a single thread; its id.

    `others` are sockets of this process that the child has no business with. A copy `of_host`
    loses its network, secrets and terminal, too, of which a template has none.
    """
    parent = os.getpid()
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        for other in others:
            other.close()
        if of_host:
            shut_off(connection.fileno())
        serve(connection, parent)
        status = 0
    except (EOFError, OSError):
        status = 0  # whoever asked has left
    finally:
        os._exit(status)
