"""Execution of statements."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

from schedmate.agent.interp.evaluate.branches import if_, match_
from schedmate.agent.interp.evaluate.definitions import define_class, define_function
from schedmate.agent.interp.evaluate.expressions import evaluate
from schedmate.agent.interp.evaluate.loops import for_, while_
from schedmate.agent.interp.evaluate.modules import import_, import_from
from schedmate.agent.interp.flow import ANY_ERROR, BREAK, CONTINUE, Flow, Raised, lineage
from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.objects import Scope, Site, as_instance
from schedmate.agent.interp.syntax import elements, variable
from schedmate.agent.interp.values.base import iterate, kind
from schedmate.agent.interp.values.operators import binary
from schedmate.agent.sizes import MAX_DATA
from schedmate.agent.values import Origin, Value


def execute(machine: Machine, body: Sequence[ast.stmt], scope: Scope) -> Flow | None:
    """Run statements in order; the flow that ended the block early, None when it fell through."""
    for node in body:
        machine.tick()
        handler = _EXECUTE.get(type(node))
        if handler is not None:
            try:
                flow = handler(machine, node, scope)
            except (AttributeError, TypeError, ValueError, LookupError) as error:
                # no single statement of a repository may end the analysis of its job
                machine.observer.partial()
                where = f"{scope.module.file}:{node.lineno}"
                machine.observer.warns(f"{where}: not followed ({type(error).__name__}: {error})")
                continue
            if flow is not None:
                return flow
    return None


def _expr(machine: Machine, node: ast.Expr, scope: Scope) -> None:
    evaluate(machine, node.value, scope)


def _assign(machine: Machine, node: ast.Assign, scope: Scope) -> None:
    value = evaluate(machine, node.value, scope)
    machine.observer.assigns(machine, node, value, scope)
    for target in node.targets:
        machine.assign(target, value, scope)


def _annassign(machine: Machine, node: ast.AnnAssign, scope: Scope) -> None:
    if node.value is not None:
        value = evaluate(machine, node.value, scope)
        machine.observer.names(node.target, value)
        machine.assign(node.target, value, scope)


def _augassign(machine: Machine, node: ast.AugAssign, scope: Scope) -> None:
    load = _as_load(node.target)
    left = evaluate(machine, load, scope)
    right = evaluate(machine, node.value, scope)
    op, items, mapping = type(node.op), left.elements, left.mapping
    if items is not None and op is ast.Add:
        added = iterate(right) or []
        if len(items) + len(added) <= MAX_DATA:
            machine.charge(len(added))
            items.extend(added)
        return
    if mapping is not None and op is ast.BitOr:
        over = machine.mapping(right) or {}
        machine.charge(len(over))
        mapping.update(over)
        return
    here = Origin("code", scope.module.file, node.lineno)
    machine.assign(node.target, machine.made(binary(op, left, right, here)), scope)


def _as_load(target: ast.Name | ast.Attribute | ast.Subscript) -> ast.expr:
    name = variable(target)
    return target if name is None else ast.copy_location(ast.Name(name, ast.Load()), target)


def _delete(machine: Machine, node: ast.Delete, scope: Scope) -> None:
    for target in node.targets:
        if isinstance(target, ast.Subscript):
            base = evaluate(machine, target.value, scope)
            if not isinstance(target.slice, ast.Slice):
                kind(base).delitem(machine, base, evaluate(machine, target.slice, scope))
        elif isinstance(target, ast.Attribute):
            mapping = machine.mapping(evaluate(machine, target.value, scope))
            if mapping is not None:
                mapping.pop(target.attr, None)


def _return(machine: Machine, node: ast.Return, scope: Scope) -> Flow:
    value = evaluate(machine, node.value, scope) if node.value is not None else Value(None)
    return Flow("return", value)


def _raise(machine: Machine, node: ast.Raise, scope: Scope) -> None:
    """Leave by an exception where the program may catch it or a condition is in doubt.

    A submitted job is taken to work, so a `raise` that would end it means that something before
    it could not be followed exactly, and the code goes on.
    """
    made = node.exc if isinstance(node.exc, ast.Call) else None
    target = made.func if made is not None else node.exc
    name = ast.unparse(target).rsplit(".", 1)[-1] if target is not None else "Exception"
    if name == "SystemExit" and made is not None:
        for argument in made.args:
            evaluate(machine, argument, scope)  # `raise SystemExit(main())`
    if name == "SystemExit" or not machine.certain or machine.catches(name):
        raise Raised(name)


def _try(machine: Machine, node: ast.Try, scope: Scope) -> Flow | None:
    caught = {name for handler in node.handlers for name in _handled(handler)}
    machine.trying.append((len(machine.frames), caught, len(node.body) <= 3))
    try:
        flow = execute(machine, node.body, scope)
    except Raised as error:
        machine.trying.pop()
        for handler in node.handlers:
            names = _handled(handler)
            if names & (lineage(error.name) | ANY_ERROR):
                flow = execute(machine, handler.body, scope)
                break
        else:
            execute(machine, node.finalbody, scope)
            raise
    else:
        machine.trying.pop()
        if flow is None:
            flow = execute(machine, node.orelse, scope)
    final = execute(machine, node.finalbody, scope)
    return final or flow


def _handled(handler: ast.ExceptHandler) -> set[str]:
    if handler.type is None:
        return {"BaseException"}
    return {ast.unparse(node).rsplit(".", 1)[-1] for node in elements(handler.type)}


def _with(machine: Machine, node: ast.With | ast.AsyncWith, scope: Scope) -> Flow | None:
    for item in node.items:
        value = evaluate(machine, item.context_expr, scope)
        owner = as_instance(value)
        enter = owner.cls.method("__enter__") if owner is not None else None
        if enter is not None:
            site = Site(scope.module.file, node.lineno)
            value = machine.call_function(enter, [value], {}, site)
        if item.optional_vars is not None:
            machine.assign(item.optional_vars, value, scope)
    return execute(machine, node.body, scope)


_EXECUTE: dict[type[ast.stmt], Callable[..., Flow | None]] = {
    ast.Expr: _expr,
    ast.Assign: _assign,
    ast.AnnAssign: _annassign,
    ast.AugAssign: _augassign,
    ast.Delete: _delete,
    ast.If: if_,
    ast.Match: match_,
    ast.For: for_,
    ast.AsyncFor: for_,
    ast.While: while_,
    ast.FunctionDef: define_function,
    ast.AsyncFunctionDef: define_function,
    ast.ClassDef: define_class,
    ast.Import: import_,
    ast.ImportFrom: import_from,
    ast.Return: _return,
    ast.Raise: _raise,
    ast.Try: _try,
    ast.TryStar: _try,
    ast.With: _with,
    ast.AsyncWith: _with,
    ast.Global: lambda machine, node, scope: scope.globals_.update(node.names),
    ast.Nonlocal: lambda machine, node, scope: scope.nonlocals.update(node.names),
    ast.Break: lambda *_: BREAK,
    ast.Continue: lambda *_: CONTINUE,
}
