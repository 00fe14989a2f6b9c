"""The settings of a program: the leaves of all that it parsed, read and declared."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from schedmate.agent.fields.candidates import EXPLICIT
from schedmate.agent.interp.objects import Class, Function, Instance, Symbol
from schedmate.agent.interp.trace import Settings, Trace, without_tables
from schedmate.agent.interp.values import classes
from schedmate.agent.values import Value

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
        self.key = normal_name(self.path[-1])

    @property
    def source(self) -> str:
        """The kind of place where it was set, empty where that is not known."""
        return self.value.origin.source if self.value.origin is not None else ""

    @property
    def explicit(self) -> bool:
        """Whether the user set it for this launch (its origin is one of `EXPLICIT`)."""
        return self.source in EXPLICIT


_IGNORED = str.maketrans("", "", "-_ ")


def normal_name(name: str) -> str:
    return str(name).translate(_IGNORED).lower()


def all_settings(trace: Trace, superseded: bool = False) -> list[Setting]:
    """All settings of the program, those closest to what it finally used first.

    `superseded` includes those of argument namespaces that a later one replaced.
    """
    settings: list[Setting] = []
    seen: set[int] = set(trace.passed_over)
    order = {"arguments": 0, "dataclass": 0, "config": 1, "choices": 2, "globals": 3}
    groups = sorted(without_tables(trace.settings), key=lambda s: order.get(s.kind, 2))
    for group in _latest_first(groups):
        _collect_leaves(group.value, (), group, settings, seen, 0, trace.popped)
        if len(settings) > MAX_SETTINGS:
            break
    if trace.read and "*" not in trace.read:
        for setting in settings:
            if setting.kind == "arguments" and setting.source == "default":
                setting.unread = setting.path[-1] not in trace.read
    return settings if superseded else _without_superseded(settings)


def _without_superseded(settings: list[Setting]) -> list[Setting]:
    """The settings without those of an argument namespace that a later one replaced."""
    current = []
    owners: dict[tuple[str, ...], str] = {}
    for setting in settings:
        if setting.kind == "arguments":
            if owners.setdefault(setting.path, setting.owner) != setting.owner:
                continue
        current.append(setting)
    return current


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
    values: dict[Any, Value] = {}
    for current in reversed(cls.mro()):
        values |= {
            name: value
            for name, value in current.attrs.items()
            if not name.startswith("_") and (value.known or isinstance(value.data, Class))
        }
    return values


def _named_parts(value: Value, group: Settings, depth: int) -> dict[Any, Value] | None:
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


def _collect_leaves(
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
    items = _named_parts(value, group, depth)
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
                _collect_leaves(item, (*path, *key.split(".")), group, out, seen, depth + 1, popped)
        return
    told = path or group.kind == "config"  # several documents in one file
    if told and isinstance(data, list) and data and isinstance(data[0].data, dict):
        for item in data[:MAX_LIST]:
            _collect_leaves(item, path, group, out, seen, depth + 1, popped)
        return
    if path and (value.known or isinstance(data, list | tuple | Symbol | Class | Function)):
        out.append(Setting(path, value, group.kind, group.name))


def settings_named(settings: list[Setting], names: list[str]) -> list[tuple[int, Setting]]:
    """Settings whose name is one of `names`, with the rank of the name."""
    single, double, tails = _name_ranks(tuple(names))
    out = []
    for setting in settings:
        rank: int | None = single.get(setting.key)
        if setting.key in tails and len(setting.path) > 1:
            other = double.get((normal_name(setting.path[-2]), setting.key))
            if other is not None and (rank is None or other < rank):
                rank = other
        if rank is not None:
            out.append((rank, setting))
    return out


@lru_cache(1024)
def _name_ranks(
    names: tuple[str, ...],
) -> tuple[dict[str, int], dict[tuple[str, str], int], frozenset[str]]:
    """The ranks of plain names and of dotted ones, and what dotted ones end with."""
    single: dict[str, int] = {}
    double: dict[tuple[str, str], int] = {}
    for place, name in enumerate(names):
        head, _, tail = name.rpartition(".")
        if head:
            double.setdefault((normal_name(head), normal_name(tail)), place)
        else:
            single.setdefault(normal_name(name), place)
    return single, double, frozenset(tail for _, tail in double)
