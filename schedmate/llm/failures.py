"""A client's exception as a verdict and a sentence."""

from __future__ import annotations

from schedmate.client import SERVER_BUSY, refusal
from schedmate.errors import ModelError, Verdict
from schedmate.llm.endpoint import Endpoint
from schedmate.terminal import clean

ASK_DOCTOR = "; is the server running? `schedmate doctor` tells"
"""The end of a message about an unreachable server, except in `doctor` itself."""


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
    elif (refused := refusal(error)) is not None:
        verdict, message = "malformed", f"{where.place}: {refused}"
    elif isinstance(error, openai.APIConnectionError):
        verdict = "unavailable"
        message = f"no connection to {where.place}{ASK_DOCTOR}"
    elif isinstance(error, openai.LengthFinishReasonError):
        verdict, message = "length", "the reply was cut off by its token limit"
    else:
        # The client met a body that is not a chat completion, and failed in its own way.
        verdict = "malformed"
        message = f"{where.place} did not answer as /v1/chat/completions should: {first}"
    return ModelError(verdict, message)
