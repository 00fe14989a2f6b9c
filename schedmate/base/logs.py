"""The log of what runs for months, on standard error: lines of JSON, or of text."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Literal

from schedmate.base.data import plain
from schedmate.base.terminal import clean

LogFormat = Literal["json", "text"]
SERVICE, AGENT = "schedmate.serve", "schedmate.agent"
"""The loggers of the service and of the agents."""


class JsonFormatter(logging.Formatter):
    """`{"time": ..., "level": ..., "logger": ..., "message": ...}` and the fields of a line: those
    of a request, or of a pass over the cluster."""

    def format(self, record: logging.LogRecord) -> str:
        """One line of JSON, without control characters."""
        document = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": clean(record.getMessage()),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            document["exception"] = self.formatException(record.exc_info)
        return json.dumps(plain(document))


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return f"{record.levelname.lower()}: {clean(record.getMessage())}"


@contextmanager
def logged(form: LogFormat, *, requests: bool = False) -> Iterator[None]:
    """Within it, schedmate and the server write this log; with `requests`, a line for each."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else _TextFormatter())
    levels = {
        "schedmate": None,
        SERVICE: logging.INFO,
        AGENT: logging.INFO,
        f"{SERVICE}.request": logging.INFO if requests else logging.WARNING,
        "uvicorn": logging.WARNING,
    }
    loggers = [logging.getLogger(name) for name in levels]
    before = [(one.handlers, one.propagate, one.level) for one in loggers]
    for logger, level in zip(loggers, levels.values(), strict=True):
        if "." not in logger.name:
            logger.handlers, logger.propagate = [handler], False
        if level is not None:
            logger.setLevel(level)
    try:
        yield
    finally:
        for logger, (handlers, propagate, was) in zip(loggers, before, strict=True):
            logger.handlers, logger.propagate = handlers, propagate
            logger.setLevel(was)
