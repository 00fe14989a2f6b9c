"""Objects of the repository's classes, `super()` of them, modules, and things of libraries as
values.

A thing of a library is known by its dotted path, and what calling it gave by the call.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from schedmate.agent.interp.objects import (
    NOWHERE,
    Call,
    Class,
    Handler,
    Instance,
    Invocation,
    Module,
    Native,
    Site,
    Symbol,
    as_instance,
    as_symbol,
    is_own,
    native,
)
from schedmate.agent.interp.values import classes
from schedmate.agent.interp.values.base import (
    Copies,
    Kind,
    copy_shallow,
    iterate,
    kind,
    kind_of,
    not_there,
    plain_key,
    truth,
)
from schedmate.agent.interp.values.classes import bind_attribute
from schedmate.agent.interp.values.mappings import fill_mapping, mapping_item
from schedmate.agent.values import Items, StandIn, Value, unknown
from schedmate.base.files import is_dir

if TYPE_CHECKING:
    from schedmate.agent.interp.machine import Machine

_RAW = ("__setattr__", "__getattribute__")


@kind_of(Instance)
class OwnObject(Kind[Instance]):
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
        attribute = data.cls.lookup(name)
        if attribute is not None:
            return bind_attribute(machine, attribute, base, data.cls)
        getter = data.cls.lookup("__getattr__")
        item = _attribute_among_items(base, data, name, getter)
        if item is not None:
            return item
        if getter is not None and data.cls.method("__getattr__") and not name.startswith("__"):
            return machine.call(getter, [base, Value(name)], {}, Site(data.cls.module.file, 1))
        if getter is not None and data.mapping is not None and _is_get(getter):
            return Value(None)
        if name in _RAW:
            return native(name, _raw_attribute(data))
        for external in data.cls.external_bases():
            if external != "object":
                return Value(Symbol(f"{external}().{name}", base), base.origin)
        return not_there(machine, name, "AttributeError")

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
                return mapping_item(machine, base, items, index)
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
        bases = {classes.last_part(base) for base in data.cls.external_bases()}
        held = data.attrs.get("value", unknown())
        return not bases.isdisjoint(classes.PLAIN_ENUM_BASES) and bool(
            held.plain() == plain.plain()
        )

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


def _attribute_among_items(
    base: Value, data: Instance, name: str, getter: Value | None
) -> Value | None:
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
    """The data of `super()` inside a method of `cls`."""

    cls: Class
    self: Value


@kind_of(Super)
class SuperKind(Kind[Super]):
    """Values of `super()`: attributes of the classes after `cls`."""

    def getattr(self, machine: Machine, base: Value, name: str) -> Value:
        data = self.data(base)
        owner = as_instance(data.self)
        start = kind(data.self).class_of(data.self) or data.cls
        order = start.mro()
        position = order.index(data.cls) + 1 if data.cls in order else 1
        for cls in order[position:]:
            if name in cls.attrs:
                return bind_attribute(machine, cls.attrs[name], data.self, start)
        if owner is not None:
            if owner.items is not None:
                if name == "__init__" and owner.mapping is not None:
                    return native("dict.__init__", _filling_method(owner.mapping))
                return kind(owner.items).method(owner.items, name)
            if name in (*_RAW, "__getattr__"):
                return native(name, _raw_attribute(owner))
        for external in data.cls.external_bases():
            return Value(Symbol(f"{external}().{name}", data.self), data.self.origin)
        return unknown(name)


def _filling_method(items: Items) -> Handler:
    def call(machine: Machine, call: Invocation) -> Value:
        fill_mapping(machine, items, call.args, call.kwargs)
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


# Things of libraries, known by their dotted path, and what calling them gave.


_RECORD = re.compile(r"\w(Config|Args|Arguments|Options|Settings|Hparams|Namespace)$")
"""Classes of libraries that keep what they are given under the names that it was given by."""


@kind_of(Symbol)
class LibraryName(Kind[Symbol]):
    """Names of libraries (`Symbol`): modules, classes, functions, by dotted path."""

    foreign = True
    symbolic = True

    def getattr(self, machine: Machine, base: Value, name: str) -> Value:
        data = self.data(base)
        module, _, last = data.path.rpartition(".")
        if name in ("__name__", "__module__") and data.base is None and last[:1].isupper():
            return Value(last if name == "__name__" else module)
        path = machine.sources.canonical(f"{data.path}.{name}")
        return symbol_value(machine, path) if data.base is None else Value(Symbol(path, data.base))

    def setattr(self, machine: Machine, base: Value, name: str, value: Value) -> None:
        if f"{self.data(base).path}.{name}" == "sys.argv":
            machine.argv = iterate(value) or machine.argv

    def getitem(self, machine: Machine, base: Value, index: Value) -> Value:
        data = self.data(base)
        modelled = machine.plugins.item(machine, base, data.path, index)
        if modelled is not None:
            return modelled
        return Value(Symbol(f"{data.path}[]", data.base or base), base.origin)

    def setitem(self, machine: Machine, base: Value, index: Value, value: Value) -> None:
        key = index.text
        if self.data(base).path == "os.environ" and key is not None and machine.certain:
            machine.environ[key] = value
            if len(machine.frames) == 1:  # for the whole program, not for one of its processes
                machine.shared.setdefault("os.environ", {})[key] = value

    def call(self, machine: Machine, func: Value, call: Invocation) -> Value:
        data = self.data(func)
        call.path, call.base = data.path, data.base
        return machine.external(call)

    def is_same(self, one: Value, other: Value) -> bool | None:
        same = as_symbol(other)
        if same is None:
            return False
        return True if self.data(one).path == same.path else None

    def has(self, machine: Machine, value: Value, name: str) -> bool | None:
        return False if classes.is_foreign(name) else None


@kind_of(Call)
class LibraryResult(Kind[Call]):
    """Results of library calls (`Call`)."""

    foreign = True

    def getattr(self, machine: Machine, base: Value, name: str) -> Value:
        data = self.data(base)
        if name in data.attrs:
            return data.attrs[name]
        if name in data.kwargs and _RECORD.search(data.path):
            return data.kwargs[name]
        modelled = machine.plugins.name(machine, f"{data.path}().{name}")
        if modelled is None:
            modelled = machine.plugins.missing(machine, data, name)
        return modelled or Value(Symbol(f"{data.path}().{name}", base), base.origin)

    def setattr(self, machine: Machine, base: Value, name: str, value: Value) -> None:
        self.data(base).attrs[name] = value

    def delattr(self, base: Value, name: str) -> None:
        self.data(base).attrs.pop(name, None)

    def getitem(self, machine: Machine, base: Value, index: Value) -> Value:
        data = self.data(base)
        key = plain_key(index)
        if key in data.attrs:
            return data.attrs[key]
        suffix = f"[{key!r}]" if index.text is not None else "[]"
        return Value(Symbol(f"{data.path}(){suffix}", base), base.origin)

    def call(self, machine: Machine, func: Value, call: Invocation) -> Value:
        data = self.data(func)
        if _wraps(machine, data):
            return machine.call(data.args[0], call.args, call.kwargs, call.site)
        call.path, call.base = f"{data.path}()", func
        return machine.external(call)

    def truth(self, value: Value) -> bool | None:
        return True if self.data(value).path == "re.Match" else None

    def element(self, container: Value) -> Value:
        return Value(Symbol(f"{self.data(container).path}()[]", container), container.origin)


def _wraps(machine: Machine, made: Call) -> bool:
    """Whether a library's wrapper was given a class or function: called, it makes the same."""
    inner = made.args[0] if made.args else None
    name = as_symbol(inner)
    callable_ = name.path.rpartition(".")[2][:1].isupper() if name else is_own(inner)
    return callable_ and f"{made.path}()" not in machine.plugins.calls


def symbol_value(machine: Machine, path: str) -> Value:
    """A library's name; what stands for it when that is known."""
    constant = machine.plugins.name(machine, path)
    return constant if constant is not None else Value(Symbol(path))


# Modules of the repository as values.


@kind_of(Module)
class OwnModule(Kind[Module]):
    """A module, which stands for its `__dict__` and its specification as well."""

    symbolic = True

    def getattr(self, machine: Machine, base: Value, name: str) -> Value:
        data = self.data(base)
        attribute = machine.module_attr(data, name)
        if attribute is not None:
            return attribute
        if name == "__dict__":
            return Value(data)
        if name == "__path__" and (is_dir(data.path) or data.path.name == "__init__.py"):
            return Value([Value(str(data.path if is_dir(data.path) else data.path.parent))])
        child = machine.sources.find(f"{data.name}.{name}", None, machine.search_path())
        if child is not None:
            machine.load(child)
            return Value(child)
        if name in ("items", "keys", "values", "get"):
            names = Value(dict(data.scope.names))
            return kind(names).getattr(machine, names, name)
        if name == "loader":
            return Value(data)
        if name == "load_module":
            return native(name, lambda *_: Value(data))
        return Value(Symbol(machine.sources.canonical(f"{data.name}.{name}")))

    def setattr(self, machine: Machine, base: Value, name: str, value: Value) -> None:
        data = self.data(base)
        machine.load(data)
        data.scope.names[name] = value

    def getitem(self, machine: Machine, base: Value, index: Value) -> Value:
        items = self.mapping(machine, base)
        key = index.text
        if key is None:
            return mapping_item(machine, base, items, index)
        machine.observer.looks_up(key)
        return machine.module_attr(self.data(base), key) or unknown(key)

    def truth(self, value: Value) -> bool | None:
        return True

    def mapping(self, machine: Machine, value: Value) -> Items:
        data = self.data(value)
        machine.load(data)
        return data.scope.names

    def has(self, machine: Machine, value: Value, name: str) -> bool | None:
        return machine.module_attr(self.data(value), name) is not None

    def attributes(self, value: Value) -> Value:
        return value
