"""Definitions of functions and classes."""

from __future__ import annotations

import ast
from typing import cast

from schedmate.agent.interp.evaluate.expressions import defaults, evaluate
from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.objects import (
    Bound,
    Class,
    Function,
    Scope,
    Site,
    Symbol,
    as_class,
    as_function,
    as_instance,
    is_own,
)
from schedmate.agent.interp.syntax import variable
from schedmate.agent.interp.values.foreign import symbol
from schedmate.agent.values import Origin, Value

_ACCESSORS = ("setter", "deleter", "getter")


def define_function(
    machine: Machine, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope
) -> None:
    accessor = next(
        (d for d in node.decorator_list if isinstance(d, ast.Attribute) and d.attr in _ACCESSORS),
        None,
    )
    if accessor is not None:
        getter = as_function(scope.names.get(node.name))
        if accessor.attr == "setter" and getter is not None:
            getter.setter = Function(node.name, node, scope, {})
        return
    function = Function(node.name, node, scope, defaults(machine, node.args, scope))
    value = Value(function, Origin("code", scope.module.file, node.lineno))
    for decorator_node in reversed(node.decorator_list):
        decorator = evaluate(machine, decorator_node, scope)
        function.decorators.append(decorator)
        value = _decorated(machine, decorator, function, value, scope, node.lineno)
    scope.names[node.name] = value
    if function.decorators:
        machine.plugins.defined(machine, function)


def _decorated(
    machine: Machine, decorator: Value, function: Function, value: Value, scope: Scope, line: int
) -> Value:
    match decorator.data:
        case Symbol(path="classmethod" | "staticmethod" | "property" as path):
            function.kind = path
            return value
        case Symbol(path=path) if path.endswith("cached_property"):
            function.kind = "property"
            return value
        case _:
            return _wrapped(machine, decorator, value, Site(scope.module.file, line))


REGISTERING = 30_000
"""Evaluation steps that methods as decorators may take together: some register thousands."""


def _wrapped(machine: Machine, decorator: Value, value: Value, site: Site) -> Value:
    """What a decorator of the repository makes of a function or class."""
    method = isinstance(decorator.data, Bound)
    if not (method or is_own(decorator) or as_instance(decorator) is not None):
        return value
    spent: list[int] = machine.shared.setdefault("registering", [])
    if method and sum(spent) > REGISTERING:
        return value
    before = machine.steps
    result = machine.call(decorator, [value], {}, site)
    if method:
        spent.append(machine.steps - before)
    return result if is_own(result) else value


def define_class(machine: Machine, node: ast.ClassDef, scope: Scope) -> None:
    methods = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
    copied = machine.plugins.stands_for(methods | scope.module.scope.names.keys())
    if copied is not None:
        # what the library's own reader makes of a file is known, and sooner
        scope.names[node.name] = symbol(machine, copied)
        return
    bases = [evaluate(machine, base, scope) for base in node.bases]
    cls = Class(node.name, node, scope, bases)
    inner = Scope(scope.module, scope)
    inner.names["__qualname__"] = Value(node.name)
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign) and (name := variable(statement.target)):
            cls.annotations[name] = statement.annotation
            cls.lines[name] = statement.lineno
    machine.follow(node.body, inner)
    for value in inner.names.values():
        method = as_function(value)
        if method is not None and method.scope is inner:
            method.scope, method.cls = scope, cls
            if method.setter is not None:
                method.setter.scope, method.setter.cls = scope, cls
    cls.attrs = inner.names
    value = Value(cls, Origin("code", scope.module.file, node.lineno))
    scope.names[node.name] = value
    for decorator_node in reversed(node.decorator_list):
        decorator = evaluate(machine, decorator_node, scope)
        cls.decorators.append(decorator)
        if as_class(decorator) is None:
            value = _wrapped(machine, decorator, value, Site(scope.module.file, node.lineno))
    scope.names[node.name] = value
    _announce(machine, node, cls, scope)


def _announce(machine: Machine, node: ast.ClassDef, cls: Class, scope: Scope) -> None:
    """A base class's `__init_subclass__` hears of the new class."""
    for base in cls.mro()[1:]:
        hook = as_function(base.attrs.get("__init_subclass__"))
        if hook is not None:
            given = {k.arg: evaluate(machine, k.value, scope) for k in node.keywords if k.arg}
            site = Site(scope.module.file, node.lineno)
            machine.call_function(hook, [Value(cls)], given, site)
            return


_YIELDS = frozenset((ast.Yield, ast.YieldFrom))
_NO_YIELD = frozenset(
    (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.Name, ast.Constant, ast.alias)
)
"""Nodes with none inside, or with one that makes a generator of themselves."""


def is_generator(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> bool:
    """Whether calling the function gives a generator."""
    if isinstance(node, ast.Lambda):
        return False
    pending: list[object] = list(node.body)
    while pending:
        current = pending.pop()
        kind = type(current)
        if kind is list:
            pending += cast("list[object]", current)
        elif kind in _YIELDS:
            return True
        elif isinstance(current, ast.AST) and kind not in _NO_YIELD:
            pending += vars(current).values()
    return False
