"""Carries out a plan exactly once, even if the process is killed at any moment.

For each action: probe the cluster, record the intent (the guard is called in the same transaction),
act, record the answer. After a crash between the last two the attempt has no outcome, and a probe
decides: the action is done, or it was never taken and is repeated, or the cluster has changed and
the plan fails.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from schedmate.errors import SchedmateError
from schedmate.schedulers.live.actions import Action, Diagnose, Notify
from schedmate.schedulers.live.executor import Answer, Executor, Finding, Guard, RefusedError
from schedmate.schedulers.live.record import Record
from schedmate.schedulers.live.statuses import Attempt, PlanStatus, StateError

TIMEOUT_S = 60.0
"""Time limit of an action without one of its own [s]."""

MOST_TRIES = 5
"""How often an action is begun that gets no answer and turns out not to have been taken."""

Stop = Literal[
    "refused",  # a guard forbids it until a person decides
    "waits",  # a guard forbids it for now
    "changed",  # the cluster is not as the plan expects it
    "failed",  # the executor reports a failure
    "unknown",  # whether it was taken cannot be determined yet
]


class Result(NamedTuple):
    """How far a plan has come. `stopped` is None when all of it is done."""

    status: PlanStatus
    stopped: Stop | None = None
    detail: str = ""
    wait_s: float | None = None
    """Time after which to try again, if it is known [s]."""


class _StoppedError(Exception):
    def __init__(self, why: Stop, detail: str, wait_s: float | None = None) -> None:
        super().__init__(detail)
        self.why, self.detail, self.wait_s = why, detail, wait_s


def carry_out(
    record: Record, id_: str, executor: Executor, guard: Guard, *, by: str, retry: bool = False
) -> Result:
    """Take the actions of an approved plan in order, or the remaining ones after a crash.

    Repeating this for an applied plan has no effect. A failed plan is tried again only with
    `retry`. Raises `ClaimedError` if another process carries it out, `StateError` for a plan that
    is not approved, and `RecordError`, with nothing done, if it cannot be recorded.
    """
    with record.claim(id_):
        record.expire(only=id_)
        status = record.plan(id_)
        if status.state == "applied":
            return Result(status)
        if status.state == "approved" or (status.state == "failed" and retry):
            status = record.move(id_, "applying", by=by)
        if status.state != "applying":
            raise StateError(f"plan {id_} is {status.state}: {_what_to_do(status)}.")
        try:
            for step, action in enumerate(status.plan.actions):
                _take(record, status, step, action, executor, guard, by, undo=False, retry=retry)
        except _StoppedError as stop:
            return _stopped(record, status, stop, by)
        return Result(record.move(id_, "applied", by=by))


def take_back(record: Record, id_: str, executor: Executor, guard: Guard, *, by: str) -> Result:
    """Undo the actions of a plan that were done, the last one first.

    Changes that others made since are kept. Repeating this for an undone plan has no effect.
    """
    with record.claim(id_):
        status = record.plan(id_)
        if status.state == "undone":
            return Result(status)
        if status.state == "applying":  # interrupted: attempts are looked up below
            status = record.move(id_, "failed", by=by, note="to be undone")
        if status.state in ("applied", "failed"):
            status = record.move(id_, "undoing", by=by)
        if status.state != "undoing":
            raise StateError(f"plan {id_} is {status.state}: nothing of it was done.")
        left = []
        try:
            for step, action in reversed(list(enumerate(status.plan.actions))):
                back = action.undo()
                if not _was_done(record, id_, step, action, executor, by):
                    continue
                if back is None:
                    if not isinstance(action, Diagnose | Notify):  # no change to revert
                        left.append(f"{action.kind} of {action.target} cannot be taken back")
                    continue
                try:
                    _take(record, status, step, back, executor, guard, by, undo=True)
                except _StoppedError as stop:
                    if stop.why != "changed":
                        raise
                    left.append(f"{action.target} was left as it is: {stop.detail}")
        except _StoppedError as stop:
            return _stopped(record, status, stop, by)
        note = "; ".join(left)
        return Result(record.move(id_, "undone", by=by, note=note), detail=note)


def _was_done(
    record: Record, id_: str, step: int, action: Action, executor: Executor, by: str
) -> bool:
    attempts = record.attempts(plan=id_, step=step, undo=False)
    if attempts and attempts[-1].outcome is None:
        return _settle(record, attempts[-1], _look(executor, action), by) == "done"
    return bool(attempts) and attempts[-1].outcome == "done"


def _take(
    record: Record,
    status: PlanStatus,
    step: int,
    action: Action,
    executor: Executor,
    guard: Guard,
    by: str,
    *,
    undo: bool,
    retry: bool = False,
) -> None:
    """Take one action, unless it is done. Raises `_StoppedError` if the plan cannot continue."""
    id_ = status.plan.id
    before = record.attempts(plan=id_, step=step, undo=undo)
    if before and before[-1].outcome == "done":
        return
    finding = _look(executor, action)
    tries = sum(one.outcome in ("void", None) for one in before)
    if before and before[-1].outcome is None and _settle(record, before[-1], finding, by) == "done":
        return
    if tries >= MOST_TRIES and not retry:
        raise _StoppedError("failed", f"{action.in_words}: no answer, {tries} times")
    if finding.state == "moot":
        said = {"step": step, "undo": undo, "detail": finding.detail}
        record.observe("moot", id_, by=by, data=said)
        return
    if finding.state == "changed":
        raise _StoppedError("changed", finding.detail or f"{action.target} is not as it was")
    try:
        attempt = record.intend(
            *(id_, step),
            by=by,
            undo=undo,
            guard=lambda one: guard.check(record, status, one, undo=undo),
        )
    except RefusedError as refusal:
        if refusal.observed is not None:
            what, about, data = refusal.observed
            record.observe(what, about, by=by, data=data)
        why: Stop = "refused" if refusal.wait_s is None else "waits"
        raise _StoppedError(why, f"{refusal.rule}: {refusal}", refusal.wait_s) from None
    if finding.state == "done":
        record.answer(attempt.id, "done", by=by, detail=finding.detail or "found to be so")
        return
    answer = _act(executor, action, attempt)
    if answer.outcome == "unknown":
        raise _StoppedError("unknown", answer.detail)
    outcome, detail = answer.outcome, answer.detail
    if not record.answer(attempt.id, outcome, by=by, detail=detail, data=answer.data):
        first = record.attempts(plan=id_, step=step, undo=undo)[-1]  # the first answer is final
        outcome, detail = ("done" if first.outcome == "done" else "failed"), first.detail
    if outcome == "failed":
        raise _StoppedError("failed", detail)


def _act(executor: Executor, action: Action, attempt: Attempt) -> Answer:
    timeout = getattr(action, "timeout_s", TIMEOUT_S)
    try:
        return executor.act(action, key=attempt.key, timeout_s=timeout)
    except (SchedmateError, OSError) as error:
        # whether the action was taken is unknown
        return Answer("unknown", str(error))


def _look(executor: Executor, action: Action) -> Finding:
    try:
        return executor.probe(action)
    except (SchedmateError, OSError) as error:
        raise _StoppedError("unknown", str(error)) from None


def _settle(record: Record, attempt: Attempt, finding: Finding, by: str) -> str:
    """Record the outcome of an interrupted attempt, as a probe of the cluster shows it."""
    outcomes = {"done": "done", "ready": "void", "moot": "void", "changed": "failed"}
    outcome = outcomes[finding.state]
    detail = f"probed, as no answer came: {finding.detail or finding.state}"
    record.answer(attempt.id, outcome, by=by, detail=detail)  # type: ignore[arg-type]
    return outcome


def _stopped(record: Record, status: PlanStatus, stop: _StoppedError, by: str) -> Result:
    if stop.why not in ("waits", "unknown"):
        status = record.move(status.plan.id, "failed", by=by, note=f"{stop.why}: {stop.detail}")
    return Result(status, stop.why, stop.detail, stop.wait_s)


def _what_to_do(status: PlanStatus) -> str:
    if status.state == "proposed":
        return f"`schedmate recover approve {status.plan.id}` lets it be carried out"
    if status.state == "failed":
        return f"{status.note}; `schedmate recover apply --retry` tries it again"
    return "it is not carried out"
