"""What one pass of an agent found and did: for people, and as `schedmate.agent-pass/v1`."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from schedmate.jobs import Diagnosis, Estimate, Progress
from schedmate.schedulers.live.actions import Action

SCHEMA = "schedmate.agent-pass/v1"


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Estimated(_Part):
    """An estimate of a job that is new, or for which more runs are known now."""

    job: str
    user: str
    estimate: Estimate
    again: bool = False


class Followed(_Part):
    """A running job whose log was read."""

    job: str
    log: str
    progress: Progress


class Failed(_Part):
    """A run that failed, and what its logs say."""

    job: str
    run: str
    state: str
    nodes: tuple[str, ...]
    log: str | None
    diagnosis: Diagnosis | None
    plan: str | None = Field(None, description="The id of the plan that was proposed for it")


class Done(_Part):
    """An action that was taken, or would be in a dry run."""

    plan: str | None = Field(None, description="Null in a dry run")
    action: Action
    state: str = Field(description="`would` in a dry run, else the state of its plan")
    detail: str = ""


class Pass(_Part):
    """One pass over a cluster."""

    cluster: str
    time: float = Field(description="When it began [s since epoch]")
    took_s: float = Field(0.0, description="Wall time [s]")
    dry_run: bool = False
    stopped: bool = Field(False, description="The kill switch is set: nothing was changed")
    pending: int = 0
    running: int = 0
    unread: int = Field(0, description="Jobs whose code is left for the next pass")
    estimated: list[Estimated] = Field(default_factory=list)
    actions: list[Done] = Field(default_factory=list)
    learned: int = Field(0, description="Ended runs that went into the history")
    followed: list[Followed] = Field(default_factory=list)
    failed: list[Failed] = Field(default_factory=list)
    waiting: list[str] = Field(default_factory=list, description="Plans that wait for approval")
    problems: list[str] = Field(default_factory=list, description="What could not be done, and why")

    @property
    def eventful(self) -> bool:
        """Whether there is anything to report."""
        return bool(self.estimated or self.actions or self.learned or self.failed or self.problems)
