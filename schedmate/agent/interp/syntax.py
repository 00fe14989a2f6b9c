"""Questions about the syntax trees of programs that several parts of the interpreter ask."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import TypeVar

N = TypeVar("N", bound=ast.AST)


def nodes(trees: Sequence[ast.AST], kind: type[N]) -> Iterator[N]:
    """The nodes of one kind in some trees, breadth first in each."""
    return (node for tree in trees for node in ast.walk(tree) if isinstance(node, kind))


def elements(node: ast.expr) -> list[ast.expr]:
    """The items of a tuple as it is written, the expression itself where it is none."""
    return node.elts if isinstance(node, ast.Tuple) else [node]


def variable(node: ast.AST | None) -> str | None:
    """The name of a variable, None for other expressions."""
    return node.id if isinstance(node, ast.Name) else None


def last_name(node: ast.AST | None) -> str | None:
    """The name of a variable or attribute, `c` of `a.b.c`; None for other expressions."""
    return node.attr if isinstance(node, ast.Attribute) else variable(node)


def constant(node: ast.AST | None) -> object:
    """The value of a literal, `...` for other expressions."""
    return node.value if isinstance(node, ast.Constant) else ...
