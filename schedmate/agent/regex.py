r"""Patterns that a repository or a command brings along, run in linear time or not at all.

They run in RE2, which knows no look-around and no back references. Patterns without any
repetition or choice, such as `(?<!^)(?=[A-Z])`, run in Python's own engine.
"""

from __future__ import annotations

import re
import warnings
from functools import lru_cache
from typing import Any

MAX_PATTERN = 200
"""Longest pattern that is compiled [characters]."""
_MEMORY = 1 << 20
"""Most memory of a compiled pattern [bytes]."""

_UNCOUNTED = re.compile(r"\\[^\d]|\[\^?\]?[^\]]*\]|\(\?(?:<?[=!]|:)")
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
def compiled(pattern: str) -> Any | None:
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
    options.max_mem = _MEMORY
    try:
        return re2.compile(pattern, options)
    except re2.error:
        return None if _REPEATS.search(_UNCOUNTED.sub("", pattern)) else python


def for_text(pattern: str, text: str, *, every: bool = False) -> Any | None:
    """The pattern, where what it finds in `text` is what Python finds.

    Args:
        pattern: as `compiled` takes it.
        text: what it is going to be applied to.
        every: whether all matches are wanted, those of nothing included.
    """
    found = compiled(pattern)
    if found is None:
        return None
    if _CLASSES.search(pattern) and not (text.isascii() and text.isprintable()):
        return None
    if _ENDS.search(pattern) and text.endswith("\n"):
        return None  # Python's `$` matches before it as well
    if every and _LAZY_OR_END.search(pattern) and found.search("") is not None:
        return None
    return found
