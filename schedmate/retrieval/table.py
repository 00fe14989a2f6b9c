"""The rows of the history's database: past jobs, and the texts they render to with their
vectors.

`JobTable` is everything that needs no vectors; `Texts` gives the index its vectors.
"""

from __future__ import annotations

import builtins
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypedDict

from pydantic import ValidationError

from schedmate.base.errors import UsageError
from schedmate.base.inputs import fault_sentence, first_fault
from schedmate.jobs import JobRecord, JobState
from schedmate.jobs.metadata import STORED
from schedmate.retrieval.database import Database, HistoryError
from schedmate.retrieval.run_time import (
    SPREAD_JOBS,
    UNLEARNED_SPREAD,
    LearnedSpread,
    Spread,
    learn_spread,
)

if TYPE_CHECKING:
    from numpy import float32, int64
    from numpy.typing import NDArray


PAGE = 1_000
"""Jobs read at once."""
PARSED = 1 << 13
"""Stored jobs kept as objects: work that comes again is asked for again and again."""
RECENT = 64
"""Limit for the completed runs, and for those cut short, that a look-up by fingerprint returns."""

RAN = """ended = 1 AND CASE WHEN json_valid(document)
    THEN json_extract(document, '$.duration_s') > 0 END"""
"""A job that ended and for which a run time is stated. Only such jobs are evidence of run times;
the words are those of the partial indexes in schema.sql."""
END = "ifnull(end_time, -9e99)"


_UPSERT = """INSERT INTO jobs
    (job_id, text_id, fingerprint, state, ended, user, submit_time, end_time, document)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (job_id) DO UPDATE SET
    text_id = excluded.text_id, fingerprint = excluded.fingerprint, state = excluded.state,
    ended = excluded.ended, user = excluded.user, submit_time = excluded.submit_time,
    end_time = excluded.end_time, document = excluded.document"""


class HistoryStats(TypedDict):
    """Counts of a history. Times are seconds since the epoch, None when no job says."""

    jobs: int
    states: dict[str, int]
    workloads: int
    fingerprints: int
    first_submit_time: float | None
    last_submit_time: float | None
    manifest: dict[str, str]


# `list` is a method below, so the built-in of that name needs another in annotations.
Records = list[JobRecord]
Runs = list[tuple[JobRecord, str]]
"""Jobs with their fingerprints."""

DayCounts = list[tuple[int, str, int, float]]
"""Rows of `JobTable.by_day`."""


LONGEST_STAY_S = 60 * 86_400.0
"""Time from the submission of a job to its end, beyond which the month's counts miss it: they are
found by their submission [s]."""


class JobTable:
    """The jobs of one history, by id, fingerprint and text."""

    def __init__(self, database: Database) -> None:
        self.path = database.folder
        self._db = database
        self._spread = UNLEARNED_SPREAD

    def __len__(self) -> int:
        # Jobs are replaced, and numbered anew where old ones are deleted, so the last row's number
        # is how many there are; counting a million would take longer than an estimate.
        return int(self._db.query("SELECT max(rowid) FROM jobs")[0][0] or 0)

    def version(self) -> tuple[int, int]:
        """Two numbers that differ from earlier ones once other connections have written, or jobs
        were added; of use as long as this connection is open."""
        return len(self), int(self._db.query("PRAGMA data_version")[0][0])

    def get(self, job_id: str) -> JobRecord | None:
        """A job by id, None when it is not stored."""
        records = self._records("WHERE job_id = ?", (job_id,))
        return records[0] if records else None

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

    def find(self, text: str, limit: int, newest: int) -> Records:
        """Jobs with a text in their document, of the `newest` submitted ones, the latest first."""
        return self._records(
            "WHERE rowid IN (SELECT rowid FROM (SELECT rowid, document FROM jobs ORDER BY "
            "submit_time DESC, job_id LIMIT ?) WHERE instr(lower(document), lower(?)) > 0 LIMIT ?) "
            "ORDER BY submit_time DESC, job_id",
            (newest, text, limit),
        )

    def by_day(self, since: float) -> DayCounts:
        """Jobs that have ended after a time [s since epoch]: days between that and their end,
        state, number, GPU seconds. Those submitted `LONGEST_STAY_S` before it are left out."""
        sql = (
            "SELECT CAST((end_time - ?) / 86400 AS INTEGER), state, count(*), "
            "total(json_extract(document, '$.duration_s') * "
            "json_extract(document, '$.launch.gpus')) FROM jobs "
            "WHERE (submit_time >= ? OR submit_time IS NULL) AND ended = 1 AND end_time >= ? "
            "AND json_valid(document) GROUP BY 1, 2 ORDER BY 1, 2"
        )
        return [tuple(row) for row in self._db.query(sql, (since, since - LONGEST_STAY_S, since))]

    def started(
        self, since: float, limit: int = 50_000
    ) -> builtins.list[tuple[float, float, str | None]]:
        """Of jobs with GPUs that have run and were submitted after a time, the last `limit`:
        submission, start [s since epoch], user."""
        sql = (
            "SELECT * FROM (SELECT submit_time, json_extract(document, '$.start_time') AS start, "
            "user FROM jobs WHERE submit_time >= ? AND ended = 1 AND json_valid(document) "
            "AND json_extract(document, '$.launch.gpus') > 0 ORDER BY submit_time DESC LIMIT ?) "
            "WHERE start >= submit_time"
        )
        return [
            (submitted, start, user)
            for submitted, start, user in self._db.query(sql, (since, limit))
        ]

    def by_fingerprint(
        self, fingerprint: str, limit: int = RECENT, *, before: float | None = None
    ) -> Records:
        """Runs of jobs with this fingerprint that ended by `before` [s since epoch], the latest
        ended first: at most `limit` completed ones and as many that were cut short.

        Jobs that have not run are none; see `JobHistory.search`.
        """
        completed = self._runs("fingerprint", fingerprint, True, limit, before)
        cut_short = self._runs("fingerprint", fingerprint, False, limit, before)
        return [run for run, _ in _latest_ended_first([*completed, *cut_short])]

    def spread(self) -> Spread:
        """How much runs of one job vary, by the last submitted jobs that have completed.

        Computed again when the history has grown by a fiftieth. It describes the cluster, not a
        moment: an estimate for a past moment uses it as well.
        """
        size = len(self)
        if not self._spread.fits(size):
            # The index is walked in order of submission until there are enough: a large history
            # takes no longer. A damaged document among them is no reason not to answer.
            sql = """SELECT fingerprint, duration FROM (
                SELECT submit_time, job_id, fingerprint,
                    json_extract(document, '$.duration_s') AS duration
                FROM jobs WHERE (state = 'COMPLETED') = 1 AND submit_time IS NOT NULL
                AND CASE WHEN json_valid(document)
                    THEN json_extract(document, '$.duration_s') > 0 END
                ORDER BY submit_time DESC, job_id DESC LIMIT ?
                ) ORDER BY submit_time, job_id"""
            self._spread = LearnedSpread(size, learn_spread(self._db.query(sql, (SPREAD_JOBS,))))
        return self._spread.spread

    def export(self) -> Iterator[JobRecord]:
        """Every job, in order of id."""
        for page in self._pages():
            yield from page

    def unlearned(self, limit: int) -> builtins.list[tuple[str, JobRecord | None]]:
        """Ended jobs that the experts have yet to learn from, the first ended first; None for a
        record that is no evidence of a run time."""
        rows = self._db.query(
            f"SELECT u.job_id, CASE WHEN {RAN} THEN j.document END "  # noqa: S608 - our own words
            "FROM unlearned u LEFT JOIN jobs j ON j.job_id = u.job_id "
            f"ORDER BY {END}, u.job_id LIMIT ?",
            (limit,),
        )
        return [(job_id, None if text is None else self._parse(text)) for job_id, text in rows]

    def count_unlearned(self) -> int:
        """How many ended jobs wait to be learned from."""
        return int(self._db.query("SELECT count(*) FROM unlearned")[0][0])

    def still_unlearned(self, job_ids: Sequence[str]) -> builtins.list[str]:
        """Those of these jobs that nobody has learned from meanwhile; part of a `writing` block."""
        sql = "SELECT job_id FROM unlearned WHERE job_id IN (SELECT value FROM json_each(?))"
        return [row[0] for row in self._db.query(sql, (json.dumps(job_ids),))]

    def learned(self, job_ids: Sequence[str]) -> None:
        """Note that these jobs have been learned from; part of a `writing` block."""
        sql = "DELETE FROM unlearned WHERE job_id = ?"
        self._db.execute_many(sql, [(job_id,) for job_id in job_ids])

    def forget_learned(self) -> None:
        """Delete what was learned (`RunTimes.forget`)."""
        with self._db.writing():
            self._db.execute("DELETE FROM learned")
            sql = "INSERT OR IGNORE INTO unlearned SELECT job_id FROM jobs WHERE ended = 1"
            self._db.execute(sql)

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
                "manifest": dict(self._db.query("SELECT key, value FROM manifest")),
            }

    def _pages(self) -> Iterator[Records]:
        page = self._records("ORDER BY job_id LIMIT ?", (PAGE,))
        while page:
            yield page
            last = page[-1].job_id
            page = self._records("WHERE job_id > ? ORDER BY job_id LIMIT ?", (last, PAGE))

    def _records(self, where: str, values: Sequence[Any]) -> Records:
        # `where` is written in this class; what users give is bound
        rows = self._db.query(f"SELECT document FROM jobs {where}", values)  # noqa: S608
        return [self._parse(row[0]) for row in rows]

    def _parse(self, document: str) -> JobRecord:
        try:
            return _parsed_record(document)
        except ValidationError as error:
            raise HistoryError(
                f"{self.path}: a stored job cannot be read ({first_fault(error)}); it was "
                "written by another version of schedmate, or is damaged; upgrade schedmate, or "
                "restore a copy"
            ) from None

    def _texts_with_runs(self, ids: Iterable[int], before: float | None) -> set[int]:
        """Those of the texts that a job has which has run, by `before` [s since epoch]."""
        wanted = list(ids)
        texts: set[int] = set()
        moments = [] if before is None else [before, before]
        for start in range(0, len(wanted), SQL_PARAMETERS):
            part = wanted[start : start + SQL_PARAMETERS]
            either = " OR ".join(
                f"EXISTS (SELECT 1 FROM jobs WHERE text_id = value "  # noqa: S608
                f"AND (state = 'COMPLETED') = {completed} AND {RAN} {_ended_by(before)})"
                for completed in (1, 0)
            )
            sql = f"SELECT value FROM json_each(?) WHERE {either}"  # noqa: S608
            texts.update(row[0] for row in self._db.query(sql, (json.dumps(part), *moments)))
        return texts

    def _runs_of_text(
        self, text_id: int, completed: int, cut_short: int, before: float | None
    ) -> Runs:
        """Runs with their fingerprints: at most so many that completed and that did not, those of
        each kind that ended last, by `before`; all in order of their ends, the latest first."""
        runs = self._runs("text_id", text_id, True, completed, before)
        runs += self._runs("text_id", text_id, False, cut_short, before)
        return _latest_ended_first(runs)

    def _runs(
        self, column: str, value: Any, completed: bool, limit: int, before: float | None
    ) -> Runs:
        if limit < 1:
            return []
        rows = self._db.query(
            f"SELECT document, fingerprint FROM jobs WHERE {column} = ? "  # noqa: S608
            f"AND (state = 'COMPLETED') = {int(completed)} AND {RAN} {_ended_by(before)} "
            f"ORDER BY {END} DESC, job_id LIMIT ?",
            (value, *([] if before is None else [before]), limit),
        )
        return [(self._parse(document), fingerprint) for document, fingerprint in rows]

    def _of_text(self, text_id: int, limit: int) -> Runs:
        """Jobs, whether they ran or not."""
        rows = self._db.query(
            "SELECT document, fingerprint FROM jobs WHERE text_id = ? "
            "ORDER BY end_time DESC, job_id LIMIT ?",
            (text_id, limit),
        )
        return [(self._parse(document), fingerprint) for document, fingerprint in rows]

    def finish(
        self,
        job_id: str,
        *,
        duration_s: float | None = None,
        end_time: float | None = None,
        state: JobState = "COMPLETED",
        **usage: Any,
    ) -> JobRecord:
        """Close a stored job: its run time [s], its end [s since epoch], its state.

        `usage` are further fields of `JobRecord` (gpu_util, sm_util, gpu_mem_mb, throughput).
        Raises `HistoryError` for a job that is not stored, `UsageError` for values that a record
        cannot have.
        """
        with self._db.writing():
            rows = self._db.query("SELECT document, text_id FROM jobs WHERE job_id = ?", (job_id,))
            if not rows:
                raise unknown_job(job_id)
            changes = {"duration_s": duration_s, "end_time": end_time, **usage}
            record = finished_job(self._parse(rows[0][0]), changes, state)
            self._upsert([(record, rows[0][1])])
        return record

    def _upsert(self, records: Iterable[tuple[JobRecord, int | None]]) -> None:
        self._db.execute_many(_UPSERT, [_job_row(record, text_id) for record, text_id in records])


def _ended_by(before: float | None) -> str:
    """The condition that a run ended by a moment, which is bound; none without a moment."""
    return "" if before is None else f"AND {END} <= ?"


def _latest_ended_first(runs: Runs) -> Runs:
    return sorted(runs, key=lambda run: _end_order(run[0]))


def _end_order(record: JobRecord) -> tuple[float, str]:
    return (math.inf if record.end_time is None else -record.end_time, record.job_id)


@lru_cache(maxsize=PARSED)
def _parsed_record(document: str) -> JobRecord:
    return JobRecord.model_validate_json(document, context=STORED)


def finished_job(job: JobRecord, changes: Mapping[str, Any], state: str) -> JobRecord:
    """A job that has ended, with the changes that are not None; see `JobTable.finish`."""
    stated = {key: value for key, value in changes.items() if value is not None}
    ended = stated.get("end_time")
    if "duration_s" not in stated and ended is not None and job.start_time is not None:
        stated["duration_s"] = max(0.0, ended - job.start_time)
    try:
        return JobRecord.model_validate(job.model_dump() | stated | {"state": state})
    except ValidationError as error:
        raise UsageError(f"job {job.job_id}: {fault_sentence(error)}") from None


def unknown_job(job_id: str) -> HistoryError:
    """The error for a job that is not stored."""
    return HistoryError(
        f"no job {job_id!r} in the history; `schedmate history list` shows what there is"
    )


def _job_row(record: JobRecord, text_id: int | None) -> tuple[Any, ...]:
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


# The renderings of past jobs and their vectors, as rows of the history's database.


SQL_PARAMETERS = 500
"""Values bound to one statement."""
TEXT_ROWS = 20_000
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
        ids_by_text: dict[str, int] = {}
        for start in range(0, len(wanted), SQL_PARAMETERS):
            part = wanted[start : start + SQL_PARAMETERS]
            marks = _question_marks(part)
            sql = f"SELECT text, id FROM texts WHERE generation = ? AND text IN ({marks})"  # noqa: S608
            ids_by_text.update(self._db.query(sql, (self.generation, *part)))
        return ids_by_text

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
        while rows := self._db.query(sql, (self.generation, row_id, TEXT_ROWS)):
            yield self._arrays(rows)
            row_id = rows[-1][0]

    def vectors(self, ids: Sequence[int]) -> dict[int, NDArray[float32]]:
        """The vectors with these row ids, those that exist."""
        vectors_by_id: dict[int, NDArray[float32]] = {}
        for start in range(0, len(ids), SQL_PARAMETERS):
            part = ids[start : start + SQL_PARAMETERS]
            marks = _question_marks(part)
            sql = f"SELECT id, vector FROM texts WHERE generation = ? AND id IN ({marks})"  # noqa: S608
            rows = self._db.query(sql, (self.generation, *part))
            numbers, vectors = self._arrays(rows)
            vectors_by_id.update(zip(numbers.tolist(), vectors, strict=True))
        return vectors_by_id

    def _arrays(self, rows: Sequence[tuple[int, bytes]]) -> tuple[NDArray[int64], NDArray[float32]]:
        import numpy as np

        joined = b"".join(row[1] for row in rows)
        if len(joined) != len(rows) * self.dim * np.dtype(np.float32).itemsize:
            raise HistoryError(
                f"{self._db.folder}: stored vectors are damaged; run `schedmate history rebuild`"
            )
        ids = np.fromiter((row[0] for row in rows), dtype=np.int64, count=len(rows))
        return ids, np.frombuffer(joined, dtype=np.float32).reshape(len(rows), self.dim)


def _question_marks(values: Sequence[object]) -> str:
    return ",".join("?" * len(values))
