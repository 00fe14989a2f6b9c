"""All files of a job's log, scanned: the last attempt of each, and its events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from schedmate.errors import UsageError
from schedmate.logparse.failure.binary import probe
from schedmate.logparse.failure.ending import end_of
from schedmate.logparse.failure.filters import Healthy
from schedmate.logparse.failure.rules import RuleSet
from schedmate.logparse.failure.scan import FileScan, scan
from schedmate.logparse.reading import Attempt, Log, LogFile, attempts
from schedmate.logparse.signs import last_sign

Locator = Literal["auto", "scan", "binary"]
SCAN_UP_TO = 1 << 32
"""Size of the largest log that is read whole by default [bytes]."""


@dataclass
class Examined:
    """The scans of all files, and which attempt of how many they show."""

    locator: Literal["scan", "binary"]
    scans: list[FileScan] = field(default_factory=list)
    attempt: int = 1
    attempts: int = 1
    probes: int = 0


def examine(log: Log, rules: RuleSet, usual: Healthy, locator: Locator = "auto") -> Examined:
    """Scan each file of `log` once; events that `usual` knows are left out.

    Raises `UsageError` for an unknown locator.
    """
    if locator == "auto":
        locator = "scan" if log.size <= SCAN_UP_TO else "binary"
    if locator not in ("scan", "binary"):
        raise UsageError(f"there is no locator {locator!r}; use scan, binary or auto.")
    result = Examined(locator)
    for file in log.files:
        if locator == "binary":
            last = Attempt(1, max(1, file.line_count()), 0, file.size, "")
            last, looked = probe(file, last)
            result.probes += looked
        else:
            found = attempts(file)
            last = _last_that_tells(file, found, rules)
            if len(found) > result.attempts:
                result.attempts, result.attempt = len(found), found.index(last) + 1
        one = scan(file, last, rules)
        one.events = [event for event in one.events if not usual.knows(event)]
        result.scans.append(one)
        file.close()
    return result


def _last_that_tells(file: LogFile, found: Sequence[Attempt], rules: RuleSet) -> Attempt:
    """The last attempt, or the last failed one if those after it show nothing.

    An attempt supersedes earlier ones if it trains, ends well or fails itself. Lines that only look
    like the beginning of an attempt do not count.
    """
    for attempt in reversed(found):
        one = scan(file, attempt, rules)
        if one.events:
            return attempt
        trained = last_sign("progress", file, attempt.offset, attempt.end)
        if trained is not None or end_of([one]) is not None:
            break
    return found[-1]
