"""Plain values: numbers, texts, lists, tuples and ranges, and what is not known."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, ClassVar, TypeVar, cast

from schedmate.agent.bounds import (
    MAX_DATA,
    MAX_KEY,
    VALUE_WEIGHT,
    fits,
    formatted_length,
    joined_length,
    measure,
    replaced_length,
)
from schedmate.agent.interp.objects import Handler, Invocation, RangeOf, Site, Symbol, bound, native
from schedmate.agent.interp.values.base import (
    Copies,
    D_co,
    Kind,
    Passes,
    Plain,
    binary_operation,
    iterate,
    kind,
    kind_of,
    not_there,
    truth,
)
from schedmate.agent.values import UNSAID, Data, Origin, Unknown, Value, begun, unknown

if TYPE_CHECKING:
    from schedmate.agent.interp.machine import Machine

_METHODS = frozenset(["is_integer", "bit_length", "conjugate"])
_ITSELF = ("real", "numerator")


class Scalar(Plain[D_co]):
    """Values that are one datum, without items: numbers, texts, None."""

    scalar = True


@kind_of(type(None))
class Nothing(Scalar[bytes | None]):
    """The value None."""

    def method(self, base: Value, name: str) -> Value:
        return Value(Symbol(f"?.{name}", base), base.origin)


@kind_of(bytes)
class Bytes(Nothing):
    """Byte strings."""

    hashable = True


@kind_of(bool, int, float)
class Number(Scalar[int | float]):
    """Numbers and truth values."""

    hashable = True

    def method(self, base: Value, name: str) -> Value:
        if name in _METHODS:
            return native(
                name, lambda *_: Value(cast("int", getattr(base.data, name)()), base.origin)
            )
        return base if name in _ITSELF else unknown(name)


# Texts: their methods, where the result keeps to a size.


MAX_CHARACTERS = 2000
"""Characters that going through a text gives."""

_STR = frozenset((
    "lower", "upper", "strip", "lstrip", "rstrip", "split", "rsplit", "splitlines", "replace",
    "startswith", "endswith", "find", "rfind", "index", "join", "title", "capitalize",
    "casefold", "isdigit", "isnumeric", "isalpha", "isalnum", "isupper", "islower", "count",
    "partition", "rpartition", "removeprefix", "removesuffix", "zfill", "swapcase",
    "isidentifier", "encode", "decode", "format", "center", "ljust", "rjust",
))  # fmt: skip

T_co = TypeVar("T_co", bound=str, covariant=True)

_CODECS = frozenset((
    "utf-8", "utf8", "utf_8", "utf-8-sig", "ascii", "us-ascii", "latin-1", "latin1", "iso-8859-1",
    "cp1252", "utf-16", "utf-16le", "utf-16be", "utf-32",
))  # fmt: skip
"""Encodings whose time grows with the text alone; punycode and IDNA are quadratic."""
_WIDTHS = ("zfill", "center", "ljust", "rjust")


@kind_of(str)
class Text(Plain[T_co]):
    """Texts, with the methods of `str`."""

    scalar = True
    hashable = True

    def method(self, base: Value, name: str) -> Value:
        """`base.name`, to be called."""
        return (
            native(f"str.{name}", _text_method(base, self.data(base), name))
            if name in _STR
            else unknown(name)
        )

    def getitem(self, machine: Machine, base: Value, index: Value) -> Value:
        place, text = index.integer, self.data(base)
        if place is None:
            return super().getitem(machine, base, index)
        if -len(text) <= place < len(text):
            return Value(text[place], base.origin)
        return not_there(machine, str(place), "IndexError")

    def slice_(self, machine: Machine, base: Value, ends: slice) -> Value:
        return machine.made(Value(self.data(base)[ends], base.origin))

    def iterate(self, value: Value) -> list[Value] | None:
        return [Value(char, value.origin) for char in self.data(value)[:MAX_CHARACTERS]]


def _text_method(base: Value, text: str, name: str) -> Callable[..., Value]:
    def call(machine: Machine, call: Invocation) -> Value:
        if name == "join" and call.args:
            parts = iterate(call.args[0])
            texts = [part.text for part in parts or () if part.text is not None]
            if parts is None or len(texts) < len(parts) or joined_length(texts, text) > MAX_DATA:
                return unknown(origin=base.origin)
            return machine.made(Value(str(text).join(texts), base.origin))
        if not all(a.known for a in [*call.args, *call.kwargs.values()]):
            start = str(text).split("{", 1)[0] if name == "format" else ""
            return begun(start, base.origin)
        machine.charge(len(text) // 8)
        if not _is_bearable(name, text, call.args, call.kwargs):
            return unknown(origin=base.origin)
        try:
            result = getattr(str(text), name)(
                *(a.plain() for a in call.args), **{k: v.plain() for k, v in call.kwargs.items()}
            )
        except (TypeError, ValueError, LookupError, AttributeError, OverflowError):
            return unknown(origin=base.origin)
        if isinstance(result, list | tuple):
            machine.charge(VALUE_WEIGHT * len(result))
            kind = type(result)
            return Value(kind(Value(item, base.origin) for item in result), base.origin)
        if isinstance(result, str) and len(result) > MAX_DATA:
            return unknown(origin=base.origin)
        return machine.made(Value(result, base.origin))

    return call


def _is_bearable(name: str, text: str, args: list[Value], kwargs: dict[str, Value]) -> bool:
    """Whether a method's result will be no longer than a text or list may be."""
    first = args[0] if args else Value(None)
    if name == "format":
        given = [value.data for value in (*args, *kwargs.values())]
        return "{" in text and fits(formatted_length(text, given))
    if name in _WIDTHS:
        return first.integer is not None and first.integer <= 100
    if name in ("encode", "decode"):
        codec = kwargs.get("encoding", first if first.data else Value("utf-8")).text
        return codec is not None and codec.lower() in _CODECS
    if name == "replace" and len(args) > 1 and first.text is not None:
        new = args[1].text
        return new is not None and replaced_length(text, first.text, new) <= MAX_DATA
    if name in ("split", "rsplit", "splitlines") and len(text) > MAX_DATA:
        return _pieces(name, text, kwargs.get("sep", first).text) <= MAX_DATA
    return True


def _pieces(name: str, text: str, separator: str | None) -> int:
    """How many pieces a text is split into at most, counted without making them."""
    if name == "splitlines":
        return 1 + sum(map(text.count, _ENDS))
    if separator:
        return text.count(separator) + 1
    return len(text.split(None, MAX_DATA))


_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
"""Characters that end a line."""


# Lists (and sets, which are lists of what they hold), tuples, and ranges.


MAX_RANGE = 64
"""Numbers that going through a range gives; a longer one is a count."""


S_co = TypeVar("S_co", list[Value], tuple[Value, ...], covariant=True)


def _list_of(call: Invocation) -> list[Value]:
    """The list whose method is called."""
    return cast("list[Value]", call.owner.data)


def _append(machine: Machine, call: Invocation) -> Value:
    items = _list_of(call)
    if call.args and len(items) < MAX_DATA:
        items.append(call.args[0])
    return Value(None)


def _extend(machine: Machine, call: Invocation) -> Value:
    added, items = iterate(call.first), _list_of(call)
    if added and len(items) + len(added) < MAX_DATA:
        machine.charge(len(added))
        items.extend(added)
    return Value(None)


def _insert(machine: Machine, call: Invocation) -> Value:
    where = call.args[0].integer if len(call.args) == 2 else None
    if where is not None and abs(where) <= MAX_DATA and len(_list_of(call)) < MAX_DATA:
        _list_of(call).insert(where, call.args[1])
    return Value(None)


def _list_pop(machine: Machine, call: Invocation) -> Value:
    index, items = call.args[0].integer if call.args else -1, _list_of(call)
    return items.pop(index) if index is not None and _has_index(items, index) else unknown()


def _list_index(machine: Machine, call: Invocation) -> Value:
    size = measure(call.owner.data)
    if size is None or not call.args or not call.args[0].known:
        return unknown()
    machine.charge(size)
    wanted = call.args[0].plain()
    for index, item in enumerate(call.owner.sequence or ()):
        if item.known and item.plain() == wanted:
            return Value(index, call.owner.origin)
    return unknown()


def _list_copy(machine: Machine, call: Invocation) -> Value:
    return machine.made(Value(list(_list_of(call)), call.owner.origin))


def _list_remove(machine: Machine, call: Invocation) -> Value:
    index = _list_index(machine, call).integer
    if index is not None:
        _list_of(call).pop(index)
    return Value(None)


def _count(machine: Machine, call: Invocation) -> Value:
    if not (call.owner.known and call.args and call.args[0].known):
        return unknown()
    return Value(call.owner.plain().count(call.args[0].plain()))


def _reverse(machine: Machine, call: Invocation) -> Value:
    _list_of(call).reverse()
    return Value(None)


def _clear(machine: Machine, call: Invocation) -> Value:
    _list_of(call).clear()
    return Value(None)


def _combined(op: type[ast.operator]) -> Handler:
    """`a.union(b)` of sets, which are lists here."""

    def combine(machine: Machine, call: Invocation) -> Value:
        result = call.owner
        for value in call.args:
            items = iterate(value)
            if items is None:
                return unknown()
            machine.charge(len(items))
            result = binary_operation(op, result, Value(items), Origin("code"))
        return result

    return combine


def _reorder(machine: Machine, call: Invocation) -> Value:
    items = _list_of(call)
    items[:] = in_order(machine, list(items), call.kwargs, call.site)
    return Value(None)


def in_order(
    machine: Machine, items: list[Value], kwargs: dict[str, Value], site: Site
) -> list[Value]:
    """`items` sorted by `key` and `reverse`; as they are where the order is not known."""
    key = kwargs.get("key", Value(None))
    keys = items
    if key.data is not None and len(items) <= 500:
        keys = [machine.call(key, [item], {}, site) for item in items]
    size = measure(keys, plain=True)
    if size is None:
        return items
    machine.charge(size)
    down = truth(kwargs.get("reverse", Value(False))) is True
    try:
        order = sorted(range(len(items)), key=lambda i: keys[i].plain(), reverse=down)
    except TypeError:
        return items
    return [items[i] for i in order]


_TUPLE: dict[str, Handler] = {"index": _list_index, "count": _count}

_LIST: dict[str, Handler] = {
    **_TUPLE,
    "append": _append,
    "add": _append,
    "extend": _extend,
    "update": _extend,
    "insert": _insert,
    "pop": _list_pop,
    "copy": _list_copy,
    "remove": _list_remove,
    "discard": _list_remove,
    "sort": _reorder,
    "reverse": _reverse,
    "clear": _clear,
    "union": _combined(ast.BitOr),
    "intersection": _combined(ast.BitAnd),
    "difference": _combined(ast.Sub),
}


class Sequence(Plain[S_co]):
    """What lists and tuples have in common: items by position."""

    container = True
    methods: ClassVar[dict[str, Handler]] = {}

    def method(self, base: Value, name: str) -> Value:
        """`base.name`, to be called."""
        found = self.methods.get(name)
        return bound(base, name, found) if found is not None else unknown(name)

    def getitem(self, machine: Machine, base: Value, index: Value) -> Value:
        place, items = index.integer, self.data(base)
        if place is None:
            return super().getitem(machine, base, index)
        return (
            items[place]
            if _has_index(items, place)
            else not_there(machine, str(place), "IndexError")
        )

    def slice_(self, machine: Machine, base: Value, ends: slice) -> Value:
        return machine.made(Value(self.data(base)[ends], base.origin))

    def iterate(self, value: Value) -> list[Value] | None:
        return list(self.data(value))

    def parts(self, value: Value) -> Iterable[Value]:
        return self.data(value)

    def converted(self, value: Value, convert: Callable[[Value], Value]) -> Data:
        data = self.data(value)
        return type(data)(map(convert, data))


@kind_of(list)
class List(Sequence[list[Value]]):
    """Lists, and sets, which are kept as lists."""

    methods = _LIST

    def setitem(self, machine: Machine, base: Value, index: Value, value: Value) -> None:
        place, items = index.integer, self.data(base)
        if place is not None and _has_index(items, place):
            items[place] = value

    def delitem(self, machine: Machine, base: Value, index: Value) -> None:
        place, items = index.integer, self.data(base)
        if place is not None and _has_index(items, place):
            del items[place]

    def copy(self, value: Value) -> Value:
        return Value(list(self.data(value)), value.origin)

    def deep_copy(self, value: Value, copies: Copies, copied: Callable[[Value], Value]) -> None:
        same = copies[id(value.data)] = list[Value]()
        same.extend([copied(item) for item in self.data(value)])


@kind_of(tuple)
class Tuple(Sequence[tuple[Value, ...]]):
    """Tuples."""

    methods = _TUPLE

    def deep_copy(self, value: Value, copies: Copies, copied: Callable[[Value], Value]) -> None:
        copies[id(value.data)] = tuple(copied(item) for item in self.data(value))

    def key(self, value: Value) -> Hashable:
        return cast("Hashable", value.plain()) if _is_key(self.data(value)) else None


def _has_index(items: list[Value] | tuple[Value, ...], index: int) -> bool:
    """Whether there is an item at a place, counted from either end."""
    return -len(items) <= index < len(items)


def _is_key(data: tuple[Value, ...]) -> bool:
    """Whether a tuple is a key: plain, of a modest size and without lists however deep."""
    if measure(data, limit=MAX_KEY, plain=True) is None:
        return False
    return not any(
        kind(item).container and not (isinstance(item.data, tuple) and _is_key(item.data))
        for item in data
    )


@kind_of(RangeOf)
class Range(Kind[RangeOf]):
    """Ranges (`RangeOf`), whose ends may be unknown."""

    def iterate(self, value: Value) -> list[Value] | None:
        data = self.data(value)
        start, stop, step = data.start.integer, data.stop.integer, data.step.integer
        if start is not None and stop is not None and step:
            numbers = range(start, stop, step)
            if not numbers[MAX_RANGE:]:  # a length of over 64 bits cannot even be asked for
                return [Value(number, value.origin) for number in numbers]
        return None


# What is not known, or no more of it than its beginning or how it hangs together.


@kind_of(Unknown, Passes)
class UnknownKind(Kind[Unknown]):
    """Unknown values: whatever is done with one gives another unknown."""

    unknown = True

    def getattr(self, machine: Machine, base: Value, name: str) -> Value:
        known = _starts_with(base, self.data(base).text) if name == "startswith" else None
        return known or super().getattr(machine, base, name)

    def call(self, machine: Machine, func: Value, call: Invocation) -> Value:
        call.path = f"?{self.data(func).text or ''}"
        return machine.external(call)


def _starts_with(base: Value, text: str | None) -> Value | None:
    """`startswith` of a text that is known up to a variable of the shell: `logs/$RUN`, `$DATA`.

    A variable alone is a word that options are given, and no option.
    """
    if text is None or not ("$" in text or UNSAID in text):
        return None
    prefix = re.split(rf"[$`{UNSAID}]", text, maxsplit=1)[0]

    def call(machine: Machine, call: Invocation) -> Value:
        start = call.first.text
        if start is None:
            return unknown(origin=base.origin)
        if prefix.startswith(start):
            return Value(True, base.origin)
        if not start.startswith(prefix) or (not prefix and start.startswith("-")):
            return Value(False, base.origin)
        return unknown(origin=base.origin)

    return native("str.startswith", call)
