"""Trees of values: copies, and configuration nodes for mappings, read by attribute as well."""

from __future__ import annotations

from collections.abc import Callable

from schedmate.agent.interp.objects import AttrDict
from schedmate.agent.interp.values.base import kind
from schedmate.agent.sizes import MAX_ITEMS, MAX_NESTING, measure
from schedmate.agent.values import Data, Items, Origin, Value, unknown


def attr_tree(value: Value, flavour: str) -> Value:
    """The same tree with every mapping readable by attribute; unknown where it is too large."""
    return _rebuilt(value, lambda items: AttrDict(items, flavour))


def plain_tree(value: Value) -> Value:
    """The same tree with plain mappings, a deep copy of the containers; unknown if too large."""
    return _rebuilt(value, lambda items: items)


def _rebuilt(value: Value, mapping: Callable[[Items], Items]) -> Value:
    """The same tree with other mappings; what is shared is copied for each place it has."""
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


def bounded(value: Value) -> bool:
    """Whether a value and the objects in it come to a tree that is not too large."""
    return _spread(value, [MAX_ITEMS], 0)


def _spread(value: Value, left: list[int], depth: int) -> bool:
    left[0] -= 1
    if left[0] < 0 or depth > MAX_NESTING:
        return False
    return all(_spread(part, left, depth + 1) for part in kind(value).parts(value))


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
