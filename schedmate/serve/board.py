"""`Board`: what the dashboard shows, one row a job, in a SQLite file of the service's own.

It can be deleted at any time: what must not be lost is in the history and in the record of plans.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from schedmate.base.errors import InputError
from schedmate.base.journal import Connection, upgrade, with_column
from schedmate.jobs import FAILURE_STATES, Diagnosis, Estimate, JobRecord, JobSpec, Progress
from schedmate.jobs.health import Condition

FILE = "board.db"
KEPT_S = 30 * 86_400.0
"""Time for which a job stays on the board after its last update [s]."""
TIDIED_EVERY_S = 3600.0
"""Time after which older jobs are dropped again [s]."""
LISTED = 200
"""Rows of one table of the dashboard."""
_WAITS = "state = 'PENDING' AND diagnosed IS NULL"
"""A job that was only diagnosed has a log, and its state is unknown where that shows no failure."""

Job = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Advised:
    """An estimate was given."""

    job: JobSpec
    estimate: Estimate
    time: float


@dataclass(frozen=True, slots=True)
class Tracked:
    """A running job's log was read, or, where `log` is None, its program said how it goes."""

    job: JobSpec
    progress: Progress
    time: float
    log: str | None
    batch_size: int | None
    follow: bool
    conditions: Sequence[Condition] = ()
    """What a person should know of it, the most urgent first."""


@dataclass(frozen=True, slots=True)
class Diagnosed:
    """A failed job's logs were read."""

    job: JobSpec
    diagnosis: Diagnosis
    time: float


@dataclass(frozen=True, slots=True)
class Heard:
    """The history has a job in some state."""

    record: JobRecord
    time: float


Update = Advised | Tracked | Diagnosed | Heard

READINGS = """CREATE TABLE readings (job_id TEXT, at REAL, iteration INTEGER, step_time_s REAL,
    loss REAL, PRIMARY KEY (job_id, at)) WITHOUT ROWID;"""
"""The course of a job: what its log said at each look."""
COLUMNS = (with_column("jobs", "limit_s", "REAL"), with_column("jobs", "conditions", "TEXT"))
"""What later formats of the file added to its first table."""
MOST_READINGS = 400
"""Readings kept of a job; beyond them, every second one goes."""


@dataclass(frozen=True, slots=True)
class Checked:
    """A completed job and the last estimate before it began [s]."""

    duration_s: float
    estimate_s: float
    p10_s: float
    p90_s: float

    @property
    def place(self) -> str:
        """The actual run time: `below` p10, `within` p10 to p90, or `above` p90."""
        if self.duration_s < self.p10_s:
            return "below"
        return "above" if self.duration_s > self.p90_s else "within"


class Board:
    """One writer, any number of readers; both from any thread."""

    def __init__(
        self, folder: Path, on_checked: Callable[[Checked], None] = lambda _: None
    ) -> None:
        """Raises `InputError` if the file cannot be created or is not one of ours."""
        self._on_checked = on_checked
        self._tidied = 0.0
        self._lock = threading.Lock()
        path = folder / FILE
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._writer, self._reader = (_connect(path) for _ in range(2))
            script = resources.files(__package__).joinpath("board.sql").read_text("utf-8")
            upgrade(self._writer, path, (script, READINGS, *COLUMNS))
        except (OSError, sqlite3.Error) as error:
            raise InputError(
                f"cannot keep the dashboard's state in {path}: {error}; name another --state."
            ) from None

    def close(self) -> None:
        """Release the file. May be repeated."""
        with self._lock:
            self._writer.close()
            self._reader.close()

    # -- writing ------------------------------------------------------------

    def write(self, updates: Sequence[Update]) -> None:
        """Store updates in order, all or none."""
        self._writer.execute("BEGIN IMMEDIATE")
        try:
            for update in updates:
                self._store_update(update)
            if updates and updates[-1].time > self._tidied + TIDIED_EVERY_S:
                self._tidied = updates[-1].time
                self._tidy(self._tidied)
            self._writer.execute("COMMIT")
        finally:
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")

    def _store_update(self, update: Update) -> None:
        if isinstance(update, Heard):
            self._heard(update.record, update.time)
            return
        job, now = update.job, update.time
        if not job.job_id:
            return
        self._named(job, now)
        if isinstance(update, Advised):
            estimate = update.estimate
            self._writer.execute(
                "UPDATE jobs SET advised = ?, estimate_s = ?, p10_s = ?, p90_s = ?, runs = ?, "
                "reason = ? WHERE job_id = ? AND state = 'PENDING'",
                (
                    *(now, estimate.duration_s, estimate.duration_p10_s, estimate.duration_p90_s),
                    *(estimate.past_jobs, estimate.reason, job.job_id),
                ),
            )
        elif isinstance(update, Tracked):
            conditions = [one.model_dump(exclude_defaults=True) for one in update.conditions]
            self._writer.execute(
                "UPDATE jobs SET state = iif(state = 'PENDING', 'RUNNING', state), tracked = ?, "
                "progress = ?, log = coalesce(?, log), batch_size = ?, "
                "followed = max(followed, ?), conditions = ? WHERE job_id = ?",
                (
                    *(now, update.progress.model_dump_json(exclude_defaults=True), update.log),
                    *(update.batch_size, update.follow, json.dumps(conditions), job.job_id),
                ),
            )
            self._keep_reading(job.job_id, now, update.progress)
        else:
            failed = update.diagnosis.error_type != "none"
            self._writer.execute(
                "UPDATE jobs SET diagnosed = ?, diagnosis = ?, followed = 0, "
                "state = iif(? AND state IN ('PENDING', 'RUNNING'), 'FAILED', state) "
                "WHERE job_id = ?",
                (now, update.diagnosis.model_dump_json(exclude_defaults=True), failed, job.job_id),
            )

    def _keep_reading(self, job_id: str, now: float, progress: Progress) -> None:
        read = (progress.iteration, progress.step_time_s, progress.loss)
        if read == (None, None, None):
            return
        self._writer.execute(
            "INSERT OR REPLACE INTO readings VALUES (?, ?, ?, ?, ?)", (job_id, now, *read)
        )
        ((count,),) = self._writer.execute(
            "SELECT count(*) FROM readings WHERE job_id = ?", (job_id,)
        ).fetchall()
        if count > MOST_READINGS:
            self._writer.execute(
                "DELETE FROM readings WHERE job_id = ? AND at IN (SELECT at FROM (SELECT at, "
                "row_number() OVER (ORDER BY at) AS n FROM readings WHERE job_id = ?) "
                "WHERE n % 2 = 0)",
                (job_id, job_id),
            )

    def _named(self, job: JobSpec, now: float) -> None:
        nodes = json.dumps(job.node_names) if job.node_names else None
        self._writer.execute(
            "INSERT INTO jobs (job_id, name, user, gpus, nodes, state, submit_time, limit_s, "
            "heard) VALUES (?, ?, ?, ?, ?, 'PENDING', ?, ?, ?) ON CONFLICT (job_id) DO UPDATE SET "
            "name = coalesce(excluded.name, name), user = coalesce(excluded.user, user), "
            "gpus = coalesce(excluded.gpus, gpus), nodes = coalesce(excluded.nodes, nodes), "
            "submit_time = coalesce(submit_time, excluded.submit_time), "
            "limit_s = coalesce(excluded.limit_s, limit_s), heard = excluded.heard",
            (
                *(job.job_id, job.name, job.user, job.launch.gpus, nodes, job.submit_time),
                *(job.launch.time_limit_s, now),
            ),
        )

    def _heard(self, record: JobRecord, now: float) -> None:
        times = (record.submit_time, record.start_time, record.end_time, record.duration_s)
        self._writer.execute(
            "INSERT INTO jobs (job_id, name, user, gpus, state, submit_time, start_time, end_time, "
            "duration_s, limit_s, heard) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (job_id) DO UPDATE SET name = coalesce(excluded.name, name), "
            "user = coalesce(excluded.user, user), gpus = coalesce(excluded.gpus, gpus), "
            "state = iif(excluded.state = 'PENDING', state, excluded.state), "
            "submit_time = coalesce(excluded.submit_time, submit_time), "
            "start_time = coalesce(excluded.start_time, start_time), "
            "end_time = coalesce(excluded.end_time, end_time), "
            "duration_s = coalesce(excluded.duration_s, duration_s), "
            "limit_s = coalesce(excluded.limit_s, limit_s), heard = excluded.heard",
            (
                *(record.job_id, record.name, record.user, record.launch.gpus, record.state),
                *(*times, record.launch.time_limit_s, now),
            ),
        )
        if not record.ended:
            return
        rows = self._writer.execute(
            "UPDATE jobs SET followed = 0, checked = (state = 'COMPLETED' AND estimate_s > 0 AND "
            "p10_s IS NOT NULL AND duration_s > 0) WHERE job_id = ? AND checked = 0 "
            "RETURNING checked, duration_s, estimate_s, p10_s, p90_s",
            (record.job_id,),
        ).fetchall()
        for checked, *numbers in rows:
            if checked:
                self._on_checked(Checked(*numbers))

    def _tidy(self, now: float) -> None:
        """Drop the jobs that were not heard of for a month."""
        self._writer.execute("DELETE FROM jobs WHERE heard < ?", (now - KEPT_S,))
        self._writer.execute("DELETE FROM readings WHERE job_id NOT IN (SELECT job_id FROM jobs)")

    # -- reading ------------------------------------------------------------

    def job(self, job_id: str) -> Job | None:
        """The job with this id, if it was heard of in the last month."""
        return next(iter(self._jobs("job_id = ?", (job_id,))), None)

    def readings(self, job_id: str) -> list[tuple[float, int | None, float | None, float | None]]:
        """Looks at the log of a job, the first one first: when [s since epoch], iteration, step
        time [s], loss."""
        sql = "SELECT at, iteration, step_time_s, loss FROM readings WHERE job_id = ? ORDER BY at"
        return [tuple(row) for row in self._rows(sql, (job_id,))]

    def find(self, text: str, limit: int = LISTED) -> list[Job]:
        """Jobs with a text in their id, name, user or nodes: those of a user of this name first,
        then the last heard of."""
        names = "job_id || ' ' || ifnull(name, '') || ' ' || ifnull(user, '') || ifnull(nodes, '')"
        where = (
            f"instr(lower({names}), lower(?)) > 0 "
            "ORDER BY ifnull(lower(user), '') <> lower(?), heard DESC, job_id LIMIT ?"
        )
        return self._jobs(where, (text, text, limit))

    def nodes_named(self, text: str, limit: int) -> list[str]:
        """Nodes with a text in their names; one of just this name comes first."""
        sql = (
            "SELECT DISTINCT value FROM jobs, json_each(jobs.nodes) WHERE nodes IS NOT NULL "
            "AND instr(lower(value), lower(?)) > 0 ORDER BY lower(value) <> lower(?), value LIMIT ?"
        )
        return [row[0] for row in self._rows(sql, (text, text, limit))]

    def on_node(self, node: str, limit: int) -> list[Job]:
        """Jobs that run, or ran, on a node or whose failure names it, the last ended ones first."""
        where = (
            "(EXISTS (SELECT 1 FROM json_each(jobs.nodes) WHERE value = ?) "
            "OR json_extract(diagnosis, '$.node') = ?) "
            "ORDER BY coalesce(end_time, diagnosed, heard) DESC, job_id LIMIT ?"
        )
        return self._jobs(where, (node, node, limit))

    def ended_on_nodes(self) -> list[tuple[list[str], str | None, str | None]]:
        """The jobs of the month that ended, of which it is known where they ran: their nodes, and
        of a failure that was diagnosed its type and the node that it names."""
        sql = (
            "SELECT nodes, json_extract(diagnosis, '$.error_type'), "
            "json_extract(diagnosis, '$.node') FROM jobs "
            "WHERE nodes IS NOT NULL AND state NOT IN ('PENDING', 'RUNNING')"
        )
        return [(json.loads(nodes), kind, node) for nodes, kind, node in self._rows(sql, ())]

    def checked_by_day(self, since: float) -> list[tuple[int, int, int]]:
        """Days after a time [s since epoch], completed jobs with an estimate, and those that ended
        within its interval."""
        sql = (
            "SELECT CAST((end_time - ?) / 86400 AS INTEGER), count(*), "
            "sum(duration_s BETWEEN p10_s AND p90_s) FROM jobs "
            "WHERE checked = 1 AND end_time >= ? GROUP BY 1 ORDER BY 1"
        )
        return [tuple(row) for row in self._rows(sql, (since, since))]

    def queue(self) -> list[Job]:
        """Pending jobs, the longest waiting first."""
        return self._jobs(f"{_WAITS} ORDER BY submit_time, job_id LIMIT {LISTED}")

    def running(self) -> list[Job]:
        """Running jobs: those of which a person should know something first, then the latest."""
        order = "ifnull(conditions, '[]') = '[]', ifnull(start_time, submit_time) DESC, job_id"
        return self._jobs(f"state = 'RUNNING' ORDER BY {order} LIMIT {LISTED}")

    def failures(self, limit: int = LISTED) -> list[Job]:
        """Failed jobs that were diagnosed, the latest first."""
        failed = "diagnosed IS NOT NULL AND json_extract(diagnosis, '$.error_type') <> 'none'"
        where = f"{failed} ORDER BY coalesce(end_time, diagnosed) DESC, job_id LIMIT ?"
        return self._jobs(where, (limit,))

    def undiagnosed(self, since: float, limit: int) -> list[Job]:
        """Jobs that failed after a time [s since epoch] without a diagnosis, the latest first."""
        states = ", ".join(f"'{state}'" for state in sorted(FAILURE_STATES))
        where = f"state IN ({states}) AND diagnosed IS NULL AND end_time >= ?"
        return self._jobs(f"{where} ORDER BY end_time DESC, job_id LIMIT ?", (since, limit))

    def followed(self, limit: int) -> list[Job]:
        """Running jobs whose logs are due to be read, the longest unread first."""
        where = "followed = 1 AND state = 'RUNNING' ORDER BY tracked, job_id LIMIT ?"
        return self._jobs(where, (limit,))

    def open(self, limit: int) -> list[str]:
        """Ids of jobs that had not ended when they were last heard of, the longest ago first."""
        sql = "SELECT job_id FROM jobs WHERE state IN ('PENDING', 'RUNNING') ORDER BY heard LIMIT ?"
        return [row[0] for row in self._rows(sql, (limit,))]

    def checked(self, limit: int = 1_000) -> list[Checked]:
        """The completed jobs that had an estimate, the latest ended first."""
        sql = (
            "SELECT duration_s, estimate_s, p10_s, p90_s FROM jobs WHERE checked = 1 "
            "ORDER BY end_time DESC LIMIT ?"
        )
        return [Checked(*row) for row in self._rows(sql, (limit,))]

    def counts(self) -> dict[str, int]:
        """How many jobs are in each state."""
        rows = self._rows("SELECT state, count(*) FROM jobs GROUP BY state", ())
        ((waiting,),) = self._rows(f"SELECT count(*) FROM jobs WHERE {_WAITS}", ())  # noqa: S608
        return dict(rows) | {"PENDING": waiting}

    def _jobs(self, where: str, values: Iterable[Any] = ()) -> list[Job]:
        with self._lock:
            cursor = self._reader.execute(f"SELECT * FROM jobs WHERE {where}", tuple(values))  # noqa: S608 - our own words
            names = [column[0] for column in cursor.description]
            jobs = [dict(zip(names, row, strict=True)) for row in cursor]
        for job in jobs:
            for key in ("nodes", "progress", "diagnosis", "conditions"):
                job[key] = json.loads(job[key]) if job[key] else None
        return jobs

    def _rows(self, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        with self._lock:
            return self._reader.execute(sql, values).fetchall()


def _connect(path: Path) -> sqlite3.Connection:
    path.touch(mode=0o600)
    connection = sqlite3.connect(
        path, timeout=30.0, isolation_level=None, check_same_thread=False, factory=Connection
    )
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    return connection
