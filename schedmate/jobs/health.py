"""Whether a running job goes on as it should, by its log, and what a person should know if not."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from schedmate.jobs.progress import Progress

ConditionKind = Literal["diverged", "stalled", "looping", "late", "slowed"]
URGENCY: dict[str, int] = {
    kind: rank for rank, kind in enumerate(("diverged", "stalled", "looping", "late", "slowed"))
}
"""Kinds of conditions, the most urgent first: what wastes every GPU hour comes before what wastes
some."""


class Condition(BaseModel):
    """Something about a running job that a person should know."""

    model_config = ConfigDict(extra="forbid")

    kind: ConditionKind
    summary: str = Field(description="What it is, in one line")
    since: float | None = Field(
        default=None, description="Since when, as far as that is known [s since epoch]"
    )
    iteration: int | None = Field(default=None, ge=0, description="From which iteration on")
    line: int | None = Field(default=None, ge=1, description="The line that shows it, 1-based")
    usual_s: float | None = Field(
        default=None,
        description="Usual time: between lines about progress where it stalls, of a step where it "
        "slowed [s]",
    )
    expected_s: float | None = Field(
        default=None, description="Longest time without progress that was to be expected [s]"
    )
    ratio: float | None = Field(
        default=None, description="Step time now over the step time before, where it slowed"
    )
    short_by_s: float | None = Field(
        default=None, description="How long before its end it meets its time limit [s]"
    )
    gpu_hours: float | None = Field(
        default=None, description="GPU hours since then, where the number of GPUs is known"
    )
    stream: str | None = Field(
        default=None, description="The rank that is behind the others, as its log names it"
    )
    last_line: str | None = Field(default=None, description="What was written last")


class Health(BaseModel):
    """How a running job is, by its log at one moment."""

    model_config = ConfigDict(extra="forbid")

    read_at: float = Field(description="When it was read [s since epoch]")
    written_at: float = Field(description="When it was written last [s since epoch]")
    progress: Progress
    progress_at: float | None = Field(
        default=None,
        description="When the job was last seen to advance [s since epoch]; null where its log "
        "shows no progress",
    )
    usual_s: float | None = Field(
        default=None, description="Usual time between two lines about progress [s]"
    )
    expected_s: float | None = Field(
        default=None, description="Longest time without one that is to be expected now [s]"
    )
    position: int = Field(
        default=0, ge=0, description="Where in its log the last progress stands [bytes]"
    )
    checkpoint_line: int | None = Field(
        default=None, ge=1, description="Line that last says that a checkpoint was written, 1-based"
    )
    conditions: list[Condition] = Field(
        default_factory=list, description="The most urgent first; empty for a healthy job"
    )
