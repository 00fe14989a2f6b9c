"""Executes statements: assignments, branches, loops, `try` and `with`.

Of a branch the alternative that is taken is followed, or all of them are joined where that cannot
be decided. A loop goes round as often as is known, or once, standing for any number of times.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from schedmate.agent.bounds import MAX_DATA
from schedmate.agent.interp.expressions import (
    define_class,
    define_function,
    evaluate,
    import_from_statement,
    import_statement,
    slice_ends,
)
from schedmate.agent.interp.objects import (
    ANY_ERROR,
    BREAK,
    CONTINUE,
    Flow,
    Raised,
    Scope,
    Site,
    as_call,
    as_instance,
    as_range,
    lineage,
)
from schedmate.agent.interp.source import elements, nodes_of, variable_name
from schedmate.agent.interp.values import classes
from schedmate.agent.interp.values.base import binary_operation, iterate, kind, truth
from schedmate.agent.values import Origin, Value, unknown

if TYPE_CHECKING:
    from schedmate.agent.interp.machine import Machine


def if_(machine: Machine, node: ast.If, scope: Scope) -> Flow | None:
    decided = truth(evaluate(machine, node.test, scope))
    machine.observer.branches(machine, node, decided, scope)
    if decided is not None:
        return machine.follow(node.body if decided else node.orelse, scope)
    return follow_branches(machine, [node.body, node.orelse], scope)


def follow_branches(
    machine: Machine, bodies: Sequence[Sequence[ast.stmt]], scope: Scope
) -> Flow | None:
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
            with machine.uncertain():
                flow = machine.follow(body, scope)
        except Raised:
            left.append(None)
            continue
        if flow is None:
            outcomes.append(scope.names)
        else:
            left.append(flow)
            if flow.kind == "return" and flow.value is not None:
                machine.frames[-1].returned.append(flow.value)
    if outcomes:
        merged = outcomes[0]
        for other in outcomes[1:]:
            for name, value in other.items():
                if name not in merged:
                    merged[name] = value
                elif merged[name] is not value:
                    merged[name] = machine.join(merged[name], value)
        scope.names = merged
        return None
    scope.names = before
    flows = [flow for flow in left if flow is not None]
    if not flows:
        if machine.certain and not machine.catches("Exception"):
            return None
        raise Raised("Exception")
    return flows[0] if flows[0].kind != "return" else Flow("return", _joined_return(machine, flows))


def _joined_return(machine: Machine, flows: list[Flow]) -> Value:
    values = [flow.value for flow in flows if flow.value is not None]
    result = values[0] if values else Value(None)
    for value in values[1:]:
        result = machine.join(result, value)
    return result


def match_(machine: Machine, node: ast.Match, scope: Scope) -> Flow | None:
    subject = evaluate(machine, node.subject, scope)
    if subject.known:
        for case in node.cases:
            matched = _matches(machine, case.pattern, subject, scope)
            if matched is None:
                break
            if matched and case.guard is None:
                return machine.follow(case.body, scope)
        else:
            return None
    return follow_branches(machine, [*(case.body for case in node.cases), []], scope)


def _matches(machine: Machine, pattern: ast.pattern, subject: Value, scope: Scope) -> bool | None:
    match pattern:
        case ast.MatchValue():
            value = evaluate(machine, pattern.value, scope)
            return subject.plain() == value.plain() if value.known else None
        case ast.MatchSingleton():
            return subject.data is pattern.value
        case ast.MatchOr():
            found = [_matches(machine, option, subject, scope) for option in pattern.patterns]
            return True if True in found else None if None in found else False
        case ast.MatchAs(pattern=None):
            if pattern.name is not None:
                machine.bind(pattern.name, subject, scope)
            return True
        case _:
            return None


# Loops: how often they go round, and once through what they do.


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
    source = classes.enum_members(source)
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
    return _follow_once(machine, node, scope)


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
    return _follow_once(machine, node, scope)


def _over_items(machine: Machine, test: ast.expr, scope: Scope) -> bool:
    """Whether a loop goes on as long as known items are left: `i < len(args)`, `queue`."""
    lengths = (
        c.args[0] for c in nodes_of([test], ast.Call) if variable_name(c.func) == "len" and c.args
    )
    held = next(lengths, test if variable_name(test) else None)
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
    return _follow_once(machine, node, scope)


def _follow_once(
    machine: Machine, node: ast.For | ast.AsyncFor | ast.While, scope: Scope
) -> Flow | None:
    """Follow a loop body one time, standing for any number of times."""
    counted = machine.once(_counters, node)
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
    for added in machine.once(_appended_to, node):
        gathered = evaluate(machine, added, scope).elements
        if gathered is not None:
            machine.gathered[id(gathered)] = gathered
    return flow if flow is not None and flow.kind == "return" else None


def _appended_to(loop: ast.For | ast.AsyncFor | ast.While) -> list[ast.expr]:
    """What the loop's body appends to, as the program writes it: `items`, `self.items`."""
    targets: dict[str, ast.expr] = {}
    for call in nodes_of(loop.body, ast.Call):
        match call.func:
            case ast.Attribute(
                ast.Name() | ast.Attribute(ast.Name()) as owner, "append" | "extend"
            ):
                targets[ast.unparse(owner)] = owner
    return list(targets.values())


def _counters(loop: ast.For | ast.AsyncFor | ast.While) -> set[str]:
    changed = nodes_of(loop.body, ast.AugAssign)
    return {name for node in changed if (name := variable_name(node.target)) is not None}


# Execution of statements.


def execute_statements(machine: Machine, body: Sequence[ast.stmt], scope: Scope) -> Flow | None:
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
    name = variable_name(node.target)
    load = ast.copy_location(ast.Name(name, ast.Load()), node.target) if name else node.target
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
    machine.assign(node.target, machine.made(binary_operation(op, left, right, here)), scope)


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
        flow = execute_statements(machine, node.body, scope)
    except Raised as error:
        machine.trying.pop()
        for handler in node.handlers:
            names = _handled(handler)
            if names & (lineage(error.name) | ANY_ERROR):
                flow = execute_statements(machine, handler.body, scope)
                break
        else:
            execute_statements(machine, node.finalbody, scope)
            raise
    else:
        machine.trying.pop()
        if flow is None:
            flow = execute_statements(machine, node.orelse, scope)
    final = execute_statements(machine, node.finalbody, scope)
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
    return execute_statements(machine, node.body, scope)


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
    ast.Import: import_statement,
    ast.ImportFrom: import_from_statement,
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


# What an assignment changes: names, attributes, items.


def assign(machine: Machine, target: ast.expr, value: Value, scope: Scope) -> None:
    """Bind `value` to an assignment target: a name, attribute, item, or a tuple of targets."""
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
    target = base.elements
    if items is None or target is None or ends is None or node.step is not None:
        return
    if len(target) + len(items) <= MAX_DATA:
        machine.charge(len(target))
        target[ends] = items


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


def bind_name(machine: Machine, name: str, value: Value, scope: Scope) -> None:
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
