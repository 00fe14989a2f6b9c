"""Listening, connections and stopping: sockets and limits of our own around uvicorn."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn

from schedmate.base.errors import InputError
from schedmate.serve.app import create_app
from schedmate.serve.options import Limits, ServeOptions
from schedmate.serve.service import Service
from schedmate.settings import Settings

BACKLOG = 128
"""Connections that the kernel holds, and that are taken in one turn. Fewer than may be open, so
that one which sends its request at once is read before later ones can push it out."""
KEEP_ALIVE_S = 30
SWEEP_S = 0.5
"""Time between two looks for connections that have waited too long [s]."""


class Crowd:
    """The open connections. One that sends no whole request header gives way: after a time, or
    earlier when there are too many; one whose request is being answered never does."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.members: dict[Connection, None] = {}  # the first that came first

    def admit(self, new: Connection) -> None:
        """Take a connection in, at the cost of another one if there are too many."""
        own = [one for one in self.members if one.address == new.address and not one.busy()]
        if len(own) >= max(1, self.limits.connections // 4):
            own[0].leave()
        if len(self.members) >= self.limits.connections:
            waiting = next((one for one in self.members if not one.busy()), new)
            waiting.leave()
        if not new.left:
            self.members[new] = None

    def sweep(self) -> None:
        """End those that have been sending a header for too long."""
        latest = time.monotonic() - self.limits.header_s
        for one in [one for one in self.members if one.sending_since < latest and not one.busy()]:
            one.leave()


class Connection:
    """What is added to uvicorn's protocols (`connection_class`)."""

    address: str
    left: bool
    sending_since: float
    """When the first byte of a header came; of a new connection, when it was made [s]."""

    def busy(self) -> bool:
        """Whether its request is there and is being answered."""
        raise NotImplementedError

    def leave(self) -> None:
        """End it."""
        raise NotImplementedError


def connection_class(base: type[Any], crowd: Crowd) -> type[Any]:
    """uvicorn's protocol for HTTP, as a member of a crowd."""

    class Member(base, Connection):  # type: ignore[misc]
        left = False
        sending_since = math.inf

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            self.address = self.client[0] if self.client else "unix"
            self.sending_since = time.monotonic()
            crowd.admit(self)

        def connection_lost(self, exc: Exception | None) -> None:
            crowd.members.pop(self, None)
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if self.left:
                return
            if math.isinf(self.sending_since):
                self.sending_since = time.monotonic()
            super().data_received(data)
            if self.busy():
                self.sending_since = math.inf

        def busy(self) -> bool:
            return self.cycle is not None and not self.cycle.response_complete

        def leave(self) -> None:
            self.left = True
            crowd.members.pop(self, None)
            self.transport.abort()

    return Member


class _Server(uvicorn.Server):
    """Stops at the first SIGTERM or Ctrl-C once the requests in progress are answered, and at the
    second at once; the process then ends with exit code 0."""

    def __init__(self, config: uvicorn.Config, crowd: Crowd) -> None:
        super().__init__(config)
        self._crowd = crowd

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's, and look after the crowd from now on."""
        await super().startup(sockets)
        loop = asyncio.get_running_loop()

        def look() -> None:
            self._crowd.sweep()
            loop.call_later(SWEEP_S, look)

        loop.call_soon(look)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn's, without passing the signal on to the previous handler."""

        def stop(_number: int, _frame: FrameType | None) -> None:
            self.force_exit, self.should_exit = self.should_exit, True

        old = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)


def serve(settings: Settings, options: ServeOptions) -> None:
    """Answer until a signal ends it. Raises `InputError` for an address that cannot be had, and
    what `Service.start` raises."""
    with _listening(options) as listener:
        service = Service(settings, options)
        limits = options.limits
        config = uvicorn.Config(
            create_app(service),
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            date_header=False,
            lifespan="on",
            backlog=BACKLOG,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=round(limits.stop_s),
        )
        config.load()
        crowd = Crowd(limits)
        config.http_protocol_class = connection_class(config.http_protocol_class, crowd)
        _Server(config, crowd).run([listener])
    if service.failure is not None:
        raise InputError(service.failure)


@contextmanager
def _listening(options: ServeOptions) -> Iterator[socket.socket]:
    """A socket that listens; the file of a unix socket is removed at the end."""
    path = options.socket
    try:
        if path is None:
            family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
            made = socket.socket(family)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind((options.host.strip("[]"), options.port))
        else:
            _remove_stale(path)
            folder = path.absolute().parent
            if not folder.is_dir():
                raise InputError(
                    f"cannot listen on {path}: there is no directory {folder}; make it first, for "
                    "those who may use the service."
                )
            made = socket.socket(socket.AF_UNIX)
            before = os.umask(0o777 & ~options.socket_mode)
            try:
                made.bind(str(path))
            finally:
                os.umask(before)
        made.listen(BACKLOG)
    except OSError as error:
        where = path or f"{options.host}:{options.port}"
        raise InputError(
            f"cannot listen on {where}: {error.strerror or error}; choose another address."
        ) from None
    try:
        yield made
    finally:
        made.close()
        if path is not None:
            path.unlink(missing_ok=True)


def _remove_stale(path: Path) -> None:
    """Remove the socket of a killed service; raises `InputError` if a service answers on it."""
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise InputError(f"{path} is in the way and no socket; name another --socket.")
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(1.0)
            try:
                probe.connect(str(path))
            except (ConnectionRefusedError, FileNotFoundError):
                path.unlink(missing_ok=True)
            else:
                raise InputError(f"another service answers at {path}; stop it first.")
