"""Python's operators on `Value`s."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable

from schedmate.agent.interp import passes
from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.objects import PathStr, as_node, path_of
from schedmate.agent.interp.values.base import iterate, kind, origin_of, plain_key, several
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
from schedmate.agent.values import UNSAID, Data, Origin, Place, Value, begun, unknown

_BINARY: dict[type[ast.operator], Callable[[Data, Data], Data]] = {
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

_COMPARE: dict[type[ast.cmpop], Callable[..., bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def binary(op: type[ast.operator], left: Value, right: Value, here: Origin) -> Value:
    """`left op right` on plain data within size limits, else unknown."""
    origin = origin_of(left, right) or here
    text = left.text
    if op is ast.Div and text is not None:
        return _joined(text, right, origin)
    if op is ast.Mod and text is not None:
        return _percent(text, right, origin)
    if op is ast.BitOr and left.mapping is not None and right.mapping is not None:
        return Value({**left.mapping, **right.mapping}, origin)
    if left.sequence is not None or right.sequence is not None:
        return _sequence_op(op, left, right, origin)
    return _plain_op(op, left, right, origin, here)


def _joined(text: str, right: Value, origin: Origin) -> Value:
    """`path / name`."""
    name = right.text
    if name is None:
        return begun(text, origin, joint="/")
    if len(text) + len(name) > MAX_PATH:
        return unknown(origin=origin)
    return Value(PathStr(name if name.startswith("/") else f"{text.rstrip('/')}/{name}"), origin)


def _plain_op(
    op: type[ast.operator], left: Value, right: Value, origin: Origin, here: Origin
) -> Value:
    if passes.of(left) or passes.of(right):
        return passes.binary(op, left, right, origin) or unknown(origin=origin)
    if not (left.known and right.known) or (op not in _BINARY and op is not ast.Pow):
        other = kind(right)
        open_ended = other.unknown or (other.foreign and other.symbolic)
        shared = passes.binary(op, left, right, origin) if open_ended else None
        if shared is None and op in (ast.Add, ast.Div) and not right.known and left.number is None:
            return begun(left, origin)
        # of what is not known it is known where it is computed, and from what
        return shared or unknown(origin=_computed(origin, here))
    a, b = left.data, right.data
    if not (_fits(op, a, b) and whole(a) and whole(b)):
        return unknown(origin=origin)
    try:
        if op is ast.Pow:
            if not _small_power(a, b):
                return unknown(origin=origin)
            result = operator.pow(a, b)
        elif op is ast.LShift and (right.integer is None or right.integer > 256):
            return unknown(origin=origin)
        else:
            result = _BINARY[op](a, b)
    except (TypeError, ValueError, ZeroDivisionError, OverflowError):
        return unknown(origin=origin)
    if not whole(result):
        return unknown(origin=origin)
    if type(a) is PathStr and type(result) is str:
        result = PathStr(result)
    return Value(result, _computed(origin, here))


def _computed(origin: Origin, here: Origin) -> Origin:
    """The origin of an operand, as that of what is computed from it `here`."""
    if here.file is None or here.line is None:
        return origin
    return origin._replace(computed=Place(here.file, here.line))


def _small_power(base: Data, exponent: Data) -> bool:
    """Whether `base**exponent` takes no time to speak of."""
    if not isinstance(base, int | float) or not isinstance(exponent, int | float):
        return False
    return abs(exponent) <= 1024 and abs(base) <= 1e12


def _fits(op: type[ast.operator], a: Data, b: Data) -> bool:
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
    given = [right] if right.elements is not None else several(right)
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


def _sequence_op(op: type[ast.operator], left: Value, right: Value, origin: Origin) -> Value:
    a, b = left.sequence, right.sequence
    if op is ast.Mult:
        count, items = right.integer if a is not None else left.integer, a if a is not None else b
        if items is not None and count is not None and count >= 0:
            if repeated(items, count) <= MAX_DATA:
                return Value(items * count, origin)
    elif a is None or b is None:
        return unknown(origin=origin)
    elif op is ast.Add and len(a) + len(b) <= MAX_DATA:
        return Value(type(a)([*a, *b]), origin)
    elif op in _SETS and left.elements is not None and right.elements is not None:
        return Value(_set_op(op, left.elements, right.elements), origin)
    return unknown(origin=origin)


_OPPOSITE: dict[type[ast.cmpop], ast.cmpop] = {ast.IsNot: ast.Is(), ast.NotIn: ast.In()}


def compare(machine: Machine, op: ast.cmpop, left: Value, right: Value) -> bool | None:
    """The outcome of one comparison, None when it cannot be decided."""
    opposite = _OPPOSITE.get(type(op))
    if opposite is not None:
        positive = compare(machine, opposite, left, right)
        return None if positive is None else not positive
    if type(op) is ast.In:
        return _contains(machine, left, right)
    if type(op) in (ast.Is, ast.Eq, ast.NotEq):
        same = _same(left, right)
        if same and left.text is not None and right.text is not None:
            machine.observer.looks_up(left.text)
        return same if same is None or type(op) is not ast.NotEq else not same
    if left.known and right.known and left.mapping is None and right.mapping is None:
        try:
            return bool(_COMPARE[type(op)](left.plain(), right.plain()))
        except TypeError:
            return None
    return None


def _same(left: Value, right: Value) -> bool | None:
    """Whether two values are equal, or the same thing; None when that cannot be decided."""
    a, b = kind(left), kind(right)
    if left.data is None or right.data is None:
        other = left if right.data is None else right
        return True if other.data is None else None if kind(other).unknown else False
    if a.scalar and b.scalar:
        return bool(left.data == right.data)
    if a.unknown or b.unknown:
        return None
    if left.known and right.known:
        return bool(left.plain() == right.plain())
    if a.symbolic and b.symbolic:
        return a.is_same(left, right)
    for member, plain in ((left, right), (right, left)):
        if plain.known:
            same = kind(member).equals(member, plain)
            if same is not None:
                return same
    return None


_ENVIRON = ("os.environ", "os.environ.keys")


def _contains(machine: Machine, item: Value, container: Value) -> bool | None:
    if item.text is not None and container.text is not None:
        return item.text in container.text
    key = plain_key(item)
    if path_of(container) in _ENVIRON:
        return True if key in machine.environ else None
    mapping = machine.mapping(container)
    if mapping is not None:
        if key is None:
            return None
        if key in mapping:
            return True
        node = as_node(container)
        return None if node is not None and node.flavour == "open" else False
    items = iterate(container)
    weight = measure(item.data)
    if items is None or weight is None or weight * len(items) > MAX_WORK:
        return None
    machine.charge(weight * len(items) // 8)
    undecided = False
    for other in items:
        same = _same(item, other)
        if same:
            return True
        undecided = undecided or same is None
    return None if undecided else False
