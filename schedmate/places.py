"""Where a history is: a directory, or the address of a database."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

SCHEMES = ("postgresql://", "postgres://")

Place = Path | str
"""A directory, or a URL of PostgreSQL's without a password."""


def place_of(value: Any) -> Any:
    """What a setting or an option means; raises ValueError for a URL with a password in it."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if not text.startswith(SCHEMES):
        return Path(value)
    if urlsplit(text).password or "password=" in text:
        raise ValueError(
            "a password does not belong into the address, where others see it: put it into "
            "~/.pgpass, or into PGPASSWORD"
        )
    return text


def is_remote(place: Place) -> bool:
    """Whether it is the address of a database."""
    return isinstance(place, str) and place.startswith(SCHEMES)


def shown(url: str) -> str:
    """An address as messages show it."""
    return url.partition("?")[0]
