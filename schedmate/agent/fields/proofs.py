"""What is cited for a value: a line that exists, a flag as it is written, or a named default.

A citation is worth no more than what a reader finds there. So it is looked up before it is shown: a
line that is not in the repository is not cited, and where a line does not state the value, the
evidence says what it was computed from.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from schedmate.agent.fields.candidates import Candidate
from schedmate.agent.values import Place
from schedmate.jobs import Evidence
from schedmate.paths import is_file, resolved

MAX_FORMULA = 120
"""Most characters of a line that are shown [characters]."""
_MAX_BYTES = 4_000_000
_UNPROVED = 0.5
"""Most confidence in a value that no line, flag or named default can be cited for."""
_NUMBER = re.compile(r"\d[\d_]*(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?")
_HEADING = 3
"""Most lines between a section's first entry and its name, for comments and blank lines."""
_STATEMENT = 5
"""Most further lines of a statement that are looked at."""
_GOES_ON = ("(", "[", "{", ",", "\\", "=", ":")
_IN_FILES = ("script", "config", "default", "code")


class Lines:
    """The lines of a repository's files, each file read once, and none that lies outside."""

    def __init__(self, root: Path) -> None:
        self._root = resolved(root)
        self._files: dict[str, list[str]] = {}

    def at(self, place: Place) -> str | None:
        """A line without the blanks around it; None where there is none."""
        lines = self.of(place.file)
        return lines[place.line - 1].strip() if 0 < place.line <= len(lines) else None

    def of(self, file: str) -> list[str]:
        """All lines of a file of the repository; none where there is no such file."""
        if file not in self._files:
            path = resolved(self._root / file)
            inside = path.is_relative_to(self._root) and is_file(path)
            self._files[file] = _read(path) if inside else []
        return self._files[file]

    def statement(self, place: Place, value: Any) -> str:
        """A line, and of a statement that goes on the line of it that states a value."""
        first = self.at(place) or ""
        if first.endswith(_GOES_ON):
            for number in range(place.line + 1, place.line + 1 + _STATEMENT):
                line = self.at(Place(place.file, number))
                if line and states(line, value):
                    return f"{first} … {line}"
        return first

    def naming(self, place: Place, name: str) -> Place:
        """The line of a section's name, of a section whose first line is `place`, if it is it."""
        if not states(self.at(place) or "", name):
            for number in range(place.line - 1, max(0, place.line - 1 - _HEADING), -1):
                if states(self.at(Place(place.file, number)) or "", name):
                    return Place(place.file, number)
        return place


def _read(path: Path) -> list[str]:
    try:
        with path.open("rb") as stream:
            return stream.read(_MAX_BYTES).decode(errors="replace").splitlines()
    except OSError:
        return []


def evidence_of(candidate: Candidate, lines: Lines, unit_of: str | None = None) -> Evidence:
    """The evidence of a chosen candidate, looked up.

    Args:
        candidate: the value that was chosen.
        lines: the repository that it is from.
        unit_of: the field whose unit the candidate is, which the same line tells.
    """
    proof = candidate.evidence()
    place = Place(proof.file, proof.line) if proof.file and proof.line else None
    if place is not None and proof.source == "config" and isinstance(proof.value, str):
        place = lines.naming(place, proof.value)
        proof.line = place.line
    line = lines.at(place) if place is not None else None
    if place is not None and line is None:
        proof.file = proof.line = None
    if proof.source in _IN_FILES and proof.file is None:
        proof.confidence = min(proof.confidence, _UNPROVED)
        proof.note = proof.note or "where this is said is not known"
    if unit_of is not None:
        proof.note = proof.note or f"the unit of {unit_of}"
        return proof
    if proof.source != "derived":  # whose note says what it was derived from
        proof.formula = _formula(candidate, place, line, lines)
    return proof


def _formula(
    candidate: Candidate, place: Place | None, line: str | None, lines: Lines
) -> str | None:
    computed = candidate.origin.computed if candidate.origin is not None else None
    if isinstance(computed, str):
        return computed
    if candidate.data is None:  # the expression is all there is
        return _short(line) if line else None
    if computed is not None and computed != place:
        text = lines.at(computed)
        if text and not (line and states(line, candidate.data)):
            return _short(f"{text}, {computed.file}:{computed.line}")
    if line and place and not states(line, candidate.data):
        return _short(lines.statement(place, candidate.data))
    return None


def _short(text: str) -> str:
    return text if len(text) <= MAX_FORMULA else f"{text[: MAX_FORMULA - 1]}…"


def states(line: str, value: Any) -> bool:
    """Whether a line holds a value as a literal, however it is spelled."""
    if isinstance(value, bool) or value is None:
        return True
    if isinstance(value, int | float):
        return any(_number(text) == value for text in _NUMBER.findall(line))
    return letters(str(value)) in letters(line)


def _number(text: str) -> float | None:
    try:
        return float(text.replace("_", ""))
    except ValueError:
        return None


def letters(text: str) -> str:
    """A text by its letters and digits alone."""
    return re.sub(r"[^a-z0-9]", "", text.lower())
