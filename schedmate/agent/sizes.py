"""How large something will be, known before it is made.

A program of a few lines can describe more than any machine holds: `x = [x, x]` forty times over,
`"{:{}}".format("a", 10**10)`, `text * 10**9`. Whatever makes or walks a value asks here first.
Sizes count items of containers and characters of text, shared ones each time they are reached.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

MAX_DATA = 20_000
"""Longest text or sequence that an operation may build [characters, items]."""
MAX_ITEMS = 200_000
"""Most items that a value may expand to and still be plain data."""
MAX_WORK = 4_000_000
"""Most comparisons of items in one operation."""
MAX_NESTING = 40
"""Deepest nesting looked into; a program's own data can contain itself."""
MAX_BITS = 1024
"""Largest whole number that an operation may give [bits]."""
MAX_PATH = 4096
"""Longest path of a file [characters]."""
VALUE = 16
"""What a new `Value` counts for, where items are made."""
MAX_KEY = 1000
"""Most items of a tuple that is a key."""

_PLAIN_TYPES = frozenset((type(None), bool, int, float, str, bytes))
_SCALARS = (type(None), bool, int, float, str, bytes)
_CONTAINERS = (dict, list, tuple)

Weigh: TypeAlias = Callable[[Any], int]
_Seen: TypeAlias = dict[int, tuple[int, int]]


class _RefusedError(Exception):
    """The value is too large, nested too deeply, contains itself, or is not plain."""


def one(data: object) -> int:
    """The weight of a scalar where items are counted."""
    return 1


def characters(data: object) -> int:
    """About how many characters a scalar has when it is written out."""
    if isinstance(data, str | bytes):
        return len(data)
    return data.bit_length() // 3 + 1 if isinstance(data, int) else 24


def is_plain(data: object) -> bool:
    """Whether `data` is plain all the way down, and no larger and deeper than it may be."""
    if isinstance(data, _CONTAINERS):
        return measure(data, plain=True) is not None
    return isinstance(data, _SCALARS)


def measure(
    data: object, weigh: Weigh = one, limit: int = MAX_ITEMS, *, plain: bool = False
) -> int | None:
    """The size of `data` with everything below it, in time that does not grow with its sharing.

    Args:
        data: what a `Value` holds; containers hold `Value`s.
        weigh: the weight of a scalar, and of a key where it counts characters.
        limit: the largest size.
        plain: whether symbolic values, such as unknown ones, are refused.

    Returns:
        None for what is larger than `limit`, nested deeper than `MAX_NESTING`, contains itself, or
        is refused.
    """
    if not isinstance(data, _CONTAINERS):
        size = weigh(data)
        return size if size <= limit and (not plain or isinstance(data, _SCALARS)) else None
    try:
        return _below(data, weigh, limit, plain, 0, {})[0]
    except _RefusedError:
        return None


def _below(
    data: Any, weigh: Weigh, limit: int, plain: bool, depth: int, seen: _Seen
) -> tuple[int, int]:
    """Size and height of a container; `seen` has those of others, and 0 of what it is inside of."""
    found = seen.get(id(data))
    if found is not None:
        if not found[0] or depth + found[1] > MAX_NESTING:
            raise _RefusedError
        return found
    if depth > MAX_NESTING or len(data) > limit:
        raise _RefusedError
    seen[id(data)] = 0, 0
    size, height = 1, 0
    items: Iterable[Any] = data
    if isinstance(data, dict):
        items = data.values()
        if weigh is not one:
            size += sum(map(weigh, data))
    for item in items:
        inner = item.data
        if isinstance(inner, _CONTAINERS):
            more, levels = _below(inner, weigh, limit, plain, depth + 1, seen)
            size += more
            height = max(height, levels + 1)
            if size > limit:
                raise _RefusedError
        elif plain and type(inner) not in _PLAIN_TYPES and not isinstance(inner, _SCALARS):
            raise _RefusedError
        else:
            size += 1 if weigh is one else weigh(inner)
    if size > limit:
        raise _RefusedError
    seen[id(data)] = size, height
    return size, height


def fits(size: int | None, limit: int = MAX_DATA) -> bool:
    """Whether a size is known and within a limit."""
    return size is not None and size <= limit


def written(data: object) -> int | None:
    """About how many characters `str(data)` has, None for more than an operation may build."""
    size = measure(data, characters, MAX_DATA, plain=True)
    # brackets, quotes and commas around every item
    return size if not isinstance(data, _CONTAINERS) or size is None else 5 * size


def whole(number: object) -> bool:
    """Whether this is not a number that is too long to go on computing with."""
    return not isinstance(number, int) or number.bit_length() <= MAX_BITS


def repeated(items: Sequence[Any], count: int) -> int:
    """The length of `items * count`."""
    return len(items) * max(count, 0)


def joined(parts: Sequence[str], between: str = "") -> int:
    """The length of `between.join(parts)`."""
    return sum(map(len, parts)) + len(between) * max(len(parts) - 1, 0)


def replaced(text: str, old: str, new: str) -> int:
    """The length of `text.replace(old, new)` at most."""
    return len(text) + (len(text) + 1 if not old else text.count(old)) * max(len(new) - len(old), 0)


_SLOT = re.compile(r"%(?:\([^()]*\))?([-+ #0]*\d*(?:\.\d*)?)")
_NESTED = re.compile(r"%\([^()]*\(")
_DIGITS = re.compile(r"\d{4}")
"""A width or a precision that would fill the memory."""


def percent(template: str, data: object) -> int | None:
    """The length of `template % data` at most; None where it cannot be told or is too long."""
    size = written(data)
    if size is None or "*" in template or _NESTED.search(template):
        return None
    slots = _SLOT.findall(template)
    if any(map(_DIGITS.search, slots)):
        return None
    given = size * len(slots) if "%(" in template else size  # by name one may be written often
    return len(template) + given + sum(map(_width, slots))


def _width(spec: str) -> int:
    """What the width and precision of a specification add."""
    return sum(int(digits) for digits in re.findall(r"\d+", spec))


def specification(spec: str) -> bool:
    """Whether the format specification of an f-string asks for no more than a page."""
    return len(spec) < 20 and _DIGITS.search(spec) is None


def formatted(template: str, values: Iterable[object]) -> int | None:
    """The length of `template.format(...)` at most.

    None where it cannot be told: a width that is given as an argument, an attribute of one, a
    width of four digits.
    """
    sizes = [written(value) for value in values]
    if None in sizes:
        return None
    largest = max((size for size in sizes if size is not None), default=0)
    total = 0
    try:
        for literal, name, spec, _ in string.Formatter().parse(template):
            total += len(literal)
            if name is None:
                continue
            if "." in name or "{" in (spec or "") or not specification(spec or ""):
                return None
            total += largest + _width(spec or "")
            if total > MAX_DATA:
                return None
    except ValueError:
        return None
    return total
