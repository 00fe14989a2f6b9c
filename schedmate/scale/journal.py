"""What a run has done so far, so that one that was killed goes on where it was."""

from __future__ import annotations

import secrets
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

from schedmate.errors import InputError
from schedmate.sqlite import Connection

TOGETHER = 200
"""Results stored at once; a killed run does so many, or those of one second, again."""

_FORMAT = "schedmate.journal/v1"
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS run (format TEXT, what TEXT, token TEXT)",
    "CREATE TABLE IF NOT EXISTS done (key TEXT PRIMARY KEY, result TEXT NOT NULL) WITHOUT ROWID",
)

T = TypeVar("T")
R = TypeVar("R")


class JournalError(InputError):
    """A journal that cannot be used, or is another run's."""


class Journal:
    """The results of a run by key: a SQLite file that one process at a time writes.

    `what` says all that results depend on besides their keys: a journal that was begun with
    another one is refused. With `path=None` nothing outlives the process. Raises `JournalError`.
    """

    def __init__(self, path: Path | None, what: str) -> None:
        self.path = path
        if path is not None and not path.absolute().parent.is_dir():
            raise JournalError(f"cannot write {path}: there is no such directory; make it first.")
        try:
            self._db = sqlite3.connect(
                str(path or ":memory:"), timeout=2, isolation_level=None, factory=Connection
            )
        except sqlite3.Error as error:
            raise self._unusable(error) from None
        try:
            self._db.execute("PRAGMA journal_mode=DELETE")
            self._db.execute("PRAGMA locking_mode=EXCLUSIVE")  # held to the end
            self._begin(what)
        except sqlite3.Error as error:
            self._db.close()
            raise self._unusable(error) from None
        except JournalError:
            self._db.close()
            raise
        self._pending = 0
        self._since = time.monotonic()

    def _begin(self, what: str) -> None:
        self._db.execute("BEGIN EXCLUSIVE")
        tables = {row[0] for row in self._db.execute("SELECT name FROM sqlite_master")}
        if tables and not {"run", "done"} <= tables:
            raise JournalError(
                f"{self.path} is a database of something else; name another file for the journal."
            )
        for statement in _SCHEMA:
            self._db.execute(statement)
        row = self._db.execute("SELECT format, what, token FROM run").fetchone()
        if row is None:
            row = _FORMAT, what, secrets.token_hex(8)
            self._db.execute("INSERT INTO run VALUES (?, ?, ?)", row)
        elif tuple(row[:2]) != (_FORMAT, what):
            raise JournalError(
                f"{self.path} is the journal of another run ({row[1]}; this one: {what}); name "
                "another file, or remove it to start over."
            )
        self.token = str(row[2])
        """A random name of this run, which stays the same when it goes on."""
        self._db.execute("COMMIT")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Keep what there is; raises `JournalError` when the file failed, then or before."""
        try:
            self._commit()
        except sqlite3.Error as failure:
            error = failure
        finally:
            self._db.close()
        if isinstance(error, sqlite3.Error):
            raise self._unusable(error) from None

    def __len__(self) -> int:
        return int(self._db.execute("SELECT count(*) FROM done").fetchone()[0])

    def get(self, key: str) -> str | None:
        """The result that is kept under a key."""
        row = self._db.execute("SELECT result FROM done WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def put(self, key: str, result: str) -> None:
        """Keep a result; it is on disk within a second of further ones, and when this is closed."""
        if not self._pending:
            self._db.execute("BEGIN IMMEDIATE")
        self._db.execute("INSERT OR REPLACE INTO done VALUES (?, ?)", (key, result))
        self._pending += 1
        if self._pending >= TOGETHER or time.monotonic() - self._since > 1:
            self._commit()

    def _commit(self) -> None:
        if self._db.in_transaction:
            self._db.execute("COMMIT")
        self._pending, self._since = 0, time.monotonic()

    def _unusable(self, error: Exception) -> JournalError:
        busy = "locked" in str(error)
        return JournalError(
            f"cannot use the journal {self.path}: "
            + ("another run is using it; wait for it, or" if busy else f"{error};")
            + " name another file."
        )


class Results(Protocol):
    """Where results are kept by key: a `Journal`, or another file that has them."""

    def get(self, key: str) -> str | None:
        """The result that is kept under a key."""
        ...

    def put(self, key: str, result: str) -> None:
        """Keep a result."""
        ...


@dataclass(frozen=True, slots=True)
class Memo(Generic[T, R]):
    """How the results of one kind of work are kept in a journal.

    `key` names an item, or is None for one that is not kept. `pack` and `unpack` turn a result into
    text and back: None for a result that is not to be kept, or for text that is of no use any more.
    An item that ended its process is kept, too: it would do so again.
    """

    journal: Results
    key: Callable[[T], str | None]
    pack: Callable[[R], str | None]
    unpack: Callable[[str], R | None]

    def recall(self, item: T) -> tuple[R | None] | None:
        """The result of an item, in a tuple; None when there is none."""
        key = self.key(item)
        text = None if key is None else self.journal.get(key)
        if text is None:
            return None
        if text == _ENDED:
            return (None,)
        result = self.unpack(text)
        return None if result is None else (result,)

    def keep(self, item: T, result: R | None) -> None:
        """Keep the result of an item; None: it ended its process."""
        key = self.key(item)
        text = _ENDED if result is None else self.pack(result)
        if key is not None and text is not None:
            self.journal.put(key, text)


_ENDED = "ended its process"
