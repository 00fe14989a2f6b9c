"""What `base[index]` gives, by the kind of `base`."""

from __future__ import annotations

from typing import Any

from schedmate.agent.interp import classes
from schedmate.agent.interp.attributes import get_attribute, missing
from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.objects import (
    NOWHERE,
    AttrDict,
    Call,
    Class,
    DefaultDict,
    Function,
    Instance,
    Module,
    Partial,
    Site,
    Symbol,
)
from schedmate.agent.interp.values_ops import NAMED_TUPLE, iterate, plain_key
from schedmate.agent.values import Unknown, Value, unknown


def get_item(machine: Machine, base: Value, index: Value) -> Value:
    """`base[index]`."""
    data = base.data
    key = plain_key(index)
    mapping = machine.mapping(base)
    if isinstance(key, int) and _is_named_tuple(data):
        return get_item(machine, Value(iterate(base)), index)
    if isinstance(data, Module) and isinstance(key, str):
        machine.observer.looks_up(key)
        return machine.module_attr(data, key) or unknown(key)
    if mapping is not None:
        return _of_mapping(machine, base, mapping, index)
    if isinstance(data, list | tuple | str) and isinstance(key, int):
        if -len(data) <= key < len(data):
            item = data[key]
            return item if isinstance(item, Value) else Value(item, base.origin)
        return missing(machine, str(key), "IndexError")
    if isinstance(data, Instance):
        return _of_instance(machine, base, data, index)
    if isinstance(data, Class):
        if isinstance(key, str) and key in data.attrs:
            return get_attribute(machine, base, key)
        return base
    if isinstance(data, Symbol):
        known = machine.plugins.item(machine, base, data.path, index)
        return (
            known
            if known is not None
            else Value(Symbol(f"{data.path}[]", data.base or base), base.origin)
        )
    if isinstance(data, Call) and key in data.attrs:
        return data.attrs[key]
    if isinstance(data, Call):
        suffix = f"[{key!r}]" if isinstance(key, str) else "[]"
        return Value(Symbol(f"{data.path}(){suffix}", base), base.origin)
    return Value(Unknown(), base.origin)


def _is_named_tuple(data: object) -> bool:
    if isinstance(data, AttrDict):
        return data.label == NAMED_TUPLE
    return isinstance(data, Instance) and "NamedTuple" in str(data.cls.external_bases())


def _of_mapping(machine: Machine, base: Value, mapping: dict[Any, Value], index: Value) -> Value:
    key = plain_key(index)
    if key in mapping:
        if isinstance(base.data, AttrDict) and base.data.flavour == "namespace":
            machine.observer.reads(str(key))
        if isinstance(key, str) and isinstance(mapping[key].data, Class | Function | Partial):
            machine.observer.looks_up(key)
        return mapping[key]
    if isinstance(base.data, Instance):
        found = base.data.cls.lookup("__missing__")
        if found is not None:
            return machine.call(found, [base, index], {}, Site(base.data.cls.module.file, 1))
    if isinstance(mapping, AttrDict):
        model = machine.plugins.node_method(mapping.flavour, "__missing__")
        found = (
            model(machine, Invocation("__missing__", [index], {}, NOWHERE, base)) if model else None
        )
        if found is not None:
            return found
    if isinstance(mapping, AttrDict) and mapping.flavour == "open":
        return unknown(str(key))
    if isinstance(mapping, DefaultDict) and key is not None:
        mapping[key] = machine.call(mapping.factory, [], {}, NOWHERE)
        return mapping[key]
    return missing(machine, str(key), "KeyError")


def _of_instance(machine: Machine, base: Value, data: Instance, index: Value) -> Value:
    if data.items is not None:
        return get_item(machine, data.items, index)
    getter = data.cls.lookup("__getitem__")
    if getter is not None and isinstance(getter.data, Function):
        if classes.is_dataset(data.cls) or classes.is_network(data.cls):
            return unknown()
        return machine.call(getter, [base, index], {}, Site(data.cls.module.file, 1))
    return unknown()
