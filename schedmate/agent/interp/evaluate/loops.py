"""Loops: how often they go round, and once through what they do."""

from __future__ import annotations

import ast

from schedmate.agent.interp.evaluate.expressions import evaluate
from schedmate.agent.interp.flow import Flow
from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.objects import Scope, as_call, as_range
from schedmate.agent.interp.syntax import nodes, variable
from schedmate.agent.interp.values import enums
from schedmate.agent.interp.values.base import iterate, truth
from schedmate.agent.values import unknown

FULL_LOOP = 24
"""Loops over a range of at most this many passes are followed pass by pass, longer ones once."""
FULL_LIST = 300
"""The same for loops over known items, which look things up more often than they train."""


def for_(machine: Machine, node: ast.For | ast.AsyncFor, scope: Scope) -> Flow | None:
    machine.look()
    source = evaluate(machine, node.iter, scope)
    machine.observer.handed([source])
    around = as_call(source)
    if around is not None and around.args and as_range(around.args[0]) is not None:
        source = around.args[0]  # a progress bar over it
    counted = as_range(source)
    if counted is not None:
        machine.observer.counts(machine, node, counted, scope)
    source = enums.members(source)
    items = iterate(source)
    limit = FULL_LOOP if counted else FULL_LIST
    few = items is not None and len(items) <= limit
    if items is not None and few and not (counted and machine.observer.is_training(node)):
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
    machine.observer.repeats(machine, node, scope)
    if decided is False:
        return machine.follow(node.orelse, scope)
    if (
        decided
        and _over_items(machine, node.test, scope)
        and not machine.observer.is_training(node)
    ):
        return _item_by_item(machine, node, scope)
    return _once(machine, node, scope)


def _over_items(machine: Machine, test: ast.expr, scope: Scope) -> bool:
    """Whether a loop goes on as long as known items are left: `i < len(args)`, `queue`."""
    lengths = (c.args[0] for c in nodes([test], ast.Call) if variable(c.func) == "len" and c.args)
    held = next(lengths, test if variable(test) else None)
    value = machine.evaluate(held, scope) if held is not None else unknown()
    items = value.text if value.text is not None else value.sequence
    return items is not None and len(items) <= FULL_LIST


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
        gathered = evaluate(machine, added, scope).elements
        if gathered is not None:
            machine.gathered[id(gathered)] = gathered
    return flow if flow is not None and flow.kind == "return" else None


def _added_to(loop: ast.For | ast.AsyncFor | ast.While) -> list[ast.expr]:
    """What the loop's body appends to, as the program writes it: `items`, `self.items`."""
    found: dict[str, ast.expr] = {}
    for call in nodes(loop.body, ast.Call):
        match call.func:
            case ast.Attribute(
                ast.Name() | ast.Attribute(ast.Name()) as owner, "append" | "extend"
            ):
                found[ast.unparse(owner)] = owner
    return list(found.values())


def _counted_up(loop: ast.For | ast.AsyncFor | ast.While) -> set[str]:
    changed = nodes(loop.body, ast.AugAssign)
    return {name for node in changed if (name := variable(node.target)) is not None}
