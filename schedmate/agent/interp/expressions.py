"""Evaluation of expressions over `Value`s."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from schedmate.agent.interp.objects import (
    AttrDict,
    Call,
    Class,
    Function,
    Instance,
    Module,
    Native,
    PathStr,
    Scope,
    Symbol,
)
from schedmate.agent.interp.values_ops import iterate, origin_of, truth
from schedmate.agent.values import Origin, Unknown, Value, unknown

if TYPE_CHECKING:
    from schedmate.agent.interp.state import State

MAX_DATA = 20_000
"""Longest string or list an operation may build; anything longer becomes unknown."""

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

_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
}


def evaluate(state: State, node: ast.expr, scope: Scope) -> Value:
    """The value of `node` in `scope`; unknown where the code cannot be followed."""
    state.tick()
    handler = _EVAL.get(type(node))
    if handler is None:
        return unknown()
    return handler(state, node, scope)


def _here(node: ast.expr, scope: Scope, text: str | None = None) -> Origin:
    return Origin("code", scope.module.file, node.lineno, text)


def _constant(state: State, node: ast.Constant, scope: Scope) -> Value:
    data = None if node.value is Ellipsis else node.value
    return Value(data, _here(node, scope))


def _name(state: State, node: ast.Name, scope: Scope) -> Value:
    return state.lookup(node.id, scope)


def _attribute(state: State, node: ast.Attribute, scope: Scope) -> Value:
    return state.getattr(evaluate(state, node.value, scope), node.attr)


def _joined(state: State, node: ast.JoinedStr, scope: Scope) -> Value:
    parts: list[str] = []
    origin: Origin | None = None
    for piece in node.values:
        if isinstance(piece, ast.Constant):
            parts.append(str(piece.value))
            continue
        assert isinstance(piece, ast.FormattedValue)
        value = evaluate(state, piece.value, scope)
        if not value.known or isinstance(value.data, dict | list | tuple):
            return Value(Unknown("".join([*parts, "…"])), origin or _here(node, scope))
        spec = ""
        if piece.format_spec is not None:
            spec_value = evaluate(state, piece.format_spec, scope)
            spec = spec_value.data if isinstance(spec_value.data, str) else ""
        try:
            parts.append(format(value.data, spec) if len(spec) < 8 else str(value.data))
        except (ValueError, TypeError):
            parts.append(str(value.data))
        origin = origin or value.origin
    return Value("".join(parts)[:MAX_DATA], origin or _here(node, scope))


def _sequence(state: State, elements: list[ast.expr], scope: Scope) -> list[Value]:
    items: list[Value] = []
    for element in elements:
        if isinstance(element, ast.Starred):
            spread = iterate(evaluate(state, element.value, scope))
            items.extend(spread if spread is not None else [unknown()])
        else:
            items.append(evaluate(state, element, scope))
    return items


def _list(state: State, node: ast.List | ast.Set, scope: Scope) -> Value:
    return Value(_sequence(state, node.elts, scope), _here(node, scope))


def _tuple(state: State, node: ast.Tuple, scope: Scope) -> Value:
    return Value(tuple(_sequence(state, node.elts, scope)), _here(node, scope))


def _dict(state: State, node: ast.Dict, scope: Scope) -> Value:
    items: dict[Any, Value] = {}
    for key_node, value_node in zip(node.keys, node.values, strict=True):
        value = evaluate(state, value_node, scope)
        if key_node is None:
            mapping = state.mapping(value)
            if mapping:
                items.update(mapping)
            continue
        key = state.key(evaluate(state, key_node, scope))
        if key is not None:
            items[key] = value
    return Value(items, _here(node, scope))


def _binop(state: State, node: ast.BinOp, scope: Scope) -> Value:
    left = evaluate(state, node.left, scope)
    right = evaluate(state, node.right, scope)
    return binary(type(node.op), left, right, _here(node, scope))


def binary(op: type[ast.operator], left: Value, right: Value, here: Origin) -> Value:
    """`left op right` on plain data within size limits, else unknown."""
    a, b = left.data, right.data
    origin = origin_of(left, right) or here
    if op is ast.Div and isinstance(a, str):
        if isinstance(b, str):
            return Value(PathStr(b if b.startswith("/") else f"{a.rstrip('/')}/{b}"), origin)
        return unknown(origin=origin)
    if op is ast.BitOr and isinstance(a, dict) and isinstance(b, dict):
        return Value({**a, **b}, origin)
    if op is ast.Mod and isinstance(a, str):
        return _percent(a, right, origin)
    if isinstance(a, list | tuple) or isinstance(b, list | tuple):
        return _sequence_op(op, a, b, origin)
    if not (left.known and right.known) or (op not in _BINARY and op is not ast.Pow):
        return unknown(origin=origin)
    if op is ast.Mult and isinstance(a, str | bytes) | isinstance(b, str | bytes):
        count = a if isinstance(a, int) else b if isinstance(b, int) else 0
        if count > 1000:
            return unknown(origin=origin)
    try:
        if op is ast.Pow:
            small = isinstance(a, int | float) and isinstance(b, int | float)
            if not small or abs(b) > 1024 or abs(a) > 1e12:
                return unknown(origin=origin)
            return Value(a**b, origin)
        if op is ast.LShift and (not isinstance(b, int) or b > 256):
            return unknown(origin=origin)
        result = _BINARY[op](a, b)
    except (TypeError, ValueError, ZeroDivisionError, OverflowError):
        return unknown(origin=origin)
    if isinstance(result, int) and result.bit_length() > 1024:
        return unknown(origin=origin)
    if isinstance(result, str | bytes) and len(result) > MAX_DATA:
        return unknown(origin=origin)
    if isinstance(a, PathStr) and isinstance(result, str):
        result = PathStr(result)
    return Value(result, origin)


def _percent(template: str, right: Value, origin: Origin) -> Value:
    if not right.known or len(template) > 500 or "*" in template:
        return unknown(origin=origin)
    plain = right.plain()
    try:
        return Value((template % plain)[:MAX_DATA], origin)
    except (TypeError, ValueError, KeyError, OverflowError):
        return unknown(origin=origin)


def _sequence_op(op: type[ast.operator], a: Any, b: Any, origin: Origin) -> Value:
    if op is ast.Add and isinstance(a, list | tuple) and isinstance(b, list | tuple):
        if len(a) + len(b) > MAX_DATA:
            return unknown(origin=origin)
        kind = tuple if isinstance(a, tuple) else list
        return Value(kind([*a, *b]), origin)
    if op is ast.Mult:
        items, count = (a, b) if isinstance(a, list | tuple) else (b, a)
        if isinstance(count, int) and 0 <= len(items) * count <= MAX_DATA:
            return Value(items * count, origin)
    return unknown(origin=origin)


def _unary(state: State, node: ast.UnaryOp, scope: Scope) -> Value:
    value = evaluate(state, node.operand, scope)
    if isinstance(node.op, ast.Not):
        decided = truth(value)
        return unknown() if decided is None else Value(not decided, value.origin)
    if isinstance(value.data, int | float):
        try:
            return Value(_UNARY[type(node.op)](value.data), value.origin)
        except (TypeError, KeyError):
            return unknown(origin=value.origin)
    return unknown(origin=value.origin)


def _boolop(state: State, node: ast.BoolOp, scope: Scope) -> Value:
    stop_on = isinstance(node.op, ast.Or)
    undecided: Value | None = None
    last = unknown()
    for operand in node.values:
        last = evaluate(state, operand, scope)
        decided = truth(last)
        if decided is None:
            undecided = undecided or last
        elif decided == stop_on:
            # `unknown or True` is true whichever way the unknown falls
            return last if undecided is None else Value(stop_on) if _is_bool(last) else unknown()
    if undecided is None:
        return last
    # `x or default` with an unknown x: the default is no more likely than x
    return unknown()


def _is_bool(value: Value) -> bool:
    return isinstance(value.data, bool)


def _compare(state: State, node: ast.Compare, scope: Scope) -> Value:
    left = evaluate(state, node.left, scope)
    result: bool | None = True
    for op, right_node in zip(node.ops, node.comparators, strict=True):
        right = evaluate(state, right_node, scope)
        outcome = compare(state, op, left, right)
        if outcome is False:
            return Value(False, origin_of(left, right))
        if outcome is None:
            result = None
        left = right
    return unknown() if result is None else Value(True, origin_of(left))


def compare(state: State, op: ast.cmpop, left: Value, right: Value) -> bool | None:
    """The outcome of one comparison, None when it cannot be decided."""
    if isinstance(op, ast.IsNot | ast.NotIn):
        positive = compare(state, ast.Is() if isinstance(op, ast.IsNot) else ast.In(), left, right)
        return None if positive is None else not positive
    a, b = left.data, right.data
    if isinstance(op, ast.In):
        return _contains(state, left, right)
    if isinstance(op, ast.Is | ast.Eq | ast.NotEq):
        same = _same(left, right, isinstance(op, ast.Is))
        if same is None:
            return None
        if same and isinstance(a, str) and isinstance(b, str):
            state.trace.looked_up.add(a)
        return same if not isinstance(op, ast.NotEq) else not same
    if left.known and right.known and not isinstance(a, dict) and not isinstance(b, dict):
        try:
            return bool(_COMPARE[type(op)](left.plain(), right.plain()))
        except TypeError:
            return None
    return None


def _same(left: Value, right: Value, identity: bool) -> bool | None:
    a, b = left.data, right.data
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
        return a is b
    return None


def _contains(state: State, item: Value, container: Value) -> bool | None:
    if isinstance(item.data, str) and isinstance(container.data, str):
        return item.data in container.data
    mapping = state.mapping(container)
    key = state.key(item)
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
    if items is None:
        return None
    outcomes = [_same(item, other, False) for other in items]
    if True in outcomes:
        return True
    return None if None in outcomes else False


def _ifexp(state: State, node: ast.IfExp, scope: Scope) -> Value:
    decided = truth(evaluate(state, node.test, scope))
    if decided is not None:
        return evaluate(state, node.body if decided else node.orelse, scope)
    with state.uncertain():
        first = evaluate(state, node.body, scope)
        second = evaluate(state, node.orelse, scope)
    return state.join(first, second)


def _subscript(state: State, node: ast.Subscript, scope: Scope) -> Value:
    base = evaluate(state, node.value, scope)
    if isinstance(node.slice, ast.Slice):
        return _slice(state, base, node.slice, scope)
    return state.getitem(base, evaluate(state, node.slice, scope))


def _slice(state: State, base: Value, node: ast.Slice, scope: Scope) -> Value:
    ends: list[int | None] = []
    for part in (node.lower, node.upper, node.step):
        value = evaluate(state, part, scope) if part is not None else Value(None)
        if value.data is not None and not isinstance(value.data, int):
            return unknown(origin=base.origin)
        ends.append(value.data)
    if isinstance(base.data, str | list | tuple) and ends[2] != 0:
        return Value(base.data[slice(*ends)], base.origin)
    if isinstance(base.data, Unknown | Symbol | Call):
        return Value(Unknown(), base.origin)
    return unknown(origin=base.origin)


def _lambda(state: State, node: ast.Lambda, scope: Scope) -> Value:
    return Value(Function("<lambda>", node, scope, state.defaults(node.args, scope)))


def _call(state: State, node: ast.Call, scope: Scope) -> Value:
    return state.call_node(node, scope)


def _comprehension(
    state: State,
    node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp,
    scope: Scope,
) -> Value:
    inner = Scope(scope.module, scope)
    out: list[tuple[Value | None, Value]] = []
    exact = True

    def emit() -> None:
        if isinstance(node, ast.DictComp):
            out.append((evaluate(state, node.key, inner), evaluate(state, node.value, inner)))
        else:
            out.append((None, evaluate(state, node.elt, inner)))

    def run(level: int) -> None:
        nonlocal exact
        if level == len(node.generators):
            emit()
            return
        generator = node.generators[level]
        source = evaluate(state, generator.iter, inner if level else scope)
        state.use(source)
        items = iterate(source)
        if items is None or len(items) > 2000:
            exact = False
            items = [state.element(source)]
        for item in items:
            state.assign(generator.target, item, inner)
            decided = [truth(evaluate(state, test, inner)) for test in generator.ifs]
            if False in decided:
                continue
            if None in decided:
                exact = False
            run(level + 1)

    run(0)
    here = _here(node, scope)
    if not exact:
        return Value(Unknown(), here)
    if isinstance(node, ast.DictComp):
        items_: dict[Any, Value] = {}
        for key_value, value in out:
            key = state.key(key_value) if key_value is not None else None
            if key is not None:
                items_[key] = value
        return Value(items_, here)
    return Value([value for _, value in out], here)


def _named(state: State, node: ast.NamedExpr, scope: Scope) -> Value:
    value = evaluate(state, node.value, scope)
    state.assign(node.target, value, scope)
    return value


def _await(state: State, node: ast.Await, scope: Scope) -> Value:
    return evaluate(state, node.value, scope)


def _yield(state: State, node: ast.Yield | ast.YieldFrom, scope: Scope) -> Value:
    value = evaluate(state, node.value, scope) if node.value is not None else Value(None)
    frame = state.frames[-1]
    items = iterate(value) if isinstance(node, ast.YieldFrom) else [value]
    if items is None or frame.loops or not state.certain:
        frame.yielded = None
    elif frame.yielded is not None:
        frame.yielded.extend(items)
    return unknown()


_EVAL: dict[type[ast.expr], Callable[..., Value]] = {
    ast.Constant: _constant,
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.JoinedStr: _joined,
    ast.List: _list,
    ast.Set: _list,
    ast.Tuple: _tuple,
    ast.Dict: _dict,
    ast.BinOp: _binop,
    ast.UnaryOp: _unary,
    ast.BoolOp: _boolop,
    ast.Compare: _compare,
    ast.IfExp: _ifexp,
    ast.Subscript: _subscript,
    ast.Lambda: _lambda,
    ast.Call: _call,
    ast.ListComp: _comprehension,
    ast.SetComp: _comprehension,
    ast.GeneratorExp: _comprehension,
    ast.DictComp: _comprehension,
    ast.NamedExpr: _named,
    ast.Await: _await,
    ast.Yield: _yield,
    ast.YieldFrom: _yield,
}
