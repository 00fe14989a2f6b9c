"""Objects of the repository's classes, and `super()` of them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass

from schedmate.agent.interp import classes
from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.machine import Handler, Machine
from schedmate.agent.interp.natives import native
from schedmate.agent.interp.objects import (
    NOWHERE,
    Class,
    Instance,
    Native,
    Site,
    Symbol,
    as_instance,
    as_symbol,
)
from schedmate.agent.interp.values.base import (
    Copies,
    Kind,
    copy_shallow,
    iterate,
    kind,
    missing,
    of,
    plain_key,
    truth,
)
from schedmate.agent.interp.values.callables import bind
from schedmate.agent.interp.values.mappings import fill, item
from schedmate.agent.values import Items, StandIn, Value, unknown

_RAW = ("__setattr__", "__getattribute__")


@of(Instance)
class Object(Kind[Instance]):
    """An object; `items` of its data are set where its class is built on dict or list."""

    symbolic = True

    def getattr(self, machine: Machine, base: Value, name: str) -> Value:
        data = self.data(base)
        if name in data.attrs:
            return data.attrs[name]
        if name == "__dict__":
            return Value(data.attrs if data.items is None else data.items.data, base.origin)
        if name == "__class__":
            return Value(data.cls)
        found = data.cls.lookup(name)
        if found is not None:
            return bind(machine, found, base, data.cls)
        getter = data.cls.lookup("__getattr__")
        held = _among_items(base, data, name, getter)
        if held is not None:
            return held
        if getter is not None and data.cls.method("__getattr__") and not name.startswith("__"):
            return machine.call(getter, [base, Value(name)], {}, Site(data.cls.module.file, 1))
        if getter is not None and data.mapping is not None and _is_get(getter):
            return Value(None)
        if name in _RAW:
            return native(name, _raw_attribute(data))
        for external in data.cls.external_bases():
            if external != "object":
                return Value(Symbol(f"{external}().{name}", base), base.origin)
        return missing(machine, name, "AttributeError")

    def setattr(self, machine: Machine, base: Value, name: str, value: Value) -> None:
        data = self.data(base)
        found = data.cls.method(name)
        if found is not None and found.setter:
            machine.call_function(found.setter, [base, value], {}, NOWHERE)
            return
        items = data.mapping
        if name == "__dict__" and value.data is data and items is not None:
            data.attrs = items  # `self.__dict__ = self`
            return
        by_attribute = items is not None and data.cls.lookup("__getattr__") is not None
        (items if items is not None and by_attribute else data.attrs)[name] = value

    def delattr(self, base: Value, name: str) -> None:
        self.data(base).attrs.pop(name, None)

    def getitem(self, machine: Machine, base: Value, index: Value) -> Value:
        data = self.data(base)
        if _is_named_tuple(data) and index.integer is not None:
            return machine.getitem(Value(iterate(base)), index)
        items, own = data.mapping, data.cls.lookup("__missing__")
        if items is not None:
            if own is None or plain_key(index) in items:
                return item(machine, base, items, index)
            return machine.call(own, [base, index], {}, Site(data.cls.module.file, 1))
        if data.items is not None:
            return machine.getitem(data.items, index)
        getter = data.cls.lookup("__getitem__")
        if getter is None or data.cls.method("__getitem__") is None:
            return unknown()
        if classes.is_dataset(data.cls) or classes.is_network(data.cls):
            return unknown()
        return machine.call(getter, [base, index], {}, Site(data.cls.module.file, 1))

    def setitem(self, machine: Machine, base: Value, index: Value, value: Value) -> None:
        data = self.data(base)
        setter = data.cls.method("__setitem__")
        if setter is not None:
            machine.call_function(setter, [base, index, value], {}, NOWHERE)
        elif data.items is not None:
            kind(data.items).setitem(machine, data.items, index, value)

    def call(self, machine: Machine, func: Value, call: Invocation) -> Value:
        cls = self.data(func).cls
        method = cls.method("__call__")
        if method is None or classes.is_network(cls):
            return unknown()
        return machine.call_function(method, [func, *call.args], call.kwargs, call.site)

    def truth(self, value: Value) -> bool | None:
        data = self.data(value)
        if data.items is not None:
            return truth(data.items)
        return None if data.cls.lookup("__bool__") is not None else True

    def iterate(self, value: Value) -> list[Value] | None:
        data = self.data(value)
        if data.items is not None:
            return iterate(data.items)
        return list(data.attrs.values()) if _is_named_tuple(data) else None

    def mapping(self, machine: Machine, value: Value) -> Items | None:
        data = self.data(value)
        return data.mapping

    def key(self, value: Value) -> Hashable:
        data = self.data(value)
        return data if data.is_member else None

    def is_same(self, one: Value, other: Value) -> bool | None:
        data = self.data(one)
        if data is other.data:
            return True
        own = classes.is_record(data.cls) or data.cls.lookup("__eq__") is not None
        return None if own else False

    def equals(self, value: Value, plain: Value) -> bool | None:
        data = self.data(value)
        if not data.cls.members:
            return None
        # a member of an enum of strings or numbers equals its value; other members nothing
        bases = {classes.last(base) for base in data.cls.external_bases()}
        held = data.attrs.get("value", unknown())
        return not bases.isdisjoint(classes.PLAIN_ENUMS) and bool(held.plain() == plain.plain())

    def copy(self, value: Value) -> Value:
        data = self.data(value)
        if data.is_member:
            return value
        held = copy_shallow(data.items) if data.items is not None else None
        same = Instance(data.cls, dict(data.attrs), held, data.args, data.kwargs)
        return Value(same, value.origin)

    def parts(self, value: Value) -> Iterable[Value]:
        data = self.data(value)
        return [*data.attrs.values(), *([data.items] if data.items is not None else [])]

    def deep_copy(self, value: Value, copies: Copies, copied: Callable[[Value], Value]) -> None:
        data = self.data(value)
        if data.is_member:
            return
        same = Instance(data.cls, args=data.args, kwargs=data.kwargs)
        copies[id(data)] = same
        same.items = copied(data.items) if data.items is not None else None
        same.attrs.update({key: copied(item) for key, item in data.attrs.items()})

    def has(self, machine: Machine, value: Value, name: str) -> bool | None:
        data = self.data(value)
        if name == "__dict__" or name in data.attrs or data.cls.lookup(name) is not None:
            return True
        if name in (data.mapping or ()):
            return True
        if data.cls.lookup("__getattr__") is not None or data.cls.external_bases():
            return None
        return False

    def class_of(self, value: Value) -> Class | None:
        return self.data(value).cls

    def names(self, value: Value) -> set[str] | None:
        data = self.data(value)
        return data.cls.names() | data.attrs.keys()

    def attributes(self, value: Value) -> Value:
        return Value(self.data(value).attrs, value.origin)


def _among_items(base: Value, data: Instance, name: str, getter: Value | None) -> Value | None:
    """`base.name` where that is an item, or a method, of the mapping or list that it is."""
    items = data.mapping
    if items is not None and name in items:
        held = items[name]
        if getter is not None and held.mapping is not None:
            return Value(Instance(data.cls, items=held), held.origin)  # read by attribute as well
        return held
    if data.items is None:
        return None
    inner = Value(data.items.data, base.origin)
    method = kind(inner).method(inner, name)
    return method if isinstance(method.data, Native) else None


def _is_named_tuple(data: Instance) -> bool:
    """Whether its attributes are the items of a tuple."""
    return "NamedTuple" in str(data.cls.external_bases())


def _is_get(getter: Value) -> bool:
    """Whether `__getattr__ = dict.get`: what a mapping does not have is None."""
    symbol = as_symbol(getter)
    return symbol is not None and symbol.path.endswith(".get")


@dataclass(eq=False, slots=True)
class Super(StandIn):
    """`super()` inside a method of `cls`."""

    cls: Class
    self: Value


@of(Super)
class Above(Kind[Super]):
    """`super()` inside a method."""

    def getattr(self, machine: Machine, base: Value, name: str) -> Value:
        data = self.data(base)
        owner = as_instance(data.self)
        start = kind(data.self).class_of(data.self) or data.cls
        order = start.mro()
        position = order.index(data.cls) + 1 if data.cls in order else 1
        for cls in order[position:]:
            if name in cls.attrs:
                return bind(machine, cls.attrs[name], data.self, start)
        if owner is not None:
            if owner.items is not None:
                if name == "__init__" and owner.mapping is not None:
                    return native("dict.__init__", _filling(owner.mapping))
                return kind(owner.items).method(owner.items, name)
            if name in (*_RAW, "__getattr__"):
                return native(name, _raw_attribute(owner))
        for external in data.cls.external_bases():
            return Value(Symbol(f"{external}().{name}", data.self), data.self.origin)
        return unknown(name)


def _filling(items: Items) -> Handler:
    def call(machine: Machine, call: Invocation) -> Value:
        fill(machine, items, call.args, call.kwargs)
        return Value(None)

    return call


def _raw_attribute(owner: Instance) -> Handler:
    def access(machine: Machine, call: Invocation) -> Value:
        key = call.first.text
        if key is None:
            return unknown()
        if len(call.args) > 1:
            owner.attrs[key] = call.args[1]
            return Value(None)
        return owner.attrs.get(key, unknown(key))

    return access
