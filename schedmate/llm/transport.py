"""HTTP with a clock and a scale: no reply may take longer or grow larger than allowed.

A read timeout starts anew with every byte, so a server that drips holds a plain client for ever.
This transport ends a request at its deadline, and a reply at its size, whatever the server does.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx2

MAX_REPLY_BYTES = 4 * 2**20
"""Far above any chat completion of the lengths asked for here."""

_deadline: ContextVar[float | None] = ContextVar("schedmate_llm_deadline", default=None)


@contextmanager
def deadline(at: float) -> Iterator[None]:
    """End requests made inside the block at `at`, on the monotonic clock [s]."""
    token = _deadline.set(at)
    try:
        yield
    finally:
        _deadline.reset(token)


class _Bounded(httpx2.SyncByteStream):
    def __init__(self, stream: httpx2.SyncByteStream, ends: float | None) -> None:
        self._stream = stream
        self._ends = ends

    def __iter__(self) -> Iterator[bytes]:
        size = 0
        for chunk in self._stream:
            size += len(chunk)
            if size > MAX_REPLY_BYTES:
                raise httpx2.RemoteProtocolError(
                    f"the reply is larger than {MAX_REPLY_BYTES} bytes"
                )
            if self._ends is not None and time.monotonic() > self._ends:
                raise httpx2.ReadTimeout("the reply is not complete in time")
            yield chunk

    def close(self) -> None:
        self._stream.close()


class BoundedTransport(httpx2.BaseTransport):
    """A transport whose requests end at the `deadline` in force; TLS verification as usual."""

    def __init__(self, base_url: str) -> None:
        """Requests to `base_url` go through the proxy that the environment names for it."""
        self._inner = httpx2.HTTPTransport(proxy=_proxy(base_url))

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request; its timeouts are cut to the time that is left."""
        ends = _deadline.get()
        if ends is not None:
            left = max(0.05, ends - time.monotonic())
            timeouts = request.extensions.get("timeout", {})
            request.extensions["timeout"] = {
                name: left if timeouts.get(name) is None else min(left, timeouts[name])
                for name in ("connect", "read", "write", "pool")
            }
        # A packed reply of allowed size can unpack to gigabytes: none is asked for, none taken.
        request.headers["accept-encoding"] = "identity"
        response = self._inner.handle_request(request)
        if response.headers.get("content-encoding", "identity") != "identity":
            response.close()
            raise httpx2.RemoteProtocolError("the reply is packed although that was not asked for")
        assert isinstance(response.stream, httpx2.SyncByteStream)
        response.stream = _Bounded(response.stream, ends)
        return response

    def close(self) -> None:
        """Close the connections."""
        self._inner.close()


def _proxy(base_url: str) -> str | None:
    # A client that is given a transport no longer looks for proxies itself.
    parts = urlsplit(base_url)
    host = parts.hostname or ""
    if host in ("localhost", "127.0.0.1", "::1") or proxy_bypass(host):
        return None
    proxies = getproxies()
    return proxies.get(parts.scheme) or proxies.get("all")
