"""Small questions about values that evaluation keeps asking."""

from __future__ import annotations

from typing import Any

from schedmate.agent.interp.objects import (
    AttrDict,
    Bound,
    Call,
    Class,
    Function,
    Instance,
    Module,
    Native,
    Partial,
    RangeOf,
)
from schedmate.agent.sizes import MAX_KEY, measure
from schedmate.agent.values import Origin, Value, lifted

MAX_RANGE = 64
NAMED_TUPLE = "named tuple"
"""The label of attribute records that are tuples as well."""


def truth(value: Value) -> bool | None:
    """Whether `value` is true; None when that cannot be decided."""
    data = value.data
    if data is None or isinstance(data, bool | int | float | str | bytes | dict | list | tuple):
        return bool(data)
    if isinstance(data, Instance):
        if data.items is not None:
            return truth(data.items)
        return None if data.cls.lookup("__bool__") is not None else True
    if isinstance(data, Call) and data.path == "re.Match":
        return True
    if isinstance(data, Function | Class | Module | Native | Bound | Partial):
        return True
    return None


def iterate(value: Value) -> list[Value] | None:
    """The items that iterating over `value` gives, None when they are not known."""
    data = value.data
    if isinstance(data, list | tuple):
        return list(data)
    if isinstance(data, AttrDict) and data.label == NAMED_TUPLE:
        return list(data.values())
    if isinstance(data, dict):
        return [lifted(key, item.origin) for key, item in data.items()]
    if isinstance(data, str):
        return [Value(char, value.origin) for char in data[:2000]]
    if isinstance(data, Instance) and data.items is not None:
        return iterate(data.items)
    if isinstance(data, Instance) and "NamedTuple" in str(data.cls.external_bases()):
        return list(data.attrs.values())
    if isinstance(data, RangeOf):
        start, stop, step = data.start.data, data.stop.data, data.step.data
        if isinstance(start, int) and isinstance(stop, int) and isinstance(step, int) and step:
            numbers = range(start, stop, step)
            if not numbers[MAX_RANGE:]:  # a length of over 64 bits cannot even be asked for
                return [Value(number, value.origin) for number in numbers]
    return None


def several(value: Value) -> list[Value]:
    """The items of a sequence, or the one value there is."""
    return list(value.data) if isinstance(value.data, list | tuple) else [value]


def plain_key(value: Value) -> Any:
    """`value` as a dict key, None when it is not known or not hashable."""
    data = value.data
    if isinstance(data, tuple):
        return value.plain() if _is_key(data) else None
    if isinstance(data, bool | int | float | str | bytes):
        return data
    if isinstance(data, Class | Function):
        return data
    if isinstance(data, Instance) and data in data.cls.members.values():
        return data
    return None


def _is_key(data: tuple[Value, ...]) -> bool:
    """Whether a tuple is a key: plain, of a modest size and without lists however deep."""
    if measure(data, limit=MAX_KEY, plain=True) is None:
        return False
    return not any(
        isinstance(item.data, list | dict)
        or (isinstance(item.data, tuple) and not _is_key(item.data))
        for item in data
    )


_FIRST = {"command": 0, "script": 0, "environment": 1, "launch": 1, "config": 2, "default": 3}


def origin_of(*values: Value) -> Origin | None:
    """The most telling origin among operands: what a user set, before what the code says."""
    best: Origin | None = None
    for value in values:
        origin = value.origin
        if origin is not None and (
            best is None or _FIRST.get(origin.source, 9) < _FIRST.get(best.source, 9)
        ):
            best = origin
    return best
