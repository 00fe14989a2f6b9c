"""Mappings as values: plain ones, and configuration nodes that are read by attribute as well.

Then trees of values: copies, and conversion between plain mappings and configuration nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar, cast

from schedmate.agent.bounds import MAX_ITEMS, MAX_NESTING, VALUE_WEIGHT, measure
from schedmate.agent.interp.objects import (
    NOWHERE,
    AttrDict,
    Class,
    DefaultDict,
    Function,
    Handler,
    Invocation,
    Partial,
    as_instance,
    bound,
)
from schedmate.agent.interp.values import base
from schedmate.agent.interp.values.base import (
    Copies,
    Plain,
    iterate,
    kind,
    kind_of,
    not_there,
    plain_key,
)
from schedmate.agent.values import Data, Items, Origin, Value, lifted, unknown

if TYPE_CHECKING:
    from schedmate.agent.interp.machine import Machine

NAMED_TUPLE = "named tuple"
"""The label of attribute records that are tuples as well."""
M_co = TypeVar("M_co", bound=Items, covariant=True)


def _items_of(call: Invocation) -> Items:
    """The mapping whose method is called."""
    return cast("Items", call.owner.data)


def _get(machine: Machine, call: Invocation) -> Value:
    key = plain_key(call.args[0]) if call.args else None
    default = call.args[1] if len(call.args) > 1 else call.kwargs.get("default", Value(None))
    if key is None:
        return unknown()
    items = _items_of(call)
    found = items.get(key, default)
    if _has_parts(found):
        machine.observer.picks(items, found, call.args[0])
    return found


def _has_parts(value: Value) -> bool:
    """Whether it is a mapping or an object, which holds settings of its own."""
    return value.mapping is not None or as_instance(value) is not None


def _keys(machine: Machine, call: Invocation) -> Value:
    items = _items_of(call)
    machine.charge(VALUE_WEIGHT * len(items))
    return Value([lifted(key, item.origin) for key, item in items.items()], call.owner.origin)


def _values(machine: Machine, call: Invocation) -> Value:
    return machine.made(Value(list(_items_of(call).values()), call.owner.origin))


def _items(machine: Machine, call: Invocation) -> Value:
    items = _items_of(call)
    machine.charge(2 * VALUE_WEIGHT * len(items))
    pairs = [Value((lifted(key, item.origin), item)) for key, item in items.items()]
    return Value(pairs, call.owner.origin)


def _dict_update(machine: Machine, call: Invocation) -> Value:
    machine.charge(sum(len(machine.mapping(value) or ()) for value in call.args))
    fill_mapping(machine, _items_of(call), call.args, call.kwargs)
    return Value(None)


def _setdefault(machine: Machine, call: Invocation) -> Value:
    key = plain_key(call.args[0]) if call.args else None
    if key is None:
        return unknown()
    return _items_of(call).setdefault(key, call.args[1] if len(call.args) > 1 else Value(None))


def _dict_pop(machine: Machine, call: Invocation) -> Value:
    key = plain_key(call.args[0]) if call.args else None
    default = call.args[1] if len(call.args) > 1 else unknown()
    items = _items_of(call)
    if not machine.certain or key not in items:
        return items.get(key, default)
    found = items.pop(key)
    machine.observer.takes_out(items, key, found)
    return found


_METHODS: dict[str, Handler] = {
    "get": _get,
    "keys": _keys,
    "values": _values,
    "items": _items,
    "update": _dict_update,
    "setdefault": _setdefault,
    "pop": _dict_pop,
    "copy": lambda machine, call: machine.made(kind(call.owner).copy(call.owner)),
    # Python 2
    "iterkeys": _keys,
    "itervalues": _values,
    "iteritems": _items,
}


@kind_of(dict)
class PlainMapping(Plain[M_co]):
    """Plain mappings (`dict`)."""

    container = True

    def method(self, base: Value, name: str) -> Value:
        """`base.name`, to be called."""
        found = _METHODS.get(name)
        return bound(base, name, found) if found is not None else unknown(name)

    def delattr(self, base: Value, name: str) -> None:
        self.data(base).pop(name, None)

    def getitem(self, machine: Machine, base: Value, index: Value) -> Value:
        return mapping_item(machine, base, self.data(base), index)

    def setitem(self, machine: Machine, base: Value, index: Value, value: Value) -> None:
        key, items = plain_key(index), self.data(base)
        if key is not None and is_overriding(machine, items.get(key), value):
            items[key] = self.as_stored(items, value)

    def as_stored(self, items: Items, value: Value) -> Value:
        """The value that is put into the mapping: `value` itself, for a plain mapping."""
        return value

    def absent(self, machine: Machine, items: Value, base: Value, index: Value) -> Value:
        return not_there(machine, str(plain_key(index)), "KeyError")

    def iterate(self, value: Value) -> list[Value] | None:
        return [lifted(key, item.origin) for key, item in self.data(value).items()]

    def mapping(self, machine: Machine, value: Value) -> Items | None:
        return self.data(value)

    def parts(self, value: Value) -> Iterable[Value]:
        return self.data(value).values()

    def converted(self, value: Value, convert: Callable[[Value], Value]) -> Data:
        same = self.empty(value)
        same.update({key: convert(item) for key, item in self.data(value).items()})
        return same

    def copy(self, value: Value) -> Value:
        return Value(dict(self.data(value)), value.origin)

    def deep_copy(self, value: Value, copies: Copies, copied: Callable[[Value], Value]) -> None:
        data = self.data(value)
        same = copies[id(data)] = self.empty(value)
        same.update({key: copied(item) for key, item in data.items()})

    def empty(self, value: Value) -> Items:
        """An empty mapping to take the place of this one in a copy."""
        return {}

    def attributes(self, value: Value) -> Value:
        return value


@kind_of(DefaultDict)
class DefaultMapping(PlainMapping[DefaultDict]):
    """Mappings with a factory of missing items (`defaultdict`)."""

    def absent(self, machine: Machine, items: Value, base: Value, index: Value) -> Value:
        key, mapping = plain_key(index), self.data(items)
        if key is None:
            return super().absent(machine, items, base, index)
        mapping[key] = machine.call(mapping.factory, [], {}, NOWHERE)
        return mapping[key]


_READ_AS_A_WHOLE = ("get", "pop", "setdefault", "update")
_OF_NAMESPACES = ("update", "get", "items", "keys", "values", "pop", "setdefault", "copy")


@kind_of(AttrDict)
class ConfigNode(PlainMapping[AttrDict]):
    """A namespace or a configuration node, with the methods that plugins have for its flavour."""

    def getattr(self, machine: Machine, base: Value, name: str) -> Value:
        data = self.data(base)
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
        return not_there(machine, name, "AttributeError")

    def as_stored(self, items: Items, value: Value) -> Value:
        """The value that is put into the node: a mapping becomes a node of the same flavour."""
        flavour = self.data(Value(items)).flavour
        plain = type(value.data) is dict and flavour not in ("namespace", "flags", "record")
        return attr_tree(value, flavour) if plain else value

    def setattr(self, machine: Machine, base: Value, name: str, value: Value) -> None:
        data = self.data(base)
        current = data.get(name)
        if current is not None and current.known and current.data is not None:
            # `args.epochs = ceil(args.steps / len(loader))` is the same length, put otherwise
            number = current.number is not None or current.integer is not None
            unsaid = kind(value).unknown and not _replaces_default(current, value)
            if unsaid or (number and kind(value).foreign):
                return
        if is_overriding(machine, current, value):
            data[name] = self.as_stored(data, value)

    def getitem(self, machine: Machine, base: Value, index: Value) -> Value:
        key, data = plain_key(index), self.data(base)
        if data.label == NAMED_TUPLE and index.integer is not None:
            return machine.getitem(Value(iterate(base)), index)
        if data.flavour == "namespace" and key in data:
            machine.observer.reads(str(key))
        return super().getitem(machine, base, index)

    def absent(self, machine: Machine, items: Value, base: Value, index: Value) -> Value:
        flavour = self.data(items).flavour
        model = machine.plugins.node_method(flavour, "__missing__")
        asked = Invocation("__missing__", [index], {}, NOWHERE, base)
        found = model(machine, asked) if model is not None else None
        if found is not None:
            return found
        if flavour == "open":
            return unknown(str(plain_key(index)))
        return super().absent(machine, items, base, index)

    def iterate(self, value: Value) -> list[Value] | None:
        data = self.data(value)
        if data.label == NAMED_TUPLE:
            return list(data.values())
        return super().iterate(value)

    def copy(self, value: Value) -> Value:
        data = self.data(value)
        return Value(AttrDict(dict(data), data.flavour, data.label), value.origin)

    def empty(self, value: Value) -> Items:
        data = self.data(value)
        return AttrDict({}, data.flavour, data.label)

    def has(self, machine: Machine, value: Value, name: str) -> bool | None:
        return name in self.data(value) or name in _METHODS


def mapping_item(machine: Machine, base: Value, items: Items, index: Value) -> Value:
    """`base[index]` of what has these items."""
    key = plain_key(index)
    if key not in items:
        container = Value(items)
        return kind(container).absent(machine, container, base, index)
    item = items[key]
    if index.text is not None and isinstance(item.data, Class | Function | Partial):
        machine.observer.looks_up(index.text)
    elif _has_parts(item):
        machine.observer.picks(items, item, index)
    return item


def is_overriding(machine: Machine, held: Value | None, value: Value) -> bool:
    """Whether an assignment replaces what is held: in doubt, a known value stays."""
    return machine.certain or held is None or held.data is None or not held.known


def _replaces_default(current: Value, value: Value) -> bool:
    """Whether a default gives way to what was set: `args.steps = args.epochs * len(loader)`."""
    count = base.passes_of(value)
    counted = count.epochs if count is not None else None
    sources = [v.origin.source if v.origin is not None else "" for v in (current, counted) if v]
    return len(sources) == 2 and sources[0] == "default" and sources[1] not in ("default", "code")


def fill_mapping(
    machine: Machine, items: Items, args: list[Value], kwargs: dict[str, Value]
) -> None:
    """Put into `items` what `dict(*args, **kwargs)` has."""
    for value in args:
        mapping = machine.mapping(value)
        if mapping is not None:
            items.update(mapping)
            continue
        pairs = [iterate(pair) or [] for pair in iterate(value) or []]
        for key, item in (pair for pair in pairs if len(pair) == 2):
            if (name := plain_key(key)) is not None:
                items[name] = item
    items.update(kwargs)


# Trees of values: copies, and configuration nodes for mappings, read by attribute as well.


def attr_tree(value: Value, flavour: str) -> Value:
    """A copy of a tree whose mappings are all readable by attribute; unknown where too large."""
    return _rebuilt(value, lambda items: AttrDict(items, flavour))


def plain_tree(value: Value) -> Value:
    """A copy of a tree whose mappings are all plain, down to the leaves; unknown if too large."""
    return _rebuilt(value, lambda items: items)


def _rebuilt(value: Value, mapping: Callable[[Items], Items]) -> Value:
    """A copy of a tree with other mappings; what is shared is copied for each place it has."""
    if measure(value.data) is None:
        return unknown(origin=value.origin)

    def build(value: Value) -> Value:
        items = value.mapping
        if items is not None:
            return Value(mapping({k: build(item) for k, item in items.items()}), value.origin)
        if value.sequence is not None:
            return Value(kind(value).converted(value, build), value.origin)
        return value

    return build(value)


def is_bounded(value: Value) -> bool:
    """Whether a value and the objects in it come to a tree that is not too large."""
    return _is_spread_within(value, [MAX_ITEMS], 0)


def _is_spread_within(value: Value, left: list[int], depth: int) -> bool:
    left[0] -= 1
    if left[0] < 0 or depth > MAX_NESTING:
        return False
    return all(_is_spread_within(part, left, depth + 1) for part in kind(value).parts(value))


def deep_copy(value: Value) -> Value:
    """A copy that shares nothing mutable with the original, as `copy.deepcopy` makes it.

    What is the same object in several places of the original is one object in the copy as well.
    """
    copies: dict[int, Data] = {}

    def copied(value: Value) -> Value:
        if id(value.data) not in copies:
            kind(value).deep_copy(value, copies, copied)
        return Value(copies.get(id(value.data), value.data), value.origin)

    return copied(value)


def as_config(value: Value, file: str) -> Value:
    """The same tree, its literals of `file` said to come from a configuration file.

    Unknown where it is too large.
    """
    if measure(value.data) is None:
        return unknown(origin=value.origin)

    def convert(value: Value) -> Value:
        origin = value.origin
        if origin is not None and origin.source == "code" and origin.file == file:
            origin = Origin("config", file, origin.line, origin.text)
        return Value(kind(value).converted(value, convert), origin)

    return convert(value)


def replace_items(target: Value, source: Value) -> None:
    """Give a mapping the items of another one, in place."""
    if target.mapping is not None and source.mapping is not None:
        items = dict(source.mapping)
        target.mapping.clear()
        target.mapping.update(items)
