"""The results of a run so far, so that a killed run can be resumed."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from schedmate.errors import InputError
from schedmate.scale.owned import OwnedFile

_FORMAT = "schedmate.journal/v1"
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS run (format TEXT, what TEXT, token TEXT)",
    "CREATE TABLE IF NOT EXISTS done (key TEXT PRIMARY KEY, result TEXT NOT NULL) WITHOUT ROWID",
)

T = TypeVar("T")
R = TypeVar("R")


class JournalError(InputError):
    """A journal cannot be used, or belongs to another run."""


class Journal(OwnedFile):
    """The results of a run by key, in a SQLite file that one process at a time uses.

    `what` states everything that results depend on besides their keys: a journal that was begun
    with another `what` is refused. With `path=None` results are kept in memory. Raises
    `JournalError`.
    """

    error = JournalError
    noun = "journal"
    busy = "another run is using it"
    instead = "name another file"

    def __init__(self, path: Path | None, what: str) -> None:
        self._what = what
        if path is not None and not path.absolute().parent.is_dir():
            raise JournalError(f"cannot write {path}: there is no such directory; make it first.")
        super().__init__(path)

    def _prepare(self) -> None:
        what = self._what
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
        """A random name of this run, which stays the same when the run is resumed."""

    def __len__(self) -> int:
        return int(self._db.execute("SELECT count(*) FROM done").fetchone()[0])

    def get(self, key: str) -> str | None:
        """The result stored under a key, or None."""
        row = self._db.execute("SELECT result FROM done WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def put(self, key: str, result: str) -> None:
        """Store a result; it is on disk within a second of further ones, or on closing."""
        self._store("INSERT OR REPLACE INTO done VALUES (?, ?)", (key, result))


class Results(Protocol):
    """Where results are kept by key: a `Journal`, or another file that has them."""

    def get(self, key: str) -> str | None:
        """The result stored under a key, or None."""
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
