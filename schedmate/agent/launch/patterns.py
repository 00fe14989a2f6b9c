"""Brace expansion and shell patterns, as text functions."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase, translate
from itertools import product

from schedmate.agent.regex import compiled

MAX_BRACES = 256
MAX_GLOB = 200
"""Longest pattern that is removed from a text's ends, which tries every length."""
MAX_REPLACED = 10_000_000
"""Length of a text times that of what replaces parts of it."""
_RANGE = re.compile(r"(-?\d{1,9}|[A-Za-z])\.\.(-?\d{1,9}|[A-Za-z])(?:\.\.(-?\d{1,9}))?")


def braces(text: str) -> list[str]:
    """`a{b,c}` -> `ab ac`, `{1..3}` -> `1 2 3`; text without braces is returned as it is.

    More than `MAX_BRACES` results or braces, or unbalanced ones, leave the text unexpanded.
    """
    if text.count("{") > MAX_BRACES:
        return [text]
    alternatives: list[list[str]] = []
    position, plain, size = 0, 0, 1
    while (start := text.find("{", position)) >= 0:
        end = _closing(text, start)
        choices = _choices(text[start + 1 : end]) if end >= 0 else []
        if not choices or text[start - 1 : start] == "$":
            position = start + 1
            continue
        alternatives += [[text[plain:start]], choices]
        size *= len(choices)
        if size > MAX_BRACES:
            return [text]
        position = plain = end + 1
    if not alternatives:
        return [text]
    alternatives.append([text[plain:]])
    return ["".join(choice) for choice in product(*alternatives)]


def _closing(text: str, start: int) -> int:
    depth = 0
    for position in range(start, len(text)):
        depth += (text[position] == "{") - (text[position] == "}")
        if depth == 0:
            return position
    return -1


def _choices(inner: str) -> list[str]:
    if match := _RANGE.fullmatch(inner):
        return _sequence(*match.groups())
    choices, depth, last = [], 0, 0
    for position, char in enumerate(inner):
        depth += (char == "{") - (char == "}")
        if char == "," and depth == 0:
            choices.append(inner[last:position])
            last = position + 1
    if not choices:
        return []
    choices.append(inner[last:])
    if any("{" in choice for choice in choices):
        # One more level is enough in practice; deeper nesting stays as text.
        return [piece for choice in choices for piece in _flat(choice)]
    return choices


def _flat(choice: str) -> list[str]:
    start = choice.find("{")
    end = _closing(choice, start) if start >= 0 else -1
    inner = choice[start + 1 : end]
    if start < 0 or end < 0 or "," not in inner or "{" in inner:
        return [choice]
    return [choice[:start] + piece + choice[end + 1 :] for piece in inner.split(",")]


def _sequence(first: str, last: str, step: str | None) -> list[str]:
    stride = abs(int(step)) if step else 1
    if first.lstrip("-").isdigit() != last.lstrip("-").isdigit() or stride == 0:
        return []
    letters = not first.lstrip("-").isdigit()
    low, high = (ord(first), ord(last)) if letters else (int(first), int(last))
    if abs(high - low) // stride >= MAX_BRACES:
        return []
    numbers = range(low, high + 1, stride) if low <= high else range(low, high - 1, -stride)
    if letters:
        return [chr(number) for number in numbers]
    padded = any(re.match(r"-?0\d", end) for end in (first, last))
    width = max(len(first), len(last)) if padded else 0
    return [str(number).zfill(width) for number in numbers]


def matches(pattern: str, text: str) -> bool:
    """Whether the whole text matches a shell pattern (`*`, `?`, `[...]`, `\\x`)."""
    return fnmatchcase(text, re.sub(r"\\(.)", _as_class, pattern, flags=re.DOTALL))


def _as_class(escaped: re.Match[str]) -> str:
    """An escaped character in the notation of fnmatch, which knows no backslash."""
    return f"[{escaped[1]}]" if escaped[1] in "*?[" else escaped[1]


def remove(text: str, operator: str, pattern: str) -> str | None:
    """`${text#pattern}`, `##`, `%`, `%%`; None for a pattern too long to try at every length."""
    if len(pattern) > MAX_GLOB:
        return None
    lengths = range(len(text) + 1)
    longest = len(operator) == 2
    if operator[0] == "#":
        for length in reversed(lengths) if longest else lengths:
            if matches(pattern, text[:length]):
                return text[length:]
    else:
        for length in lengths if longest else reversed(lengths):
            if matches(pattern, text[length:]):
                return text[:length]
    return text


def replace(text: str, operation: str) -> str | None:
    """`${text/pattern/new}` and `${text//pattern/new}`; None where it would be too long."""
    everywhere = operation.startswith("//")
    pattern, _, new = operation.lstrip("/").partition("/")
    anchor = pattern[:1] if pattern[:1] in ("#", "%") else ""
    pattern = re.sub(r"\\(.)", _as_class, pattern[len(anchor) :], flags=re.DOTALL)
    # the shell takes the longest match, and no engine but RE2 is to look for it
    regex = translate(pattern).removesuffix(r"\Z").removesuffix(r"\z").replace("(?>.*?", "(?:.*")
    found = compiled({"#": rf"\A{regex}", "%": f"{regex}$"}.get(anchor, regex))
    if found is None or len(text) * len(new) > MAX_REPLACED:
        return None
    return str(found.sub(lambda _: new, text, 0 if everywhere else 1))
