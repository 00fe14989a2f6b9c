"""`JobHistory`: past jobs in SQLite, their vectors in FAISS.

SQLite (WAL) is the truth and holds the vectors as well; the FAISS index is derived from it and
catches up on every search. A process killed at any point loses nothing that was committed, and
table and index cannot disagree for longer than until the next search.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from schedmate.errors import InputError
from schedmate.jobs import JobRecord, JobState, WorkloadMetadata
from schedmate.retrieval.render import RENDERING_VERSION, render

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

    from schedmate.retrieval.embedders import Embedder
    from schedmate.retrieval.index import VectorIndex

SCHEMA_VERSION = 1
BATCH = 2_000
DATABASE = "history.db"


class HistoryError(InputError):
    """The history cannot be opened, read or searched."""


@dataclass(frozen=True, slots=True)
class Match:
    """A past job and how alike its rendering is: cosine similarity, at most 1."""

    record: JobRecord
    similarity: float
    exact: bool


JobRecords = list[JobRecord]
Matches = list[Match]
RowIds = list[int]


class JobHistory:
    """A directory with past jobs. Safe to share between threads, and between processes.

    Any number of processes may read while one writes; writers wait for each other.
    """

    def __init__(
        self, path: Path, connection: sqlite3.Connection, embedder: Embedder, read_only: bool
    ) -> None:
        self.path = path
        self.embedder = embedder
        self._db = connection
        self._read_only = read_only
        self._lock = threading.RLock()
        self._index: VectorIndex | None = None

    @classmethod
    def open(
        cls,
        path: Path,
        embedder: Embedder | None = None,
        create: bool = True,
        read_only: bool = False,
    ) -> JobHistory:
        """Open the history in a directory, made when `create` allows it.

        A history embedded by another embedder opens for everything but searching and adding,
        which say to run `schedmate history rebuild`. Raises `HistoryError`.
        """
        from schedmate.retrieval.embedders import load_embedder

        database = path / DATABASE
        if not database.exists() and (read_only or not create):
            raise HistoryError(
                f"{path}: there is no history; make one with `schedmate history import FILE`"
            )
        try:
            if not read_only:
                path.mkdir(parents=True, exist_ok=True, mode=0o700)
            connection = _connect(database, read_only)
        except (OSError, sqlite3.Error) as error:
            raise HistoryError(f"{database}: cannot be opened ({error})") from error
        history = cls(path, connection, embedder or load_embedder(), read_only)
        try:
            history._prepare()
        except sqlite3.Error as error:
            connection.close()
            raise HistoryError(
                f"{database}: not a readable history ({error}); restore a copy, or move it away "
                "and import again"
            ) from error
        except HistoryError:
            connection.close()
            raise
        return history

    def _prepare(self) -> None:
        if not self._read_only:
            self._db.executescript(
                resources.files(__package__).joinpath("schema.sql").read_text("utf-8")
            )
            with self._transaction():
                defaults = {"schema": str(SCHEMA_VERSION), "generation": "1", **self._wanted()}
                self._db.executemany(
                    "INSERT OR IGNORE INTO manifest VALUES (?, ?)", defaults.items()
                )
        version = int(self.manifest().get("schema", "0"))
        if version > SCHEMA_VERSION:
            raise HistoryError(
                f"{self.path}: written by a newer schedmate (format {version}, this one reads "
                f"{SCHEMA_VERSION}); upgrade schedmate"
            )

    def _wanted(self) -> dict[str, str]:
        return {
            "embedder": self.embedder.id,
            "dim": str(self.embedder.dim),
            "rendering": str(RENDERING_VERSION),
        }

    def manifest(self) -> dict[str, str]:
        """Format version, embedder id, dimension, rendering version and index generation."""
        with self._lock:
            return dict(self._db.execute("SELECT key, value FROM manifest").fetchall())

    def mismatch(self) -> str | None:
        """Why the stored vectors do not fit the embedder; None when they do."""
        held, wanted = self.manifest(), self._wanted()
        for key, name in (
            ("embedder", "embedder"),
            ("dim", "dimension"),
            ("rendering", "rendering"),
        ):
            if held.get(key) != wanted[key]:
                return (
                    f"{self.path}: its vectors were made with {name} {held.get(key)}, not "
                    f"{wanted[key]}; run `schedmate history rebuild`"
                )
        return None

    def _check(self) -> None:
        problem = self.mismatch()
        if problem is not None:
            raise HistoryError(problem)

    def close(self) -> None:
        """Save the index and release the files. May be repeated."""
        with self._lock:
            if self._index is not None and not self._read_only:
                self._index.save()
            self._index = None
            self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # -- writing ------------------------------------------------------------

    def add(self, record: JobRecord) -> None:
        """Store a job; one with the same id is replaced. On return it survives a crash."""
        self.add_many([record])

    def add_many(
        self, records: Iterable[JobRecord], on_progress: Callable[[int], None] | None = None
    ) -> int:
        """Store jobs in batches, each of them whole or not at all; returns how many."""
        self._check()
        total = 0
        batch: JobRecords = []
        for record in records:
            batch.append(record)
            if len(batch) >= BATCH:
                total += self._store(batch)
                batch = []
                if on_progress is not None:
                    on_progress(total)
        total += self._store(batch)
        if on_progress is not None:
            on_progress(total)
        return total

    def _store(self, batch: JobRecords) -> int:
        if not batch:
            return 0
        texts = [render(record.metadata) for record in batch]
        with self._transaction():
            ids = self._text_ids(texts)
            self._db.executemany(
                "INSERT OR REPLACE INTO jobs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [_row(record, ids[text]) for record, text in zip(batch, texts, strict=True)],
            )
        return len(batch)

    def _text_ids(self, texts: Sequence[str]) -> dict[str, int]:
        """Row ids of renderings, new ones embedded and stored."""
        found: dict[str, int] = {}
        missing: list[str] = []
        for text in dict.fromkeys(texts):
            row = self._db.execute("SELECT id FROM texts WHERE text = ?", (text,)).fetchone()
            if row is None:
                missing.append(text)
            else:
                found[text] = row[0]
        if missing:
            for text, vector in zip(missing, self.embedder.embed(missing), strict=True):
                cursor = self._db.execute(
                    "INSERT INTO texts (text, vector) VALUES (?, ?)", (text, vector.tobytes())
                )
                found[text] = int(cursor.lastrowid or 0)
        return found

    def finish(
        self,
        job_id: str,
        *,
        duration_s: float | None = None,
        end_time: float | None = None,
        state: JobState = "COMPLETED",
        **usage: Any,
    ) -> JobRecord:
        """Close a stored job: how long it ran [s], when it ended [s since epoch], how.

        `usage` are further fields of `JobRecord` (gpu_util, sm_util, gpu_mem_mb). Raises
        `HistoryError` for a job that is not stored.
        """
        with self._transaction():
            record = self.get(job_id)
            if record is None:
                raise HistoryError(
                    f"no job {job_id!r} in the history; "
                    "`schedmate history list` shows what there is"
                )
            if duration_s is None and end_time is not None and record.start_time is not None:
                duration_s = max(0.0, end_time - record.start_time)
            changes = {"duration_s": duration_s, "end_time": end_time, **usage}
            data = record.model_dump()
            data.update({key: value for key, value in changes.items() if value is not None})
            data["state"] = state
            finished = JobRecord.model_validate(data)
            self._store_one(finished)
        return finished

    def _store_one(self, record: JobRecord) -> None:
        text_id = self._db.execute(
            "SELECT text_id FROM jobs WHERE job_id = ?", (record.job_id,)
        ).fetchone()[0]
        self._db.execute(
            "INSERT OR REPLACE INTO jobs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            _row(record, text_id),
        )

    def rebuild(self, on_progress: Callable[[int, int], None] | None = None) -> int:
        """Render and embed every job anew with the present embedder; returns how many.

        One transaction: until it commits, readers see the old vectors.
        """
        total = len(self)
        done = 0
        with self._transaction():
            generation = int(self.manifest()["generation"]) + 1
            rows = self._db.execute("SELECT job_id, document FROM jobs").fetchall()
            self._db.execute("PRAGMA defer_foreign_keys = ON")
            self._db.execute("DELETE FROM texts")
            for start in range(0, len(rows), BATCH):
                chunk = rows[start : start + BATCH]
                records = [JobRecord.model_validate_json(document) for _, document in chunk]
                texts = [render(record.metadata) for record in records]
                ids = self._text_ids(texts)
                self._db.executemany(
                    "UPDATE jobs SET text_id = ?, fingerprint = ? WHERE job_id = ?",
                    [
                        (ids[text], record.metadata.fingerprint(), record.job_id)
                        for record, text in zip(records, texts, strict=True)
                    ],
                )
                done += len(chunk)
                if on_progress is not None:
                    on_progress(done, total)
            changed = {**self._wanted(), "generation": str(generation)}
            self._db.executemany("INSERT OR REPLACE INTO manifest VALUES (?, ?)", changed.items())
        with self._lock:
            self._index = None
            self._nearest().save()
        return done

    # -- reading ------------------------------------------------------------

    def __len__(self) -> int:
        with self._lock:
            return int(self._db.execute("SELECT count(*) FROM jobs").fetchone()[0])

    def get(self, job_id: str) -> JobRecord | None:
        """A job by id, None when it is not stored."""
        found = self._records("WHERE job_id = ?", (job_id,))
        return found[0] if found else None

    def list(
        self,
        limit: int | None = 50,
        offset: int = 0,
        state: str | None = None,
        user: str | None = None,
        text: str | None = None,
    ) -> JobRecords:
        """Jobs, the latest submitted first; `text` is looked for in names, ids and metadata."""
        clauses: list[str] = []
        values: list[Any] = []
        for column, value in (("state", state), ("user", user)):
            if value is not None:
                clauses.append(f"{column} = ?")
                values.append(value)
        if text is not None:
            clauses.append("instr(lower(document), lower(?)) > 0")
            values.append(text)
        where = f"WHERE {' AND '.join(clauses)} " if clauses else ""
        order = "ORDER BY submit_time DESC, job_id LIMIT ? OFFSET ?"
        return self._records(where + order, (*values, -1 if limit is None else limit, offset))

    def by_fingerprint(self, fingerprint: str) -> JobRecords:
        """Jobs with this fingerprint, the latest ended first."""
        return self._records("WHERE fingerprint = ? ORDER BY end_time DESC", (fingerprint,))

    def export(self) -> Iterator[JobRecord]:
        """Every job, in order of id."""
        last = ""
        while True:
            batch = self._records("WHERE job_id > ? ORDER BY job_id LIMIT ?", (last, BATCH))
            yield from batch
            if len(batch) < BATCH:
                return
            last = batch[-1].job_id

    def stats(self) -> dict[str, Any]:
        """Counts by state, distinct renderings and fingerprints, time span, and the manifest."""
        with self._lock:
            one = self._db.execute
            states = dict(one("SELECT state, count(*) FROM jobs GROUP BY state ORDER BY 2 DESC"))
            texts, prints = one(
                "SELECT (SELECT count(*) FROM texts), count(DISTINCT fingerprint) FROM jobs"
            ).fetchone()
            first, last = one("SELECT min(submit_time), max(submit_time) FROM jobs").fetchone()
        return {
            "jobs": sum(states.values()),
            "states": states,
            "workloads": texts,
            "fingerprints": prints,
            "first_submit_time": first,
            "last_submit_time": last,
            "manifest": self.manifest(),
        }

    def _records(self, where: str, values: tuple[Any, ...]) -> JobRecords:
        with self._lock:
            # `where` is written in this class; what users give is bound
            sql = f"SELECT document FROM jobs {where}"  # noqa: S608
            rows = self._db.execute(sql, values).fetchall()
        return [JobRecord.model_validate_json(row[0]) for row in rows]

    # -- searching ----------------------------------------------------------

    def search(
        self, metadata: WorkloadMetadata, k: int, threshold: float, ended_only: bool = True
    ) -> Matches:
        """The `k` most similar jobs with a cosine similarity of at least `threshold`.

        The most similar first, the latest ended first among equals. Raises `HistoryError` when
        the stored vectors are of another embedder.
        """
        self._check()
        text = render(metadata)
        if not text or k < 1:
            return []
        fingerprint = metadata.fingerprint()
        vector = self.embedder.embed([text])[0]
        matches: Matches = []
        with self._lock:
            index = self._nearest()
            looked: set[int] = set()
            wanted = k
            while len(matches) < k and len(looked) < len(index):
                near = index.search(vector, wanted)
                for text_id, similarity in near:
                    if text_id in looked:
                        continue
                    looked.add(text_id)
                    if similarity < threshold or len(matches) >= k:
                        return matches
                    matches.extend(
                        Match(
                            record,
                            min(1.0, similarity),
                            record.metadata.fingerprint() == fingerprint,
                        )
                        for record in self._of_text(text_id, k - len(matches), ended_only)
                    )
                if len(near) < wanted:
                    break
                wanted *= 4
        return matches

    def _of_text(self, text_id: int, limit: int, ended_only: bool) -> JobRecords:
        ended = "AND ended = 1 " if ended_only else ""
        return self._records(
            f"WHERE text_id = ? {ended}ORDER BY end_time DESC LIMIT ?", (text_id, limit)
        )

    def _nearest(self) -> VectorIndex:
        """The index, with every committed vector in it."""
        from schedmate.retrieval.index import VectorIndex

        generation = int(self.manifest()["generation"])
        if self._index is None or self._index.generation != generation:
            self._index = VectorIndex(self.path, self.embedder.dim, generation, self._read_only)
        self._index.update(self._vectors_after)
        return self._index

    def _vectors_after(self, last_id: int) -> tuple[RowIds, NDArray[float32]]:
        import numpy as np

        rows = self._db.execute(
            "SELECT id, vector FROM texts WHERE id > ? ORDER BY id LIMIT 50000", (last_id,)
        ).fetchall()
        ids = [row[0] for row in rows]
        data = np.frombuffer(b"".join(row[1] for row in rows), dtype=np.float32)
        return ids, data.reshape(len(ids), self.embedder.dim)

    # -- transactions -------------------------------------------------------

    def _transaction(self) -> _Transaction:
        if self._read_only:
            raise HistoryError(f"{self.path}: opened read-only")
        return _Transaction(self._db, self._lock)


class _Transaction:
    """`BEGIN IMMEDIATE` to COMMIT or ROLLBACK, one thread at a time; inner ones join the outer."""

    def __init__(self, connection: sqlite3.Connection, lock: threading.RLock) -> None:
        self._db = connection
        self._lock = lock
        self._outer = False

    def __enter__(self) -> None:
        self._lock.acquire()
        try:
            self._outer = not self._db.in_transaction
            if self._outer:
                self._db.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            self._lock.release()
            raise HistoryError(f"the history cannot be written ({error})") from error

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if self._outer:
                self._db.execute("COMMIT" if error is None else "ROLLBACK")
        finally:
            self._lock.release()


def _connect(database: Path, read_only: bool) -> sqlite3.Connection:
    if not read_only:
        database.touch(mode=0o600, exist_ok=True)
    mode = "ro" if read_only else "rwc"
    connection = sqlite3.connect(
        f"{database.resolve().as_uri()}?mode={mode}",
        uri=True,
        timeout=30.0,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        if not read_only:
            connection.execute("PRAGMA journal_mode = WAL")
            # a committed job survives a power cut as well, not only the process's end
            connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _row(record: JobRecord, text_id: int) -> tuple[Any, ...]:
    return (
        record.job_id,
        text_id,
        record.metadata.fingerprint(),
        record.state,
        int(record.ended),
        record.user,
        record.name,
        record.submit_time,
        record.end_time,
        record.model_dump_json(by_alias=True, exclude_none=True),
    )
