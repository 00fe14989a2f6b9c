"""A server that does with each connection whatever a test wants, below HTTP."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

Behaviour = Callable[[socket.socket], None]
PAUSE_S = 0.05


@dataclass
class SocketServer:
    """`port` on 127.0.0.1; `requests` is what came in, up to the end of each request's headers."""

    port: int
    requests: list[bytes] = field(default_factory=list)
    threads: list[threading.Thread] = field(default_factory=list)

    def all_hung_up(self, within_s: float) -> bool:
        """Whether every connection has ended: each behaviour goes on until the client is gone."""
        until = time.monotonic() + within_s
        for thread in self.threads:
            thread.join(max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in self.threads)


@contextmanager
def socket_server(behaviour: Behaviour, *, reads: bool = True) -> Iterator[SocketServer]:
    """Runs `behaviour` on each connection, after its request was read unless not `reads`."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = SocketServer(listening.getsockname()[1])

    def work(connection: socket.socket) -> None:
        with connection:
            try:
                if reads:
                    server.requests.append(_request(connection))
                behaviour(connection)
            except OSError:
                pass  # the client has gone

    def accept() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            thread = threading.Thread(target=work, args=(connection,), daemon=True)
            thread.start()
            server.threads.append(thread)  # started first: a thread that is not cannot be joined

    accepting = threading.Thread(target=accept, daemon=True)
    accepting.start()
    try:
        yield server
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        accepting.join()


def _request(connection: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        part = connection.recv(65_536)
        if not part:
            break
        data += part
    return data


def for_ever(*parts: bytes, pause_s: float = PAUSE_S) -> Behaviour:
    """Sends the first parts once and the last one again and again, until the client is gone."""

    def behave(connection: socket.socket) -> None:
        for part in parts[:-1]:
            connection.sendall(part)
        while True:
            connection.sendall(parts[-1])
            if pause_s:
                time.sleep(pause_s)

    return behave


def silent_after(*parts: bytes) -> Behaviour:
    """Sends the parts and then nothing, until the client is gone."""

    def behave(connection: socket.socket) -> None:
        for part in parts:
            connection.sendall(part)
        while connection.recv(65_536):
            pass

    return behave


def dripping(text: bytes) -> Behaviour:
    """Sends one byte after the other, and starts again at the end."""

    def behave(connection: socket.socket) -> None:
        while True:
            for byte in text:
                connection.sendall(bytes([byte]))
                time.sleep(PAUSE_S)

    return behave


def once(*parts: bytes) -> Behaviour:
    """Sends the parts and hangs up."""

    def behave(connection: socket.socket) -> None:
        for part in parts:
            connection.sendall(part)

    return behave
