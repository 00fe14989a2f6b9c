"""The history's SQLite file: opens it safely, lets one process write at a time, explains errors.

It also tells which file system the history lies on, and locks in a way that works on all of them.
"""

from __future__ import annotations

import fcntl
import os
import re
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from importlib import resources
from pathlib import Path
from typing import Any

from schedmate.base.errors import InputError
from schedmate.base.journal import Connection

DATABASE = "history.db"
LOCK = "history.lock"
"""Held while the tables are made."""
SCHEMA_VERSION = 3
"""1 lacked what experts learn from, and indexes of runs; 2 lacked the times of errors in what they
learned. `schema.sql` adds what is missing and has everything learned anew."""
APPLICATION_ID = 0x5343484D
"""Marks a SQLite file as a history of this program (`file history.db` shows it)."""
PAGE = 8192
"""Bytes of a page: three vectors of 2 kB fit in one, where 4096 bytes would waste half."""
BUSY_S = 30.0
"""How long a writer waits for another one [s]."""


class HistoryError(InputError):
    """The history cannot be opened, read, written or searched."""


class Database:
    """One connection, shared between threads by a lock.

    WAL mode: any number of processes read while one writes, and what is committed survives both
    the end of the process and of the machine. WAL needs memory that all processes share, which
    those of several machines do not: on a network file system (`network` is its type) a rollback
    journal takes its place, and readers and the writer wait for each other. Every error of SQLite
    leaves as a `HistoryError`.
    """

    def __init__(self, folder: Path, *, read_only: bool) -> None:
        self.folder = folder
        self.path = folder / DATABASE
        self.read_only = read_only
        self.network = network_filesystem(folder)
        self._lock = threading.RLock()
        self._closed = False
        with self._readable():
            self._db = _connect(self.path, read_only, shared=self.network is not None)
        try:
            with self._readable():
                self._prepare()
        except BaseException:
            self._db.close()
            raise

    def _prepare(self) -> None:
        version = self._version()
        if self.read_only:
            if not version:
                raise missing_history(self.folder)
            return
        if version < SCHEMA_VERSION:
            self._make()
        if self.network is None:
            # also for one that was once on a network; in use it keeps its mode, which is safe too
            with suppress(sqlite3.OperationalError):
                self._db.execute("PRAGMA journal_mode = WAL")
        # a committed job survives a power cut as well, not only the end of the process
        self._db.execute("PRAGMA synchronous = EXTRA")
        self._db.execute("PRAGMA foreign_keys = ON")

    def _version(self) -> int:
        """The version of the format, 0 for an empty file; raises `HistoryError` for others."""
        # in this order: the mark is there as soon as the tables are
        tables = int(self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
        marked = int(self._db.execute("PRAGMA application_id").fetchone()[0])
        version = int(self._db.execute("PRAGMA user_version").fetchone()[0])
        if tables and marked != APPLICATION_ID:
            raise HistoryError(f"{self.path}: a database, but not a history made by schedmate")
        if version > SCHEMA_VERSION:
            raise HistoryError(
                f"{self.path}: written by a newer schedmate (format {version}, this one reads "
                f"{SCHEMA_VERSION}); upgrade schedmate"
            )
        return version

    def _make(self) -> None:
        """Make the tables and indexes that are missing; one process at a time, since SQLite does
        not wait to enter WAL mode."""
        with locked(self.folder / LOCK, wait=True):
            if self._version() == SCHEMA_VERSION:
                return
            self._db.execute(f"PRAGMA page_size = {PAGE}")
            if self.network is None:
                self._db.execute("PRAGMA journal_mode = WAL")
            script = resources.files(__package__).joinpath("schema.sql").read_text("utf-8")
            marks = (
                f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {SCHEMA_VERSION};"
            )
            self._db.executescript(script.replace("COMMIT;", f"{marks}\nCOMMIT;"))

    def close(self) -> None:
        """Release the file. May be repeated."""
        with self._lock:
            self._closed = True
            self._db.close()

    def journal(self) -> str:
        """How SQLite keeps commits whole: `wal`, or `delete` for a rollback journal."""
        return str(self.query("PRAGMA journal_mode")[0][0])

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a SELECT."""
        with self._lock, self._readable():
            return self._db.execute(sql, values).fetchall()

    def execute(self, sql: str, values: Sequence[Any] = ()) -> int:
        """One statement of a `writing` block; returns the number of rows it changed."""
        with self._lock, self._readable():
            return self._db.execute(sql, values).rowcount

    def execute_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """One statement for many rows, in a `writing` block."""
        with self._lock, self._readable():
            self._db.executemany(sql, rows)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """All statements inside are committed together at its end, or none is."""
        if self.read_only:
            raise HistoryError(f"{self.folder}: opened for reading only")
        with self._transaction("BEGIN IMMEDIATE"):
            yield

    @contextmanager
    def reading(self) -> Iterator[None]:
        """All queries inside see the same state, whatever other processes commit meanwhile."""
        with self._transaction("BEGIN"):
            yield

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[None]:
        with self._lock:
            with self._readable():
                self._db.execute(begin)
            try:
                yield
                with self._readable():
                    self._db.execute("COMMIT")
            finally:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")

    @contextmanager
    def _readable(self) -> Iterator[None]:
        """Turn SQLite's errors into sentences that say what to do."""
        try:
            yield
        except sqlite3.ProgrammingError as error:
            if self._closed:
                raise HistoryError(f"{self.folder}: this history has been closed") from error
            raise
        except sqlite3.OperationalError as error:
            raise HistoryError(f"{self.path}: {_advice(error)}") from error
        except PermissionError as error:
            raise HistoryError(
                f"{self.path}: may not be read; check its owner and rights"
            ) from error
        except (sqlite3.DatabaseError, OSError) as error:
            raise HistoryError(
                f"{self.path}: cannot be read as a history ({error}); restore a copy, or move "
                "it away and import the jobs again"
            ) from error


def missing_history(folder: Path) -> HistoryError:
    """The error for a directory without a history."""
    return HistoryError(
        f"{folder}: there is no history; make one with `schedmate history import FILE`"
    )


_NO_SHARED_MEMORY = (
    sqlite3.SQLITE_IOERR_SHMOPEN,
    sqlite3.SQLITE_IOERR_SHMSIZE,
    sqlite3.SQLITE_IOERR_SHMLOCK,
    sqlite3.SQLITE_IOERR_SHMMAP,
)
"""What WAL fails with on a file system that is not known to be one of a network."""


def _advice(error: sqlite3.OperationalError) -> str:
    extended = getattr(error, "sqlite_errorcode", 0)
    code = extended & 0xFF
    if extended in _NO_SHARED_MEMORY:
        return (
            f"its file system cannot share memory between processes ({error}); move the history "
            "to a local disk"
        )
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return f"another process has been writing for over {BUSY_S:.0f} s; try again later"
    if code == sqlite3.SQLITE_FULL:
        return "the disk is full; make room and run this again, nothing stored is lost"
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return f"cannot be opened or written ({error}); check the rights of its directory"
    return f"the database failed ({error}); `schedmate doctor` checks it"


def _connect(path: Path, read_only: bool, shared: bool) -> sqlite3.Connection:
    if not read_only:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch(mode=0o600, exist_ok=True)
    if shared and path.exists() and os.access(path.parent, os.W_OK):
        _leave_wal(path)
    if not read_only:
        return _open(path, "mode=rw")
    try:
        connection = _open(path, "mode=ro")
    except sqlite3.OperationalError:
        # A directory that cannot be written has no place for the file that readers and a writer
        # share. Where no writer can be at work either, the database is read as it lies there.
        if path.with_name(path.name + "-wal").exists():
            raise
        connection = _open(path, "mode=ro&immutable=1")
    return connection


def _leave_wal(path: Path) -> None:
    """Give a database that came from a local disk a rollback journal, and roll back what a killed
    writer left in one, which a reader may not."""
    with closing(_open(path, "mode=rw", "PRAGMA locking_mode = EXCLUSIVE")) as connection:
        # alone, SQLite reads WAL without the shared memory that does not work here
        if connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal":
            connection.execute("PRAGMA journal_mode = DELETE")


def _open(path: Path, options: str, before: str = "") -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.resolve().as_uri()}?{options}",
        uri=True,
        timeout=BUSY_S,
        isolation_level=None,
        check_same_thread=False,
        factory=Connection,
    )
    try:
        connection.execute(before)
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.Error:
        connection.close()
        raise
    return connection


# The file system that a history lies on, and a lock that works on all of them.


MOUNTS = Path("/proc/self/mountinfo")
"""What is mounted where, see proc_pid_mountinfo(5); where it is missing, all counts as local."""

NETWORK = frozenset(
    (
        *("9p", "afs", "beegfs", "ceph", "cifs", "coda", "gfs2", "glusterfs", "gpfs", "lustre"),
        *("ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "panfs", "pvfs2", "smb2", "smb3", "smbfs"),
        *("virtiofs", "wekafs"),
    )
)
"""Types of file system that several machines can share. `fuse.*` counts as well."""
LOCAL_FUSE = frozenset({"fuse.fuse-overlayfs", "fuse.lxcfs", "fuse.portal"})


def network_filesystem(folder: Path) -> str | None:
    """The type of the file system of a directory when several machines can share it, else None."""
    try:
        mounts = MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
        place = folder.resolve()
    except OSError:
        return None
    best, kind = -1, ""
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split()
        if len(fields) < 5 or not after:
            continue
        point = Path(re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), fields[4]))
        # the last one mounted on a place hides the others
        if place.is_relative_to(point) and len(point.parts) >= best:
            best, kind = len(point.parts), after.split()[0]
    shared = kind in NETWORK or (kind.partition(".")[0] == "fuse" and kind not in LOCAL_FUSE)
    return kind if shared else None


@contextmanager
def locked(path: Path, *, wait: bool) -> Iterator[bool]:
    """Hold the lock file `path`, one process at a time; gives False when another does, unless
    `wait`. The end of the process releases it."""
    # opened for writing: a network file system locks no other file, and no directory
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(file)
