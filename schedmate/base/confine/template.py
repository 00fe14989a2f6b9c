"""A process of one thread that has everything loaded and makes a copy of itself for each job.

A host with threads cannot fork safely, and a new interpreter for each job would take a second. The
host and the template share a control socket: `J` with a descriptor is a job to be served there, `P`
with a name is work to be prepared. The template ends with the host, and its copies with it.
"""

from __future__ import annotations

import fcntl
import gc
import importlib
import os
import select
import signal
import socket
import struct
from contextlib import suppress

from schedmate.base import collect_seldom
from schedmate.base.confine.limits import fork, leave_network

_NAME = struct.Struct("!H")
NO_PROCESS = 255
"""Instead of a signal number: the system provides no more processes."""


def prepare(work: str) -> bytes:
    """The message that asks a template to load the module of `work` and to call its `warm()`."""
    name = work.encode()
    return b"P" + _NAME.pack(len(name)) + name


def main() -> None:
    """Serve the control socket, which is standard input, until the host has closed it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the host's to handle
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    collect_seldom()
    leave_network()
    os.chdir("/")  # the host's directory may be unmounted one day
    control = socket.socket(fileno=fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 3))
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):  # what parsers say of foreign text is not the host's to print
        os.dup2(nothing, number)
    woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    running: dict[int, socket.socket] = {}
    while True:
        ready, _, _ = select.select([control.fileno(), woken], [], [])
        if woken in ready:
            with suppress(BlockingIOError):
                os.read(woken, 4096)
            _collect(running)
        if control.fileno() in ready and not _listen(control, running):
            break


def _listen(control: socket.socket, running: dict[int, socket.socket]) -> bool:
    """Do what one message asks for; False when the host has left."""
    try:
        kind, descriptors, _, _ = socket.recv_fds(control, 1, 1)
    except ConnectionError:
        return False
    if kind == b"P":
        size = _NAME.unpack(control.recv(_NAME.size, socket.MSG_WAITALL))[0]
        _load(control.recv(size, socket.MSG_WAITALL).decode())
    elif kind == b"J" and descriptors:
        connection = socket.socket(fileno=descriptors[0])
        # a copy that held the others' connections would keep their ends from being seen
        others = [control, *running.values()]
        try:
            running[fork(connection, others)] = connection
        except OSError:  # no more processes: the others' go on
            _tell(connection, NO_PROCESS)
    return bool(kind)


def _load(work: str) -> None:
    """Import the work's module and let it fill its tables; a job says what goes wrong with it."""
    with suppress(Exception):
        warm = getattr(importlib.import_module(work.partition(":")[0]), "warm", None)
        if warm is not None:
            warm(work)
    gc.freeze()


def _collect(running: dict[int, socket.socket]) -> None:
    """Report the exit of a process to the client that waits for it."""
    while running:
        child, status = os.waitpid(-1, os.WNOHANG)
        if child == 0:
            return
        _tell(running.pop(child), os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0)


def _tell(connection: socket.socket, how: int) -> None:
    """Send how a process ended, without blocking on a client that may never read it."""
    with connection, suppress(OSError):
        connection.send(bytes([how]), socket.MSG_DONTWAIT)
