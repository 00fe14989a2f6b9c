"""The JSON document of a site report, `schedmate.site-report/v1`."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from schedmate.logparse.triage.document import NodeTest

SCHEMA = "schedmate.site-report/v1"


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Coverage(_Part):
    """What the list holds."""

    jobs: int
    rows_left_out: int = Field(description="Rows that could not be used")
    problems: list[str] = Field(description="The first of them, with the reason")
    users: int
    groups: int
    partitions: int
    first: float | None = Field(description="First submission [s since epoch]; null if anonymised")
    days: float = Field(description="From the first to the last submission of a job that ran")
    anonymized: bool


def baseline_words(total: Predicted) -> str:
    """For what share of jobs the baselines were within 2x; the running median stands in for
    requested times where none are stated."""
    requested = "requested times"
    if total.unused is None:
        requested = "the running median (the list states no requested times)"
    elif total.with_request < total.jobs:
        stated = total.with_request / total.jobs
        requested += f" (which {stated:.0%} state; else the running median)"
    return f"{requested} for {total.requested:.0%}, the last run of a like job for {total.last:.0%}"


def unused_words(share: float) -> str:
    """A share of the requested time that was never used; no part of it is rounded up to all."""
    return "over 99%" if share > 0.99 else f"{share:.0%}"


class Predicted(_Part):
    """How well the run times of some jobs were known at their submission. Shares are 0 to 1."""

    name: str
    jobs: int = Field(description="Jobs that completed, of the second half by submission")
    estimate: float = Field(description="Share within 2x of the run time, by the estimates")
    requested: float = Field(description="The same by the requested time")
    last: float = Field(description="The same by the last run of a like job")
    covered: float = Field(description="Share whose run time was inside the 80 % interval")
    with_request: int = Field(description="Those of the jobs that request a time")
    unused: float | None = Field(
        description="Share of the requested time, weighted by size, that was not used; null where "
        "nothing was requested"
    )


class Curve(_Part):
    """The share of jobs whose run time lies within each factor of what was predicted."""

    factors: list[float]
    estimate: list[float]
    requested: list[float]
    last: list[float]


class Predictability(_Part):
    """Estimates replayed online: each job by what had ended when it was submitted."""

    replayed: int = Field(description="Jobs that the estimates learned from, the latest")
    scored: int
    total: Predicted | None = Field(description="null: too few jobs to say anything")
    by: dict[str, list[Predicted]] = Field(
        description="By partition, size, user group, and past jobs of the user; most jobs first"
    )
    curve: Curve | None


class Fidelity(_Part):
    """How the model of the queue compares with the recorded waits, on windows it was not fitted
    to."""

    jobs: int
    windows: int
    model: str = Field(description="The policy of the simulator and how the machine is divided")
    unit: str
    capacity: float = Field(
        description="What runs at once for all but a hundredth of the time [units]"
    )
    recorded_mean_s: float
    modelled_mean_s: float
    correlation: float = Field(description="Rank correlation of the waits of single jobs")
    near: float = Field(description="Share of waits within a factor of 2, or 10 minutes")
    faithful: bool
    bound: str
    recorded_s: list[float] = Field(description="Waits of a sample of the jobs [s]")
    modelled_s: list[float] = Field(description="The same by the model [s]")


class Scenario(_Part):
    """The queue of the same windows under one way to use estimates."""

    name: str
    mean_wait_s: float
    p95_wait_s: float
    starved: int = Field(description="Jobs that wait over a day longer than in the model of today")
    jobs: int


class Loss(_Part):
    """What a user group would win or lose on average."""

    group: str
    jobs: int
    today_s: float = Field(description="Mean wait in the model of today [s]")
    change_s: dict[str, float] = Field(description="By scenario, more is longer [s]")


class Queue(_Part):
    """What the queue would have been."""

    reason: str = Field(description="Why there is no what-if, or what it rests on")
    fidelity: Fidelity | None
    scenarios: list[Scenario]
    groups: list[Loss] = Field(description="Those that would lose most first")


class StateCost(_Part):
    """What jobs that ended in one state used."""

    state: str
    jobs: int
    gpu_hours: float
    cpu_hours: float
    node_hours: float


class Repeat(_Part):
    """One piece of work of a user that failed in the same way again and again, run after run."""

    user: str | None
    name: str | None
    state: str
    runs: int = Field(description="The longest chain of such runs without another end between")
    repeats: int = Field(description="Runs that followed such a failure, in all")
    gpu_hours: float
    cpu_hours: float
    node_hours: float


class Cause(_Part):
    """Failures of one cause among the logs that could be read."""

    error_type: str
    error_name: str | None
    jobs: int
    gpu_hours: float


class Failures(_Part):
    """What failed, and what it cost."""

    states_known: bool = Field(
        description="false: the list has no states, and what ran counts as completed"
    )
    states: list[StateCost]
    lost_share: float | None = Field(
        description="Share of all hours of the report's unit that jobs used which did not complete"
    )
    repeats_known: bool = Field(
        description="false: no failed job of the list has a user, a submission and an end"
    )
    repeated: int = Field(description="Failures that followed the same failure of the same work")
    repeated_hours: float = Field(description="What those used [hours of the report's unit]")
    repeated_share: float = Field(description="The same as a share of all hours")
    repeats: list[Repeat]
    nodes: NodeTest
    logs_read: int
    logs_missing: int
    causes: list[Cause]


class Advice(_Part):
    """One thing to switch on, with the ground for it."""

    title: str
    why: str
    setting: str = Field(description="To paste")
    where: str
    undo: str
    kind: Literal["switch on", "wait", "look at"]


class SiteReport(_Part):
    """A site's own history: what schedmate would have known, changed and cost."""

    source: str
    unit: str = Field(description="What most jobs compete for: GPU, CPU or node")
    coverage: Coverage
    predictability: Predictability
    queue: Queue
    failures: Failures
    advice: list[Advice]
    notes: list[str]

    def document(self) -> dict[str, Any]:
        """What `schedmate site-report --json` prints."""
        return {"schema": SCHEMA, **self.model_dump(mode="json")}
