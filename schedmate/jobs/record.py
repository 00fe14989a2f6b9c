"""A job as a scheduler knows it and as the history keeps it, and how long it will run."""

from __future__ import annotations

from bisect import bisect_right
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from schedmate.jobs.metadata import (
    LONGEST_NAME,
    Gpus,
    Moment,
    Name,
    Nodes,
    Seconds,
    Text,
    WorkloadMetadata,
)

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


FAILURE_STATES: frozenset[str] = frozenset({"FAILED", "NODE_FAIL", "BOOT_FAIL", "OUT_OF_MEMORY"})
"""States of runs that failed: neither the user nor the scheduler ended them."""


class LaunchConfig(BaseModel):
    """The resources a job asks for, as the scheduler knows them."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    gpus: Gpus | None = Field(default=None, description="Total GPUs over all nodes")
    nodes: Nodes | None = Field(default=None, description="Number of nodes")
    gpu_type: Name | None = None
    time_limit_s: Seconds | None = Field(default=None, description="Time limit [s]")


class JobSpec(BaseModel):
    """A job as known at its submission."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    job_id: Text | None = None
    name: Name | None = None
    user: Name | None = None
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

    job_id: Annotated[Text, Field(max_length=LONGEST_NAME)]
    name: Name | None = None
    user: Name | None = None
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


# How long a job will run.


class Neighbour(BaseModel):
    """One past job an estimate rests on."""

    job_id: str
    similarity: float = Field(description="Cosine similarity of the rendered metadata, at most 1")
    exact: bool = Field(default=False, description="Same fingerprint: a resubmission")
    weight: float = Field(description="Share of this job in the estimate; all shares add up to 1")
    duration_s: float = Field(description="Observed run time [s]")
    adjusted_duration_s: float = Field(
        description="Run time corrected for iteration and GPU count [s]"
    )
    censored: bool = False
    state: JobState = "COMPLETED"
    age_s: float | None = Field(default=None, description="Time since it ended [s]")
    summary: str = Field(default="", description="Model, dataset and length in a few words")


class IntervalBasis(BaseModel):
    """The sources of the width from p10 to p90. Factors are ratios of two run times, at least 1."""

    level: float = Field(
        default=0.8, description="Share of such jobs that end within p10 to p90 [0 to 1]"
    )
    recurrence: Literal["same job", "same job, other length", "similar jobs"] = Field(
        description="The closest kind of past run that completed"
    )
    runs: int = Field(description="Past runs that completed")
    cut_short: int = Field(default=0, description="Past runs that did not; each is a lower bound")
    runs_factor: float = Field(
        description="Longest over shortest of those that completed, after correction"
    )
    expected_factor: float = Field(
        description="Such past runs lie within this factor of a new one in eight of ten cases, as "
        "believed before these runs were looked at"
    )
    learned_from: int = Field(
        default=0, description="Jobs of this history that ran again and had a say in it; 0: none"
    )
    from_runs: float = Field(
        description="How much of the width comes from how far these runs lie apart [0 to 1]; the "
        "rest comes from the expected factor"
    )
    text: str = Field(description="All this in a sentence")


class ExpertShare(BaseModel):
    """One source of an estimate among several (docs/estimation.md)."""

    name: str
    weight: float = Field(description="Its share of the estimate [0 to 1]")
    runs: list[str] = Field(default_factory=list, description="Ids of past jobs behind it")
    text: str = Field(description="All this in a few words")


class Extrapolation(BaseModel):
    """How far a job lies outside of what the past runs behind its estimate did."""

    quantity: Literal["GPUs", "epochs", "steps"]
    asked: float = Field(description="Of the new job")
    least: float = Field(description="Least of the past runs that completed")
    most: float = Field(description="Most of the past runs that completed")
    factor: float = Field(description="`asked` over `most`, or `least` over `asked`: above 1")
    text: str = Field(description="All this in a sentence")


FAILURE_AGES_S = (0.0, 60.0, 600.0, 3600.0, 21_600.0, 86_400.0, 259_200.0)
"""The ages of `Estimate.failure` [s]."""


class Estimate(BaseModel):
    """How long a job will run and what it will use (SchedMate paper, section 3.1).

    When `abstained` is true `duration_s` is None and `reason` says why; a scheduler falls back. Of
    one that is too uncertain the distribution and `likely_short` are there all the same.
    `endless` says of a job that there is nothing to estimate.
    """

    endless: bool = Field(
        default=False,
        description="The job does not end by itself: a server, which runs until it is stopped",
    )

    duration_s: float | None = Field(default=None, description="Point estimate [s]")
    duration_p10_s: float | None = Field(default=None, description="10th percentile [s]")
    duration_p50_s: float | None = Field(default=None, description="Median [s]")
    duration_p90_s: float | None = Field(default=None, description="90th percentile [s]")
    quantiles_s: list[float] | None = Field(
        default=None,
        description="The whole distribution [s], ascending: 25 run times at the levels 0.02, 0.06, "
        "0.10, ..., 0.98, each of which stands for 1/25 of the probability",
    )
    likely_short: float | None = Field(
        default=None,
        description="Probability of ending within the median run time of recent jobs [0 to 1]",
    )
    failure: list[float | None] = Field(
        default_factory=list,
        description="Probability that the run fails before its end, once it has run for 0 s, "
        "1 min, 10 min, 1 h, 6 h, 1 day and 3 days; null where too few past runs tell [0 to 1]",
    )
    gpu_util: float | None = Field(default=None, description="Mean GPU utilisation [%]")
    sm_util: float | None = Field(default=None, description="Mean SM activity [%]")
    gpu_mem_mb: float | None = Field(default=None, description="Peak memory of one GPU [MB]")
    experts: list[ExpertShare] = Field(
        default_factory=list, description="Its sources, the heaviest first"
    )
    interval_basis: IntervalBasis | None = Field(
        default=None, description="What the width of p10 to p90 comes from"
    )
    extrapolated: list[Extrapolation] = Field(
        default_factory=list,
        description="In what the job lies outside of what its neighbours did, and how far",
    )
    neighbours: list[Neighbour] = Field(default_factory=list)
    unsure: list[str] = Field(
        default_factory=list,
        description="Fields of the job's metadata that are unsure, by their dotted names: what it "
        "is compared by, where the model's or the data's name is among them",
    )
    method: str = "none"
    abstained: bool = True
    reason: str | None = None

    def failing(self, age_s: float = 0.0) -> float | None:
        """Probability that the run fails before its end, once it has run for `age_s` [s]; None
        where too few past runs tell [0 to 1]."""
        at = bisect_right(FAILURE_AGES_S, max(age_s, 0.0)) - 1
        return self.failure[at] if at < len(self.failure) else None

    @property
    def past_jobs(self) -> int:
        """How many past jobs are behind it, similar ones and those of the same user or work."""
        ids = {one.job_id for one in self.neighbours}
        return len(ids.union(*(one.runs for one in self.experts)))

    @classmethod
    def without_end(cls, kind: str) -> Estimate:
        """What is said of a job that does not end by itself."""
        reason = f"does not end by itself ({kind}), so no run time is estimated"
        return cls(endless=True, reason=reason)
