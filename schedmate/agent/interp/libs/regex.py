"""Regular expressions on short texts: what names of files, classes and settings are made of.

A pattern of the repository's is applied only where it cannot take long: without a repeated group
or a back reference, and with few repetitions.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from schedmate.agent.interp.invocation import Handler, Invocation
from schedmate.agent.values import Value, unknown

if TYPE_CHECKING:
    from schedmate.agent.interp.state import State

_LONGEST_PATTERN = 100
_LONGEST_TEXT = 300
_REPEATS = re.compile(r"(?<!\\)[*+{]")
_SLOW = re.compile(r"(?<!\\)\)\s*[*+?{]|\\[1-9]|\(\?[P(=!<]")
_MOST_REPEATS = 2


def _harmless(pattern: str, text: str) -> bool:
    return (
        len(pattern) <= _LONGEST_PATTERN
        and len(text) <= _LONGEST_TEXT
        and not _SLOW.search(pattern)
        and len(_REPEATS.findall(pattern)) <= _MOST_REPEATS
    )


def sub(state: State, call: Invocation) -> Value:
    """`re.sub(pattern, replacement, text)`."""
    given = (call.argument(0, "pattern"), call.argument(1, "repl"), call.argument(2, "string"))
    texts = [value.data for value in given if value is not None and isinstance(value.data, str)]
    if len(texts) != 3 or len(call.args) + len(call.kwargs) > 3:
        return unknown()
    pattern, replacement, text = texts
    origin = given[2].origin if given[2] is not None else None
    if not _harmless(pattern, text) or len(replacement) > _LONGEST_TEXT:
        return unknown(origin=origin)
    try:
        return Value(re.sub(pattern, replacement, text), origin)
    except (re.error, IndexError):
        return unknown(origin=origin)


def split(state: State, call: Invocation) -> Value:
    """`re.split(pattern, text)`."""
    pattern, text = call.argument(0, "pattern"), call.argument(1, "string")
    if pattern is None or text is None or len(call.args) + len(call.kwargs) > 2:
        return unknown()
    if not isinstance(pattern.data, str) or not isinstance(text.data, str):
        return unknown()
    if not _harmless(pattern.data, text.data):
        return unknown(origin=text.origin)
    try:
        return Value([Value(part, text.origin) for part in re.split(pattern.data, text.data)])
    except re.error:
        return unknown(origin=text.origin)


HANDLERS: dict[str, Handler] = {"re.sub": sub, "re.split": split}
