"""The JSON document of a batch, `schedmate.triage/v1`."""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from schedmate.jobs import Diagnosis, ErrorType, FaultyComponent, Recovery

SCHEMA = "schedmate.triage/v1"
FAILED = re.compile(r"(?:node_|boot_|launch_)?fail|out_of_me|error|crash|dead", re.IGNORECASE)
"""Job states that mean a failure, of Slurm, Kubernetes, Ray and others."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid")


class JobVerdict(_Part):
    """One job: what was known of it, and its diagnosis or the reason that there is none."""

    index: int = Field(ge=0, description="Place in the batch")
    job_id: str
    log: str
    files: list[str] = Field(default_factory=list, description="Its files, where they are several")
    merged: str | None = Field(None, description="Why these files are taken for those of one job")
    workload: str | None = None
    state: str | None = Field(None, description="As the job list has it")
    user: str | None = None
    nodes: list[str] = Field(default_factory=list)
    duration_s: float | None = Field(None, ge=0, description="Run time [s]")
    gpus: float | None = Field(None, ge=0, description="GPUs of the whole job")
    gpu_hours: float | None = Field(None, ge=0, description="duration_s * gpus / 3600")
    error: str | None = Field(None, description="Why the log could not be read")
    diagnosis: Diagnosis | None = None
    group: str | None = Field(None, description="The group of its root cause")
    cached: bool = Field(False, description="Known from the ledger: this content was read before")

    @property
    def failed(self) -> bool:
        """Whether the log shows a failure; a log that cannot be read shows nothing."""
        return self.diagnosis is not None and self.diagnosis.error_type != "none"

    @property
    def silent(self) -> bool:
        """Whether the job list says that it failed and its log shows no failure."""
        diagnosis = self.diagnosis
        nothing = (
            diagnosis is not None
            and diagnosis.error_type == "none"
            and diagnosis.error_name is None
        )
        return nothing and FAILED.match(self.state or "") is not None


class Earlier(_Part):
    """The same root cause in earlier batches of the same ledger."""

    batches: int
    jobs: int
    last: float = Field(description="When the last of those batches ended [s since epoch]")
    log: str = Field(description="The log that stood for it then")
    line: int | None = Field(None, description="The failing line there, 1-based")


class Group(_Part):
    """Failures of one root cause: the same error, component and shape of the deciding line."""

    id: str
    error_type: ErrorType
    likely: ErrorType | None = None
    error_name: str | None
    faulty_component: FaultyComponent | None
    general: bool = Field(
        False, description="No rule knows the failure by more than the class of its exception"
    )
    template: str = Field(description="The deciding line, masked; empty when nothing was quoted")
    jobs: list[int] = Field(description="Indexes of its jobs, in the order of the batch")
    example: int = Field(description="Index of the job that stands for the group")
    gpu_hours: float = Field(description="GPU-hours of those of its jobs that say")
    gpu_hours_known: int = Field(description="How many of its jobs say")
    nodes: dict[str, int] = Field(description="Nodes that the diagnoses name: number of jobs")
    first_time: float | None = Field(None, description="Earliest failure [s since epoch]")
    last_time: float | None = Field(None, description="Latest failure [s since epoch]")
    rule: str | None = None
    source: str = Field("rules", description="rules, or model where rules left it open")
    plan: Recovery | None = None
    earlier: Earlier | None = Field(None, description="null when no earlier batch had it")


class Bar(_Part):
    """One group's part of what was lost."""

    group: str
    value: float = Field(description="GPU-hours, or jobs")
    share: float = Field(ge=0, le=1)
    cumulative: float = Field(ge=0, le=1.000001)


class Pareto(_Part):
    """Groups by what they cost, the costliest first."""

    basis: Literal["gpu_hours", "jobs"]
    reason: str
    total: float
    bars: list[Bar]


class NodeFinding(_Part):
    """One node: infrastructure failures against what chance would give it."""

    node: str
    jobs: int = Field(description="Jobs that ran on it")
    failures: int = Field(description="Infrastructure failures that count against it")
    expected: float = Field(description="Failures expected by chance")
    node_hours: float | None = Field(None, description="Sum of the durations of its jobs [h]")
    per_1000_hours: tuple[float, float, float] | None = Field(
        None, description="Failures in 1,000 node-hours, and the exact 95 % interval (Poisson)"
    )
    p_value: float = Field(ge=0, le=1)
    p_adjusted: float = Field(ge=0, le=1, description="After Holm's correction")
    suspect: bool


class NodeTest(_Part):
    """Which nodes fail more often than chance explains, and by which test."""

    tested: bool
    reason: str
    jobs: int = Field(description="Jobs whose nodes are known")
    failures: int = Field(description="Of them, with an infrastructure failure")
    baseline: float | None = Field(None, description="failures / jobs")
    alpha: float
    nodes: list[NodeFinding]


class NewTemplate(_Part):
    """A line near a failure whose shape no earlier batch showed."""

    template: str
    jobs: int
    log: str
    line: int


class Novelty(_Part):
    """New templates against what the ledger remembers."""

    compared: bool
    reason: str
    total: int
    templates: list[NewTemplate] = Field(description="Those of most jobs first, at most 500")


class ModelUse(_Part):
    """How a language model was used on failures that rules could not settle."""

    model: str
    open_groups: int = Field(description="Groups of like failures that rules left open")
    asked: int = Field(description="Of them, those it was asked about")
    settled: int = Field(description="Of those, those on which it could prove what it said")
    jobs: int = Field(description="Jobs whose verdict that changed")
    tokens: int = Field(description="Tokens that it took, cached replies not counted")
    cost: float = Field(description="In the currency of the prices in the settings")
    note: str | None = Field(None, description="Why not all were asked about")


class Totals(_Part):
    """Counts of the whole batch."""

    jobs: int
    failed: int
    not_failed: int
    unreadable: int
    silent: int = Field(0, description="Failed as the list has it, with no failure in their logs")
    unfinished: int = Field(
        0, description="Jobs whose logs show neither a failure nor a successful end"
    )
    by_type: dict[str, int]
    by_name: dict[str, int]
    gpu_hours_lost: float | None = Field(None, description="Of the failed jobs that say; or null")
    gpu_hours_known: int = Field(description="Failed jobs whose duration and GPUs are known")


class Since(_Part):
    """The root causes of a batch beside those of the batch before it, as group ids."""

    finished: float = Field(description="When that batch ended [s since epoch]")
    new: list[str]
    grown: list[str] = Field(description="More jobs than then")
    gone: int = Field(ge=0, description="Root causes of then that no job has now")


class Triage(_Part):
    """A whole batch; `document` gives it as JSON."""

    source: str
    version: str = Field(description="Version of schedmate")
    rules: str = Field(description="Version of the rules that decided")
    totals: Totals
    groups: list[Group]
    pareto: Pareto
    node_test: NodeTest
    novelty: Novelty
    since: Since | None = Field(None, description="null where not asked, or without a batch before")
    model: ModelUse | None = Field(None, description="null when no model was asked")
    jobs: list[JobVerdict]
    warnings: list[str] = Field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """The JSON document `schedmate.triage/v1`."""
        return {"schema": SCHEMA, **self.model_dump(mode="json")}


def json_schema() -> dict[str, Any]:
    """The JSON schema of the document, as in docs/schemas."""
    schema = Triage.model_json_schema(mode="serialization")
    schema["properties"] = {"schema": {"const": SCHEMA}, **schema["properties"]}
    schema["required"] = ["schema", *schema["required"]]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
