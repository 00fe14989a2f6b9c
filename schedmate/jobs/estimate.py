"""How long a job will run."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from schedmate.jobs.record import JobState


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


class Extrapolation(BaseModel):
    """How far a job lies outside of what the past runs behind its estimate did."""

    quantity: Literal["GPUs", "epochs", "steps"]
    asked: float = Field(description="Of the new job")
    least: float = Field(description="Least of the past runs that completed")
    most: float = Field(description="Most of the past runs that completed")
    factor: float = Field(description="`asked` over `most`, or `least` over `asked`: above 1")
    text: str = Field(description="All this in a sentence")


class Estimate(BaseModel):
    """How long a job will run and what it will use (SchedMate paper, section 3.1).

    When `abstained` is true every number is None and `reason` says why; a scheduler falls back.
    """

    duration_s: float | None = Field(default=None, description="Point estimate [s]")
    duration_p10_s: float | None = Field(default=None, description="10th percentile [s]")
    duration_p50_s: float | None = Field(default=None, description="Median [s]")
    duration_p90_s: float | None = Field(default=None, description="90th percentile [s]")
    gpu_util: float | None = Field(default=None, description="Mean GPU utilisation [%]")
    sm_util: float | None = Field(default=None, description="Mean SM activity [%]")
    gpu_mem_mb: float | None = Field(default=None, description="Peak memory of one GPU [MB]")
    interval_basis: IntervalBasis | None = Field(
        default=None, description="What the width of p10 to p90 comes from"
    )
    extrapolated: list[Extrapolation] = Field(
        default_factory=list,
        description="In what the job lies outside of what its neighbours did, and how far",
    )
    neighbours: list[Neighbour] = Field(default_factory=list)
    method: str = "none"
    abstained: bool = True
    reason: str | None = None
