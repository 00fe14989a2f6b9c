"""Integer arithmetic of the shell (`$((...))`, `((...))`, `let`) by a small parser of our own.

Grammar and precedence follow POSIX.1-2024, Shell Command Language 2.6.4. Assignment, increment and
the comma are understood where a command needs them; anything else is unknown (None).
"""

from __future__ import annotations

import re
from collections.abc import Callable

_TOKEN = re.compile(
    r"\s*+(0[xX][0-9a-fA-F]+|\d+|[A-Za-z_]\w*|\*\*|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%<>!~&|^?:()])"
)
_LEVELS: tuple[tuple[str, ...], ...] = (
    ("||",),
    ("&&",),
    ("|",),
    ("^",),
    ("&",),
    ("==", "!="),
    ("<=", ">=", "<", ">"),
    ("<<", ">>"),
    ("+", "-"),
    ("*", "/", "%"),
    ("**",),
)
_ASSIGN = re.compile(r"\s*+([A-Za-z_]\w*+)\s*+([-+*/%]?)=(?!=)(.*)", re.DOTALL | re.ASCII)
_STEP = re.compile(
    r"\s*+(?:(\+\+|--)\s*+([A-Za-z_]\w*+)|([A-Za-z_]\w*+)\s*+(\+\+|--))\s*+", re.ASCII
)
_MAX_TOKENS = 200
_MAX_NESTING = 30
_MAX_BITS = 64

Lookup = Callable[[str], int | None]
Assign = Callable[[str, int | None], None]


class _UnknownError(Exception):
    """The expression is not plain arithmetic over known integers."""


def evaluate(text: str, lookup: Lookup) -> int | None:
    """The value of an expression, or None where it is unknown or not plain arithmetic."""
    try:
        return _Evaluator(_tokens(text), lookup).value()
    except _UnknownError:
        return None


def execute(text: str, lookup: Lookup, assign: Assign) -> int | None:
    """The value of a comma list of expressions, with the effect of `=`, `+=`, `++` and `--`."""
    result: int | None = None
    for expression in text.split(","):
        if step := _STEP.fullmatch(expression):
            name = step[2] or step[3]
            before = lookup(name)
            change = 1 if "++" in (step[1], step[4]) else -1
            after = None if before is None else before + change
            assign(name, after)
            result = after if step[1] else before
        elif assignment := _ASSIGN.fullmatch(expression):
            name, operator, operand = assignment.groups()
            result = evaluate(f"{name} {operator} ({operand})" if operator else operand, lookup)
            assign(name, result)
        else:
            result = evaluate(expression, lookup)
    return result


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    position = 0
    text = text.strip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None or len(tokens) >= _MAX_TOKENS:
            raise _UnknownError
        tokens.append(match[1])
        position = match.end()
    return tokens


class _Evaluator:
    def __init__(self, tokens: list[str], lookup: Lookup) -> None:
        self.tokens = tokens
        self.lookup = lookup
        self.at = 0
        self.nesting = 0

    def value(self) -> int:
        result = self._ternary()
        if self.at != len(self.tokens):
            raise _UnknownError
        return result

    def _accept(self, *tokens: str) -> str | None:
        if self.at < len(self.tokens) and self.tokens[self.at] in tokens:
            self.at += 1
            return self.tokens[self.at - 1]
        return None

    def _ternary(self) -> int:
        self.nesting += 1
        if self.nesting > _MAX_NESTING:
            raise _UnknownError
        test = self._binary(0)
        if self._accept("?"):
            yes = self._ternary()
            if not self._accept(":"):
                raise _UnknownError
            no = self._ternary()
            test = yes if test else no
        self.nesting -= 1
        return test

    def _binary(self, level: int) -> int:
        if level == len(_LEVELS):
            return self._unary()
        left = self._binary(level + 1)
        while operator := self._accept(*_LEVELS[level]):
            # `**` alone binds to the right.
            right = self._binary(level if operator == "**" else level + 1)
            left = _apply(operator, left, right)
        return left

    def _unary(self) -> int:
        signs: list[str] = []
        while sign := self._accept("-", "+", "!", "~"):
            signs.append(sign)
        value = self._atom()
        for sign in reversed(signs):
            value = {"-": -value, "+": value, "!": int(not value), "~": ~value}[sign]
        return value

    def _atom(self) -> int:
        if self._accept("("):
            value = self._ternary()
            if not self._accept(")"):
                raise _UnknownError
            return value
        if self.at >= len(self.tokens):
            raise _UnknownError
        token = self.tokens[self.at]
        self.at += 1
        if token[0].isdigit():
            if len(token) > 20:
                raise _UnknownError
            octal = len(token) > 1 and token[0] == "0" and token.isdigit()
            try:
                return int(token, 8 if octal else 0)
            except ValueError:
                raise _UnknownError from None
        known = self.lookup(token) if token[0].isalpha() or token[0] == "_" else None
        if known is None:
            raise _UnknownError
        return known


def _apply(operator: str, left: int, right: int) -> int:
    if operator in ("/", "%"):
        if right == 0:
            raise _UnknownError
        quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        return quotient if operator == "/" else left - quotient * right
    if operator in ("**", "<<", ">>"):
        if not 0 <= right < _MAX_BITS or abs(left).bit_length() * max(right, 1) > _MAX_BITS * 64:
            raise _UnknownError
        result = left << right if operator == "<<" else left >> right
        result = int(left**right) if operator == "**" else result
    else:
        result = {
            "||": int(bool(left or right)),
            "&&": int(bool(left and right)),
            "|": left | right,
            "^": left ^ right,
            "&": left & right,
            "==": int(left == right),
            "!=": int(left != right),
            "<=": int(left <= right),
            ">=": int(left >= right),
            "<": int(left < right),
            ">": int(left > right),
            "+": left + right,
            "-": left - right,
            "*": left * right,
        }[operator]
    if result.bit_length() > _MAX_BITS:
        raise _UnknownError
    return result
