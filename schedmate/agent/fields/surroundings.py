"""What a value has to do with the training loop, and what the line that states it stands in.

A trace says where the training loops are and what they count up to, and which calls were made only
under a condition that was not decided. The lines above one in a Python file say which function and
which branches it is in.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from schedmate.agent.values import Origin

_HEADER = re.compile(r"(async\s+)?(if|elif|else|for|while|def|class)\b(.*)")
_BRANCHES = ("if", "elif", "else")
_ENTRY = re.compile(r"_?(main|train|run|fit|launch|start|cli)\w*", re.IGNORECASE)
"""Functions that a program begins with."""
ENDS = "ends the training loop"
FACTS = (
    "in the training loop's function",
    "in the program's file",
    "in the entry function",
    "in a branch",
    "made under a condition alone",
)
"""What lines stand in; `benchmarks/fit_fields.py` tried more facts, which told no wrong answers."""


class Surroundings:
    """Where one run trains, to say what lines of its program have to do with it."""

    def __init__(self, trace: Any, entry: str | None) -> None:
        """Args: the trace of the run, and the program's file, relative to its repository."""
        self.entry = entry
        self.loops = {(one.site.file, one.function) for one in trace.loops if one.has_backward}
        self.ends = {
            _key(one.bound.origin, one.bound.data)
            for one in trace.loops
            if one.has_backward and one.certain and one.bound.origin is not None
        }
        self.certain: dict[tuple[str, int], bool] = {}
        for event in trace.calls:
            place = event.site.file, event.site.line
            self.certain[place] = event.certain or self.certain.get(place, False)

    def of_value(self, origin: Origin | None, data: Any) -> dict[str, float]:
        """Whether a value flows into the training loop, as what that counts up to."""
        return {ENDS: 1.0} if origin is not None and _key(origin, data) in self.ends else {}

    def facts(self, file: str, line: int, text: Sequence[str]) -> dict[str, float]:
        """The facts about a 1-based line of a Python file, whose lines are `text`."""
        headers = enclosing(text, line)
        function = next((_name(rest) for kind, rest in headers if kind == "def"), "")
        conditions = [rest for kind, rest in headers if kind in _BRANCHES]
        own = file == self.entry
        values = (
            (file, function) in self.loops,
            own,
            own and (not function or _ENTRY.fullmatch(function) is not None),
            any("__main__" not in condition for condition in conditions),
            not self.certain.get((file, line), True),
        )
        return {fact: 1.0 for fact, holds in zip(FACTS, values, strict=True) if holds}


def _key(origin: Origin, data: Any) -> tuple[object, ...]:
    """What a value is known by wherever it goes."""
    return origin.source, origin.file, origin.line, origin.text, str(data)


def enclosing(text: Sequence[str], line: int) -> list[tuple[str, str]]:
    """The headers of the blocks that a 1-based line stands in, innermost first: kind and rest."""
    if not 0 < line <= len(text):
        return []
    found = []
    least = _indent(text[line - 1])
    for number in range(line - 2, -1, -1):
        if not least:
            break
        stripped = text[number].strip()
        indent = _indent(text[number])
        if not stripped or stripped[0] in "#)]}'\"" or indent >= least:
            continue
        least = indent
        header = _HEADER.match(stripped)
        if header is not None:
            found.append((header[2], header[3]))
    return found


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _name(rest: str) -> str:
    name = re.match(r"\s*(\w+)", rest)
    return name[1] if name is not None else ""
