"""A job as a scheduler knows it, and as the history keeps it."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from schedmate.jobs.bounds import Gpus, Moment, Nodes, Seconds, Text
from schedmate.jobs.metadata import WorkloadMetadata

JobState = Literal[
    "PENDING",
    "RUNNING",
    "COMPLETED",
    "CANCELLED",
    "FAILED",
    "TIMEOUT",
    "PREEMPTED",
    "NODE_FAIL",
    "BOOT_FAIL",
    "OUT_OF_MEMORY",
    "REQUEUED",
]


CENSORED_STATES: frozenset[str] = frozenset(
    {
        "CANCELLED",
        "FAILED",
        "TIMEOUT",
        "PREEMPTED",
        "NODE_FAIL",
        "BOOT_FAIL",
        "OUT_OF_MEMORY",
        "REQUEUED",
    }
)
"""Ended states whose duration is only a lower bound on the time the work needed."""


class LaunchConfig(BaseModel):
    """The resources a job asks for, as the scheduler knows them."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    gpus: Gpus | None = Field(default=None, description="Total GPUs over all nodes")
    nodes: Nodes | None = Field(default=None, description="Number of nodes")
    gpu_type: Text | None = None
    time_limit_s: Seconds | None = Field(default=None, description="Time limit [s]")


class JobSpec(BaseModel):
    """A job as known at its submission."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    job_id: Text | None = None
    name: Text | None = None
    user: Text | None = None
    repo: str | None = Field(
        default=None, description="Path of the job's source code on this machine"
    )
    command: str | None = Field(default=None, description="The launch command, as typed in `repo`")
    launch: LaunchConfig = Field(default_factory=LaunchConfig)
    node_names: list[str] = Field(
        default_factory=list, description="Nodes it ran on, as the scheduler knows"
    )
    submit_time: Moment | None = Field(default=None, description="[s since epoch]")


class JobRecord(BaseModel):
    """One job of the history, with its outcome."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    job_id: Text
    name: Text | None = None
    user: Text | None = None
    command: Text | None = None
    launch: LaunchConfig = Field(default_factory=LaunchConfig)
    metadata: WorkloadMetadata = Field(default_factory=WorkloadMetadata)
    state: JobState = "PENDING"
    submit_time: Moment | None = Field(default=None, description="[s since epoch]")
    start_time: Moment | None = Field(default=None, description="[s since epoch]")
    end_time: Moment | None = Field(default=None, description="[s since epoch]")
    duration_s: Seconds | None = Field(default=None, description="Run time [s]")
    gpu_util: float | None = Field(
        default=None, ge=0, le=100, description="Mean GPU utilisation [%]"
    )
    sm_util: float | None = Field(default=None, ge=0, le=100, description="Mean SM activity [%]")
    gpu_mem_mb: float | None = Field(default=None, ge=0, description="Peak memory of one GPU [MB]")
    throughput: dict[Text, float] = Field(
        default_factory=dict, description="Samples per second by configuration, e.g. `a100x8`"
    )
    synthetic: Text | None = Field(
        default=None, description="What of it was made up, where it is no job that has run"
    )

    @property
    def censored(self) -> bool:
        """Whether `duration_s` is only a lower bound (the run did not complete)."""
        return self.state in CENSORED_STATES

    @property
    def ended(self) -> bool:
        """Whether the job is over, completed or not."""
        return self.state not in ("PENDING", "RUNNING")
