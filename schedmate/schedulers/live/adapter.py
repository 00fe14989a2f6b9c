"""The interface between the reconcile loop and a cluster, whichever scheduler it has.

An adapter observes (jobs, their descriptions, nodes, ended runs, logs) and is an `Executor`: it
probes and takes the actions of `actions.py`. It decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from schedmate.jobs import JobRecord, JobSpec
from schedmate.schedulers.live.executor import Executor

FAILURES = frozenset({"FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL"})
"""Ends of a job that are diagnosed; a cancelled, preempted or timed-out job has no failure."""


class LiveJob(NamedTuple):
    """One pending or running job, or all that is pending of an array: it is ordered as one."""

    id: str
    group: str
    """Id shared by the tasks of an array; that of the job itself if it is not in one."""
    state: Literal["PENDING", "RUNNING"]
    user: str
    queues: tuple[str, ...]
    submitted: float | None
    """[s since epoch]"""
    started: float | None
    """[s since epoch]"""
    nodes: tuple[str, ...]
    held: bool
    reason: str
    """Why it waits, in the scheduler's words."""
    priority: int | None = None
    task: int | None = None
    """Its place in the array."""

    @property
    def key(self) -> str:
        """A key that is constant while this submission is in the queue."""
        return run_key(self.group, self.submitted)


def run_key(group: str, submitted: float | None) -> str:
    """Key of a submission of a job or array: ids are reused some day, and a requeue is a new
    submission."""
    return f"{group}@{int(submitted or 0)}"


class Description(NamedTuple):
    """The owner's description of a job: the advisor's input, and the path of its log."""

    spec: JobSpec
    log: str
    """The pattern of its log, in the scheduler's notation."""
    problems: tuple[str, ...] = ()
    """Why it is incomplete, if it is."""
    no_code: str = ""
    """Why the location of its code is unknown, if it is."""


class LiveNode(NamedTuple):
    """One node."""

    name: str
    healthy: bool
    """Whether it takes jobs, or would when those on it have ended."""
    drained: bool
    busy: bool
    reason: str
    queues: tuple[str, ...]
    gpus: int = 0
    gpus_used: int = 0


class EndedRun(NamedTuple):
    """One run of a job that is over, as accounting has it; `record` has no metadata."""

    job: str
    """The id that people and the scheduler's commands use: `17`, `12_3`."""
    raw: str
    """The scheduler's internal id: for a task of an array a separate number."""
    group: str
    record: JobRecord
    nodes: tuple[str, ...]
    workdir: str
    log: str
    """The pattern of its log path, if accounting has it."""
    task: int | None = None
    attempt: int | None = None
    """Which run this is of one submission, where the scheduler itself starts a job again."""

    @property
    def key(self) -> str:
        """As `LiveJob.key`."""
        return run_key(self.group, self.record.submit_time)

    @property
    def run(self) -> str:
        """The unique key of this run."""
        key = run_key(self.job, self.record.submit_time)
        return key if self.attempt is None else f"{key}#{self.attempt}"


class ClusterAdapter(Executor, Protocol):
    """One cluster. Every method raises `ExecutorError` if its scheduler does not answer, so that an
    empty result means that there is nothing."""

    cluster: str
    """The cluster's name: part of the ids of plans and of jobs in the history."""

    def jobs(self) -> list[LiveJob]:
        """Pending and running jobs. Called every few seconds, so it must be cheap."""
        ...

    def describe(self, jobs: Sequence[str]) -> dict[str, Description]:
        """Descriptions of these jobs, by id, without jobs that the scheduler does not know.

        Jobs that have ended are known for some minutes.
        """
        ...

    def nodes(self) -> list[LiveNode]:
        """All nodes."""
        ...

    def ended(self, since: float) -> list[EndedRun]:
        """Runs that ended at `since` [s since epoch] or later, once accounting is complete for
        them."""
        ...

    def restarts(self, run: EndedRun) -> int | None:
        """How often the job was restarted before this run; None when the scheduler has forgotten
        the job."""
        ...

    def order_values(self, jobs: Iterable[str]) -> dict[str, int]:
        """The place in the queue (`Order`'s unit) that pending jobs have now."""
        ...

    def log_path(self, job: LiveJob | EndedRun, pattern: str, spec: JobSpec) -> Path | None:
        """The path of a run's log; None: unknown."""
        ...

    def node_logs(self, run: EndedRun) -> list[Path]:
        """Logs of the nodes of a run, as files that no job can write."""
        ...
