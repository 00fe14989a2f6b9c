"""`JobHistory`: past jobs in SQLite, their vectors in FAISS.

SQLite is the truth and holds the vectors as well; the FAISS index is derived from it and catches up
on every search. A process killed at any point loses nothing that was committed, and table and index
cannot disagree.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from schedmate.jobs import JobRecord, WorkloadMetadata
from schedmate.retrieval.database import DATABASE, Database, HistoryError, missing
from schedmate.retrieval.render import render
from schedmate.retrieval.table import HistoryStats, JobTable
from schedmate.retrieval.texts import Texts
from schedmate.retrieval.vectors import Vectors

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

    from schedmate.retrieval.embedders import Embedder

__all__ = ["DATABASE", "HistoryError", "HistoryStats", "JobHistory", "Match"]

log = logging.getLogger(__name__)

BATCH = 1_000
"""Jobs written in one transaction."""


@dataclass(frozen=True, slots=True)
class Match:
    """A past job, the cosine similarity of its rendering (at most 1), and whether its metadata is
    the same (`exact`: a resubmission)."""

    record: JobRecord
    similarity: float
    exact: bool


Matches = list[Match]


class JobHistory(JobTable):
    """A directory with past jobs. Safe to share between threads and processes: any number read
    while one writes, and writers wait for each other."""

    def __init__(self, database: Database, embedder: Embedder | None) -> None:
        super().__init__(database)
        self._vectors = Vectors(database, embedder)
        if not database.read_only:
            self._vectors.prepare()

    @classmethod
    def open(
        cls,
        path: Path,
        embedder: Embedder | None = None,
        create: bool = True,
        read_only: bool = False,
    ) -> Self:
        """Open the history in a directory, made when `create` allows it.

        One embedded by another embedder opens for everything but searching and adding, which say
        to run `schedmate history rebuild`; one that exists opens without any embedder for all that
        needs no vectors: looking, finishing and exporting. Raises `HistoryError`.
        """
        creatable = create and not read_only and embedder is not None
        if not creatable and not (path / DATABASE).exists():
            raise missing(path)
        return cls(Database(path, read_only=read_only), embedder)

    def close(self) -> None:
        """Release the files. May be repeated."""
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def embedder(self) -> Embedder:
        """The embedder; raises `HistoryError` if the history was opened without one."""
        return self._vectors.embedder

    @property
    def network(self) -> str | None:
        """The type of its file system when several machines can share it; None for a local one."""
        return self._db.network

    def manifest(self) -> dict[str, str]:
        """Embedder id, dimension, rendering version, the generation of vectors in use and the
        snapshot of the index that belongs to it."""
        return self._vectors.manifest()

    def snapshot(self) -> Path | None:
        """The saved search index, when there is one that belongs to this database."""
        name = self.manifest().get("index")
        return self.path / name if name and (self.path / name).exists() else None

    def mismatch(self) -> str | None:
        """Why the stored vectors do not fit the embedder; None when they do."""
        return self._vectors.mismatch()

    # -- writing ------------------------------------------------------------

    def add(self, record: JobRecord) -> None:
        """Store a job; one with the same id is replaced. On return it survives a crash."""
        self.add_many([record])

    def add_many(
        self, records: Iterable[JobRecord], on_progress: Callable[[int], None] | None = None
    ) -> int:
        """Store jobs in batches, each of them whole or not at all; returns how many."""
        total = 0
        for batch in batches(records):
            self._store(batch)
            total += len(batch)
            if on_progress is not None:
                on_progress(total)
        if total:
            self._save_index()
        return total

    def _save_index(self) -> None:
        try:
            self._vectors.save()
        except (OSError, RuntimeError, HistoryError) as error:
            # the jobs are stored, and a search finds them without it
            log.warning("%s: the search index was not saved (%s)", self.path, error)

    def _store(self, batch: Sequence[JobRecord]) -> None:
        rendered = [render(record.metadata) for record in batch]
        vectors: dict[str, NDArray[float32]] = {}
        while True:
            with self._db.writing():
                texts = self._vectors.texts()
                ids = texts.ids(filter(None, rendered))
                new = [text for text in dict.fromkeys(rendered) if text and text not in ids]
                if all(text in vectors for text in new):
                    texts.add({text: vectors[text] for text in new})
                    ids |= texts.ids(new)
                    self._upsert(zip(batch, map(ids.get, rendered), strict=True))
                    return
            # Embedding may take long: others can write meanwhile.
            vectors |= self._vectors.embed([text for text in new if text not in vectors])

    def rebuild(self, on_progress: Callable[[int, int], None] | None = None) -> int:
        """Render and embed every job again with the current embedder; returns their number.

        `on_progress` is told how many of how many jobs are done. Until the end the old vectors
        stay in use and others can write; stopped, it goes on where it was when run again.
        """
        total, done = len(self), 0
        texts = self._vectors.next_generation()
        for records in self._pages():
            vectors = self._vectors.embed(_unknown(texts, records))
            with self._db.writing():
                texts.add(vectors)
            done += len(records)
            if on_progress is not None:
                on_progress(done, max(done, total))
        with self._db.writing():
            done = 0
            for records in self._pages():
                # jobs that came in the meantime
                texts.add(self._vectors.embed(_unknown(texts, records)))
                rendered = [render(record.metadata) for record in records]
                ids = texts.ids(filter(None, rendered))
                self._upsert(zip(records, map(ids.get, rendered), strict=True))
                done += len(records)
            self._vectors.switch(texts)
        self._save_index()
        return done

    def rebuild_index(self) -> None:
        """Rebuild the search index from the stored vectors; needs no embedder."""
        self._vectors.save(anew=True)

    # -- searching ----------------------------------------------------------

    def search(
        self, metadata: WorkloadMetadata, k: int, threshold: float, ended_only: bool = True
    ) -> Matches:
        """The `k` most similar jobs with a cosine similarity of at least `threshold`.

        The most similar first, the latest ended first among those of one rendering. Raises
        `HistoryError` when the stored vectors are of another embedder.
        """
        text = render(metadata)
        if not text or k < 1:
            return []
        texts = self._vectors.texts()
        stored = texts.vectors(list(texts.ids([text]).values()))
        vector = next(iter(stored.values())) if stored else self._vectors.embed([text])[text]
        fingerprint = metadata.fingerprint()
        matches: Matches = []
        with self._db.reading():
            nearest = self._vectors.nearest()
            seen: set[int] = set()
            wanted = k
            while len(matches) < k and len(seen) < len(nearest):
                found = nearest.search(vector, wanted)
                for text_id, similarity in found:
                    if similarity < threshold or len(matches) >= k:
                        return matches
                    if text_id not in seen:
                        seen.add(text_id)
                        jobs = self._of_text(text_id, k - len(matches), ended_only)
                        matches += [
                            Match(job, min(1.0, similarity), print_ == fingerprint)
                            for job, print_ in jobs
                        ]
                if len(found) < wanted:
                    break
                wanted *= 4
        return matches


def _unknown(texts: Texts, records: Sequence[JobRecord]) -> Sequence[str]:
    """Renderings of these jobs that are not stored yet."""
    rendered = [text for text in dict.fromkeys(render(job.metadata) for job in records) if text]
    known = texts.ids(rendered)
    return [text for text in rendered if text not in known]


def batches(records: Iterable[JobRecord]) -> Iterator[Sequence[JobRecord]]:
    """The records, as many at a time as are written in one transaction."""
    batch: list[JobRecord] = []
    for record in records:
        batch.append(record)
        if len(batch) >= BATCH:
            yield batch
            batch = []
    if batch:
        yield batch
