"""Random texts that match a regular expression."""

from __future__ import annotations

import random
import string
from re import _constants as kinds  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any

ANY = string.ascii_letters + string.digits + "-_. "
WORDS = string.ascii_letters + string.digits
CATEGORIES = {
    kinds.CATEGORY_DIGIT: string.digits,
    kinds.CATEGORY_WORD: WORDS + "_",
    kinds.CATEGORY_SPACE: " ",
    kinds.CATEGORY_NOT_SPACE: WORDS,
    kinds.CATEGORY_NOT_DIGIT: string.ascii_letters,
    kinds.CATEGORY_NOT_WORD: " -",
}
MOST_MORE = 12
"""Repetitions beyond the least that are made where an expression allows any number."""


def sample(pattern: str, drawn: random.Random) -> str:
    """A text that matches, where the expression has no look-around; else perhaps none."""
    return _text(_parser.parse(pattern), drawn, {})


def _text(tree: Any, drawn: random.Random, groups: dict[int, str]) -> str:
    return "".join(_one(kind, value, drawn, groups) for kind, value in tree)


def _one(kind: Any, value: Any, drawn: random.Random, groups: dict[int, str]) -> str:
    if kind is kinds.LITERAL:
        return chr(value)
    if kind is kinds.NOT_LITERAL:
        return drawn.choice([one for one in ANY if ord(one) != value])
    if kind is kinds.ANY:
        return drawn.choice(string.ascii_letters)
    if kind is kinds.IN:
        return drawn.choice(_members(value))
    if kind in (kinds.MAX_REPEAT, kinds.MIN_REPEAT, kinds.POSSESSIVE_REPEAT):
        least, most, part = value
        count = drawn.randint(least, min(int(most), least + MOST_MORE))
        return "".join(_text(part, drawn, groups) for _ in range(count))
    if kind is kinds.BRANCH:
        return _text(drawn.choice(value[1]), drawn, groups)
    if kind is kinds.SUBPATTERN:
        groups[value[0]] = _text(value[3], drawn, groups)
        return groups[value[0]]
    return ""  # anchors and look-around


def _members(items: Any) -> list[str]:
    negated, found = False, set[str]()
    for kind, value in items:
        if kind is kinds.NEGATE:
            negated = True
        elif kind is kinds.LITERAL:
            found.add(chr(value))
        elif kind is kinds.RANGE:
            found |= {chr(code) for code in range(value[0], min(value[1], 126) + 1)}
        elif kind is kinds.CATEGORY:
            found |= set(CATEGORIES[value])
    found = set(ANY) - found if negated else found
    return sorted(one for one in found if one.isalnum()) or sorted(found)
