"""A loss that is NaN or infinite up to the end: the line from which on it is."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any

from schedmate.logparse.failure.scan import FileScan
from schedmate.logparse.reading import Line
from schedmate.logparse.reading.lines import plain
from schedmate.logparse.reading.prefixes import split_prefix

LEAST = 2
"""Minimum number of readings that are NaN or infinite, with no finite one after them."""
MOST = 200_000
"""Limit for the readings examined, from the end."""
RANKS = 64
"""Number of last readings among which each rank is taken to have one."""
_VALUE = r"(?:tensor\()?['\"]?(?:[-+]?(?:nan|inf(?:inity)?)\b|-?\d)"
# The loss that is trained on: neither a validation's nor one of several parts.
_LOSS = re.compile(
    r"(?i)(?<![\w/])(?:(?:train|training|lm|total|avg|mean|batch|step)[ _/-]?)?loss['\"]?"
    r"(?: \([\w ]+\))?\s?[:=|]?\s{0,12}(?:tensor\()?['\"]?"
    r"(?P<value>[-+]?(?:nan|inf(?:inity)?)\b|-?\d)"
)


def no_number_from(one: FileScan) -> Line | None:
    """The first line from which on every training loss of a rank is NaN or infinite."""
    lost: dict[int | None, int] = {}
    counts: Counter[int | None] = Counter()
    well: set[int | None] = set()
    for n, (offset, data) in enumerate(_readings(one)):
        if n >= MOST or (n >= RANKS and not lost.keys() - well):
            break
        text = plain(data)
        match = _LOSS.search(text)
        if match is None:
            continue
        rank = split_prefix(text, one.file.layout)[0].rank
        if rank in well:
            continue
        if match["value"].lstrip("-").isdigit():
            well.add(rank)
        else:
            lost[rank] = offset
            counts[rank] += 1
    firsts = [offset for rank, offset in lost.items() if counts[rank] >= LEAST]
    if not firsts:
        return None
    number = one.file.line_number(min(firsts))
    return next(one.file.lines(number, number), None)


def _readings(one: FileScan) -> Iterator[tuple[int, bytes]]:
    """Position and text of the lines that state a loss in the attempt, from its end."""
    for piece in one.file.matching_reversed(_any()):
        if piece.offset < one.attempt.offset:
            return
        if piece.offset < one.attempt.end:
            yield piece.offset, piece.data


@cache
def _any() -> Any:
    import re2

    return re2.compile(rf"(?i)loss['\"]?(?: \([\w ]+\))?\s?[:=|]?\s{{0,12}}{_VALUE}".encode())
