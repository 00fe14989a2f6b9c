"""`Confinement`: hands work to processes that can be killed, and has an answer at the deadline."""

from __future__ import annotations

import atexit
import math
import os
import signal
import socket
import threading
import time
import weakref
from contextlib import suppress
from importlib import import_module
from typing import Any, Self

from schedmate.confine.child import CrashError, decode, encode, fork
from schedmate.confine.host import Template, is_lost
from schedmate.confine.job import Forked, exchange, left_s
from schedmate.confine.limits import Limits, too_large
from schedmate.errors import LimitError, SchedmateError, UsageError

_LIMITS = (signal.SIGALRM, signal.SIGXCPU)
"""Signals that mean that a limit was reached."""


class Confinement:
    """Runs work on foreign input in separate processes; safe for any number of threads.

    A process that has ended is replaced by the next job; there is nothing to repair. All that are
    open in a process share one template, which ends with the last of them. Goes on working in a
    child that the host forks.

    Args:
        at_once: most processes at the same time; more jobs wait for their turn, until their
            deadlines.
        own_process: while this process has a single thread, fork itself instead of a template of
            it, which is quicker for a command that does one thing.
    """

    def __init__(self, *, at_once: int | None = None, own_process: bool = False) -> None:
        self._at_once = at_once or max(4, 2 * (os.cpu_count() or 1))
        self._own_process = own_process
        self.closed = False
        self._reset()
        _alive.add(self)

    def _reset(self) -> None:
        self._slots = threading.BoundedSemaphore(self._at_once)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the template; if it is the last user, cancel running work. May be repeated."""
        self.closed = True
        _shared.release(self)

    def prepare(self, *works: str) -> None:
        """Load now what these kinds of work need, so that the first job need not wait for it."""
        if not self._forks():
            template = _shared.take(self, None)
            for work in works:
                template.load(work)
            self.run("builtins:bool", None, Limits(), "nothing")  # it answers when all is loaded

    def _forks(self) -> bool:
        return self._own_process and threading.active_count() == 1

    def run(self, work: str, request: Any, limits: Limits, what: str = "the input") -> Any:
        """Return the result of `work` (`module:function`) for `request`, both JSON values.

        Raises `LimitError`, which says so of `what`, when a limit was reached, and what the
        work raises, of which only `SchedmateError`s stay what they were.
        """
        deadline = None if limits.wall_s is None else time.monotonic() + limits.wall_s
        message = encode(work, request, limits, deadline)
        if not _acquire(self._slots, deadline):
            raise LimitError(f"{what} was not read in time: too many other inputs are being read.")
        try:
            answer, ended_by = self._done(work, message, deadline)
            if ended_by in _LIMITS:
                raise TimeoutError
            if ended_by:
                raise CrashError(f"its process was ended by signal {ended_by}{_hint(ended_by)}")
            return decode(answer)
        except TimeoutError:
            raise LimitError(_too_slow(what, limits)) from None
        except CrashError as error:
            if str(error) == "MemoryError":
                raise too_large(what, limits.memory_mb) from None
            raise SchedmateError(f"{what} cannot be read: internal error, {error}") from None
        finally:
            self._slots.release()

    def _done(self, work: str, message: bytes, deadline: float | None) -> tuple[bytes, int]:
        """The answer and the signal that ended the process, 0 for none."""
        if self._forks():
            with suppress(ImportError):  # which the child will say
                import_module(work.partition(":")[0])  # here and not in each child
            ours, theirs = socket.socketpair()
            with theirs:
                forked = Forked(ours, fork(theirs, [ours], of_host=True))
            with forked:
                return forked.finish(exchange(ours, message, deadline))
        for _ in range(2):
            template = None
            try:
                template = _shared.take(self, deadline)
                with template.begin(work) as job:
                    return job.finish(exchange(job.connection, message, deadline))
            except TimeoutError:
                raise
            except OSError as error:
                if template is None or not is_lost(template, error):
                    raise CrashError(
                        f"no process can be started: {error.strerror or error}"
                    ) from None
                _shared.drop(template)  # another one takes its place
        raise CrashError("the process that reads foreign input ends as soon as it is started")


class _Shared:
    """The template of this process, and the confinements that use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._template: Template | None = None
        self._users: weakref.WeakSet[Confinement] = weakref.WeakSet()

    def take(self, user: Confinement, deadline: float | None) -> Template:
        """The template, started if there is none; raises `TimeoutError` past the deadline."""
        if not _acquire(self._lock, deadline):
            raise TimeoutError
        try:
            if user.closed:
                raise UsageError("reading was given up: this SchedMate is closed.")
            self._users.add(user)
            if self._template is None:
                self._template = Template()
            return self._template
        finally:
            self._lock.release()

    def release(self, user: Confinement) -> None:
        """End the template if nobody else uses it."""
        with self._lock:
            self._users.discard(user)
            template = None
            if not self._users:
                template, self._template = self._template, None
        if template is not None:
            template.close()

    def drop(self, template: Template) -> None:
        """Make room for another template in place of one that has died."""
        with self._lock:
            if self._template is template:
                self._template = None
        template.close()

    def end(self) -> None:
        """End the template, at the end of this process."""
        template, self._template = self._template, None
        if template is not None:
            template.close()

    def forget(self) -> None:
        """Begin again in a child that the host forked: the template is its parent's."""
        if self._template is not None:
            self._template.forget()
        self.__init__()  # type: ignore[misc]


_shared = _Shared()


def _acquire(lock: threading.Lock | threading.BoundedSemaphore, deadline: float | None) -> bool:
    return lock.acquire() if deadline is None else lock.acquire(timeout=left_s(deadline))


def _hint(number: int) -> str:
    return ", as when a machine has no memory left" if number == signal.SIGKILL else ""


def _too_slow(what: str, limits: Limits) -> str:
    cpu_s = None if limits.cpu_s in (None, limits.wall_s) else math.ceil(limits.cpu_s or 0)
    allowed = [
        f"{seconds:.3g} s{of}"
        for seconds, of in ((limits.wall_s, ""), (cpu_s, " of CPU time"))
        if seconds is not None
    ]
    return f"{what} takes more than {' or '.join(allowed)} to read; reading it was ended."


_alive: weakref.WeakSet[Confinement] = weakref.WeakSet()


def _begin_again() -> None:
    """In a child that the host forked: its parent's template, locks and threads are not its own."""
    _shared.forget()
    for one in list(_alive):
        one._reset()  # noqa: SLF001 - the same module


atexit.register(_shared.end)
os.register_at_fork(after_in_child=_begin_again)
