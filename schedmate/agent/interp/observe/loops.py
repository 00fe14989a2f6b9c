"""Loops, and conditions that end them: what counts, and up to where."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from types import NoneType

from schedmate.agent.interp import passes
from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.objects import RangeOf, Scope, Site
from schedmate.agent.interp.observe.training import steps_over_data, trains
from schedmate.agent.interp.syntax import constant, nodes, variable
from schedmate.agent.interp.trace import LoopEvent, Trace
from schedmate.agent.values import Value, unknown


def is_training(node: ast.For | ast.AsyncFor | ast.While) -> bool:
    """Whether a loop trains, so that one pass tells of all."""
    if isinstance(node, ast.While):
        return trains(node.body)
    return "epoch" in _counter(node.target).lower() or trains(node.body, simulated=True)


def note_counted(
    trace: Trace, machine: Machine, node: ast.For | ast.AsyncFor, source: RangeOf, scope: Scope
) -> None:
    """Record a loop over a range."""
    bound = _counted_from_one(node, source, _counted(source))
    frame = machine.frames[-1]
    trace.loops.append(
        LoopEvent(
            "for",
            _counter(node.target),
            bound,
            ast.unparse(_end(node.iter))[:200],
            Site(scope.module.file, node.lineno),
            machine.certain,
            sum(f.loops for f in machine.frames),
            frame.function,
            trains(node.body),
            steps_over_data(node.body),
            required=True,
        )
    )


def _counted(source: RangeOf) -> Value:
    """The number of passes of a loop over a range, as a value."""
    start, stop, step = source.start.integer, source.stop, source.step.integer
    end = stop.number if stop.number is not None else stop.integer
    if start is not None and end is not None and source.step.data == 1:
        return Value(end - start, stop.origin)
    if start is not None and stop.integer is not None and step is not None:
        if step > 1 and stop.integer > start:
            return Value(-((start - stop.integer) // step), stop.origin)
    return unknown(origin=stop.origin) if source.step.unknown else stop


def _counted_from_one(node: ast.For | ast.AsyncFor, source: RangeOf, counted: Value) -> Value:
    """`range(start, epochs + 1)` with an unknown start counts from one.

    `range(last + 1, epochs)` does not: before the first epoch the last one is -1.
    """
    count = counted.integer if source.start.integer is None else None
    if count is not None and _from_one(ast.unparse(_end(node.iter))):
        return Value(count - 1, counted.origin)
    return counted


def _from_one(bound: str) -> bool:
    return bound.rstrip(")").endswith(" + 1") or bound.startswith("1 + ")


def _counter(target: ast.expr) -> str:
    match target:
        case ast.Name():
            return target.id
        case ast.Attribute():
            return target.attr
        case ast.Tuple(elts=[first, *_]):
            return _counter(first)
        case _:
            return ""


def _end(source: ast.expr) -> ast.expr:
    """What a loop counts up to: of `tqdm(range(start, end))` a named end, else all of it."""
    inner = source
    while isinstance(inner, ast.Call) and inner.args:
        name = ast.unparse(inner.func).rpartition(".")[2]
        if name == "zip":  # with a range and batches
            source = next((arg for arg in inner.args if "range(" in ast.unparse(arg)), source)
        if name in ("range", "trange", "xrange"):
            end = inner.args[1] if len(inner.args) > 1 else None
            return source if end is None or isinstance(end, ast.Constant) else end
        inner = inner.args[0]
    return source


_ABOVE, _BELOW = (ast.Gt, ast.GtE), (ast.Lt, ast.LtE)


def _counter_and_bound(
    op: type[ast.cmpop], left: ast.expr, right: ast.expr, kind: str
) -> tuple[ast.expr, ast.expr] | None:
    """Which side of a comparison counts, and which is the bound; None where neither does."""
    if kind == "stop":
        if op in _ABOVE or op is ast.Eq:
            return left, right
        return (right, left) if op in _BELOW or op is ast.NotEq else None
    if op in _BELOW or op is ast.NotEq:
        return left, right
    return (right, left) if op in _ABOVE else None


def note_bound(
    trace: Trace,
    machine: Machine,
    test: ast.expr,
    body: Sequence[ast.stmt],
    scope: Scope,
    loop: ast.While | None = None,
) -> None:
    """Record `counter < bound` of a while loop, or of a condition that leaves the loop."""
    kind = "stop" if loop is None else "while"
    if kind == "stop" and not (leaves_loop(body) and any(f.loops for f in machine.frames)):
        return
    if kind == "stop" and not machine.frames[-1].loops and _gives(body[-1]):
        return  # a function called in a loop has its result, and the loop goes on
    for compare in nodes([test], ast.Compare):
        if len(compare.ops) != 1:
            continue
        left, right = compare.left, compare.comparators[0]
        sides = _counter_and_bound(type(compare.ops[0]), left, right, kind)
        if sides is None:
            continue
        counter_node, bound_node = sides
        if isinstance(bound_node, ast.BinOp) and ast.unparse(bound_node).endswith(" + 1"):
            # `epoch < epochs + 1` counts from one
            bound_node = bound_node.left
        with machine.uncertain():
            bound = machine.evaluate(bound_node, scope)
        if bound.number is not None or passes.of(bound):
            frame = machine.frames[-1]
            trace.loops.append(
                LoopEvent(
                    kind,
                    ast.unparse(counter_node)[:80],
                    bound,
                    ast.unparse(bound_node)[:200],
                    Site(scope.module.file, test.lineno),
                    machine.certain,
                    sum(f.loops for f in machine.frames),
                    frame.function,
                    trains(loop.body) if loop is not None else True,
                    required=loop is not None and compare in _required(test),
                )
            )


def _required(test: ast.expr) -> list[ast.expr]:
    """The parts of a condition that each have to hold."""
    match test:
        case ast.BoolOp(op=ast.And(), values=values):
            return values
    return [test]


_END = re.compile(
    r"(^|_)(done|finish(ed)?|stop(ped)?|end(ed)?|complete[d]?|over|terminated?)(_training)?$"
)


def note_end(trace: Trace, machine: Machine, node: ast.Assign, scope: Scope) -> None:
    """Record `done = count >= total` of a loop that a later test of the name leaves."""
    if _END.search(variable(node.targets[0]) or ""):
        note_bound(trace, machine, node.value, [ast.Break()], scope)


def _gives(last: ast.stmt) -> bool:
    """Whether this returns a value, rather than that something is over."""
    value = last.value if isinstance(last, ast.Return) else None
    return value is not None and type(constant(value)) not in (bool, NoneType)


def leaves_loop(body: Sequence[ast.stmt]) -> bool:
    match body[-1] if body else None:
        case ast.Break() | ast.Return() | ast.Assign(value=ast.Constant(value=bool())):
            return True
        case ast.Expr(value=ast.Call(func=func)):
            return ast.unparse(func) in ("sys.exit", "exit", "quit")
        case _:
            return False
