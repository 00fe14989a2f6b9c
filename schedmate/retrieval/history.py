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
from typing import TYPE_CHECKING, Any, Self, TypedDict

from pydantic import ValidationError

from schedmate.errors import UsageError
from schedmate.jobs import JobRecord, JobState, WorkloadMetadata
from schedmate.retrieval.database import DATABASE, Database, HistoryError, missing
from schedmate.retrieval.render import render
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
RECENT = 64
"""Resubmissions that a look-up by fingerprint returns at most."""

_UPSERT = """INSERT INTO jobs
    (job_id, text_id, fingerprint, state, ended, user, submit_time, end_time, document)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (job_id) DO UPDATE SET
    text_id = excluded.text_id, fingerprint = excluded.fingerprint, state = excluded.state,
    ended = excluded.ended, user = excluded.user, submit_time = excluded.submit_time,
    end_time = excluded.end_time, document = excluded.document"""


@dataclass(frozen=True, slots=True)
class Match:
    """A past job, the cosine similarity of its rendering (at most 1), and whether its metadata is
    the same (`exact`: a resubmission)."""

    record: JobRecord
    similarity: float
    exact: bool


class HistoryStats(TypedDict):
    """Counts of a history. Times are seconds since the epoch, None when no job says."""

    jobs: int
    states: dict[str, int]
    workloads: int
    fingerprints: int
    first_submit_time: float | None
    last_submit_time: float | None
    manifest: dict[str, str]


# `list` is a method below, so the built-in of that name needs others in annotations.
Records = list[JobRecord]
Matches = list[Match]


class JobHistory:
    """A directory with past jobs. Safe to share between threads, and between processes of one
    machine: any number read while one writes, and writers wait for each other."""

    def __init__(self, database: Database, embedder: Embedder | None) -> None:
        self.path = database.folder
        self._db = database
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
        """What makes the vectors; raises `HistoryError` when it was opened without one."""
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
        for batch in _batches(records):
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

    def _upsert(self, records: Iterable[tuple[JobRecord, int | None]]) -> None:
        self._db.execute_many(_UPSERT, [_row(record, text_id) for record, text_id in records])

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

        `usage` are further fields of `JobRecord` (gpu_util, sm_util, gpu_mem_mb, throughput).
        Raises `HistoryError` for a job that is not stored, `UsageError` for values that a record
        cannot hold.
        """
        with self._db.writing():
            rows = self._db.query("SELECT document, text_id FROM jobs WHERE job_id = ?", (job_id,))
            if not rows:
                raise unknown_job(job_id)
            held = self._parse(rows[0][0])
            if duration_s is None and end_time is not None and held.start_time is not None:
                duration_s = max(0.0, end_time - held.start_time)
            changes = {"duration_s": duration_s, "end_time": end_time, **usage}
            given = {key: value for key, value in changes.items() if value is not None}
            try:
                record = JobRecord.model_validate(held.model_dump() | given | {"state": state})
            except ValidationError as error:
                first = error.errors()[0]
                place = ".".join(map(str, first["loc"]))
                raise UsageError(f"job {job_id}: {place}: {first['msg']}") from None
            self._upsert([(record, rows[0][1])])
        return record

    def rebuild(self, on_progress: Callable[[int, int], None] | None = None) -> int:
        """Render and embed every job anew with the present embedder; returns how many.

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
        """Make the search index anew from the stored vectors; needs no embedder."""
        self._vectors.save(anew=True)

    # -- reading ------------------------------------------------------------

    def __len__(self) -> int:
        # Jobs are replaced, never deleted, so the last row's number is how many there are;
        # counting a million would take longer than an estimate.
        return int(self._db.query("SELECT max(rowid) FROM jobs")[0][0] or 0)

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
    ) -> Records:
        """Jobs, the latest submitted first; `text` is looked for in names, ids and metadata."""
        given = {"state = ?": state, "user = ?": user}
        given["instr(lower(document), lower(?)) > 0"] = text
        clauses = {clause: value for clause, value in given.items() if value is not None}
        where = f"WHERE {' AND '.join(clauses)} " if clauses else ""
        order = "ORDER BY submit_time DESC, job_id LIMIT ? OFFSET ?"
        most = -1 if limit is None else limit
        return self._records(where + order, (*clauses.values(), most, offset))

    def by_fingerprint(self, fingerprint: str, limit: int = RECENT) -> Records:
        """Jobs with this fingerprint, the latest ended first, at most `limit`."""
        where = "WHERE fingerprint = ? ORDER BY end_time DESC, job_id LIMIT ?"
        return self._records(where, (fingerprint, limit))

    def export(self) -> Iterator[JobRecord]:
        """Every job, in order of id."""
        for page in self._pages():
            yield from page

    def stats(self) -> HistoryStats:
        """Counts by state, of distinct renderings and fingerprints, and the span of time."""
        with self._db.reading():
            states = "SELECT state, count(*) FROM jobs GROUP BY state ORDER BY 2 DESC, 1"
            counts = "SELECT count(DISTINCT text_id), count(DISTINCT fingerprint) FROM jobs"
            by_state: dict[str, int] = dict(self._db.query(states))
            workloads, fingerprints = self._db.query(counts)[0]
            first, last = self._db.query("SELECT min(submit_time), max(submit_time) FROM jobs")[0]
            return {
                "jobs": sum(by_state.values()),
                "states": by_state,
                "workloads": workloads,
                "fingerprints": fingerprints,
                "first_submit_time": first,
                "last_submit_time": last,
                "manifest": self.manifest(),
            }

    def _pages(self) -> Iterator[Records]:
        page = self._records("ORDER BY job_id LIMIT ?", (BATCH,))
        while page:
            yield page
            last = page[-1].job_id
            page = self._records("WHERE job_id > ? ORDER BY job_id LIMIT ?", (last, BATCH))

    def _records(self, where: str, values: Sequence[Any]) -> Records:
        # `where` is written in this class; what users give is bound
        rows = self._db.query(f"SELECT document FROM jobs {where}", values)  # noqa: S608
        return [self._parse(row[0]) for row in rows]

    def _parse(self, document: str) -> JobRecord:
        try:
            return JobRecord.model_validate_json(document)
        except ValidationError as error:
            raise HistoryError(
                f"{self.path}: a stored job cannot be read ({error.errors()[0]['msg']}); it was "
                "written by another version of schedmate, or is damaged"
            ) from None

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
        self._vectors.texts()
        vector = self._vectors.embed([text])[text]
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

    def _of_text(
        self, text_id: int, limit: int, ended_only: bool
    ) -> Sequence[tuple[JobRecord, str]]:
        ended = "AND ended = 1 " if ended_only else ""
        rows = self._db.query(
            f"SELECT document, fingerprint FROM jobs WHERE text_id = ? {ended}"  # noqa: S608
            "ORDER BY end_time DESC, job_id LIMIT ?",
            (text_id, limit),
        )
        return [(self._parse(document), fingerprint) for document, fingerprint in rows]


def unknown_job(job_id: str) -> HistoryError:
    """The error for a job that is not stored."""
    return HistoryError(
        f"no job {job_id!r} in the history; `schedmate history list` shows what there is"
    )


def _unknown(texts: Texts, records: Sequence[JobRecord]) -> Sequence[str]:
    """Renderings of these jobs that are not stored yet."""
    rendered = [text for text in dict.fromkeys(render(job.metadata) for job in records) if text]
    known = texts.ids(rendered)
    return [text for text in rendered if text not in known]


def _batches(records: Iterable[JobRecord]) -> Iterator[Sequence[JobRecord]]:
    batch: Records = []
    for record in records:
        batch.append(record)
        if len(batch) >= BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _row(record: JobRecord, text_id: int | None) -> tuple[Any, ...]:
    return (
        record.job_id,
        text_id,
        record.metadata.fingerprint(),
        record.state,
        int(record.ended),
        record.user,
        record.submit_time,
        record.end_time,
        record.model_dump_json(by_alias=True, exclude_none=True),
    )
