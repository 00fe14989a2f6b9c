"""What a confined process does: one piece of work, within limits that the kernel keeps.

A stream socket carries the length of the request and the request, then the length of the answer
and the answer; the process that collects the child adds one byte, 0 or the number of the signal
that ended it. Both messages are JSON, since output of such a process is no more trusted than its
input. `Limits` are wall time, CPU time, address space and the size of files; `bounded` keeps this
very process within them.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import importlib
import json
import math
import os
import resource
import signal
import socket
import struct
import sys
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from schedmate.base.errors import (
    InputError,
    LimitError,
    SchedmateError,
    SettingsError,
    UsageError,
    unreadable,
)

LONGEST_REQUEST = 64 << 20
"""Limit for a request [bytes]."""
LONGEST_ANSWER = 4 << 20
"""Limit for an answer [bytes]: other threads of the host wait while it is decoded."""

LENGTH = struct.Struct("!I")
_PASSED_ON = {one.__name__: one for one in (SchedmateError, UsageError, SettingsError, InputError)}
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
    if len(body) > LONGEST_REQUEST:
        raise InputError(f"the request has {len(body):,} bytes, of at most {LONGEST_REQUEST:,}.")
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
    if isinstance(kind, str) and kind in _PASSED_ON:
        raise _PASSED_ON[kind](message)
    raise CrashError(f"{kind}: {message}" if message else kind)


def serve(connection: socket.socket, parent: int) -> None:
    """Read the request, do the work within its limits, send the answer. The process then ends."""
    end_with_parent(parent)
    gc.freeze()
    faulthandler.disable()  # its text would be on the host's screen
    connection.setblocking(True)
    message = json.loads(_receive(connection, LENGTH.unpack(_receive(connection, 4))[0]))
    deadline = message["deadline"]
    left_s = None if deadline is None else deadline - time.monotonic()
    if left_s is None or left_s > 0:
        with suppress(OSError, KeyError):
            os.chdir(message["cwd"])
        keep_limits(Limits(**message["limits"]), left_s)
        answer = _answer_of(message["work"], message["request"])
        connection.sendall(LENGTH.pack(len(answer)) + answer)


def _answer_of(work: str, request: Any) -> bytes:
    module, _, name = work.partition(":")
    try:
        do = getattr(importlib.import_module(module), name)
        answer = json.dumps({"result": do(request)}).encode()
        if len(answer) <= LONGEST_ANSWER:
            return answer
        error = [
            "InputError",
            f"the answer has {len(answer):,} bytes, of at most {LONGEST_ANSWER:,}.",
        ]
    except SchedmateError as caught:
        kinds = (one.__name__ for one in type(caught).__mro__)
        error = [next(kind for kind in kinds if kind in _PASSED_ON), str(caught)]
    except MemoryError:
        error = ["MemoryError", ""]
    except OSError as caught:
        if caught.filename is not None and not isinstance(caught, BlockingIOError):
            # a directory that is its user's alone, a disk that fails: the input's fault, not ours
            refused = unreadable(os.fsdecode(caught.filename), caught)
            return json.dumps({"error": ["InputError", str(refused)]}).encode()
        error = [type(caught).__name__, str(caught)]
    except Exception as caught:  # noqa: BLE001 - it is raised again where the answer is read
        frame = traceback.extract_tb(caught.__traceback__)[-1]
        place = f"{os.path.basename(frame.filename)}:{frame.lineno}"  # noqa: PTH119 - just a name
        error = [type(caught).__name__, f"{caught} ({place})"]
    return json.dumps({"error": error}).encode()


def _receive(connection: socket.socket, size: int) -> bytes:
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


# Limits for a process that reads foreign input, enforced by the kernel.


MEMORY_MB = 2048
"""Address space of one process unless a setting says otherwise [MiB]."""

GRACE_S = 0.02
"""Time after the deadline until the kernel ends a process that is still running [s]."""

_PR_SET_PDEATHSIG = 1
_PR_SET_NO_NEW_PRIVS = 38
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one piece of work.

    `wall_s` and `cpu_s` [s] count from the call; None for no limit. `memory_mb` [MiB] is address
    space beyond what the process has when it begins, `disk_mb` [MiB] the longest file that it may
    write, such as a log that it unpacks.
    """

    wall_s: float | None = None
    cpu_s: float | None = None
    memory_mb: int = MEMORY_MB
    disk_mb: int = 0


def keep_limits(limits: Limits, left_s: float | None) -> None:
    """Bind this process, which has a single thread, to `limits`, `left_s` [s] before the deadline.

    The default actions of the signals end the process without asking its interpreter, which C code
    may keep from answering.
    """
    for number in (signal.SIGALRM, signal.SIGXCPU, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for whoever waits for the answer
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    _lower_limit(resource.RLIMIT_CORE, 0)
    _lower_limit(resource.RLIMIT_FSIZE, limits.disk_mb << 20)
    _lower_limit(resource.RLIMIT_AS, _address_space() + (limits.memory_mb << 20))
    if limits.cpu_s is not None:
        seconds = math.ceil(limits.cpu_s)
        _lower_limit(resource.RLIMIT_CPU, seconds, seconds + 1)  # SIGXCPU, and only then SIGKILL
    if left_s is not None:
        signal.setitimer(signal.ITIMER_REAL, max(left_s + GRACE_S, 1e-6))


@contextmanager
def bounded(what: str, memory_mb: int = MEMORY_MB, cpu_s: float | None = None) -> Iterator[None]:
    """Bound this very process meanwhile, for a command or a pool that reads logs itself.

    `memory_mb` [MiB] is address space beyond what it has; `LimitError` says of `what` that it takes
    more. After `cpu_s` [s] of CPU time the process is ended, by the signal SIGPROF: only for those
    that somebody else waits for.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = _address_space() + (memory_mb << 20)
    if cpu_s is not None:
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_PROF, cpu_s)
    try:
        if soft == resource.RLIM_INFINITY or wanted < soft:
            _set_limit(resource.RLIMIT_AS, wanted, hard)
        yield
    except MemoryError:
        raise too_large(what, memory_mb) from None
    finally:
        _set_limit(resource.RLIMIT_AS, soft, hard)
        if cpu_s is not None:
            signal.setitimer(signal.ITIMER_PROF, 0)


def too_large(what: str, memory_mb: int) -> LimitError:
    """The message for an input that exceeds the memory limit [MiB]."""
    return LimitError(
        f"{what} takes more than {memory_mb:,} MiB of memory to read; reading it was ended."
    )


def _address_space() -> int:
    """What this process has [bytes]; 0 where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (OSError, ValueError):
        return 0
    return pages * resource.getpagesize()


def end_with_parent(parent: int) -> None:
    """End this process when the thread that started it ends; `parent` is its process id."""
    if sys.platform == "linux":
        _libc().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended meanwhile
        os._exit(1)


_KEPT_VARIABLES = "HOME LANG LANGUAGE LD_LIBRARY_PATH PATH TMPDIR TZ USER VIRTUAL_ENV"  # names
_KEPT_PREFIXES = ("LC_", "PYTHON", "XDG_", "COVERAGE_")


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment variables of a reader: no keys and tokens."""
    names = _KEPT_VARIABLES.split()
    return {
        name: value
        for name, value in environment.items()
        if name in names or name.startswith(_KEPT_PREFIXES)
    }


def shut_off(spared: int) -> None:
    """Take from a copy of a host what the template has none of: network, secrets, the terminal.

    The descriptor `spared` stays, which is a standard stream's where the host had closed those.
    """
    leave_network()
    left = without_secrets(os.environ)
    for name in set(os.environ) - set(left):
        del os.environ[name]
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in {0, 1, 2} - {spared}:
        os.dup2(nothing, number)


def leave_network() -> bool:
    """Put this process and its children where no network is; gives whether the system allows it.

    Needs Linux, and either the right to make network namespaces or, for others than root, user
    namespaces. Root without that right keeps its network: within a user namespace it could no
    longer read everybody's files.
    """
    if sys.platform != "linux":
        return False
    libc = _libc()
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if libc.unshare(_CLONE_NEWNET) == 0:
        return True
    return os.geteuid() != 0 and libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET) == 0


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _lower_limit(which: int, soft: int, hard: int | None = None) -> None:
    """Set a limit if it is lower than the current one."""
    wanted = soft, soft if hard is None else hard
    pair = [
        new if old == resource.RLIM_INFINITY else min(new, old)
        for new, old in zip(wanted, resource.getrlimit(which), strict=True)
    ]
    _set_limit(which, pair[0], pair[1])


def _set_limit(which: int, soft: int, hard: int) -> None:
    with suppress(OSError, ValueError):  # macOS knows no limit of the address space
        resource.setrlimit(which, (soft, hard))
