"""Evaluation of expressions over `Value`s."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from schedmate.agent.interp.comprehensions import comprehension
from schedmate.agent.interp.objects import AttrDict, Call, Function, Scope, Site, Symbol
from schedmate.agent.interp.operators import binary, compare
from schedmate.agent.interp.passes import left_over
from schedmate.agent.interp.values_ops import iterate, origin_of, plain_key, truth
from schedmate.agent.sizes import MAX_DATA, characters, joined, specification, whole
from schedmate.agent.values import UNSET, Origin, Unknown, Value, begun, unknown

if TYPE_CHECKING:
    from schedmate.agent.interp.state import State

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


def _here(node: ast.expr, scope: Scope) -> Origin:
    return Origin("code", scope.module.file, node.lineno)


def _constant(state: State, node: ast.Constant, scope: Scope) -> Value:
    if not whole(node.value):
        return unknown(origin=_here(node, scope))
    data = None if node.value is Ellipsis else node.value
    return Value(data, _here(node, scope))


def _name(state: State, node: ast.Name, scope: Scope) -> Value:
    return state.lookup(node.id, scope)


def _attribute(state: State, node: ast.Attribute, scope: Scope) -> Value:
    return state.getattr(evaluate(state, node.value, scope), node.attr)


def _joined(state: State, node: ast.JoinedStr, scope: Scope) -> Value:
    parts: list[str] = []
    origin: Origin | None = None
    for index, piece in enumerate(node.values):
        if isinstance(piece, ast.Constant):
            parts.append(str(piece.value))
            continue
        assert isinstance(piece, ast.FormattedValue)
        value = evaluate(state, piece.value, scope)
        long = joined(parts) + characters(value.data) > MAX_DATA
        if long or not value.known or isinstance(value.data, dict | list | tuple):
            for later in node.values[index + 1 :]:  # what it calls is called all the same
                if isinstance(later, ast.FormattedValue):
                    evaluate(state, later.value, scope)
            told = origin or value.origin or _here(node, scope)
            return begun("".join(parts) if parts else value, told)
        spec = ""
        if piece.format_spec is not None:
            spec_value = evaluate(state, piece.format_spec, scope)
            spec = spec_value.data if isinstance(spec_value.data, str) else ""
        try:
            parts.append(format(value.data, spec) if specification(spec) else str(value.data))
        except (ValueError, TypeError, OverflowError):
            parts.append(str(value.data))
        origin = origin or value.origin
    return state.made(Value("".join(parts)[:MAX_DATA], origin or _here(node, scope)))


def _sequence(state: State, elements: list[ast.expr], scope: Scope) -> list[Value]:
    items: list[Value] = []
    for element in elements:
        if isinstance(element, ast.Starred):
            spread = iterate(evaluate(state, element.value, scope))
            items.extend(spread if spread is not None else [unknown()])
            state.charge(len(spread or ()))
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
                state.charge(len(mapping))
                items.update(mapping)
            continue
        key = plain_key(evaluate(state, key_node, scope))
        if key is not None:
            items[key] = value
    return Value(items, _here(node, scope))


def _binop(state: State, node: ast.BinOp, scope: Scope) -> Value:
    left = evaluate(state, node.left, scope)
    right = evaluate(state, node.right, scope)
    if left_over(node, left, right):
        return left
    return state.made(binary(type(node.op), left, right, _here(node, scope)))


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


def _ifexp(state: State, node: ast.IfExp, scope: Scope) -> Value:
    decided = truth(evaluate(state, node.test, scope))
    if decided is not None:
        return evaluate(state, node.body if decided else node.orelse, scope)
    with state.uncertain():
        first = evaluate(state, node.body, scope)
        second = evaluate(state, node.orelse, scope)
    if second.data == [] and not first.known:
        return first  # files of a folder, none where it is not there
    if isinstance(second.data, str) and _from_environment(state, node.test, scope):
        return second
    return state.join(first, second)


def _from_environment(state: State, test: ast.expr, scope: Scope) -> bool:
    """Whether a test asks for a variable of the environment, which the launch does not set."""
    data = state.lookup(test.id, scope).data if isinstance(test, ast.Name) else None
    return isinstance(data, Unknown) and data.hints == UNSET


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
        return state.made(Value(base.data[slice(*ends)], base.origin))
    if isinstance(base.data, Unknown | Symbol | Call):
        return Value(Unknown(), base.origin)
    return unknown(origin=base.origin)


def _lambda(state: State, node: ast.Lambda, scope: Scope) -> Value:
    return Value(Function("<lambda>", node, scope, defaults(state, node.args, scope)))


def _call(state: State, node: ast.Call, scope: Scope) -> Value:
    func = evaluate(state, node.func, scope)
    args: list[Value] = []
    for argument in node.args:
        if isinstance(argument, ast.Starred):
            spread = iterate(evaluate(state, argument.value, scope))
            if spread is not None:
                args.extend(spread)
                state.charge(len(spread))
        else:
            args.append(evaluate(state, argument, scope))
    kwargs: dict[str, Value] = {}
    for keyword in node.keywords:
        value = evaluate(state, keyword.value, scope)
        if keyword.arg is not None:
            kwargs[keyword.arg] = value
        else:
            mapping = state.mapping(value)
            if isinstance(value.data, AttrDict) and value.data.flavour == "namespace":
                state.trace.read.add("*")
            if mapping is not None:
                kwargs.update({k: v for k, v in mapping.items() if isinstance(k, str)})
    return state.call(func, args, kwargs, Site(scope.module.file, node.lineno, node))


def defaults(state: State, arguments: ast.arguments, scope: Scope) -> dict[str, Value]:
    """Default values of a function's parameters, evaluated where it is defined."""
    found: dict[str, Value] = {}
    positional = [*arguments.posonlyargs, *arguments.args]
    for parameter, node in zip(
        positional[len(positional) - len(arguments.defaults) :], arguments.defaults, strict=True
    ):
        found[parameter.arg] = _as_default(evaluate(state, node, scope))
    for parameter, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if default is not None:
            found[parameter.arg] = _as_default(evaluate(state, default, scope))
    return found


def _as_default(value: Value) -> Value:
    origin = value.origin
    if origin is not None and origin.source == "code" and value.known:
        return Value(value.data, Origin("default", origin.file, origin.line))
    return value


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
    ast.ListComp: comprehension,
    ast.SetComp: comprehension,
    ast.GeneratorExp: comprehension,
    ast.DictComp: comprehension,
    ast.NamedExpr: _named,
    ast.Await: _await,
    ast.Yield: _yield,
    ast.YieldFrom: _yield,
}
