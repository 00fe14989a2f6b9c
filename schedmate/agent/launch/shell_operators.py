"""Computes the shell's tests, patterns and integer arithmetic on plain text.

`test`, `[ ... ]` and `[[ ... ]]` are decided where that is possible without running anything,
braces and patterns are text functions, and arithmetic (`$((...))`, `((...))`, `let`) has a small
parser of its own.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase, translate

from schedmate.agent.bounds import linear_pattern, linear_pattern_for

Decision = bool | None
"""None: cannot be decided."""

_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    f"-{name}": getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")
}
_TEST_JOINTS = ("&&", "||", ")")
_STRING_OPERATORS = ("=", "==", "!=", "=~", "<", ">")
_FILE_OPERATORS = frozenset(["-e", "-f", "-d", "-s", "-r", "-x", "-w", "-L", "-h", "-a"])
MAX_REGEX_TEXT = 1_000
"""Longest text that a regular expression of the script is applied to."""
_SIMPLE_REGEX = re.compile(r"\^?(?:[\w\-/=:, ]|\[[\w\- ]+\]|\\[.d]|[.+*?])*\$?", re.ASCII)


@dataclass(slots=True)
class TestOperand:
    """One operand: its text (None: unknown) and, as a right-hand side, its pattern."""

    text: str | None
    pattern: str | None


def decide(
    terms: Sequence[TestOperand],
    exists: Callable[[str, str], Decision],
    is_set: Callable[[str], Decision],
) -> Decision:
    """The decision of a test expression; `exists(operator, path)` answers file tests."""
    return _Test(terms, exists, is_set).expression()


def negate(decision: Decision) -> Decision:
    """The opposite of a decision; None (not decided) stays None."""
    return None if decision is None else not decision


def both(left: Decision, right: Decision) -> Decision:
    """Kleene conjunction."""
    if left is False or right is False:
        return False
    return True if left and right else None


@dataclass
class _Test:
    terms: Sequence[TestOperand]
    exists: Callable[[str, str], Decision]
    is_set: Callable[[str], Decision]
    at: int = 0
    depth: int = 0

    def expression(self) -> Decision:
        self.depth += 1
        if self.depth > 20 or not self.terms:
            return None if self.terms else False
        result = self._conjunction()
        while self._accept("||", "-o"):
            result = negate(both(negate(result), negate(self._conjunction())))
        self.depth -= 1
        return result

    def _conjunction(self) -> Decision:
        result = self._negation()
        while self._accept("&&", "-a"):
            result = both(result, self._negation())
        return result

    def _negation(self) -> Decision:
        flips = 0
        while len(self.terms) - self.at > 1 and self._accept("!"):
            flips += 1
        result = self._primary()
        return negate(result) if flips % 2 else result

    def _peek(self, ahead: int = 0) -> str | None:
        position = self.at + ahead
        return self.terms[position].text if position < len(self.terms) else None

    def _accept(self, *texts: str) -> bool:
        if self.at < len(self.terms) and self._peek() in texts:
            self.at += 1
            return True
        return False

    def _take(self) -> TestOperand:
        term = self.terms[self.at] if self.at < len(self.terms) else TestOperand(None, None)
        self.at += 1
        return term

    def _primary(self) -> Decision:
        if self._peek(1) in (*_STRING_OPERATORS, *_COMPARISONS):
            left, operator, right = self._take(), self._take().text or "", self._take()
            return self._binary(left.text, operator, right)
        if self._accept("("):
            result = self.expression()
            self._accept(")")
            return result
        first = self._take().text
        unary = first is not None and re.fullmatch(r"-[a-zA-Z]", first)
        if first and unary and self.at < len(self.terms) and self._peek() not in _TEST_JOINTS:
            return self._unary(first, self._take().text)
        return None if first is None else first != ""

    def _unary(self, operator: str, operand: str | None) -> Decision:
        if operand is None:
            return None
        if operator in ("-z", "-n"):
            return (operand == "") == (operator == "-z")
        if operator == "-v":
            return self.is_set(operand)
        return self.exists(operator, operand) if operator in _FILE_OPERATORS else None

    def _binary(self, left: str | None, operator: str, right: TestOperand) -> Decision:
        if left is None or right.text is None:
            return None
        if operator in _COMPARISONS:
            try:
                return _COMPARISONS[operator](int(left), int(right.text))
            except ValueError:
                return None
        if operator in ("<", ">"):
            return left < right.text if operator == "<" else left > right.text
        if operator == "=~":
            return _matches_regex(left, right.text)
        equal = matches_pattern(right.pattern if right.pattern is not None else right.text, left)
        return not equal if operator == "!=" else equal


def _matches_regex(text: str, regex: str) -> Decision:
    """`=~` for patterns that mean the same in the shell and here."""
    if len(text) > MAX_REGEX_TEXT or not _SIMPLE_REGEX.fullmatch(regex):
        return None
    pattern = linear_pattern_for(regex, text)
    return None if pattern is None else pattern.search(text) is not None


# Brace expansion and shell patterns, as text functions.


MAX_GROUPS = 32
MAX_RESULTS = 256
MAX_REMOVED_PATTERN = 200
"""Longest pattern that is removed from a text's ends, which tries every length."""
MAX_REPLACED = 10_000_000
"""Length of a text times that of what replaces parts of it."""
_BRACE_RANGE = re.compile(r"(-?\d{1,9}|[A-Za-z])\.\.(-?\d{1,9}|[A-Za-z])(?:\.\.(-?\d{1,9}))?")


class _TooManyTextsError(Exception):
    """More texts than one word becomes."""


def expand_braces(text: str) -> list[str]:
    """`a{b,c}` -> `ab ac`, `{1..3}` -> `1 2 3`; text without braces is returned as it is.

    More than `MAX_GROUPS` braces or `MAX_RESULTS` results, or unbalanced ones, leave the text
    unexpanded.
    """
    try:
        return [text] if text.count("{") > MAX_GROUPS else _expand_braces(text)
    except _TooManyTextsError:
        return [text]


def _expand_braces(text: str) -> list[str]:
    for match in re.finditer(r"(?<!\$)\{", text):
        pieces = _brace_alternatives(text, match.end())
        if len(pieces) < 2:
            continue
        inner, rest = pieces[:-1], _expand_braces(pieces[-1])
        numbers = (
            _brace_sequence(*limits.groups())
            if (limits := _BRACE_RANGE.fullmatch(inner[0]))
            else []
        )
        if len(inner) == 1 and not numbers:
            continue
        choices = numbers or [choice for piece in inner for choice in _expand_braces(piece)]
        if len(choices) * len(rest) > MAX_RESULTS:
            raise _TooManyTextsError
        return [text[: match.start()] + choice + end for choice in choices for end in rest]
    return [text]


def _brace_alternatives(text: str, start: int) -> list[str]:
    """The parts of a group whose inside begins at `start`, and what follows it; else nothing."""
    parts: list[str] = []
    depth = 0
    for match in re.compile(r"[{},]").finditer(text, start):
        depth += {"{": 1, "}": -1, ",": 0}[match[0]]
        if depth < 0 or (depth == 0 and match[0] == ","):
            parts.append(text[start : match.start()])
            start = match.end()
        if depth < 0:
            return [*parts, text[start:]]
    return []


def _brace_sequence(first: str, last: str, step: str | None) -> list[str]:
    stride = abs(int(step)) if step else 1
    if first.lstrip("-").isdigit() != last.lstrip("-").isdigit() or stride == 0:
        return []
    letters = not first.lstrip("-").isdigit()
    low, high = (ord(first), ord(last)) if letters else (int(first), int(last))
    if abs(high - low) // stride >= MAX_RESULTS:
        return []
    numbers = range(low, high + 1, stride) if low <= high else range(low, high - 1, -stride)
    if letters:
        return [chr(number) for number in numbers]
    padded = any(re.match(r"-?0\d", end) for end in (first, last))
    width = max(len(first), len(last)) if padded else 0
    return [str(number).zfill(width) for number in numbers]


def matches_pattern(pattern: str, text: str) -> bool:
    """Whether the whole text matches a shell pattern (`*`, `?`, `[...]`, `\\x`)."""
    return fnmatchcase(text, re.sub(r"\\(.)", _as_class, pattern, flags=re.DOTALL))


def _as_class(escaped: re.Match[str]) -> str:
    """An escaped character in the notation of fnmatch, which knows no backslash."""
    return f"[{escaped[1]}]" if escaped[1] in "*?[" else escaped[1]


def remove_pattern(text: str, operator: str, pattern: str) -> str | None:
    """`${text#pattern}`, `##`, `%`, `%%`; None for a pattern too long to try at every length."""
    if len(pattern) > MAX_REMOVED_PATTERN:
        return None
    lengths = range(len(text) + 1)
    longest = len(operator) == 2
    if operator[0] == "#":
        for length in reversed(lengths) if longest else lengths:
            if matches_pattern(pattern, text[:length]):
                return text[length:]
    else:
        for length in lengths if longest else reversed(lengths):
            if matches_pattern(pattern, text[length:]):
                return text[:length]
    return text


def replace_pattern(text: str, operation: str) -> str | None:
    """`${text/pattern/new}` and `${text//pattern/new}`; None where it would be too long."""
    everywhere = operation.startswith("//")
    pattern, _, new = operation.lstrip("/").partition("/")
    anchor = pattern[:1] if pattern[:1] in ("#", "%") else ""
    pattern = re.sub(r"\\(.)", _as_class, pattern[len(anchor) :], flags=re.DOTALL)
    # the shell takes the longest match, and no engine but RE2 is to look for it
    regex = translate(pattern).removesuffix(r"\Z").removesuffix(r"\z").replace("(?>.*?", "(?:.*")
    compiled_pattern = linear_pattern({"#": rf"\A{regex}", "%": f"{regex}$"}.get(anchor, regex))
    if compiled_pattern is None or len(text) * len(new) > MAX_REPLACED:
        return None
    return str(compiled_pattern.sub(lambda _: new, text, 0 if everywhere else 1))


# Integer arithmetic of the shell (`$((...))`, `((...))`, `let`) by a small parser of our own.
#
# Grammar and precedence follow POSIX.1-2024, Shell Command Language 2.6.4. Assignment, increment
# and the comma are understood where a command needs them; anything else is unknown (None).


_ARITHMETIC_TOKEN = re.compile(
    r"\s*+(0[xX][0-9a-fA-F]+|\d+|[A-Za-z_]\w*|\*\*|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%<>!~&|^?:()])"
)
_LEVELS = [
    level.split()
    for level in ("||", "&&", "|", "^", "&", "== !=", "<= >= < >", "<< >>", "+ -", "* / %", "**")
]
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


def evaluate_arithmetic(text: str, lookup: Lookup) -> int | None:
    """The value of an expression, or None where it is unknown or not plain arithmetic."""
    try:
        return _Arithmetic(_arithmetic_tokens(text), lookup).value()
    except _UnknownError:
        return None


def execute_arithmetic(text: str, lookup: Lookup, assign: Assign) -> int | None:
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
            result = evaluate_arithmetic(
                f"{name} {operator} ({operand})" if operator else operand, lookup
            )
            assign(name, result)
        else:
            result = evaluate_arithmetic(expression, lookup)
    return result


def _arithmetic_tokens(text: str) -> list[str]:
    tokens: list[str] = []
    position = 0
    text = text.strip()
    while position < len(text):
        match = _ARITHMETIC_TOKEN.match(text, position)
        if match is None or len(tokens) >= _MAX_TOKENS:
            raise _UnknownError
        tokens.append(match[1])
        position = match.end()
    return tokens


@dataclass
class _Arithmetic:
    tokens: list[str]
    lookup: Lookup
    at: int = 0
    nesting: int = 0

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
            left = _apply_operator(operator, left, right)
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


_OPERATORS: dict[str, Callable[[int, int], int]] = {
    "||": lambda left, right: bool(left or right),
    "&&": lambda left, right: bool(left and right),
    "|": operator.or_,
    "^": operator.xor,
    "&": operator.and_,
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}


def _apply_operator(sign: str, left: int, right: int) -> int:
    if sign in ("/", "%"):
        if right == 0:
            raise _UnknownError
        quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        return quotient if sign == "/" else left - quotient * right
    if sign in ("**", "<<", ">>"):
        if not 0 <= right < _MAX_BITS or abs(left).bit_length() * max(right, 1) > _MAX_BITS * 64:
            raise _UnknownError
        result = left << right if sign == "<<" else left >> right
        result = int(left**right) if sign == "**" else result
    else:
        result = int(_OPERATORS[sign](left, right))
    if result.bit_length() > _MAX_BITS:
        raise _UnknownError
    return result
