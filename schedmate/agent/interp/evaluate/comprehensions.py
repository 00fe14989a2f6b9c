"""Comprehensions, and what generators yield."""

from __future__ import annotations

import ast

from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.objects import Scope
from schedmate.agent.interp.values import enums
from schedmate.agent.interp.values.base import iterate, plain_key, truth
from schedmate.agent.values import Items, Origin, Unknown, Value, unknown


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
        items = iterate(enums.members(source))
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
