"""Execution of statements: assignments, branches, loops, definitions and imports."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from schedmate.agent.interp import classes
from schedmate.agent.interp.expressions import binary, evaluate
from schedmate.agent.interp.flow import BREAK, CONTINUE, Flow, Raised
from schedmate.agent.interp.loops import for_, leaves_loop, note_bound, while_
from schedmate.agent.interp.objects import Class, Function, Instance, Scope, Site, Symbol
from schedmate.agent.interp.values_ops import iterate, truth
from schedmate.agent.values import Origin, Value

if TYPE_CHECKING:
    from schedmate.agent.interp.state import State

_ACCESSORS = ("setter", "deleter", "getter")


def execute(state: State, body: Sequence[ast.stmt], scope: Scope) -> Flow | None:
    """Run statements in order; the flow that ended the block early, None when it fell through."""
    for node in body:
        state.tick()
        handler = _EXECUTE.get(type(node))
        if handler is not None:
            try:
                flow = handler(state, node, scope)
            except (AttributeError, TypeError, ValueError, LookupError) as error:
                # no single statement of a repository may end the analysis of its job
                state.trace.complete = False
                where = f"{scope.module.file}:{node.lineno}"
                state.trace.warn(f"{where}: not followed ({type(error).__name__}: {error})")
                continue
            if flow is not None:
                return flow
    return None


def _expr(state: State, node: ast.Expr, scope: Scope) -> None:
    evaluate(state, node.value, scope)


def _assign(state: State, node: ast.Assign, scope: Scope) -> None:
    value = evaluate(state, node.value, scope)
    _name_event(state, node.targets[0], value)
    if isinstance(node.value, ast.Call):
        _note_assigned(state, node.targets[0], value, scope)
    for target in node.targets:
        state.assign(target, value, scope)


def _note_assigned(state: State, target: ast.expr, value: Value, scope: Scope) -> None:
    """Remember the names that a call's result went into, unless it gave nothing."""
    if isinstance(target, ast.Tuple):
        items = value.data if isinstance(value.data, tuple | list) else ()
        for index, element in enumerate(target.elts):
            _note_assigned(state, element, items[index] if index < len(items) else value, scope)
    elif value.data is not None and not isinstance(value.data, bool | int | float | str):
        name = target.id if isinstance(target, ast.Name) else getattr(target, "attr", None)
        if isinstance(name, str):
            state.trace.assigned.setdefault(name, Site(scope.module.file, target.lineno))


def _name_event(state: State, target: ast.expr, value: Value) -> None:
    """Remember the variable that a recorded call's result first went into."""
    event = state.events.get(id(value.data)) if not value.known else None
    if event is not None and not event.target:
        if isinstance(target, ast.Name):
            event.target = target.id
        elif isinstance(target, ast.Attribute):
            event.target = target.attr


def _annassign(state: State, node: ast.AnnAssign, scope: Scope) -> None:
    if node.value is not None:
        value = evaluate(state, node.value, scope)
        _name_event(state, node.target, value)
        state.assign(node.target, value, scope)


def _augassign(state: State, node: ast.AugAssign, scope: Scope) -> None:
    load = _as_load(node.target)
    left = evaluate(state, load, scope)
    right = evaluate(state, node.value, scope)
    if isinstance(left.data, list) and isinstance(node.op, ast.Add):
        left.data.extend(iterate(right) or [])
        return
    if isinstance(left.data, dict) and isinstance(node.op, ast.BitOr):
        left.data.update(state.mapping(right) or {})
        return
    here = Origin("code", scope.module.file, node.lineno)
    state.assign(node.target, binary(type(node.op), left, right, here), scope)


def _as_load(target: ast.Name | ast.Attribute | ast.Subscript) -> ast.expr:
    if isinstance(target, ast.Name):
        return ast.copy_location(ast.Name(target.id, ast.Load()), target)
    return target


def _delete(state: State, node: ast.Delete, scope: Scope) -> None:
    for target in node.targets:
        if isinstance(target, ast.Subscript):
            mapping = state.mapping(evaluate(state, target.value, scope))
            key = (
                state.key(evaluate(state, target.slice, scope))
                if not isinstance(target.slice, ast.Slice)
                else None
            )
            if mapping is not None and key is not None:
                mapping.pop(key, None)
        elif isinstance(target, ast.Attribute):
            mapping = state.mapping(evaluate(state, target.value, scope))
            if mapping is not None:
                mapping.pop(target.attr, None)


# -- branches --------------------------------------------------------------


def _if(state: State, node: ast.If, scope: Scope) -> Flow | None:
    decided = truth(evaluate(state, node.test, scope))
    if decided is not None:
        if not decided or leaves_loop(node.body):
            note_bound(state, node.test, node.body, scope)
        return execute(state, node.body if decided else node.orelse, scope)
    note_bound(state, node.test, node.body, scope)
    return branch(state, [node.body, node.orelse], scope)


def branch(state: State, bodies: Sequence[Sequence[ast.stmt]], scope: Scope) -> Flow | None:
    """Run every alternative from the same start and join what they leave in the local names.

    An alternative that leaves (return, raise, break, continue) is taken to be the exception when
    another one goes on: its effects on names are dropped, its returned value is kept as a
    possibility.
    """
    before = dict(scope.names)
    outcomes: list[dict[str, Value]] = []
    left: list[Flow | None] = []
    for body in bodies:
        scope.names = dict(before)
        try:
            with state.uncertain():
                flow = execute(state, body, scope)
        except Raised:
            left.append(None)
            continue
        if flow is None:
            outcomes.append(scope.names)
        else:
            left.append(flow)
            if flow.kind == "return" and flow.value is not None:
                state.frames[-1].returned.append(flow.value)
    if outcomes:
        merged = outcomes[0]
        for other in outcomes[1:]:
            for name, value in other.items():
                if name not in merged:
                    merged[name] = value
                elif merged[name] is not value:
                    merged[name] = state.join(merged[name], value)
        scope.names = merged
        return None
    scope.names = before
    flows = [flow for flow in left if flow is not None]
    if not flows:
        if state.certain and not state.catches("Exception"):
            return None
        raise Raised("Exception")
    return flows[0] if flows[0].kind != "return" else Flow("return", _joined_return(state, flows))


def _joined_return(state: State, flows: list[Flow]) -> Value:
    values = [flow.value for flow in flows if flow.value is not None]
    result = values[0] if values else Value(None)
    for value in values[1:]:
        result = state.join(result, value)
    return result


def _match(state: State, node: ast.Match, scope: Scope) -> Flow | None:
    subject = evaluate(state, node.subject, scope)
    if subject.known:
        for case in node.cases:
            matched = _matches(state, case.pattern, subject, scope)
            if matched is None:
                break
            if matched and case.guard is None:
                return execute(state, case.body, scope)
        else:
            return None
    return branch(state, [*(case.body for case in node.cases), []], scope)


def _matches(state: State, pattern: ast.pattern, subject: Value, scope: Scope) -> bool | None:
    if isinstance(pattern, ast.MatchValue):
        value = evaluate(state, pattern.value, scope)
        return subject.plain() == value.plain() if value.known else None
    if isinstance(pattern, ast.MatchSingleton):
        return subject.data is pattern.value
    if isinstance(pattern, ast.MatchOr):
        found = [_matches(state, option, subject, scope) for option in pattern.patterns]
        return True if True in found else None if None in found else False
    if isinstance(pattern, ast.MatchAs) and pattern.pattern is None:
        if pattern.name is not None:
            state.bind(pattern.name, subject, scope)
        return True
    return None


# -- definitions -----------------------------------------------------------


def _function(state: State, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope) -> None:
    if any(isinstance(d, ast.Attribute) and d.attr in _ACCESSORS for d in node.decorator_list):
        return
    function = Function(node.name, node, scope, state.defaults(node.args, scope))
    value = Value(function, Origin("code", scope.module.file, node.lineno))
    for decorator_node in reversed(node.decorator_list):
        decorator = evaluate(state, decorator_node, scope)
        function.decorators.append(decorator)
        value = _decorated(state, decorator, function, value, scope, node.lineno)
    scope.names[node.name] = value
    if function.decorators:
        state.library.defined(state, function)


def _decorated(
    state: State, decorator: Value, function: Function, value: Value, scope: Scope, line: int
) -> Value:
    data = decorator.data
    if isinstance(data, Symbol) and data.path in ("classmethod", "staticmethod", "property"):
        function.kind = data.path
        return value
    if isinstance(data, Symbol) and data.path.endswith("cached_property"):
        function.kind = "property"
        return value
    if isinstance(data, Function | Class | Instance):
        result = state.call(decorator, [value], {}, Site(scope.module.file, line))
        return result if isinstance(result.data, Function | Class) else value
    return value


def define_class(state: State, node: ast.ClassDef, scope: Scope) -> None:
    methods = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
    copied = state.library.stands_for(methods | scope.module.scope.names.keys())
    if copied is not None:
        # what the library's own reader makes of a file is known, and sooner
        scope.names[node.name] = classes.symbol(state, copied)
        return
    bases = [evaluate(state, base, scope) for base in node.bases]
    cls = Class(node.name, node, scope, bases)
    inner = Scope(scope.module, scope)
    inner.names["__qualname__"] = Value(node.name)
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            cls.annotations[statement.target.id] = statement.annotation
            cls.lines[statement.target.id] = statement.lineno
    execute(state, node.body, inner)
    for value in inner.names.values():
        if isinstance(value.data, Function) and value.data.scope is inner:
            value.data.scope = scope
            value.data.cls = cls
    cls.attrs = inner.names
    value = Value(cls, Origin("code", scope.module.file, node.lineno))
    scope.names[node.name] = value
    for decorator_node in reversed(node.decorator_list):
        decorator = evaluate(state, decorator_node, scope)
        cls.decorators.append(decorator)
        if isinstance(decorator.data, Function | Instance):
            result = state.call(decorator, [value], {}, Site(scope.module.file, node.lineno))
            if isinstance(result.data, Function | Class):
                value = result
    scope.names[node.name] = value


# -- imports ---------------------------------------------------------------


def _import(state: State, node: ast.Import, scope: Scope) -> None:
    for alias in node.names:
        value = state.import_module(alias.name, scope.module)
        if alias.asname is None and "." in alias.name:
            value = state.import_module(alias.name.split(".")[0], scope.module)
        state.bind(alias.asname or alias.name.split(".")[0], value, scope)


def _import_from(state: State, node: ast.ImportFrom, scope: Scope) -> None:
    name = state.sources.absolute(node.module or "", node.level, scope.module)
    module = state.sources.find(name, scope.module, state.search_path())
    if module is None:
        if node.level == 0:
            state.trace.imports.add(name.split(".")[0])
        for alias in node.names:
            if alias.name == "*":
                continue
            child = state.sources.find(f"{name}.{alias.name}", scope.module, state.search_path())
            if child is not None:
                state.load(child)
                state.bind(alias.asname or alias.name, Value(child), scope)
                continue
            path = state.sources.canonical(f"{name}.{alias.name}")
            state.bind(alias.asname or alias.name, classes.symbol(state, path), scope)
        return
    for alias in node.names:
        if alias.name == "*":
            if not state.sources.defer(module):
                state.load(module)
            scope.module.scope.stars.insert(0, module)
            continue
        found = state.module_attr(module, alias.name)
        if found is None:
            # a package that loads its names lazily: known by path, as a third party's
            found = classes.symbol(state, state.sources.canonical(f"{name}.{alias.name}"))
        state.bind(alias.asname or alias.name, found, scope)


# -- the rest --------------------------------------------------------------


def _return(state: State, node: ast.Return, scope: Scope) -> Flow:
    value = evaluate(state, node.value, scope) if node.value is not None else Value(None)
    return Flow("return", value)


def _raise(state: State, node: ast.Raise, scope: Scope) -> None:
    """Leave by an exception where the program may catch it or a condition is in doubt.

    A submitted job is taken to work, so a `raise` that would end it means that something before
    it could not be followed exactly, and the code goes on.
    """
    name = "Exception"
    if node.exc is not None:
        target = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        name = ast.unparse(target).rsplit(".", 1)[-1]
    if name == "SystemExit" and isinstance(node.exc, ast.Call):
        for argument in node.exc.args:
            evaluate(state, argument, scope)  # `raise SystemExit(main())`
    if name == "SystemExit" or not state.certain or state.catches(name):
        raise Raised(name)


def _try(state: State, node: ast.Try, scope: Scope) -> Flow | None:
    caught = {name for handler in node.handlers for name in _handled(handler)}
    state.trying.append((len(state.frames), caught, len(node.body) <= 3))
    try:
        flow = execute(state, node.body, scope)
    except Raised as error:
        state.trying.pop()
        for handler in node.handlers:
            names = _handled(handler)
            if error.name in names or names & {"Exception", "BaseException"}:
                flow = execute(state, handler.body, scope)
                break
        else:
            execute(state, node.finalbody, scope)
            raise
    else:
        state.trying.pop()
        if flow is None:
            flow = execute(state, node.orelse, scope)
    final = execute(state, node.finalbody, scope)
    return final or flow


def _handled(handler: ast.ExceptHandler) -> set[str]:
    if handler.type is None:
        return {"BaseException"}
    nodes = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return {ast.unparse(node).rsplit(".", 1)[-1] for node in nodes}


def _with(state: State, node: ast.With | ast.AsyncWith, scope: Scope) -> Flow | None:
    for item in node.items:
        value = evaluate(state, item.context_expr, scope)
        if isinstance(value.data, Instance):
            enter = value.data.cls.lookup("__enter__")
            if enter is not None and isinstance(enter.data, Function):
                site = Site(scope.module.file, node.lineno)
                value = state.call_function(enter.data, [value], {}, site)
        if item.optional_vars is not None:
            state.assign(item.optional_vars, value, scope)
    return execute(state, node.body, scope)


def _global(state: State, node: ast.Global, scope: Scope) -> None:
    scope.globals_.update(node.names)


def _nonlocal(state: State, node: ast.Nonlocal, scope: Scope) -> None:
    scope.nonlocals.update(node.names)


def _break(state: State, node: ast.Break, scope: Scope) -> Flow:
    return BREAK


def _continue(state: State, node: ast.Continue, scope: Scope) -> Flow:
    return CONTINUE


def is_generator(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> bool:
    """Whether calling the function gives a generator."""
    if isinstance(node, ast.Lambda):
        return False
    pending: list[ast.AST] = list(node.body)
    while pending:
        current = pending.pop()
        if isinstance(current, ast.Yield | ast.YieldFrom):
            return True
        if not isinstance(current, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            pending.extend(ast.iter_child_nodes(current))
    return False


_EXECUTE: dict[type[ast.stmt], Callable[..., Flow | None]] = {
    ast.Expr: _expr,
    ast.Assign: _assign,
    ast.AnnAssign: _annassign,
    ast.AugAssign: _augassign,
    ast.Delete: _delete,
    ast.If: _if,
    ast.Match: _match,
    ast.For: for_,
    ast.AsyncFor: for_,
    ast.While: while_,
    ast.FunctionDef: _function,
    ast.AsyncFunctionDef: _function,
    ast.ClassDef: define_class,
    ast.Import: _import,
    ast.ImportFrom: _import_from,
    ast.Return: _return,
    ast.Raise: _raise,
    ast.Try: _try,
    ast.TryStar: _try,
    ast.With: _with,
    ast.AsyncWith: _with,
    ast.Global: _global,
    ast.Nonlocal: _nonlocal,
    ast.Break: _break,
    ast.Continue: _continue,
}
