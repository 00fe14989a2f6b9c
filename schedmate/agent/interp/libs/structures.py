"""Named tuples and dataclasses: making them, their fields, copies with changes."""

from __future__ import annotations

from schedmate.agent.interp import classes
from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.objects import AttrDict, Instance, Native, as_instance
from schedmate.agent.interp.plugins import Plugin
from schedmate.agent.interp.values import construction
from schedmate.agent.interp.values.base import iterate, kind
from schedmate.agent.interp.values.mappings import NAMED_TUPLE
from schedmate.agent.interp.values.trees import bounded, deep_copy
from schedmate.agent.sizes import MAX_DATA
from schedmate.agent.values import Items, Value, unknown


def named_tuple(machine: Machine, call: Invocation) -> Value:
    """`collections.namedtuple(name, fields)`: a constructor of attribute records."""
    given, text = call.argument(1, "field_names"), call.text(1, "field_names")
    if given is None or (text is not None and len(text) > MAX_DATA):
        return unknown()
    if text is not None:
        names = text.replace(",", " ").split()
    else:
        names = [str(name.data) for name in iterate(given) or []]
    last = iterate(call.kwargs.get("defaults")) or []
    defaults = dict(zip(names[len(names) - len(last) :], last, strict=False))

    def make(machine: Machine, call: Invocation) -> Value:
        items = {**dict(zip(names, call.args, strict=False)), **call.kwargs}
        ordered: Items = {
            name: items.get(name, defaults.get(name, unknown(name))) for name in names
        }
        return Value(AttrDict(ordered, "namespace", NAMED_TUPLE))

    return Value(Native(str(call.args[0].data), make))


def as_dict(machine: Machine, call: Invocation) -> Value:
    """`dataclasses.asdict(record)`: mappings all the way down."""
    value = call.first
    if as_instance(value) is not None or type(value.data) is dict:
        return _mapping(deep_copy(value)) if bounded(value) else unknown(origin=value.origin)
    if value.mapping is not None:
        return deep_copy(Value(dict(value.mapping), value.origin))
    return unknown()


def _mapping(value: Value) -> Value:
    match data := value.data:
        case Instance() if classes.is_record(data.cls):
            return Value({key: _mapping(item) for key, item in data.attrs.items()}, value.origin)
        case Instance(items=None) if not data.cls.members:
            return Value(dict(data.attrs), value.origin)
        case dict() if type(data) is dict:
            return Value({key: _mapping(item) for key, item in data.items()}, value.origin)
        case list() | tuple():
            return Value(type(data)(_mapping(item) for item in data), value.origin)
        case _:
            return value


def replace(machine: Machine, call: Invocation) -> Value:
    """`dataclasses.replace(record, epochs=3)`: a copy, initialised again with the changes."""
    if not call.args:
        return unknown()
    made = deep_copy(call.args[0])
    for key, value in call.kwargs.items():
        machine.setattr(made, key, value)
    owner = as_instance(made)
    again = owner.cls.method("__post_init__") if owner is not None else None
    if again is not None:
        machine.call_function(again, [made], {}, call.site)
    return made


def fields(machine: Machine, call: Invocation) -> Value:
    """`dataclasses.fields(x)`: name, default and type of each."""
    cls = kind(call.first).class_of(call.first)
    if cls is None:
        return unknown()
    found = []
    for name, default in construction.fields(machine, cls).items():
        owner = next((c for c in cls.mro() if name in c.annotations), None)
        of = machine.evaluate(owner.annotations[name], owner.scope) if owner else unknown()
        items = {"name": Value(name), "default": default, "type": of, "metadata": Value({}),
                 "init": Value(True)}  # fmt: skip
        found.append(Value(AttrDict(items, "namespace")))
    return Value(found)


PLUGIN = Plugin(
    calls={
        "collections.namedtuple": named_tuple,
        "dataclasses.asdict": as_dict,
        "attr.asdict": as_dict,
        "attrs.asdict": as_dict,
        "dataclasses.replace": replace,
        "dataclasses.fields": fields,
    }
)
