"""Methods of lists, tuples and dicts."""

from __future__ import annotations

import ast
from typing import Any

from schedmate.agent.interp.builtins.data import in_order
from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.machine import Handler, Machine
from schedmate.agent.interp.objects import AttrDict, Instance
from schedmate.agent.interp.operators import binary
from schedmate.agent.interp.values_ops import iterate, plain_key
from schedmate.agent.sizes import MAX_DATA, VALUE, measure
from schedmate.agent.values import Origin, Value, lifted, unknown


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


def _get(machine: Machine, call: Invocation) -> Value:
    key = plain_key(call.args[0]) if call.args else None
    default = call.args[1] if len(call.args) > 1 else call.kwargs.get("default", Value(None))
    if key is None:
        return unknown()
    found: Value = call.owner.data.get(key, default)
    return found


def _keys(machine: Machine, call: Invocation) -> Value:
    machine.charge(VALUE * len(call.owner.data))
    return Value(
        [lifted(key, item.origin) for key, item in call.owner.data.items()], call.owner.origin
    )


def _values(machine: Machine, call: Invocation) -> Value:
    return machine.made(Value(list(call.owner.data.values()), call.owner.origin))


def _items(machine: Machine, call: Invocation) -> Value:
    machine.charge(2 * VALUE * len(call.owner.data))
    pairs = [Value((lifted(key, item.origin), item)) for key, item in call.owner.data.items()]
    return Value(pairs, call.owner.origin)


def _dict_update(machine: Machine, call: Invocation) -> Value:
    for value in call.args:
        mapping = machine.mapping(value)
        if mapping is not None:
            machine.charge(len(mapping))
            call.owner.data.update(mapping)
            continue
        for pair in iterate(value) or []:
            parts = iterate(pair)
            key = plain_key(parts[0]) if parts and len(parts) == 2 else None
            if parts and key is not None:
                call.owner.data[key] = parts[1]
    call.owner.data.update(call.kwargs)
    return Value(None)


def _setdefault(machine: Machine, call: Invocation) -> Value:
    key = plain_key(call.args[0]) if call.args else None
    if key is None:
        return unknown()
    found: Value = call.owner.data.setdefault(
        key, call.args[1] if len(call.args) > 1 else Value(None)
    )
    return found


def _dict_pop(machine: Machine, call: Invocation) -> Value:
    key = plain_key(call.args[0]) if call.args else None
    default = call.args[1] if len(call.args) > 1 else unknown()
    if not machine.certain or key not in call.owner.data:
        missing: Value = call.owner.data.get(key, default)
        return missing
    found: Value = call.owner.data.pop(key)
    # a setting that was read and taken out is a setting all the same
    machine.observer.takes_out(call.owner.data, key, found)
    return found


def _dict_copy(machine: Machine, call: Invocation) -> Value:
    return machine.made(copy_shallow(call.owner))


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


TUPLE: dict[str, Handler] = {"index": _list_index, "count": _count}

LIST: dict[str, Handler] = {
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

DICT: dict[str, Handler] = {
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
