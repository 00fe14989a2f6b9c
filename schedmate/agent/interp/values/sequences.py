"""Lists (and sets, which are lists of what they hold), tuples, and ranges."""

from __future__ import annotations

import ast
from typing import Any, ClassVar

from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.machine import Handler, Machine
from schedmate.agent.interp.natives import bound
from schedmate.agent.interp.objects import RangeOf, Site
from schedmate.agent.interp.values.base import Kind, Plain, iterate, missing, of, plain_key, truth
from schedmate.agent.interp.values.operators import binary
from schedmate.agent.sizes import MAX_DATA, MAX_KEY, measure
from schedmate.agent.values import Origin, Value, unknown

MAX_RANGE = 64
"""Numbers that going through a range gives; a longer one is a count."""


def _append(machine: Machine, call: Invocation) -> Value:
    if call.args and len(call.owner.data) < MAX_DATA:
        call.owner.data.append(call.args[0])
    return Value(None)


def _extend(machine: Machine, call: Invocation) -> Value:
    items = iterate(call.args[0]) if call.args else None
    if items and len(call.owner.data) + len(items) < MAX_DATA:
        machine.charge(len(items))
        call.owner.data.extend(items)
    return Value(None)


def _insert(machine: Machine, call: Invocation) -> Value:
    where = call.args[0].data if len(call.args) == 2 else None
    if isinstance(where, int) and abs(where) <= MAX_DATA and len(call.owner.data) < MAX_DATA:
        call.owner.data.insert(call.args[0].data, call.args[1])
    return Value(None)


def _list_pop(machine: Machine, call: Invocation) -> Value:
    index = call.args[0].data if call.args else -1
    if isinstance(index, int) and -len(call.owner.data) <= index < len(call.owner.data):
        item: Value = call.owner.data.pop(index)
        return item
    return unknown()


def _list_index(machine: Machine, call: Invocation) -> Value:
    size = measure(call.owner.data)
    if size is None or not call.args or not call.args[0].known:
        return unknown()
    machine.charge(size)
    wanted = call.args[0].plain()
    for index, item in enumerate(call.owner.data):
        if item.known and item.plain() == wanted:
            return Value(index, call.owner.origin)
    return unknown()


def _list_copy(machine: Machine, call: Invocation) -> Value:
    return machine.made(Value(list(call.owner.data), call.owner.origin))


def _list_remove(machine: Machine, call: Invocation) -> Value:
    index = _list_index(machine, call).data
    if isinstance(index, int):
        call.owner.data.pop(index)
    return Value(None)


def _count(machine: Machine, call: Invocation) -> Value:
    if not (call.owner.known and call.args and call.args[0].known):
        return unknown()
    return Value(call.owner.plain().count(call.args[0].plain()))


def _turn(machine: Machine, call: Invocation) -> Value:
    call.owner.data.reverse()
    return Value(None)


def _clear(machine: Machine, call: Invocation) -> Value:
    call.owner.data.clear()
    return Value(None)


def _combined(op: type[ast.operator]) -> Handler:
    """`a.union(b)` of sets, which are lists here."""

    def combine(machine: Machine, call: Invocation) -> Value:
        result = call.owner
        for value in call.args:
            items = iterate(value)
            if items is None:
                return unknown()
            machine.charge(len(items))
            result = binary(op, result, Value(items), Origin("code"))
        return result

    return combine


def _reorder(machine: Machine, call: Invocation) -> Value:
    call.owner.data[:] = in_order(machine, list(call.owner.data), call.kwargs, call.site)
    return Value(None)


def in_order(
    machine: Machine, items: list[Value], kwargs: dict[str, Value], site: Site
) -> list[Value]:
    """`items` sorted by `key` and `reverse`; as they are where that cannot be told."""
    key = kwargs.get("key", Value(None))
    keys = items
    if key.data is not None and len(items) <= 500:
        keys = [machine.call(key, [item], {}, site) for item in items]
    size = measure(keys, plain=True)
    if size is None:
        return items
    machine.charge(size)
    down = truth(kwargs.get("reverse", Value(False))) is True
    try:
        order = sorted(range(len(items)), key=lambda i: keys[i].plain(), reverse=down)
    except TypeError:
        return items
    return [items[i] for i in order]


_TUPLE: dict[str, Handler] = {"index": _list_index, "count": _count}

_LIST: dict[str, Handler] = {
    **_TUPLE,
    "append": _append,
    "add": _append,
    "extend": _extend,
    "update": _extend,
    "insert": _insert,
    "pop": _list_pop,
    "copy": _list_copy,
    "remove": _list_remove,
    "discard": _list_remove,
    "sort": _reorder,
    "reverse": _turn,
    "clear": _clear,
    "union": _combined(ast.BitOr),
    "intersection": _combined(ast.BitAnd),
    "difference": _combined(ast.Sub),
}


class Sequence(Plain):
    """A list or a tuple."""

    container = True
    methods: ClassVar[dict[str, Handler]] = {}

    def method(self, base: Value, name: str) -> Value:
        """`base.name`, to be called."""
        found = self.methods.get(name)
        return bound(base, name, found) if found is not None else unknown(name)

    def getitem(self, machine: Machine, base: Value, index: Value) -> Value:
        key = plain_key(index)
        if not isinstance(key, int):
            return super().getitem(machine, base, index)
        if -len(base.data) <= key < len(base.data):
            item: Value = base.data[key]
            return item
        return missing(machine, str(key), "IndexError")

    def slice_(self, machine: Machine, base: Value, ends: slice) -> Value:
        return machine.made(Value(base.data[ends], base.origin))

    def iterate(self, value: Value) -> list[Value] | None:
        return list(value.data)


@of(list)
class List(Sequence):
    """A list."""

    methods = _LIST

    def setitem(self, machine: Machine, base: Value, index: Value, value: Value) -> None:
        key = plain_key(index)
        if isinstance(key, int) and -len(base.data) <= key < len(base.data):
            base.data[key] = value

    def copy(self, value: Value) -> Value:
        return Value(list(value.data), value.origin)


@of(tuple)
class Tuple(Sequence):
    """A tuple."""

    methods = _TUPLE

    def key(self, value: Value) -> Any:
        return value.plain() if _is_key(value.data) else None


def _is_key(data: tuple[Value, ...]) -> bool:
    """Whether a tuple is a key: plain, of a modest size and without lists however deep."""
    if measure(data, limit=MAX_KEY, plain=True) is None:
        return False
    return not any(
        isinstance(item.data, list | dict)
        or (isinstance(item.data, tuple) and not _is_key(item.data))
        for item in data
    )


@of(RangeOf)
class Range(Kind):
    """A range, whose ends may be unknown."""

    def iterate(self, value: Value) -> list[Value] | None:
        start, stop, step = (
            end.data for end in (value.data.start, value.data.stop, value.data.step)
        )
        if isinstance(start, int) and isinstance(stop, int) and isinstance(step, int) and step:
            numbers = range(start, stop, step)
            if not numbers[MAX_RANGE:]:  # a length of over 64 bits cannot even be asked for
                return [Value(number, value.origin) for number in numbers]
        return None
