"""Trees of values whose mappings are configuration nodes, read by attribute as well."""

from __future__ import annotations

from typing import Any

from schedmate.agent.interp.objects import AttrDict, Instance
from schedmate.agent.values import Origin, Value


def attr_tree(value: Value, flavour: str) -> Value:
    """The same tree with every mapping readable by attribute."""
    data = value.data
    if isinstance(data, dict):
        items = {key: attr_tree(item, flavour) for key, item in data.items()}
        return Value(AttrDict(items, flavour), value.origin)
    if isinstance(data, list | tuple):
        return Value(type(data)(attr_tree(item, flavour) for item in data), value.origin)
    return value


def converted(holder: dict[Any, Value], value: Value) -> Value:
    """A value as a configuration node keeps it: mappings become nodes of the same kind."""
    if isinstance(holder, AttrDict) and holder.flavour not in ("namespace", "flags", "record"):
        if type(value.data) is dict:
            return attr_tree(value, holder.flavour)
    return value


def plain_tree(value: Value) -> Value:
    """The same tree with plain mappings; a deep copy of the containers."""
    data = value.data
    if isinstance(data, dict):
        return Value({key: plain_tree(item) for key, item in data.items()}, value.origin)
    if isinstance(data, list | tuple):
        return Value(type(data)(plain_tree(item) for item in data), value.origin)
    return value


def deep_copy(value: Value) -> Value:
    """A copy that shares nothing mutable, whatever kinds of mapping it holds."""
    data = value.data
    if isinstance(data, AttrDict):
        items = {key: deep_copy(item) for key, item in data.items()}
        return Value(AttrDict(items, data.flavour, data.label), value.origin)
    if isinstance(data, dict):
        return Value({key: deep_copy(item) for key, item in data.items()}, value.origin)
    if isinstance(data, list | tuple):
        return Value(type(data)(deep_copy(item) for item in data), value.origin)
    if isinstance(data, Instance) and data in data.cls.members.values():
        return value
    if isinstance(data, Instance):
        items_ = deep_copy(data.items) if data.items is not None else None
        attrs = {key: deep_copy(item) for key, item in data.attrs.items()}
        return Value(Instance(data.cls, attrs, items_, data.args, data.kwargs), value.origin)
    return value


def as_config(value: Value, file: str) -> Value:
    """The same tree, its literals of `file` said to come from a configuration file."""
    data = value.data
    if isinstance(data, AttrDict):
        items = {key: as_config(item, file) for key, item in data.items()}
        data = AttrDict(items, data.flavour, data.label)
    elif isinstance(data, dict):
        data = {key: as_config(item, file) for key, item in data.items()}
    elif isinstance(data, list | tuple):
        data = type(data)(as_config(item, file) for item in data)
    origin = value.origin
    if origin is not None and origin.source == "code" and origin.file == file:
        origin = Origin("config", file, origin.line, origin.text)
    return Value(data, origin)
