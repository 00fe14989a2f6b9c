"""The location of a history: a directory, or the address of a database."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

SCHEMES = ("postgresql://", "postgres://")

Place = Path | str
"""A directory, or a URL of PostgreSQL's without a password."""


def place_of(value: Any) -> Any:
    """The location that a setting or option names; raises ValueError for a URL with a password."""
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


def without_password(url: str) -> str:
    """An address that is safe to show: `https://me:***@host/v1`."""
    scheme, separator, rest = url.rpartition("://")
    place = rest.partition("/")[0]
    name, _, secret = place.partition(":")
    if "@" in place or ("@" in rest and not secret.isdecimal()):  # a password may hold a slash
        login, _, host = (place if "@" in place else rest).rpartition("@")
        name, colon, _ = login.partition(":")
        path = rest[len(place) :] if "@" in place else ""
        return f"{scheme}{separator}{name}{colon and ':***'}@{host}{path}"
    return url


def is_remote(place: Place) -> bool:
    """Whether it is the address of a database."""
    return isinstance(place, str) and place.startswith(SCHEMES)


def shown(url: str) -> str:
    """An address as messages show it."""
    return url.partition("?")[0]
