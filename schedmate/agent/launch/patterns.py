"""Brace expansion and shell patterns, as text functions."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase, translate

from schedmate.agent.regex import compiled

MAX_GROUPS = 32
MAX_RESULTS = 256
MAX_GLOB = 200
"""Longest pattern that is removed from a text's ends, which tries every length."""
MAX_REPLACED = 10_000_000
"""Length of a text times that of what replaces parts of it."""
_RANGE = re.compile(r"(-?\d{1,9}|[A-Za-z])\.\.(-?\d{1,9}|[A-Za-z])(?:\.\.(-?\d{1,9}))?")


class _TooManyError(Exception):
    """More texts than one word becomes."""


def braces(text: str) -> list[str]:
    """`a{b,c}` -> `ab ac`, `{1..3}` -> `1 2 3`; text without braces is returned as it is.

    More than `MAX_GROUPS` braces or `MAX_RESULTS` results, or unbalanced ones, leave the text
    unexpanded.
    """
    try:
        return [text] if text.count("{") > MAX_GROUPS else _expanded(text)
    except _TooManyError:
        return [text]


def _expanded(text: str) -> list[str]:
    for match in re.finditer(r"(?<!\$)\{", text):
        pieces = _alternatives(text, match.end())
        if len(pieces) < 2:
            continue
        inner, rest = pieces[:-1], _expanded(pieces[-1])
        numbers = _sequence(*limits.groups()) if (limits := _RANGE.fullmatch(inner[0])) else []
        if len(inner) == 1 and not numbers:
            continue
        choices = numbers or [choice for piece in inner for choice in _expanded(piece)]
        if len(choices) * len(rest) > MAX_RESULTS:
            raise _TooManyError
        return [text[: match.start()] + choice + end for choice in choices for end in rest]
    return [text]


def _alternatives(text: str, start: int) -> list[str]:
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


def _sequence(first: str, last: str, step: str | None) -> list[str]:
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
    compiled_pattern = compiled({"#": rf"\A{regex}", "%": f"{regex}$"}.get(anchor, regex))
    if compiled_pattern is None or len(text) * len(new) > MAX_REPLACED:
        return None
    return str(compiled_pattern.sub(lambda _: new, text, 0 if everywhere else 1))
