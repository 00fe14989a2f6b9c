"""Methods of lists, tuples and dicts."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from schedmate.agent.interp.builtins.data import in_order
from schedmate.agent.interp.invocation import Invocation, Method
from schedmate.agent.interp.objects import AttrDict, Instance
from schedmate.agent.interp.operators import binary
from schedmate.agent.interp.values_ops import iterate, plain_key
from schedmate.agent.sizes import MAX_DATA, VALUE, measure
from schedmate.agent.values import Origin, Value, lifted, unknown

if TYPE_CHECKING:
    from schedmate.agent.interp.state import State


def _append(state: State, base: Value, call: Invocation) -> Value:
    if call.args and len(base.data) < MAX_DATA:
        base.data.append(call.args[0])
    return Value(None)


def _extend(state: State, base: Value, call: Invocation) -> Value:
    items = iterate(call.args[0]) if call.args else None
    if items and len(base.data) + len(items) < MAX_DATA:
        state.charge(len(items))
        base.data.extend(items)
    return Value(None)


def _insert(state: State, base: Value, call: Invocation) -> Value:
    where = call.args[0].data if len(call.args) == 2 else None
    if isinstance(where, int) and abs(where) <= MAX_DATA and len(base.data) < MAX_DATA:
        base.data.insert(call.args[0].data, call.args[1])
    return Value(None)


def _list_pop(state: State, base: Value, call: Invocation) -> Value:
    index = call.args[0].data if call.args else -1
    if isinstance(index, int) and -len(base.data) <= index < len(base.data):
        item: Value = base.data.pop(index)
        return item
    return unknown()


def _list_index(state: State, base: Value, call: Invocation) -> Value:
    size = measure(base.data)
    if size is None or not call.args or not call.args[0].known:
        return unknown()
    state.charge(size)
    wanted = call.args[0].plain()
    for index, item in enumerate(base.data):
        if item.known and item.plain() == wanted:
            return Value(index, base.origin)
    return unknown()


def _list_copy(state: State, base: Value, call: Invocation) -> Value:
    return state.made(Value(list(base.data), base.origin))


def _list_remove(state: State, base: Value, call: Invocation) -> Value:
    index = _list_index(state, base, call).data
    if isinstance(index, int):
        base.data.pop(index)
    return Value(None)


def _count(state: State, base: Value, call: Invocation) -> Value:
    if not (base.known and call.args and call.args[0].known):
        return unknown()
    return Value(base.plain().count(call.args[0].plain()))


def _turn(state: State, base: Value, call: Invocation) -> Value:
    base.data.reverse()
    return Value(None)


def _clear(state: State, base: Value, call: Invocation) -> Value:
    base.data.clear()
    return Value(None)


def _combined(op: type[ast.operator]) -> Method:
    """`a.union(b)` of sets, which are lists here."""

    def combine(state: State, base: Value, call: Invocation) -> Value:
        for value in call.args:
            items = iterate(value)
            if items is None:
                return unknown()
            state.charge(len(items))
            base = binary(op, base, Value(items), Origin("code"))
        return base

    return combine


def _reorder(state: State, base: Value, call: Invocation) -> Value:
    base.data[:] = in_order(state, list(base.data), call.kwargs, call.site)
    return Value(None)


def _get(state: State, base: Value, call: Invocation) -> Value:
    key = plain_key(call.args[0]) if call.args else None
    default = call.args[1] if len(call.args) > 1 else call.kwargs.get("default", Value(None))
    if key is None:
        return unknown()
    found: Value = base.data.get(key, default)
    return found


def _keys(state: State, base: Value, call: Invocation) -> Value:
    state.charge(VALUE * len(base.data))
    return Value([lifted(key, item.origin) for key, item in base.data.items()], base.origin)


def _values(state: State, base: Value, call: Invocation) -> Value:
    return state.made(Value(list(base.data.values()), base.origin))


def _items(state: State, base: Value, call: Invocation) -> Value:
    state.charge(2 * VALUE * len(base.data))
    pairs = [Value((lifted(key, item.origin), item)) for key, item in base.data.items()]
    return Value(pairs, base.origin)


def _dict_update(state: State, base: Value, call: Invocation) -> Value:
    for value in call.args:
        mapping = state.mapping(value)
        if mapping is not None:
            state.charge(len(mapping))
            base.data.update(mapping)
            continue
        for pair in iterate(value) or []:
            parts = iterate(pair)
            key = plain_key(parts[0]) if parts and len(parts) == 2 else None
            if parts and key is not None:
                base.data[key] = parts[1]
    base.data.update(call.kwargs)
    return Value(None)


def _setdefault(state: State, base: Value, call: Invocation) -> Value:
    key = plain_key(call.args[0]) if call.args else None
    if key is None:
        return unknown()
    found: Value = base.data.setdefault(key, call.args[1] if len(call.args) > 1 else Value(None))
    return found


def _dict_pop(state: State, base: Value, call: Invocation) -> Value:
    key = plain_key(call.args[0]) if call.args else None
    default = call.args[1] if len(call.args) > 1 else unknown()
    if not state.certain or key not in base.data:
        missing: Value = base.data.get(key, default)
        return missing
    found: Value = base.data.pop(key)
    # a setting that was read and taken out is a setting all the same
    state.trace.popped.setdefault(id(base.data), (base.data, {}))[1][key] = found
    return found


def _dict_copy(state: State, base: Value, call: Invocation) -> Value:
    return state.made(copy_shallow(base))


def copy_shallow(value: Value) -> Value:
    """A copy of a container that shares its items."""
    data = value.data
    if isinstance(data, dict):
        made = data.copy() if type(data) is dict else _same_kind(data)
        return Value(made, value.origin)
    if isinstance(data, list):
        return Value(list(data), value.origin)
    if isinstance(data, Instance) and data not in data.cls.members.values():
        held = copy_shallow(data.items) if data.items is not None else None
        same = Instance(data.cls, dict(data.attrs), held, data.args, data.kwargs)
        return Value(same, value.origin)
    return value


def _same_kind(data: dict[Any, Value]) -> dict[Any, Value]:

    if isinstance(data, AttrDict):
        return AttrDict(dict(data), data.flavour, data.label)
    return dict(data)


TUPLE: dict[str, Method] = {"index": _list_index, "count": _count}

LIST: dict[str, Method] = {
    **TUPLE,
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

DICT: dict[str, Method] = {
    "get": _get,
    "keys": _keys,
    "values": _values,
    "items": _items,
    "update": _dict_update,
    "setdefault": _setdefault,
    "pop": _dict_pop,
    "copy": _dict_copy,
    # Python 2
    "iterkeys": _keys,
    "itervalues": _values,
    "iteritems": _items,
}
