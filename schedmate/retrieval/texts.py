"""The renderings of past jobs and their vectors, as rows of the history's database."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from schedmate.retrieval.database import Database, HistoryError

if TYPE_CHECKING:
    from numpy import float32, int64
    from numpy.typing import NDArray

PARAMETERS = 500
"""Values bound to one statement."""
ROWS = 20_000
"""Vectors read at once."""


class Texts:
    """One generation of renderings: those made by one embedder and one version of rendering."""

    def __init__(self, database: Database, generation: int, dim: int) -> None:
        self.dim = dim
        self.generation = generation
        self._db = database

    def snapshot(self) -> str | None:
        """The name of the index snapshot that was made from these rows, if there is one."""
        rows = self._db.query("SELECT value FROM manifest WHERE key = 'index'")
        return str(rows[0][0]) if rows else None

    def ids(self, texts: Iterable[str]) -> dict[str, int]:
        """Row ids of the texts that are stored."""
        wanted = list(dict.fromkeys(texts))
        found: dict[str, int] = {}
        for start in range(0, len(wanted), PARAMETERS):
            part = wanted[start : start + PARAMETERS]
            sql = f"SELECT text, id FROM texts WHERE generation = ? AND text IN ({_marks(part)})"  # noqa: S608
            found.update(self._db.query(sql, (self.generation, *part)))
        return found

    def add(self, vectors: Mapping[str, NDArray[float32]]) -> None:
        """Store texts that are not stored yet; part of a `writing` block."""
        self._db.execute_many(
            "INSERT OR IGNORE INTO texts (generation, text, vector) VALUES (?, ?, ?)",
            [(self.generation, text, vector.tobytes()) for text, vector in vectors.items()],
        )

    def count(self) -> int:
        """Number of stored texts."""
        sql = "SELECT count(*) FROM texts WHERE generation = ?"
        return int(self._db.query(sql, (self.generation,))[0][0])

    def newest(self) -> int:
        """The highest row id, 0 when there is none."""
        sql = (
            "SELECT id FROM texts INDEXED BY texts_in_order WHERE generation = ? "
            "ORDER BY id DESC LIMIT 1"
        )
        rows = self._db.query(sql, (self.generation,))
        return int(rows[0][0]) if rows else 0

    def after(self, row_id: int) -> Iterator[tuple[NDArray[int64], NDArray[float32]]]:
        """Row ids and vectors above an id, in batches, ascending."""
        # SQLite would rather take the index on the text, and sort all of the generation
        sql = (
            "SELECT id, vector FROM texts INDEXED BY texts_in_order "
            "WHERE generation = ? AND id > ? ORDER BY id LIMIT ?"
        )
        while rows := self._db.query(sql, (self.generation, row_id, ROWS)):
            yield self._arrays(rows)
            row_id = rows[-1][0]

    def vectors(self, ids: Sequence[int]) -> dict[int, NDArray[float32]]:
        """The vectors with these row ids, those that exist."""
        found: dict[int, NDArray[float32]] = {}
        for start in range(0, len(ids), PARAMETERS):
            part = ids[start : start + PARAMETERS]
            sql = f"SELECT id, vector FROM texts WHERE generation = ? AND id IN ({_marks(part)})"  # noqa: S608
            rows = self._db.query(sql, (self.generation, *part))
            numbers, vectors = self._arrays(rows)
            found.update(zip(numbers.tolist(), vectors, strict=True))
        return found

    def _arrays(self, rows: Sequence[tuple[int, bytes]]) -> tuple[NDArray[int64], NDArray[float32]]:
        import numpy as np

        joined = b"".join(row[1] for row in rows)
        if len(joined) != len(rows) * self.dim * np.dtype(np.float32).itemsize:
            raise HistoryError(
                f"{self._db.folder}: stored vectors are damaged; run `schedmate history rebuild`"
            )
        ids = np.fromiter((row[0] for row in rows), dtype=np.int64, count=len(rows))
        return ids, np.frombuffer(joined, dtype=np.float32).reshape(len(rows), self.dim)


def _marks(values: Sequence[object]) -> str:
    return ",".join("?" * len(values))
