"""Evaluates expressions over `Value`s, comprehensions and what generators yield among them."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING

from schedmate.agent.bounds import (
    MAX_DATA,
    count_characters,
    is_short_number,
    is_short_specification,
    joined_length,
)
from schedmate.agent.interp.objects import Function, Scope, Site, as_node
from schedmate.agent.interp.source import constant_value, variable_name
from schedmate.agent.interp.values import classes
from schedmate.agent.interp.values.base import (
    binary_operation,
    compare_values,
    is_left_over,
    iterate,
    kind,
    origin_of,
    plain_key,
    truth,
)
from schedmate.agent.values import UNSET, Items, Origin, Unknown, Value, begun, unknown

if TYPE_CHECKING:
    from schedmate.agent.interp.machine import Machine


def comprehension(
    machine: Machine,
    node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp,
    scope: Scope,
) -> Value:
    """The items, unknown when what is gone through or left out is not known exactly."""
    inner = Scope(scope.module, scope)
    out: list[tuple[Value | None, Value]] = []
    exact, gathered = True, False

    def emit() -> None:
        if isinstance(node, ast.DictComp):
            out.append((machine.evaluate(node.key, inner), machine.evaluate(node.value, inner)))
        else:
            out.append((None, machine.evaluate(node.elt, inner)))

    def run(level: int) -> None:
        nonlocal exact, gathered
        if level == len(node.generators):
            emit()
            return
        generator = node.generators[level]
        source = machine.evaluate(generator.iter, inner if level else scope)
        machine.observer.handed([source])
        gathered = gathered or id(source.data) in machine.gathered
        items = iterate(classes.enum_members(source))
        if items is None or len(items) > 2000:
            exact = False
            items = [machine.element(source)]
        for item in items:
            machine.assign(generator.target, item, inner)
            decided = [truth(machine.evaluate(test, inner)) for test in generator.ifs]
            if False in decided:
                continue
            if None in decided:
                exact = False
            run(level + 1)

    run(0)
    here = Origin("code", scope.module.file, node.lineno)
    if not exact:
        return Value(Unknown(), here)
    if isinstance(node, ast.DictComp):
        items_: Items = {}
        for key_value, value in out:
            key = plain_key(key_value) if key_value is not None else None
            if key is not None:
                items_[key] = value
        return Value(items_, here)
    made = [value for _, value in out]
    if gathered:
        machine.gathered[id(made)] = made
    return Value(made, here)


def yield_(machine: Machine, node: ast.Yield, scope: Scope) -> Value:
    value = machine.evaluate(node.value, scope) if node.value is not None else Value(None)
    return _yielded(machine, [value])


def yield_from(machine: Machine, node: ast.YieldFrom, scope: Scope) -> Value:
    return _yielded(machine, iterate(machine.evaluate(node.value, scope)))


def _yielded(machine: Machine, items: list[Value] | None) -> Value:
    """Keep what a generator yields, None for items that are not known."""
    frame = machine.frames[-1]
    if items is None or frame.loops or not machine.certain:
        frame.yielded = None
    elif frame.yielded is not None:
        frame.yielded.extend(items)
    return unknown()


# Evaluation of expressions over `Value`s.


_UNARY: dict[type[ast.unaryop], Callable[[int | float], int | float]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}


def evaluate(machine: Machine, node: ast.expr, scope: Scope) -> Value:
    """The value of `node` in `scope`; unknown where the code cannot be followed."""
    machine.tick()
    handler = _EVAL.get(type(node))
    if handler is None:
        return unknown()
    return handler(machine, node, scope)


def _origin_here(node: ast.expr, scope: Scope) -> Origin:
    return Origin("code", scope.module.file, node.lineno)


def _constant(machine: Machine, node: ast.Constant, scope: Scope) -> Value:
    data = node.value
    if not is_short_number(data):
        return unknown(origin=_origin_here(node, scope))
    # complex numbers are no plain data, and pass for unknown
    return Value(None if data is Ellipsis else data, _origin_here(node, scope))  # type: ignore[arg-type]


def _joined(machine: Machine, node: ast.JoinedStr, scope: Scope) -> Value:
    parts: list[str] = []
    origin: Origin | None = None
    for index, piece in enumerate(node.values):
        if not isinstance(piece, ast.FormattedValue):
            parts.append(str(constant_value(piece)))
            continue
        value = evaluate(machine, piece.value, scope)
        long = joined_length(parts) + count_characters(value.data) > MAX_DATA
        if long or not value.known or kind(value).container:
            for later in node.values[index + 1 :]:  # what it calls is called all the same
                if isinstance(later, ast.FormattedValue):
                    evaluate(machine, later.value, scope)
            return begun(
                "".join(parts) if parts else value,
                origin or value.origin or _origin_here(node, scope),
            )
        spec = ""
        if piece.format_spec is not None:
            spec_value = evaluate(machine, piece.format_spec, scope)
            spec = spec_value.text or ""
        try:
            parts.append(
                format(value.data, spec) if is_short_specification(spec) else str(value.data)
            )
        except (ValueError, TypeError, OverflowError):
            parts.append(str(value.data))
        origin = origin or value.origin
    return machine.made(Value("".join(parts)[:MAX_DATA], origin or _origin_here(node, scope)))


def _sequence(machine: Machine, elements: list[ast.expr], scope: Scope) -> list[Value]:
    items: list[Value] = []
    for element in elements:
        if isinstance(element, ast.Starred):
            spread = iterate(evaluate(machine, element.value, scope))
            items.extend(spread if spread is not None else [unknown()])
            machine.charge(len(spread or ()))
        else:
            items.append(evaluate(machine, element, scope))
    return items


def _list(machine: Machine, node: ast.List | ast.Set, scope: Scope) -> Value:
    return Value(_sequence(machine, node.elts, scope), _origin_here(node, scope))


def _tuple(machine: Machine, node: ast.Tuple, scope: Scope) -> Value:
    return Value(tuple(_sequence(machine, node.elts, scope)), _origin_here(node, scope))


def _dict(machine: Machine, node: ast.Dict, scope: Scope) -> Value:
    items: Items = {}
    for key_node, value_node in zip(node.keys, node.values, strict=True):
        value = evaluate(machine, value_node, scope)
        if key_node is None:
            mapping = machine.mapping(value)
            if mapping:
                machine.charge(len(mapping))
                items.update(mapping)
            continue
        key = plain_key(evaluate(machine, key_node, scope))
        if key is not None:
            items[key] = value
    return Value(items, _origin_here(node, scope))


def _binop(machine: Machine, node: ast.BinOp, scope: Scope) -> Value:
    left = evaluate(machine, node.left, scope)
    right = evaluate(machine, node.right, scope)
    if is_left_over(node, left, right):
        return left
    return machine.made(binary_operation(type(node.op), left, right, _origin_here(node, scope)))


def _unary(machine: Machine, node: ast.UnaryOp, scope: Scope) -> Value:
    value = evaluate(machine, node.operand, scope)
    operation = _UNARY.get(type(node.op))
    if operation is None and type(node.op) is ast.Not:
        decided = truth(value)
        return unknown() if decided is None else Value(not decided, value.origin)
    if operation is not None and isinstance(value.data, int | float):
        return Value(operation(value.data), value.origin)
    if value.integer is not None:
        return Value(~value.integer, value.origin)
    return unknown(origin=value.origin)


def _boolop(machine: Machine, node: ast.BoolOp, scope: Scope) -> Value:
    stop_on = type(node.op) is ast.Or
    undecided: Value | None = None
    last = unknown()
    for operand in node.values:
        last = evaluate(machine, operand, scope)
        decided = truth(last)
        if decided is None:
            undecided = undecided or last
        elif decided == stop_on and undecided is None:
            return last
        elif decided == stop_on:
            # `unknown or True` is true whichever way the unknown falls
            return Value(stop_on) if isinstance(last.data, bool) else unknown()
    if undecided is None:
        return last
    # `x or default` with an unknown x: the default is no more likely than x
    return unknown()


def _compare(machine: Machine, node: ast.Compare, scope: Scope) -> Value:
    left = evaluate(machine, node.left, scope)
    result: bool | None = True
    for op, right_node in zip(node.ops, node.comparators, strict=True):
        right = evaluate(machine, right_node, scope)
        outcome = compare_values(machine, op, left, right)
        if outcome is False:
            return Value(False, origin_of(left, right))
        if outcome is None:
            result = None
        left = right
    return unknown() if result is None else Value(True, origin_of(left))


def _ifexp(machine: Machine, node: ast.IfExp, scope: Scope) -> Value:
    decided = truth(evaluate(machine, node.test, scope))
    if decided is not None:
        return evaluate(machine, node.body if decided else node.orelse, scope)
    with machine.uncertain():
        first = evaluate(machine, node.body, scope)
        second = evaluate(machine, node.orelse, scope)
    if second.data == [] and not first.known:
        return first  # files of a folder, none where it is not there
    if second.text is not None and _from_environment(machine, node.test, scope):
        return second
    return machine.join(first, second)


def _from_environment(machine: Machine, test: ast.expr, scope: Scope) -> bool:
    """Whether a test asks for a variable of the environment, which the launch does not set."""
    name = variable_name(test)
    data = machine.lookup(name, scope).unknown if name is not None else None
    return data is not None and data.hints == UNSET


def _subscript(machine: Machine, node: ast.Subscript, scope: Scope) -> Value:
    base = evaluate(machine, node.value, scope)
    if isinstance(node.slice, ast.Slice):
        return _slice(machine, base, node.slice, scope)
    return machine.getitem(base, evaluate(machine, node.slice, scope))


def _slice(machine: Machine, base: Value, node: ast.Slice, scope: Scope) -> Value:
    ends = slice_ends(machine, node, scope)
    if ends is None or ends.step == 0:
        return unknown(origin=base.origin)
    return kind(base).slice_(machine, base, ends)


def slice_ends(machine: Machine, node: ast.Slice, scope: Scope) -> slice | None:
    """`start:stop:step`, None where one of them is not known."""
    ends: list[int | None] = []
    for part in (node.lower, node.upper, node.step):
        value = evaluate(machine, part, scope) if part is not None else Value(None)
        if value.data is not None and value.integer is None:
            return None
        ends.append(value.integer)
    return slice(*ends)


def _lambda(machine: Machine, node: ast.Lambda, scope: Scope) -> Value:
    return Value(Function("<lambda>", node, scope, parameter_defaults(machine, node.args, scope)))


def _call(machine: Machine, node: ast.Call, scope: Scope) -> Value:
    func = evaluate(machine, node.func, scope)
    args: list[Value] = []
    for argument in node.args:
        if isinstance(argument, ast.Starred):
            spread = iterate(evaluate(machine, argument.value, scope))
            if spread is not None:
                args.extend(spread)
                machine.charge(len(spread))
        else:
            args.append(evaluate(machine, argument, scope))
    kwargs: dict[str, Value] = {}
    for keyword in node.keywords:
        value = evaluate(machine, keyword.value, scope)
        if keyword.arg is not None:
            kwargs[keyword.arg] = value
        else:
            mapping, read = machine.mapping(value), as_node(value)
            if read is not None and read.flavour == "namespace":
                machine.observer.reads("*")
            if mapping is not None:
                kwargs.update({k: v for k, v in mapping.items() if isinstance(k, str)})
    return machine.call(func, args, kwargs, Site(scope.module.file, node.lineno, node))


def parameter_defaults(
    machine: Machine, arguments: ast.arguments, scope: Scope
) -> dict[str, Value]:
    """Default values of a function's parameters, evaluated where it is defined."""
    defaults: dict[str, Value] = {}
    positional = [*arguments.posonlyargs, *arguments.args]
    for parameter, node in zip(
        positional[len(positional) - len(arguments.defaults) :], arguments.defaults, strict=True
    ):
        defaults[parameter.arg] = _as_default(evaluate(machine, node, scope))
    for parameter, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if default is not None:
            defaults[parameter.arg] = _as_default(evaluate(machine, default, scope))
    return defaults


def _as_default(value: Value) -> Value:
    origin = value.origin
    if origin is not None and origin.source == "code" and value.known:
        return Value(value.data, origin._replace(source="default"))
    return value


def _named(machine: Machine, node: ast.NamedExpr, scope: Scope) -> Value:
    value = evaluate(machine, node.value, scope)
    machine.assign(node.target, value, scope)
    return value


_EVAL: dict[type[ast.expr], Callable[..., Value]] = {
    ast.Constant: _constant,
    ast.Name: lambda machine, node, scope: machine.lookup(node.id, scope),
    ast.Attribute: lambda machine, node, scope: machine.getattr(
        evaluate(machine, node.value, scope), node.attr
    ),
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
    ast.Await: lambda machine, node, scope: evaluate(machine, node.value, scope),
    ast.Yield: yield_,
    ast.YieldFrom: yield_from,
}
