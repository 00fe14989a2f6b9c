"""What a client's exception means: a verdict, a sentence, and whether to try again."""

from __future__ import annotations

from schedmate.errors import ModelError, Verdict
from schedmate.llm.endpoint import Endpoint
from schedmate.terminal import clean

SERVER_BUSY = frozenset({408, 409, 425, 429, 502, 503, 504})
"""Not 500: it is how llama.cpp's server refuses what it does not know, and asking again is vain."""


def is_transient(error: BaseException) -> bool:
    """Whether the same request may well succeed a moment later."""
    import openai

    if isinstance(error, openai.APITimeoutError):
        return False  # the time for this call is used up
    if isinstance(error, openai.APIStatusError):
        return error.status_code in SERVER_BUSY
    return isinstance(error, openai.APIConnectionError)


def retry_after_s(error: BaseException) -> float | None:
    """The pause that the server asks for [s]."""
    headers = getattr(getattr(error, "response", None), "headers", None)
    try:
        return max(0.0, float(headers["retry-after"])) if headers is not None else None
    except (KeyError, TypeError, ValueError):
        return None


def named(error: Exception, where: Endpoint) -> ModelError:
    """A client's exception as a `ModelError` that says what to do."""
    import openai

    first = clean(str(error).splitlines()[0] if str(error) else type(error).__name__, 300)
    verdict: Verdict
    if isinstance(error, openai.APITimeoutError):
        verdict, message = "timeout", f"{where.place} did not answer in time"
    elif isinstance(error, openai.APIStatusError):
        code = error.status_code
        verdict = "unavailable" if code in SERVER_BUSY else "rejected"
        message = f"{where.place} answered {code}: {first}"
        if code in (401, 403):
            message += "; set SCHEDMATE_LLM_API_KEY to a key it accepts"
        elif code == 404:
            message += "; check llm_base_url (it ends in /v1) and the model's name"
    elif isinstance(error, openai.APIConnectionError):
        verdict = "unavailable"
        message = f"no connection to {where.place}; is the server running? `schedmate doctor` tells"
    elif isinstance(error, openai.LengthFinishReasonError):
        verdict, message = "length", "the reply was cut off by its token limit"
    else:
        # The client met a body that is not a chat completion, and failed in its own way.
        verdict = "malformed"
        message = f"{where.place} did not answer as /v1/chat/completions should: {first}"
    return ModelError(verdict, message)
