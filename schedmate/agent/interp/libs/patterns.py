"""The `re` module on text that is known: programs take names apart with it."""

from __future__ import annotations

import re

from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.machine import Handler, Machine
from schedmate.agent.interp.objects import Call, as_call
from schedmate.agent.interp.plugins import Plugin
from schedmate.agent.interp.values.base import plain_key
from schedmate.agent.regex import for_text
from schedmate.agent.sizes import MAX_DATA, measure
from schedmate.agent.values import Items, Value, lifted, unknown

MAX_TEXT = 300
"""Longest text that a pattern is applied to: a name, a path, not a file."""
_EVERY = ("sub", "split", "findall")
_COMPILED = "re.compile()"


def _apply(name: str) -> Handler:
    def run(machine: Machine, call: Invocation) -> Value | None:
        args, base = list(call.args), as_call(call.base)
        if base is not None and base.path == "re.compile":
            if len(base.args) != 1 or base.kwargs:
                return None  # flags
            args = [*base.args, *args]
        texts = [value.text for value in args if value.text is not None]
        if call.kwargs or len(texts) < len(args):
            return None
        if len(texts) != (3 if name == "sub" else 2) or max(map(len, texts[1:])) > MAX_TEXT:
            return None
        pattern = for_text(texts[0], texts[-1], every=name in _EVERY)
        if pattern is None:
            return None
        try:
            found = getattr(pattern, name)(*texts[1:])
        except (re.error, IndexError, ValueError):
            return None  # a replacement that names no group
        origin = args[-1].origin
        if found is None or isinstance(found, str | list):
            made = lifted(found, origin)
            return made if measure(made.data, limit=MAX_DATA) is not None else None
        return _match(found, args)

    return run


def _match(found: re.Match[str], args: list[Value]) -> Value:
    """A match, with what its groups hold."""
    groups = {index: found.group(index) for index in range(found.re.groups + 1)}
    held: Items = {
        key: Value(text, args[-1].origin) for key, text in (groups | found.groupdict()).items()
    }
    return Value(Call("re.Match", args, {}, held), args[-1].origin)


def _groups_of(call: Invocation) -> Items:
    """The groups of the match whose method is called, by number and by name."""
    match = as_call(call.base)
    return match.attrs if match is not None else {}


def _group(machine: Machine, call: Invocation) -> Value:
    groups = _groups_of(call)
    found = [groups.get(plain_key(value), unknown()) for value in call.args or [Value(0)]]
    return found[0] if len(found) == 1 else Value(tuple(found))


def _groups(machine: Machine, call: Invocation) -> Value:
    groups = _groups_of(call)
    numbers = sorted(key for key in groups if isinstance(key, int) and key)
    return Value(tuple(groups[number] for number in numbers))


def _named(machine: Machine, call: Invocation) -> Value:
    return Value({k: value for k, value in _groups_of(call).items() if isinstance(k, str)})


_FUNCTIONS = ("match", "search", "fullmatch", "sub", "split", "findall")

PLUGIN = Plugin(
    calls={
        **{f"re.{name}": _apply(name) for name in _FUNCTIONS},
        **{f"{_COMPILED}.{name}": _apply(name) for name in _FUNCTIONS},
        "re.Match().group": _group,
        "re.Match().groups": _groups,
        "re.Match().groupdict": _named,
    }
)
