"""An agent's memory between passes and restarts, in SQLite beside its record.

It has the estimate of each job, the runs learned from, the users' trust (how well their jobs keep
to their estimates), and the order values that were set. It can be deleted: then jobs in the queue
are read again, and trust starts anew. Changes to the cluster are in the `Record`, not here.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, Self

from schedmate.base.data import dumps
from schedmate.base.errors import InputError
from schedmate.base.journal import Connection, undamaged, upgrade, with_column
from schedmate.cluster.report import Checked
from schedmate.jobs import Estimate, JobSpec, Progress, WorkloadMetadata

SCHEMA = """
CREATE TABLE IF NOT EXISTS known (
    key TEXT PRIMARY KEY, user TEXT, at REAL, spec TEXT, metadata TEXT, estimate TEXT, log TEXT);
CREATE TABLE IF NOT EXISTS ended (run TEXT PRIMARY KEY, at REAL);
CREATE TABLE IF NOT EXISTS diagnosed (run TEXT PRIMARY KEY, at REAL);
CREATE TABLE IF NOT EXISTS trust (user TEXT PRIMARY KEY, value REAL, runs INTEGER);
CREATE TABLE IF NOT EXISTS given (job TEXT PRIMARY KEY, value INTEGER, before INTEGER);
CREATE TABLE IF NOT EXISTS noted (key TEXT PRIMARY KEY, at REAL, text TEXT);
CREATE TABLE IF NOT EXISTS progress (job TEXT PRIMARY KEY, key TEXT, at REAL, document TEXT);
CREATE TABLE IF NOT EXISTS marks (name TEXT PRIMARY KEY, value TEXT);
"""

STEPS = (
    SCHEMA,
    with_column("known", "errors", "TEXT NOT NULL DEFAULT ''"),
    with_column("given", "sure", "INTEGER NOT NULL DEFAULT 0"),
    "CREATE TABLE checked (run TEXT PRIMARY KEY, at REAL, document TEXT);",
)
"""The format of the file, version by version."""

KEPT_S = 30 * 86_400.0
"""Time for which jobs that are over are remembered [s]."""

CHECKED_S = 400 * 86_400.0
"""Time for which runs are remembered beside their estimates, for reports [s]."""


class KnownJob(NamedTuple):
    """Metadata and estimate of a job, from when it was first seen."""

    key: str
    at: float
    spec: JobSpec
    metadata: WorkloadMetadata
    estimate: Estimate
    log: str
    errors: str = ""
    """Pattern of a second file that its errors go to, if they do not go to its log."""


class Memory:
    """The agent's SQLite file. One agent writes it, any process may read it."""

    def __init__(self, path: Path, *, read_only: bool = False, scratch: bool = False) -> None:
        """`scratch` works on a copy that is thrown away, for dry runs."""
        self.path = path
        try:
            if scratch:
                self._db = sqlite3.connect(":memory:", factory=Connection)
                if path.exists():
                    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as real:
                        real.backup(self._db)
            elif read_only:
                self._db = sqlite3.connect(f"file:{path}?mode=ro", uri=True, factory=Connection)
            else:
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                self._db = sqlite3.connect(path, factory=Connection, timeout=30.0)
                self._db.execute("PRAGMA journal_mode = WAL")
            if not read_only:
                upgrade(self._db, path, STEPS)
        except (sqlite3.Error, OSError) as error:
            raise InputError(
                f"cannot open the agent's memory {path}: {error}; it can be deleted."
            ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    # -- jobs ------------------------------------------------------------

    def unknown(self, keys: Iterable[str]) -> set[str]:
        """The keys of which nothing is stored."""
        wanted = list(keys)
        rows = self._db.execute(
            "SELECT key FROM known WHERE key IN (SELECT value FROM json_each(?))",
            (json.dumps(wanted),),
        )
        return set(wanted) - {key for (key,) in rows}

    def remember(self, job: KnownJob) -> None:
        """Store the findings about a job."""
        with self._db:
            self._db.execute(
                "INSERT OR REPLACE INTO known VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *(job.key, job.spec.user, job.at),
                    job.spec.model_dump_json(),
                    job.metadata.model_dump_json(by_alias=True),
                    job.estimate.model_dump_json(),
                    *(job.log, job.errors),
                ),
            )

    def known(self, key: str) -> KnownJob | None:
        """The remembered data of a job."""
        with undamaged(self.path):
            row = self._db.execute(
                "SELECT key, at, spec, metadata, estimate, log, errors FROM known WHERE key = ?",
                (key,),
            ).fetchone()
            return None if row is None else _known_job(row)

    def recent(self, since: float) -> list[KnownJob]:
        """What was stored of jobs since a time [s since epoch]."""
        with undamaged(self.path):
            rows = self._db.execute(
                "SELECT key, at, spec, metadata, estimate, log, errors FROM known WHERE at >= ?",
                (since,),
            )
            return [_known_job(row) for row in rows]

    def estimates(self, keys: Iterable[str]) -> dict[str, Estimate]:
        """The estimates of jobs, by key."""
        with undamaged(self.path):
            rows = self._db.execute(
                "SELECT key, estimate FROM known WHERE key IN (SELECT value FROM json_each(?))",
                (json.dumps(list(keys)),),
            )
            return {key: Estimate.model_validate_json(text) for key, text in rows}

    def keep_progress(self, job: str, key: str, at: float, progress: Progress) -> None:
        """Store the last progress of a running job and when its log was read [s since epoch]."""
        with self._db:
            self._db.execute(
                "INSERT OR REPLACE INTO progress VALUES (?, ?, ?, ?)",
                (job, key, at, progress.model_dump_json()),
            )

    def progress(self) -> dict[str, tuple[float, Progress]]:
        """Last known progress of running jobs and when it was read [s since epoch], by job."""
        with undamaged(self.path):
            rows = self._db.execute("SELECT job, at, document FROM progress")
            return {job: (at, Progress.model_validate_json(text)) for job, at, text in rows}

    def only_running(self, jobs: Iterable[str]) -> None:
        """Delete the progress of all other jobs."""
        with self._db:
            self._db.execute(
                "DELETE FROM progress WHERE job NOT IN (SELECT value FROM json_each(?))",
                (json.dumps(list(jobs)),),
            )

    # -- runs that ended ---------------------------------------------------

    def unlearned(self, runs: Iterable[str]) -> set[str]:
        """The runs that were not learned from yet."""
        return self._not_in("ended", runs)

    def undiagnosed(self, runs: Iterable[str]) -> set[str]:
        """The runs whose failure was not looked into yet."""
        return self._not_in("diagnosed", runs)

    def _not_in(self, table: str, runs: Iterable[str]) -> set[str]:
        wanted = list(runs)
        done = self._db.execute(
            f"SELECT run FROM {table} WHERE run IN (SELECT value FROM json_each(?))",  # noqa: S608
            (json.dumps(wanted),),
        )
        return set(wanted) - {run for (run,) in done}

    def diagnosed(self, run: str, at: float) -> None:
        """Store that a failed run was looked into."""
        with self._db:
            self._db.execute("INSERT OR IGNORE INTO diagnosed VALUES (?, ?)", (run, at))

    def learned(
        self,
        runs: Iterable[str],
        at: float,
        trust: Mapping[str, tuple[float, int]],
        checked: Iterable[Checked] = (),
    ) -> None:
        """Store, in one transaction, that runs were learned from, and what that says of users.

        `trust` has a user's trust since, and by how many of the runs; `checked` the runs beside
        their estimates, which are kept for `CHECKED_S`.
        """
        with self._db:
            self._db.executemany(
                "INSERT OR IGNORE INTO ended VALUES (?, ?)", [(run, at) for run in runs]
            )
            self._db.executemany(
                "INSERT INTO trust VALUES (?, ?, ?) ON CONFLICT (user) DO UPDATE "
                "SET value = excluded.value, runs = runs + excluded.runs",
                [(user, value, count) for user, (value, count) in trust.items()],
            )
            self._db.executemany(
                "INSERT OR REPLACE INTO checked VALUES (?, ?, ?)",
                [(one.run, one.ended, one.model_dump_json()) for one in checked],
            )

    def checked(self, since: float) -> list[Checked]:
        """Runs that ended since then [s since epoch], beside their estimates."""
        with undamaged(self.path):
            rows = self._db.execute("SELECT document FROM checked WHERE at >= ?", (since,))
            return [Checked.model_validate_json(text) for (text,) in rows]

    def trust(self) -> dict[str, float]:
        """Trust by user, if it ever changed; otherwise it is 1."""
        return dict(self._db.execute("SELECT user, value FROM trust"))

    # -- the rest ----------------------------------------------------------

    def ordering(self) -> dict[str, tuple[int, int]]:
        """The last and the previous order value of jobs; after an interruption, either may be
        set."""
        rows = self._db.execute("SELECT job, value, before FROM given")
        return {job: (value, before) for job, value, before in rows}

    def surely_given(self) -> dict[str, int]:
        """The order values that jobs certainly have."""
        return dict(self._db.execute("SELECT job, value FROM given WHERE sure"))

    def give(self, values: Mapping[str, int], before: Mapping[str, int], *, sure: bool) -> None:
        """Store that order values are about to be set or, if `sure`, that they are."""
        with self._db:
            self._db.executemany(
                "INSERT OR REPLACE INTO given VALUES (?, ?, ?, ?)",
                [(job, value, before[job], sure) for job, value in values.items()],
            )

    def forget_given(self, but: Iterable[str]) -> None:
        """Delete the order values of all jobs but these."""
        with self._db:
            self._db.execute(
                "DELETE FROM given WHERE job NOT IN (SELECT value FROM json_each(?))",
                (json.dumps(list(but)),),
            )

    def noted(self, keys: Iterable[str]) -> dict[str, str]:
        """The notes on jobs, by key."""
        return dict(
            self._db.execute(
                "SELECT key, text FROM noted WHERE key IN (SELECT value FROM json_each(?))",
                (json.dumps(list(keys)),),
            )
        )

    def note(self, texts: Mapping[str, str], at: float) -> None:
        """Store that notes were written on jobs, by key."""
        with self._db:
            self._db.executemany(
                "INSERT OR REPLACE INTO noted VALUES (?, ?, ?)",
                [(key, at, text) for key, text in texts.items()],
            )

    def mark(self, name: str) -> Any:
        """A value kept under a name, or None."""
        row = self._db.execute("SELECT value FROM marks WHERE name = ?", (name,)).fetchone()
        return None if row is None else json.loads(row[0])

    def set_mark(self, name: str, value: Any) -> None:
        """Keep a value under a name."""
        with self._db:
            self._db.execute("INSERT OR REPLACE INTO marks VALUES (?, ?)", (name, dumps(value)))

    def forget(self, now: float) -> None:
        """Delete what has been over for long."""
        with self._db:
            for table in ("known", "ended", "diagnosed", "noted"):
                self._db.execute(f"DELETE FROM {table} WHERE at < ?", (now - KEPT_S,))  # noqa: S608
            self._db.execute("DELETE FROM checked WHERE at < ?", (now - CHECKED_S,))


def _known_job(row: tuple[Any, ...]) -> KnownJob:
    key, at, spec, metadata, estimate, log, errors = row
    return KnownJob(
        key,
        at,
        JobSpec.model_validate_json(spec),
        WorkloadMetadata.model_validate_json(metadata),
        Estimate.model_validate_json(estimate),
        log,
        errors,
    )
