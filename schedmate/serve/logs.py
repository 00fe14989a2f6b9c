"""Log lines as JSON, one object a line, on standard error."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from schedmate.plain import plain
from schedmate.terminal import clean

OURS = "schedmate.serve"


class JsonFormatter(logging.Formatter):
    """`{"time": ..., "level": ..., "logger": ..., "message": ...}` and the fields of a request."""

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


@contextmanager
def logged_as_json(*, requests: bool) -> Iterator[None]:
    """Within it, schedmate and the server write JSON; with `requests`, a line for each request."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    levels = {
        "schedmate": None,
        OURS: logging.INFO,
        f"{OURS}.request": logging.INFO if requests else logging.WARNING,
        "uvicorn": logging.WARNING,
    }
    loggers = [logging.getLogger(name) for name in levels]
    before = [(one.handlers, one.propagate, one.level) for one in loggers]
    for logger, level in zip(loggers, levels.values(), strict=True):
        if not logger.name.startswith(OURS):
            logger.handlers, logger.propagate = [handler], False
        if level is not None:
            logger.setLevel(level)
    try:
        yield
    finally:
        for logger, (handlers, propagate, was) in zip(loggers, before, strict=True):
            logger.handlers, logger.propagate = handlers, propagate
            logger.setLevel(was)
