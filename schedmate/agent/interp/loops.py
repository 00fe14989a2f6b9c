"""Loops: how often they go round, and once through what they do."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from schedmate.agent.interp import instances
from schedmate.agent.interp.expressions import evaluate
from schedmate.agent.interp.flow import Flow
from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.objects import Call, Class, RangeOf, Scope, Site
from schedmate.agent.interp.passes import Passes
from schedmate.agent.interp.trace import LoopEvent
from schedmate.agent.interp.training import steps_over_data, trains
from schedmate.agent.interp.values_ops import iterate, truth
from schedmate.agent.values import Value, unknown

FULL_LOOP = 24
"""Loops over a range of at most this many passes are followed pass by pass, longer ones once."""
FULL_LIST = 300
"""The same for loops over known items, which look things up more often than they train."""


def for_(machine: Machine, node: ast.For | ast.AsyncFor, scope: Scope) -> Flow | None:
    machine.look()
    source = evaluate(machine, node.iter, scope)
    machine.use(source)
    if isinstance(source.data, Call) and source.data.args:
        first = source.data.args[0]
        source = first if isinstance(first.data, RangeOf) else source  # a progress bar over it
    if isinstance(source.data, Class):
        source = instances.enum_members(source)
    counted = _counted(source)
    if counted is not None:
        counted = _counted_from_one(node, source, counted)
        _note_loop(machine, node, "for", _counter(node.target), counted, scope)
    items = iterate(source)
    limit = FULL_LOOP if counted is not None else FULL_LIST
    steps = "epoch" in _counter(node.target).lower() or trains(node.body, simulated=True)
    if items is not None and len(items) <= limit and not (counted and steps):
        for item in items:
            machine.assign(node.target, item, scope)
            flow = machine.follow(node.body, scope)
            if flow is not None and flow.kind != "continue":
                if flow.kind == "break":
                    return None
                return flow
        return machine.follow(node.orelse, scope)
    first = items[0] if items and not counted else machine.element(source)
    machine.assign(node.target, first if not counted else unknown(), scope)
    return _once(machine, node, scope)


def while_(machine: Machine, node: ast.While, scope: Scope) -> Flow | None:
    machine.look()
    decided = truth(evaluate(machine, node.test, scope))
    note_bound(machine, node.test, node.body, scope, kind="while", loop=node)
    if decided is False:
        return machine.follow(node.orelse, scope)
    if decided and _over_items(machine, node.test, scope) and not trains(node.body):
        return _item_by_item(machine, node, scope)
    return _once(machine, node, scope)


def _over_items(machine: Machine, test: ast.expr, scope: Scope) -> bool:
    """Whether a loop goes on as long as known items are left: `i < len(args)`, `queue`."""
    held = next(
        (
            call.args[0]
            for call in ast.walk(test)
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "len" and call.args
        ),
        test if isinstance(test, ast.Name) else None,
    )
    items = machine.evaluate(held, scope).data if held is not None else None
    return isinstance(items, list | tuple | str) and len(items) <= FULL_LIST


def _item_by_item(machine: Machine, node: ast.While, scope: Scope) -> Flow | None:
    """Follow a loop for as many passes as its test is known to hold."""
    for _ in range(FULL_LIST):
        decided = truth(evaluate(machine, node.test, scope))
        if decided is False:
            return machine.follow(node.orelse, scope)
        if decided is None:
            break
        flow = machine.follow(node.body, scope)
        if flow is not None and flow.kind != "continue":
            return None if flow.kind == "break" else flow
    return _once(machine, node, scope)


def _once(machine: Machine, node: ast.For | ast.AsyncFor | ast.While, scope: Scope) -> Flow | None:
    """Follow a loop body one time, standing for any number of times."""
    counted = machine.once(_counted_up, node)
    for name in counted:
        if name in scope.names:
            scope.names[name] = unknown(name)
    frame = machine.frames[-1]
    frame.loops += 1
    try:
        flow = machine.follow(node.body, scope)
    finally:
        frame.loops -= 1
    for name in counted:
        if name in scope.names:
            scope.names[name] = unknown(name)
    for added in machine.once(_added_to, node):
        gathered = evaluate(machine, added, scope).data
        if isinstance(gathered, list):
            machine.gathered[id(gathered)] = gathered
    return flow if flow is not None and flow.kind == "return" else None


def _added_to(loop: ast.For | ast.AsyncFor | ast.While) -> list[ast.Name | ast.Attribute]:
    """What the loop's body appends to, as the program writes it: `items`, `self.items`."""
    found: dict[str, ast.Name | ast.Attribute] = {}
    for statement in loop.body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                owner = node.func.value
                named = owner.value if isinstance(owner, ast.Attribute) else owner
                if node.func.attr in ("append", "extend") and isinstance(named, ast.Name):
                    assert isinstance(owner, ast.Name | ast.Attribute)
                    found[ast.unparse(owner)] = owner
    return list(found.values())


def _counted_up(loop: ast.For | ast.AsyncFor | ast.While) -> set[str]:
    return {
        node.target.id
        for statement in loop.body
        for node in ast.walk(statement)
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name)
    }


def _counted(source: Value) -> Value | None:
    """The number of passes of a loop over a range, as a value."""
    data = source.data
    if not isinstance(data, RangeOf):
        return None
    start, stop = data.start.data, data.stop.data
    if isinstance(start, int) and isinstance(stop, int | float) and data.step.data == 1:
        return Value(stop - start, data.stop.origin)
    return data.stop


def _counted_from_one(node: ast.For | ast.AsyncFor, source: Value, counted: Value) -> Value:
    """`range(start, epochs + 1)` with an unknown start counts from one.

    `range(last + 1, epochs)` does not: before the first epoch the last one is -1.
    """
    data = source.data
    if (
        isinstance(data, RangeOf)
        and not isinstance(data.start.data, int)
        and isinstance(counted.data, int)
        and _from_one(ast.unparse(_end(node.iter)))
    ):
        return Value(counted.data - 1, counted.origin)
    return counted


def _from_one(bound: str) -> bool:
    return bound.rstrip(")").endswith(" + 1") or bound.startswith("1 + ")


def _counter(target: ast.expr) -> str:
    if isinstance(target, ast.Name):
        return target.id
    if isinstance(target, ast.Tuple) and target.elts:
        return _counter(target.elts[0])
    if isinstance(target, ast.Attribute):
        return target.attr
    return ""


def _note_loop(
    machine: Machine,
    node: ast.For | ast.AsyncFor | ast.While,
    kind: str,
    counter: str,
    bound: Value,
    scope: Scope,
) -> None:
    frame = machine.frames[-1]
    text = ast.unparse(node.test if isinstance(node, ast.While) else _end(node.iter))
    machine.trace.loops.append(
        LoopEvent(
            kind,
            counter,
            bound,
            text[:200],
            Site(scope.module.file, node.lineno),
            machine.certain,
            sum(f.loops for f in machine.frames),
            frame.function,
            trains(node.body),
            steps_over_data(node.body),
        )
    )


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


def note_bound(
    machine: Machine,
    test: ast.expr,
    body: Sequence[ast.stmt],
    scope: Scope,
    kind: str = "stop",
    loop: ast.While | None = None,
) -> None:
    """Record `counter < bound` of a while loop, or of a condition that leaves the loop."""
    if kind == "stop" and not (leaves_loop(body) and any(f.loops for f in machine.frames)):
        return
    if kind == "stop" and not machine.frames[-1].loops and _gives(body[-1]):
        return  # a function called in a loop has its result, and the loop goes on
    for compare in ast.walk(test):
        if not isinstance(compare, ast.Compare) or len(compare.ops) != 1:
            continue
        left, right = compare.left, compare.comparators[0]
        op = compare.ops[0]
        if isinstance(op, ast.Gt | ast.GtE | ast.Eq) == (kind == "stop"):
            counter_node, bound_node = left, right
        elif isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE | ast.NotEq):
            counter_node, bound_node = (left, right) if kind != "stop" else (right, left)
            if kind != "stop" and isinstance(op, ast.Gt | ast.GtE):
                counter_node, bound_node = right, left
        else:
            continue
        if isinstance(bound_node, ast.BinOp) and ast.unparse(bound_node).endswith(" + 1"):
            # `epoch < epochs + 1` counts from one
            bound_node = bound_node.left
        with machine.uncertain():
            bound = evaluate(machine, bound_node, scope)
        number = isinstance(bound.data, int | float) and not isinstance(bound.data, bool)
        if number or isinstance(bound.data, Passes):
            frame = machine.frames[-1]
            machine.trace.loops.append(
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
                )
            )


_END = re.compile(
    r"(^|_)(done|finish(ed)?|stop(ped)?|end(ed)?|complete[d]?|over|terminated?)(_training)?$"
)


def note_end(machine: Machine, node: ast.Assign, scope: Scope) -> None:
    """Record `done = count >= total` of a loop that a later test of the name leaves."""
    target = node.targets[0]
    if isinstance(target, ast.Name) and _END.search(target.id):
        note_bound(machine, node.value, [ast.Break()], scope)


def _gives(last: ast.stmt) -> bool:
    """Whether this returns a value, rather than that something is over."""
    given = last.value if isinstance(last, ast.Return) else None
    told = isinstance(given, ast.Constant) and (given.value is None or type(given.value) is bool)
    return given is not None and not told


def leaves_loop(body: Sequence[ast.stmt]) -> bool:
    last = body[-1] if body else None
    if isinstance(last, ast.Break | ast.Return):
        return True
    if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call):
        return ast.unparse(last.value.func) in ("sys.exit", "exit", "quit")
    if isinstance(last, ast.Assign) and isinstance(last.value, ast.Constant):
        return isinstance(last.value.value, bool)
    return False
