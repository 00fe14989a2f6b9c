"""HTTP to servers that are not trusted: bounded in time and size, and nothing repeats the key.

    with open_client(base_url, keys=[key]) as http, deadline(time.monotonic() + 10):
        http.get(...)

Whatever the server does, a request ends at the deadline. Redirections are not followed, packed
replies are refused, and a reply never holds the key that the request carried. The transport comes
first, then the connections below it, TLS over them, what a failed request means for another
attempt, and how keys are taken out of replies.
"""

from __future__ import annotations

import base64
import html
import ipaddress
import json
import logging
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote, quote_plus, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import httpcore2
import httpx2
import re2
from httpcore2 import NetworkBackend, NetworkStream, SyncBackend
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt
from tenacity.stop import stop_before_delay
from tenacity.wait import wait_random_exponential

from schedmate.base.errors import UsageError

# TLS over a connection that keeps to a clock and a scale.
#
# A secure socket of the standard library reads inside OpenSSL for as long as there is something to
# read: a server that floods a handshake, or sends empty records, never lets it look at the time.
# Here OpenSSL works on memory alone, and every byte comes through the connection below.


TLS_RECORD = 16_384
T = TypeVar("T")


class TlsLayer(NetworkStream):
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
        return TlsStream(self, ssl_context, server_hostname)

    def get_extra_info(self, info: str) -> Any:
        """What httpcore2 asks a stream for."""
        return self._inner.get_extra_info(info)


class TlsStream(TlsLayer):
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
                view = view[self._through(partial(self._tls.write, view[:TLS_RECORD])) :]
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
            data = self._inner.read(TLS_RECORD)
            if data:
                self._incoming.write(data)
            else:
                self._incoming.write_eof()

    def _send(self) -> None:
        data = self._outgoing.read()
        if data:
            self._inner.write(data)


# Connections with a deadline and a size limit, below any parser.
#
# A read timeout starts anew with every byte, so a server that drips (a status line, headers, a
# body, `100 Continue` for ever) holds a plain client for as long as it likes. Here each connect,
# handshake, read and write gets what is left until the deadline, and all bytes of a reply are
# counted.


MAX_REPLY_BYTES = 4 * 2**20
"""Most bytes of one reply, status lines and headers included: far above any chat completion of the
lengths asked for here. h11, below, takes no more than 100 kB of headers."""

LONGEST_SILENCE_S = 3600.0
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
    mine = Allowance(time.monotonic() + LONGEST_SILENCE_S if outer is None else outer.ends, limit)
    token = _allowance.set(mine)
    try:
        yield mine
    finally:
        _allowance.reset(token)


def _left_s(late: type[Exception]) -> float:
    """Seconds until the deadline; raises `late` when there are none."""
    allowance = _allowance.get()
    assert allowance is not None, "requests go through BoundedTransport"
    left = allowance.ends - time.monotonic()
    if left <= 0:
        raise late("the time for this request is over")
    return min(left, LONGEST_SILENCE_S)


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
        for address in _resolve(host, port):
            try:
                left = _left_s(httpcore2.ConnectTimeout)
                return _BoundedStream(
                    SyncBackend().connect_tcp(address, port, left, local_address, socket_options)
                )
            except httpcore2.ConnectError as error:
                failure = error
        raise failure


class _BoundedStream(TlsLayer):
    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data = self._inner.read(max_bytes, _left_s(httpcore2.ReadTimeout))
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
            self._inner.write(bytes(part), _left_s(httpcore2.WriteTimeout))
            view = view[len(part) :]


def _resolve(host: str, port: int) -> list[str]:
    """The addresses of a host, found within the deadline; a resolver knows no deadline itself."""
    try:
        return [str(ipaddress.ip_address(host))]
    except ValueError:
        pass
    addresses: Future[list[str]] = Future()

    def look_up() -> None:
        try:
            rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            addresses.set_result(list(dict.fromkeys(str(row[4][0]) for row in rows)))
        except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
            addresses.set_exception(error)

    threading.Thread(target=look_up, name="schedmate-lookup", daemon=True).start()
    try:
        return addresses.result(_left_s(httpcore2.ConnectTimeout))
    except TimeoutError:
        raise httpcore2.ConnectTimeout(f"{host} was not looked up in time") from None
    except (OSError, UnicodeError) as error:
        raise httpcore2.ConnectError(f"{host}: {error}") from error


# Remove keys from replies: a server or a proxy may echo what it was sent.
#
# What comes from a server is printed, logged, cached and kept in the ledger; so the key is taken
# out where replies come in, once, and not where they go.


SCRUBBED = "[key]"
SHORTEST_KEY = 8
"""Characters of the shortest key that is scrubbed. What is shorter (`none`, `EMPTY`, `test`) keeps
nobody out, and taking it out would spoil words of honest replies."""

# Escapes, under any number of backslashes: \u0041 \x41 %41 &#65; &#x41; and a backslash alone.
# The look-behind and the possessive repetition keep this linear in a run of backslashes.
_ESCAPE_SEQUENCE = re.compile(
    rb"(?<!\\)\\++(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2}))?|%([0-9a-fA-F]{2})"
    rb"|&#(?:([0-9]{2,3})|[xX]([0-9a-fA-F]{2,4}));"
)
ESCAPE_LAYERS = 3
"""How many layers of escapes are looked under."""


class Scrubber:
    """Replaces keys, as they are or encoded as a whole, in what a server sent."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._keys = sorted(
            {key for key in keys if len(key) >= SHORTEST_KEY}, key=len, reverse=True
        )
        plain = {form for key in self._keys for form in _plain_forms(key)}
        exact = {form for key in self._keys for form in _base64_forms(key)}
        self._any = _any_pattern(plain, "(?i)")
        self._exact = _any_pattern(exact, "")

    def __call__(self, data: bytes) -> bytes:
        """The data with every form of a key replaced by `[key]`."""
        if not self._keys:
            return data
        for pattern in (self._any, self._exact):
            data = pattern.sub(SCRUBBED.encode(), data)
        return data

    def text(self, text: str) -> str:
        """The text with every form of a key replaced by `[key]`."""
        return self(text.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")

    def hides_one(self, data: bytes) -> bool:
        """Whether a key stands in the data under escapes, so that a parser would bring it out."""
        for _ in range(ESCAPE_LAYERS):
            plain = _ESCAPE_SEQUENCE.sub(_unescaped, data)
            if self(plain) != plain:
                return True
            if plain == data:
                break
            data = plain
        return False


class LogFilter(logging.Filter):
    """Scrubs what the HTTP library writes to its debugging log, where it sees raw headers."""

    def __init__(self, scrub: Scrubber) -> None:
        super().__init__()
        self._scrub = scrub

    def filter(self, record: logging.LogRecord) -> bool:
        """Change the record; all of them pass."""
        record.msg, record.args = self._scrub.text(record.getMessage()), ()
        return True


def _any_pattern(forms: set[bytes], flags: str) -> re2.Pattern[bytes]:
    # RE2: a server that knows the key could make a backtracking search slow.
    longest_first = sorted(forms, key=lambda form: (-len(form), form))
    pattern = "|".join(re2.escape(form.decode("latin-1")) for form in longest_first)
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.max_mem = 64 * 2**20
    return re2.compile((flags + "(?:" + pattern + ")").encode("latin-1"), options)


def _plain_forms(key: str) -> Iterator[bytes]:
    """The key as it is, in a URL, in JSON, in HTML, and in hexadecimal digits; in any case."""
    encoded = key.encode()
    yield from (encoded, encoded.hex().encode(), json.dumps(key)[1:-1].encode())
    yield from (form.encode() for form in (quote(key, ""), quote_plus(key), html.escape(key)))


def _base64_forms(key: str) -> Iterator[bytes]:
    """The characters that the key alone decides in base64, wherever it stands in what is encoded.

    Three bytes become four characters: the key begins in one of three places of such a group.
    """
    encoded = key.encode()
    for before in range(3):
        padded = b"\0" * before + encoded
        sure = slice(-(-before * 8 // 6), len(padded) * 8 // 6)
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield encode(padded)[sure]


def _unescaped(match: re.Match[bytes]) -> bytes:
    four, two, percent, decimal, hexadecimal = match.groups()
    if decimal:
        code = int(decimal)
    elif digits := four or two or percent or hexadecimal:
        code = int(digits, 16)
    else:
        return b""  # backslashes alone, as in `\/`
    return chr(code).encode("utf-8", "replace")


# The transport that all requests go through, and the client around it.


_WIRE_LOG = logging.getLogger("httpcore2.http11")
_DROPPED_HEADERS = frozenset({b"content-length", b"transfer-encoding", b"content-type"})
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
                proxy_auth=_proxy_login(proxy),
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
        headers = [one for one in response.headers if one[0].lower() not in _DROPPED_HEADERS]
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
    logins = (_proxy_login(base_url), _proxy_login(_proxy(base_url) or ""))
    passwords = (login[1] for login in logins if login is not None)
    scrub = Scrubber([*(key for key in keys if key), *passwords])
    return httpx2.Client(
        transport=BoundedTransport(base_url, scrub, limit),
        auth=_proxy_login(base_url),
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
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy:
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    if urlsplit(proxy).scheme not in ("http", "https"):
        raise UsageError(
            f"the environment names {base_address(proxy)} as the proxy for {host}, and only "
            f"proxies that speak HTTP can be used; add {host} to NO_PROXY, or set HTTPS_PROXY."
        )
    return proxy


def _proxy_login(url: str) -> tuple[str, str] | None:
    parts = urlsplit(url)
    if parts.username is None:
        return None
    return unquote(parts.username), unquote(parts.password or "")


# What the failure of a request says: whether it was sent, and whether to send it again.


ATTEMPTS = 3
LONGEST_WAIT_S = 30.0
SERVER_BUSY = frozenset({408, 409, 425, 429, 502, 503, 504})
"""Not 500: it is how llama.cpp's server refuses what it does not know, and asking again is vain."""

_UNSENT_ERRORS = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.ProxyError,
    httpx2.UnsupportedProtocol,
)
_backoff = wait_random_exponential(multiplier=0.5, max=LONGEST_WAIT_S)


def retrying(ends: float) -> Retrying:
    """Attempts of one request with back-off, none of them begun after `ends` (monotonic) [s]."""
    return Retrying(
        stop=stop_after_attempt(ATTEMPTS) | stop_before_delay(ends - time.monotonic()),
        wait=_wait_s,
        retry=retry_if_exception(is_transient),
        reraise=True,
    )


def is_transient(error: BaseException) -> bool:
    """Whether the same request may well succeed a moment later."""
    import openai

    if isinstance(error, openai.APITimeoutError) or refusal_reason(error) is not None:
        return False  # the time is used up, or the server is what it is
    if isinstance(error, openai.APIStatusError):
        return error.status_code in SERVER_BUSY
    return isinstance(error, openai.APIConnectionError)


def never_sent(error: BaseException) -> bool:
    """Whether a request failed before any of it reached the server."""
    return any(isinstance(one, _UNSENT_ERRORS) for one in _causes(error))


def refusal_reason(error: BaseException) -> BadReplyError | None:
    """Why the reply was not taken, if it was not."""
    return next((one for one in _causes(error) if isinstance(one, BadReplyError)), None)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    # Clients wrap what the transport raises, some of them more than once.
    while error is not None:
        yield error
        error = error.__cause__


def _wait_s(state: RetryCallState) -> float:
    """The server's own wish where it has one, else exponential back-off with jitter [s]."""
    error = state.outcome.exception() if state.outcome is not None else None
    asked = None if error is None else _retry_after_s(error)
    return _backoff(state) if asked is None else min(asked, LONGEST_WAIT_S)


def _retry_after_s(error: BaseException) -> float | None:
    headers = getattr(getattr(error, "response", None), "headers", None)
    try:
        return max(0.0, float(headers["retry-after"])) if headers is not None else None
    except (KeyError, TypeError, ValueError):
        return None
