"""The transport that all requests go through, and the client around it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import httpcore2
import httpx2

from schedmate.client.network import MAX_REPLY_BYTES, BadReplyError, BoundedBackend, one_reply
from schedmate.client.scrub import LogFilter, Scrubber
from schedmate.errors import UsageError

_WIRE_LOG = logging.getLogger("httpcore2.http11")
_NOT_PASSED_ON = frozenset({b"content-length", b"transfer-encoding", b"content-type"})
_CONNECTIONS = 100


class BoundedTransport(httpx2.BaseTransport):
    """Sends requests and gives whole replies, without keys, of at most `limit` bytes.

    Requests end at the `deadline` in force. TLS is verified as usual; requests go through the
    proxy that the environment names for `base_url`.
    """

    def __init__(self, base_url: str, scrub: Scrubber, limit: int = MAX_REPLY_BYTES) -> None:
        self._scrub, self._limit = scrub, limit
        self._filter = LogFilter(scrub)
        _WIRE_LOG.addFilter(self._filter)
        proxy = _proxy(base_url)
        context = httpx2.create_ssl_context()
        if proxy is None:
            self._pool = httpcore2.ConnectionPool(
                ssl_context=context, max_connections=_CONNECTIONS, network_backend=BoundedBackend()
            )
        else:
            self._pool = httpcore2.HTTPProxy(
                proxy_url=base_address(proxy),
                proxy_auth=_login(proxy),
                ssl_context=context,
                max_connections=_CONNECTIONS,
                network_backend=BoundedBackend(),
            )

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request and read its reply.

        Raises what httpx2 raises, and `BadReplyError` for a reply that is not taken.
        """
        # A packed reply of allowed size can unpack to gigabytes: none is asked for, none taken.
        request.headers["accept-encoding"] = "identity"
        assert isinstance(request.stream, httpx2.SyncByteStream)
        with one_reply(self._limit), _named_alike():
            response = self._pool.handle_request(
                httpcore2.Request(
                    method=request.method,
                    url=httpcore2.URL(
                        scheme=request.url.raw_scheme,
                        host=request.url.raw_host,
                        port=request.url.port,
                        target=request.url.raw_path,
                    ),
                    headers=request.headers.raw,
                    content=request.stream,
                )
            )
            try:
                body = response.read()
            finally:
                response.close()
        return self._taken(response, body)

    def _taken(self, response: httpcore2.Response, body: bytes) -> httpx2.Response:
        """The reply as it may be shown, logged and stored."""
        names = {name.lower(): value for name, value in response.headers}
        if names.get(b"content-encoding", b"identity").lower() not in (b"identity", b""):
            raise BadReplyError("the reply is packed although that was not asked for")
        # A parser would find other characters in UTF-16 or UTF-7 than the scrubber sees.
        if b"\0" in body:
            raise BadReplyError("the reply is not text in UTF-8")
        kind = names.get(b"content-type", b"application/json").partition(b";")[0].strip()
        headers = [one for one in response.headers if one[0].lower() not in _NOT_PASSED_ON]
        headers.append((b"content-type", kind))
        reason = response.extensions.get("reason_phrase", b"")
        everything = b"\n".join([reason, *(value for _, value in headers), body])
        clean = self._scrub
        if clean.hides_one(clean(everything)):
            raise BadReplyError("the reply holds the key that the request carried, in escapes")
        return httpx2.Response(
            response.status,
            headers=[(clean(name), clean(value)) for name, value in headers],
            content=clean(body),
            extensions={"http_version": b"HTTP/1.1", "reason_phrase": clean(reason)},
        )

    def close(self) -> None:
        """Close the connections."""
        self._pool.close()
        _WIRE_LOG.removeFilter(self._filter)


def open_client(
    base_url: str, keys: Iterable[str | None], *, limit: int = MAX_REPLY_BYTES
) -> httpx2.Client:
    """A client for one server, whose replies have at most `limit` bytes.

    `keys` are what no reply may hold; passwords in `base_url` and in a proxy's address are too.
    Requests go to `base_address(base_url)`. Raises `UsageError` for a proxy that cannot be used.
    """
    logins = (_login(base_url), _login(_proxy(base_url) or ""))
    passwords = (login[1] for login in logins if login is not None)
    scrub = Scrubber([*(key for key in keys if key), *passwords])
    return httpx2.Client(
        transport=BoundedTransport(base_url, scrub, limit),
        auth=_login(base_url),
        # Settings that the environment holds for other programs (.netrc) are not for this one.
        trust_env=False,
    )


def base_address(base_url: str) -> str:
    """The address without user and password: an address is logged, a password must not be."""
    parts = urlsplit(base_url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


@contextmanager
def _named_alike() -> Iterator[None]:
    """The exceptions of the layer below as httpx2's, which have the same names."""
    try:
        yield
    except Exception as error:
        if type(error).__module__.partition(".")[0] != "httpcore2":
            raise
        kind = getattr(httpx2, type(error).__name__, httpx2.TransportError)
        raise kind(str(error)) from error


def _proxy(base_url: str) -> str | None:
    # A client that is given a transport no longer looks for proxies itself.
    parts = urlsplit(base_url)
    host = parts.hostname or ""
    if host in ("localhost", "127.0.0.1", "::1") or proxy_bypass(host):
        return None
    proxies = getproxies()
    found = proxies.get(parts.scheme) or proxies.get("all")
    if not found:
        return None
    found = found if "://" in found else f"http://{found}"
    if urlsplit(found).scheme not in ("http", "https"):
        raise UsageError(
            f"the environment names {base_address(found)} as the proxy for {host}, and only "
            f"proxies that speak HTTP can be used; add {host} to NO_PROXY, or set HTTPS_PROXY."
        )
    return found


def _login(url: str) -> tuple[str, str] | None:
    parts = urlsplit(url)
    if parts.username is None:
        return None
    return unquote(parts.username), unquote(parts.password or "")
