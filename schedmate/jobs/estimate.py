"""How long a job will run."""

from __future__ import annotations

from pydantic import BaseModel, Field

from schedmate.jobs.record import JobState


class Neighbour(BaseModel):
    """One past job an estimate rests on."""

    job_id: str
    similarity: float = Field(description="Cosine similarity of the rendered metadata, at most 1")
    exact: bool = Field(False, description="Same fingerprint: a resubmission")
    weight: float = Field(description="Share of this job in the estimate; all shares add up to 1")
    duration_s: float = Field(description="Observed run time [s]")
    adjusted_duration_s: float = Field(
        description="Run time corrected for iteration and GPU count [s]"
    )
    censored: bool = False
    state: JobState = "COMPLETED"
    age_s: float | None = Field(None, description="Time since it ended [s]")
    summary: str = Field("", description="Model, dataset and length in a few words")


class Estimate(BaseModel):
    """How long a job will run and what it will use (SchedMate paper, section 3.1).

    When `abstained` is true every number is None and `reason` says why; a scheduler falls back.
    """

    duration_s: float | None = Field(None, description="Point estimate [s]")
    duration_p10_s: float | None = Field(None, description="10th percentile [s]")
    duration_p50_s: float | None = Field(None, description="Median [s]")
    duration_p90_s: float | None = Field(None, description="90th percentile [s]")
    gpu_util: float | None = Field(None, description="Mean GPU utilisation [%]")
    sm_util: float | None = Field(None, description="Mean SM activity [%]")
    gpu_mem_mb: float | None = Field(None, description="Peak memory of one GPU [MB]")
    neighbours: list[Neighbour] = Field(default_factory=list)
    method: str = "none"
    abstained: bool = True
    reason: str | None = None
