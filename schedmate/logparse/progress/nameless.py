"""Numbers without a name, interpreted by the text around them."""

from __future__ import annotations

import re
from itertools import pairwise

from schedmate.logparse.progress.labels import Labelled
from schedmate.logparse.progress.words import about, counted_by, meaning

LATEST = 1e8
"""A larger number is a date, not a count."""

_LEVEL = re.compile(r"|INFO|DEBUG|NOTICE")


def nameless(numbers: list[Labelled]) -> tuple[int, ...]:
    """The whole numbers of a line without name, unit or total, one of which may be the counter."""
    return tuple(
        int(number.value)
        for number in numbers
        if (_LEVEL.fullmatch(number.key) or (number.bracketed and _is_unnamed(number)))
        and not (number.unit or number.clock or number.total)
        and number.value % 1 == 0
        and 0 <= number.value < LATEST
    )


_BESIDE = re.compile(r"\s?[\])>}]?\s?[\[(<{,/:|-]\s?")
"""Text between two counters that belong together: `[3][50]`, `[3, 50]`, `<3> <50>`."""


def has_place(numbers: list[Labelled]) -> bool:
    """Whether a whole number without a name directly follows that of an epoch."""
    return any(
        meaning(a.key, a.unit) == ("epoch", 1.0, True) and not a.total and _is_beside(b)
        for a, b in pairwise(numbers)
    )


def is_pair(numbers: list[Labelled]) -> bool:
    """Whether a line has two nameless counters in brackets."""
    return any(
        _is_unnamed(a) and a.bracketed and a.value % 1 == 0 and _is_beside(b)
        for a, b in pairwise(numbers)
    )


def _is_unnamed(number: Labelled) -> bool:
    """Whether the text before a number is a log level or `training`, not a quantity."""
    return _LEVEL.fullmatch(number.key) is not None or (
        meaning(number.key, number.unit) is None and about(number.key) == "training"
    )


def _is_beside(number: Labelled) -> bool:
    plain = not (number.key or number.unit or number.clock or number.total)
    return plain and number.value % 1 == 0 and _BESIDE.fullmatch(number.gap) is not None


_FOLLOWS = re.compile(r"\s?([^\W\d_]{2,})\b(?!\s*[/:=(\[])")


def by_what_follows(number: Labelled) -> tuple[str, float, bool] | None:
    """The quantity named behind a nameless number: `1.2M samples`, `3,000 tokens`."""
    if number.key or number.unit or number.clock or number.total or number.bracketed:
        return None
    follows = _FOLLOWS.match(number.behind)
    kind = counted_by(follows[1]) if follows is not None else None
    return (kind, 1.0, True) if kind in ("samples", "tokens") else None
