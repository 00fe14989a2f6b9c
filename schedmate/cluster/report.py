"""The report of one pass of an agent: what it saw, did, and could not do."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from schedmate.cluster.actions import Action
from schedmate.jobs import Diagnosis, Estimate, Progress, Remaining
from schedmate.jobs.health import Condition
from schedmate.logparse.watch.alarms import AlarmEvent

REPORT_SCHEMA = "schedmate.agent-pass/v1"


class _PassPart(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Estimated(_PassPart):
    """An estimate of a job that is new, or for which more runs are known now."""

    job: str
    user: str
    estimate: Estimate
    again: bool = False


class Followed(_PassPart):
    """A running job whose log was read."""

    job: str
    log: str
    progress: Progress
    remaining: Remaining | None = Field(
        None, description="How long it still takes, by its estimate and its log together"
    )
    conditions: list[Condition] = Field(
        default_factory=list, description="What a person should know of it, the most urgent first"
    )


class Checked(_PassPart):
    """A run that ended, and the last estimate of its job while it waited."""

    run: str
    user: str | None
    ended: float = Field(description="[s since epoch]")
    state: str
    took_s: float = Field(description="Run time; a lower bound unless it completed [s]")
    limit_s: float | None = Field(description="Time limit that its user set [s]")
    p10_s: float | None = Field(None, description="Null without an estimate [s]")
    p50_s: float | None = None
    p90_s: float | None = None

    @property
    def place(self) -> str | None:
        """Where a completed run ended: `below` its interval, `within` or `above` it."""
        if self.state != "COMPLETED" or self.p10_s is None or self.p90_s is None:
            return None
        if self.took_s < self.p10_s:
            return "below"
        return "above" if self.took_s > self.p90_s else "within"


class Failed(_PassPart):
    """A run that failed, and what its logs say."""

    job: str
    run: str
    state: str
    nodes: tuple[str, ...]
    log: str | None
    diagnosis: Diagnosis | None
    plan: str | None = Field(None, description="The id of the plan that was proposed for it")


class Done(_PassPart):
    """An action that was taken, or would be in a dry run."""

    plan: str | None = Field(None, description="Null in a dry run")
    action: Action
    state: str = Field(description="`would` in a dry run, else the state of its plan")
    detail: str = ""


class Pass(_PassPart):
    """The report of one pass over a cluster: what the agent saw, did, and could not do."""

    cluster: str
    time: float = Field(description="When it began [s since epoch]")
    took_s: float = Field(0.0, description="Wall time [s]")
    dry_run: bool = False
    stopped: bool = Field(False, description="The kill switch is set: nothing was changed")
    pending: int = 0
    running: int = 0
    stalled: int = Field(0, description="Running jobs whose logs are silent for too long")
    newly_stalled: list[str] = Field(
        default_factory=list, description="Those that were not stalled in the pass before"
    )
    alarms: list[AlarmEvent] = Field(
        default_factory=list, description="Alarms about running jobs that began or were over"
    )
    unread: int = Field(0, description="Jobs whose code is left for the next pass")
    undiagnosed: int = Field(0, description="Failed runs that are left for the next pass")
    unlearned: int = Field(0, description="Ended runs to be learned from in the next passes")
    estimated: list[Estimated] = Field(default_factory=list)
    actions: list[Done] = Field(default_factory=list)
    learned: int = Field(0, description="Ended runs that went into the history")
    checked: list[Checked] = Field(
        default_factory=list, description="Runs that ended, beside their estimates"
    )
    followed: list[Followed] = Field(default_factory=list)
    failed: list[Failed] = Field(default_factory=list)
    waiting: list[str] = Field(default_factory=list, description="Plans that wait for approval")
    problems: list[str] = Field(default_factory=list, description="What could not be done, and why")

    @property
    def eventful(self) -> bool:
        """Whether there is anything to report."""
        work = self.estimated or self.actions or self.learned or self.alarms
        return bool(work or self.failed or self.problems)
