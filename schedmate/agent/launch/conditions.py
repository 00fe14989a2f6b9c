"""`test`, `[ ... ]` and `[[ ... ]]`: decided where that is possible without running anything."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from schedmate.agent.launch import patterns
from schedmate.agent.regex import for_text

Decision = bool | None
"""None: cannot be decided."""

_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "-eq": lambda a, b: a == b,
    "-ne": lambda a, b: a != b,
    "-lt": lambda a, b: a < b,
    "-le": lambda a, b: a <= b,
    "-gt": lambda a, b: a > b,
    "-ge": lambda a, b: a >= b,
}
_JOINTS = ("&&", "||", ")")
_STRINGS = ("=", "==", "!=", "=~", "<", ">")
_FILES = frozenset(["-e", "-f", "-d", "-s", "-r", "-x", "-w", "-L", "-h", "-a"])
MAX_TEXT = 1_000
"""Longest text that a regular expression of the script is applied to."""
_SIMPLE_REGEX = re.compile(r"\^?(?:[\w\-/=:, ]|\[[\w\- ]+\]|\\[.d]|[.+*?])*\$?", re.ASCII)


@dataclass(slots=True)
class Term:
    """One operand: its text (None: unknown) and, as a right-hand side, its pattern."""

    text: str | None
    pattern: str | None


def evaluate(
    terms: Sequence[Term], exists: Callable[[str, str], Decision], is_set: Callable[[str], Decision]
) -> Decision:
    """The decision of a test expression; `exists(operator, path)` answers file tests."""
    return _Test(terms, exists, is_set).expression()


def negate(decision: Decision) -> Decision:
    """Kleene negation."""
    return None if decision is None else not decision


def both(left: Decision, right: Decision) -> Decision:
    """Kleene conjunction."""
    if left is False or right is False:
        return False
    return True if left and right else None


class _Test:
    def __init__(
        self,
        terms: Sequence[Term],
        exists: Callable[[str, str], Decision],
        is_set: Callable[[str], Decision],
    ) -> None:
        self.terms = terms
        self.exists = exists
        self.is_set = is_set
        self.at = 0
        self.depth = 0

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

    def _take(self) -> Term:
        term = self.terms[self.at] if self.at < len(self.terms) else Term(None, None)
        self.at += 1
        return term

    def _primary(self) -> Decision:
        if self._peek(1) in (*_STRINGS, *_COMPARE):
            left, operator, right = self._take(), self._take().text or "", self._take()
            return self._binary(left.text, operator, right)
        if self._accept("("):
            result = self.expression()
            self._accept(")")
            return result
        first = self._take().text
        unary = first is not None and re.fullmatch(r"-[a-zA-Z]", first)
        if first and unary and self.at < len(self.terms) and self._peek() not in _JOINTS:
            return self._unary(first, self._take().text)
        return None if first is None else first != ""

    def _unary(self, operator: str, operand: str | None) -> Decision:
        if operand is None:
            return None
        if operator in ("-z", "-n"):
            return (operand == "") == (operator == "-z")
        if operator == "-v":
            return self.is_set(operand)
        return self.exists(operator, operand) if operator in _FILES else None

    def _binary(self, left: str | None, operator: str, right: Term) -> Decision:
        if left is None or right.text is None:
            return None
        if operator in _COMPARE:
            try:
                return _COMPARE[operator](int(left), int(right.text))
            except ValueError:
                return None
        if operator in ("<", ">"):
            return left < right.text if operator == "<" else left > right.text
        if operator == "=~":
            return _regex(left, right.text)
        equal = patterns.matches(right.pattern if right.pattern is not None else right.text, left)
        return not equal if operator == "!=" else equal


def _regex(text: str, regex: str) -> Decision:
    """`=~` for patterns that mean the same in the shell and here."""
    if len(text) > MAX_TEXT or not _SIMPLE_REGEX.fullmatch(regex):
        return None
    pattern = for_text(regex, text)
    return None if pattern is None else pattern.search(text) is not None
