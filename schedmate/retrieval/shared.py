"""`SharedHistory`: a history in PostgreSQL with pgvector, read from a copy on this machine.

`Remote` is the database: what is written there, and what has changed since the copy.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from schedmate.base.data import encodable
from schedmate.base.errors import require
from schedmate.base.files import Place, is_remote, without_query
from schedmate.jobs import JobRecord, JobState
from schedmate.retrieval import table
from schedmate.retrieval.database import DATABASE, Database, HistoryError, locked
from schedmate.retrieval.history import JobHistory, record_batches
from schedmate.retrieval.similarity import RENDERING_VERSION, render
from schedmate.retrieval.table import finished_job, unknown_job

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray
    from psycopg import Connection

    from schedmate.retrieval.embedders import Embedder


SCHEMA_VERSION = "1"
ADVISORY_LOCK = 0x5343484D
"""The advisory lock that writers hold until they have committed."""
CONNECT_S = 5
STATEMENT_MS = 60_000

_UPSERT = """INSERT INTO schedmate_jobs
    (job_id, text_id, fingerprint, state, ended, username, submit_time, end_time, document, change)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, nextval('schedmate_change'))
    ON CONFLICT (job_id) DO UPDATE SET text_id = excluded.text_id,
    fingerprint = excluded.fingerprint, state = excluded.state, ended = excluded.ended,
    username = excluded.username, submit_time = excluded.submit_time,
    end_time = excluded.end_time, document = excluded.document, change = excluded.change"""


class Change(NamedTuple):
    """A job as it was last written."""

    number: int
    document: str
    text_id: int | None


class Remote:
    """A connection, made when it is needed and again when it was lost. Not shared by threads.

    Everything that PostgreSQL or the network refuses leaves as a `HistoryError`.
    """

    def __init__(self, url: str) -> None:
        require("a history in PostgreSQL", "postgres", "psycopg", "pgvector")
        self.url = url
        self._open: Connection[Any] | None = None

    def close(self) -> None:
        """Let go of the connection. May be repeated."""
        connection, self._open = self._open, None
        if connection is not None:
            connection.close()

    @contextmanager
    def _connected(self) -> Iterator[Connection[Any]]:
        import psycopg
        from pgvector.psycopg import register_vector

        try:
            if self._open is None or self._open.closed:
                self._open = psycopg.connect(
                    self.url,
                    autocommit=True,
                    connect_timeout=CONNECT_S,
                    application_name="schedmate",
                )
                self._open.execute(f"SET statement_timeout = {STATEMENT_MS}")
                found = self._open.execute("SELECT to_regtype('vector')").fetchone()
                if found is not None and found[0] is not None:
                    register_vector(self._open)
            yield self._open
        except psycopg.Error as error:
            if self._open is not None and self._open.broken:
                self.close()
            raise HistoryError(f"{without_query(self.url)}: {_advice_on(error)}") from None

    @contextmanager
    def writing(self) -> Iterator[Connection[Any]]:
        """A transaction; one writer at a time, and the others wait."""
        with self._connected() as connection, connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (ADVISORY_LOCK,))
            yield connection

    def prepare(self, wanted: Mapping[str, str] | None) -> dict[str, str]:
        """The manifest, of tables made now where `wanted` says what their vectors will be."""
        with self._connected() as connection:
            row = connection.execute("SELECT to_regclass('schedmate_manifest')").fetchone()
            there = row is not None and row[0] is not None
        if not there:
            if wanted is None:
                raise HistoryError(
                    f"{without_query(self.url)}: there is no history; make one with "
                    "`schedmate history import FILE`"
                )
            self._make({"schema": SCHEMA_VERSION, "generation": "1", **wanted})
        manifest = self.manifest()
        if manifest.get("schema") != SCHEMA_VERSION:
            raise HistoryError(
                f"{without_query(self.url)}: written by another schedmate (format "
                f"{manifest.get('schema')}, this one reads {SCHEMA_VERSION}); upgrade schedmate"
            )
        return manifest

    def _make(self, manifest: Mapping[str, str]) -> None:
        script = resources.files(__package__).joinpath("postgres.sql").read_text("utf-8")
        with self.writing() as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
            connection.execute(script.encode())
            self._remember(connection, manifest, keep=True)
        self.close()  # the next connection knows the type of vectors

    def manifest(self) -> dict[str, str]:
        """The embedder of the vectors, and their generation."""
        with self._connected() as connection:
            return dict(connection.execute("SELECT key, value FROM schedmate_manifest").fetchall())

    def _remember(
        self, connection: Connection[Any], values: Mapping[str, str], *, keep: bool = False
    ) -> None:
        then = "NOTHING" if keep else "UPDATE SET value = excluded.value"
        connection.cursor().executemany(
            f"INSERT INTO schedmate_manifest VALUES (%s, %s) ON CONFLICT (key) DO {then}",  # noqa: S608
            list(values.items()),
        )

    def changes(self, after: int) -> list[Change]:
        """Jobs written after a change, in order, at most a page of them."""
        sql = (
            "SELECT change, document, text_id FROM schedmate_jobs WHERE change > %s "
            "ORDER BY change LIMIT %s"
        )
        with self._connected() as connection:
            return [Change(*row) for row in connection.execute(sql, (after, table.PAGE)).fetchall()]

    def newest(self) -> int:
        """The number of the last change."""
        with self._connected() as connection:
            row = connection.execute("SELECT max(change) FROM schedmate_jobs").fetchone()
        return int((row and row[0]) or 0)

    def texts(self, ids: Sequence[int]) -> dict[int, tuple[str, NDArray[float32]]]:
        """Renderings and vectors by id."""
        import numpy as np

        sql = "SELECT id, text, vector FROM schedmate_texts WHERE id = ANY(%s)"
        with self._connected() as connection:
            rows = connection.execute(sql, (list(ids),)).fetchall()
        return {
            row[0]: (
                row[1],
                np.asarray(getattr(row[2], "to_numpy", lambda row=row: row[2])(), np.float32),
            )
            for row in rows
        }

    def text_ids(
        self, connection: Connection[Any], generation: int, texts: Sequence[str]
    ) -> dict[str, int]:
        """Ids of the renderings that are stored."""
        digests = {_text_digest(text): text for text in texts}
        sql = "SELECT digest, id FROM schedmate_texts WHERE generation = %s AND digest = ANY(%s)"
        rows = connection.execute(sql, (generation, list(digests))).fetchall()
        return {digests[bytes(digest)]: int(id_) for digest, id_ in rows}

    def add_texts(
        self,
        connection: Connection[Any],
        generation: int,
        vectors: Mapping[str, NDArray[float32]],
    ) -> None:
        """Store renderings that are not stored yet."""
        from pgvector import Vector

        connection.cursor().executemany(
            "INSERT INTO schedmate_texts (generation, digest, text, vector) "
            "VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING",
            [
                (generation, _text_digest(t), _encodable_text(t), Vector(vector))
                for t, vector in vectors.items()
            ],
        )

    def upsert(
        self, connection: Connection[Any], jobs: Sequence[tuple[JobRecord, int | None]]
    ) -> None:
        """Store jobs, or replace them."""
        connection.cursor().executemany(_UPSERT, [_remote_row(*job) for job in jobs])

    def document(self, connection: Connection[Any], job_id: str) -> tuple[str, int | None] | None:
        """A stored job and the id of its rendering."""
        sql = "SELECT document, text_id FROM schedmate_jobs WHERE job_id = %s"
        row = connection.execute(sql, (_encodable_text(job_id),)).fetchone()
        return None if row is None else (row[0], row[1])

    def prune(self, before: float) -> int:
        """Delete jobs that ended before a time; copies begin again. Their number."""
        with self.writing() as connection:
            count = connection.execute(
                "DELETE FROM schedmate_jobs WHERE ended AND coalesce(end_time, submit_time) < %s",
                (before,),
            ).rowcount
            if count:
                generation = str(int(self.manifest()["generation"]) + 1)
                connection.execute(
                    "DELETE FROM schedmate_texts AS one WHERE NOT EXISTS "
                    "(SELECT 1 FROM schedmate_jobs WHERE text_id = one.id)"
                )
                connection.execute("UPDATE schedmate_texts SET generation = %s", (generation,))
                self._remember(connection, {"generation": generation})
        return count

    def switch(self, connection: Connection[Any], generation: int, made: Mapping[str, str]) -> None:
        """Use a generation that now has every job's rendering."""
        connection.execute("DELETE FROM schedmate_texts WHERE generation <> %s", (generation,))
        self._remember(connection, {**made, "generation": str(generation)})


def _remote_row(record: JobRecord, text_id: int | None) -> tuple[Any, ...]:
    return (
        _encodable_text(record.job_id),
        text_id,
        record.metadata.fingerprint(),
        record.state,
        record.ended,
        None if record.user is None else _encodable_text(record.user),
        record.submit_time,
        record.end_time,
        record.model_dump_json(by_alias=True, exclude_none=True),
    )


def _encodable_text(text: str) -> str:
    # what PostgreSQL holds in no text; the document has it
    return encodable(text).replace("\0", "\\u0000")


def _text_digest(text: str) -> bytes:
    return sha256(encodable(text).encode()).digest()


def _advice_on(error: Exception) -> str:
    """Advice for an error of PostgreSQL."""
    from psycopg import errors

    message = " ".join(str(error).split())
    if isinstance(error, errors.InsufficientPrivilege | errors.FeatureNotSupported):
        return (
            f"{message}; it needs the extension pgvector, which an administrator may have to create"
        )
    if isinstance(error, errors.UndefinedFile):
        return f"{message}; install pgvector on the server"
    return f"{message}; check that the server runs and lets this user in"


# `SharedHistory`: a history in PostgreSQL that is read from a copy on this machine.
#
# The database is the truth. Every process reads a copy of it, an ordinary `JobHistory` in the
# user's cache, that polls keep up to date: advice never waits for the database, and goes on
# without it.


log = logging.getLogger(__name__)

POLL_S = 2.0
"""Time between two looks at what others have written [s]."""
_MADE_WITH = ("embedder", "dim", "rendering")


class SharedHistory(JobHistory):
    """As a `JobHistory`, of which the directory is a copy. Writing needs the database."""

    def __init__(
        self, url: str, database: Database, embedder: Embedder | None, remote: Remote
    ) -> None:
        super().__init__(database, embedder)
        self.url = url
        self._remote = remote
        self._using = threading.RLock()
        self._ended = threading.Event()
        self._told = False
        self.reached = False
        """Whether the database answered when it was last asked."""
        self._poller: threading.Thread | None = None

    @classmethod
    def connect(
        cls, url: str, embedder: Embedder | None = None, create: bool = True, poll: bool = True
    ) -> Self:
        """Open the history at an address; tables are made when `create` allows it.

        Where the database cannot be reached, an earlier copy is used, and a warning says so.
        `poll`: go on looking for what others write. Raises `HistoryError`.
        """
        folder = _copy_folder(url)
        remote = Remote(url)
        wanted = None
        if create and embedder is not None:
            wanted = embedder_manifest(embedder)
        try:
            manifest = remote.prepare(wanted)
        except HistoryError as error:
            remote.close()
            if not (folder / DATABASE).exists():
                raise
            manifest = None
            log.warning("%s; going on with what was read before", error)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        database = Database(folder, read_only=False)
        try:
            if manifest is not None:
                _begin_copy(database, manifest)
            one = cls(url, database, embedder, remote)
        except BaseException:
            database.close()
            remote.close()
            raise
        if manifest is not None:
            one.refresh()
        if poll:
            one._poller = threading.Thread(target=one._poll, name="schedmate-history", daemon=True)
            one._poller.start()
        return one

    def close(self) -> None:
        """Stop looking for news and release the files. May be repeated."""
        self._ended.set()
        if self._poller is not None:
            self._poller.join()
        self._remote.close()
        super().close()

    # -- reading what others wrote -----------------------------------------------

    def refresh(self, *, wait: bool = True) -> int:
        """Update the copy; returns the number of new jobs. Raises `HistoryError`.

        Processes of one machine share the copy, and one of them at a time does this; without
        `wait`, the others leave it to that one.
        """
        count = 0
        with self._using, locked(self.path / "poll.lock", wait=wait) as allowed:
            if not allowed:
                return 0
            held = self._remote.manifest()
            self.reached = True
            if self.manifest().get("source") != held["generation"]:
                self._begin_again(held)
            while changes := self._remote.changes(int(self.manifest()["change"])):
                self._take(changes)
                count += len(changes)
        if count:
            self._save_index()
        return count

    def _take(self, changes: Sequence[Change]) -> None:
        with self._db.reading():
            texts = self._vectors.in_use()
        sources = {one.text_id for one in changes if one.text_id is not None}
        changed = self._remote.texts(sorted(sources))
        records = [self._parse(one.document) for one in changes]
        with self._db.writing():
            rendered = {id_: text for id_, (text, _) in changed.items()}
            stored = texts.ids(rendered.values())
            texts.add({text: vector for text, vector in changed.values() if text not in stored})
            ids = texts.ids(rendered.values())
            self._upsert(
                (record, ids[rendered[one.text_id]] if one.text_id in rendered else None)
                for record, one in zip(records, changes, strict=True)
            )
            self._vectors.remember({"change": str(changes[-1].number)})

    def _begin_again(self, manifest: Mapping[str, str]) -> None:
        with self._db.writing():
            for table in ("jobs", "texts", "manifest", "learned", "unlearned"):
                self._db.execute(f"DELETE FROM {table}")  # noqa: S608 - our own names
            self._vectors.remember(_copy_manifest(manifest))

    def _poll(self) -> None:
        while not self._ended.wait(POLL_S):
            try:
                self.refresh(wait=False)
            except HistoryError as error:
                self.reached = False
                if not self._told:
                    log.warning("%s; going on with what was read before", error)
                self._told = True
            else:
                self._told = False

    # -- writing ------------------------------------------------------------

    def add_many(
        self, records: Iterable[JobRecord], on_progress: Callable[[int], None] | None = None
    ) -> int:
        """Store jobs in batches; on return the database has committed them."""
        total = 0
        for batch in record_batches(records):
            with self._using:
                self._send(batch)
            total += len(batch)
            if on_progress is not None:
                on_progress(total)
        if total:
            self._refresh_quietly()
        return total

    def _send(self, batch: Sequence[JobRecord]) -> None:
        rendered = [render(record.metadata) for record in batch]
        distinct = [text for text in dict.fromkeys(rendered) if text]
        vectors: dict[str, NDArray[float32]] = {}
        while True:
            with self._remote.writing() as connection:
                generation = self._checked()
                ids = self._remote.text_ids(connection, generation, distinct)
                new = [text for text in distinct if text not in ids]
                if all(text in vectors for text in new):
                    added = {text: vectors[text] for text in new}
                    self._remote.add_texts(connection, generation, added)
                    ids |= self._remote.text_ids(connection, generation, new)
                    jobs = list(zip(batch, map(ids.get, rendered), strict=True))
                    self._remote.upsert(connection, jobs)
                    return
            vectors |= self._vectors.embed([text for text in new if text not in vectors])

    def _checked(self) -> int:
        """The generation in use; raises `HistoryError` for one of another embedder."""
        manifest = self._remote.manifest()
        for key, wanted in embedder_manifest(self.embedder).items():
            if manifest.get(key) != wanted:
                raise HistoryError(
                    f"{self.url}: its vectors were made with {key} {manifest.get(key)}, "
                    f"not {wanted}; run `schedmate history rebuild`"
                )
        return int(manifest["generation"])

    def finish(
        self,
        job_id: str,
        *,
        duration_s: float | None = None,
        end_time: float | None = None,
        state: JobState = "COMPLETED",
        **usage: Any,
    ) -> JobRecord:
        """See `JobTable.finish`."""
        with self._using, self._remote.writing() as connection:
            stored = self._remote.document(connection, job_id)
            if stored is None:
                raise unknown_job(job_id)
            changes = {"duration_s": duration_s, "end_time": end_time, **usage}
            record = finished_job(self._parse(stored[0]), changes, state)
            self._remote.upsert(connection, [(record, stored[1])])
        self._refresh_quietly()
        return record

    def prune(self, before: float) -> int:
        """As `JobHistory.prune`, for every machine."""
        with self._using:
            count = self._remote.prune(before)
        self.refresh()
        return count

    def rebuild(self, on_progress: Callable[[int, int], None] | None = None) -> int:
        """Embed every job again with the current embedder; returns their number. Writers wait."""
        done, total = 0, len(self)
        with self._using, self._remote.writing() as connection:
            newest = self._remote.newest()
            generation = int(self._remote.manifest()["generation"]) + 1
            after = 0
            # what is written anew here has higher numbers than `newest`
            while changes := [one for one in self._remote.changes(after) if one.number <= newest]:
                records = [self._parse(one.document) for one in changes]
                rendered = [render(record.metadata) for record in records]
                distinct = [text for text in dict.fromkeys(rendered) if text]
                known = self._remote.text_ids(connection, generation, distinct)
                new = [text for text in distinct if text not in known]
                self._remote.add_texts(connection, generation, self._vectors.embed(new))
                ids = self._remote.text_ids(connection, generation, distinct)
                self._remote.upsert(
                    connection, list(zip(records, map(ids.get, rendered), strict=True))
                )
                after = changes[-1].number
                done += len(changes)
                if on_progress is not None:
                    on_progress(done, max(done, total))
            self._remote.switch(connection, generation, embedder_manifest(self.embedder))
        self.refresh()
        return done

    def _refresh_quietly(self) -> None:
        with suppress(HistoryError):  # it is stored, and the next look finds it
            self.refresh()


def embedder_manifest(embedder: Embedder) -> dict[str, str]:
    """The manifest's entry for this embedder."""
    values = (embedder.id, str(embedder.dim), str(RENDERING_VERSION))
    return dict(zip(_MADE_WITH, values, strict=True))


def _begin_copy(database: Database, manifest: Mapping[str, str]) -> None:
    """Write the manifest of a new copy."""
    with database.writing():
        database.execute_many(
            "INSERT OR IGNORE INTO manifest VALUES (?, ?)", _copy_manifest(manifest).items()
        )


def _copy_manifest(held: Mapping[str, str]) -> dict[str, str]:
    made = {key: held[key] for key in _MADE_WITH}
    return {**made, "generation": "1", "change": "0", "source": held["generation"]}


def _copy_folder(url: str) -> Path:
    """Where the copy of a database lies."""
    home = Path(os.environ.get("XDG_CACHE_HOME", ""))
    cache = home if home.is_absolute() else Path.home() / ".cache"
    return cache / "schedmate" / "history" / sha256(url.encode()).hexdigest()[:24]


def open_history(
    place: Place,
    embedder: Embedder | None = None,
    *,
    create: bool = True,
    read_only: bool = False,
    poll: bool = False,
) -> JobHistory:
    """The history that a setting names: a directory, or a database that several schedulers share.

    See `JobHistory.open` and `SharedHistory.connect`, of which `poll` is.
    """
    if is_remote(place):
        return SharedHistory.connect(
            os.fspath(place), embedder, create=create and not read_only, poll=poll
        )
    assert not isinstance(place, str)
    return JobHistory.open(place, embedder, create=create, read_only=read_only)
