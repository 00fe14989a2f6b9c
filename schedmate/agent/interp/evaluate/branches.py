"""Branches: the alternative that is taken, or all of them joined where that cannot be decided."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from schedmate.agent.interp.evaluate.expressions import evaluate
from schedmate.agent.interp.flow import Flow, Raised
from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.objects import Scope
from schedmate.agent.interp.values.base import truth
from schedmate.agent.values import Value


def if_(machine: Machine, node: ast.If, scope: Scope) -> Flow | None:
    decided = truth(evaluate(machine, node.test, scope))
    machine.observer.branches(machine, node, decided, scope)
    if decided is not None:
        return machine.follow(node.body if decided else node.orelse, scope)
    return branch(machine, [node.body, node.orelse], scope)


def branch(machine: Machine, bodies: Sequence[Sequence[ast.stmt]], scope: Scope) -> Flow | None:
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
    return branch(machine, [*(case.body for case in node.cases), []], scope)


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
