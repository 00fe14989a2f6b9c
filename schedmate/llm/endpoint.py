"""A model's endpoint: address, model name, key, and the client for them."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from schedmate.base.errors import UsageError
from schedmate.base.files import without_password

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel


SCRIPTED = "scripted:"
KEYS = ("SCHEDMATE_LLM_API_KEY", "OPENAI_API_KEY")
"""Variables that may hold the key, in order; keys are not settings, so none is ever printed."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A chat model: `base_url` of an OpenAI-compatible server, or a script that stands in for one.

    `model` is the name the server knows it by, or `scripted:FILE`.
    """

    base_url: str
    model: str

    @property
    def scripted(self) -> Path | None:
        """The file of a scripted model."""
        return Path(self.model[len(SCRIPTED) :]) if self.model.startswith(SCRIPTED) else None

    @property
    def local(self) -> bool:
        """Whether what is sent stays on this machine."""
        if self.scripted is not None:
            return True
        host = urlsplit(self.base_url).hostname or ""
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host == "localhost"

    @property
    def place(self) -> str:
        """The address without user, password and query, safe to show and store."""
        if self.scripted is not None:
            return "scripted"
        parts = urlsplit(self.base_url)
        host = parts.hostname or ""
        host = f"[{host}]" if ":" in host else host
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.scheme}://{host}{port}{parts.path.rstrip('/')}"


def endpoint(base_url: str | None, model: str | None) -> Endpoint | None:
    """The endpoint of the settings; None if they name none.

    Raises `UsageError` for an invalid address, or a model without an address.
    """
    if model is not None and model.startswith(SCRIPTED):
        return Endpoint("", model)
    if base_url is None:
        if model is not None:
            raise UsageError(
                f"the model {model!r} has no address; give --llm-base-url, for example "
                "http://127.0.0.1:8000/v1, or set llm_base_url."
            )
        return None
    parts = urlsplit(base_url)
    try:
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good:
        raise UsageError(
            f"llm_base_url {without_password(base_url)!r} is not a URL; it looks like http://127.0.0.1:8000/v1."
        )
    return Endpoint(base_url.rstrip("/"), model or "")


def api_key() -> str | None:
    """The key of the endpoint, from the environment."""
    return next((os.environ[name] for name in KEYS if os.environ.get(name)), None)


def connect(where: Endpoint, *, max_tokens: int, effort: str | None = None) -> BaseChatModel:
    """A bare client, without budget, ledger or redaction: only `GuardedChat` uses one.

    `max_tokens` bounds one reply, with what a reasoning model thinks by its `effort`. Raises
    `InputError` for a script that cannot be read, and `UsageError` for a proxy that cannot be used.
    """
    if where.scripted is not None:
        from schedmate.llm.scripted import ScriptedChat

        return ScriptedChat.load(where.scripted)
    from langchain_openai import ChatOpenAI
    from langchain_openai.chat_models.base import BaseChatOpenAI
    from pydantic import SecretStr

    from schedmate.base.http import base_address, open_client

    # OpenAI's own service wants `max_completion_tokens`, which ChatOpenAI sends; other servers
    # know `max_tokens` for certain, and without a limit some of them write until memory is full.
    hosted = urlsplit(where.base_url).hostname == "api.openai.com"
    return (ChatOpenAI if hosted else BaseChatOpenAI)(
        base_url=base_address(where.base_url),
        model=where.model,
        api_key=SecretStr(api_key() or "none"),
        temperature=0.0,
        max_tokens=max_tokens,
        reasoning_effort=effort,
        max_retries=0,
        http_client=open_client(where.base_url, [api_key()]),
        use_responses_api=False,
    )
