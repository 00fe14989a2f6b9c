"""The only door to a chat model. Everything that asks one asks through `LLM`.

    llm = open_llm(settings)
    if llm is not None:
        chat = llm.chat("extract", job="job-17")     # a LangChain chat model, guarded
        answer = ask(chat, messages, Schema)         # schedmate.llm.chat

Any OpenAI-compatible server serves: vLLM, llama.cpp, a hosted service; `scripted:FILE` stands in
for one. Each call is redacted, bounded in time, size, tokens and cost, cached, and written to a
local ledger. Whoever calls must be able to go on without the answer.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from schedmate.base.errors import ModelError, require
from schedmate.llm.endpoint import SCRIPTED, Endpoint, connect, endpoint
from schedmate.llm.store import Budget, Store

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

    from schedmate.llm.chat import GuardedChat
    from schedmate.llm.scripted import Script
    from schedmate.settings import Settings

PACKAGES = ("langchain", "langchain_openai", "openai", "httpx2", "httpcore2", "tenacity")
"""What the extra `llm` brings."""


@dataclass(slots=True)
class LLM:
    """An endpoint with its budgets and ledger."""

    endpoint: Endpoint
    budget: Budget
    store: Store
    timeout_s: float
    max_tokens: int
    cached: bool = True
    effort: str | None = None
    client: BaseChatModel | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def chat(
        self, purpose: str, *, job: str | None = None, deadline_s: float | None = None
    ) -> GuardedChat:
        """A chat model for one job. `deadline_s` is the limit for all its calls together [s].

        A new one has no secrets of other jobs in memory. Raises `InputError` for a scripted model
        that cannot be read, and `ModelError` if the server has to be asked for its models and
        fails.
        """
        from schedmate.llm.chat import GuardedChat
        from schedmate.llm.redact import Redactor

        began = time.monotonic()
        wait_s = self.timeout_s if deadline_s is None else min(self.timeout_s, deadline_s)
        if not self._lock.acquire(timeout=min(max(0.0, wait_s), threading.TIMEOUT_MAX)):
            raise ModelError("timeout", f"{self.endpoint.place} did not answer in time")
        try:
            if not self.endpoint.model:
                from schedmate.llm.probe import first_model

                left_s = wait_s - (time.monotonic() - began)
                model = first_model(self.endpoint, timeout_s=left_s)
                self.endpoint = replace(self.endpoint, model=model)
            if self.client is None:
                self.client = connect(self.endpoint, max_tokens=self.max_tokens, effort=self.effort)
        finally:
            self._lock.release()
        return GuardedChat(
            inner=self.client,
            endpoint=self.endpoint,
            store=self.store,
            budget=self.budget,
            redactor=Redactor(),
            purpose=purpose,
            job=job,
            timeout_s=self.timeout_s,
            ends=None if deadline_s is None else began + deadline_s,
            max_tokens=self.max_tokens,
            # A script is consumed as it is read: a reply from the cache would shift all others.
            cached=self.cached and self.endpoint.scripted is None,
        )

    def close(self) -> None:
        """Close the connections and the ledger; may be repeated."""
        http = getattr(self.client, "http_client", None)
        if http is not None:
            http.close()
        self.store.close()


def open_llm(settings: Settings) -> LLM | None:
    """The language model of the settings; None if they name none.

    Raises `UsageError` for an invalid address or without the extra `llm`, `InputError` if the
    ledger cannot be used or a scripted model cannot be read.
    """
    where = endpoint(settings.llm_base_url, settings.llm_model)
    if where is None:
        return None
    require_packages()
    if where.scripted is None:
        return _opened(where, settings)
    from schedmate.llm.scripted import ScriptedChat

    return _opened(where, settings, ScriptedChat.load(where.scripted))


def require_packages() -> None:
    """Raise `MissingExtraError` if the packages that talk to a model are not installed."""
    require("a language model", "llm", *PACKAGES)


def replay_llm(settings: Settings, record: Path, script: Script) -> LLM:
    """A model that repeats the replies in the record of an earlier reading."""
    from schedmate.llm.scripted import ScriptedChat

    where = Endpoint("", f"{SCRIPTED}{record}")
    return _opened(where, settings, ScriptedChat(script=script))


def _opened(where: Endpoint, settings: Settings, client: BaseChatModel | None = None) -> LLM:
    from schedmate.settings import data_dir

    return LLM(
        endpoint=where,
        budget=Budget(
            call_tokens=settings.llm_call_tokens,
            job_tokens=settings.llm_job_tokens,
            day_tokens=settings.llm_day_tokens,
            call_cost=settings.llm_call_cost,
            job_cost=settings.llm_job_cost,
            day_cost=settings.llm_day_cost,
            price_input=settings.llm_price_input,
            price_output=settings.llm_price_output,
        ),
        store=Store(data_dir()),
        timeout_s=settings.llm_timeout_s,
        max_tokens=settings.llm_max_tokens + settings.llm_reasoning_tokens,
        effort=settings.llm_reasoning_effort,
        cached=settings.llm_cache,
        client=client,
    )
