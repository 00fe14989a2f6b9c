"""The tables of a history in PostgreSQL with pgvector: what is written there, and what is new."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple

from schedmate.errors import require
from schedmate.jobs import JobRecord
from schedmate.places import shown
from schedmate.plain import encodable
from schedmate.retrieval import table
from schedmate.retrieval.database import HistoryError

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray
    from psycopg import Connection

SCHEMA_VERSION = "1"
LOCK = 0x5343484D
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
            raise HistoryError(f"{shown(self.url)}: {_told(error)}") from None

    @contextmanager
    def writing(self) -> Iterator[Connection[Any]]:
        """A transaction; one writer at a time, and the others wait."""
        with self._connected() as connection, connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
            yield connection

    def prepare(self, wanted: Mapping[str, str] | None) -> dict[str, str]:
        """The manifest, of tables made now where `wanted` says what their vectors will be."""
        with self._connected() as connection:
            row = connection.execute("SELECT to_regclass('schedmate_manifest')").fetchone()
            there = row is not None and row[0] is not None
        if not there:
            if wanted is None:
                raise HistoryError(
                    f"{shown(self.url)}: there is no history; make one with `schedmate history "
                    "import FILE`"
                )
            self._make({"schema": SCHEMA_VERSION, "generation": "1", **wanted})
        held = self.manifest()
        if held.get("schema") != SCHEMA_VERSION:
            raise HistoryError(
                f"{shown(self.url)}: written by another schedmate (format {held.get('schema')}, "
                f"this one reads {SCHEMA_VERSION}); upgrade schedmate"
            )
        return held

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
        digests = {_digest(text): text for text in texts}
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
            [(generation, _digest(t), _key(t), Vector(vector)) for t, vector in vectors.items()],
        )

    def upsert(
        self, connection: Connection[Any], jobs: Sequence[tuple[JobRecord, int | None]]
    ) -> None:
        """Store jobs, or replace them."""
        connection.cursor().executemany(_UPSERT, [_row(*job) for job in jobs])

    def document(self, connection: Connection[Any], job_id: str) -> tuple[str, int | None] | None:
        """A stored job and the id of its rendering."""
        sql = "SELECT document, text_id FROM schedmate_jobs WHERE job_id = %s"
        row = connection.execute(sql, (_key(job_id),)).fetchone()
        return None if row is None else (row[0], row[1])

    def switch(self, connection: Connection[Any], generation: int, made: Mapping[str, str]) -> None:
        """Use a generation that now has every job's rendering."""
        connection.execute("DELETE FROM schedmate_texts WHERE generation <> %s", (generation,))
        self._remember(connection, {**made, "generation": str(generation)})


def _row(record: JobRecord, text_id: int | None) -> tuple[Any, ...]:
    return (
        _key(record.job_id),
        text_id,
        record.metadata.fingerprint(),
        record.state,
        record.ended,
        None if record.user is None else _key(record.user),
        record.submit_time,
        record.end_time,
        record.model_dump_json(by_alias=True, exclude_none=True),
    )


def _key(text: str) -> str:
    # what PostgreSQL holds in no text; the document has it
    return encodable(text).replace("\0", "\\u0000")


def _digest(text: str) -> bytes:
    return sha256(encodable(text).encode()).digest()


def _told(error: Exception) -> str:
    """Advice for an error of PostgreSQL."""
    from psycopg import errors

    said = " ".join(str(error).split())
    if isinstance(error, errors.InsufficientPrivilege | errors.FeatureNotSupported):
        return f"{said}; it needs the extension pgvector, which an administrator may have to create"
    if isinstance(error, errors.UndefinedFile):
        return f"{said}; install pgvector on the server"
    return f"{said}; check that the server runs and lets this user in"
