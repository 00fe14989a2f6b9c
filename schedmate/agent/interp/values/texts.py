"""Texts: their methods, where the result keeps to a size."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.natives import native
from schedmate.agent.interp.values.base import Plain, iterate, missing, of
from schedmate.agent.sizes import MAX_DATA, VALUE, fits, formatted, joined, replaced
from schedmate.agent.values import Value, begun, unknown

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


@of(str)
class Text(Plain[T_co]):
    """A text."""

    scalar = True
    hashable = True

    def method(self, base: Value, name: str) -> Value:
        """`base.name`, to be called."""
        return (
            native(f"str.{name}", _string(base, self.data(base), name))
            if name in _STR
            else unknown(name)
        )

    def getitem(self, machine: Machine, base: Value, index: Value) -> Value:
        place, text = index.integer, self.data(base)
        if place is None:
            return super().getitem(machine, base, index)
        if -len(text) <= place < len(text):
            return Value(text[place], base.origin)
        return missing(machine, str(place), "IndexError")

    def slice_(self, machine: Machine, base: Value, ends: slice) -> Value:
        return machine.made(Value(self.data(base)[ends], base.origin))

    def iterate(self, value: Value) -> list[Value] | None:
        return [Value(char, value.origin) for char in self.data(value)[:MAX_CHARACTERS]]


def _string(base: Value, text: str, name: str) -> Callable[..., Value]:
    def call(machine: Machine, call: Invocation) -> Value:
        if name == "join" and call.args:
            parts = iterate(call.args[0])
            texts = [part.text for part in parts or () if part.text is not None]
            if parts is None or len(texts) < len(parts) or joined(texts, text) > MAX_DATA:
                return unknown(origin=base.origin)
            return machine.made(Value(str(text).join(texts), base.origin))
        if not all(a.known for a in [*call.args, *call.kwargs.values()]):
            start = str(text).split("{", 1)[0] if name == "format" else ""
            return begun(start, base.origin)
        machine.charge(len(text) // 8)
        if not _bearable(name, text, call.args, call.kwargs):
            return unknown(origin=base.origin)
        try:
            result = getattr(str(text), name)(
                *(a.plain() for a in call.args), **{k: v.plain() for k, v in call.kwargs.items()}
            )
        except (TypeError, ValueError, LookupError, AttributeError, OverflowError):
            return unknown(origin=base.origin)
        if isinstance(result, list | tuple):
            machine.charge(VALUE * len(result))
            kind = type(result)
            return Value(kind(Value(item, base.origin) for item in result), base.origin)
        if isinstance(result, str) and len(result) > MAX_DATA:
            return unknown(origin=base.origin)
        return machine.made(Value(result, base.origin))

    return call


def _bearable(name: str, text: str, args: list[Value], kwargs: dict[str, Value]) -> bool:
    """Whether a method's result will be no longer than a text or list may be."""
    first = args[0] if args else Value(None)
    if name == "format":
        given = [value.data for value in (*args, *kwargs.values())]
        return "{" in text and fits(formatted(text, given))
    if name in _WIDTHS:
        return first.integer is not None and first.integer <= 100
    if name in ("encode", "decode"):
        codec = kwargs.get("encoding", first if first.data else Value("utf-8")).text
        return codec is not None and codec.lower() in _CODECS
    if name == "replace" and len(args) > 1 and first.text is not None:
        new = args[1].text
        return new is not None and replaced(text, first.text, new) <= MAX_DATA
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
