"""Resolvers whose body is a plain choice among what they are given.

`OmegaConf.register_new_resolver("default", lambda value, other: other if value == "" else value)`:
such a body is read as the rule that it is. Whatever else a body does, it is not followed, and what
it would give stays unresolved.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from schedmate.agent.values import Data, Value

MAX_SIZE = 40
"""Pieces of syntax of the largest body that is still plain."""

_PLAIN = (
    ast.Name, ast.Constant, ast.IfExp, ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not,
    ast.Compare, ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn, ast.Gt, ast.GtE, ast.Lt,
    ast.LtE, ast.Load,
)  # fmt: skip
_CASES = ("lower", "upper", "strip")
_COMPARED: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: lambda a, b: a == b,
    ast.NotEq: lambda a, b: a != b,
    ast.Is: lambda a, b: a is b,
    ast.IsNot: lambda a, b: a is not b,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
    ast.Gt: lambda a, b: a > b,
    ast.GtE: lambda a, b: a >= b,
    ast.Lt: lambda a, b: a < b,
    ast.LtE: lambda a, b: a <= b,
}


@dataclass(frozen=True, slots=True)
class Choice:
    """A choice among arguments, by their names and what decides."""

    names: tuple[str, ...]
    body: ast.expr

    def of(self, values: list[Value]) -> Value | None:
        """What is chosen of `values`; None when they do not fit."""
        if len(values) != len(self.names):
            return None
        try:
            return _chosen(self.body, dict(zip(self.names, values, strict=True)))
        except (TypeError, KeyError):
            return None


def plain_choice(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> Choice | None:
    """The choice that a function makes, if it does nothing else."""
    given = node.args
    if given.vararg or given.kwarg or given.kwonlyargs or given.defaults:
        return None
    body: ast.AST | None = None
    if isinstance(node, ast.Lambda):
        body = node.body
    elif isinstance(node, ast.FunctionDef):
        last = node.body[-1]
        documented = len(node.body) == 2 and isinstance(node.body[0], ast.Expr)
        if isinstance(last, ast.Return) and (documented or len(node.body) == 1):
            body = last.value
    if not isinstance(body, ast.expr):
        return None
    names = tuple(one.arg for one in (*given.posonlyargs, *given.args))
    pieces = list(ast.walk(body))
    fits = len(pieces) <= MAX_SIZE and all(_is_plain(piece, names) for piece in pieces)
    return Choice(names, body) if fits else None


def _is_plain(piece: ast.AST, names: tuple[str, ...]) -> bool:
    if isinstance(piece, ast.Name):
        return piece.id in names
    if isinstance(piece, ast.Call):
        return isinstance(piece.func, ast.Attribute) and not piece.args and not piece.keywords
    if isinstance(piece, ast.Attribute):
        return piece.attr in _CASES
    return isinstance(piece, _PLAIN)


def _chosen(node: ast.expr, held: dict[str, Value]) -> Value:
    if isinstance(node, ast.Name):
        return held[node.id]
    if isinstance(node, ast.Constant):
        return Value(cast("Data", node.value))
    if isinstance(node, ast.IfExp):
        return _chosen(node.body if _true(node.test, held) else node.orelse, held)
    if isinstance(node, ast.BoolOp):
        stops = isinstance(node.op, ast.Or)
        for part in node.values[:-1]:
            value = _chosen(part, held)
            if bool(value.data) is stops:
                return value
        return _chosen(node.values[-1], held)
    if isinstance(node, ast.UnaryOp):
        return Value(not _true(node.operand, held))
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        left, right = _chosen(node.left, held), _chosen(node.comparators[0], held)
        return Value(_COMPARED[type(node.ops[0])](left.data, right.data), right.origin)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        value = _chosen(node.func.value, held)
        if isinstance(value.data, str):
            return Value(getattr(value.data, node.func.attr)(), value.origin)
    raise TypeError


def _true(node: ast.expr, held: dict[str, Value]) -> bool:
    return bool(_chosen(node, held).data)
