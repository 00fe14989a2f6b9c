"""An append-only SQLite file whose rows are chained by hashes; `record.py` defines its meaning.

Any number of processes of one machine write it: each transaction takes the write lock first, so
that what it reads cannot change before it writes. Committed data survives killed processes and
power cuts. Times of rows are `Instant`s, whose age stays correct when the clock is set.
"""

from __future__ import annotations

import hmac
import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from schedmate.base.data import plain
from schedmate.base.errors import ActionError, InputError
from schedmate.base.journal import Connection, copy_database
from schedmate.base.reading import is_secret, open_binary
from schedmate.retrieval.database import locked, network_filesystem


class Instant(NamedTuple):
    """A point in time on this machine."""

    time: float
    """Time of day [s since epoch]."""
    boot: str
    """The boot that it belongs to; empty where the system does not say."""
    uptime: float
    """Time since that boot [s]."""

    def age(self, now: Instant) -> float:
        """How long ago this was [s], never less than zero."""
        if self.boot and self.boot == now.boot:
            return max(0.0, now.uptime - self.uptime)
        return max(0.0, now.time - self.time)


def instant_now() -> Instant:
    """The present instant of this machine: wall clock, boot id and time since boot."""
    return Instant(time.time(), _boot_id(), time.clock_gettime(time.CLOCK_BOOTTIME))


@cache
def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""


# An append-only SQLite file whose rows are chained by hashes; `record.py` defines its meaning.
#
# Any number of processes of one machine write it: each transaction takes the write lock first, so
# that what it reads cannot change before it writes. Committed data survives the end of the process
# and of the machine.


APPLICATION_ID = 0x53434D52
"""Marks a SQLite file as a record of this program."""
SCHEMA_VERSION = 2
"""A record from which nothing was moved into an archive is of version 1, which reads the same."""
ROTATED = "rotated"
"""Kind of the entry which says that the entries before `first` are in `archive`."""
BUSY_S = 30.0
"""How long a writer waits for another one [s]."""
LEAST_KEY, MOST_KEY = 16, 4096
"""Length of the key of a record [bytes]."""
GENESIS = "0" * 64
"""The hash before the first entry."""


class RecordError(InputError):
    """The record cannot be opened, read or written; nothing was recorded."""


class BrokenRecordError(ActionError):
    """The record is not what was written; nothing in it is carried out."""


class Entry(NamedTuple):
    """One row of the record."""

    seq: int
    """1, 2, 3 ... without gaps."""
    at: Instant
    kind: str
    about: str
    """The id of a plan, or the subject of an observation."""
    actor: str
    """The author: a person's name, `agent`, `policy: ...`."""
    body: dict[str, Any]
    hash: str


class Verified(NamedTuple):
    """Result of a check of the chain: `broken` describes the fault and its place, or is None."""

    entries: int
    """The number of the last entry, those in archives included."""
    head: str
    broken: str | None


class _Origin(NamedTuple):
    """Where the chain in the file begins."""

    first: int = 1
    before: str = GENESIS
    """The hash of the entry before that one."""
    archive: str = ""


class Journal:
    """The file. Raises `RecordError` for everything that SQLite, the disk or the file refuses."""

    def __init__(
        self,
        path: Path,
        *,
        read_only: bool = False,
        now: Callable[[], Instant] = instant_now,
    ) -> None:
        """The file at `path`, made if it is not there; the setting `record_key` keys its chain."""
        self.path, self.read_only, self.now = path, read_only, now
        self._lock, self._depth = threading.RLock(), 0
        self._intact: int | None = None
        self._key = _record_key()
        with self._explained():
            self._db = self._open()
        try:
            with self._explained():
                self._prepare()
        except BaseException:
            self._db.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the file; may be repeated."""
        with self._lock:
            self._db.close()

    def _open(self) -> sqlite3.Connection:
        if self.read_only:
            if not self.path.is_file():
                raise RecordError(
                    f"{self.path}: no record yet; `schedmate recover plan` begins one"
                )
        else:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.path.touch(mode=0o600, exist_ok=True)
        return sqlite3.connect(
            f"{self.path.resolve().as_uri()}?mode={'ro' if self.read_only else 'rw'}",
            uri=True,
            timeout=BUSY_S,
            isolation_level=None,
            check_same_thread=False,
            factory=Connection,
        )

    def _prepare(self) -> None:
        version = self._version()
        if not version and self.read_only:
            raise RecordError(f"{self.path}: an empty file, not a record")
        if not version:
            with locked(self.path.with_name(self.path.name + ".lock"), wait=True):
                if not self._version():
                    self._make()
        if not self.read_only:
            # an intent must outlive a power cut, or an action could be taken twice after it
            self._db.execute("PRAGMA synchronous = EXTRA")

    def _version(self) -> int:
        tables = int(self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
        marked = int(self._db.execute("PRAGMA application_id").fetchone()[0])
        version = int(self._db.execute("PRAGMA user_version").fetchone()[0])
        if tables and marked != APPLICATION_ID:
            raise RecordError(f"{self.path}: a database, but not a record of schedmate")
        if version > SCHEMA_VERSION:
            raise RecordError(f"{self.path}: written by a newer schedmate; upgrade this one")
        return version

    def _make(self) -> None:
        if network_filesystem(self.path.parent) is None:
            # elsewhere a rollback journal works, for processes of one machine
            with suppress(sqlite3.OperationalError):
                self._db.execute("PRAGMA journal_mode = WAL")
        script = Path(__file__).with_name("record.sql").read_text("utf-8")
        marks = f"PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version=1;"
        self._db.executescript(script.replace("COMMIT;", f"{marks}\nCOMMIT;"))

    def _digest(self, before: str, row: Sequence[Any]) -> str:
        text = json.dumps([before, *row]).encode()
        if self._key is None:
            return sha256(text).hexdigest()
        return hmac.new(self._key, text, sha256).hexdigest()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """A transaction, atomic for every process; blocks may be nested.

        An exception inside rolls back all of it.
        """
        if self.read_only:
            raise RecordError(f"{self.path}: opened for reading only")
        with self._lock:
            if self._depth == 0:
                with self._explained():
                    self._db.execute("BEGIN IMMEDIATE")
            self._depth += 1
            try:
                yield
                if self._depth == 1:
                    with self._explained():
                        self._db.execute("COMMIT")
            finally:
                self._depth -= 1
                if self._depth == 0 and self._db.in_transaction:
                    self._db.execute("ROLLBACK")

    def append(self, kind: str, about: str, actor: str, body: dict[str, Any]) -> Entry:
        """Add one row, in a `writing` block; it is there for good when that ends."""
        text = canonical(body)
        last = self.rows("SELECT seq, hash FROM entries ORDER BY seq DESC LIMIT 1")
        seq, before = (int(last[0][0]) + 1, str(last[0][1])) if last else (1, GENESIS)
        at = self.now()
        kind, about, actor = (plain(kind), plain(about), plain(actor))
        digest = self._digest(before, (seq, *at, kind, about, actor, text))
        self.change(
            "INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (seq, *at, kind, about, actor, text, digest),
        )
        return Entry(seq, at, kind, about, actor, json.loads(text), digest)

    def change(self, sql: str, values: Sequence[Any] = ()) -> int:
        """Execute a statement inside a `writing` block; return the number of rows it changed."""
        with self._lock, self._explained():
            return self._db.execute(sql, values).rowcount

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a SELECT."""
        with self._lock, self._explained():
            return self._db.execute(sql, values).fetchall()

    def entries(
        self, *, after: int = 0, about: str | None = None, kind: str | None = None
    ) -> Iterator[Entry]:
        """The rows past a number, oldest first; those about a subject, or of a kind, if named."""
        while True:
            rows = self.rows(
                "SELECT * FROM entries WHERE seq > ? AND (? IS NULL OR about = ?) "
                "AND (? IS NULL OR kind = ?) ORDER BY seq LIMIT 500",
                (after, about, about, kind, kind),
            )
            for row in rows:
                with self.parsing(row[0]):
                    entry = entry_of(row)
                yield entry
            if len(rows) < 500:
                return
            after = int(rows[-1][0])

    def head(self) -> tuple[int, str]:
        """Number and hash of the last row: kept elsewhere, they prove that none was cut off."""
        rows = self.rows("SELECT seq, hash FROM entries ORDER BY seq DESC LIMIT 1")
        return (int(rows[0][0]), str(rows[0][1])) if rows else (0, GENESIS)

    def verify(self, checkpoint: tuple[int, str] | None = None) -> Verified:
        """Verify the whole chain; no text of an entry is parsed.

        `checkpoint`: a `head` stored elsewhere that it must contain.
        """
        broken: str | None = None
        try:
            first, before, archive = self._origin()
        except (BrokenRecordError, RecordError) as error:
            return Verified(0, GENESIS, str(error))
        count = first - 1
        if checkpoint is not None and checkpoint[0] <= count and checkpoint != (count, before):
            broken = f"entry {checkpoint[0]} is in {archive}; verify that file with it"
            return Verified(count, before, broken)
        rows = self._chain()
        while True:
            try:
                entry = next(rows, None)
            except RecordError as error:  # text that is no UTF-8, a damaged page
                return Verified(count, before, f"entry {count + 1} cannot be read: {error}")
            if entry is None:
                break
            *row, digest = entry
            count += 1
            if row[0] != count:
                broken = f"entry {count} is missing"
            elif not _is_row(row) or digest != self._digest(before, row):
                broken = f"entry {count} is not what was written"
            elif checkpoint is not None and count == checkpoint[0] and digest != checkpoint[1]:
                broken = f"entry {count} is not the one that was known"
            if broken:
                return Verified(count, before, broken)
            before = str(digest)
        if checkpoint is not None and checkpoint[0] > count:
            broken = f"it ends at entry {count}, and {checkpoint[0]} were known"
        return Verified(count, before, broken)

    def _origin(self) -> _Origin:
        """Where the chain begins: said by an entry of the chain, so that nobody without the key of
        the record can move it."""
        for number, body in self.rows(
            "SELECT seq, body FROM entries WHERE kind = ? ORDER BY seq DESC LIMIT 1", (ROTATED,)
        ):
            with self.parsing(number):
                told = json.loads(body)
                return _Origin(int(told["first"]), str(told["before"]), str(told["archive"]))
        return _Origin()

    def archive_before(self, first: int, *, by: str) -> Path:
        """Move the entries before number `first` into an archive beside the file; its path.

        The archive is a whole copy of the record, which is verified before anything is deleted
        here, and verifies by itself for good; the chain in this file goes on from it. Other
        processes may use the record meanwhile. In a `writing` block, so that the caller deletes
        what it derived from those entries in the same transaction.
        """
        self.ensure_intact()
        origin = self._origin()
        (row,) = self.rows("SELECT hash FROM entries WHERE seq = ?", (first - 1,))
        name = f"{self.path.stem}-{origin.first:09d}-{first - 1:09d}{self.path.suffix}"
        archive = self.path.with_name(name)
        unfinished = archive.with_name(f".{archive.name}.part")
        unfinished.unlink(missing_ok=True)
        copy_database(self.path, unfinished)
        with Journal(unfinished) as copy:
            copy.change("PRAGMA journal_mode = DELETE")
            broken = Journal.verify(copy).broken
        if broken is not None:
            raise RecordError(f"{unfinished}: the copy of the record is not whole: {broken}")
        with unfinished.open("rb") as stream:
            os.fsync(stream.fileno())
        unfinished.chmod(0o400)
        unfinished.rename(archive)
        with self._unlocked():
            self.change("DELETE FROM entries WHERE seq < ?", (first,))
        self.change(f"PRAGMA user_version = {SCHEMA_VERSION}")
        told = {"first": first, "before": row[0], "archive": archive.name}
        self.append(ROTATED, "record", by, told)
        return archive

    @contextmanager
    def _unlocked(self) -> Iterator[None]:
        """Without the trigger that forbids deletion, in the transaction that is open."""
        ((script,),) = self.rows("SELECT sql FROM sqlite_master WHERE name = 'entries_remain'")
        self.change("DROP TRIGGER entries_remain")
        yield
        self.change(script)

    def shrink(self) -> None:
        """Give the room of deleted entries back to the disk, unless others use the file now."""
        with suppress(RecordError):
            self.change("VACUUM")

    def ensure_intact(self) -> None:
        """Raise `BrokenRecordError` unless the record is as it was written (`verify`).

        What only this process has written since the last time is not verified again.
        """
        with self._lock:
            (version,) = self.rows("PRAGMA data_version")[0]  # changes as others write
            if version == self._intact:
                return
            broken = self.verify().broken
            if broken is not None:
                raise BrokenRecordError(
                    f"{self.path} was changed by something else than schedmate, or has another "
                    f"key: {broken}; nothing in it is carried out. Restore a copy of it, or move "
                    "it away to begin a new one."
                )
            self._intact = version

    def _chain(self) -> Iterator[tuple[Any, ...]]:
        after = 0
        while rows := self.rows(
            "SELECT * FROM entries WHERE seq > ? ORDER BY seq LIMIT 500", (after,)
        ):
            yield from rows
            after = int(rows[-1][0])

    @contextmanager
    def parsing(self, number: object) -> Iterator[None]:
        """Parse what an entry has; what schedmate never wrote is a `BrokenRecordError`."""
        try:
            yield
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise BrokenRecordError(
                f"{self.path}: entry {number} is none of schedmate's; `schedmate recover status "
                "--verify` checks the record."
            ) from None

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise RecordError(f"{self.path}: {_advice(error)}") from error
        except OSError as error:
            reason = error.strerror or error
            raise RecordError(
                f"{self.path}: cannot be opened or written ({reason}); check the rights of its "
                f"directory, or name another one."
            ) from error
        except sqlite3.DatabaseError as error:
            raise RecordError(
                f"{self.path}: cannot be used as a record ({error}); restore a copy, or move it "
                f"away to begin a new one"
            ) from error


def entry_of(row: Sequence[Any]) -> Entry:
    """An entry from all columns of its row."""
    seq, time, boot, uptime, kind, about, actor, body, digest = row
    return Entry(seq, Instant(time, boot, uptime), kind, about, actor, json.loads(body), digest)


def canonical(body: dict[str, Any]) -> str:
    """The text of a body, as it is written and as its digest is taken."""
    return json.dumps(plain(body), sort_keys=True, separators=(",", ":"), allow_nan=False)


def _is_row(row: Sequence[Any]) -> bool:
    """Whether the columns have the types that were written: others have no digest."""
    seq, time, boot, uptime, *texts = row
    return (
        isinstance(seq, int)
        and isinstance(time, float)
        and isinstance(uptime, float)
        and all(isinstance(text, str) for text in (boot, *texts))
    )


def _record_key() -> bytes | None:
    """The key of the chain, from the file that the setting `record_key` names."""
    from schedmate.settings import load_settings

    place = load_settings().record_key
    if place is None:
        return None
    try:
        with open_binary(place) as stream:
            status = os.fstat(stream.fileno())
            key = stream.read(MOST_KEY)
    except OSError as error:
        raise RecordError(
            f"cannot read the record's key {place}: {error.strerror or error}; correct the setting "
            "record_key."
        ) from None
    if not is_secret(status):
        raise RecordError(f"{place} may be read by others; give it to yourself and `chmod 600` it.")
    if len(key) < LEAST_KEY:
        raise RecordError(
            f"{place} has {len(key)} bytes, a key needs {LEAST_KEY}; "
            f"`head -c 32 /dev/urandom > {place}` makes one."
        )
    return key


def _advice(error: sqlite3.OperationalError) -> str:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return f"another process has been writing for over {BUSY_S:.0f} s; try again later"
    if code == sqlite3.SQLITE_FULL:
        return "the disk is full, nothing was done; make room and run this again"
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return f"cannot be opened or written ({error}); check the rights of its directory"
    return f"the database failed ({error})"
