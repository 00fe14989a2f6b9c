"""The lines of a log that a diagnosis quotes."""

from __future__ import annotations

from schedmate.jobs import EvidenceLine
from schedmate.logparse.failure.events import Event
from schedmate.logparse.reading import Line, LogFile

QUOTED = 12
"""Limit for the quoted lines of the first failure."""


def quotes(event: Event) -> list[EvidenceLine]:
    """The first lines, the last ones and the one that the rule matches."""
    lines = [line for line in event.lines if line.text.strip()]
    known = [line for line in lines if line.number == event.known_at]
    picked = lines
    if len(lines) > QUOTED:
        picked = [*lines[:2], *lines[2 - QUOTED :]]
    if known and known[0] not in picked:
        picked = [picked[0], known[0], *picked[1:]]
    return [
        EvidenceLine(
            file=event.file.name,
            line=line.number,
            text=_shown(event, line),
            note="decided" if line.number == event.known_at else None,
            origin=event.origin,
        )
        for line in picked
    ]


def _shown(event: Event, line: Line) -> str:
    """A line, or the part of a very long one that the rule matches."""
    text = line.text[:500]
    return event.text[:500] if line.number == event.known_at and event.text not in text else text


def quote(event: Event, note: str) -> EvidenceLine:
    """The line of an event that its rule matches."""
    return EvidenceLine(
        file=event.file.name,
        line=event.known_at,
        text=event.text[:500],
        note=note,
        origin=event.origin,
    )


def quoted(file: LogFile, line: Line, note: str) -> EvidenceLine:
    """A line of a job's log, with the reason why it is quoted."""
    return EvidenceLine(file=file.name, line=line.number, text=line.text[:500], note=note)
