"""Values as any reader of JSON, UTF-8 or SQL takes them, whatever they were read from.

Python holds what others cannot: whole numbers of any length (which it refuses to print beyond
4,300 digits), infinities, NaN, and halves of surrogate pairs, which stand for bytes of file names
that are not UTF-8.
"""

from __future__ import annotations

import json
import math
from typing import Any

LARGEST = 2**63 - 1
"""The largest whole number that a database or another language's JSON reader holds."""

MOST_GPUS = 10**9
"""GPUs or nodes of one job at most: beyond every cluster, and small enough to count with."""

LONGEST_S = 3e11
"""Some nine thousand years: no run time, time limit or date is beyond [s]."""

_DEEPEST = 60
_LONGEST = 400


def encodable(text: str) -> str:
    r"""The text with every lone surrogate written as an escape, `\udcff`."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def plain(value: Any, depth: int = _DEEPEST) -> Any:
    """The value with encodable text, finite numbers, and whole numbers of at most 64 bits.

    Larger whole numbers become floating-point numbers, and what those cannot hold either, like
    infinity and NaN, becomes None; so does what is nested deeper than `depth`.
    """
    if isinstance(value, str):
        return encodable(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if -LARGEST <= value <= LARGEST else plain(_as_float(value))
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        if depth == 0:
            return None
        return {_key(key): plain(item, depth - 1) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item, depth - 1) for item in value] if depth else None
    return value


def dumps(document: Any, indent: int | None = None) -> str:
    """A document as JSON that everybody can read: every value as `plain` makes it."""
    return json.dumps(plain(document), indent=indent, allow_nan=False)


def whole(text: str) -> int | float:
    """The number that digits spell; a floating-point one where no database holds it.

    For `parse_int` of JSON decoders: Python refuses to read more than 4,300 digits as an `int`.
    """
    return float(text) if len(text) > _LONGEST else int(text)


def clipped(value: Any) -> Any:
    """A parameter of an SQL statement: encodable, and the nearest number of 64 bits."""
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, int):
        return max(-LARGEST, min(LARGEST, value))
    return value


def _as_float(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _key(key: Any) -> Any:
    return encodable(key) if isinstance(key, str) else plain(key)
