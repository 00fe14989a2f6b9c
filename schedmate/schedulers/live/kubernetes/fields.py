"""Fields of objects that others wrote: what has another type than expected is not there."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from schedmate.plain import LARGEST, MOST_GPUS, encodable


def at(found: Any, path: str) -> Any:
    """The value at `a.b.c`, or None."""
    for name in path.split("."):
        if not isinstance(found, dict):
            return None
        found = found.get(name)
    return found


def part(found: Any, path: str) -> dict[str, Any]:
    """The mapping at `a.b.c`, or an empty one."""
    value = at(found, path)
    return value if isinstance(value, dict) else {}


def text_at(found: Any, path: str) -> str:
    """The text at `a.b.c`, or an empty one; lone surrogates are escapes in it."""
    value = at(found, path)
    return encodable(value) if isinstance(value, str) else ""


def list_at(found: Any, path: str) -> list[dict[str, Any]]:
    """The mappings in the list at `a.b.c`."""
    value = at(found, path)
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def number_at(found: Any, path: str, default: int = 0) -> int:
    """The whole number at `a.b.c`, of at most 64 bits."""
    value = at(found, path)
    if not isinstance(value, int) or isinstance(value, bool):
        return default
    return value if abs(value) <= LARGEST else default


def count_of(value: Any) -> int:
    """A quantity of whole devices; 0 for anything that no cluster can have."""
    if isinstance(value, str):
        short = len(value) <= len(str(MOST_GPUS)) and value.isascii() and value.isdigit()
        value = int(value) if short else 0
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and 0 <= value <= MOST_GPUS else 0


def mapping_at(found: Any, path: str) -> dict[str, str]:
    """The texts in the mapping at `a.b.c`: labels, annotations."""
    value = at(found, path)
    if not isinstance(value, dict):
        return {}
    return {name: encodable(one) for name, one in value.items() if isinstance(one, str)}


def time_at(found: Any, path: str) -> float | None:
    """The RFC 3339 time at `a.b.c` [s since epoch]."""
    try:
        return datetime.fromisoformat(text_at(found, path)).timestamp()
    except (ValueError, OverflowError):
        return None


def every(found: Any, path: str) -> Iterator[tuple[str, Any]]:
    """The values at a path, with their keys; `*` matches each entry of a mapping or list."""
    first, _, rest = path.partition(".")
    if first == "*":
        pairs = (
            found.items()
            if isinstance(found, dict)
            else enumerate(found)
            if isinstance(found, list)
            else ()
        )
        for key, value in pairs:
            if rest:
                for _, one in every(value, rest):
                    yield str(key), one
            else:
                yield str(key), value
        return
    if isinstance(found, dict) and first in found:
        yield from every(found[first], rest) if rest else iter([(first, found[first])])
