"""A SQLite file that one process at a time uses, and to which results are committed in batches."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from schedmate.errors import InputError
from schedmate.sqlite import Connection

TOGETHER = 200
"""Results committed at once; a killed process loses at most this many, or those of one second."""


class OwnedFile:
    """The base of files that keep the results of a run, so that a killed run can be resumed.

    It holds the file's exclusive lock until it is closed. With `path=None` the results are in
    memory. Subclasses prepare their tables in `_prepare`, and name themselves in error messages.
    """

    error: ClassVar[type[InputError]]
    """Raised when the file cannot be used."""
    noun: ClassVar[str]
    """What the file is called in messages: "ledger"."""
    busy: ClassVar[str]
    """What to say if another process uses the file."""
    instead: ClassVar[str]
    """What to do if the file cannot be used."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        try:
            self._db = sqlite3.connect(
                str(path or ":memory:"), timeout=2, isolation_level=None, factory=Connection
            )
        except sqlite3.Error as error:
            raise self._unusable(error) from None
        try:
            self._db.execute("PRAGMA journal_mode=DELETE")
            self._db.execute("PRAGMA locking_mode=EXCLUSIVE")
            self._db.execute("BEGIN EXCLUSIVE")
            self._prepare()
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            self._db.close()
            raise self._unusable(error) from None
        except InputError:
            self._db.close()
            raise
        self._pending = 0
        self._since = time.monotonic()

    def _prepare(self) -> None:
        """Make the tables and check what is in them, in one transaction."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Commit and close; raises `self.error` if the file has failed, now or earlier."""
        try:
            self._commit()
        except sqlite3.Error as failure:
            error = failure
        finally:
            self._db.close()
        if isinstance(error, sqlite3.Error):
            raise self._unusable(error) from None

    def _begin_changes(self) -> None:
        if not self._db.in_transaction:
            self._db.execute("BEGIN IMMEDIATE")

    def _store(self, statement: str, values: tuple[object, ...]) -> None:
        """Store one result; it is on disk within a second of further ones, or on closing."""
        self._begin_changes()
        self._db.execute(statement, values)
        self._pending += 1
        if self._pending >= TOGETHER or time.monotonic() - self._since > 1:
            self._commit()

    def _commit(self) -> None:
        if self._db.in_transaction:
            self._db.execute("COMMIT")
        self._pending, self._since = 0, time.monotonic()

    def _unusable(self, error: Exception) -> InputError:
        reason = f"{self.busy}; wait for it, or" if "locked" in str(error) else f"{error};"
        return self.error(f"cannot use the {self.noun} {self.path}: {reason} {self.instead}.")
