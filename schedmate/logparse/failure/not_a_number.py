"""A loss that is no number any more: from which line on, if to the end."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from schedmate.logparse.failure.scan import FileScan
from schedmate.logparse.reading import Line
from schedmate.logparse.reading.lines import plain

LEAST = 2
"""So many readings without a number, and none with one after them, are no accident."""
MOST = 200_000
"""Readings that are looked at, from the end."""
_VALUE = r"(?:tensor\()?['\"]?(?:[-+]?(?:nan|inf(?:inity)?)\b|-?\d)"
# The loss that is trained on: neither a validation's nor one of several parts.
_LOSS = re.compile(
    r"(?i)(?<![\w/])(?:(?:train|training|lm|total|avg|mean|batch|step)[ _/-]?)?loss['\"]?"
    r"(?: \([\w ]+\))?\s?[:=|]?\s{0,12}(?:tensor\()?['\"]?"
    r"(?P<value>[-+]?(?:nan|inf(?:inity)?)\b|-?\d)"
)


def no_number_from(one: FileScan) -> Line | None:
    """The first line from which on every training loss in the attempt is NaN or infinite."""
    first: int | None = None
    count = 0
    for n, piece in enumerate(one.file.matching_reversed(_any())):
        if piece.offset < one.attempt.offset or n >= MOST:
            break
        if piece.offset >= one.attempt.end:
            continue
        match = _LOSS.search(plain(piece.data))
        if match is None:
            continue
        if match["value"].lstrip("-").isdigit():
            break
        first, count = piece.offset, count + 1
    if first is None or count < LEAST:
        return None
    number = one.file.line_number(first)
    return next(one.file.lines(number, number), None)


@cache
def _any() -> Any:
    import re2

    return re2.compile(rf"(?i)loss['\"]?(?: \([\w ]+\))?\s?[:=|]?\s{{0,12}}{_VALUE}".encode())
