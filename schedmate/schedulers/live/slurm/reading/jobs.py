"""Jobs from Slurm's JSON: `squeue --json`, `scontrol show job ID --json`, slurmrestd."""

from __future__ import annotations

from typing import Any, NamedTuple

from schedmate.schedulers.live.slurm.reading.hostlist import expand
from schedmate.schedulers.live.slurm.reading.shapes import (
    ShapeError,
    count,
    document,
    members,
    moment,
    names,
    text,
)


class Job(NamedTuple):
    """The fields needed to act on a job; times in [s since epoch]."""

    job: str
    array: str | None
    task: int | None
    states: tuple[str, ...]
    """The base state first, then flags as `REQUEUED` or `COMPLETING`."""
    reason: str
    restarts: int
    priority: int | None
    partition: str
    user: str
    name: str
    nodes: tuple[str, ...]
    excluded: tuple[str, ...]
    comment: str
    submitted: float | None
    """When it was submitted, or requeued last."""
    started: float | None
    ended: float | None
    stdout: str
    """The pattern as the job stated it; see `logpath`."""
    workdir: str
    batch: bool
    requeue: bool
    """Whether the job may be requeued."""

    @property
    def state(self) -> str:
        """The base state."""
        return self.states[0]

    @property
    def held(self) -> bool:
        """Whether it is pending and held."""
        waits = self.state == "PENDING" or "REQUEUE_HOLD" in self.states
        return waits and (self.priority == 0 or self.reason.startswith("JobHeld"))


def parse_jobs(printed: str, what: str = "squeue --json") -> list[Job]:
    """Every job of a document; raises `OutageError` if it reports errors.

    Raises `ShapeError` for output of no version from 22.05 on.
    """
    return [_job(one) for one in members(document(printed, what), "jobs", what)]


def _job(one: dict[str, Any]) -> Job:
    job = count(one.get("job_id"), "job_id")
    states = names(one.get("job_state"), "job_state")
    if job is None or job <= 0 or not states:
        raise ShapeError("a job has no id or no state.")
    array = count(one.get("array_job_id"), "array_job_id")
    return Job(
        job=str(job),
        array=str(array) if array else None,
        task=count(one.get("array_task_id"), "array_task_id") if array else None,
        states=states,
        reason=text(one.get("state_reason"), "state_reason"),
        restarts=count(one.get("restart_cnt"), "restart_cnt") or 0,
        priority=count(one.get("priority"), "priority"),
        partition=text(one.get("partition"), "partition"),
        user=text(one.get("user_name"), "user_name"),
        name=text(one.get("name"), "name"),
        nodes=expand(text(one.get("nodes"), "nodes")),
        excluded=expand(text(one.get("excluded_nodes"), "excluded_nodes")),
        comment=text(one.get("comment"), "comment"),
        submitted=moment(one.get("submit_time"), "submit_time"),
        started=moment(one.get("start_time"), "start_time"),
        ended=moment(one.get("end_time"), "end_time"),
        stdout=text(one.get("standard_output"), "standard_output"),
        workdir=text(one.get("current_working_directory"), "current_working_directory"),
        batch=one.get("batch_flag") in (True, 1),
        requeue=one.get("requeue") in (True, 1),
    )
