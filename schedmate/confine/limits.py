"""Limits for a process that reads foreign input, enforced by the kernel."""

from __future__ import annotations

import ctypes
import math
import os
import resource
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from schedmate.errors import LimitError

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


def keep(limits: Limits, left_s: float | None) -> None:
    """Bind this process, which has a single thread, to `limits`, `left_s` [s] before the deadline.

    The default actions of the signals end the process without asking its interpreter, which C code
    may keep from answering.
    """
    for number in (signal.SIGALRM, signal.SIGXCPU, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for whoever waits for the answer
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_FSIZE, limits.disk_mb << 20)
    _lower(resource.RLIMIT_AS, _address_space() + (limits.memory_mb << 20))
    if limits.cpu_s is not None:
        seconds = math.ceil(limits.cpu_s)
        _lower(resource.RLIMIT_CPU, seconds, seconds + 1)  # SIGXCPU, and only then SIGKILL
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
            _set(resource.RLIMIT_AS, wanted, hard)
        yield
    except MemoryError:
        raise too_large(what, memory_mb) from None
    finally:
        _set(resource.RLIMIT_AS, soft, hard)
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


_KEPT = "HOME LANG LANGUAGE LD_LIBRARY_PATH PATH TMPDIR TZ USER VIRTUAL_ENV"  # names
_KEPT_FROM = ("LC_", "PYTHON", "XDG_", "COVERAGE_")


def kept(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment variables of a reader: no keys and tokens."""
    names = _KEPT.split()
    return {
        name: value
        for name, value in environment.items()
        if name in names or name.startswith(_KEPT_FROM)
    }


def shut_off(spared: int) -> None:
    """Take from a copy of a host what the template has none of: network, secrets, the terminal.

    The descriptor `spared` stays, which is a standard stream's where the host had closed those.
    """
    leave_network()
    left = kept(os.environ)
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


def _lower(which: int, soft: int, hard: int | None = None) -> None:
    """Set a limit if it is lower than the current one."""
    wanted = soft, soft if hard is None else hard
    pair = [
        new if old == resource.RLIM_INFINITY else min(new, old)
        for new, old in zip(wanted, resource.getrlimit(which), strict=True)
    ]
    _set(which, pair[0], pair[1])


def _set(which: int, soft: int, hard: int) -> None:
    with suppress(OSError, ValueError):  # macOS knows no limit of the address space
        resource.setrlimit(which, (soft, hard))
