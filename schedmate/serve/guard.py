"""What every request passes before it is read: limits, access, and a line in the log after it.

`Access` checks bearer tokens, browser sessions and host names; `Rate` limits how often a client
may ask.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Any

from schedmate.base.terminal import clean
from schedmate.serve.metrics import Metrics
from schedmate.serve.options import ServeOptions

COOKIE = "schedmate-session"
SESSION_S = 12 * 3600.0
"""How long a browser stays signed in [s]."""
MOST_SESSIONS = 1_000
MOST_CLIENTS = 4_096


@dataclass(frozen=True, slots=True)
class Session:
    """A browser that showed a token; `csrf` goes into every form that changes something.

    `person` is whose token it was, empty for one that several people share.
    """

    csrf: str
    person: str
    until: float


class Access:
    """Checks tokens and keeps sessions, in memory: a restart ends all sessions."""

    def __init__(self, token: str | Mapping[str, str] | None) -> None:
        named = {"": token} if isinstance(token, str) else token or {}
        self._tokens = {person: one.encode() for person, one in named.items()}
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    @property
    def guarded(self) -> bool:
        """Whether a token is required."""
        return bool(self._tokens)

    def owner(self, token: str) -> str | None:
        """Whose token this is, compared in constant time: empty for a shared one, None for none."""
        presented = token.encode("utf-8", "surrogateescape")
        owners = [p for p, one in self._tokens.items() if hmac.compare_digest(presented, one)]
        return owners[0] if owners else None

    def bearer(self, authorization: str | None) -> str | None:
        """Whose token an `Authorization` header shows, as `owner` says it."""
        scheme, _, token = (authorization or "").partition(" ")
        return self.owner(token.strip()) if scheme.lower() == "bearer" else None

    def sign_in(self, person: str) -> str:
        """A new session for a browser that has sent a person's token; returns the content of its
        cookie."""
        name, ends = secrets.token_urlsafe(32), time.monotonic() + SESSION_S
        self._sessions[name] = Session(secrets.token_urlsafe(32), person, ends)
        while len(self._sessions) > MOST_SESSIONS:
            self._sessions.popitem(last=False)
        return name

    def sign_out(self, cookies: str | None) -> None:
        """End the session of a `Cookie` header."""
        self._sessions.pop(_session_name(cookies), None)

    def session(self, cookies: str | None) -> Session | None:
        """The session of a `Cookie` header, if it is one of ours and not too old."""
        name = _session_name(cookies)
        session = self._sessions.get(name)
        if session is not None and session.until < time.monotonic():
            session = self._sessions.pop(name, None) and None
        return session


def _session_name(cookies: str | None) -> str:
    try:
        cookie = SimpleCookie(cookies or "").get(COOKIE)
    except CookieError:
        return ""
    return cookie.value if cookie is not None else ""


class Rate:
    """A rate limit: requests per second of each client, and twice this number in a burst."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._clients: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def allows(self, client: str) -> bool:
        """Whether this client may make one more request now."""
        if self._rate <= 0:
            return True
        now = time.monotonic()
        left, then = self._clients.pop(client, (2 * self._rate, now))
        left = min(2 * self._rate, left + (now - then) * self._rate)
        allowed = left >= 1
        self._clients[client] = (left - allowed, now)
        if len(self._clients) > MOST_CLIENTS:
            self._clients.popitem(last=False)
        return allowed


# What every request passes before it is read: limits, access, and a line in the log after it.


Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

log = logging.getLogger("schedmate.serve.request")

OPEN_PATHS = frozenset({"/healthz", "/readyz"})
"""Paths that need no token: whether the service is alive."""
BROWSER_PATHS = frozenset({"/", "/login", "/logout", "/search"})
PAGES = ("/jobs/", "/nodes/")
"""Pages, which have their own way to sign in."""
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
_SLACK_S = 1.0
"""Time beyond its deadline after which a request ends, for the answer about the deadline [s]."""
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),  # with less, browsers do not say where a form is from
    (b"cache-control", b"no-store"),
)


STRANGERS_BODY = 1 << 16
"""Longest body of a request that shows no token: the form to sign in [bytes]."""


class LeftError(Exception):
    """The client has ended the connection; there is nobody to answer."""


class RefusedError(Exception):
    """A request that is refused, with HTTP `status` and the time to wait, `retry_s` [s]."""

    def __init__(self, status: int, reason: str, sentence: str, retry_s: int | None = None) -> None:
        super().__init__(sentence)
        self.status, self.reason, self.retry_s = status, reason, retry_s


class Guard:
    """An ASGI application around another one."""

    def __init__(
        self,
        app: App,
        options: ServeOptions,
        access: Access,
        metrics: Metrics,
        unavailable: Callable[[], str | None],
    ) -> None:
        self._app = app
        self._options = options
        self._access = access
        self._metrics = metrics
        self._unavailable = unavailable
        self._rate = Rate(options.limits.rate)
        self._in_flight = {True: 0, False: 0}  # by whether the token was shown, or none is needed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the beginning and the end of the server."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status, started = time.perf_counter(), 500, False
        request_id = secrets.token_hex(8)

        async def answer(message: MutableMapping[str, Any]) -> None:
            nonlocal status, started
            if message["type"] == "http.response.start":
                status, started = message["status"], True
                mine = (*_HEADERS, (b"x-request-id", request_id.encode()))
                message["headers"] = [*message.get("headers", ()), *mine]
            await send(message)

        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        try:
            known = self._check(scope, headers)
            if scope["method"] not in _SAFE_METHODS:
                receive = await self._body(receive, known)
            async with asyncio.timeout(self._options.limits.deadline_s + _SLACK_S):
                with self._place(scope["path"], known):
                    await self._app(scope, receive, answer)
        except LeftError:
            status = 499
        except RefusedError as refused:
            self._metrics.refused.labels(refused.reason).inc()
            await _say(answer, refused.status, str(refused), refused.retry_s, started)
        except TimeoutError:
            self._metrics.refused.labels("deadline").inc()
            await _say(answer, 504, "the answer took too long; try again later.", None, started)
        except Exception:
            log.exception("a request failed")
            if not started:
                await _say(answer, 500, "internal error; the service's log has more.", None, False)
        finally:
            self._note(scope, status, time.perf_counter() - began, request_id)

    async def _body(self, receive: Receive, known: bool) -> Receive:
        """The whole body; until it is there, a request is not in flight."""
        limits = self._options.limits
        most = limits.body if known else min(STRANGERS_BODY, limits.body)
        try:
            async with asyncio.timeout(limits.body_s):
                return await _whole(receive, most)
        except TimeoutError:
            raise RefusedError(
                408,
                "body",
                f"the request is incomplete after {limits.body_s:g} s; send it at once.",
            ) from None

    @contextmanager
    def _place(self, path: str, known: bool) -> Iterator[None]:
        """One of the requests in flight. Those without a token have places of their own, and
        questions whether the service lives need none."""
        most = self._options.limits.in_flight
        if path not in OPEN_PATHS and self._in_flight[known] >= most:
            raise RefusedError(
                503, "in flight", f"{most} requests are being answered; try again.", 1
            )
        self._in_flight[known] += path not in OPEN_PATHS
        self._metrics.in_flight.set(sum(self._in_flight.values()))
        try:
            yield
        finally:
            self._in_flight[known] -= path not in OPEN_PATHS
            self._metrics.in_flight.set(sum(self._in_flight.values()))

    def _check(self, scope: Scope, headers: dict[bytes, str]) -> bool:
        """Whether the token was shown, or none is needed; raises `RefusedError`."""
        limits, path = self._options.limits, scope["path"]
        if path in OPEN_PATHS:
            return False
        why_not = self._unavailable()
        if why_not is not None:
            raise RefusedError(503, "unavailable", f"the service {why_not}; try again.", 5)
        if self._options.socket is None:
            if sum(name == b"host" for name, _ in scope["headers"]) > 1:  # RFC 9112, section 3.2
                raise RefusedError(400, "host", "the request names its host more than once.")
            self._check_host(headers)
        client = scope.get("client")
        if not self._rate.allows(client[0] if client else "unix"):
            raise RefusedError(429, "rate", "too many requests a second; ask less often.", 1)
        known = self._check_token(path, headers)
        if scope["method"] not in _SAFE_METHODS:
            self._check_origin(headers)
            if path.startswith("/v1/"):
                kind = headers.get(b"content-type", "").partition(";")[0].strip().lower()
                if kind != "application/json":
                    raise RefusedError(415, "type", "send JSON, as Content-Type: application/json.")
        length = headers.get(b"content-length", "0")
        if length.isdecimal() and len(length) < 20 and int(length) > limits.body:
            raise _too_large(limits.body)
        return known

    def _check_host(self, headers: dict[bytes, str]) -> None:
        # DNS rebinding: another site's page may resolve its own name to us and read the answer
        host = headers.get(b"host", "")
        name = host.lower() if host.endswith("]") else host.lower().rpartition(":")[0] or host
        if name.lower() not in self._options.hosts:
            raise RefusedError(
                421, "host", f"the service is not called {clean(name, 100)!r}; see --name."
            )

    def _check_token(self, path: str, headers: dict[bytes, str]) -> bool:
        if not self._access.guarded:
            return True
        if self._access.bearer(headers.get(b"authorization")) is not None:
            return True
        signed_in = self._access.session(headers.get(b"cookie")) is not None
        if (
            path in BROWSER_PATHS
            or path.startswith(PAGES)
            or (path.startswith("/plans/") and signed_in)
        ):
            return signed_in
        raise RefusedError(
            401, "token", "show the token of --token-file, as Authorization: Bearer TOKEN."
        )

    def _check_origin(self, headers: dict[bytes, str]) -> None:
        origin = headers.get(b"origin")
        own = headers.get(b"host", "").lower()
        if origin is not None and origin.lower().partition("://")[2] != own:
            raise RefusedError(403, "origin", "another site's page may not ask for this.")
        if headers.get(b"sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            raise RefusedError(403, "origin", "another site's page may not ask for this.")

    def _note(self, scope: Scope, status: int, seconds: float, request_id: str) -> None:
        route = getattr(scope.get("route"), "path", None)
        route = route if route is not None else "refused" if status < 500 else "none"
        method = scope["method"] if scope["method"] in (*_SAFE_METHODS, "POST") else "other"
        self._metrics.requests.labels(route, method, status).inc()
        self._metrics.latency.labels(route).observe(seconds)
        if log.isEnabledFor(logging.INFO):
            client = scope.get("client")
            extra = {
                "method": scope["method"],
                "path": clean(scope["path"], 200),
                "status": status,
                "ms": round(1000 * seconds, 2),
                "client": client[0] if client else "unix",
                "request": request_id,
            }
            log.info("request", extra={"fields": extra})


async def _whole(receive: Receive, most: int) -> Receive:
    """The body of a request, read up to a size [bytes], for an application to receive."""
    parts, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            raise LeftError
        part = message.get("body", b"")
        parts.append(part)
        size += len(part)
        if size > most:
            raise _too_large(most)
        more = message.get("more_body", False)
    return _with_message_first({"type": "http.request", "body": b"".join(parts)}, receive)


def _with_message_first(message: MutableMapping[str, Any], receive: Receive) -> Receive:
    pending = [message]

    async def again() -> MutableMapping[str, Any]:
        return pending.pop() if pending else await receive()

    return again


def _too_large(most: int) -> RefusedError:
    return RefusedError(413, "size", f"a request may have {most:,} bytes; send less at once.")


async def _say(send: Send, status: int, sentence: str, retry_s: int | None, started: bool) -> None:
    if started:  # an incomplete answer cannot be replaced: the connection ends
        raise ConnectionError(sentence)
    body = json.dumps({"error": sentence}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    if retry_s is not None:
        headers.append((b"retry-after", b"%d" % retry_s))
    if status in (408, 413):  # the rest of the body is not awaited
        headers.append((b"connection", b"close"))
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
