"""HyperPyYAML references to plain values: `!ref <a>`, `!ref <a[b]>/x`, `!ref <n> * 2`."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable

from schedmate.agent.configs.trees import ensure_bounded
from schedmate.agent.syntax import parse_expression
from schedmate.agent.values import Unknown, Value

REF = "!ref"
_REFERENCE = re.compile(r"<([^<>]*)>")
_ARITHMETIC = re.compile(r"[\d\s+\-*/%().eE_]{1,200}")
_MAX_CHAIN = 50
_MAX_TEXT = 10_000
_OPERATORS: dict[type[ast.AST], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}


def resolve_refs(root: Value) -> Value:
    """`root`, changed in place: each `!ref` to something plain is that value.

    A whole `<a>` keeps the origin of `a`; text and arithmetic keep the place they stand at.
    References to objects (`<model.weight>`), to nothing, or in a circle stay unknown. Raises
    ConfigError when the references expand too far.
    """
    seen: set[int] = set()
    pending = [root]
    while pending:
        value = pending.pop()
        if id(value) in seen or not isinstance(value.data, dict | list | tuple):
            continue
        seen.add(id(value))
        if isinstance(value.data, dict):
            value.data = {key: _follow(root, item, 0) for key, item in value.data.items()}
            pending.extend(value.data.values())
        else:
            value.data = type(value.data)(_follow(root, item, 0) for item in value.data)
            pending.extend(value.data)
    name = root.origin.file if root.origin else None
    return ensure_bounded(root, f"{name}: with its references, the file")


def _follow(root: Value, value: Value, chain: int) -> Value:
    """What `value` refers to; text that a reference leads to may hold references itself."""
    if isinstance(value.data, Unknown) and (value.data.text or "").startswith(REF + " "):
        text = (value.data.text or "").removeprefix(REF + " ").strip()
    elif chain and isinstance(value.data, str) and _REFERENCE.search(value.data):
        text = value.data
    else:
        return value
    if chain >= _MAX_CHAIN:
        return value
    if not _REFERENCE.search(text):
        return Value(text, value.origin)
    whole = _REFERENCE.fullmatch(text)
    if whole:
        referenced = _lookup(root, whole[1])
        return value if referenced is None else _follow(root, referenced, chain + 1)
    parts: list[str] = []
    at = 0
    for match in _REFERENCE.finditer(text):
        referenced = _lookup(root, match[1])
        target = _follow(root, referenced, chain + 1) if referenced is not None else None
        if target is None or not isinstance(target.data, bool | int | float | str | None):
            return value
        parts += [text[at : match.start()], str(target.data)]
        at = match.end()
    filled = "".join([*parts, text[at:]])
    if len(filled) > _MAX_TEXT:
        return value
    return Value(_arithmetic(filled), value.origin)


def _lookup(root: Value, reference: str) -> Value | None:
    value = root
    for part in reference.split("["):
        key = part.strip("]")
        if not isinstance(value.data, dict) or key not in value.data:
            return None
        value = value.data[key]
    return value


def _arithmetic(text: str) -> int | float | str:
    """The number that arithmetic on literals gives; any other text is itself."""
    if not _ARITHMETIC.fullmatch(text):
        return text
    try:
        return _evaluate(parse_expression(text))
    except (SyntaxError, ValueError, ArithmeticError, RecursionError, MemoryError, TypeError):
        return text


def _evaluate(node: ast.AST) -> int | float:
    match node:
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_evaluate(operand)
        case ast.BinOp(left=left, op=op, right=right):
            a, b = _evaluate(left), _evaluate(right)
            if isinstance(op, ast.Pow) and (abs(a) > 1e9 or abs(b) > 64):
                raise ValueError("power too large")
            result = _OPERATORS[type(op)](a, b)
            if isinstance(result, int | float):
                return result
    raise ValueError("not arithmetic on numbers")
