"""The record's plans as JSON, `schedmate.recover/v1`, for commands, agents and the dashboard."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from schedmate.cluster.journal import Instant
from schedmate.cluster.record import Outcome, Plan, PlanState, PlanStatus, Record, isolations

SCHEMA = "schedmate.recover/v1"


class AttemptDocument(BaseModel):
    """An action that was started; `outcome` is null while its result is unknown."""

    step: int
    undo: bool
    kind: str
    target: str
    time: float
    by: str
    outcome: Outcome | None
    detail: str
    data: dict[str, Any]


class EventDocument(BaseModel):
    """One line of a plan's history."""

    seq: int
    time: float
    kind: str
    by: str
    text: str


class PlanDocument(BaseModel):
    """The present state of a plan, with its actions in words."""

    plan: Plan
    state: PlanState
    since: float
    by: str
    note: str
    steps: list[str]
    attempts: list[AttemptDocument] = []
    history: list[EventDocument] = []


class ChainDocument(BaseModel):
    """Result of a check of the record's chain of hashes."""

    entries: int
    head: str
    broken: str | None


class RecoverDocument(BaseModel):
    """Output of `schedmate recover ... --json`."""

    plans: list[PlanDocument] = []
    why: str | None = None
    forbidden: list[str] = []
    stopped: str | None = None
    wait_s: float | None = None
    counts: dict[str, int] | None = None
    breaker: str | None = None
    kill_switch: bool | None = None
    undetermined: int | None = None
    isolated: dict[str, str] | None = None
    chain: ChainDocument | None = None


def plan_document(record: Record, status: PlanStatus, *, whole: bool = False) -> PlanDocument:
    """A plan; with its attempts and its history if `whole`."""
    document = PlanDocument(
        plan=status.plan,
        state=status.state,
        since=_time(status.since),
        by=status.by,
        note=status.note,
        steps=[one.in_words for one in status.plan.actions],
    )
    if whole:
        document.attempts = [
            AttemptDocument(
                step=one.step,
                undo=one.undo,
                kind=one.action.kind,
                target=one.action.target,
                time=_time(one.at),
                by=one.by,
                outcome=one.outcome,
                detail=one.detail,
                data=one.data,
            )
            for one in record.attempts(plan=status.plan.id)
        ]
        document.history = [
            EventDocument(
                seq=one.seq, time=_time(one.at), kind=one.kind, by=one.actor, text=_text(one.body)
            )
            for one in record.entries(about=status.plan.id)
            if one.kind != "case"
        ]
    return document


def isolated(record: Record) -> dict[str, str]:
    """The nodes that we took out of service and nobody returned, with the plan's id."""
    return {node: attempt.plan for node, attempt in isolations(record).items()}


def _text(body: dict[str, Any]) -> str:
    if "to" in body and "from" in body:
        return f"{body['from']} -> {body['to']}" + (f": {body['note']}" if body["note"] else "")
    if "outcome" in body:
        return f"{body['outcome']}" + (f": {body['detail']}" if body["detail"] else "")
    if "action" in body:
        return f"step {body['step']}{' undone' if body['undo'] else ''}: {body['action']['kind']}"
    return str(body.get("detail", ""))


def _time(at: Instant) -> float:
    return at.time
