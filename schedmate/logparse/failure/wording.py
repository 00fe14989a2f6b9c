"""What a line without a rule reports by its wording: a failure, and of which subsystem.

A line reports trouble by its level, by words for failure or by an errno; the subsystem that it
names decides the type. Both are data (`subsystems.yaml`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

from schedmate.data import load
from schedmate.logparse.failure.rules import Rule, read_rules

FILE = Path(__file__).parent / "subsystems.yaml"
CHARACTERS = 600
"""Characters examined at the beginning of a line, where it states what it is about."""

COLLECTIVE = "of-collective-timeout"
"""The id of the subsystem whose pattern names collectives."""
_PATH = re.compile(r"(?<![:/\w.])/(?!dev/)[\w.@+~-]+(?:/[\w.@+~-]+)+/?|(?:^|\s)--[a-z][\w-]*")
"""Where a file lies, or what an option is called, names no subsystem."""


class Subsystem(Rule):
    """A rule whose `pattern` names a subsystem; `says` is how a line reports its failure.

    If `says` is None, any wording of a failure counts.
    """

    says: str | None = None


@cache
def subsystems() -> list[Subsystem]:
    """All subsystems; of several that a line names, the first decides."""
    return read_rules(FILE, Subsystem, "subsystems")


def speaks_of_trouble(text: str) -> bool:
    """Whether a line is worded as a failure."""
    text = text[:CHARACTERS]
    return _form("says")(text) and (not _form("not")(text) or _form("over")(text))


def about(text: str) -> Subsystem | None:
    """The subsystem whose failure a line reports, or None."""
    if not speaks_of_trouble(text):
        return None
    text = _PATH.sub("", text[:CHARACTERS])
    return next((one for one, names, says in _compiled() if names(text) and says(text)), None)


def named(text: str) -> list[Subsystem]:
    """All subsystems that a line names, whether they failed or not."""
    text = _PATH.sub("", text[:CHARACTERS])
    return [one for one, names, _ in _compiled() if names(text)]


def is_collective(text: str) -> bool:
    """Whether a line names a collective operation or a process group."""
    return any(one.id == COLLECTIVE for one in named(text))


def _searcher(pattern: str) -> Callable[[str], bool]:
    import re2

    search = re2.compile(pattern).search
    return lambda text: search(text) is not None


@cache
def _form(kind: str) -> Callable[[str], bool]:
    return _searcher("|".join(f"(?:{entry['pattern']})" for entry in load(str(FILE))[kind]))


@cache
def _compiled() -> list[tuple[Subsystem, Callable[[str], bool], Callable[[str], bool]]]:
    return [
        (one, _searcher(one.pattern or ""), _searcher(one.says) if one.says else lambda _: True)
        for one in subsystems()
    ]
