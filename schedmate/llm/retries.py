"""What a failed request to a model says: whether it was sent, and whether to send it again."""

from __future__ import annotations

import time
from collections.abc import Iterator

import httpx2
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt
from tenacity.stop import stop_before_delay
from tenacity.wait import wait_random_exponential

from schedmate.base.http import BadReplyError

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
