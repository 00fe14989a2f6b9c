"""Spans of model calls, with a real OpenTelemetry SDK."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from langchain_core.messages import HumanMessage
from openai_server import Raw, completion, serve
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from schedmate.base.errors import ModelError
from schedmate.llm import LLM
from schedmate.llm.chat import CAPTURE_VARIABLE

OpenModel = Callable[..., LLM]
_exporter = InMemorySpanExporter()


@pytest.fixture
def spans() -> InMemorySpanExporter:
    if not isinstance(trace.get_tracer_provider(), TracerProvider):
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(_exporter))
        trace.set_tracer_provider(provider)  # may be set once a process
    _exporter.clear()
    return _exporter


def test_a_call_is_a_span_without_content(
    open_model: OpenModel, spans: InMemorySpanExporter
) -> None:
    with serve(lambda request: completion("the reply", cached=40)) as server:
        open_model(server.url).chat("test").invoke([HumanMessage("the question")])
    [span] = spans.get_finished_spans()
    assert span.name == "chat test-7B"
    said = dict(span.attributes or {})
    assert said["gen_ai.operation.name"] == "chat"
    assert said["gen_ai.request.model"] == "test-7B"
    assert said["gen_ai.usage.input_tokens"] == 100
    assert said["gen_ai.usage.output_tokens"] == 10
    assert said["gen_ai.usage.cache_read.input_tokens"] == 40
    assert "question" not in json.dumps(said)
    assert "reply" not in json.dumps(said)


def test_content_only_on_request_and_redacted(
    open_model: OpenModel, spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CAPTURE_VARIABLE, "true")
    secret = "AKIA" + "IOSFODNN7EXAMPLQ"
    with serve(lambda request: completion("the reply")) as server:
        open_model(server.url).chat("test").invoke([HumanMessage(f"use {secret} please")])
    said = json.dumps(dict(spans.get_finished_spans()[0].attributes or {}))
    assert "please" in said
    assert "the reply" in said
    assert secret not in said


def test_a_failure_is_named(open_model: OpenModel, spans: InMemorySpanExporter) -> None:
    with serve(lambda request: Raw(400, b"no")) as server, pytest.raises(ModelError):
        open_model(server.url).chat("test").invoke([HumanMessage("hello")])
    assert dict(spans.get_finished_spans()[0].attributes or {})["error.type"] == "rejected"
