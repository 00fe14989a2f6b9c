"""Connections with a deadline and a size limit, below any parser.

A read timeout starts anew with every byte, so a server that drips (a status line, headers, a body,
`100 Continue` for ever) holds a plain client for as long as it likes. Here each connect, handshake,
read and write gets what is left until the deadline, and all bytes of a reply are counted.
"""

from __future__ import annotations

import ipaddress
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import httpcore2
import httpx2
from httpcore2 import NetworkBackend, NetworkStream, SyncBackend

from schedmate.client.tls import Layer

MAX_REPLY_BYTES = 4 * 2**20
"""Most bytes of one reply, status lines and headers included: far above any chat completion of the
lengths asked for here. h11, below, takes no more than 100 kB of headers."""

LONGEST_S = 3600.0
"""A server may be silent for this time [s], whatever the deadline; without one, a request ends."""


class BadReplyError(httpx2.RemoteProtocolError):
    """The server answered with something that is not taken from it; asking again is vain."""


@dataclass(slots=True)
class Allowance:
    """Remaining allowance of a request: until `ends` on the monotonic clock [s], and bytes."""

    ends: float
    size: int = MAX_REPLY_BYTES


_allowance: ContextVar[Allowance | None] = ContextVar("schedmate_allowance", default=None)


@contextmanager
def deadline(at: float) -> Iterator[None]:
    """End requests made inside the block at `at`, on the monotonic clock [s]."""
    token = _allowance.set(Allowance(at))
    try:
        yield
    finally:
        _allowance.reset(token)


@contextmanager
def one_reply(limit: int) -> Iterator[Allowance]:
    """Allow one request inside the block a reply of at most `limit` bytes."""
    outer = _allowance.get()
    mine = Allowance(time.monotonic() + LONGEST_S if outer is None else outer.ends, limit)
    token = _allowance.set(mine)
    try:
        yield mine
    finally:
        _allowance.reset(token)


def _left(late: type[Exception]) -> float:
    """Seconds until the deadline; raises `late` when there are none."""
    allowance = _allowance.get()
    assert allowance is not None, "requests go through BoundedTransport"
    left = allowance.ends - time.monotonic()
    if left <= 0:
        raise late("the time for this request is over")
    return min(left, LONGEST_S)


class BoundedBackend(NetworkBackend):
    """Connects, by TCP only, within the deadline in force: looking up the name is part of it."""

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> NetworkStream:
        """A connection to the first address of `host` that takes one."""
        failure: Exception = httpcore2.ConnectError(f"{host} has no address")
        for address in _addresses(host, port):
            try:
                left = _left(httpcore2.ConnectTimeout)
                return _BoundedStream(
                    SyncBackend().connect_tcp(address, port, left, local_address, socket_options)
                )
            except httpcore2.ConnectError as error:
                failure = error
        raise failure


class _BoundedStream(Layer):
    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data = self._inner.read(max_bytes, _left(httpcore2.ReadTimeout))
        allowance = _allowance.get()
        assert allowance is not None
        allowance.size -= len(data)
        if allowance.size < 0:
            raise BadReplyError("the reply is larger than any that was asked for")
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        view = memoryview(buffer)
        while view:  # in parts: a write's timeout holds for each part that the network takes
            part = view[:65_536]
            self._inner.write(bytes(part), _left(httpcore2.WriteTimeout))
            view = view[len(part) :]


def _addresses(host: str, port: int) -> list[str]:
    """The addresses of a host, found within the deadline; a resolver knows no deadline itself."""
    try:
        return [str(ipaddress.ip_address(host))]
    except ValueError:
        pass
    found: Future[list[str]] = Future()

    def look_up() -> None:
        try:
            rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            found.set_result(list(dict.fromkeys(str(row[4][0]) for row in rows)))
        except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
            found.set_exception(error)

    threading.Thread(target=look_up, name="schedmate-lookup", daemon=True).start()
    try:
        return found.result(_left(httpcore2.ConnectTimeout))
    except TimeoutError:
        raise httpcore2.ConnectTimeout(f"{host} was not looked up in time") from None
    except (OSError, UnicodeError) as error:
        raise httpcore2.ConnectError(f"{host}: {error}") from error
