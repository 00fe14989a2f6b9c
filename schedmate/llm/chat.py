"""One chat model with everything that a call needs around it, and answers of it under a schema.

`GuardedChat` redacts, keeps to budgets and deadlines, caches and records each call, as an
OpenTelemetry span where that API is installed. `ask` gets an answer by the strictest method that
the endpoint supports.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any, TypeVar

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.language_models.base import LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, convert_to_openai_messages
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import BaseModel, ConfigDict, ValidationError

from schedmate.base.errors import ModelError
from schedmate.base.http import deadline
from schedmate.llm.endpoint import Endpoint
from schedmate.llm.probe import model_error
from schedmate.llm.redact import Redactor
from schedmate.llm.retries import never_sent, retrying
from schedmate.llm.store import Budget, Call, Store, estimate_tokens

MOST_COUNTED_TOKENS = 10**9
"""Above any context length; SQLite holds what is below 2**63."""
TOOL_CALLS = 64
"""Limit for the tool calls in one reply."""
LONGEST_TOKEN = 40
"""A genuine reply has fewer characters per token on average."""
CALLING_TEXT = "I call a tool."


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
        if effort := getattr(self.inner, "reasoning_effort", None):
            request["effort"] = effort
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
            SPAN_PROVIDER: "openai",
            SPAN_REQUEST_MODEL: self.endpoint.model,
            SPAN_REQUEST_MAX_TOKENS: self.max_tokens,
            SPAN_SERVER: self.endpoint.place,
        }
        with call_span("chat", self.endpoint.model, **attributes) as span:
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
                failure = model_error(error, self.endpoint)
            seconds = time.monotonic() - began
            if failure is None and reply is not None:
                failure = _cut_off(reply, self.max_tokens)
            call = self._log(
                reply, seconds, attempts=attempts, sent=sent, failure=failure, size=size
            )
            span.set(
                **{
                    SPAN_INPUT_TOKENS: call.input_tokens,
                    SPAN_OUTPUT_TOKENS: call.output_tokens,
                    SPAN_CACHED_TOKENS: call.cached_tokens,
                    SPAN_ERROR: None if failure is None else failure.verdict,
                }
            )
            if captures_content():
                span.set(
                    **{
                        SPAN_INPUT_MESSAGES: json.dumps(convert_to_openai_messages(messages)),
                        SPAN_OUTPUT_MESSAGES: None if reply is None else reply.text,
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
        read = _token_count(usage.get("input_tokens"), guess)
        written = _token_count(usage.get("output_tokens"))
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
            cached_tokens=_token_count(details.get("cache_read")) if attempts else 0,
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
        return message.model_copy(update={"content": CALLING_TEXT})
    if isinstance(message.content, str):
        return message.model_copy(update={"content": redactor.redact(message.content)})
    parts = [
        {**part, "text": redactor.redact(part["text"])}
        if isinstance(part, dict) and isinstance(part.get("text"), str)
        else part
        for part in message.content
    ]
    return message.model_copy(update={"content": parts})


def _token_count(tokens: object, otherwise: int = 0) -> int:
    return min(max(0, tokens), MOST_COUNTED_TOKENS) if isinstance(tokens, int) else otherwise


def _cut_off(reply: AIMessage, max_tokens: int) -> ModelError | None:
    if reply.response_metadata.get("finish_reason") != "length":
        return None
    return ModelError(
        "length",
        f"the reply was cut off at {max_tokens} tokens; raise llm_max_tokens, or the server's "
        "context length",
    )


# Answers under a schema, by the strictest method that the endpoint supports.
#
# The methods are tried from strictest to loosest, and the one that worked is stored for the
# endpoint: a grammar-constrained `json_schema` (vLLM, hosted services), a forced function call, a
# `json_object` with the schema beside it (llama.cpp's server), and plain instructions. An invalid
# answer is sent back once with the first error; after that the call has failed.


T = TypeVar("T", bound=BaseModel)

JSON_SCHEMA, FUNCTION, JSON_OBJECT, PROMPT = METHODS = (
    "json_schema",
    "function_calling",
    "json_object",
    "prompt",
)


def ask(chat: GuardedChat, messages: list[BaseMessage], schema: type[T]) -> T:
    """The model's answer to `messages` as a `schema`.

    Raises `ModelError`: `malformed` or `echo` if no answer is valid even after one repair, or as
    `GuardedChat` does.
    """
    place, model = chat.endpoint.place, chat.endpoint.model
    proven = chat.store.method(place, model)
    failure: ModelError | None = None
    for method in sorted(METHODS, key=lambda one: one != proven):
        try:
            answer = _repaired(chat, messages, schema, method)
        except ModelError as error:
            failure = error
            # Only a refusal, or an answer that ignores the method, speaks for another method.
            if error.verdict not in ("rejected", "malformed", "echo"):
                raise
            continue
        if method != proven:
            chat.store.learn(place, model, method)
        return answer
    assert failure is not None
    raise failure


def _repaired(chat: GuardedChat, messages: list[BaseMessage], schema: type[T], method: str) -> T:
    reply = _request(chat, messages, schema, method)
    try:
        return parse_answer(_answer(reply), schema)
    except ModelError as error:
        said = _answer(reply)
        complaint = f"That answer cannot be used: {error}. Answer again, with the JSON object only."
        again = [*messages, AIMessage(said if isinstance(said, str) else json.dumps(said))]
        reply = _request(chat, [*again, HumanMessage(complaint)], schema, method)
        return parse_answer(_answer(reply), schema)


def _request(
    chat: GuardedChat, messages: list[BaseMessage], schema: type[BaseModel], method: str
) -> AIMessage:
    name, shape = schema.__name__, schema.model_json_schema()
    strict = _strict(shape)
    options: dict[str, Any] = {}
    if method == JSON_SCHEMA:
        described = {"name": name, "schema": strict, "strict": True}
        options["response_format"] = {"type": "json_schema", "json_schema": described}
    elif method == FUNCTION:
        # Without `strict`, vLLM does not hold the model to the parameters.
        function = {
            "name": name,
            "description": schema.__doc__ or name,
            "parameters": strict,
            "strict": True,
        }
        options["tools"] = [{"type": "function", "function": function}]
        options["tool_choice"] = {"type": "function", "function": {"name": name}}
    elif method == JSON_OBJECT:
        options["response_format"] = {"type": "json_object", "schema": shape}
    else:
        order = "Answer with one JSON object and nothing else. It must fit this JSON schema:\n"
        messages = [*messages, HumanMessage(order + json.dumps(shape, sort_keys=True))]
    return chat.invoke(messages, **options)


def _strict(shape: Any) -> Any:
    """A JSON schema as strict ones have to be: every property required, none beside them.

    Hosted services refuse others; what may be left out has a null, a false or an empty list.
    """
    if isinstance(shape, list):
        return [_strict(one) for one in shape]
    if not isinstance(shape, dict):
        return shape
    out = {key: _strict(one) for key, one in shape.items() if key != "default"}
    properties = out.get("properties")
    if out.get("type") == "object" and isinstance(properties, dict):
        out |= {"required": list(properties), "additionalProperties": False}
    return out


def _answer(reply: AIMessage) -> str | dict[str, Any]:
    return reply.tool_calls[0]["args"] if reply.tool_calls else reply.text


def parse_answer(reply: str | dict[str, Any], schema: type[T]) -> T:
    """The `schema` in a model's reply; raises `ModelError`, `malformed` or `echo`."""
    failure = "it holds no JSON object"
    for document in [reply] if isinstance(reply, dict) else _json_objects(reply):
        if _is_echo(document, schema):
            raise ModelError("echo", "it repeats the schema instead of filling it")
        try:
            return schema.model_validate(document)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "the object"
            failure = f"{where}: {first['msg']}"
    raise ModelError("malformed", failure)


def _is_echo(found: dict[str, Any], schema: type[BaseModel]) -> bool:
    fields = set(schema.model_fields)
    return "properties" in found and "properties" not in fields and not fields & set(found)


# Linear: a thought that is opened again is not searched to the end of the text each time.
_THOUGHT = re.compile(r"<think>[^<]*+(?:<(?!/?think>)[^<]*+)*+</think>")


def _json_objects(text: str) -> Iterator[dict[str, Any]]:
    """The JSON objects in a text, outermost ones, in order."""
    text = _THOUGHT.sub("", text)
    decode: Callable[..., tuple[Any, int]] = json.JSONDecoder().raw_decode
    at = text.find("{")
    tries = 0
    while at >= 0 and tries < 50:
        tries += 1
        try:
            document, end = decode(text, at)
        except (ValueError, RecursionError):
            end = at + 1
        else:
            if isinstance(document, dict):
                yield document
        at = text.find("{", end)


# OpenTelemetry spans of model calls, where the OpenTelemetry API is installed.
#
# Names follow the GenAI semantic conventions (open-telemetry/semantic-conventions-genai, still in
# development): they live in this one file. What is said to and by a model is recorded only when
# OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT is `true`, and then redacted as it was sent.


SPAN_OPERATION = "gen_ai.operation.name"
SPAN_PROVIDER = "gen_ai.provider.name"
SPAN_REQUEST_MODEL = "gen_ai.request.model"
SPAN_REQUEST_MAX_TOKENS = "gen_ai.request.max_tokens"
SPAN_INPUT_TOKENS = "gen_ai.usage.input_tokens"
SPAN_OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
SPAN_CACHED_TOKENS = "gen_ai.usage.cache_read.input_tokens"
SPAN_INPUT_MESSAGES = "gen_ai.input.messages"
SPAN_OUTPUT_MESSAGES = "gen_ai.output.messages"
SPAN_SERVER = "server.address"
SPAN_ERROR = "error.type"

CAPTURE_VARIABLE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"


class CallSpan:
    """A span that may not exist; attributes set to None are left out."""

    def __init__(self, inner: Any = None) -> None:
        self._inner = inner

    def set(self, **attributes: Any) -> None:
        """Set attributes by their constants' values, given as a mapping with `**`."""
        if self._inner is not None:
            for name, value in attributes.items():
                if value is not None:
                    self._inner.set_attribute(name, value)


@contextmanager
def call_span(operation: str, subject: str, **attributes: Any) -> Iterator[CallSpan]:
    """A span named `{operation} {subject}` around the block; without OpenTelemetry, nothing."""
    try:
        trace: Any = import_module("opentelemetry.trace")
    except ImportError:
        yield CallSpan()
        return
    tracer = trace.get_tracer("schedmate")
    with tracer.start_as_current_span(f"{operation} {subject}".strip()) as inner:
        wrapped = CallSpan(inner)
        wrapped.set(**{SPAN_OPERATION: operation, **attributes})
        yield wrapped


def captures_content() -> bool:
    """Whether messages may be recorded."""
    return os.environ.get(CAPTURE_VARIABLE, "").strip().lower() == "true"
