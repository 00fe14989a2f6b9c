"""What `base[index]` gives, by the kind of `base`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from schedmate.agent.interp import classes
from schedmate.agent.interp.attributes import get_attribute, missing
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

if TYPE_CHECKING:
    from schedmate.agent.interp.state import State


def get_item(state: State, base: Value, index: Value) -> Value:
    """`base[index]`."""
    data = base.data
    key = plain_key(index)
    mapping = state.mapping(base)
    if isinstance(key, int) and _is_named_tuple(data):
        return get_item(state, Value(iterate(base)), index)
    if isinstance(data, Module) and isinstance(key, str):
        state.trace.looked_up.add(key)
        return state.module_attr(data, key) or unknown(key)
    if mapping is not None:
        return _of_mapping(state, base, mapping, index)
    if isinstance(data, list | tuple | str) and isinstance(key, int):
        if -len(data) <= key < len(data):
            item = data[key]
            return item if isinstance(item, Value) else Value(item, base.origin)
        return missing(state, str(key), "IndexError")
    if isinstance(data, Instance):
        return _of_instance(state, base, data, index)
    if isinstance(data, Class):
        if isinstance(key, str) and key in data.attrs:
            return get_attribute(state, base, key)
        return base
    if isinstance(data, Symbol):
        if data.path.startswith("tyro.conf."):
            return index
        if data.path == "os.environ":
            return state.environ.get(str(key), unknown(str(key)))
        if data.path == "sys.modules":
            named = (m for m in state.sources.modules.values() if m.name == key)
            return next((Value(module) for module in named), Value(Symbol(str(key))))
        return Value(Symbol(f"{data.path}[]", data.base or base), base.origin)
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


def _of_mapping(state: State, base: Value, mapping: dict[Any, Value], index: Value) -> Value:
    key = plain_key(index)
    if key in mapping:
        if isinstance(base.data, AttrDict) and base.data.flavour == "namespace":
            state.trace.read.add(str(key))
        if isinstance(key, str) and isinstance(mapping[key].data, Class | Function | Partial):
            state.trace.looked_up.add(key)
        return mapping[key]
    if isinstance(base.data, Instance):
        found = base.data.cls.lookup("__missing__")
        if found is not None:
            return state.call(found, [base, index], {}, Site(base.data.cls.module.file, 1))
    if isinstance(mapping, AttrDict) and isinstance(key, str) and mapping.flavour == "hocon":
        outer, dot, rest = key.partition(".")
        if dot and outer in mapping:
            return get_item(state, mapping[outer], Value(rest))
    if isinstance(mapping, AttrDict) and mapping.flavour == "open":
        return unknown(str(key))
    if isinstance(mapping, DefaultDict) and key is not None:
        mapping[key] = state.call(mapping.factory, [], {}, NOWHERE)
        return mapping[key]
    return missing(state, str(key), "KeyError")


def _of_instance(state: State, base: Value, data: Instance, index: Value) -> Value:
    if data.items is not None:
        return get_item(state, data.items, index)
    getter = data.cls.lookup("__getitem__")
    if getter is not None and isinstance(getter.data, Function):
        if classes.is_dataset(data.cls) or classes.is_network(data.cls):
            return unknown()
        return state.call(getter, [base, index], {}, Site(data.cls.module.file, 1))
    return unknown()
