"""Log lines as JSON, one object a line, on standard error."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

from schedmate.plain import plain
from schedmate.terminal import clean

OURS = "schedmate.serve"


class JsonFormatter(logging.Formatter):
    """`{"time": ..., "level": ..., "logger": ..., "message": ...}` and the fields of a request."""

    def format(self, record: logging.LogRecord) -> str:
        """One line of JSON, without anything that could control a terminal."""
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


def log_as_json(*, requests: bool) -> None:
    """Have schedmate and the server write JSON; with `requests`, a line for each request."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    for name in ("schedmate", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
    logging.getLogger(OURS).setLevel(logging.INFO)
    logging.getLogger(f"{OURS}.request").setLevel(logging.INFO if requests else logging.WARNING)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
