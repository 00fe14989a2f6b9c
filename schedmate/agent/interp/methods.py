"""Methods of plain data: strings, paths, lists, dicts, numbers, files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from schedmate.agent.interp.expressions import MAX_DATA
from schedmate.agent.interp.objects import AttrDict, FileHandle, Native, PathStr, Site
from schedmate.agent.interp.source import MAX_SOURCE_BYTES, decode
from schedmate.agent.interp.values_ops import iterate, plain_key
from schedmate.agent.values import Value, lifted, unknown

if TYPE_CHECKING:
    from schedmate.agent.interp.state import State

Method = Callable[["State", Value, list[Value], dict[str, Value], Site], Value]

_STR = frozenset(
    [
        "lower",
        "upper",
        "strip",
        "lstrip",
        "rstrip",
        "split",
        "rsplit",
        "splitlines",
        "replace",
        "startswith",
        "endswith",
        "find",
        "rfind",
        "index",
        "join",
        "title",
        "capitalize",
        "casefold",
        "isdigit",
        "isnumeric",
        "isalpha",
        "isalnum",
        "isupper",
        "islower",
        "count",
        "partition",
        "rpartition",
        "removeprefix",
        "removesuffix",
        "zfill",
        "swapcase",
        "isidentifier",
        "encode",
        "decode",
        "format",
    ]
)
_NUMBER = frozenset(["is_integer", "bit_length", "conjugate"])


def bound_method(base: Value, name: str) -> Value:
    """`base.name` for plain data: a callable, or a property of a path or number."""
    data = base.data
    if isinstance(data, PathStr):
        prop = _path_property(data, name)
        if prop is not None:
            return Value(prop, base.origin)
    table: dict[str, Method]
    if isinstance(data, PathStr) and name in _PATH:
        table = _PATH
    elif isinstance(data, str):
        if name not in _STR:
            return unknown(name)
        return Value(Native(f"str.{name}", _string(base, name)))
    elif isinstance(data, list):
        table = _LIST
    elif isinstance(data, tuple):
        table = _TUPLE
    elif isinstance(data, dict):
        table = _DICT
    elif isinstance(data, FileHandle):
        table = _FILE
    elif isinstance(data, int | float) and name in _NUMBER:
        return Value(Native(name, lambda s, a, k, at: Value(getattr(data, name)(), base.origin)))
    elif isinstance(data, int | float) and name in ("real", "numerator"):
        return base
    else:
        return unknown(name)
    method = table.get(name)
    if method is None:
        return unknown(name)
    return Value(Native(name, lambda s, a, k, at: method(s, base, a, k, at)))


def _string(base: Value, name: str) -> Callable[..., Value]:
    def call(state: State, args: list[Value], kwargs: dict[str, Value], site: Site) -> Value:
        text = base.data
        if name == "join" and args:
            parts = iterate(args[0])
            if parts is None or not all(isinstance(p.data, str) for p in parts):
                return unknown(origin=base.origin)
            return Value(str(text).join(p.data for p in parts)[:MAX_DATA], base.origin)
        if not all(a.known for a in [*args, *kwargs.values()]):
            return unknown(origin=base.origin)
        if name == "format" and ("{" not in text or "." in text.split("{", 1)[1].split("}")[0]):
            return unknown(origin=base.origin)
        if name in ("zfill", "encode", "decode") and args and isinstance(args[0].data, int):
            return unknown(origin=base.origin)
        try:
            result = getattr(str(text), name)(
                *(a.plain() for a in args), **{k: v.plain() for k, v in kwargs.items()}
            )
        except (TypeError, ValueError, LookupError, UnicodeError, AttributeError):
            return unknown(origin=base.origin)
        if isinstance(result, list | tuple):
            kind = type(result)
            return Value(kind(Value(item, base.origin) for item in result), base.origin)
        if isinstance(result, str) and len(result) > MAX_DATA:
            return unknown(origin=base.origin)
        return Value(result, base.origin)

    return call


# -- paths -----------------------------------------------------------------


def _path_property(path: PathStr, name: str) -> Any:
    pure = PurePosixPath(path)
    if name == "parent":
        return PathStr(pure.parent)
    if name in ("name", "stem", "suffix"):
        return getattr(pure, name)
    return None


def _path_same(
    state: State, base: Value, args: list[Value], kwargs: dict[str, Value], site: Site
) -> Value:
    return base


def _path_join(
    state: State, base: Value, args: list[Value], kwargs: dict[str, Value], site: Site
) -> Value:
    if not all(isinstance(a.data, str) for a in args):
        return unknown(origin=base.origin)
    return Value(PathStr(PurePosixPath(base.data, *(a.data for a in args))), base.origin)


def _path_with_suffix(
    state: State, base: Value, args: list[Value], kwargs: dict[str, Value], site: Site
) -> Value:
    try:
        return Value(PathStr(PurePosixPath(base.data).with_suffix(args[0].data)), base.origin)
    except (IndexError, ValueError, TypeError, AttributeError):
        return unknown(origin=base.origin)


def _path_exists(
    state: State, base: Value, args: list[Value], kwargs: dict[str, Value], site: Site
) -> Value:
    found = state.sources.locate(base.data)
    return Value(True) if found is not None else unknown()


def _path_open(
    state: State, base: Value, args: list[Value], kwargs: dict[str, Value], site: Site
) -> Value:
    return open_file(state, base)


def _path_read(
    state: State, base: Value, args: list[Value], kwargs: dict[str, Value], site: Site
) -> Value:
    handle = open_file(state, base)
    return _file_read(state, handle, [], {}, site) if handle.data is not None else handle


def _path_absolute(
    state: State, base: Value, args: list[Value], kwargs: dict[str, Value], site: Site
) -> Value:
    return Value(base.data.startswith("/"), base.origin)


_PATH: dict[str, Method] = {
    "is_absolute": _path_absolute,
    "resolve": _path_same,
    "absolute": _path_same,
    "expanduser": _path_same,
    "as_posix": _path_same,
    "joinpath": _path_join,
    "with_suffix": _path_with_suffix,
    "exists": _path_exists,
    "is_file": _path_exists,
    "is_dir": _path_exists,
    "open": _path_open,
    "read_text": _path_read,
}


def open_file(state: State, path: Value) -> Value:
    """A handle on a file of the repository, unknown for any other file."""
    if isinstance(path.data, FileHandle):
        return path
    if isinstance(path.data, str):
        frame = state.frames[-1] if state.frames else None
        near = frame.scope.module.path if frame is not None else None
        found = state.sources.locate(path.data, near)
        if found is not None and found.is_file():
            return Value(FileHandle(found), path.origin)
    return unknown(origin=path.origin)


def _file_read(
    state: State, base: Value, args: list[Value], kwargs: dict[str, Value], site: Site
) -> Value:
    handle = base.data
    if not isinstance(handle, FileHandle):
        return unknown()
    try:
        if handle.path.stat().st_size > MAX_SOURCE_BYTES:
            return unknown()
        text = decode(handle.path.read_bytes())
    except OSError:
        return unknown()
    value = Value(text, base.origin)
    state.texts[text] = handle.path
    return value


def _file_lines(
    state: State, base: Value, args: list[Value], kwargs: dict[str, Value], site: Site
) -> Value:
    text = _file_read(state, base, [], {}, site)
    if not isinstance(text.data, str):
        return text
    lines = text.data.splitlines(keepends=True)
    return Value([Value(line) for line in lines[:5000]])


_FILE: dict[str, Method] = {"read": _file_read, "readlines": _file_lines, "__enter__": _path_same}


# -- lists and tuples ------------------------------------------------------


def _append(
    state: State, base: Value, args: list[Value], kwargs: dict[str, Value], site: Site
) -> Value:
    if args and len(base.data) < MAX_DATA:
        base.data.append(args[0])
    return Value(None)


def _extend(
    state: State, base: Value, args: list[Value], kwargs: dict[str, Value], site: Site
) -> Value:
    items = iterate(args[0]) if args else None
    if items and len(base.data) + len(items) < MAX_DATA:
        base.data.extend(items)
    return Value(None)


def _insert(
    state: State, base: Value, args: list[Value], kwargs: dict[str, Value], site: Site
) -> Value:
    if len(args) == 2 and isinstance(args[0].data, int):
        base.data.insert(args[0].data, args[1])
    return Value(None)


def _list_pop(
    state: State, base: Value, args: list[Value], kwargs: dict[str, Value], site: Site
) -> Value:
    index = args[0].data if args else -1
    if isinstance(index, int) and -len(base.data) <= index < len(base.data):
        item: Value = base.data.pop(index)
        return item
    return unknown()


def _list_index(
    state: State, base: Value, args: list[Value], kwargs: dict[str, Value], site: Site
) -> Value:
    for index, item in enumerate(base.data):
        if args and item.known and args[0].known and item.plain() == args[0].plain():
            return Value(index, base.origin)
    return unknown()


def _list_copy(
    state: State, base: Value, args: list[Value], kwargs: dict[str, Value], site: Site
) -> Value:
    return Value(list(base.data), base.origin)


def _list_remove(
    state: State, base: Value, args: list[Value], kwargs: dict[str, Value], site: Site
) -> Value:
    index = _list_index(state, base, args, kwargs, site).data
    if isinstance(index, int):
        base.data.pop(index)
    return Value(None)


def _count(
    state: State, base: Value, args: list[Value], kwargs: dict[str, Value], site: Site
) -> Value:
    if not (base.known and args and args[0].known):
        return unknown()
    return Value(base.plain().count(args[0].plain()))


def _reorder(
    state: State, base: Value, args: list[Value], kwargs: dict[str, Value], site: Site
) -> Value:
    if base.known and not kwargs:
        try:
            base.data.sort(key=lambda item: item.data)
        except TypeError:
            return Value(None)
    return Value(None)


_TUPLE: dict[str, Method] = {"index": _list_index, "count": _count}
_LIST: dict[str, Method] = {
    **_TUPLE,
    "append": _append,
    "add": _append,
    "extend": _extend,
    "update": _extend,
    "insert": _insert,
    "pop": _list_pop,
    "copy": _list_copy,
    "remove": _list_remove,
    "sort": _reorder,
}


# -- dicts -----------------------------------------------------------------


def _get(
    state: State, base: Value, args: list[Value], kwargs: dict[str, Value], site: Site
) -> Value:
    key = plain_key(args[0]) if args else None
    default = args[1] if len(args) > 1 else kwargs.get("default", Value(None))
    if key is None:
        return unknown()
    found: Value = base.data.get(key, default)
    return found


def _keys(
    state: State, base: Value, args: list[Value], kwargs: dict[str, Value], site: Site
) -> Value:
    return Value([lifted(key, item.origin) for key, item in base.data.items()], base.origin)


def _values(
    state: State, base: Value, args: list[Value], kwargs: dict[str, Value], site: Site
) -> Value:
    return Value(list(base.data.values()), base.origin)


def _items(
    state: State, base: Value, args: list[Value], kwargs: dict[str, Value], site: Site
) -> Value:
    pairs = [Value((lifted(key, item.origin), item)) for key, item in base.data.items()]
    return Value(pairs, base.origin)


def _dict_update(
    state: State, base: Value, args: list[Value], kwargs: dict[str, Value], site: Site
) -> Value:
    for value in args:
        mapping = state.mapping(value)
        if mapping is not None:
            base.data.update(mapping)
            continue
        for pair in iterate(value) or []:
            parts = iterate(pair)
            key = plain_key(parts[0]) if parts and len(parts) == 2 else None
            if parts and key is not None:
                base.data[key] = parts[1]
    base.data.update(kwargs)
    return Value(None)


def _setdefault(
    state: State, base: Value, args: list[Value], kwargs: dict[str, Value], site: Site
) -> Value:
    key = plain_key(args[0]) if args else None
    if key is None:
        return unknown()
    found: Value = base.data.setdefault(key, args[1] if len(args) > 1 else Value(None))
    return found


def _dict_pop(
    state: State, base: Value, args: list[Value], kwargs: dict[str, Value], site: Site
) -> Value:
    key = plain_key(args[0]) if args else None
    default = args[1] if len(args) > 1 else unknown()
    if not state.certain or key not in base.data:
        missing: Value = base.data.get(key, default)
        return missing
    found: Value = base.data.pop(key)
    # a setting that was read and taken out is a setting all the same
    state.trace.popped.setdefault(id(base.data), (base.data, {}))[1][key] = found
    return found


def _dict_copy(
    state: State, base: Value, args: list[Value], kwargs: dict[str, Value], site: Site
) -> Value:
    return copy_shallow(base)


def copy_shallow(value: Value) -> Value:
    """A copy of a container that shares its items."""
    data = value.data
    if isinstance(data, dict):
        made = data.copy() if type(data) is dict else _same_kind(data)
        return Value(made, value.origin)
    if isinstance(data, list):
        return Value(list(data), value.origin)
    return value


def _same_kind(data: dict[Any, Value]) -> dict[Any, Value]:

    if isinstance(data, AttrDict):
        return AttrDict(dict(data), data.flavour, data.label)
    return dict(data)


_DICT: dict[str, Method] = {
    "get": _get,
    "keys": _keys,
    "values": _values,
    "items": _items,
    "update": _dict_update,
    "setdefault": _setdefault,
    "pop": _dict_pop,
    "copy": _dict_copy,
}
