"""What `schedmate ray queue --json` prints."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from schedmate.schedulers.live.queue.requests import State

SCHEMA = "schedmate.ray-queue/v1"


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid")


class QueueNode(_Part):
    """One node with GPUs."""

    name: str
    gpus: int
    free: int
    reason: str = Field("", description="Why nothing new is started there")


class QueueJob(_Part):
    """One job; times are seconds since the epoch."""

    job: int
    name: str | None
    user: str | None
    command: str | None
    gpus: float
    state: State
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


class QueueDocument(_Part):
    """The present state of a queue."""

    cluster: str
    policy: str
    time: float
    decided_s: float = Field(description="How long the last decision took [s]")
    problems: list[str]
    counts: dict[State, int]
    nodes: list[QueueNode]
    jobs: list[QueueJob]
    ended: list[QueueJob] = Field(default_factory=list, description="The last jobs that are over")
