"""Answers under a schema, by the strictest method that the endpoint supports.

The methods are tried from strictest to loosest, and the one that worked is stored for the endpoint:
a grammar-constrained `json_schema` (vLLM, hosted services), a forced function call, a `json_object`
with the schema beside it (llama.cpp's server), and plain instructions. An invalid answer is sent
back once with the first error; after that the call has failed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from pydantic import BaseModel, ValidationError

from schedmate.errors import ModelError
from schedmate.llm.chat import GuardedChat

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
    known = chat.store.method(place, model)
    failure: ModelError | None = None
    for method in sorted(METHODS, key=lambda one: one != known):
        try:
            answer = _repaired(chat, messages, schema, method)
        except ModelError as error:
            failure = error
            # Only a refusal, or an answer that ignores the method, speaks for another method.
            if error.verdict not in ("rejected", "malformed", "echo"):
                raise
            continue
        if method != known:
            chat.store.learn(place, model, method)
        return answer
    assert failure is not None
    raise failure


def _repaired(chat: GuardedChat, messages: list[BaseMessage], schema: type[T], method: str) -> T:
    reply = _request(chat, messages, schema, method)
    try:
        return parse(_answer(reply), schema)
    except ModelError as error:
        said = _answer(reply)
        complaint = f"That answer cannot be used: {error}. Answer again, with the JSON object only."
        again = [*messages, AIMessage(said if isinstance(said, str) else json.dumps(said))]
        reply = _request(chat, [*again, HumanMessage(complaint)], schema, method)
        return parse(_answer(reply), schema)


def _request(
    chat: GuardedChat, messages: list[BaseMessage], schema: type[BaseModel], method: str
) -> AIMessage:
    name, shape = schema.__name__, schema.model_json_schema()
    options: dict[str, Any] = {}
    if method == JSON_SCHEMA:
        described = {"name": name, "schema": shape, "strict": True}
        options["response_format"] = {"type": "json_schema", "json_schema": described}
    elif method == FUNCTION:
        # Without `strict`, vLLM does not hold the model to the parameters.
        function = {
            "name": name,
            "description": schema.__doc__ or name,
            "parameters": shape,
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


def _answer(reply: AIMessage) -> str | dict[str, Any]:
    return reply.tool_calls[0]["args"] if reply.tool_calls else reply.text


def parse(said: str | dict[str, Any], schema: type[T]) -> T:
    """The `schema` in a model's reply; raises `ModelError`, `malformed` or `echo`."""
    failure = "it holds no JSON object"
    for found in [said] if isinstance(said, dict) else _objects(said):
        if _is_echo(found, schema):
            raise ModelError("echo", "it repeats the schema instead of filling it")
        try:
            return schema.model_validate(found)
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


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """The JSON objects in a text, outermost ones, in order."""
    text = _THOUGHT.sub("", text)
    decode: Callable[..., tuple[Any, int]] = json.JSONDecoder().raw_decode
    at = text.find("{")
    tries = 0
    while at >= 0 and tries < 50:
        tries += 1
        try:
            found, end = decode(text, at)
        except (ValueError, RecursionError):
            end = at + 1
        else:
            if isinstance(found, dict):
                yield found
        at = text.find("{", end)
