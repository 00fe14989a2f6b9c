"""What the rank that others waited for was doing, by its last lines (`meanwhile.yaml`)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from schedmate.data import load
from schedmate.jobs import ErrorType, FaultyComponent
from schedmate.logparse.failure.events import Event
from schedmate.logparse.failure.filters import overcome
from schedmate.logparse.failure.scan import FileScan
from schedmate.logparse.reading import Line, LogFile
from schedmate.logparse.signs import signs
from schedmate.logparse.templates import mask

REACH = 400
"""Lines read above the first timeout."""


class Activity(NamedTuple):
    """A kind of work that others may wait for, and how to classify a failure during it."""

    id: str
    type: ErrorType
    component: FaultyComponent | None
    undecided: bool
    recurs: bool
    pattern: Any


class Doing(NamedTuple):
    """What a rank was doing, and the line that says so."""

    activity: Activity
    file: LogFile
    line: Line


def meanwhile(
    symptoms: Sequence[Event], missing: Sequence[int], scans: Sequence[FileScan]
) -> Doing | None:
    """What a rank was doing while those of `symptoms` waited, or None if no line says.

    `missing` are the ranks that did not arrive, if known; otherwise any rank counts that reports no
    timeout itself.
    """
    reporters = {event.rank for event in symptoms} - {None}
    for one in scans:
        here = [event.number for event in symptoms if event.file is one.file]
        if one.file.rank is not None and not _may_be(one.file.rank, missing, reporters):
            continue
        last = min(here) - 1 if here else one.attempt.last_line
        first = max(one.attempt.first_line, last - REACH)
        lines = [
            line
            for line in one.file.lines(first, last)
            # without a rank it is the first one's, which prints for all
            if one.file.rank is not None or _may_be(line.rank or 0, missing, reporters)
        ]
        found = _last_work(lines)
        if found is not None and not _usual(*found, one):
            return Doing(found[0], one.file, found[1])
    return None


def _usual(activity: Activity, line: Line, one: FileScan) -> bool:
    """Whether training continued after a line like this one, for work that is done only once."""
    if activity.recurs or one.step is None:
        return False
    after = one.file.line_number(one.step.offset)
    if after > line.number:
        return False
    before = overcome(
        one.file, one.attempt.first_line, after, lambda text: bool(activity.pattern.search(text))
    )
    return mask(line.text) in before


def _may_be(rank: int, missing: Sequence[int], reporters: set[int | None]) -> bool:
    return rank in missing if missing else rank not in reporters


def _last_work(lines: Sequence[Line]) -> tuple[Activity, Line] | None:
    """The last work that is not finished, unless training continued after it."""
    activities, over = _known()
    for line in reversed(lines):
        text = line.text[:500]
        for activity in activities:
            if activity.pattern.search(text) is not None:
                return None if over.search(text) is not None else (activity, line)
        if over.search(text) or signs("progress").sign(text.encode("utf-8", "replace")):
            return None
    return None


def activity(text: str) -> Activity | None:
    """The kind of work that a line mentions, finished or not, or None."""
    return next((one for one in _known()[0] if one.pattern.search(text[:500])), None)


@cache
def _known() -> tuple[list[Activity], Any]:
    import re2

    data = load("logparse/failure/meanwhile.yaml")
    activities = [
        Activity(
            entry["id"],
            entry["type"],
            entry.get("component"),
            entry.get("undecided", False),
            entry.get("recurs", False),
            re2.compile(entry["pattern"]),
        )
        for entry in data["activities"]
    ]
    return activities, re2.compile(data["over"])
