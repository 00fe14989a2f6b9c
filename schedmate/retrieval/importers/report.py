"""What an import read, kept and could not use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from pydantic import ValidationError

from schedmate.jobs import JobRecord
from schedmate.terminal import clean
from schedmate.validation import first_fault

MAX_PROBLEMS = 5
"""Bad rows whose reason is kept; the rest are only counted."""

Analyse = Callable[[JobRecord, str | None], JobRecord]
"""Fills a record's metadata, given the directory its command was typed in, if known."""


@dataclass(slots=True)
class ImportReport:
    """Counts of one import, filled while its records are drawn.

    `rows` counts jobs read, `bad` those that could not be used; `problems` holds the first
    `MAX_PROBLEMS` reasons, each with its place (`line 17`, `job 4`). `ignored` are columns that are
    called like a field's short name, by which alone none is taken.
    """

    rows: int = 0
    bad: int = 0
    problems: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)

    def reject(self, place: str, reason: str) -> None:
        """Count one bad row."""
        self.bad += 1
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(f"{place}: {reason}")


def reason(error: Exception) -> str:
    """One line that says why a row cannot be used, with the field where that is known."""
    if isinstance(error, KeyError):
        return f"no {clean(error.args[0], 100)}"
    if not isinstance(error, ValidationError):
        return clean(error, 400)
    return first_fault(error)
