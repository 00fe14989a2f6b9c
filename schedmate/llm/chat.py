"""One chat model with everything that a call needs around it.

`GuardedChat` is a LangChain chat model, so agents and structured calls use it like any other. A
call passes, in this order: redaction, the reply cache, the budgets, the endpoint (with retries,
back-off and a deadline), the ledger.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.language_models.base import LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage, convert_to_openai_messages
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import ConfigDict

from schedmate.client import deadline, never_sent, retrying
from schedmate.errors import ModelError
from schedmate.llm import telemetry
from schedmate.llm.budget import Budget, estimate_tokens
from schedmate.llm.endpoint import Endpoint
from schedmate.llm.failures import named
from schedmate.llm.redact import Redactor
from schedmate.llm.store import Call, Store

MOST_TOKENS = 10**9
"""Above any context length; SQLite holds what is below 2**63."""
TOOL_CALLS = 64
"""Limit for the tool calls in one reply."""
LONGEST_TOKEN = 40
"""A genuine reply has fewer characters per token on average."""
CALLING = "I call a tool."


class GuardedChat(BaseChatModel):
    """A chat model for one job and one purpose; raises `ModelError` and nothing else.

    `ends` is the job's deadline on the monotonic clock [s]; `timeout_s` is the limit for one call,
    including retries [s]; `max_tokens` that for one reply. With `cached`, an identical request gets
    the stored reply.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    inner: BaseChatModel
    endpoint: Endpoint
    store: Store
    budget: Budget
    redactor: Redactor
    purpose: str
    job: str | None = None
    timeout_s: float = 60.0
    ends: float | None = None
    max_tokens: int = 2048
    cached: bool = True
    calls: list[Call] = []  # noqa: RUF012 - pydantic copies defaults
    watch: Callable[[list[BaseMessage], AIMessage | ModelError], None] | None = None
    """Called with every request, as sent, and its reply or failure."""

    @property
    def _llm_type(self) -> str:
        return "schedmate"

    def bind_tools(
        self,
        tools: Any,
        *,
        tool_choice: Any = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """The model with tools to call; see LangChain."""
        formatted = [
            convert_to_openai_tool(tool) if isinstance(tool, BaseTool) else tool for tool in tools
        ]
        if not formatted:
            return self.bind(**kwargs)  # vLLM refuses an empty list, which means the same as none
        # llama.cpp's server ignores tools unless it is told that they may be chosen.
        return self.bind(tools=formatted, tool_choice=tool_choice or "auto", **kwargs)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        sent = [_redacted(message, self.redactor) for message in messages]
        options = {name: value for name, value in kwargs.items() if value is not None}
        if stop:
            options["stop"] = stop
        key = self._key(sent, options)
        known = self.store.reply(key) if self.cached else None
        if known is not None:
            reply = AIMessage.model_validate_json(known)
            self._log(reply, 0.0, attempts=0)
        else:
            try:
                reply = self._ask(sent, options)
            except ModelError as error:
                self._tell(sent, error)
                raise
            if self.cached:
                self.store.keep(key, reply.model_dump_json())
        self._tell(sent, reply)
        return ChatResult(generations=[ChatGeneration(message=reply)])

    def _tell(self, sent: list[BaseMessage], came: AIMessage | ModelError) -> None:
        if self.watch is not None:
            self.watch(sent, came)

    def _key(self, messages: list[BaseMessage], options: dict[str, Any]) -> str:
        request = {
            "endpoint": self.endpoint.base_url,
            "model": self.endpoint.model,
            "messages": convert_to_openai_messages(messages),
            "max_tokens": self.max_tokens,
            "options": options,
        }
        canonical = json.dumps(request, sort_keys=True, ensure_ascii=True, default=str)
        return hashlib.sha256(canonical.encode()).hexdigest()

    def _ask(self, messages: list[BaseMessage], options: dict[str, Any]) -> AIMessage:
        began = time.monotonic()
        ends = began + self.timeout_s
        if self.ends is not None:
            ends = min(ends, self.ends)
        size = sum(len(message.text) for message in messages) + len(
            json.dumps(options, default=str)
        )
        attempts = sent = 0
        reply: AIMessage | None = None
        failure: ModelError | None = None
        attributes = {
            telemetry.PROVIDER: "openai",
            telemetry.REQUEST_MODEL: self.endpoint.model,
            telemetry.REQUEST_MAX_TOKENS: self.max_tokens,
            telemetry.SERVER: self.endpoint.place,
        }
        with telemetry.span("chat", self.endpoint.model, **attributes) as span:
            try:
                if ends <= began:
                    raise ModelError("timeout", "the time for this job is over")
                self.budget.check(self.store, self.job, estimate_tokens(size), self.max_tokens)
                for attempt in retrying(ends):
                    with attempt, deadline(ends):
                        attempts += 1
                        sent += 1
                        try:
                            reply = self._once(messages, options)
                        except Exception as error:
                            sent -= never_sent(error)
                            raise
            except ModelError as error:
                failure = error
            except Exception as error:  # noqa: BLE001 - whatever a client raises on such a reply
                failure = named(error, self.endpoint)
            seconds = time.monotonic() - began
            if failure is None and reply is not None:
                failure = _cut_off(reply, self.max_tokens)
            call = self._log(
                reply, seconds, attempts=attempts, sent=sent, failure=failure, size=size
            )
            span.set(
                **{
                    telemetry.INPUT_TOKENS: call.input_tokens,
                    telemetry.OUTPUT_TOKENS: call.output_tokens,
                    telemetry.CACHED_TOKENS: call.cached_tokens,
                    telemetry.ERROR: None if failure is None else failure.verdict,
                }
            )
            if telemetry.captures_content():
                span.set(
                    **{
                        telemetry.INPUT_MESSAGES: json.dumps(convert_to_openai_messages(messages)),
                        telemetry.OUTPUT_MESSAGES: None if reply is None else reply.text,
                    }
                )
        if failure is not None:
            raise failure
        assert reply is not None
        return reply

    def _once(self, messages: list[BaseMessage], options: dict[str, Any]) -> AIMessage:
        reply = self.inner.invoke(messages, **options)
        if not isinstance(reply, AIMessage) or not isinstance(reply.content, str | list):
            raise ModelError("malformed", "the reply holds no message")
        # A server may ignore what was asked for; every further request would carry its reply.
        if len(reply.tool_calls) > TOOL_CALLS:
            raise ModelError("malformed", f"the reply calls {len(reply.tool_calls)} tools at once")
        if len(reply.text) + len(json.dumps(reply.tool_calls)) > LONGEST_TOKEN * self.max_tokens:
            raise ModelError("length", f"the reply is far longer than {self.max_tokens} tokens")
        return reply

    def _log(
        self,
        reply: AIMessage | None,
        seconds: float,
        *,
        attempts: int,
        sent: int = 0,
        failure: ModelError | None = None,
        size: int = 0,
    ) -> Call:
        usage: Mapping[str, Any] = (reply.usage_metadata if reply is not None else None) or {}
        # A request that failed after it was sent may have been paid for: count its prompt.
        # What a server counts is believed as far as it can be so: never less than nothing.
        guess = estimate_tokens(size) if sent and size else 0
        read = _count(usage.get("input_tokens"), guess)
        written = _count(usage.get("output_tokens"))
        if not attempts:
            read = written = 0
        details = usage.get("input_token_details") or {}
        call = Call(
            time=time.time(),
            purpose=self.purpose,
            job=self.job,
            endpoint=self.endpoint.place,
            model=self.endpoint.model,
            verdict="ok" if failure is None else failure.verdict,
            input_tokens=read,
            output_tokens=written,
            cached_tokens=_count(details.get("cache_read")) if attempts else 0,
            seconds=seconds,
            attempts=attempts,
            sent=sent,
            cost=self.budget.cost(read, written),
            detail=None if failure is None else str(failure),
        )
        self.store.add(call)
        self.calls.append(call)
        return call


def _redacted(message: BaseMessage, redactor: Redactor) -> BaseMessage:
    if isinstance(message, AIMessage) and message.tool_calls and not message.content:
        # Sent as null otherwise, which llama.cpp's server answers with 500.
        return message.model_copy(update={"content": CALLING})
    if isinstance(message.content, str):
        return message.model_copy(update={"content": redactor.redact(message.content)})
    parts = [
        {**part, "text": redactor.redact(part["text"])}
        if isinstance(part, dict) and isinstance(part.get("text"), str)
        else part
        for part in message.content
    ]
    return message.model_copy(update={"content": parts})


def _count(tokens: object, otherwise: int = 0) -> int:
    return min(max(0, tokens), MOST_TOKENS) if isinstance(tokens, int) else otherwise


def _cut_off(reply: AIMessage, max_tokens: int) -> ModelError | None:
    if reply.response_metadata.get("finish_reason") != "length":
        return None
    return ModelError(
        "length",
        f"the reply was cut off at {max_tokens} tokens; raise llm_max_tokens, or the server's "
        "context length",
    )
