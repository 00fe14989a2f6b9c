"""Facts that were tried and did not help: what a value flows into, and more of what it stands in.

A trace holds every call and loop with the origins of what they were given, so it shows whether a
value ends a training loop, reaches a call, or only does so under a condition that was not decided.
`fit_fields.py` records what each of them changes. What helps is in `fields/confidence.py`, of which
`Surroundings` is read here as it is today, whatever version of schedmate is measured.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from schedmate.agent.values import Origin, Value

CONFIDENCE = Path(__file__).parent.parent / "schedmate/agent/fields/confidence.py"
_today: dict[str, Any] = {"re": re, "Sequence": Sequence, "Any": Any, "Origin": Origin}
_last_section = CONFIDENCE.read_text().partition("\n# What a value has to do with the training")[2]
exec(f"from __future__ import annotations\n# {_last_section}", _today)
Surroundings, enclosing_blocks = _today["Surroundings"], _today["enclosing_blocks"]

MAX_CALLS = 5000
"""Calls that are looked through."""
_DEPTH, _ITEMS = 3, 12
"""How deep, and how many items of a container, arguments are looked through."""
Key = tuple[str, str | None, int | None, str | None, str]

_TRIAL = re.compile(
    r"(^|[^a-z])(debug\w*|smoke\w*|dry_?run|test(ing|_?mode|s)?|toy|demo|profil\w*|eval\w*|"
    r"infer\w*|sanity)([^a-z]|$)",
    re.IGNORECASE,
)
"""Conditions and functions of runs that try something out."""


class Flows:
    """Where the values of one run went: the key of a value is its origin and its text."""

    def __init__(self, trace: Any, entry: str | None) -> None:
        """Args: the trace of the run, and the file of the program, relative to its repository."""
        self.around = Surroundings(trace, entry)
        self.reached: dict[Key, list[bool]] = {}  # certain, in a loop
        self.any_loop: set[Key] = set()
        self.loop_files: set[str] = set()
        for loop in trace.loops:
            key = key_of(loop.bound.origin, loop.bound.data)
            if key is not None:
                self.any_loop.add(key)
            if loop.has_backward:
                self.loop_files.add(loop.site.file)
        for event in trace.calls[:MAX_CALLS]:
            seen: set[Key] = set()
            _keys([*event.args, *event.kwargs.values()], seen, 0)
            for key in seen:
                found = self.reached.setdefault(key, [False, False])
                found[0] = found[0] or event.certain
                found[1] = found[1] or event.in_loop


def key_of(origin: Origin | None, data: Any) -> Key | None:
    """What a value is known by wherever it goes; None where it is no plain one with an origin."""
    if origin is None or data is None or not isinstance(data, int | float | str):
        return None
    return origin.source, origin.file, origin.line, origin.text, str(data)


def _keys(values: Iterable[Any], seen: set[Key], depth: int) -> None:
    for value in list(values)[:_ITEMS]:
        if not isinstance(value, Value):
            continue
        data = value.data
        key = key_of(value.origin, data)
        if key is not None:
            seen.add(key)
        elif depth < _DEPTH and isinstance(data, list | tuple):
            _keys(data, seen, depth + 1)
        elif depth < _DEPTH and isinstance(data, dict):
            _keys(data.values(), seen, depth + 1)


def facts(
    flows: Flows, origin: Origin | None, data: Any, lines: Callable[[str], Sequence[str]]
) -> dict[str, float]:
    """The facts about a value; `lines` gives those of a file of the repository."""
    if origin is None:
        return {}
    key = key_of(origin, data)
    certain, in_loop = flows.reached.get(key, (None, False)) if key else (None, False)
    found: dict[str, float] = {
        **flows.around.of_value(origin, data),
        "counts a loop": key in flows.any_loop,
        "reaches a call": certain is True,
        "reaches a call under a condition alone": certain is False,
        "reaches a call in a loop": in_loop,
    }
    if origin.file and origin.file.endswith(".py") and origin.line:
        found |= _around(flows, origin.file, origin.line, lines(origin.file))
    return {name: 1.0 for name, value in found.items() if value}


def _around(flows: Flows, file: str, line: int, text: Sequence[str]) -> dict[str, float]:
    found = dict(flows.around.facts(file, line, text))
    headers = enclosing_blocks(text, line)
    near = "in the training loop's function" in found
    found["in the training loop's file"] = not near and file in flows.loop_files
    found["away from the training loop"] = bool(flows.loop_files) and file not in flows.loop_files
    found["in a branch for trials"] = any(
        _TRIAL.search(rest) for kind, rest in headers if kind in ("if", "elif", "else")
    )
    found["in a function for trials"] = any(
        _TRIAL.search(rest.partition("(")[0]) for kind, rest in headers if kind == "def"
    )
    found["in a loop"] = any(kind in ("for", "while") for kind, _ in headers)
    return found
