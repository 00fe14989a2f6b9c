"""The jobs of a list in a temporary table on disk, so that memory does not grow with their number.

The table is filled once, and every section of the report reads it in the order that it needs.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from schedmate.logparse.triage.summary import NodeUse
from schedmate.site.accounting import AccountedJob

BATCH = 2_000
NODE_STATES = frozenset({"NODE_FAIL", "BOOT_FAIL"})
"""States in which the scheduler itself says that a node failed."""
MOST_NODES = 200_000
"""Nodes that are counted; of a list with more, further ones are not."""
CACHE_KB = 32_000
_COLUMNS = (
    *("id", "state", "user", "grp", "part", "qos", "name", "submit", "start", "end", "run", "lim"),
    *("gpus", "cpus", "nodes", "log"),
)


class Row(NamedTuple):
    """A job of the table; times in seconds, `grp`, `part`, `lim` are group, partition, limit."""

    number: int
    id: str
    state: str
    user: str | None
    grp: str | None
    part: str | None
    qos: str | None
    name: str | None
    submit: float | None
    start: float | None
    end: float | None
    run: float | None
    lim: float | None
    gpus: float
    cpus: float
    nodes: float
    log: str | None

    @property
    def size(self) -> float:
        """What it occupies: GPUs, without any processors, without any nodes; at least 1."""
        return self.gpus or self.cpus or self.nodes or 1.0


class JobTable:
    """Ended and unended jobs of one list. Made by `job_table`."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self.nodes: dict[str, NodeUse] = {}
        self.on_nodes = self.node_failures = 0
        """Jobs whose nodes are known, and those of them in one of `NODE_STATES`."""

    def fill(self, jobs: Iterable[AccountedJob]) -> Iterator[int]:
        """Take in all jobs; gives their number after each batch."""
        marks = ", ".join("?" * len(_COLUMNS))
        count, remaining = 0, iter(jobs)
        used: dict[str, list[float]] = {}
        while batch := list(islice(remaining, BATCH)):
            self._database.executemany(
                f"INSERT INTO jobs ({', '.join(_COLUMNS)}) VALUES ({marks})",
                (_values(job) for job in batch),
            )
            for job in batch:
                if job.hosts and job.ended and job.run_s is not None:
                    self._count_nodes(job, used)
            count += len(batch)
            yield count
        self.nodes = {
            host: NodeUse(int(jobs_), int(failures), hours)
            for host, (jobs_, failures, hours) in used.items()
        }
        self._database.execute("CREATE INDEX by_submission ON jobs (submit)")
        self._database.commit()

    def _count_nodes(self, job: AccountedJob, used: dict[str, list[float]]) -> None:
        failed = job.state in NODE_STATES
        self.on_nodes += 1
        self.node_failures += failed
        for host in dict.fromkeys(job.hosts):
            one = used.get(host)
            if one is None:
                if len(used) >= MOST_NODES:
                    continue
                one = used[host] = [0.0, 0.0, 0.0]
            one[0] += 1
            one[1] += failed
            one[2] += (job.run_s or 0.0) / 3600

    def rows(self, where: str, *values: Any, order: str = "submit, number") -> Iterator[Row]:
        """Jobs for which a condition in SQL holds."""
        found = self._database.execute(
            f"SELECT number, {', '.join(_COLUMNS)} FROM jobs WHERE {where} ORDER BY {order}",
            values,
        )
        return map(Row._make, found)

    def select(self, query: str, *values: Any) -> Iterator[tuple[Any, ...]]:
        """The rows of any other query."""
        return self._database.execute(query, values)

    def one(self, query: str, *values: Any) -> Any:
        """The first value of the first row of a query."""
        return self._database.execute(query, values).fetchone()[0]

    def add_estimates(self, estimates: Iterable[tuple[int, float]]) -> None:
        """Keep the estimate [s] of jobs by number."""
        self._database.executemany(
            "INSERT INTO estimates (number, seconds) VALUES (?, ?)", estimates
        )


def _values(job: AccountedJob) -> tuple[Any, ...]:
    return (
        *(job.id, job.state, job.user, job.group, job.partition, job.qos, job.name),
        *(job.submit, job.start),
        *(job.end, job.run_s, job.limit_s, job.gpus, job.cpus, job.nodes, job.log),
    )


@contextmanager
def job_table() -> Iterator[JobTable]:
    """An empty table in a temporary folder that only this user can read; removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="schedmate-site-") as folder:
        database = sqlite3.connect(Path(folder) / "jobs.sqlite")
        try:
            database.execute("PRAGMA journal_mode = OFF")
            database.execute("PRAGMA synchronous = OFF")
            database.execute(f"PRAGMA cache_size = -{CACHE_KB}")
            database.execute(
                "CREATE TABLE jobs (number INTEGER PRIMARY KEY, id, state, user, grp, part, qos, "
                "name, submit REAL, start REAL, end REAL, run REAL, lim REAL, gpus REAL, "
                "cpus REAL, nodes REAL, log)"
            )
            database.execute("CREATE TABLE estimates (number INTEGER PRIMARY KEY, seconds REAL)")
            yield JobTable(database)
        finally:
            database.close()
