"""Mappings: plain ones, and configuration nodes read by attribute as well."""

from __future__ import annotations

from typing import Any

from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.machine import Handler, Machine
from schedmate.agent.interp.natives import bound
from schedmate.agent.interp.objects import (
    NOWHERE,
    AttrDict,
    Class,
    DefaultDict,
    Function,
    Instance,
    Partial,
)
from schedmate.agent.interp.passes import Passes
from schedmate.agent.interp.values.base import Plain, iterate, kind, missing, of, plain_key
from schedmate.agent.interp.values.trees import converted
from schedmate.agent.sizes import VALUE
from schedmate.agent.values import Value, lifted, unknown

NAMED_TUPLE = "named tuple"
"""The label of attribute records that are tuples as well."""


def _get(machine: Machine, call: Invocation) -> Value:
    key = plain_key(call.args[0]) if call.args else None
    default = call.args[1] if len(call.args) > 1 else call.kwargs.get("default", Value(None))
    if key is None:
        return unknown()
    found: Value = call.owner.data.get(key, default)
    if isinstance(found.data, dict | Instance):
        machine.observer.picks(call.owner.data, found, call.args[0])
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
    return machine.made(kind(call.owner).copy(call.owner))


_METHODS: dict[str, Handler] = {
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


@of(dict)
class Mapping(Plain):
    """A plain mapping."""

    container = True

    def method(self, base: Value, name: str) -> Value:
        """`base.name`, to be called."""
        found = _METHODS.get(name)
        return bound(base, name, found) if found is not None else unknown(name)

    def delattr(self, base: Value, name: str) -> None:
        base.data.pop(name, None)

    def getitem(self, machine: Machine, base: Value, index: Value) -> Value:
        return item(machine, base, base.data, index)

    def setitem(self, machine: Machine, base: Value, index: Value, value: Value) -> None:
        key = plain_key(index)
        if key is not None and overrides(machine, base.data.get(key), value):
            base.data[key] = converted(base.data, value)

    def absent(self, machine: Machine, items: dict[Any, Value], base: Value, index: Value) -> Value:
        """What asking for an item gives that is not among the known ones."""
        return missing(machine, str(plain_key(index)), "KeyError")

    def iterate(self, value: Value) -> list[Value] | None:
        return [lifted(key, item.origin) for key, item in value.data.items()]

    def mapping(self, machine: Machine, value: Value) -> dict[Any, Value] | None:
        items: dict[Any, Value] = value.data
        return items

    def copy(self, value: Value) -> Value:
        return Value(dict(value.data), value.origin)

    def attributes(self, value: Value) -> Value:
        return value


@of(DefaultDict)
class WithDefault(Mapping):
    """A `defaultdict`."""

    def absent(self, machine: Machine, items: dict[Any, Value], base: Value, index: Value) -> Value:
        key = plain_key(index)
        if key is None or not isinstance(items, DefaultDict):
            return super().absent(machine, items, base, index)
        items[key] = machine.call(items.factory, [], {}, NOWHERE)
        return items[key]


_READ_AS_A_WHOLE = ("get", "pop", "setdefault", "update")
_OF_NAMESPACES = ("update", "get", "items", "keys", "values", "pop", "setdefault", "copy")


@of(AttrDict)
class Node(Mapping):
    """A namespace or a configuration node, with the methods that plugins have for its flavour."""

    def getattr(self, machine: Machine, base: Value, name: str) -> Value:
        data: AttrDict = base.data
        if data.flavour == "namespace":
            # `vars(args).items()` is mostly printed
            machine.observer.reads("*" if name in _READ_AS_A_WHOLE else name)
        if name in data:
            return data[name]
        if name == "__dict__" or (name == "__flags" and data.flavour == "flags"):
            return base
        method = machine.plugins.method(base, name)
        if method is not None:
            return method
        # `vars(namespace)` is the namespace itself here, with the methods of a mapping
        if name in _METHODS and (data.flavour != "namespace" or name in _OF_NAMESPACES):
            return self.method(base, name)
        return missing(machine, name, "AttributeError")

    def setattr(self, machine: Machine, base: Value, name: str, value: Value) -> None:
        data: AttrDict = base.data
        held = data.get(name)
        if held is not None and held.known and held.data is not None:
            # `args.epochs = ceil(args.steps / len(loader))` is the same length, put otherwise
            number = isinstance(held.data, int | float)
            unsaid = kind(value).unknown and not _replaces_default(held, value)
            if unsaid or (number and kind(value).foreign):
                return
        if overrides(machine, held, value):
            data[name] = converted(data, value)

    def getitem(self, machine: Machine, base: Value, index: Value) -> Value:
        key = plain_key(index)
        if base.data.label == NAMED_TUPLE and isinstance(key, int):
            return machine.getitem(Value(iterate(base)), index)
        if base.data.flavour == "namespace" and key in base.data:
            machine.observer.reads(str(key))
        return super().getitem(machine, base, index)

    def absent(self, machine: Machine, items: dict[Any, Value], base: Value, index: Value) -> Value:
        flavour = items.flavour if isinstance(items, AttrDict) else ""
        model = machine.plugins.node_method(flavour, "__missing__")
        asked = Invocation("__missing__", [index], {}, NOWHERE, base)
        found = model(machine, asked) if model is not None else None
        if found is not None:
            return found
        if flavour == "open":
            return unknown(str(plain_key(index)))
        return super().absent(machine, items, base, index)

    def iterate(self, value: Value) -> list[Value] | None:
        if value.data.label == NAMED_TUPLE:
            return list(value.data.values())
        return super().iterate(value)

    def copy(self, value: Value) -> Value:
        data: AttrDict = value.data
        return Value(AttrDict(dict(data), data.flavour, data.label), value.origin)

    def has(self, machine: Machine, value: Value, name: str) -> bool | None:
        return name in value.data or name in _METHODS


def item(machine: Machine, base: Value, items: dict[Any, Value], index: Value) -> Value:
    """`base[index]` of what has these items."""
    key = plain_key(index)
    if key not in items:
        holder = kind(Value(items))
        assert isinstance(holder, Mapping)
        return holder.absent(machine, items, base, index)
    found = items[key]
    if isinstance(key, str) and isinstance(found.data, Class | Function | Partial):
        machine.observer.looks_up(key)
    elif isinstance(found.data, dict | Instance):
        machine.observer.picks(items, found, index)
    return found


def overrides(machine: Machine, held: Value | None, value: Value) -> bool:
    """Whether an assignment replaces what is held: in doubt, a known value stays."""
    return machine.certain or held is None or held.data is None or not held.known


def _replaces_default(held: Value, value: Value) -> bool:
    """Whether a default gives way to what was set: `args.steps = args.epochs * len(loader)`."""
    passes = value.data.epochs if isinstance(value.data, Passes) else None
    sources = [v.origin.source if v.origin is not None else "" for v in (held, passes) if v]
    return len(sources) == 2 and sources[0] == "default" and sources[1] not in ("default", "code")


def fill(
    machine: Machine, items: dict[Any, Value], args: list[Value], kwargs: dict[str, Value]
) -> None:
    """Put into `items` what `dict(*args, **kwargs)` has."""
    for value in args:
        mapping = machine.mapping(value)
        if mapping is not None:
            items.update(mapping)
            continue
        for pair in iterate(value) or []:
            parts = iterate(pair)
            if parts is not None and len(parts) == 2:
                key = plain_key(parts[0])
                if key is not None:
                    items[key] = parts[1]
    items.update(kwargs)
