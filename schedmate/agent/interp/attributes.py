"""What `base.name` gives, by the kind of `base`."""

from __future__ import annotations

import re
from typing import Any

from schedmate.agent.interp import instances, methods
from schedmate.agent.interp.builtins.table import BUILTINS
from schedmate.agent.interp.flow import Raised
from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.modules import symbol
from schedmate.agent.interp.objects import (
    AttrDict,
    Bound,
    Call,
    Class,
    FileHandle,
    Function,
    Instance,
    Module,
    Native,
    Partial,
    PathStr,
    Site,
    Super,
    Symbol,
)
from schedmate.agent.interp.values_ops import iterate, plain_key
from schedmate.agent.values import Value, unknown
from schedmate.paths import is_dir


def get_attribute(machine: Machine, base: Value, name: str) -> Value:
    """`base.name`."""
    data = base.data
    known = machine.plugins.attribute(machine, base, name)
    if known is not None:
        return known
    if isinstance(data, Instance):
        return _of_instance(machine, base, data, name)
    if isinstance(data, AttrDict):
        return _of_attrdict(machine, base, data, name)
    if isinstance(data, Module):
        return _of_module(machine, data, name)
    if isinstance(data, Symbol):
        module, _, last = data.path.rpartition(".")
        if name in ("__name__", "__module__") and data.base is None and last[:1].isupper():
            return Value(last if name == "__name__" else module)
        path = machine.sources.canonical(f"{data.path}.{name}")
        return symbol(machine, path) if data.base is None else Value(Symbol(path, data.base))
    if isinstance(data, Call):
        if name in data.attrs:
            return data.attrs[name]
        if name in data.kwargs and _RECORD.search(data.path):
            return data.kwargs[name]
        constant = machine.plugins.name(machine, f"{data.path}().{name}")
        if constant is None:
            constant = machine.plugins.missing(machine, data, name)
        return constant or Value(Symbol(f"{data.path}().{name}", base), base.origin)
    if isinstance(data, Class):
        return _of_class(machine, base, data, name)
    if isinstance(data, Function):
        if name in ("__name__", "__qualname__"):
            return Value(data.name, base.origin)
        if name in ("main", "callback") or data.decorators:
            return Value(Symbol(f"?{data.name}.{name}", base), base.origin)
        return unknown(name)
    if isinstance(data, Super):
        return _of_super(machine, data, name)
    if isinstance(data, Bound):
        return get_attribute(machine, data.func, name)
    if isinstance(data, Partial):
        return {"func": data.func, "args": Value(tuple(data.args)),
                "keywords": Value(data.kwargs)}.get(name, unknown(name))  # fmt: skip
    if name == "__class__" and (base.known or isinstance(data, dict | list | tuple)):
        kind: Value | None = BUILTINS.get(type(data).__name__)
        return kind or unknown(name)
    if isinstance(data, PathStr | str | list | tuple | dict | FileHandle | int | float):
        return methods.bound_method(base, name)
    partly = methods.beginning(base) if name == "startswith" else None
    return partly or Value(Symbol(f"?.{name}", base), base.origin)


_RECORD = re.compile(r"\w(Config|Args|Arguments|Options|Settings|Hparams|Namespace)$")
"""Classes of libraries that keep what they are given under the names that it was given by."""


def missing(machine: Machine, name: str, error: str) -> Value:
    """What is not there: an error where the program expects it, else unknown."""
    if machine.certain and machine.expects(error):
        raise Raised(error)
    return unknown(name)


def _of_instance(machine: Machine, base: Value, data: Instance, name: str) -> Value:
    if name in data.attrs:
        return data.attrs[name]
    if name == "__dict__":
        return Value(data.items.data if data.items is not None else data.attrs, base.origin)
    if name == "__class__":
        return Value(data.cls)
    found = data.cls.lookup(name)
    items = data.items.data if data.items is not None else None
    if found is None and isinstance(items, dict) and name in items:
        held: Value = items[name]
        if isinstance(held.data, dict) and data.cls.lookup("__getattr__") is not None:
            return Value(Instance(data.cls, items=held), held.origin)  # read by attribute as well
        return held
    if found is not None:
        return _bind(machine, found, base, data.cls)
    if items is not None:
        method = methods.bound_method(Value(items, base.origin), name)
        if isinstance(method.data, Native):
            return method
    getter = data.cls.lookup("__getattr__")
    if getter is not None and isinstance(getter.data, Function) and not name.startswith("__"):
        return machine.call(getter, [base, Value(name)], {}, Site(data.cls.module.file, 1))
    if getter is not None and isinstance(items, dict) and _is_get(getter):
        return Value(None)
    if name in ("__setattr__", "__getattribute__"):
        return Value(Native(name, _raw_attribute(data)))
    for external in data.cls.external_bases():
        if external != "object":
            return Value(Symbol(f"{external}().{name}", base), base.origin)
    return missing(machine, name, "AttributeError")


def _is_get(getter: Value) -> bool:
    """Whether `__getattr__ = dict.get`: what a mapping does not have is None."""
    return isinstance(getter.data, Symbol) and getter.data.path.endswith(".get")


def _bind(machine: Machine, found: Value, owner: Value, cls: Class) -> Value:
    function = found.data
    if isinstance(function, Function):
        if function.kind == "property":
            return machine.call_function(function, [owner], {}, Site(function.module.file, 1))
        if function.kind == "staticmethod":
            return found
        if function.kind == "classmethod":
            return Value(Bound(found, Value(cls)), found.origin)
        return Value(Bound(found, owner), found.origin)
    return found


_MAPPING_METHODS = ("update", "get", "items", "keys", "values", "pop", "setdefault", "copy")


def _of_attrdict(machine: Machine, base: Value, data: AttrDict, name: str) -> Value:
    if data.flavour == "namespace":
        # `vars(args).items()` is mostly printed
        machine.observer.reads("*" if name in ("get", "pop", "setdefault", "update") else name)
    if name in data:
        return data[name]
    if name == "__dict__" or (name == "__flags" and data.flavour == "flags"):
        return base
    method = machine.plugins.method(base, name)
    if method is not None:
        return method
    # `vars(namespace)` is the namespace itself here, with the methods of a mapping
    if data.flavour != "namespace" or name in _MAPPING_METHODS:
        plain = methods.bound_method(base, name)
        if isinstance(plain.data, Native):
            return plain
    return missing(machine, name, "AttributeError")


def _of_module(machine: Machine, data: Module, name: str) -> Value:
    found = machine.module_attr(data, name)
    if found is not None:
        return found
    if name == "__dict__":
        return Value(data)
    if name == "__path__" and (is_dir(data.path) or data.path.name == "__init__.py"):
        return Value([Value(str(data.path if is_dir(data.path) else data.path.parent))])
    child = machine.sources.find(f"{data.name}.{name}", None, machine.search_path())
    if child is not None:
        machine.load(child)
        return Value(child)
    if name in ("items", "keys", "values", "get"):
        # of its `__dict__`, for which the module stands
        return methods.bound_method(Value(dict(data.scope.names)), name)
    if name == "loader":
        return Value(data)  # of its specification, for which the module stands as well
    if name == "load_module":
        return Value(Native(name, lambda *_: Value(data)))
    return Value(Symbol(machine.sources.canonical(f"{data.name}.{name}")))


def _of_class(machine: Machine, base: Value, data: Class, name: str) -> Value:
    found = data.lookup(name)
    if found is not None:
        function = found.data
        if isinstance(function, Function) and function.kind == "classmethod":
            return Value(Bound(found, base), found.origin)
        if instances.is_member(data, name, found):
            return instances.enum_member(data, name, found)
        return found
    if name in ("__name__", "__qualname__"):
        return Value(data.name, base.origin)
    if name == "__module__":
        return Value(data.module.name)
    if name == "__dict__":
        return Value(data.attrs)
    if name == "__members__":
        members = iterate(instances.enum_members(base)) or []
        return Value({member.data.attrs["name"].data: member for member in members})
    if name in ("__annotations__", "__dataclass_fields__"):
        return Value({key: unknown() for key in instances.fields(machine, data)})
    for external in data.external_bases():
        return Value(Symbol(f"{external}.{name}", base), base.origin)
    return missing(machine, name, "AttributeError")


def _of_super(machine: Machine, data: Super, name: str) -> Value:
    owner = data.self.data
    start = (
        owner.cls
        if isinstance(owner, Instance)
        else owner
        if isinstance(owner, Class)
        else data.cls
    )
    order = start.mro()
    position = order.index(data.cls) + 1 if data.cls in order else 1
    for cls in order[position:]:
        if name in cls.attrs:
            return _bind(machine, cls.attrs[name], data.self, start)
    if isinstance(owner, Instance) and owner.items is not None:
        if name == "__init__" and isinstance(owner.items.data, dict):
            return Value(Native("dict.__init__", _fill(owner.items.data)))
        return methods.bound_method(owner.items, name)
    if name in ("__setattr__", "__getattribute__", "__getattr__") and isinstance(owner, Instance):
        return Value(Native(name, _raw_attribute(owner)))
    for external in data.cls.external_bases():
        return Value(Symbol(f"{external}().{name}", data.self), data.self.origin)
    return unknown(name)


def _fill(items: dict[Any, Value]) -> Any:
    def fill(machine: Machine, call: Invocation) -> Value:
        instances.fill_mapping(machine, items, call.args, call.kwargs)
        return Value(None)

    return fill


def _raw_attribute(owner: Instance) -> Any:
    def access(machine: Machine, call: Invocation) -> Value:
        key = plain_key(call.args[0]) if call.args else None
        if not isinstance(key, str):
            return unknown()
        if len(call.args) > 1:
            owner.attrs[key] = call.args[1]
            return Value(None)
        return owner.attrs.get(key, unknown(key))

    return access


def set_path(machine: Machine, base: Value, names: list[str], value: Value) -> None:
    """`base.first.second = value`."""
    for name in names[:-1]:
        base = machine.getattr(base, name)
    machine.setattr(base, names[-1], value)
