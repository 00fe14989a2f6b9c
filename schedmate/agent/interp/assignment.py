"""What an assignment changes: names, attributes, items."""

from __future__ import annotations

import ast
from typing import Any

from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.nodes import converted
from schedmate.agent.interp.objects import (
    NOWHERE,
    AttrDict,
    Call,
    Class,
    Function,
    Instance,
    Module,
    Scope,
    Symbol,
)
from schedmate.agent.interp.passes import Passes
from schedmate.agent.interp.values_ops import iterate, plain_key
from schedmate.agent.sizes import MAX_DATA
from schedmate.agent.values import Unknown, Value, unknown


def assign(machine: Machine, target: ast.expr, value: Value, scope: Scope) -> None:
    """Bind `value` to an assignment target."""
    if isinstance(target, ast.Name):
        machine.bind(target.id, value, scope)
    elif isinstance(target, ast.Tuple | ast.List):
        _unpack(machine, target.elts, value, scope)
    elif isinstance(target, ast.Attribute):
        machine.setattr(machine.evaluate(target.value, scope), target.attr, value)
    elif isinstance(target, ast.Subscript):
        base = machine.evaluate(target.value, scope)
        if isinstance(target.slice, ast.Slice):
            _put_slice(machine, base, target.slice, iterate(value), scope)
        else:
            machine.setitem(base, machine.evaluate(target.slice, scope), value)
    elif isinstance(target, ast.Starred):
        machine.assign(target.value, value, scope)


def _put_slice(
    machine: Machine, base: Value, node: ast.Slice, items: list[Value] | None, scope: Scope
) -> None:
    """`items[1:3] = other` of a list, between known places."""
    parts = [
        machine.evaluate(part, scope).data if part is not None else None
        for part in (node.lower, node.upper)
    ]
    known = all(part is None or isinstance(part, int) for part in parts)
    fits = items is not None and isinstance(base.data, list)
    if fits and node.step is None and known and len(base.data) + len(items or ()) <= MAX_DATA:
        machine.charge(len(base.data))
        base.data[slice(*parts)] = items


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


def set_attribute(machine: Machine, base: Value, name: str, value: Value) -> None:
    data = base.data
    if isinstance(data, AttrDict):
        held = data.get(name)
        if held is not None and held.known and held.data is not None:
            # `args.epochs = ceil(args.steps / len(loader))` is the same length, put otherwise
            number = isinstance(held.data, int | float)
            same = isinstance(value.data, Unknown) and not _replaces_default(held, value)
            if same or (number and isinstance(value.data, Symbol | Call)):
                return
        if _overrides(machine, held, value):
            data[name] = converted(data, value)
    elif isinstance(data, Instance):
        found = data.cls.lookup(name)
        if found is not None and isinstance(found.data, Function) and found.data.setter:
            machine.call_function(found.data.setter, [base, value], {}, NOWHERE)
            return
        if name == "__dict__" and value.data is data and isinstance(_held(data), dict):
            data.attrs = _held(data)  # `self.__dict__ = self`
            return
        if data.items is not None and data.cls.lookup("__getattr__") is not None:
            mapping = data.items.data
            if isinstance(mapping, dict):
                mapping[name] = value
                return
        data.attrs[name] = value
    elif isinstance(data, Class | Call):
        data.attrs[name] = value
    elif isinstance(data, Symbol) and f"{data.path}.{name}" == "sys.argv":
        machine.argv = iterate(value) or machine.argv
    elif isinstance(data, Module):
        machine.load(data)
        data.scope.names[name] = value


def _replaces_default(held: Value, value: Value) -> bool:
    """Whether a default gives way to what was set: `args.steps = args.epochs * len(loader)`."""
    passes = value.data.epochs if isinstance(value.data, Passes) else None
    sources = [v.origin.source if v.origin is not None else "" for v in (held, passes) if v]
    return len(sources) == 2 and sources[0] == "default" and sources[1] not in ("default", "code")


def _held(data: Instance) -> Any:
    return data.items.data if data.items is not None else None


def set_item(machine: Machine, base: Value, index: Value, value: Value) -> None:
    data = base.data
    key = plain_key(index)
    if isinstance(data, Instance):
        setter = data.cls.lookup("__setitem__")
        if setter is not None and isinstance(setter.data, Function):
            machine.call_function(setter.data, [base, index, value], {}, NOWHERE)
            return
        if data.items is not None:
            data = data.items.data
    if isinstance(data, dict) and key is not None:
        if _overrides(machine, data.get(key), value):
            data[key] = converted(data, value)
    elif isinstance(data, list) and isinstance(key, int) and -len(data) <= key < len(data):
        data[key] = value
    elif isinstance(data, Symbol) and data.path == "os.environ" and isinstance(key, str):
        if machine.certain:
            machine.environ[key] = value
            if len(machine.frames) == 1:  # for the whole program, not for one of its processes
                machine.shared.setdefault("os.environ", {})[key] = value


def _overrides(machine: Machine, held: Value | None, value: Value) -> bool:
    """Whether an assignment replaces what is held: in doubt, a known value stays."""
    return machine.certain or held is None or held.data is None or not held.known
