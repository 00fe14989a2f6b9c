"""TLS over a connection that keeps to a clock and a scale.

A secure socket of the standard library reads inside OpenSSL for as long as there is something to
read: a server that floods a handshake, or sends empty records, never lets it look at the time.
Here OpenSSL works on memory alone, and every byte comes through the connection below.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import httpcore2
from httpcore2 import NetworkStream

RECORD = 16_384
T = TypeVar("T")


class Layer(NetworkStream):
    """A stream over `inner`, with which it is closed, and over which TLS can be begun."""

    def __init__(self, inner: NetworkStream) -> None:
        self._inner = inner

    def close(self) -> None:
        """Hang up."""
        self._inner.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> NetworkStream:
        """TLS over this; over TLS it leads to a server behind a proxy that is reached securely."""
        return SecureStream(self, ssl_context, server_hostname)

    def get_extra_info(self, info: str) -> Any:
        """What httpcore2 asks a stream for."""
        return self._inner.get_extra_info(info)


class SecureStream(Layer):
    """A stream inside `inner`; the server's certificate is verified as `context` says.

    Raises `httpcore2.ConnectError` when no secure connection comes about.
    """

    def __init__(self, inner: NetworkStream, context: ssl.SSLContext, hostname: str | None) -> None:
        super().__init__(inner)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=hostname)
        try:
            self._through(self._tls.do_handshake)
        except BaseException as error:
            inner.close()
            if isinstance(error, OSError):
                raise httpcore2.ConnectError(str(error)) from error
            raise

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Some bytes; none at the end."""
        try:
            return self._through(partial(self._tls.read, max_bytes))
        except ssl.SSLEOFError:
            return b""  # hung up without a farewell, as many servers do
        except OSError as error:
            raise httpcore2.ReadError(str(error)) from error

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send all of it."""
        view = memoryview(buffer)
        try:
            while view:
                view = view[self._through(partial(self._tls.write, view[:RECORD])) :]
        except OSError as error:
            raise httpcore2.WriteError(str(error)) from error

    def get_extra_info(self, info: str) -> Any:
        """What httpcore2 asks a stream for."""
        return self._tls if info == "ssl_object" else super().get_extra_info(info)

    def _through(self, act: Callable[[], T]) -> T:
        """The result of `act`, once what it wants to send is sent and to read is read."""
        while True:
            try:
                result = act()
            except ssl.SSLWantReadError:
                self._send()
            else:
                self._send()
                return result
            data = self._inner.read(RECORD)
            if data:
                self._incoming.write(data)
            else:
                self._incoming.write_eof()

    def _send(self) -> None:
        data = self._outgoing.read()
        if data:
            self._inner.write(data)
