"""Hands work on foreign input to processes that can be killed, and has an answer at the
deadline.

`Confinement` asks. `Template` is this side of the process that copies itself for each job
(`confine.template`), and `Job` the connection to one such copy, which says how that ended.
"""

from __future__ import annotations

import atexit
import errno
import json
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from contextlib import suppress
from importlib import import_module
from multiprocessing.spawn import get_executable
from pathlib import Path
from typing import Any, Self

from schedmate.base.confine.limits import (
    LENGTH,
    LONGEST_ANSWER,
    CrashError,
    Limits,
    decode,
    encode,
    fork,
    too_large,
    without_secrets,
)
from schedmate.base.confine.template import NO_PROCESS, prepare
from schedmate.base.errors import LimitError, SchedmateError, UsageError


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
        answer = _whole_answer(data)
        if answer is None and not data:
            raise ConnectionError("it has ended")
        if answer is None and data[-1] == NO_PROCESS:
            raise CrashError("no process can be started: the system has no more")
        return (b"", data[-1]) if answer is None else (answer, 0)


class ForkedJob(Job):
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
        answer = _whole_answer(data)
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
    while len(data) <= LONGEST_ANSWER + LENGTH.size and _whole_answer(data) is None:
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


def _whole_answer(data: bytes | bytearray) -> bytes | None:
    """The answer if it is whole."""
    if len(data) < LENGTH.size:
        return None
    end = LENGTH.size + LENGTH.unpack_from(data)[0]
    return bytes(data[LENGTH.size : end]) if end <= len(data) else None


# The template process of `schedmate.base.confine.template`, from the host's side.


_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS")

WAITING_COPIES = 2
"""Copies of the template that are forked before there is work for them."""

_TEMPLATE_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from schedmate.base.confine.template import main; main()"
)


class Template:
    """The template process of `schedmate.base.confine.template`, from the host's side."""

    def __init__(self) -> None:
        program = get_executable()
        if not program:
            raise CrashError("this host knows no program of Python; multiprocessing.set_executable")
        path = json.dumps([str(Path(one).absolute()) for one in sys.path if one])
        self._control, theirs = socket.socketpair()
        # a host's other threads must not wait for a template that has stopped listening
        self._control.setblocking(False)
        # Ctrl-C while it imports its modules would print a traceback; it lets signals through later
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        try:
            with theirs:
                # -P: nothing of the current directory, which may be a job's repository, is imported
                self._process = subprocess.Popen(
                    [program, "-P", "-c", _TEMPLATE_PROGRAM, path],
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    env={**without_secrets(os.environ), **dict.fromkeys(_ONE_THREAD, "1")},
                )
        except OSError:
            self._control.close()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self._loaded: set[str] = set()
        self._waiting: deque[Job] = deque()
        self._jobs: weakref.WeakSet[Job] = weakref.WeakSet()

    def begin(self, work: str) -> Job:
        """A copy of the template for a job; raises `OSError` if the template has ended."""
        self.load(work)
        try:
            job = self._waiting.popleft()
        except IndexError:
            job = self._copy()
        with suppress(OSError):  # then this one has gone as well, as its user will find
            while len(self._waiting) < WAITING_COPIES:
                self._waiting.append(self._copy())
        return job

    def _copy(self) -> Job:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                socket.send_fds(self._control, [b"J"], [theirs.fileno()])
            except OSError:
                ours.close()
                raise
        job = Job(ours)
        self._jobs.add(job)
        return job

    def load(self, work: str) -> None:
        """Have the template load what `work` needs, once."""
        if work not in self._loaded:
            self._loaded.add(work)
            self._control.send(prepare(work))
            self._dismiss()  # as they do not have it

    def _dismiss(self) -> None:
        """Let the copies that wait for work end."""
        with suppress(IndexError):
            while True:
                self._waiting.pop().connection.close()

    def has_ended(self) -> bool:
        """Whether the process is not there any more; its sockets close a moment before it ends."""
        try:
            self._process.wait(0.2)
        except subprocess.TimeoutExpired:
            return False
        return True

    def close(self) -> None:
        """End the template, and by that its copies."""
        self._dismiss()
        self._control.close()
        self._process.kill()
        self._process.wait()

    def forget(self) -> None:
        """Close what a forked host has inherited, of a process that is another's child."""
        for job in list(self._jobs):  # or whoever collects them would wait for their being read
            job.connection.close()
        self._control.close()
        self._process.returncode = 0  # or Python would warn that nobody waited for it


def is_template_lost(template: Template, error: OSError) -> bool:
    """Whether a template has ended, stopped listening, or was closed by another thread."""
    if isinstance(error, BlockingIOError) or error.errno == errno.EBADF:
        return True
    return isinstance(error, ConnectionError) and template.has_ended()


# `Confinement`: hands work to processes that can be killed, and has an answer at the deadline.


_LIMIT_SIGNALS = (signal.SIGALRM, signal.SIGXCPU)
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
            if ended_by in _LIMIT_SIGNALS:
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
                forked = ForkedJob(ours, fork(theirs, [ours], of_host=True))
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
                if template is None or not is_template_lost(template, error):
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


def _forget_after_fork() -> None:
    """In a child that the host forked: its parent's template, locks and threads are not its own."""
    _shared.forget()
    for one in list(_alive):
        one._reset()  # noqa: SLF001 - the same module


atexit.register(_shared.end)
os.register_at_fork(after_in_child=_forget_after_fork)
