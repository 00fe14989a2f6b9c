"""Submissions to the queue, and its records of jobs and runs."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, model_validator

from schedmate.jobs import JobSpec
from schedmate.jobs.bounds import Text
from schedmate.plain import MOST_GPUS

SIGNALS = {"TERM": 15, "INT": 2, "USR1": 10, "USR2": 12}
"""Signals that ask a job to save its work and end, by name."""

State = Literal["PENDING", "RUNNING", "COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL"]
OVER: frozenset[State] = frozenset({"COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL"})
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
    """Its own on every cluster: that of its processes and locks."""
    request: Request
    submitted: float
    """[s since epoch]"""
    queued: float
    """When it was last queued [s since epoch]; each has a different whole second."""
    state: State
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
    """It does not start earlier [s since epoch]."""
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
