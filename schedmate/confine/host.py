"""The template process of `schedmate.confine.template`, from the host's side."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import weakref
from collections import deque
from contextlib import suppress
from multiprocessing.spawn import get_executable
from pathlib import Path

from schedmate.confine.child import CrashError
from schedmate.confine.job import Job
from schedmate.confine.limits import kept
from schedmate.confine.template import prepare

_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS")

WAITING = 2
"""Copies of the template that are forked before there is work for them."""

_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from schedmate.confine.template import main; main()"
)


class Template:
    """The template process of `schedmate.confine.template`, from the host's side."""

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
                    [program, "-P", "-c", _START, path],
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    env={**kept(os.environ), **dict.fromkeys(_ONE_THREAD, "1")},
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
            while len(self._waiting) < WAITING:
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


def is_lost(template: Template, error: OSError) -> bool:
    """Whether a template has ended, stopped listening, or was closed by another thread."""
    if isinstance(error, BlockingIOError) or error.errno == errno.EBADF:
        return True
    return isinstance(error, ConnectionError) and template.has_ended()
