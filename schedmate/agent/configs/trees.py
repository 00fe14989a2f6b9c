"""Operations on trees of `Value`s: wrapping, merging, dotted paths, bounds."""

from __future__ import annotations

import re
from collections.abc import Callable

from schedmate.agent.configs.files import ConfigError
from schedmate.agent.configs.scalars import Literal
from schedmate.agent.values import Origin, Value

MAX_NODES = 200_000
"""Most values a tree may hold, shared subtrees counted each time they are reached."""
MAX_DEPTH = 100
"""Deepest nesting of a tree."""

MISSING = "???"
"""OmegaConf's mark of a mandatory value that is not set yet."""

_PATH_PART = re.compile(r"\[([^\[\]]*)\]|\.?([^.\[\]]+)|\.")


def wrap(data: Literal, origin: Origin | None) -> Value:
    """A tree of `Value`s that all share `origin`."""
    if isinstance(data, dict):
        return Value({key: wrap(item, origin) for key, item in data.items()}, origin)
    if isinstance(data, list):
        return Value([wrap(item, origin) for item in data], origin)
    if isinstance(data, tuple):
        return Value(tuple(wrap(item, origin) for item in data), origin)
    return Value(data, origin)


def merge(base: Value, over: Value) -> Value:
    """`over` laid upon `base`: mappings merge key by key, everything else is replaced.

    A `???` in `over` leaves what `base` has, as in OmegaConf. Neither input is changed.
    """
    return deep_merge(base, over, lambda value: value)


def deep_merge(base: Value, over: Value, expand: Callable[[Value], Value]) -> Value:
    """`merge`, where `expand` may turn an interpolation in `base` into the mapping it names."""
    if isinstance(over.data, str) and over.data == MISSING:
        return base
    if isinstance(over.data, dict):
        under = expand(base) if isinstance(base.data, str) else base
        if isinstance(under.data, dict):
            merged = dict(under.data)
            for key, item in over.data.items():
                merged[key] = deep_merge(merged[key], item, expand) if key in merged else item
            return Value(merged, under.origin or over.origin)
    return over


def split_path(path: str) -> list[str]:
    """The parts of `a.b[0].c` or `a.b.0.c`; each leading dot gives one empty part."""
    leading = len(path) - len(path.lstrip("."))
    parts = [""] * leading
    for bracketed, dotted in _PATH_PART.findall(path[leading:]):
        parts.append(bracketed or dotted)
    return parts


def key_of(data: dict[object, Value], part: str) -> object:
    """The key of `data` that `part` of a dotted path means: text, or else a number or bool."""
    if part not in data:
        for key in data:
            if not isinstance(key, str) and str(key) == part:
                return key
    return part


def child(value: Value, part: str) -> Value | None:
    """The item of a mapping or sequence that one part of a dotted path names."""
    if isinstance(value.data, dict):
        item = value.data.get(key_of(value.data, part))
        return item if isinstance(item, Value) else None
    if isinstance(value.data, list | tuple) and re.fullmatch(r"-?\d{1,9}", part):
        index = int(part)
        if -len(value.data) <= index < len(value.data):
            item = value.data[index]
            return item if isinstance(item, Value) else None
    return None


def set_dotted(config: Value, path: str, value: Value, create: bool = True) -> Value:
    """A copy of `config` in which the item at `path` (`a.b`, `a[0].b`, `a.0.b`) is `value`.

    A mapping is merged into a mapping that stands there, as `OmegaConf.update` does. Missing
    parents are made; with `create=False` a path that does not exist raises ConfigError, as an
    index beyond a sequence always does.
    """
    parts = split_path(path)
    if not parts or len(parts) > MAX_DEPTH:
        raise ConfigError(f"'{path[:80]}' is not a path into a configuration; write it as a.b.c")
    return _set(config, parts, value, create, path)


def _set(config: Value, parts: list[str], value: Value, create: bool, path: str) -> Value:
    if not parts:
        return merge(config, value)
    part, rest = parts[0], parts[1:]
    below = child(config, part)
    if below is None and not create:
        raise ConfigError(f"'{path}' is not in the configuration: there is no '{part}' to set")
    empty = Value({}, value.origin)
    changed = _set(below if below is not None else empty, rest, value, create, path)
    if isinstance(config.data, list | tuple):
        items = list(config.data)
        index = int(part) if re.fullmatch(r"-?\d{1,9}", part) else len(items) + 1
        if below is not None:
            items[index] = changed
        elif index == len(items):
            items.append(changed)
        else:
            raise ConfigError(f"'{path}': no item '{part}' in a sequence of {len(items)}")
        return Value(type(config.data)(items), config.origin)
    items_by_key = dict(config.data) if isinstance(config.data, dict) else {}
    items_by_key[key_of(items_by_key, part)] = changed
    return Value(items_by_key, config.origin or value.origin)


def delete_dotted(config: Value, path: str) -> Value | None:
    """A copy of `config` without the item at `path`, or None when nothing stands there."""
    return _delete(config, split_path(path))


def _delete(config: Value, parts: list[str]) -> Value | None:
    below = child(config, parts[0]) if parts else None
    if below is None:
        return None
    changed = _delete(below, parts[1:]) if len(parts) > 1 else None
    if len(parts) > 1 and changed is None:
        return None
    if isinstance(config.data, dict):
        key = key_of(config.data, parts[0])
        mapping = dict(config.data)
        if changed is None:
            del mapping[key]
        else:
            mapping[key] = changed
        return Value(mapping, config.origin)
    items = list(config.sequence or ())
    items[int(parts[0]) : int(parts[0]) + 1] = [] if changed is None else [changed]
    return Value(items if config.elements is not None else tuple(items), config.origin)


def ensure_bounded(config: Value, what: str) -> Value:
    """`config` itself, or ConfigError when shared subtrees make it too large or too deep."""
    sizes: dict[int, tuple[int, int]] = {}

    def measure(value: Value, depth: int) -> tuple[int, int]:
        items = value.mapping.values() if value.mapping is not None else value.sequence
        if items is None:
            return 1, 1
        if id(value) in sizes:
            return sizes[id(value)]
        if depth > MAX_DEPTH:
            raise ConfigError(f"{what} nests deeper than {MAX_DEPTH} levels; flatten it")
        size, height = 1, 1
        for item in items:
            below, levels = measure(item, depth + 1)
            size, height = size + below, max(height, levels + 1)
            if size > MAX_NODES:
                raise ConfigError(f"{what} expands to more than {MAX_NODES:,} values; shorten it")
        if depth + height > MAX_DEPTH + 1:
            raise ConfigError(f"{what} nests deeper than {MAX_DEPTH} levels; flatten it")
        sizes[id(value)] = size, height
        return size, height

    measure(config, 0)
    return config
