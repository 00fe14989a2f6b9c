"""HTTP to servers that are not trusted: bounded in time and size, and nothing repeats the key.

    with open_client(base_url, keys=[key]) as http, deadline(time.monotonic() + 10):
        http.get(...)

Whatever the server does, a request ends at the deadline. Redirections are not followed, packed
replies are refused, and a reply never holds the key that the request carried. TLS comes first, then
the connections below it, how keys are taken out of replies, and the transport over all of them.
Models' servers and Kubernetes' are reached through it.
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
from contextlib import contextmanager, suppress
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


class TooLargeError(BadReplyError):
    """The reply is larger than what was allowed for it."""


@dataclass(slots=True)
class Allowance:
    """Remaining allowance of a request: until `ends` on the monotonic clock [s], and bytes; the
    server may be silent for `silence_s` of it at a time."""

    ends: float
    size: int = MAX_REPLY_BYTES
    silence_s: float = LONGEST_SILENCE_S


_allowance: ContextVar[Allowance | None] = ContextVar("schedmate_allowance", default=None)


@contextmanager
def deadline(at: float) -> Iterator[None]:
    """End requests made inside the block at `at`, on the monotonic clock [s]."""
    with _in_force(Allowance(at)):
        yield


@contextmanager
def one_reply(limit: int) -> Iterator[Allowance]:
    """Allow one request inside the block a reply of at most `limit` bytes."""
    outer = _allowance.get()
    mine = Allowance(time.monotonic() + LONGEST_SILENCE_S if outer is None else outer.ends, limit)
    with _in_force(mine):
        yield mine


@contextmanager
def _in_force(allowance: Allowance) -> Iterator[None]:
    token = _allowance.set(allowance)
    try:
        yield
    finally:
        _allowance.reset(token)


def _left_s(late: type[Exception]) -> float:
    """Seconds until the deadline; raises `late` when there are none."""
    allowance = _allowance.get()
    assert allowance is not None, "requests go through BoundedTransport"
    left = allowance.ends - time.monotonic()
    if left <= 0:
        raise late("the time for this request is over")
    return min(left, allowance.silence_s)


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
            raise TooLargeError("the reply is larger than any that was asked for")
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
        return self(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")

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

    def __init__(self, scrub: Callable[[str], str]) -> None:
        super().__init__()
        self._scrub = scrub

    def filter(self, record: logging.LogRecord) -> bool:
        """Change the record; all of them pass."""
        record.msg, record.args = self._scrub(record.getMessage()), ()
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

    Requests end at the `deadline` in force. TLS is verified as usual, or by `tls`; requests go
    through `proxy`, or the one that the environment names for `base_url`. `scrub` may be replaced,
    where a server's keys change with time.
    """

    def __init__(
        self,
        base_url: str,
        scrub: Scrubber,
        limit: int = MAX_REPLY_BYTES,
        *,
        tls: ssl.SSLContext | None = None,
        proxy: str | None = None,
    ) -> None:
        self.scrub, self._limit = scrub, limit
        self._filter = LogFilter(self._without_keys)
        _WIRE_LOG.addFilter(self._filter)
        proxy = proxy or _proxy(base_url)
        context = tls or httpx2.create_ssl_context()
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

    def _without_keys(self, text: str) -> str:
        return self.scrub.text(text)

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request and read its reply.

        Raises what httpx2 raises, and `BadReplyError` for a reply that is not taken.
        """
        return self.send(request, self._limit)

    def send(self, request: httpx2.Request, limit: int, *, opaque: bool = False) -> httpx2.Response:
        """Send one request and read its reply, of at most `limit` bytes.

        The body of an `opaque` one that succeeds is not text that anything parses: it may hold any
        bytes, and keys are removed as they are, not looked for under escapes.
        """
        with one_reply(limit), _named_alike():
            response = self._pool.handle_request(_sent(request))
            try:
                body = response.read()
            finally:
                response.close()
        return self.taken(response, body, opaque and 200 <= response.status < 300)

    def stream(self, request: httpx2.Request, allowance: Allowance) -> StreamedReply:
        """Send one request, and return its reply to be read as it comes, within `allowance`."""
        with _in_force(allowance), _named_alike():
            return StreamedReply(self, self._pool.handle_request(_sent(request)), allowance)

    def taken(
        self, response: httpcore2.Response, body: bytes, opaque: bool = False
    ) -> httpx2.Response:
        """The reply as it may be shown, logged and stored."""
        names = {name.lower(): value for name, value in response.headers}
        if names.get(b"content-encoding", b"identity").lower() not in (b"identity", b""):
            raise BadReplyError("the reply is packed although that was not asked for")
        # A parser would find other characters in UTF-16 or UTF-7 than the scrubber sees.
        if b"\0" in body and not opaque:
            raise BadReplyError("the reply is not text in UTF-8")
        kind = names.get(b"content-type", b"application/json").partition(b";")[0].strip()
        headers = [one for one in response.headers if one[0].lower() not in _DROPPED_HEADERS]
        headers.append((b"content-type", kind))
        reason = response.extensions.get("reason_phrase", b"")
        shown = [reason, *(value for _, value in headers)]
        everything = b"\n".join(shown if opaque else [*shown, body])
        clean = self.scrub
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


class StreamedReply:
    """A reply that is read as it comes; `end` may be called from another thread."""

    def __init__(
        self, transport: BoundedTransport, response: httpcore2.Response, allowance: Allowance
    ) -> None:
        self._transport, self._response, self._allowance = transport, response, allowance
        self.status = response.status

    def whole(self) -> httpx2.Response:
        """The rest as one reply, of at most what is allowed."""
        with _in_force(self._allowance), _named_alike():
            try:
                body = self._response.read()
            finally:
                self._response.close()
        return self._transport.taken(self._response, body)

    def parts(self) -> Iterator[bytes]:
        """The body as it comes; nothing is taken out of it. Raises what httpx2 raises."""
        parts = self._response.iter_stream()
        try:
            while True:
                with _in_force(self._allowance), _named_alike():
                    part = next(parts, None)
                if part is None:
                    return
                yield part
        finally:
            with _in_force(self._allowance):
                self._response.close()

    def end(self) -> None:
        """Hang up, which ends a read that another thread waits in."""
        stream = self._response.extensions.get("network_stream")
        end = stream.get_extra_info("socket") if stream is not None else None
        if isinstance(end, socket.socket):
            with suppress(OSError):  # it has ended by itself
                end.shutdown(socket.SHUT_RDWR)


def _sent(request: httpx2.Request) -> httpcore2.Request:
    """A request as the layer below sends it."""
    # A packed reply of allowed size can unpack to gigabytes: none is asked for, none taken.
    request.headers["accept-encoding"] = "identity"
    assert isinstance(request.stream, httpx2.SyncByteStream)
    return httpcore2.Request(
        method=request.method,
        url=httpcore2.URL(
            scheme=request.url.raw_scheme,
            host=request.url.raw_host,
            port=request.url.port,
            target=request.url.raw_path,
        ),
        headers=request.headers.raw,
        content=request.stream,
        extensions={
            name: value for name, value in request.extensions.items() if name == "sni_hostname"
        },
    )


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
