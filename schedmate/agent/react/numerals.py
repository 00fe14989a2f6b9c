"""Numbers on a line: the quantity of each, and formulas over several of them."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from schedmate.data import load

MAX_VALUE = 1e18
_LETTERS = "abcdefgh"
_CARRIERS = frozenset({"default", "type", "int", "float", "str", "value", "const", "optional"})
"""Words between the name of an argument and its number."""
_OPERATIONS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}


def number(text: str) -> float | None:
    """The number that a token spells, `30_000` and `6.5e12` included, or None."""
    try:
        found = float(text.replace(",", "").replace("_", ""))
    except ValueError:
        return None
    return found if math.isfinite(found) else None


def stands_for(field: str, wanted: float, line: Sequence[str]) -> str | None:
    """The reason why no token of a line has this number for this field, or None if one does.

    The name before a number determines its quantity. An uninformative name is accepted; the name of
    another quantity is not.
    """
    places = [at for at, token in enumerate(line) if _is(token, wanted)]
    if not places:
        return f"the line does not hold the number {wanted:g}"
    own, other = _roles(field)
    reason = ""
    for at in places:
        before = [token for token in reversed(line[:at]) if number(token) is None]
        name = next((token for token in before if token.lower() not in _CARRIERS), "")
        role = None if own.search(name) else other.search(name)
        if role is None:
            return None
        reason = f"there the number is a {role[0].lower().strip('._-')}"
    return reason


def _is(token: str, wanted: float) -> bool:
    found = number(token)
    return found is not None and math.isclose(found, wanted)


@cache
def _roles(field: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Names of this field's quantity, and those of all others."""
    roles: Mapping[str, Any] = load("agent/react/roles.yaml")["roles"]
    own = roles.get(field.rpartition(".")[2], r"(?!)")
    others = [pattern for name, pattern in roles.items() if name != field.rpartition(".")[2]]
    return re.compile(own, re.IGNORECASE), re.compile("|".join(others), re.IGNORECASE)


def evaluate(formula: str, values: Sequence[float]) -> float | None:
    """The value of a formula over the letters `a`, `b`, ... and plain numbers below 10.

    Sums, differences, products and quotients only; None for anything else, and for a result that is
    not a number. Larger numbers have to be cited as terms.
    """
    try:
        tree = ast.parse(formula, mode="eval")
        found = _value(tree.body, dict(zip(_LETTERS, values, strict=False)))
    except (SyntaxError, ValueError, ZeroDivisionError, OverflowError, RecursionError, MemoryError):
        return None
    return found if math.isfinite(found) and 0 < found <= MAX_VALUE else None


def _value(node: ast.expr, letters: Mapping[str, float]) -> float:
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        left, right = _value(node.left, letters), _value(node.right, letters)
        return _OPERATIONS[type(node.op)](left, right)
    if isinstance(node, ast.Name) and node.id in letters:
        return letters[node.id]
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        if 0 < node.value < 10:
            return float(node.value)
    raise ValueError("no formula over the terms")
