"""Trees of values whose mappings are configuration nodes, read by attribute as well."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from schedmate.agent.interp.objects import AttrDict, Instance
from schedmate.agent.sizes import MAX_ITEMS, MAX_NESTING, measure
from schedmate.agent.values import Origin, Value, unknown


def attr_tree(value: Value, flavour: str) -> Value:
    """The same tree with every mapping readable by attribute; unknown where it is too large."""
    return _rebuilt(value, lambda items: AttrDict(items, flavour))


def _rebuilt(value: Value, mapping: Callable[[dict[Any, Value]], dict[Any, Value]]) -> Value:
    """The same tree with other mappings, what is shared copied for each place it stands at."""
    if measure(value.data) is None:
        return unknown(origin=value.origin)

    def build(value: Value) -> Value:
        data = value.data
        if isinstance(data, dict):
            items = {key: build(item) for key, item in data.items()}
            return Value(mapping(items), value.origin)
        if isinstance(data, list | tuple):
            return Value(type(data)(build(item) for item in data), value.origin)
        return value

    return build(value)


def converted(holder: dict[Any, Value], value: Value) -> Value:
    """A value as a configuration node keeps it: mappings become nodes of the same kind."""
    if isinstance(holder, AttrDict) and holder.flavour not in ("namespace", "flags", "record"):
        if type(value.data) is dict:
            return attr_tree(value, holder.flavour)
    return value


def bounded(value: Value) -> bool:
    """Whether a value and the objects in it come to a tree that is not too large."""
    return _spread(value, [MAX_ITEMS], 0)


def _spread(value: Value, left: list[int], depth: int) -> bool:
    left[0] -= 1
    data = value.data
    if isinstance(data, Instance):
        data = data.attrs if data.items is None else {**data.attrs, "": data.items}
    if left[0] < 0 or depth > MAX_NESTING:
        return False
    if not isinstance(data, dict | list | tuple):
        return True
    items = data.values() if isinstance(data, dict) else data
    return all(_spread(item, left, depth + 1) for item in items)


def plain_tree(value: Value) -> Value:
    """The same tree with plain mappings, a deep copy of the containers; unknown if too large."""
    return _rebuilt(value, lambda items: items)


def deep_copy(value: Value) -> Value:
    """A copy that shares nothing mutable with the original, as `copy.deepcopy` makes it.

    What is the same object in several places of the original is one object in the copy as well.
    """
    made: dict[int, Any] = {}

    def copied(value: Value) -> Value:
        data = value.data
        if not isinstance(data, dict | list | tuple | Instance):
            return value
        if id(data) not in made:
            copy(data)
        return Value(made[id(data)], value.origin)

    def copy(data: Any) -> None:
        if isinstance(data, Instance):
            if data in data.cls.members.values():
                made[id(data)] = data
                return
            same = made[id(data)] = Instance(data.cls, args=data.args, kwargs=data.kwargs)
            same.items = copied(data.items) if data.items is not None else None
            same.attrs.update({key: copied(item) for key, item in data.attrs.items()})
        elif isinstance(data, tuple):
            made[id(data)] = tuple(copied(item) for item in data)
        elif isinstance(data, list):
            made[id(data)] = []
            made[id(data)].extend([copied(item) for item in data])
        else:
            attr = isinstance(data, AttrDict)
            made[id(data)] = AttrDict({}, data.flavour, data.label) if attr else {}
            made[id(data)].update({key: copied(item) for key, item in data.items()})

    return copied(value)


def as_config(value: Value, file: str) -> Value:
    """The same tree, its literals of `file` said to come from a configuration file.

    Unknown where it is too large.
    """
    if measure(value.data) is None:
        return unknown(origin=value.origin)
    return _as_config(value, file)


def _as_config(value: Value, file: str) -> Value:
    data = value.data
    if isinstance(data, AttrDict):
        items = {key: _as_config(item, file) for key, item in data.items()}
        data = AttrDict(items, data.flavour, data.label)
    elif isinstance(data, dict):
        data = {key: _as_config(item, file) for key, item in data.items()}
    elif isinstance(data, list | tuple):
        data = type(data)(_as_config(item, file) for item in data)
    origin = value.origin
    if origin is not None and origin.source == "code" and origin.file == file:
        origin = Origin("config", file, origin.line, origin.text)
    return Value(data, origin)
