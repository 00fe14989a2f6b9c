"""The jobs of the queue and their runs: as submitted, in one SQLite file, and as printed.

A decision is stored before it is carried out, and its result afterwards, so that a queue that was
killed knows what to look for. One process writes; its threads share one connection.
"""

from __future__ import annotations

import json
import math
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field, model_validator

from schedmate.base.data import MOST_GPUS
from schedmate.base.errors import InputError
from schedmate.base.journal import Connection, undamaged, upgrade, with_column
from schedmate.jobs import JobSpec
from schedmate.jobs.metadata import Text

if TYPE_CHECKING:
    from schedmate.schedulers.sim.starts import Begun

SIGNALS = {"TERM": 15, "INT": 2, "USR1": 10, "USR2": 12}
"""Signals that ask a job to save its work and end, by name."""

QueueState = Literal[
    "PENDING", "RUNNING", "COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL"
]
OVER: frozenset[QueueState] = frozenset(
    {"COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL"}
)
"""States of a job that is not in the queue any more."""


class Request(BaseModel):
    """One job as it was submitted: what `analyze` takes, and how it is run."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, frozen=True)

    spec: JobSpec
    """The job, with `command` and `repo`, its working directory."""
    gpus: float = Field(1.0, gt=0, le=MOST_GPUS, description="A part of one GPU below 1")
    min_gpus: int = Field(
        0, ge=0, le=MOST_GPUS, description="Fewest of an elastic job; 0: it is none"
    )
    max_gpus: int = Field(0, ge=0, le=MOST_GPUS)
    queue: Text = ""
    """Virtual cluster; empty: any node."""
    priority: int = Field(0, ge=-1000, le=1000)
    env: dict[str, str] = Field(default_factory=dict)
    checkpoints: str | None = None
    """The directory of its checkpoints; None: the command finds them by itself."""
    signal: Literal["TERM", "INT", "USR1", "USR2"] = "TERM"
    grace_s: float = Field(30.0, ge=0, le=3600, description="From the signal to the kill [s]")

    @model_validator(mode="after")
    def _possible(self) -> Request:
        if not self.spec.command or not self.spec.repo:
            raise ValueError("a job needs a command and the directory to run it in")
        if self.gpus > 1 and self.gpus != int(self.gpus):
            raise ValueError("GPUs are whole, or a part of one")
        if self.max_gpus and not 0 < self.min_gpus <= self.gpus <= self.max_gpus:
            raise ValueError("an elastic job needs 1 <= min_gpus <= gpus <= max_gpus")
        if "\0" in self.spec.command or any("\0" in one for one in self.env.values()):
            raise ValueError("a command has no NUL characters")
        texts = (self.spec.command, self.spec.repo, self.spec.name, self.checkpoints, *self.env)
        try:
            "".join(one or "" for one in (*texts, *self.env.values())).encode()
        except UnicodeEncodeError:
            raise ValueError("what is submitted must be UTF-8") from None
        return self


class Place(NamedTuple):
    """The GPUs of a run on one node."""

    node: str
    """The node's id."""
    name: str
    gpus: float


class StoredJob(NamedTuple):
    """A job, as the store has it."""

    id: int
    mark: str
    """The job's unique name on every cluster, which its processes and locks carry."""
    request: Request
    submitted: float
    """[s since epoch]"""
    queued: float
    """When it was last queued [s since epoch]; each has a different whole second."""
    state: QueueState
    restarts: int
    """Number of requeues after a failure."""
    held: bool
    cancelled: bool
    exclude: tuple[str, ...]
    """Names of nodes on which it must not start."""
    profile: dict[str, float] | None
    profiled: bool
    evictions: int
    preemptions: int
    losses: int
    """Runs that the cluster lost."""
    service_s: float
    """Time it has had GPUs since it was queued [s]."""
    not_before: float
    """The earliest time of its next start [s since epoch]."""
    why: str
    """What happened to it last, in words."""


class StoredRun(NamedTuple):
    """One time that a job had GPUs, from its start to its end or the next stop."""

    id: int
    job: int
    restart: int
    """Restarts of the job before it."""
    number: int
    """Among the runs of the job, from 0."""
    kind: Literal["run", "profile"]
    state: Literal["starting", "running", "ended"]
    places: tuple[Place, ...]
    beside: int | None
    """Id of the run with which it shares GPUs; None: none."""
    folder: str
    decided: float
    started: float | None
    ended: float | None
    outcome: str
    """COMPLETED, FAILED, TIMEOUT, CANCELLED, NODE_FAIL: the last of a submission; else PREEMPTED,
    EVICTED, PROFILED, RESIZED, LOST, REFUSED."""
    report: dict[str, Any]
    stop: str
    """The outcome of the request to stop; empty: there was none."""


# The jobs of the queue and their runs, in one SQLite file that survives killed processes.
#
# A decision is stored before it is carried out, and its result afterwards, so that a queue that
# was killed knows what to look for. One process writes; its threads share one connection.


FINAL = tuple(sorted(OVER))
_JOB = ", ".join(StoredJob._fields)
_RUN = ", ".join(StoredRun._fields)


QUEUE_FILE = "queue.db"


class Store:
    """The queue's SQLite file: jobs and their runs. Raises `InputError` if it cannot be used."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.RLock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._db = sqlite3.connect(
                path, factory=Connection, timeout=30.0, check_same_thread=False
            )
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            script = files(__package__).joinpath("schema.sql").read_text("utf-8")
            upgrade(
                self._db, path, (script, with_column("runs", "stop", "TEXT NOT NULL DEFAULT ''"))
            )
        except (sqlite3.Error, OSError) as error:
            raise InputError(f"cannot open the queue's file {path}: {error}.") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """All that is changed within is one transaction."""
        with self._lock, self._db:
            yield

    # -- jobs ----------------------------------------------------------------

    def submit(self, mark: str, request: Request, at: float) -> int:
        """Store a job and return its id; a repeated mark is the same job."""
        with self.writing():
            self._db.execute(
                "INSERT OR IGNORE INTO jobs (mark, request, submitted, queued, changed) "
                "VALUES (?, ?, ?, ?, (SELECT coalesce(max(changed), 0) + 1 FROM jobs))",
                (mark, request.model_dump_json(), at, at),
            )
            ((id_,),) = self._rows("SELECT id FROM jobs WHERE mark = ?", (mark,))
            return int(id_)

    def job(self, id_: int) -> StoredJob | None:
        """The job of this id, or None."""
        return next(iter(self._jobs("id = ?", (id_,))), None)

    def jobs(self, *, over: bool = False, limit: int = 1_000_000) -> list[StoredJob]:
        """The jobs in the queue, in order of submission; with `over`, the last that are over."""
        if over:
            marks = ", ".join("?" * len(FINAL))
            where = f"state IN ({marks}) ORDER BY id DESC LIMIT ?"
            return self._jobs(where, (*FINAL, limit))[::-1]
        return self._jobs("state IN ('PENDING', 'RUNNING') ORDER BY id LIMIT ?", (limit,))

    def last_change(self) -> int:
        """The number of the last change requested."""
        ((last,),) = self._rows("SELECT coalesce(max(changed), 0) FROM jobs")
        return int(last)

    def changes(self, after: int) -> tuple[int, list[StoredJob]]:
        """Jobs with requests since the change of this number, and the number of the last one."""
        with self._lock:
            last = self.last_change()
            if last == after:
                return after, []
            return last, self._jobs("changed > ? ORDER BY id", (after,))

    def change(self, id_: int, *, asked: bool = False, **values: Any) -> None:
        """Set fields of a job; `asked` makes the queue notice the change."""
        made = {
            name: json.dumps(value)
            if name in ("exclude", "profile") and value is not None
            else value
            for name, value in values.items()
        }
        sets = [f"{name} = ?" for name in made]
        if asked:
            sets.append("changed = (SELECT max(changed) + 1 FROM jobs)")
        with self.writing():
            self._db.execute(
                f"UPDATE jobs SET {', '.join(sets)} WHERE id = ?",  # noqa: S608 - our own names
                (*made.values(), id_),
            )

    def requeue(self, id_: int, exclude: Sequence[str], at: float, why: str) -> bool:
        """Requeue a job that is over; return False if it is not over."""
        with self.writing():
            job = self.job(id_)
            if job is None or job.state not in OVER:
                return False
            self.change(
                id_,
                asked=True,
                state="PENDING",
                restarts=job.restarts + 1,
                queued=max(at, float(int(job.queued) + 1)),
                exclude=sorted({*job.exclude, *exclude}),
                service_s=0.0,
                cancelled=0,
                why=why,
            )
            return True

    def submissions(self, since: float) -> list[tuple[int, float, float]]:
        """Jobs since a time: id, submission time [s since epoch], requested GPUs."""
        return self._rows(
            "SELECT id, submitted, json_extract(request, '$.gpus') FROM jobs "
            "WHERE submitted >= ? ORDER BY id",
            (since,),
        )

    def counts(self) -> dict[QueueState, int]:
        """Number of jobs in each state."""
        return dict(self._rows("SELECT state, count(*) FROM jobs GROUP BY state"))

    # -- runs ----------------------------------------------------------------

    def begin(
        self,
        job: StoredJob,
        kind: str,
        places: Iterable[Place],
        folder: str,
        at: float,
        beside: int | None = None,
    ) -> StoredRun:
        """A run is about to be started; `folder` gets its number."""
        with self.writing():
            ((number,),) = self._rows("SELECT count(*) FROM runs WHERE job = ?", (job.id,))
            made = self._db.execute(
                "INSERT INTO runs (job, restart, number, kind, places, beside, folder, decided) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *(job.id, job.restarts, number, kind, json.dumps(list(places)), beside),
                    *(f"{folder}/{number}", at),
                ),
            )
            return self._runs("id = ?", (made.lastrowid,))[0]

    def started(self, run: int, at: float) -> None:
        """Store that a run, and with it its job, has started at `at` [s since epoch]."""
        with self.writing():
            self._db.execute(
                "UPDATE runs SET state = 'running', started = ? WHERE id = ?", (at, run)
            )
            self._db.execute(
                "UPDATE jobs SET state = 'RUNNING', why = '' "
                "WHERE id = (SELECT job FROM runs WHERE id = ?)",
                (run,),
            )

    def stopping(self, run: int, outcome: str) -> None:
        """The run is about to be stopped, and will end with this outcome."""
        with self.writing():
            self._db.execute("UPDATE runs SET stop = ? WHERE id = ?", (outcome, run))

    def ended(
        self, run: int, outcome: str, at: float, report: dict[str, Any], **values: Any
    ) -> None:
        """Store the end of a run; `values` are the new fields of its job, in the same
        transaction."""
        with self.writing():
            self._db.execute(
                "UPDATE runs SET state = 'ended', ended = ?, outcome = ?, report = ? WHERE id = ?",
                (at, outcome, json.dumps(report), run),
            )
            ((job,),) = self._rows("SELECT job FROM runs WHERE id = ?", (run,))
            self.change(job, **values)

    def run(self, id_: int) -> StoredRun | None:
        """The stored run with this id."""
        return next(iter(self._runs("id = ?", (id_,))), None)

    def open_runs(self) -> list[StoredRun]:
        """Runs that are not known to be over."""
        return self._runs("state <> 'ended' ORDER BY id", ())

    def runs_of(self, job: int) -> list[StoredRun]:
        """All runs of a job, in order."""
        return self._runs("job = ? ORDER BY id", (job,))

    def final_runs(self, since: float) -> list[StoredRun]:
        """Runs that ended a submission of their job, since a time [s since epoch]."""
        marks = ", ".join("?" * len(FINAL))
        return self._runs(f"ended >= ? AND outcome IN ({marks}) ORDER BY ended", (since, *FINAL))

    def begun(self) -> list[Begun]:
        """Every run that began on GPUs of its own."""
        from schedmate.schedulers.sim.starts import Begun

        return [
            Begun(
                *(run.decided, run.started, math.inf if run.ended is None else run.ended),
                tuple((place.name, place.gpus) for place in run.places),
            )
            for run in self._runs("started IS NOT NULL AND beside IS NULL ORDER BY id", ())
            if run.started is not None
        ]

    # -- nodes -----------------------------------------------------------------

    def drains(self) -> dict[str, str]:
        """Nodes that are out of service, by name, with the reason."""
        return dict(self._rows("SELECT node, reason FROM drains"))

    def drain(self, node: str, reason: str, at: float) -> None:
        """Take a node out of service; its jobs keep running."""
        with self.writing():
            self._db.execute("INSERT OR IGNORE INTO drains VALUES (?, ?, ?)", (node, reason, at))

    def undrain(self, node: str) -> None:
        """Return a node to service."""
        with self.writing():
            self._db.execute("DELETE FROM drains WHERE node = ?", (node,))

    # -- rows ------------------------------------------------------------------

    def _rows(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with undamaged(self.path), self._lock:
            return self._db.execute(sql, values).fetchall()

    # A job that cannot be read may be running: none is left out.

    def _jobs(self, where: str, values: Sequence[Any]) -> list[StoredJob]:
        rows = self._rows(f"SELECT {_JOB} FROM jobs WHERE {where}", values)  # noqa: S608
        with undamaged(self.path):
            return [_job(row) for row in rows]

    def _runs(self, where: str, values: Sequence[Any]) -> list[StoredRun]:
        rows = self._rows(f"SELECT {_RUN} FROM runs WHERE {where}", values)  # noqa: S608
        with undamaged(self.path):
            return [_run(row) for row in rows]


def new_mark() -> str:
    """A name for a job that no other has, on any cluster."""
    return uuid4().hex


def _job(row: tuple[Any, ...]) -> StoredJob:
    stored = StoredJob._make(row)
    return stored._replace(
        request=Request.model_validate_json(row[2]),
        held=bool(stored.held),
        cancelled=bool(stored.cancelled),
        profiled=bool(stored.profiled),
        exclude=tuple(json.loads(row[9])),
        profile=None if stored.profile is None else json.loads(row[10]),
    )


def _run(row: tuple[Any, ...]) -> StoredRun:
    stored = StoredRun._make(row)
    places = tuple(Place(*place) for place in json.loads(row[6]))
    return stored._replace(places=places, report=json.loads(row[13]))


# What `schedmate ray queue --json` prints.


QUEUE_SCHEMA = "schedmate.ray-queue/v1"


class _DocumentPart(BaseModel):
    model_config = ConfigDict(extra="forbid")


class QueueNode(_DocumentPart):
    """One node with GPUs."""

    name: str
    gpus: int
    free: int
    reason: str = Field("", description="Why nothing new is started there")


class QueueJob(_DocumentPart):
    """One job; times are seconds since the epoch."""

    job: int
    name: str | None
    user: str | None
    command: str | None
    gpus: float
    state: QueueState
    submitted: float
    restarts: int
    estimate_s: float | None = None
    why: str = Field("", description="Why it waits, or what became of it")
    nodes: list[str] = Field(default_factory=list)
    started: float | None = None
    profiling: bool = False
    partner: int | None = Field(None, description="The job that it shares its GPUs with")
    slowdown: float | None = Field(None, description="Its speed beside its partner over that alone")
    starts: float | None = Field(None, description="About when it will start")
    ends: float | None = Field(None, description="About when it will end, or when it has ended")


class QueueDocument(_DocumentPart):
    """The present state of a queue."""

    cluster: str
    policy: str
    time: float
    decided_s: float = Field(description="How long the last decision took [s]")
    problems: list[str]
    counts: dict[QueueState, int]
    nodes: list[QueueNode]
    jobs: list[QueueJob]
    ended: list[QueueJob] = Field(default_factory=list, description="The last jobs that are over")
