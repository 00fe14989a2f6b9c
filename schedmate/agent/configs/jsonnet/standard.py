"""Jsonnet's operators and the part of its standard library that configurations use."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from typing import Any

from schedmate.agent.values import Origin, Unknown, Value, unknown

MAX_TEXT = 10_000
MAX_RANGE = 1_000

_NUMBERS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
    "%": math.fmod, "<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge,
}  # fmt: skip
_FORMAT = re.compile(r"%(?:\((\w+)\))?[-+ 0#]{0,3}\d{0,2}(?:\.\d{1,2})?[diouxXeEfFgGcs%]")


def _number(data: Any) -> bool:
    return isinstance(data, int | float) and not isinstance(data, bool)


def _whole(data: Any) -> Any:
    """Numbers are doubles: one without a fraction is written without."""
    if isinstance(data, float) and data.is_integer() and abs(data) < 2**53:
        return int(data)
    return data


def _text(value: Value) -> str:
    data = value.data
    if isinstance(data, bool) or data is None:
        return {None: "null", True: "true", False: "false"}[data]
    return str(data)


def binary(name: str, left: Value, right: Value) -> Value:
    """`left OP right` of plain values."""
    one, two = left.data, right.data
    if isinstance(one, Unknown) or isinstance(two, Unknown):
        return unknown()
    if name in ("==", "!="):
        plain = not isinstance(one, list | dict) and not isinstance(two, list | dict)
        return Value((one == two) is (name == "==")) if plain else unknown()
    if name in ("&&", "||"):
        return right
    if name == "+" and (isinstance(one, str) or isinstance(two, str)):
        joined = _text(left) + _text(right)
        return Value(joined, right.origin) if len(joined) <= MAX_TEXT else unknown()
    texts = isinstance(one, str) and isinstance(two, str) and name in ("<", ">", "<=", ">=")
    if (not texts and not (_number(one) and _number(two))) or name not in _NUMBERS:
        return unknown()
    try:
        return Value(_whole(_NUMBERS[name](one, two)))
    except (ArithmeticError, ValueError):
        return unknown()


def unary(name: str, value: Value, origin: Origin) -> Value:
    if name == "!" and isinstance(value.data, bool):
        return Value(not value.data, origin)
    if name in ("-", "+") and _number(value.data):
        return Value(-value.data if name == "-" else value.data, origin)
    return unknown(origin=origin)


def formatted(pattern: Value, given: Value) -> Value:
    """`"%s-%d" % [a, b]`: Python's rules, with widths that fit a page."""
    pieces = list(_FORMAT.finditer(pattern.data))
    if not given.known or pattern.data.count("%") != sum(p[0].count("%") for p in pieces):
        return unknown()
    plain = given.plain()
    try:
        told = pattern.data % (tuple(plain) if isinstance(plain, list) else plain)
    except (TypeError, ValueError, KeyError):
        return unknown()
    return Value(told, pattern.origin) if len(told) <= MAX_TEXT else unknown()


def call(name: str, values: list[Value]) -> Value:
    """`std.NAME(values)`; unknown for another function, and for arguments it cannot take."""
    if name not in _FUNCTIONS or not all(value.known for value in values):
        return unknown(f"std.{name}")
    try:
        data = _FUNCTIONS[name](*(value.plain() for value in values))
    except (TypeError, ValueError, KeyError, ArithmeticError, IndexError):
        return unknown(f"std.{name}")
    if isinstance(data, str) and len(data) > MAX_TEXT:
        return unknown(f"std.{name}")
    origin = values[0].origin if values else None
    if isinstance(data, list):
        return Value([Value(_whole(item), origin) for item in data], origin)
    return Value(_whole(data), origin)


def _range(start: float, end: float) -> list[int]:
    return list(range(int(start), int(end) + 1))[:MAX_RANGE]


def _scalar(text: str) -> Any:
    """`std.parseJson` of a plain value, which is what variables hold."""
    words = {"true": True, "false": False, "null": None}
    return words[text] if text in words else _whole(float(text))


def _replaced(text: str, old: str, new: str) -> str:
    return text.replace(old, new, MAX_RANGE) if old else text


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "parseInt": int, "parseJson": _scalar, "toString": lambda data: _text(Value(data)),
    "length": len, "max": max, "min": min, "abs": abs, "sqrt": math.sqrt, "exp": math.exp,
    "log": math.log, "pow": lambda x, n: float(x) ** float(n), "floor": math.floor,
    "ceil": math.ceil, "round": lambda x: math.floor(x + 0.5), "mod": math.fmod,
    "join": lambda by, parts: by.join(parts), "split": lambda text, by: text.split(by),
    "startsWith": str.startswith, "endsWith": str.endswith, "strReplace": _replaced,
    "substr": lambda text, start, count: text[start : start + count],
    "asciiLower": str.lower, "asciiUpper": str.upper, "range": _range,
    "isString": lambda data: isinstance(data, str), "isNumber": _number,
}  # fmt: skip
