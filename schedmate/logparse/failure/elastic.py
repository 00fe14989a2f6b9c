"""The first worker that failed, by torchelastic's error.json or the launcher's summary."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from schedmate.logparse.failure.events import Event
from schedmate.logparse.failure.rules import EXCEPTION, RuleSet, best
from schedmate.logparse.reading import ErrorFile, Line, Log, LogFile
from schedmate.logparse.reading.storage import store


def from_error_files(log: Log, rules: RuleSet) -> Event | None:
    """The earliest recorded exception of the last attempt that is a cause, or None."""
    found: list[Event] = []
    last = max(map(_attempt, log.error_files), default=0)
    for error in log.error_files:
        if _attempt(error) < last:
            continue
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
        storage, _ = store(error.path, error.folder)
        file = LogFile(str(error.path), storage, error.path, error.rank)
        line = Line(1, error.message, error.rank, None, error.time, "", b"")
        found.append(
            Event(rule, file, 1, error.message, 1, (line,), error.rank, None, error.time, True)
        )
    return min(found, key=lambda event: (event.time is None, event.time or 0.0), default=None)


def _attempt(error: ErrorFile) -> int:
    """The attempt's folder in torchelastic's layout, RUN_ID/attempt_1/3/error.json."""
    found = [int(match[1]) for part in error.path.parts if (match := _ATTEMPT.fullmatch(part))]
    return found[-1] if found else 0


class Summary(NamedTuple):
    """The launcher's "Root Cause (first observed failure)"."""

    rank: int
    host: str | None


_ATTEMPT = re.compile(r"attempt_(\d{1,6})")
_ROOT = "Root Cause (first observed failure)"
SUMMARY = 12
"""Limit for the lines of such a summary."""
_RANK = re.compile(r"\s*rank\s*: (\d{1,6}) \(local_rank: \d+\)")
_HOST = re.compile(r"\s*host\s*: (\S+)")


def summary(events: Iterable[Event]) -> Summary | None:
    """The rank and host that the first such summary names."""
    for event in events:
        if _ROOT not in event.text:
            continue
        first = event.known_at
        texts = [line.text for line in event.file.lines(first, first + SUMMARY)]
        ranks = [match for text in texts if (match := _RANK.match(text))]
        hosts = [match for text in texts if (match := _HOST.match(text))]
        if ranks:
            return Summary(int(ranks[0][1]), hosts[0][1] if hosts else None)
    return None
