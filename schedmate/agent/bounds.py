"""Bounds what reading a repository may cost: time, size and regular expressions.

A hostile or careless program of a few lines can describe more than any machine holds:
`x = [x, x]` forty times over, `"{:{}}".format("a", 10**10)`, `text * 10**9`. Whatever makes or
walks a value asks here first how large it will be; sizes count items of containers and characters
of text, shared ones each time they are reached. `Budget` is the time for all of it. Patterns that
a repository or a command brings along run in linear time (RE2, which knows no look-around and no
back references) or not at all; those without any repetition or choice, such as `(?<!^)(?=[A-Z])`,
run in Python's own engine.
"""

from __future__ import annotations

import re
import string
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

PATIENCE = 20.0
"""Wall time to CPU time after which a loaded machine is waited for no longer.

So many that a machine with twenty times as much to do as it has processors gives the same answer as
an idle one; who cannot wait gives a limit.
"""


class Budget:
    """CPU time of the calling thread, so that a loaded machine reads as much as an idle one.

    Wall time is limited as well, for what waits without working, such as a file system that hangs.

    Args:
        cpu_s: CPU time from now on [s].
        wall_s: wall time from now on [s]; None for `PATIENCE` times the CPU time.
    """

    __slots__ = ("_cpu_end", "_earliest", "_wall_end")

    def __init__(self, cpu_s: float, wall_s: float | None = None) -> None:
        now = time.monotonic()
        self._cpu_end = time.thread_time() + cpu_s
        self._earliest = now + cpu_s
        self._wall_end = now + (PATIENCE * cpu_s if wall_s is None else wall_s)

    def spent(self) -> bool:
        """Whether either time is over."""
        now = time.monotonic()
        if now > self._wall_end:
            return True
        # the clock of a thread is slow to read, and no thread works longer than time passes
        return now > self._earliest and time.thread_time() > self._cpu_end


# How large something will be, known before it is made.
#
# A program of a few lines can describe more than any machine holds: `x = [x, x]` forty times over,
# `"{:{}}".format("a", 10**10)`, `text * 10**9`. Whatever makes or walks a value asks here first.
# Sizes count items of containers and characters of text, shared ones each time they are reached.


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
VALUE_WEIGHT = 16
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


def count_one(data: object) -> int:
    """The weight of a scalar where items are counted."""
    return 1


def count_characters(data: object) -> int:
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
    data: object, weigh: Weigh = count_one, limit: int = MAX_ITEMS, *, plain: bool = False
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
        return _measure_container(data, weigh, limit, plain, 0, {})[0]
    except _RefusedError:
        return None


def _measure_container(
    data: Any, weigh: Weigh, limit: int, plain: bool, depth: int, seen: _Seen
) -> tuple[int, int]:
    """Size and height of a container; `seen` has those of others, and 0 of what it is inside of."""
    measured = seen.get(id(data))
    if measured is not None:
        if not measured[0] or depth + measured[1] > MAX_NESTING:
            raise _RefusedError
        return measured
    if depth > MAX_NESTING or len(data) > limit:
        raise _RefusedError
    seen[id(data)] = 0, 0
    size, height = 1, 0
    items: Iterable[Any] = data
    if isinstance(data, dict):
        items = data.values()
        if weigh is not count_one:
            size += sum(map(weigh, data))
    for item in items:
        inner = item.data
        if isinstance(inner, _CONTAINERS):
            more, levels = _measure_container(inner, weigh, limit, plain, depth + 1, seen)
            size += more
            height = max(height, levels + 1)
            if size > limit:
                raise _RefusedError
        elif plain and type(inner) not in _PLAIN_TYPES and not isinstance(inner, _SCALARS):
            raise _RefusedError
        else:
            size += 1 if weigh is count_one else weigh(inner)
    if size > limit:
        raise _RefusedError
    seen[id(data)] = size, height
    return size, height


def fits(size: int | None, limit: int = MAX_DATA) -> bool:
    """Whether a size is known and within a limit."""
    return size is not None and size <= limit


def written_length(data: object) -> int | None:
    """About how many characters `str(data)` has, None for more than an operation may build."""
    size = measure(data, count_characters, MAX_DATA, plain=True)
    # brackets, quotes and commas around every item
    return size if not isinstance(data, _CONTAINERS) or size is None else 5 * size


def is_short_number(number: object) -> bool:
    """Whether this is not a number that is too long to go on computing with."""
    return not isinstance(number, int) or number.bit_length() <= MAX_BITS


def repeated_length(items: Sequence[Any], count: int) -> int:
    """The length of `items * count`."""
    return len(items) * max(count, 0)


def joined_length(parts: Sequence[str], between: str = "") -> int:
    """The length of `between.join(parts)`."""
    return sum(map(len, parts)) + len(between) * max(len(parts) - 1, 0)


def replaced_length(text: str, old: str, new: str) -> int:
    """The length of `text.replace(old, new)` at most."""
    return len(text) + (len(text) + 1 if not old else text.count(old)) * max(len(new) - len(old), 0)


_PERCENT_SLOT = re.compile(r"%(?:\([^()]*\))?([-+ #0]*\d*(?:\.\d*)?)")
_NESTED_SLOT = re.compile(r"%\([^()]*\(")
_FOUR_DIGITS = re.compile(r"\d{4}")
"""A width or a precision that would fill the memory."""


def percent_length(template: str, data: object) -> int | None:
    """The length of `template % data` at most; None where it cannot be told or is too long."""
    size = written_length(data)
    if size is None or "*" in template or _NESTED_SLOT.search(template):
        return None
    slots = _PERCENT_SLOT.findall(template)
    if any(map(_FOUR_DIGITS.search, slots)):
        return None
    given = size * len(slots) if "%(" in template else size  # by name one may be written often
    return len(template) + given + sum(map(_added_width, slots))


def _added_width(spec: str) -> int:
    """What the width and precision of a specification add."""
    return sum(int(digits) for digits in re.findall(r"\d+", spec))


def is_short_specification(spec: str) -> bool:
    """Whether the format specification of an f-string asks for no more than a page."""
    return len(spec) < 20 and _FOUR_DIGITS.search(spec) is None


def formatted_length(template: str, values: Iterable[object]) -> int | None:
    """The length of `template.format(...)` at most.

    None where it cannot be told: a width that is given as an argument, an attribute of one, a
    width of four digits.
    """
    sizes = [written_length(value) for value in values]
    if None in sizes:
        return None
    largest = max((size for size in sizes if size is not None), default=0)
    total = 0
    try:
        for literal, name, spec, _ in string.Formatter().parse(template):
            total += len(literal)
            if name is None:
                continue
            if "." in name or "{" in (spec or "") or not is_short_specification(spec or ""):
                return None
            total += largest + _added_width(spec or "")
            if total > MAX_DATA:
                return None
    except ValueError:
        return None
    return total


# Patterns that a repository or a command brings along, run in linear time or not at all.
#
# They run in RE2, which knows no look-around and no back references. Patterns without any
# repetition or choice, such as `(?<!^)(?=[A-Z])`, run in Python's own engine.


MAX_PATTERN = 200
"""Longest pattern that is compiled [characters]."""
_MAX_PATTERN_MEMORY = 1 << 20
"""Most memory of a compiled pattern [bytes]."""

_UNREPEATED = re.compile(r"\\[^\d]|\[\^?\]?[^\]]*\]|\(\?(?:<?[=!]|:)")
"""What says nothing of repetition: escapes, sets of characters, marks of groups."""
_REPEATS = re.compile(r"[*+?{|\\]")
_READ_OTHERWISE = re.compile(r"\[:|\{,")
"""Notations that RE2 reads in a way of its own."""
_CLASSES = re.compile(r"\\[wWdDsSbB]")
"""Classes that are of ASCII alone in RE2."""
_LAZY_OR_END = re.compile(r"\$|[*?]\?|\{[^}]*\}\?")
"""Where matches of nothing at all are counted otherwise."""
_ENDS = re.compile(r"\$|\\Z")


@lru_cache(maxsize=256)
def linear_pattern(pattern: str) -> Any | None:
    """The pattern with `re`'s methods; None for one that is wrong, too long, or not linear."""
    import re2

    if len(pattern) > MAX_PATTERN or _READ_OTHERWISE.search(pattern):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            python = re.compile(pattern)  # RE2 takes notations that Python does not
    except (re.error, OverflowError, RecursionError, ValueError):
        return None
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MAX_PATTERN_MEMORY
    try:
        return re2.compile(pattern, options)
    except re2.error:
        return None if _REPEATS.search(_UNREPEATED.sub("", pattern)) else python


def linear_pattern_for(pattern: str, text: str, *, every: bool = False) -> Any | None:
    """The pattern, where what it finds in `text` is what Python finds.

    Args:
        pattern: of a repository or a command.
        text: what it is going to be applied to.
        every: whether all matches are wanted, those of nothing included.
    """
    linear = linear_pattern(pattern)
    if linear is None:
        return None
    if _CLASSES.search(pattern) and not (text.isascii() and text.isprintable()):
        return None
    if _ENDS.search(pattern) and text.endswith("\n"):
        return None  # Python's `$` matches before it as well
    if every and _LAZY_OR_END.search(pattern) and linear.search("") is not None:
        return None
    return linear
