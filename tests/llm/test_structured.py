"""Answers under a schema from servers that support it in different ways, or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import HumanMessage
from openai_server import Raw, Request, completion, serve
from pydantic import BaseModel

from schedmate.base.errors import ModelError
from schedmate.llm import LLM
from schedmate.llm.chat import METHODS, ask, parse_answer

OpenModel = Callable[..., LLM]
REFUSAL = Raw(500, b'{"error": {"message": "unsupported response_format"}}')


class City(BaseModel):
    """A city and how many live there."""

    name: str
    people: int


GOOD = {"name": "Delft", "people": 106_000}
QUESTION = [HumanMessage("Tell me of Delft.")]


def method_of(request: Request) -> str:
    if "tools" in request:
        return "function_calling"
    return request.get("response_format", {}).get("type", "prompt")


def only(*accepted: str) -> Callable[[Request], Any]:
    """A server that takes some methods and refuses all others."""

    def answer(request: Request) -> Any:
        method = method_of(request)
        if method not in accepted:
            return REFUSAL
        if method == "function_calling":
            return completion(None, [("City", GOOD)])
        return completion(json.dumps(GOOD))

    return answer


@pytest.mark.parametrize("method", METHODS)
def test_method_is_found_once_and_remembered(open_model: OpenModel, method: str) -> None:
    with serve(only(method)) as server:
        llm = open_model(server.url, cached=False)
        for _ in range(2):
            assert ask(llm.chat("test"), QUESTION, City) == City(**GOOD)
    tried = [method_of(request) for request in server.requests]
    assert tried == [*METHODS[: METHODS.index(method) + 1], method]


def test_a_server_that_changed_is_found_out_again(open_model: OpenModel) -> None:
    with serve(only("json_schema")) as server:
        llm = open_model(server.url, cached=False)
        ask(llm.chat("test"), QUESTION, City)
        server.answer = only("json_object")
        assert ask(llm.chat("test"), QUESTION, City).name == "Delft"
        assert llm.store.method(llm.endpoint.place, "test-7B") == "json_object"


def test_schema_reaches_the_server(open_model: OpenModel) -> None:
    with serve(only("prompt")) as server:
        ask(open_model(server.url).chat("test"), QUESTION, City)
    by_method = {method_of(request): request for request in server.requests}
    schema = City.model_json_schema()
    strict = schema | {"additionalProperties": False}
    assert by_method["json_schema"]["response_format"]["json_schema"]["schema"] == strict
    assert by_method["function_calling"]["tools"][0]["function"]["parameters"] == strict
    assert by_method["function_calling"]["tool_choice"]["function"]["name"] == "City"
    assert by_method["json_object"]["response_format"]["schema"] == schema
    assert json.dumps(schema, sort_keys=True) in by_method["prompt"]["messages"][-1]["content"]


def test_wrong_answer_is_sent_back_once_with_the_error(open_model: OpenModel) -> None:
    replies = ['{"name": "Delft", "people": "many"}', json.dumps(GOOD)]
    with serve(lambda request: completion(replies[len(server.requests) - 1])) as server:
        assert ask(open_model(server.url).chat("test"), QUESTION, City).people == 106_000
    complaint = server.requests[1]["messages"][-1]["content"]
    assert "people" in complaint
    assert server.requests[1]["messages"][-2]["content"] == replies[0]


@pytest.mark.parametrize(
    ("content", "verdict"),
    [
        (json.dumps(City.model_json_schema()), "echo"),
        ("I would rather not.", "malformed"),
        ('{"name": "Delft"}', "malformed"),
        ('{"name": "Delft", "people": ', "malformed"),
        ("", "malformed"),
        ("[1, 2]", "malformed"),
        ("{" * 5000, "malformed"),
    ],
)
def test_hopeless_answers_end_in_a_verdict(
    open_model: OpenModel, content: str, verdict: str
) -> None:
    with serve(lambda request: completion(content)) as server:
        with pytest.raises(ModelError) as caught:
            ask(open_model(server.url).chat("test"), QUESTION, City)
    assert caught.value.verdict == verdict
    assert len(server.requests) <= 2 * len(METHODS)


def test_a_dead_server_is_not_asked_by_every_method(open_model: OpenModel) -> None:
    with serve(lambda request: Raw(503, b"", {"retry-after": "0"})) as server:
        with pytest.raises(ModelError) as caught:
            ask(open_model(server.url).chat("test"), QUESTION, City)
    assert caught.value.verdict == "unavailable"
    assert {method_of(request) for request in server.requests} == {"json_schema"}


@pytest.mark.parametrize(
    "said",
    [
        json.dumps(GOOD),
        f"Here it is:\n```json\n{json.dumps(GOOD, indent=2)}\n```\nAnything else?",
        f'<think>maybe {{"name": "Gouda", "people": 1}}</think>{json.dumps(GOOD)}',
        f'{{"note": "first an example"}} and then {json.dumps(GOOD)}',
    ],
)
def test_the_object_is_found_in_talk(said: str) -> None:
    assert parse_answer(said, City) == City(**GOOD)


@given(st.text(max_size=200))
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(ModelError):  # no text this short is a city by chance
        parse_answer(text, City)
