"""Files of every earlier format of schedmate's databases are brought forward and keep their rows.

`fixtures/formats` has the first format of each that has changed since.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from schedmate.base.errors import InputError
from schedmate.base.journal import copy_database, upgrade
from schedmate.cluster.memory import STEPS, Memory
from schedmate.cluster.ray.store import Store as Queue
from schedmate.llm.store import Store as Ledger
from schedmate.retrieval.database import DATABASE
from schedmate.retrieval.history import JobHistory
from schedmate.serve.board import FILE, Board

FORMATS = Path(__file__).parent.parent / "fixtures" / "formats"


def history(path: Path) -> Any:
    path.rename(path.with_name(DATABASE))
    with JobHistory.open(path.parent) as store:
        job = store.get("17")
        assert job is not None
        return job.user, job.duration_s, store.count_unlearned()


def ledger(path: Path) -> Any:
    path.rename(path.with_name("llm.sqlite"))
    with closing(Ledger(path.parent)) as store:
        (call,) = store.calls()
        return call["job"], call["attempts"], call["sent"]


def memory(path: Path) -> Any:
    with Memory(path) as store:
        job = store.known("1@5")
        assert job is not None
        return job.estimate.duration_s, job.errors, store.ordering(), store.surely_given()


def queue(path: Path) -> Any:
    with Queue(path) as store:
        return [one.state for one in store.jobs()], [one.stop for one in store.runs_of(1)]


def board(path: Path) -> Any:
    path.rename(path.with_name(FILE))
    with closing(Board(path.parent)) as store:
        job = store.job("17")
        assert job is not None
        return job["user"], job["state"], store.readings("17")


@pytest.mark.parametrize(
    ("read", "found"),
    [
        (history, ("alice", 7.0, 1)),
        (ledger, ("17", 2, 2)),
        (memory, (5.0, "", {"1": (500, 0)}, {})),
        (queue, (["PENDING"], [""])),
        (board, ("alice", "RUNNING", [])),
    ],
)
def test_the_first_format_is_read(
    tmp_path: Path, read: Callable[[Path], Any], found: object
) -> None:
    path = tmp_path / "file.db"
    with closing(sqlite3.connect(path)) as database:
        database.executescript((FORMATS / f"{read.__name__}.sql").read_text())
    assert read(path) == found


def test_a_step_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "file.db")) as database:
        upgrade(database, "file.db", ("CREATE TABLE one (n);",))
        steps = ("", "CREATE TABLE two (n);\nCREATE TABLE three (n);", "nonsense;")
        with pytest.raises(sqlite3.OperationalError, match="nonsense"):
            upgrade(database, "file.db", steps)
        assert database.execute("SELECT name FROM sqlite_master").fetchall() == [("one",)]
        upgrade(database, "file.db", steps[:2])
        assert database.execute("PRAGMA user_version").fetchone() == (2,)


def test_a_file_of_a_newer_schedmate_is_refused(tmp_path: Path) -> None:
    Memory(tmp_path / "memory.db").close()
    with closing(sqlite3.connect(tmp_path / "memory.db")) as database:
        database.execute(f"PRAGMA user_version = {len(STEPS) + 1}")
    with pytest.raises(InputError, match="written by a newer schedmate"):
        Memory(tmp_path / "memory.db")


def test_a_copy_is_whole_while_the_file_is_in_use(tmp_path: Path) -> None:
    source, target = tmp_path / "a.db", tmp_path / "copies" / "b.db"
    with closing(sqlite3.connect(source)) as database:
        database.executescript(
            "PRAGMA journal_mode = WAL; CREATE TABLE t (n); INSERT INTO t VALUES (1);"
        )
        database.execute("INSERT INTO t VALUES (2)")  # not committed
        copy_database(source, target)
        with closing(sqlite3.connect(target)) as reader:
            assert reader.execute("SELECT n FROM t").fetchall() == [(1,)]
            database.commit()
            copy_database(source, target)  # into a file that others have open
            assert reader.execute("SELECT n FROM t").fetchall() == [(1,), (2,)]
    with pytest.raises(InputError, match="cannot copy"):
        copy_database(tmp_path / "none.db", target)
