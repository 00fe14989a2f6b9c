"""What a field could be, and how sure that is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any, TypeGuard

from schedmate.agent.fields import prior
from schedmate.agent.interp.objects import Class, Function, Symbol
from schedmate.agent.interp.trace import CallEvent
from schedmate.agent.sizes import MAX_NESTING
from schedmate.agent.values import NumberValue, Origin, Unknown, Value
from schedmate.data import load
from schedmate.jobs import Evidence


@cache
def rules(name: str) -> dict[str, Any]:
    """One of this package's data files."""
    loaded: dict[str, Any] = load(f"agent/fields/{name}.yaml")
    return loaded


_LEAST = 0.05
"""Least confidence that is reported."""


@dataclass(slots=True)
class Candidate:
    """A possible value of a field.

    `score`, from 0 to 100, is the prior that orders candidates, set by hand. `rule` names what
    found this one and `note` tells people more. `considered` are all the candidates that it was
    chosen from, and `sure` how sure it is once that was computed (`confidence.py`). One that is
    `doubted` for what no fitted fact is about is no surer than its score.
    """

    data: Any
    origin: Origin | None
    score: float
    note: str | None = None
    rule: str = ""
    considered: Sequence[Candidate] = field(default=(), repr=False, compare=False)
    sure: float | None = None
    doubted: bool = False

    @property
    def source(self) -> str:
        """The kind of place where it stands."""
        return self.origin.source if self.origin is not None else "code"

    @property
    def place(self) -> tuple[str | None, int | None]:
        """File and line where it stands."""
        return (self.origin.file, self.origin.line) if self.origin is not None else (None, None)

    def evidence(self) -> Evidence:
        origin = self.origin or Origin("code")
        return Evidence(
            value=self.data,
            source=origin.source,
            file=origin.file,
            line=origin.line or None,
            text=origin.text,
            confidence=round(max(_LEAST, self.sure or 0.0), 2),
            note=self.note,
        )


def best(candidates: Iterable[Candidate]) -> Candidate | None:
    """The highest-scored candidate; the first of equals."""
    chosen: Candidate | None = None
    for candidate in candidates:
        if chosen is None or candidate.score > chosen.score:
            chosen = candidate
    return chosen


def by_rule(rule: str, candidates: Iterable[Candidate]) -> list[Candidate]:
    """The candidates, those that no rule is named for yet as found by `rule`."""
    named_ones = list(candidates)
    for candidate in named_ones:
        candidate.rule = candidate.rule or rule
    return named_ones


# -- settings --------------------------------------------------------------

EXPLICIT = ("command", "script", "environment", "launch")
_CHOSEN = frozenset({*EXPLICIT, "config"})
"""Sources of what somebody wrote for a run."""


def source_bonus(origin: Origin | None) -> float:
    """How much more a value weighs for where it was set."""
    if origin is None or origin.source not in _CHOSEN:
        return 0.0
    return prior.source[origin.source]


def is_launched(origin: Origin | None) -> bool:
    """Whether this launch says it: on the command line, or in what that leads to."""
    return origin is not None and origin.source in EXPLICIT


# -- calls -----------------------------------------------------------------


@cache
def pattern(text: str) -> re.Pattern[str]:
    """A call pattern of calls.yaml as a regular expression."""
    escaped = re.escape(text).replace(r"\*", ".*")
    return re.compile(f"^{escaped}$")


def matching(event: CallEvent, table: str) -> Sequence[dict[str, Any]]:
    """The rules of one of calls.yaml's tables that are about this call, in its order."""
    return _matching(event.path, table)


@lru_cache(16_384)
def _matching(path: str, table: str) -> tuple[dict[str, Any], ...]:
    by_root = _by_root(table)
    root = re.split(r"[.(]", path, maxsplit=1)[0]
    return tuple(
        rule for rule in by_root.get(root, by_root["*"]) if pattern(rule["call"]).match(path)
    )


@cache
def _by_root(table: str) -> dict[str, list[dict[str, Any]]]:
    """A table's rules by the first part of their paths, with those for any path among them."""
    roots = [(rule["call"].split(".", 1)[0], rule) for rule in rules("calls")[table]]
    return {
        root: [rule for begins, rule in roots if begins == root or "*" in begins]
        for root in {"*", *(begins for begins, _ in roots)}
    }


def argument(event: CallEvent, spec: list[Any]) -> Value | None:
    """The first of the rule's positions and keywords that the call was given."""
    for item in spec:
        found = event.argument(item, *()) if isinstance(item, int) else event.kwargs.get(item)
        if found is not None:
            return found
    return None


def text_of(value: Value | None) -> str | None:
    """The string a value holds, or the name of the thing it is."""
    if value is None:
        return None
    data = value.data
    for _ in range(MAX_NESTING):  # a list can contain itself
        if isinstance(data, list | tuple) and data and isinstance(data[0], Value):
            data = data[0].data
    if isinstance(data, str):
        return data
    if isinstance(data, Class | Function):
        return data.name
    if isinstance(data, Symbol) and re.fullmatch(r"[A-Za-z_][\w.]*", data.path):
        return data.path.rsplit(".", 1)[-1]
    return None


def is_number(value: Value | None) -> TypeGuard[NumberValue]:
    return value is not None and value.number is not None


def unresolved(value: Value | None) -> str | None:
    """The text of a value that could not be known."""
    if value is not None and isinstance(value.data, Unknown):
        return value.data.text
    return None
