"""What an assignment changes: names, attributes, items."""

from __future__ import annotations

import ast

from schedmate.agent.interp.evaluate.expressions import slice_ends
from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.objects import Scope
from schedmate.agent.interp.values.base import iterate
from schedmate.agent.sizes import MAX_DATA
from schedmate.agent.values import Value, unknown


def assign(machine: Machine, target: ast.expr, value: Value, scope: Scope) -> None:
    """Bind `value` to an assignment target."""
    match target:
        case ast.Name():
            machine.bind(target.id, value, scope)
        case ast.Tuple() | ast.List():
            _unpack(machine, target.elts, value, scope)
        case ast.Attribute():
            machine.setattr(machine.evaluate(target.value, scope), target.attr, value)
        case ast.Subscript(slice=ast.Slice() as part):
            base = machine.evaluate(target.value, scope)
            _put_slice(machine, base, part, iterate(value), scope)
        case ast.Subscript():
            base = machine.evaluate(target.value, scope)
            machine.setitem(base, machine.evaluate(target.slice, scope), value)
        case ast.Starred():
            machine.assign(target.value, value, scope)


def _put_slice(
    machine: Machine, base: Value, node: ast.Slice, items: list[Value] | None, scope: Scope
) -> None:
    """`items[1:3] = other` of a list, between known places."""
    ends = slice_ends(machine, node, scope)
    held = base.elements
    if items is None or held is None or ends is None or node.step is not None:
        return
    if len(held) + len(items) <= MAX_DATA:
        machine.charge(len(held))
        held[ends] = items


def _unpack(machine: Machine, targets: list[ast.expr], value: Value, scope: Scope) -> None:
    items = iterate(value)
    if items is None:
        items = [machine.element(value) for _ in targets]
    starred = next((i for i, t in enumerate(targets) if isinstance(t, ast.Starred)), None)
    if starred is not None:
        after = len(targets) - starred - 1
        end = max(starred, len(items) - after)
        items = [*items[:starred], Value(items[starred:end]), *items[end:]]
    for index, target in enumerate(targets):
        machine.assign(target, items[index] if index < len(items) else unknown(), scope)


def bind(machine: Machine, name: str, value: Value, scope: Scope) -> None:
    if name in scope.globals_:
        scope.module.scope.names[name] = value
        return
    if name in scope.nonlocals:
        outer = scope.parent
        while outer is not None:
            if name in outer.names:
                outer.names[name] = value
                return
            outer = outer.parent
    scope.names[name] = value
