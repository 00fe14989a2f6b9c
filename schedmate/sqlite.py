"""SQLite connections that take any text and any whole number as a parameter."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any

from schedmate.plain import clipped


class Connection(sqlite3.Connection):
    """For `sqlite3.connect(..., factory=Connection)`: parameters are as `plain.clipped` gives them.

    A lone surrogate in a file name, or a limit of over 64 bits, would else raise what is no
    `sqlite3.Error`, in the middle of a transaction.
    """

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        """As `sqlite3.Connection.execute`."""
        return super().execute(sql, _clipped(parameters))

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> sqlite3.Cursor:
        """As `sqlite3.Connection.executemany`."""
        return super().executemany(sql, map(_clipped, parameters))


def _clipped(parameters: Any) -> Any:
    if isinstance(parameters, Mapping):
        return {name: clipped(value) for name, value in parameters.items()}
    return [clipped(value) for value in parameters]
