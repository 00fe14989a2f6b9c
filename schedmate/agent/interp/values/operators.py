"""Python's operators on `Value`s."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from typing import Any

from schedmate.agent.interp import classes, passes
from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.objects import (
    AttrDict,
    Call,
    Class,
    Function,
    Instance,
    Module,
    Native,
    PathStr,
    Symbol,
)
from schedmate.agent.interp.values.base import iterate, origin_of, plain_key
from schedmate.agent.sizes import (
    MAX_DATA,
    MAX_PATH,
    MAX_WORK,
    fits,
    measure,
    percent,
    repeated,
    whole,
)
from schedmate.agent.values import UNSAID, Origin, Unknown, Value, begun, unknown

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.BitOr: operator.or_,
    ast.BitAnd: operator.and_,
    ast.BitXor: operator.xor,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}

_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def binary(op: type[ast.operator], left: Value, right: Value, here: Origin) -> Value:
    """`left op right` on plain data within size limits, else unknown."""
    a, b = left.data, right.data
    origin = origin_of(left, right) or here
    if op is ast.Div and isinstance(a, str):
        if isinstance(b, str):
            if len(a) + len(b) > MAX_PATH:
                return unknown(origin=origin)
            return Value(PathStr(b if b.startswith("/") else f"{a.rstrip('/')}/{b}"), origin)
        return begun(a, origin, joint="/")
    if op is ast.BitOr and isinstance(a, dict) and isinstance(b, dict):
        return Value({**a, **b}, origin)
    if op is ast.Mod and isinstance(a, str):
        return _percent(a, right, origin)
    if isinstance(a, list | tuple) or isinstance(b, list | tuple):
        return _sequence_op(op, a, b, origin)
    return _plain_op(op, left, right, origin)


def _plain_op(op: type[ast.operator], left: Value, right: Value, origin: Origin) -> Value:
    a, b = left.data, right.data
    if isinstance(a, passes.Passes) or isinstance(b, passes.Passes):
        return passes.binary(op, left, right, origin) or unknown(origin=origin)
    if not (left.known and right.known) or (op not in _BINARY and op is not ast.Pow):
        shared = passes.binary(op, left, right, origin) if isinstance(b, Unknown | Symbol) else None
        if shared is None and op in (ast.Add, ast.Div) and not right.known:
            return begun(left, origin)
        return shared or unknown(origin=origin)
    if not (_fits(op, a, b) and whole(a) and whole(b)):
        return unknown(origin=origin)
    try:
        if op is ast.Pow:
            small = isinstance(a, int | float) and isinstance(b, int | float)
            if not small or abs(b) > 1024 or abs(a) > 1e12:
                return unknown(origin=origin)
            result = a**b
        elif op is ast.LShift and (not isinstance(b, int) or b > 256):
            return unknown(origin=origin)
        else:
            result = _BINARY[op](a, b)
    except (TypeError, ValueError, ZeroDivisionError, OverflowError):
        return unknown(origin=origin)
    if not whole(result):
        return unknown(origin=origin)
    if isinstance(a, PathStr) and isinstance(result, str):
        result = PathStr(result)
    return Value(result, origin)


def _fits(op: type[ast.operator], a: Any, b: Any) -> bool:
    """Whether what two texts, or a text and a number, make is not too long."""
    for text, other in ((a, b), (b, a)):
        if isinstance(text, str | bytes):
            if op is ast.Mult and isinstance(other, int):
                return repeated(text, other) <= MAX_DATA
            if op is ast.Add and isinstance(other, str | bytes):
                return len(text) + len(other) <= MAX_DATA
    return True


_SLOT = re.compile(r"(%[^a-zA-Z%(]*[a-zA-Z])")


def _percent(template: str, right: Value, origin: Origin) -> Value:
    if len(template) > 500:
        return unknown(origin=origin)
    if not right.known:
        return _percent_around(template, right, origin)
    if not fits(percent(template, right.data)):
        return unknown(origin=origin)
    try:
        return Value(template % right.plain(), origin)
    except (TypeError, ValueError, KeyError, OverflowError):
        return unknown(origin=origin)


def _percent_around(template: str, right: Value, origin: Origin) -> Value:
    """`"--port %d --config %s" % (unknown, path)`: the text around what is not known."""
    given = list(right.data) if isinstance(right.data, tuple) else [right]
    pieces = _SLOT.split(template.replace("%%", "%"))
    if len(pieces) != 2 * len(given) + 1:
        return unknown(origin=origin)
    for index, value in enumerate(given):
        slot = 2 * index + 1
        pieces[slot] = (
            str(_percent(pieces[slot], Value((value,)), origin).data) if value.known else UNSAID
        )
    return unknown("".join(pieces), origin)


_SETS = (ast.BitOr, ast.BitAnd, ast.Sub)


def _set_op(op: type[ast.operator], a: list[Value], b: list[Value]) -> list[Value]:
    """`a | b`, `a & b` and `a - b` of sets, which are lists of what they hold."""
    keys, others = [plain_key(value) for value in a], [plain_key(value) for value in b]
    if op is ast.BitOr:
        held = set(keys)
        return a + [value for value, key in zip(b, others, strict=True) if key not in held]
    held, wanted = set(others), op is ast.BitAnd
    return [value for value, key in zip(a, keys, strict=True) if (key in held) is wanted]


def _sequence_op(op: type[ast.operator], a: Any, b: Any, origin: Origin) -> Value:
    if op is ast.Add and isinstance(a, list | tuple) and isinstance(b, list | tuple):
        if len(a) + len(b) > MAX_DATA:
            return unknown(origin=origin)
        kind = tuple if isinstance(a, tuple) else list
        return Value(kind([*a, *b]), origin)
    if op in _SETS and isinstance(a, list) and isinstance(b, list):
        return Value(_set_op(op, a, b), origin)
    if op is ast.Mult:
        items, count = (a, b) if isinstance(a, list | tuple) else (b, a)
        if isinstance(count, int) and count >= 0 and repeated(items, count) <= MAX_DATA:
            return Value(items * count, origin)
    return unknown(origin=origin)


def compare(machine: Machine, op: ast.cmpop, left: Value, right: Value) -> bool | None:
    """The outcome of one comparison, None when it cannot be decided."""
    if isinstance(op, ast.IsNot | ast.NotIn):
        positive = compare(
            machine, ast.Is() if isinstance(op, ast.IsNot) else ast.In(), left, right
        )
        return None if positive is None else not positive
    a, b = left.data, right.data
    if isinstance(op, ast.In):
        return _contains(machine, left, right)
    if isinstance(op, ast.Is | ast.Eq | ast.NotEq):
        same = _same(left, right, isinstance(op, ast.Is))
        if same is None:
            return None
        if same and isinstance(a, str) and isinstance(b, str):
            machine.observer.looks_up(a)
        return same if not isinstance(op, ast.NotEq) else not same
    if left.known and right.known and not isinstance(a, dict) and not isinstance(b, dict):
        try:
            return bool(_COMPARE[type(op)](left.plain(), right.plain()))
        except TypeError:
            return None
    return None


def _same(left: Value, right: Value, identity: bool) -> bool | None:
    a, b = left.data, right.data
    if isinstance(a, str | int | float) and isinstance(b, str | int | float):
        return a == b
    if a is None or b is None:
        other = left if b is None else right
        if other.data is None:
            return True
        return None if isinstance(other.data, Unknown) else False
    if isinstance(a, Unknown) or isinstance(b, Unknown):
        return None
    if left.known and right.known:
        return bool(left.plain() == right.plain())
    symbolic = Class | Function | Instance | Module | Native | Symbol
    if isinstance(a, symbolic) and isinstance(b, symbolic):
        if isinstance(a, Symbol) and isinstance(b, Symbol):
            return True if a.path == b.path else None
        if isinstance(a, Native) and isinstance(b, Native):
            return a.name == b.name
        if a is not b and isinstance(a, Instance) and _compares(a.cls):
            return None
        return a is b
    for member, plain in ((left, right), (right, left)):
        if isinstance(member.data, Instance) and member.data.cls.members and plain.known:
            return _same_value(member.data, plain)
    return None


def _compares(cls: Class) -> bool:
    """Whether equality of a class's objects is its own affair."""
    return classes.is_record(cls) or cls.lookup("__eq__") is not None


def _same_value(member: Instance, plain: Value) -> bool:
    """Whether a member of an enum of strings or numbers equals one; other members never do."""
    bases = {classes.last(base) for base in member.cls.external_bases()}
    value = member.attrs.get("value", unknown())
    return not bases.isdisjoint(classes.PLAIN_ENUMS) and bool(value.plain() == plain.plain())


_ENVIRON = ("os.environ", "os.environ.keys")


def _contains(machine: Machine, item: Value, container: Value) -> bool | None:
    if isinstance(container.data, Symbol) and container.data.path == "os.environ":
        return True if item.data in machine.environ else None
    if isinstance(item.data, str) and isinstance(container.data, str):
        return item.data in container.data
    key = plain_key(item)
    if isinstance(container.data, Symbol | Call) and container.data.path in _ENVIRON:
        return True if key in machine.environ else None
    mapping = machine.mapping(container)
    if mapping is not None:
        if key is None:
            return None
        if key in mapping:
            return True
        return (
            None
            if isinstance(container.data, AttrDict) and container.data.flavour == "open"
            else False
        )
    items = iterate(container)
    weight = measure(item.data)
    if items is None or weight is None or weight * len(items) > MAX_WORK:
        return None
    machine.charge(weight * len(items) // 8)
    undecided = False
    for other in items:
        same = _same(item, other, False)
        if same:
            return True
        undecided = undecided or same is None
    return None if undecided else False
