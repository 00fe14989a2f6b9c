"""Listening and stopping: sockets of our own around uvicorn."""

from __future__ import annotations

import os
import signal
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

import uvicorn

from schedmate.base.errors import InputError
from schedmate.serve.app import create_app
from schedmate.serve.options import ServeOptions
from schedmate.serve.service import Service
from schedmate.settings import Settings

BACKLOG = 1_024


class _Server(uvicorn.Server):
    """Stops at the first SIGTERM or Ctrl-C once the requests in progress are answered, and at the
    second at once; the process then ends with exit code 0."""

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
            limit_concurrency=limits.connections,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=round(limits.stop_s),
        )
        _Server(config).run([listener])
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
