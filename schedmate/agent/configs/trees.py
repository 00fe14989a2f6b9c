"""Works on configurations as trees of `Value`s: wrapping, merging, dotted paths, bounds.

Also what all readers begin with, one text file of a repository (confined to its root, capped,
tolerant of encodings), and the keys by which configurations name classes, from class_keys.yaml.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal, TypeAlias

from schedmate.agent.values import Origin, Value
from schedmate.base.data import load
from schedmate.base.errors import InputError
from schedmate.base.files import is_file

MAX_NODES = 200_000
"""Most values a tree may hold, shared subtrees counted each time they are reached."""
MAX_DEPTH = 100
"""Deepest nesting of a tree."""

MISSING = "???"
"""OmegaConf's mark of a mandatory value that is not set yet."""

_PATH_PART = re.compile(r"\[([^\[\]]*)\]|\.?([^.\[\]]+)|\.")


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
    return _set_at(config, parts, value, create, path)


def _set_at(config: Value, parts: list[str], value: Value, create: bool, path: str) -> Value:
    if not parts:
        return merge(config, value)
    part, rest = parts[0], parts[1:]
    below = child(config, part)
    if below is None and not create:
        raise ConfigError(f"'{path}' is not in the configuration: there is no '{part}' to set")
    empty = Value({}, value.origin)
    changed = _set_at(below if below is not None else empty, rest, value, create, path)
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
    return _delete_at(config, split_path(path))


def _delete_at(config: Value, parts: list[str]) -> Value | None:
    below = child(config, parts[0]) if parts else None
    if below is None:
        return None
    changed = _delete_at(below, parts[1:]) if len(parts) > 1 else None
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


# Reading one text file of a repository: confined to its root, capped, tolerant of encodings.


MAX_BYTES = 4 * 1024 * 1024
"""Largest file read as a configuration [bytes]."""


class ConfigError(InputError):
    """A configuration file cannot be used; the message names the file and, if known, the line."""


@dataclass(frozen=True, slots=True)
class Source:
    """A configuration's text and the repo-relative POSIX `name` it is cited by."""

    text: str
    name: str | None
    path: Path

    def origin(self, line: int, text: str | None = None) -> Origin:
        """The origin of something that stands on the 1-based `line`."""
        return Origin("config", self.name, line, text)

    def error(self, message: str, line: int | None = None) -> ConfigError:
        """A `ConfigError` that begins with this file and line."""
        name = self.name or "configuration text"
        place = f"{name}:{line}" if line else name
        return ConfigError(f"{place}: {message}")


def load_source(path: Path, root: Path) -> Source:
    """Read `path`, which must lie inside `root` once symbolic links are followed.

    Raises ConfigError for a file outside the root, a missing file, something that is not a plain
    file, and one larger than `MAX_BYTES`.
    """
    try:
        base = _real_root(root)
        resolved = path.resolve()
        inside = resolved.is_relative_to(base)
        regular = inside and is_file(resolved)
    except (OSError, RuntimeError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be opened ({error}); check the path") from error
    if not inside:
        raise ConfigError(f"{path}: lies outside {root}; only files of the repository are read")
    name = resolved.relative_to(base).as_posix()
    if not regular:
        raise ConfigError(f"{name}: no such file in the repository; check the path")
    try:
        with resolved.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{name}: cannot be read ({error.strerror}); check its rights") from error
    if len(raw) > MAX_BYTES:
        limit = MAX_BYTES // 1024 // 1024
        raise ConfigError(f"{name}: is larger than {limit} MB, too large for a configuration")
    return Source(decode_text(raw), name, resolved)


@lru_cache(maxsize=16)
def _real_root(root: Path) -> Path:
    """A repository's root without links, which stays where it is while its files are read."""
    return root.resolve()


def decode_text(raw: bytes) -> str:
    """Text of `raw`: by its byte-order mark, else UTF-8, else Windows-1252 (a Latin-1 superset)."""
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return raw.decode("utf-16", errors="replace")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return raw.decode("cp1252", errors="replace")


# The keys by which configurations name classes, from class_keys.yaml.


KeySays: TypeAlias = Literal["path", "class", "name", "tag"]


@cache
def _class_key_table() -> dict[str, Any]:
    loaded: dict[str, Any] = load("agent/configs/class_keys.yaml")
    return loaded


@cache
def class_keys(*says: KeySays) -> tuple[str, ...]:
    """The keys whose value is one of `says`: a `path`, a `class`, a `name` or a `tag`."""
    return tuple(key for key, entry in _class_key_table()["keys"].items() if entry["says"] in says)


def built_by(config: Mapping[Any, Any]) -> str | None:
    """The key of `config` that `instantiate` and its like follow, if it has one."""
    keys = _class_key_table()["keys"]
    return next((key for key in keys if keys[key].get("built") and key in config), None)


def argument_keys(key: str) -> tuple[str, ...]:
    """Where the arguments of the class named under `key` may stand, rather than beside it."""
    return tuple(_class_key_table()["keys"][key].get("arguments", ()))


def is_instruction(key: object) -> bool:
    """Whether a key beside the class's is no argument of it."""
    table = _class_key_table()
    return key in table["instructions"] or bool(table["keys"].get(key, {}).get("built"))
