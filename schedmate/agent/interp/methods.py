"""Methods of plain data: strings and numbers here, the rest by table."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from schedmate.agent.interp.containers import DICT, LIST, TUPLE
from schedmate.agent.interp.invocation import Method, bound
from schedmate.agent.interp.objects import FileHandle, Native, PathStr, Site
from schedmate.agent.interp.operators import MAX_DATA
from schedmate.agent.interp.paths import FILE, PATH, path_property
from schedmate.agent.interp.values_ops import iterate
from schedmate.agent.values import UNSAID, Unknown, Value, begun, unknown

if TYPE_CHECKING:
    from schedmate.agent.interp.state import State

_STR = frozenset((
    "lower", "upper", "strip", "lstrip", "rstrip", "split", "rsplit", "splitlines", "replace",
    "startswith", "endswith", "find", "rfind", "index", "join", "title", "capitalize",
    "casefold", "isdigit", "isnumeric", "isalpha", "isalnum", "isupper", "islower", "count",
    "partition", "rpartition", "removeprefix", "removesuffix", "zfill", "swapcase",
    "isidentifier", "encode", "decode", "format", "center", "ljust", "rjust",
))  # fmt: skip

_WIDE = re.compile(r":[^{}]*\d{4}")
"""A width that would fill the memory."""
_NUMBER = frozenset(["is_integer", "bit_length", "conjugate"])


def bound_method(base: Value, name: str) -> Value:
    """`base.name` for plain data: a callable, or a property of a path or number."""
    data = base.data
    if isinstance(data, PathStr):
        prop = path_property(data, name)
        if prop is not None:
            return Value(prop, base.origin)
    table: dict[str, Method]
    if isinstance(data, PathStr) and name in PATH:
        table = PATH
    elif isinstance(data, str):
        if name not in _STR:
            return unknown(name)
        return Value(Native(f"str.{name}", _string(base, name)))
    elif isinstance(data, list):
        table = LIST
    elif isinstance(data, tuple):
        table = TUPLE
    elif isinstance(data, dict):
        table = DICT
    elif isinstance(data, FileHandle):
        table = FILE
    elif isinstance(data, int | float) and name in _NUMBER:
        return Value(Native(name, lambda s, a, k, at: Value(getattr(data, name)(), base.origin)))
    elif isinstance(data, int | float) and name in ("real", "numerator"):
        return base
    else:
        return unknown(name)
    method = table.get(name)
    if method is None:
        return unknown(name)
    return bound(base, name, method)


def beginning(base: Value) -> Value | None:
    """`startswith` of a text that is known up to a variable of the shell: `logs/$RUN`, `$DATA`.

    A variable alone is a word that options are given, and no option.
    """
    text = base.data.text if isinstance(base.data, Unknown) else None
    if text is None or not ("$" in text or UNSAID in text):
        return None
    known = re.split(rf"[$`{UNSAID}]", text, maxsplit=1)[0]

    def call(state: State, args: list[Value], kwargs: dict[str, Value], site: Site) -> Value:
        start = args[0].data if args else None
        if not isinstance(start, str):
            return unknown(origin=base.origin)
        if known.startswith(start):
            return Value(True, base.origin)
        if not start.startswith(known) or (not known and start.startswith("-")):
            return Value(False, base.origin)
        return unknown(origin=base.origin)

    return Value(Native("str.startswith", call))


def _string(base: Value, name: str) -> Callable[..., Value]:
    def call(state: State, args: list[Value], kwargs: dict[str, Value], site: Site) -> Value:
        text = base.data
        if name == "join" and args:
            parts = iterate(args[0])
            if parts is None or not all(isinstance(p.data, str) for p in parts):
                return unknown(origin=base.origin)
            return Value(str(text).join(p.data for p in parts)[:MAX_DATA], base.origin)
        if not all(a.known for a in [*args, *kwargs.values()]):
            start = str(text).split("{", 1)[0] if name == "format" else ""
            return begun(start, base.origin)
        if name == "format" and _WIDE.search(text):
            return unknown(origin=base.origin)
        if name == "format" and ("{" not in text or "." in text.split("{", 1)[1].split("}")[0]):
            return unknown(origin=base.origin)
        width = args[0].data if args else None
        if name in ("zfill", "center", "ljust", "rjust") and not (
            isinstance(width, int) and width <= 100
        ):
            return unknown(origin=base.origin)
        if name in ("encode", "decode") and isinstance(width, int):
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
