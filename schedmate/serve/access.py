"""Access control: bearer tokens, browser sessions and accepted host names."""

from __future__ import annotations

import hmac
import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie

COOKIE = "schedmate-session"
SESSION_S = 12 * 3600.0
"""How long a browser stays signed in [s]."""
SESSIONS = 1_000
CLIENTS = 4_096


@dataclass(frozen=True, slots=True)
class Session:
    """A browser that showed the token; `csrf` goes into every form that changes something."""

    csrf: str
    until: float


class Access:
    """Checks tokens and keeps sessions, in memory: a restart ends all sessions."""

    def __init__(self, token: str | None) -> None:
        self._token = None if token is None else token.encode()
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    @property
    def guarded(self) -> bool:
        """Whether a token is required."""
        return self._token is not None

    def proves(self, token: str) -> bool:
        """Whether this is the token, compared in constant time."""
        given = token.encode("utf-8", "surrogateescape")
        return self._token is not None and hmac.compare_digest(given, self._token)

    def bears(self, authorization: str | None) -> bool:
        """Whether an `Authorization` header shows the token."""
        scheme, _, token = (authorization or "").partition(" ")
        return scheme.lower() == "bearer" and self.proves(token.strip())

    def sign_in(self) -> str:
        """A new session for a browser that has sent the token; returns the content of its
        cookie."""
        name = secrets.token_urlsafe(32)
        self._sessions[name] = Session(secrets.token_urlsafe(32), time.monotonic() + SESSION_S)
        while len(self._sessions) > SESSIONS:
            self._sessions.popitem(last=False)
        return name

    def sign_out(self, cookies: str | None) -> None:
        """End the session of a `Cookie` header."""
        self._sessions.pop(_session_name(cookies), None)

    def session(self, cookies: str | None) -> Session | None:
        """The session of a `Cookie` header, if it is one of ours and not too old."""
        name = _session_name(cookies)
        found = self._sessions.get(name)
        if found is not None and found.until < time.monotonic():
            found = self._sessions.pop(name, None) and None
        return found


def _session_name(cookies: str | None) -> str:
    try:
        held = SimpleCookie(cookies or "").get(COOKIE)
    except CookieError:
        return ""
    return held.value if held is not None else ""


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
        if len(self._clients) > CLIENTS:
            self._clients.popitem(last=False)
        return allowed
