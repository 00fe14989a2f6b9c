"""OpenTelemetry spans of model calls, where the OpenTelemetry API is installed.

Names follow the GenAI semantic conventions (open-telemetry/semantic-conventions-genai, still in
development): they live in this one file. What is said to and by a model is recorded only when
OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT is `true`, and then redacted as it was sent.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
REQUEST_MAX_TOKENS = "gen_ai.request.max_tokens"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHED_TOKENS = "gen_ai.usage.cache_read.input_tokens"
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
SERVER = "server.address"
ERROR = "error.type"

CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"


class Span:
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
def span(operation: str, subject: str, **attributes: Any) -> Iterator[Span]:
    """A span named `{operation} {subject}` around the block; without OpenTelemetry, nothing."""
    try:
        trace: Any = import_module("opentelemetry.trace")
    except ImportError:
        yield Span()
        return
    tracer = trace.get_tracer("schedmate")
    with tracer.start_as_current_span(f"{operation} {subject}".strip()) as inner:
        wrapped = Span(inner)
        wrapped.set(**{OPERATION: operation, **attributes})
        yield wrapped


def captures_content() -> bool:
    """Whether messages may be recorded."""
    return os.environ.get(CAPTURE, "").strip().lower() == "true"
