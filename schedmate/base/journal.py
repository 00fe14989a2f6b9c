"""Keeps the results of a run in a SQLite file, so that a run that was killed goes on where it
was.

A `Journal` is an `OwnedFile`: one process at a time uses it, and results are committed in batches.
`Connection` is the connection to every SQLite file of schedmate, which takes any text and any
whole number as a parameter; `upgrade` brings such a file to the newest format, and
`copy_database` copies one that is in use.
"""

from __future__ import annotations

import secrets
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

from schedmate.base.data import clipped
from schedmate.base.errors import InputError

COMMITTED_TOGETHER = 200
"""Results committed at once; a killed process loses at most this many, or those of one second."""


class OwnedFile:
    """The base of files that keep the results of a run, so that a killed run can be resumed.

    It holds the file's exclusive lock until it is closed. With `path=None` the results are in
    memory. Subclasses prepare their tables in `_prepare`, among them `done (key, result)`, and name
    themselves in error messages.
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

    def get(self, key: str) -> str | None:
        """The result stored under a key, or None."""
        row = self._db.execute("SELECT result FROM done WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def put(self, key: str, result: str) -> None:
        """Store a result; it is on disk within a second of further ones, or on closing."""
        self._store("INSERT OR REPLACE INTO done VALUES (?, ?)", (key, result))

    def _begin_changes(self) -> None:
        if not self._db.in_transaction:
            self._db.execute("BEGIN IMMEDIATE")

    def _store(self, statement: str, values: tuple[object, ...]) -> None:
        """Store one result; it is on disk within a second of further ones, or on closing."""
        self._begin_changes()
        self._db.execute(statement, values)
        self._pending += 1
        if self._pending >= COMMITTED_TOGETHER or time.monotonic() - self._since > 1:
            self._commit()

    def _commit(self) -> None:
        if self._db.in_transaction:
            self._db.execute("COMMIT")
        self._pending, self._since = 0, time.monotonic()

    def _unusable(self, error: Exception) -> InputError:
        reason = f"{self.busy}; wait for it, or" if "locked" in str(error) else f"{error};"
        return self.error(f"cannot use the {self.noun} {self.path}: {reason} {self.instead}.")


@contextmanager
def undamaged(path: Path | None) -> Iterator[None]:
    """Raise an `InputError` that names the file, where SQLite, JSON or a schema cannot read it."""
    try:
        yield
    except (sqlite3.DatabaseError, ValueError, TypeError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(
            f"{path}: cannot be used ({reason}); restore a copy of it, or move it away."
        ) from None


# SQLite connections that take any text and any whole number as a parameter.


class Connection(sqlite3.Connection):
    """For `sqlite3.connect(..., factory=Connection)`: parameters are as `plain.clipped` gives them.

    A lone surrogate in a file name, or a limit of over 64 bits, would else raise what is no
    `sqlite3.Error`, in the middle of a transaction; so would a damaged schema, which Python's own
    message cannot quote.
    """

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        """As `sqlite3.Connection.execute`."""
        clipped_ones = _clipped_parameters(parameters)
        with _readable_schema():
            return super().execute(sql, clipped_ones)

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> sqlite3.Cursor:
        """As `sqlite3.Connection.executemany`."""
        return super().executemany(sql, map(_clipped_parameters, parameters))

    def executescript(self, sql: str, /) -> sqlite3.Cursor:
        """As `sqlite3.Connection.executescript`."""
        with _readable_schema():
            return super().executescript(sql)


@contextmanager
def _readable_schema() -> Iterator[None]:
    try:
        yield
    except UnicodeDecodeError:
        raise sqlite3.DatabaseError("malformed database schema") from None


def _clipped_parameters(parameters: Any) -> Any:
    if isinstance(parameters, Mapping):
        return {name: clipped(value) for name, value in parameters.items()}
    return [clipped(value) for value in parameters]


# The format of a SQLite file, and copies of one.


Step = str | Callable[[sqlite3.Connection], None]
"""From one version of a format to the next: statements, or a function that runs some."""


def upgrade(database: sqlite3.Connection, path: object, steps: Sequence[Step]) -> None:
    """Bring a SQLite file to the newest format: each step once, in order, all or none of them.

    `PRAGMA user_version` is the number of steps that a file has behind it. Files written before
    they had a version have 0, so the first step must accept tables that exist. Processes that open
    a file at the same time wait for each other. Raises `InputError` for a file of a newer
    schedmate, whose meaning is not known here.
    """
    if _format_of(database) == len(steps):
        return
    database.execute("BEGIN IMMEDIATE")
    try:
        version = _format_of(database)
        if version > len(steps):
            raise InputError(
                f"{path}: written by a newer schedmate (format {version}, this one reads up to "
                f"{len(steps)}); upgrade schedmate."
            )
        for step in steps[version:]:
            if callable(step):
                step(database)
            else:
                for statement in _statements(step):
                    database.execute(statement)
        database.execute(f"PRAGMA user_version = {len(steps)}")
        database.execute("COMMIT")
    finally:
        if database.in_transaction:
            database.execute("ROLLBACK")


def _format_of(database: sqlite3.Connection) -> int:
    return int(database.execute("PRAGMA user_version").fetchone()[0])


def _statements(script: str) -> Iterator[str]:
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def with_column(table: str, column: str, definition: str) -> Step:
    """A step that adds a column, unless the file has it already."""

    def add(database: sqlite3.Connection) -> None:
        if column not in {row[1] for row in database.execute(f"PRAGMA table_info({table})")}:
            database.execute(f"ALTER TABLE {table} ADD COLUMN {column} {definition}")

    return add


def copy_database(source: Path, target: Path) -> None:
    """Copy a SQLite file whole, whoever reads or writes either of them meanwhile.

    An existing target gets the content of the source in one transaction: processes that have it
    open see the one or the other. Raises `InputError`.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        target.touch(mode=0o600, exist_ok=True)
        with (
            closing(sqlite3.connect(f"{source.resolve().as_uri()}?mode=ro", uri=True)) as reading,
            closing(sqlite3.connect(target, timeout=30.0)) as writing,
        ):
            reading.backup(writing)
            with suppress(sqlite3.OperationalError):  # others still read the log
                writing.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except (sqlite3.Error, OSError) as error:
        raise InputError(f"cannot copy {source} to {target}: {error}.") from None


# The results of a run so far, so that a killed run can be resumed.


_JOURNAL_FORMAT = "schedmate.journal/v1"
_JOURNAL_SCHEMA = (
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
        for statement in _JOURNAL_SCHEMA:
            self._db.execute(statement)
        row = self._db.execute("SELECT format, what, token FROM run").fetchone()
        if row is None:
            row = _JOURNAL_FORMAT, what, secrets.token_hex(8)
            self._db.execute("INSERT INTO run VALUES (?, ?, ?)", row)
        elif tuple(row[:2]) != (_JOURNAL_FORMAT, what):
            raise JournalError(
                f"{self.path} is the journal of another run ({row[1]}; this one: {what}); name "
                "another file, or remove it to start over."
            )
        self.token = str(row[2])
        """A random name of this run, which stays the same when the run is resumed."""

    def __len__(self) -> int:
        return int(self._db.execute("SELECT count(*) FROM done").fetchone()[0])


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
