"""The ledger: verdicts by content, so that a killed batch can be resumed."""

from __future__ import annotations

import time
from array import array
from bisect import bisect_left
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from schedmate.errors import InputError
from schedmate.logparse.triage.targets import Target
from schedmate.logparse.triage.work import Outcome, version
from schedmate.plain import encodable
from schedmate.scale.owned import OwnedFile

SIZE = 32
"""Bytes of a content digest."""


class LedgerError(InputError):
    """The ledger cannot be used."""


class Seen(NamedTuple):
    """A template that no earlier batch showed, and where it was seen first."""

    text: str
    log: str
    line: int


class Cause(NamedTuple):
    """A root cause of a batch: its group, how many jobs it failed, and an example."""

    id: str
    jobs: int
    log: str
    line: int | None


class Past(NamedTuple):
    """What earlier batches showed of a root cause; the example is from the last one."""

    batches: int
    jobs: int
    last: float
    """When that batch ended [s since epoch]."""
    log: str
    line: int | None


class Contents:
    """A compact set of content digests, small enough to send a million to each process."""

    def __init__(self, ordered: Iterable[bytes] = ()) -> None:
        self._packed = b"".join(ordered)

    def __len__(self) -> int:
        return len(self._packed) // SIZE

    def __contains__(self, content: object) -> bool:
        if not isinstance(content, bytes):
            return False
        low = bisect_left(range(len(self)), content, key=self._at)
        return low < len(self) and self._at(low) == content

    def _at(self, place: int) -> bytes:
        return self._packed[place * SIZE : (place + 1) * SIZE]


class Ledger(OwnedFile):
    """A SQLite file with a rollback journal; one process at a time uses it.

    An unfinished batch of the same `source` is resumed, and the templates it added still count as
    new. Two batches in one ledger would each count the other's. Raises `LedgerError`.
    """

    error = LedgerError
    noun = "ledger"
    busy = "another triage is using it"
    instead = "name another file with --ledger"

    def __init__(self, path: Path | None, source: str) -> None:
        self._source = encodable(source)
        if path is not None:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                self.path = path
                raise self._unusable(error) from None
        super().__init__(path)

    def _prepare(self) -> None:
        for statement in _schema():
            self._db.execute(statement)
        self._db.execute("DELETE FROM verdict WHERE version <> ?", (version(),))
        self.batch = self._begin_batch(self._source)

    def _begin_batch(self, source: str) -> int:
        row = self._db.execute("SELECT id, source, finished FROM batch ORDER BY id DESC").fetchone()
        if row is not None and row[1] == source and row[2] is None:
            return int(row[0])
        self._db.execute("DELETE FROM done")
        statement = "INSERT INTO batch (source, started) VALUES (?, ?)"
        return int(self._db.execute(statement, (source, time.time())).lastrowid or 0)

    def known(self) -> Contents:
        """Digests of the contents that have a verdict."""
        rows = self._db.execute("SELECT content FROM verdict ORDER BY content")
        return Contents(row[0] for row in rows)

    def has(self, content: bytes) -> bool:
        """Whether a content has a verdict."""
        row = self._db.execute("SELECT 1 FROM verdict WHERE content = ?", (content,)).fetchone()
        return row is not None

    def get(self, key: str) -> str | None:
        """The note about a log of this batch, or None if it has not been read."""
        row = self._db.execute("SELECT result FROM done WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def note(self, key: str, result: str) -> None:
        """Record that a log of this batch has been read, so that it is not read again."""
        self._store("INSERT OR REPLACE INTO done VALUES (?, ?)", (key, result))

    def verdict(self, content: bytes) -> tuple[str, array[int]]:
        """The diagnosis (JSON) of a known content, and the numbers of its templates."""
        row = self._db.execute(
            "SELECT document, templates FROM verdict WHERE content = ?", (content,)
        ).fetchone()
        numbers = array("q")
        numbers.frombytes(row[1])
        return str(row[0]), numbers

    def put(self, target: Target, outcome: Outcome) -> array[int]:
        """Store a verdict; returns the numbers of its templates."""
        numbers = array("q", [template.number for template in outcome.templates])
        self._begin_changes()
        self._db.executemany(
            "INSERT OR IGNORE INTO template VALUES (?, ?, ?, ?, ?)",
            [
                (one.number, one.text, self.batch, target.name, one.line)
                for one in outcome.templates
            ],
        )
        self._store(
            "INSERT OR REPLACE INTO verdict VALUES (?, ?, ?, ?)",
            (outcome.content, version(), outcome.document, numbers.tobytes()),
        )
        return numbers

    def new_templates(self) -> dict[int, Seen]:
        """The templates that no earlier batch showed, by number."""
        rows = self._db.execute(
            "SELECT id, text, log, line FROM template WHERE batch = ?", (self.batch,)
        )
        return {row[0]: Seen(*row[1:]) for row in rows}

    def earlier(self) -> tuple[int, int]:
        """How many batches came before this one, and how many templates they showed."""
        batches = self._db.execute(
            "SELECT count(*) FROM batch WHERE id < ? AND finished IS NOT NULL", (self.batch,)
        ).fetchone()[0]
        templates = self._db.execute(
            "SELECT count(*) FROM template WHERE batch < ?", (self.batch,)
        ).fetchone()[0]
        return int(batches), int(templates)

    def causes(self) -> dict[str, Past]:
        """The root causes of earlier batches, by group."""
        rows = self._db.execute(
            # the columns beside max() are those of its row
            "SELECT cause.id, count(*), sum(jobs), max(finished), log, line FROM cause "
            "JOIN batch ON batch.id = cause.batch WHERE batch < ? AND finished IS NOT NULL "
            "GROUP BY cause.id",
            (self.batch,),
        )
        return {row[0]: Past(*row[1:]) for row in rows}

    def finish(self, causes: Iterable[Cause] = ()) -> None:
        """End the batch: its templates and causes count as known from now on."""
        self._commit()
        self._db.execute("BEGIN IMMEDIATE")
        self._db.executemany(
            "INSERT OR REPLACE INTO cause VALUES (?, ?, ?, ?, ?)",
            [(one.id, self.batch, one.jobs, one.log, one.line) for one in causes],
        )
        self._db.execute("UPDATE batch SET finished = ? WHERE id = ?", (time.time(), self.batch))
        self._db.execute("DELETE FROM done")
        self._db.execute("COMMIT")


def _schema() -> list[str]:
    text = (Path(__file__).parent / "ledger.sql").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("--")]
    return [part for part in "\n".join(lines).split(";") if part.strip()]
