"""Past jobs and the search among them: `JobHistory`, in SQLite with vectors in FAISS.

`open_history` in `shared.py` opens the one that a setting names. `MemoryHistory` gives the same
answers from memory, for simulations: a simulated month queries and adds a job a hundred thousand
times, but few renderings are distinct, so each is embedded once and compared by one product of a
matrix with a vector.
"""

from __future__ import annotations

import logging
from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Self

from schedmate.base.journal import copy_database
from schedmate.jobs import JobRecord, WorkloadMetadata
from schedmate.retrieval.database import DATABASE, Database, HistoryError, missing_history
from schedmate.retrieval.index import Vectors
from schedmate.retrieval.run_time import (
    SPREAD_JOBS,
    UNLEARNED_SPREAD,
    LearnedSpread,
    Spread,
    learn_spread,
)
from schedmate.retrieval.similarity import render
from schedmate.retrieval.table import RECENT, JobTable, Texts

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

    from schedmate.retrieval.embedders import Embedder


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
            raise missing_history(path)
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
    def database(self) -> Database:
        """Its file, for what else is kept there (`learning.py`)."""
        return self._db

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
        for batch in record_batches(records):
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

    def prune(self, before: float) -> int:
        """Delete jobs that ended before a time [s since epoch]; returns their number.

        What was learned of run times stays.
        """
        with self._db.writing():
            sql = "DELETE FROM jobs WHERE ended = 1 AND coalesce(end_time, submit_time) < ?"
            count = self._db.execute(sql, (before,))
            if count:
                self._vectors.renumber()
                # the number of the last row is how many there are
                rows = self._db.query("SELECT rowid FROM jobs ORDER BY rowid")
                moved = [(n, row) for n, (row,) in enumerate(rows, 1) if n != row]
                self._db.execute_many("UPDATE jobs SET rowid = ? WHERE rowid = ?", moved)
        if count:
            self.rebuild_index()
        return count

    def renumber(self, least: int) -> None:
        """Make every process that reads this history read its index anew (`Vectors.renumber`)."""
        with self._db.writing():
            self._vectors.renumber(least)

    def rebuild(self, on_progress: Callable[[int, int], None] | None = None) -> int:
        """Render and embed every job again with the current embedder; returns their number.

        `on_progress` is told how many of how many jobs are done. Until the end the old vectors
        stay in use and others can write; stopped, it goes on where it was when run again.
        """
        total, done = len(self), 0
        texts = self._vectors.next_generation()
        for records in self._pages():
            vectors = self._vectors.embed(_unknown_texts(texts, records))
            with self._db.writing():
                texts.add(vectors)
            done += len(records)
            if on_progress is not None:
                on_progress(done, max(done, total))
        with self._db.writing():
            done = 0
            for records in self._pages():
                # jobs that came in the meantime
                texts.add(self._vectors.embed(_unknown_texts(texts, records)))
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
        self,
        metadata: WorkloadMetadata,
        k: int,
        threshold: float,
        *,
        before: float | None = None,
        ran_only: bool = True,
    ) -> Matches:
        """The runs most similar to a job, with a cosine similarity of at least `threshold`.

        At most `k` that completed, and of the texts looked at for those at most `k` that were cut
        short: neither takes the other's place, and jobs that never ran (cancelled while they
        waited) take none. `before` [s since epoch] leaves out runs that ended later. Without
        `ran_only`, the `k` most similar jobs of any state. The most similar first, the latest ended
        first among those of one rendering. Raises `HistoryError` when the stored vectors are of
        another embedder. Jobs of other kinds are never among them: a server is no neighbour of a
        training.
        """
        text = render(metadata)
        if not text or k < 1:
            return []
        texts = self._vectors.texts()
        stored = texts.vectors(list(texts.ids([text]).values()))
        vector = next(iter(stored.values())) if stored else self._vectors.embed([text])[text]
        fingerprint = metadata.fingerprint()
        matches: Matches = []
        left = Quota(k)
        with self._db.reading():
            nearest = self._vectors.nearest()
            seen: set[int] = set()
            wanted = k
            while left.completed and len(seen) < len(nearest):
                neighbours = nearest.search(vector, wanted)
                near = [(id_, alike) for id_, alike in neighbours if alike >= threshold]
                new = {text_id: alike for text_id, alike in near if text_id not in seen}
                seen.update(new)
                worth = self._texts_with_runs(new, before) if ran_only else new.keys()
                for text_id, similarity in new.items():
                    if text_id not in worth:
                        continue
                    jobs = (
                        self._runs_of_text(text_id, left.completed, left.cut_short, before)
                        if ran_only
                        else self._of_text(text_id, left.completed)
                    )
                    if jobs and jobs[0][0].metadata.family != metadata.family:
                        continue  # of one text, and so of one kind
                    matches += [
                        Match(job, min(1.0, similarity), print_ == fingerprint)
                        for job, print_ in jobs
                    ]
                    left.take([job for job, _ in jobs], any_state=not ran_only)
                    if not left.completed:
                        return matches
                if len(near) < wanted:
                    break
                wanted *= 4
        return matches


class Quota:
    """How many more runs a search returns: so many completed ones, and as many cut short."""

    def __init__(self, k: int) -> None:
        self.completed = self.cut_short = k

    def take(self, jobs: Iterable[JobRecord], *, any_state: bool = False) -> None:
        """Count these as returned."""
        for job in jobs:
            if any_state or not job.censored:
                self.completed -= 1
            else:
                self.cut_short -= 1


def _unknown_texts(texts: Texts, records: Sequence[JobRecord]) -> Sequence[str]:
    """Renderings of these jobs that are not stored yet."""
    rendered = [text for text in dict.fromkeys(render(job.metadata) for job in records) if text]
    stored = texts.ids(rendered)
    return [text for text in rendered if text not in stored]


def record_batches(records: Iterable[JobRecord]) -> Iterator[Sequence[JobRecord]]:
    """The records in lists of `BATCH`, each of which is written in one transaction."""
    batch: list[JobRecord] = []
    for record in records:
        batch.append(record)
        if len(batch) >= BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


# A history in memory for simulations, with the answers of `JobHistory`.


class MemoryHistory:
    """A history in memory, of ended jobs; one that is added later counts as ended later."""

    def __init__(self, embedder: Embedder) -> None:
        self.embedder = embedder
        self._texts: dict[str, int] = {}  # rendering -> row of `_rows`, of every job ever seen
        self._rows: NDArray[float32] | None = None
        self._of_text: list[RunsInMemory] = []
        self._of_print: dict[str, RunsInMemory] = {}
        self._places: dict[int, tuple[WorkloadMetadata, int, str]] = {}
        self._latest: list[tuple[float, str, JobRecord, str]] = []  # in order of submission
        self._spread = UNLEARNED_SPREAD
        self._size = 0

    def prepare(self, jobs: Iterable[WorkloadMetadata]) -> None:
        """Embed the texts of these jobs in one batch, without adding the jobs."""
        import numpy as np

        new = [
            text
            for text in dict.fromkeys(render(metadata) for metadata in jobs)
            if text and text not in self._texts
        ]
        if not new:
            return
        rows = np.asarray(self.embedder.embed(new), dtype=np.float32)
        self._rows = rows if self._rows is None else np.concatenate([self._rows, rows])
        for text in new:
            self._texts[text] = len(self._texts)
            self._of_text.append(RunsInMemory())

    def add(self, record: JobRecord) -> None:
        """Store a job that has ended."""
        self._size += 1
        row, fingerprint = self._place(record.metadata)
        if not (record.ended and record.duration_s):
            return  # it never ran, or nobody knows how long: no evidence of any run time
        self._of_print.setdefault(fingerprint, RunsInMemory()).add(record, fingerprint)
        if not record.censored and record.submit_time is not None:
            place = (record.submit_time, record.job_id, record, fingerprint)
            insort(self._latest, place, key=lambda item: item[:2])
            del self._latest[:-SPREAD_JOBS]
        if row >= 0:
            self._of_text[row].add(record, fingerprint)

    def by_fingerprint(
        self, fingerprint: str, limit: int = RECENT, *, before: float | None = None
    ) -> list[JobRecord]:
        """Runs with this fingerprint, as `JobTable.by_fingerprint` gives them."""
        runs = self._of_print.get(fingerprint)
        return [] if runs is None else [run for run, _ in runs.latest(limit, limit, before)]

    def spread(self) -> Spread:
        """How much run times vary, learned from the latest completed jobs (`JobTable.spread`)."""
        if not self._spread.fits(self._size):
            completed = [
                (fingerprint, record.duration_s)
                for _, _, record, fingerprint in self._latest
                if record.duration_s
            ]
            self._spread = LearnedSpread(self._size, learn_spread(completed))
        return self._spread.spread

    def search(
        self,
        metadata: WorkloadMetadata,
        k: int,
        threshold: float,
        *,
        before: float | None = None,
    ) -> Matches:
        """The runs most similar to a job, as `JobHistory.search` gives them."""
        row, fingerprint = self._place(metadata)
        if row < 0 or k < 1:
            return []
        assert self._rows is not None
        import numpy as np

        similarity = self._rows @ self._rows[row]
        near = np.flatnonzero(similarity >= threshold)
        matches: Matches = []
        left = Quota(k)
        for text in near[np.argsort(-similarity[near], kind="stable")].tolist():
            alike = min(1.0, float(similarity[text]))
            runs = self._of_text[text].latest(left.completed, left.cut_short, before)
            if runs and runs[0][0].metadata.family != metadata.family:
                continue
            matches += [Match(record, alike, past == fingerprint) for record, past in runs]
            left.take(record for record, _ in runs)
            if not left.completed:
                break
        return matches

    def _place(self, metadata: WorkloadMetadata) -> tuple[int, str]:
        """The row of the job's rendering in `_rows` (-1 where it has none), and its fingerprint."""
        # Many jobs of a trace share one object, which is kept so that no other takes its id.
        entry = self._places.get(id(metadata))
        if entry is None:
            self.prepare([metadata])
            text = render(metadata)
            row = self._texts[text] if text else -1
            entry = self._places[id(metadata)] = (metadata, row, metadata.fingerprint())
        return entry[1], entry[2]


class RunsInMemory:
    """Runs of one rendering or fingerprint in order of arrival, those cut short apart."""

    def __init__(self) -> None:
        self._completed: list[tuple[int, JobRecord, str]] = []
        self._cut_short: list[tuple[int, JobRecord, str]] = []

    def add(self, record: JobRecord, fingerprint: str) -> None:
        """Store a run that ended after all others."""
        number = len(self._completed) + len(self._cut_short)
        kind = self._cut_short if record.censored else self._completed
        kind.append((number, record, fingerprint))

    def latest(
        self, completed: int, cut_short: int, before: float | None
    ) -> list[tuple[JobRecord, str]]:
        """At most so many that completed and that did not, the last ones that ended by `before`
        [s since epoch]; all together, the latest first."""
        chosen: list[tuple[int, JobRecord, str]] = []
        for runs, limit in ((self._completed, completed), (self._cut_short, cut_short)):
            past = (
                run
                for run in reversed(runs)
                if before is None or run[1].end_time is None or run[1].end_time <= before
            )
            chosen += islice(past, limit)
        chosen.sort(key=lambda run: -run[0])
        return [(record, fingerprint) for _, record, fingerprint in chosen]


def restore_history(copy: Path, folder: Path) -> None:
    """Give the history in a directory the content of a copy of its database, while it is in use.

    A database there that cannot be read is moved aside, to `history.db.damaged`.
    """
    least = 0
    if (folder / DATABASE).exists():
        try:
            with JobHistory.open(folder, read_only=True) as present:
                least = int(present.manifest()["generation"])
        except (HistoryError, KeyError):
            (folder / DATABASE).rename(folder / f"{DATABASE}.damaged")
            for rest in ("-wal", "-shm"):
                (folder / f"{DATABASE}{rest}").unlink(missing_ok=True)
    with TemporaryDirectory() as temporary:
        copy_database(copy, Path(temporary) / DATABASE)
        with JobHistory.open(Path(temporary)) as stored:
            # no index of before fits: ids of vectors are given again
            stored.renumber(least)
        copy_database(Path(temporary) / DATABASE, folder / DATABASE)
    with JobHistory.open(folder) as restored:
        restored.rebuild_index()
