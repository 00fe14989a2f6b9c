"""Asks an endpoint which models it serves, and says what went wrong when a request to it fails."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path

from schedmate.base.errors import ModelError, SchedmateError, Verdict
from schedmate.base.terminal import clean
from schedmate.llm.endpoint import Endpoint, api_key
from schedmate.llm.retries import SERVER_BUSY, refusal_reason

USABLE_BILLIONS = 7.0
"""Smaller models fail at reading repositories (SchedMate paper, section 5)."""
PROBE_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model that a server offers; `context` is its context length [tokens], if stated."""

    name: str
    context: int | None
    owner: str


def served_models(where: Endpoint, *, timeout_s: float = PROBE_TIMEOUT_S) -> list[ServedModel]:
    """The models of a server, as `/v1/models` lists them; raises `ModelError`.

    `timeout_s` bounds the request [s]; it has no more than `TIMEOUT_S`.
    """
    import openai

    from schedmate.base.http import base_address, deadline, open_client

    key = api_key()
    try:
        with (
            openai.OpenAI(
                base_url=base_address(where.base_url),
                api_key=key or "none",
                max_retries=0,
                http_client=open_client(where.base_url, [key]),
            ) as client,
            deadline(time.monotonic() + min(timeout_s, PROBE_TIMEOUT_S)),
        ):
            page = client.models.list()
        return [
            ServedModel(
                str(one.id), _context_length(one.model_extra or {}), str(one.owned_by or "")
            )
            for one in page.data
        ]
    except SchedmateError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a client raises on such a reply
        raise model_error(error, where) from None


def _context_length(extra: dict[str, object]) -> int | None:
    meta = extra.get("meta")
    for stated in (
        extra.get("max_model_len"),
        meta.get("n_ctx") if isinstance(meta, dict) else None,
    ):
        if isinstance(stated, int):
            return stated
    return None


def first_model(where: Endpoint, *, timeout_s: float = PROBE_TIMEOUT_S) -> str:
    """The name of the first model that a server offers; raises `ModelError` without one."""
    models = served_models(where, timeout_s=timeout_s)
    if not models:
        raise ModelError("unavailable", f"{where.place} serves no model; name one with --model")
    return models[0].name


def billions_in_name(model: str) -> float | None:
    """Parameters stated in a model's name [10^9]: 7 for Qwen2.5-7B-Instruct."""
    sizes = re.findall(r"(?<![\w.])(\d+(?:\.\d+)?)([bBmM])(?![a-zA-Z])", model.replace("_", "-"))
    billions = [float(number) * (1.0 if unit in "bB" else 0.001) for number, unit in sizes]
    return max(billions) if billions else None


def listens_openly(port: int) -> bool:
    """Whether a server of this machine accepts connections on that port from any network.

    False if unknown: only Linux shows it without privileges.
    """
    listening, anywhere = "0A", {"0" * 8, "0" * 32}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            rows = Path(table).read_text("ascii").splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            _, local, _, state, *_ = row.split()
            address, _, number = local.partition(":")
            if state == listening and int(number, 16) == port and address in anywhere:
                return True
    return False


# A client's exception as a verdict and a sentence.


ASK_DOCTOR = "; is the server running? `schedmate doctor` tells"
"""The end of a message about an unreachable server, except in `doctor` itself."""


def model_error(error: Exception, where: Endpoint) -> ModelError:
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
    elif (refused := refusal_reason(error)) is not None:
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
