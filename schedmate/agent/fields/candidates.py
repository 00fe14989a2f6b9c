"""What a field could be, and how sure that is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any, TypeGuard

from schedmate.agent.fields import prior
from schedmate.agent.interp import classes
from schedmate.agent.interp.objects import Class, Function, Instance, Symbol
from schedmate.agent.interp.trace import CallEvent, Settings, Trace, without_tables
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
MAX_SETTINGS = 6000
MAX_LIST = 4
MAX_NAMED = 1000
MAX_NAME = 300
"""Longest name of a setting."""


@dataclass(slots=True)
class Setting:
    """One leaf of the program's settings; `key` is its own name, normalised.

    `unread` tells an argument's default, or a key of a configuration, that the program never looks
    at.
    """

    path: tuple[str, ...]
    value: Value
    kind: str
    owner: str
    unread: bool = False
    key: str = field(init=False)

    def __post_init__(self) -> None:
        self.key = normal(self.path[-1])

    @property
    def explicit(self) -> bool:
        """Whether the user set it for this launch."""
        origin = self.value.origin
        return origin is not None and origin.source in EXPLICIT


_IGNORED = str.maketrans("", "", "-_ ")


def normal(name: str) -> str:
    return str(name).translate(_IGNORED).lower()


def leaves(trace: Trace) -> list[Setting]:
    """All settings of the program, those closest to what it finally used first."""
    found: list[Setting] = []
    seen: set[int] = set(trace.passed_over)
    order = {"arguments": 0, "dataclass": 0, "config": 1, "choices": 2, "globals": 3}
    groups = sorted(without_tables(trace.settings), key=lambda s: order.get(s.kind, 2))
    for group in _latest_first(groups):
        _collect(group.value, (), group, found, seen, 0, trace.popped)
        if len(found) > MAX_SETTINGS:
            break
    if trace.read and "*" not in trace.read:
        for setting in found:
            origin = setting.value.origin
            if setting.kind == "arguments" and origin is not None and origin.source == "default":
                setting.unread = setting.path[-1] not in trace.read
    return _superseded(found)


def _superseded(found: list[Setting]) -> list[Setting]:
    """The settings without those of an argument namespace that a later one replaced."""
    kept = []
    owners: dict[tuple[str, ...], str] = {}
    for setting in found:
        if setting.kind == "arguments":
            if owners.setdefault(setting.path, setting.owner) != setting.owner:
                continue
        kept.append(setting)
    return kept


def _latest_first(groups: list[Settings]) -> list[Settings]:
    """Within a kind, later settings were made from earlier ones."""
    out: list[Settings] = []
    for kind in dict.fromkeys(g.kind for g in groups):
        out.extend(reversed([g for g in groups if g.kind == kind]))
    return out


_OPTIONS = re.compile(r"config|cfg|conf|opt|arg|param|setting|hyper|hps|flags", re.IGNORECASE)


def _class_values(cls: Class, records: bool = False) -> dict[Any, Value]:
    """Plain class attributes and nested classes, inherited ones first; not for library classes."""
    if classes.is_record(cls) and not records:
        return {}
    if cls.external_bases() and not all(
        base in ("object", "type") for base in cls.external_bases()
    ):
        return {}
    found: dict[Any, Value] = {}
    for current in reversed(cls.mro()):
        found |= {
            name: value
            for name, value in current.attrs.items()
            if not name.startswith("_") and (value.known or isinstance(value.data, Class))
        }
    return found


def _items(value: Value, group: Settings, depth: int) -> dict[Any, Value] | None:
    """The named parts of a value that may hold settings."""
    data = value.data
    if isinstance(data, Instance):
        if group.kind == "globals" and data.cls.external_bases():
            return {}
        if data.items is not None:
            held = data.items.data
            return held if isinstance(held, dict) else data.attrs
        return {**_class_values(data.cls, records=True), **data.attrs}
    if isinstance(data, Class) and (
        group.kind != "globals" or depth > 1 or _OPTIONS.search(data.name)
    ):
        return _class_values(data)
    return data if isinstance(data, dict) else None


def _is_table(items: dict[Any, Value]) -> bool:
    """Whether this is a table of one kind of thing, such as a vocabulary, and no settings."""
    return len(items) > MAX_NAMED and len({type(item.data) for item in items.values()}) == 1


def _collect(
    value: Value,
    path: tuple[str, ...],
    group: Settings,
    out: list[Setting],
    seen: set[int],
    depth: int,
    popped: dict[int, tuple[object, dict[Any, Value]]],
) -> None:
    data = value.data
    if depth > 7 or len(out) > MAX_SETTINGS:
        return
    items = _items(value, group, depth)
    if items is not None:
        if id(data) in seen or _is_table(items):
            return
        seen.add(id(data))
        if group.kind == "globals" and depth >= 1 and type(data) is dict:
            return
        taken = popped.get(id(data), (None, {}))[1]
        for key, item in [*items.items(), *taken.items()]:
            if not isinstance(key, str) or len(key) > MAX_NAME:
                continue
            if key == "__tag__" or not key.startswith("__"):
                _collect(item, (*path, *key.split(".")), group, out, seen, depth + 1, popped)
        return
    told = path or group.kind == "config"  # several documents in one file
    if told and isinstance(data, list) and data and isinstance(data[0].data, dict):
        for item in data[:MAX_LIST]:
            _collect(item, path, group, out, seen, depth + 1, popped)
        return
    if path and (value.known or isinstance(data, list | tuple | Symbol | Class | Function)):
        out.append(Setting(path, value, group.kind, group.name))


def named(settings: list[Setting], names: list[str]) -> list[tuple[int, Setting]]:
    """Settings whose name is one of `names`, with the rank of the name."""
    single, double, tails = _ranks(tuple(names))
    out = []
    for setting in settings:
        rank: int | None = single.get(setting.key)
        if setting.key in tails and len(setting.path) > 1:
            other = double.get((normal(setting.path[-2]), setting.key))
            if other is not None and (rank is None or other < rank):
                rank = other
        if rank is not None:
            out.append((rank, setting))
    return out


@lru_cache(1024)
def _ranks(
    names: tuple[str, ...],
) -> tuple[dict[str, int], dict[tuple[str, str], int], frozenset[str]]:
    """The ranks of plain names and of dotted ones, and what dotted ones end with."""
    single: dict[str, int] = {}
    double: dict[tuple[str, str], int] = {}
    for place, name in enumerate(names):
        head, _, tail = name.rpartition(".")
        if head:
            double.setdefault((normal(head), normal(tail)), place)
        else:
            single.setdefault(normal(name), place)
    return single, double, frozenset(tail for _, tail in double)


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
