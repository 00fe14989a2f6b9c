"""The first failure of a job, and what to do about it."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from schedmate.jobs.metadata import Text

ErrorType = Literal["infrastructure", "framework", "script", "none", "unknown"]
"""Whose fault a failure is (taxonomy of Acme, NSDI 2024); `none` is no failure at all."""

TYPE_MEANINGS = {
    "infrastructure": "hardware, network, storage or the cluster's software",
    "framework": "the training stack ran out of a resource or rejected its input, such as memory "
    "or data; nothing points to faulty hardware",
    "script": "the job's own code, files or arguments",
}
"""What readers are told of each type."""


FaultyComponent = Literal["gpu", "nvlink", "network", "node", "storage"]

Origin = Literal["job_log", "node_log", "exporter", "scheduler"]
"""Who says so: `job_log` is text that the job could have written, `node_log` a line that the kernel
or a daemon of the node wrote, `exporter` what monitoring measured, `scheduler` the scheduler's own
records. Only the last three speak for the node."""

Isolation = Literal["none", "needs confirmation", "confirmed"]
"""Whether a plan takes a node out of service: not at all, only after somebody has confirmed the
fault on the node, or on evidence from the node's own side."""


class EvidenceLine(BaseModel):
    """One line of a log that a diagnosis rests on."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    file: Text
    line: int = Field(ge=1, description="1-based; counts line feeds only")
    text: str
    note: str | None = Field(default=None, description="Why it is quoted")
    origin: Origin = Field(default="job_log", description="Who says so")


class Checkpoint(BaseModel):
    """The last checkpoint that a log reports before the failure."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: Text | None = None
    step: int | None = Field(default=None, ge=0, description="Iteration it was written at")
    file: Text
    line: int = Field(ge=1)


class PlanStep(BaseModel):
    """One step of a plan; they are taken in order.

    `confirm` and `check` only look; a step with `only_if` waits for what `confirm` shows.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    action: Literal["confirm", "check", "isolate", "restart", "notify"]
    node: str | None = Field(
        default=None, description="A valid host name, or null where none is known"
    )
    commands: list[str] = Field(default_factory=list, description="What shows it; read-only")
    only_if: Literal["confirmed"] | None = None
    origin: Origin | None = Field(default=None, description="Who says that it is needed")
    detail: str = ""


class Recovery(BaseModel):
    """What to do about a failure, chosen by a table from its type and component, in words.

    `isolate` is set only where evidence from the node's own side demands it; `innocent` are common
    causes of the same text with which nothing is wrong with the node.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    summary: str
    diagnose: str | None = Field(
        default=None, description="The diagnostic to run before anything else"
    )
    isolate: str | None = Field(default=None, description="What to take out of service")
    isolation: Isolation = "none"
    innocent: list[str] = Field(default_factory=list)
    steps: list[PlanStep] = Field(default_factory=list)
    restart: Literal["no", "same", "from checkpoint", "elsewhere", "elsewhere from checkpoint"]
    awaits: str | None = Field(
        default=None, description="What must be so before a restart can help: a person sees to it"
    )
    notify: Literal["user", "operator", "nobody"]


class Reading(BaseModel):
    """A classification of a failure: by rules alone, or one of two that disagree."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    error_type: ErrorType
    error_name: str | None = None
    faulty_component: FaultyComponent | None = None
    rule: str | None = Field(
        default=None, description="The rule that says so; null for a model's reading"
    )
    file: Text | None = None
    line: int | None = Field(default=None, ge=1, description="The line that shows it, 1-based")
    text: str = ""


class RunOutcome(BaseModel):
    """How one run within a log ended, of several that were written into it.

    `outcome` is `failed`, `finished`, `stopped` (cancelled, preempted, out of time), or `open`
    where its part of the log shows neither.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    first_line: int = Field(ge=1, description="1-based")
    last_line: int = Field(ge=0, description="1-based")
    outcome: Literal["failed", "finished", "stopped", "open"]
    error_name: str | None = None
    line: int | None = Field(default=None, ge=1, description="Of its first failure, 1-based")


class Incident(BaseModel):
    """A kind of failure that was caught, and followed by further work or a successful end."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    error_name: str | None
    count: int = Field(ge=1)
    line: int = Field(ge=1, description="The first of them, 1-based")
    text: str


class Diagnosis(BaseModel):
    """The first failure of a job, its type and a plan (SchedMate paper, section 3.3).

    `line` is the first line of the failure, in `file`. `error_type` is `unknown` when the
    job failed for an unknown cause, `none` when it did not fail: it completed, or was
    cancelled, preempted or out of time, which `error_name` then says. What only followed from a
    failure (a timeout, a lost connection) commits to no type: there, and where a training diverged,
    `error_type` is `unknown` and `likely` says which it would be. A log that shows neither a
    failure nor an end has `finished` false: it was cut off, or its job was.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    error_type: ErrorType
    likely: ErrorType | None = Field(
        default=None, description="Where the type is unknown: the one that is likely, unproved"
    )
    finished: bool | None = Field(
        default=None,
        description="Where nothing failed: whether the log says that the job was through",
    )
    error_name: str | None = None
    faulty_component: FaultyComponent | None = None
    file: Text | None = None
    line: int | None = Field(default=None, ge=1, description="1-based; counts line feeds only")
    rank: int | None = None
    missing_ranks: list[int] = Field(
        default_factory=list, description="Ranks that the others waited for in vain"
    )
    meanwhile: str | None = Field(
        default=None, description="What a rank was doing while the others waited for it"
    )
    node: str | None = Field(
        default=None, description="The node that the evidence names: a host name"
    )
    job_nodes: list[str] = Field(
        default_factory=list, description="Nodes of the job, as the caller says"
    )
    origin: Origin = Field(default="job_log", description="Who says what decided")
    undecided: bool = Field(
        default=False,
        description="Only what others noticed of the failure is known, not what failed",
    )
    doubts: list[str] = Field(
        default_factory=list, description="Why the verdict is open to doubt; empty where it is not"
    )
    conflict: list[Reading] = Field(
        default_factory=list,
        description="Two readings that are proved equally well; the first is the verdict",
    )
    by_rules: Reading | None = Field(
        default=None,
        description="What rules alone say, where a model's reading replaced it; only this, and "
        "never the model's reading, gives a recovery plan its rights",
    )
    time: float | None = Field(
        default=None, description="When it failed, as logged [s since epoch]"
    )
    evidence: list[EvidenceLine] = Field(default_factory=list)
    ruled_out: list[EvidenceLine] = Field(default_factory=list)
    recoverable: bool | None = None
    checkpoint: Checkpoint | None = None
    plan: Recovery | None = None
    rule: str | None = Field(default=None, description="The rule that decided")
    source: Literal["rules", "wording", "embedding", "model"] = "rules"
    reason: str = ""
    reference: str | None = Field(
        default=None, description="Where the meaning of the line was settled"
    )
    attempt: int = Field(default=1, ge=1, description="The attempt of the job that was diagnosed")
    attempts: int = Field(default=1, ge=1, description="Attempts found in the log")
    runs: list[RunOutcome] = Field(
        default_factory=list, description="The runs that the log holds, where there are several"
    )
    incidents: list[Incident] = Field(
        default_factory=list, description="Failures that were caught and that work went on after"
    )
    locator: Literal["scan", "binary"] = "scan"
    probes: int | None = Field(
        default=None, ge=0, description="Chunks that the binary search looked at"
    )
    warnings: list[Text] = Field(default_factory=list)

    @property
    def leaning(self) -> ErrorType:
        """The type, or the likely one where it is unknown."""
        return self.likely or self.error_type
