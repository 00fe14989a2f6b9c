"""torchelastic's error.json: what the first worker to fail wrote about its own exception."""

from __future__ import annotations

from schedmate.logparse.failure.rules import EXCEPTION, RuleSet, best
from schedmate.logparse.failure.scan import Event
from schedmate.logparse.reading import Line, Log, LogFile
from schedmate.logparse.reading.storage import store


def from_error_files(log: Log, rules: RuleSet) -> Event | None:
    """The earliest recorded exception that is a fault of its own, or None."""
    found: list[Event] = []
    for error in log.error_files:
        texts = [*error.traceback.splitlines(), error.message]
        candidates = []
        for text in texts:
            if not text.strip() or text[0].isspace():
                continue
            candidates.append(rules.line(text))
            match = EXCEPTION.match(text)
            if match is not None:
                candidates.append(rules.exception(match["name"]))
        rule = best(one for one in candidates if one is not None and one.role == "cause")
        if rule is None:
            continue
        storage, _ = store(error.path)
        file = LogFile(str(error.path), storage, error.path, error.rank)
        line = Line(1, error.message, error.rank, None, error.time, "", b"")
        found.append(
            Event(rule, file, 1, error.message, 1, (line,), error.rank, None, error.time, True)
        )
    return min(found, key=lambda event: (event.time is None, event.time or 0.0), default=None)
