"""Lists (and sets, which are lists of what they hold), tuples, and ranges."""

from __future__ import annotations

import ast
from collections.abc import Callable, Hashable, Iterable
from typing import ClassVar, TypeVar, cast

from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.machine import Handler, Machine
from schedmate.agent.interp.natives import bound
from schedmate.agent.interp.objects import RangeOf, Site
from schedmate.agent.interp.values.base import (
    Copies,
    Kind,
    Plain,
    iterate,
    kind,
    missing,
    of,
    truth,
)
from schedmate.agent.interp.values.operators import binary
from schedmate.agent.sizes import MAX_DATA, MAX_KEY, measure
from schedmate.agent.values import Data, Origin, Value, unknown

MAX_RANGE = 64
"""Numbers that going through a range gives; a longer one is a count."""


S_co = TypeVar("S_co", list[Value], tuple[Value, ...], covariant=True)


def _list_of(call: Invocation) -> list[Value]:
    """The list whose method is called."""
    return cast("list[Value]", call.owner.data)


def _append(machine: Machine, call: Invocation) -> Value:
    items = _list_of(call)
    if call.args and len(items) < MAX_DATA:
        items.append(call.args[0])
    return Value(None)


def _extend(machine: Machine, call: Invocation) -> Value:
    added, items = iterate(call.first), _list_of(call)
    if added and len(items) + len(added) < MAX_DATA:
        machine.charge(len(added))
        items.extend(added)
    return Value(None)


def _insert(machine: Machine, call: Invocation) -> Value:
    where = call.args[0].integer if len(call.args) == 2 else None
    if where is not None and abs(where) <= MAX_DATA and len(_list_of(call)) < MAX_DATA:
        _list_of(call).insert(where, call.args[1])
    return Value(None)


def _list_pop(machine: Machine, call: Invocation) -> Value:
    index, items = call.args[0].integer if call.args else -1, _list_of(call)
    return items.pop(index) if index is not None and _has(items, index) else unknown()


def _list_index(machine: Machine, call: Invocation) -> Value:
    size = measure(call.owner.data)
    if size is None or not call.args or not call.args[0].known:
        return unknown()
    machine.charge(size)
    wanted = call.args[0].plain()
    for index, item in enumerate(call.owner.sequence or ()):
        if item.known and item.plain() == wanted:
            return Value(index, call.owner.origin)
    return unknown()


def _list_copy(machine: Machine, call: Invocation) -> Value:
    return machine.made(Value(list(_list_of(call)), call.owner.origin))


def _list_remove(machine: Machine, call: Invocation) -> Value:
    index = _list_index(machine, call).integer
    if index is not None:
        _list_of(call).pop(index)
    return Value(None)


def _count(machine: Machine, call: Invocation) -> Value:
    if not (call.owner.known and call.args and call.args[0].known):
        return unknown()
    return Value(call.owner.plain().count(call.args[0].plain()))


def _turn(machine: Machine, call: Invocation) -> Value:
    _list_of(call).reverse()
    return Value(None)


def _clear(machine: Machine, call: Invocation) -> Value:
    _list_of(call).clear()
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
    items = _list_of(call)
    items[:] = in_order(machine, list(items), call.kwargs, call.site)
    return Value(None)


def in_order(
    machine: Machine, items: list[Value], kwargs: dict[str, Value], site: Site
) -> list[Value]:
    """`items` sorted by `key` and `reverse`; as they are where the order is not known."""
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


class Sequence(Plain[S_co]):
    """A list or a tuple."""

    container = True
    methods: ClassVar[dict[str, Handler]] = {}

    def method(self, base: Value, name: str) -> Value:
        """`base.name`, to be called."""
        found = self.methods.get(name)
        return bound(base, name, found) if found is not None else unknown(name)

    def getitem(self, machine: Machine, base: Value, index: Value) -> Value:
        place, items = index.integer, self.data(base)
        if place is None:
            return super().getitem(machine, base, index)
        return items[place] if _has(items, place) else missing(machine, str(place), "IndexError")

    def slice_(self, machine: Machine, base: Value, ends: slice) -> Value:
        return machine.made(Value(self.data(base)[ends], base.origin))

    def iterate(self, value: Value) -> list[Value] | None:
        return list(self.data(value))

    def parts(self, value: Value) -> Iterable[Value]:
        return self.data(value)

    def converted(self, value: Value, convert: Callable[[Value], Value]) -> Data:
        data = self.data(value)
        return type(data)(map(convert, data))


@of(list)
class List(Sequence[list[Value]]):
    """A list."""

    methods = _LIST

    def setitem(self, machine: Machine, base: Value, index: Value, value: Value) -> None:
        place, items = index.integer, self.data(base)
        if place is not None and _has(items, place):
            items[place] = value

    def delitem(self, machine: Machine, base: Value, index: Value) -> None:
        place, items = index.integer, self.data(base)
        if place is not None and _has(items, place):
            del items[place]

    def copy(self, value: Value) -> Value:
        return Value(list(self.data(value)), value.origin)

    def deep_copy(self, value: Value, copies: Copies, copied: Callable[[Value], Value]) -> None:
        same = copies[id(value.data)] = list[Value]()
        same.extend([copied(item) for item in self.data(value)])


@of(tuple)
class Tuple(Sequence[tuple[Value, ...]]):
    """A tuple."""

    methods = _TUPLE

    def deep_copy(self, value: Value, copies: Copies, copied: Callable[[Value], Value]) -> None:
        copies[id(value.data)] = tuple(copied(item) for item in self.data(value))

    def key(self, value: Value) -> Hashable:
        return cast("Hashable", value.plain()) if _is_key(self.data(value)) else None


def _has(items: list[Value] | tuple[Value, ...], index: int) -> bool:
    """Whether there is an item at a place, counted from either end."""
    return -len(items) <= index < len(items)


def _is_key(data: tuple[Value, ...]) -> bool:
    """Whether a tuple is a key: plain, of a modest size and without lists however deep."""
    if measure(data, limit=MAX_KEY, plain=True) is None:
        return False
    return not any(
        kind(item).container and not (isinstance(item.data, tuple) and _is_key(item.data))
        for item in data
    )


@of(RangeOf)
class Range(Kind[RangeOf]):
    """A range, whose ends may be unknown."""

    def iterate(self, value: Value) -> list[Value] | None:
        data = self.data(value)
        start, stop, step = data.start.integer, data.stop.integer, data.step.integer
        if start is not None and stop is not None and step:
            numbers = range(start, stop, step)
            if not numbers[MAX_RANGE:]:  # a length of over 64 bits cannot even be asked for
                return [Value(number, value.origin) for number in numbers]
        return None
