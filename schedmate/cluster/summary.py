"""What an agent did in some weeks, or would have done in the shadow, and how true its estimates
were."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from schedmate.cluster.acting import WOULD
from schedmate.cluster.actions import ACTION, Action, Annotate, Order
from schedmate.cluster.memory import Memory
from schedmate.cluster.record import Plan, Record
from schedmate.cluster.report import Checked

SUMMARY_SCHEMA = "schedmate.agent-summary/v1"
FACTOR = 2.0
"""An estimate this many times too long or too short still counts as near."""


class Estimates(BaseModel):
    """Estimates beside what happened, of jobs that ended."""

    model_config = ConfigDict(extra="forbid")

    ended: int = Field(description="Jobs that ended after the agent had seen them waiting")
    estimated: int = Field(description="Of these, those with an estimate")
    completed: int = Field(description="Of those, the ones that completed: the rest compare these")
    within_2x: float | None = Field(description="Median estimates within a factor of 2 [0 to 1]")
    within_interval: float | None = Field(description="Run times within the 80 % interval [0 to 1]")
    limited: int = Field(description="Of the completed ones, those with a time limit")
    limit_within_2x: float | None = Field(
        description="Time limits within a factor of 2, of the same jobs [0 to 1]"
    )


class Done(BaseModel):
    """Actions of one kind and state; `would` is of an agent in the shadow."""

    model_config = ConfigDict(extra="forbid")

    kind: str
    state: str
    actions: int
    targets: int = Field(description="Jobs or nodes that they are about, each counted once")


class Planned(BaseModel):
    """Plans of recovery for one verdict."""

    model_config = ConfigDict(extra="forbid")

    verdict: str
    state: str
    plans: int
    isolates: list[str] = Field(description="Nodes that they take out of service")
    restarts: int


class AgentSummary(BaseModel):
    """The report of an agent."""

    model_config = ConfigDict(extra="forbid")

    since: float = Field(description="[s since epoch]")
    until: float
    shadow: bool
    estimates: Estimates
    raised: int = Field(description="Jobs that were placed before others at least once")
    lowered: int = Field(description="Jobs that were placed after others at least once")
    done: list[Done]
    planned: list[Planned]


def summary_of(
    memory: Memory, record: Record, *, since: float, until: float, shadow: bool
) -> AgentSummary:
    """What memory and record say of a time [s since epoch]."""
    actions: Counter[tuple[str, str]] = Counter()
    targets: dict[tuple[str, str], set[str]] = {}
    raised: set[str] = set()
    lowered: set[str] = set()
    plans: dict[tuple[str, str], list[Plan]] = {}
    for state, action in _actions(record, since):
        key = (action.kind, state)
        actions[key] += 1
        targets.setdefault(key, set()).update(_targets(action))
        if isinstance(action, Order):
            raised |= {job for job, value in action.values.items() if value > 0}
            lowered |= {job for job, value in action.values.items() if value < 0}
    for status in record.plans(purpose="recovery", limit=100_000):
        if status.plan.created >= since:
            verdict = status.plan.reason.verdict or "none"
            plans.setdefault((verdict, status.state), []).append(status.plan)
    return AgentSummary(
        since=since,
        until=until,
        shadow=shadow,
        estimates=_estimates(memory.checked(since)),
        raised=len(raised),
        lowered=len(lowered),
        done=[
            Done(kind=kind, state=state, actions=count, targets=len(targets[kind, state]))
            for (kind, state), count in actions.most_common()
        ],
        planned=[
            Planned(
                verdict=verdict,
                state=state,
                plans=len(some),
                isolates=sorted({node for plan in some for node in plan.isolates}),
                restarts=sum(len(plan.restarts) for plan in some),
            )
            for (verdict, state), some in sorted(plans.items())
        ],
    )


def _actions(record: Record, since: float) -> Iterator[tuple[str, Action]]:
    """Actions that were taken, or would have been, and which of the two."""
    for entry in record.entries(kind=WOULD):
        if entry.at.time >= since:
            with record.parsing(entry.seq):
                yield WOULD, ACTION.validate_python(entry.body["action"])
    for attempt in record.attempts(undo=False):
        if attempt.at.time >= since:
            yield attempt.outcome or "unknown", attempt.action


def _targets(action: Action) -> Iterable[str]:
    if isinstance(action, Order):
        return action.values
    return action.texts if isinstance(action, Annotate) else (action.target,)


def _estimates(runs: list[Checked]) -> Estimates:
    given = [run for run in runs if run.p50_s is not None]
    done = [run for run in given if run.state == "COMPLETED"]
    limited = [run for run in done if run.limit_s is not None]
    return Estimates(
        ended=len(runs),
        estimated=len(given),
        completed=len(done),
        within_2x=_share(_near(run.p50_s, run.took_s) for run in done),
        within_interval=_share(run.place == "within" for run in done if run.place is not None),
        limited=len(limited),
        limit_within_2x=_share(_near(run.limit_s, run.took_s) for run in limited),
    )


def _near(said_s: float | None, took_s: float) -> bool:
    return said_s is not None and took_s / FACTOR <= said_s <= took_s * FACTOR


def _share(answers: Iterable[bool]) -> float | None:
    answers = list(answers)
    return sum(answers) / len(answers) if answers else None


def summary_of_folder(
    folder: Path, *, memory: str, record: str, since: float, until: float, shadow: bool
) -> AgentSummary:
    """The report of the agent that keeps its files in a folder. Raises `InputError`."""
    with Record(folder / record, read_only=True) as kept, Memory(folder / memory) as remembered:
        return summary_of(remembered, kept, since=since, until=until, shadow=shadow)
