"""The shapes of values in Slurm's JSON, which differ between versions.

A number is plain (22.05: `500`, `null` for none) or `{"set": true, "infinite": false, "number":
500}` (23.02 and later); a state is `"PENDING"` or `["PENDING", "REQUEUED"]`; a list of names is
`"a,b"` or `["a", "b"]`. Both are read. Anything else is refused, since a misread value could drain
the wrong node.
"""

from __future__ import annotations

import json
import math
from typing import Any

from schedmate.plain import whole
from schedmate.schedulers.live.executor import ExecutorError
from schedmate.terminal import clean

INFINITE = math.inf


class OutageError(ExecutorError):
    """The scheduler does not answer, or reports that it cannot; its state is unknown."""


class ShapeError(OutageError):
    """The scheduler's output matches no known version."""


def document(text: str, what: str) -> dict[str, Any]:
    """The JSON object that a command printed; raises `OutageError` if it reports errors.

    `squeue --json` prints an empty list of jobs and exits with 0 while the controller is down: only
    its `errors` distinguish that from an empty queue.
    """
    try:
        found = json.loads(text, parse_int=whole)
    except (ValueError, RecursionError):
        raise ShapeError(f"{what} printed no JSON but {clean(text, 80)!r}.") from None
    if not isinstance(found, dict):
        raise ShapeError(f"{what} printed JSON that is not an object.")
    errors = found.get("errors") or []
    if not isinstance(errors, list):
        raise ShapeError(f"{what}: 'errors' is not a list.")
    if errors:
        raise OutageError(f"{what} failed: {clean('; '.join(map(_said, errors)), 300)}")
    return found


def _said(error: Any) -> str:
    if not isinstance(error, dict):
        return str(error)
    parts = [error.get(key) for key in ("description", "error", "source")]
    return ", ".join(str(part) for part in parts if part)


def members(found: dict[str, Any], key: str, what: str) -> list[dict[str, Any]]:
    """The list of objects under a key."""
    items = found.get(key)
    if not isinstance(items, list) or not all(isinstance(one, dict) for one in items):
        raise ShapeError(f"{what}: {key!r} is not a list of objects.")
    return items


def number(value: Any, name: str) -> float | None:
    """A number in either shape; None if it is not set, `INFINITE` if it has no limit."""
    if isinstance(value, dict):
        if not value.keys() <= {"set", "infinite", "number"}:
            raise ShapeError(f"{name} is {clean(value, 60)!r}, which is not a number.")
        if value.get("infinite") is True:
            return INFINITE
        if value.get("set") is not True:
            return None
        value = value.get("number")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise ShapeError(f"{name} is {clean(value, 60)!r}, which is not a number.")
    return float(value)


def count(value: Any, name: str) -> int | None:
    """A whole number in either shape; None if it is not set or has no limit."""
    found = number(value, name)
    if found is None or math.isinf(found):
        return None
    if found != int(found):
        raise ShapeError(f"{name} is {found}, which is not a whole number.")
    return int(found)


def moment(value: Any, name: str) -> float | None:
    """A time [s since epoch]; Slurm writes 0 for "not yet"."""
    found = number(value, name)
    return None if found is None or math.isinf(found) else found or None


def text(value: Any, name: str) -> str:
    """A text; empty if there is none."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ShapeError(f"{name} is {clean(value, 60)!r}, which is not text.")
    return value


def names(value: Any, name: str) -> tuple[str, ...]:
    """A list of names in either shape."""
    if value is None or value == "":
        return ()
    if isinstance(value, str):
        return tuple(value.split(","))
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return tuple(value)
    raise ShapeError(f"{name} is {clean(value, 60)!r}, which is not a list of names.")
