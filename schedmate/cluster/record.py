"""Plans, the append-only record that keeps them, and how one is carried out exactly once.

A plan is what schedmate would do to a cluster, and why. The record has plans, approvals, attempts,
answers and observations. Before an action is taken its intent is committed, and after it the
answer: a process that is killed in between leaves an attempt without an outcome, which the next one
settles by probing the cluster.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field

from schedmate.base.errors import ActionError, SchedmateError
from schedmate.cluster.actions import (
    ACTION,
    Action,
    Diagnose,
    Drain,
    Kind,
    Notify,
    Requeue,
    Resume,
)
from schedmate.cluster.adapter import Answer, Executor, Finding, Guard, RefusedError
from schedmate.cluster.claims import claim
from schedmate.cluster.journal import (
    ROTATED,
    BrokenRecordError,
    Entry,
    Instant,
    Journal,
    Verified,
    canonical,
)
from schedmate.jobs import EvidenceLine
from schedmate.jobs.metadata import Moment, Text

Purpose = Literal["ordering", "annotation", "recovery"]
"""What a plan is for; guards and permissions depend on it."""

PlanState = Literal[
    "proposed",  # waits for approval
    "approved",  # may be carried out
    "rejected",  # rejected by a person; it is not proposed again
    "expired",  # not approved in time, or its occasion has passed
    "applying",  # its actions are being taken; after a crash, some may have been
    "applied",  # all actions were taken
    "failed",  # an action was refused, failed, or met a cluster that had changed
    "undoing",  # its actions are being reverted
    "undone",  # its actions were reverted, as far as possible
]

NEXT: dict[PlanState, frozenset[PlanState]] = {
    "proposed": frozenset({"approved", "rejected", "expired"}),
    "approved": frozenset({"applying", "rejected", "expired"}),
    "rejected": frozenset(),
    "expired": frozenset(),
    "applying": frozenset({"applied", "failed"}),
    "applied": frozenset({"undoing"}),
    "failed": frozenset({"approved", "applying", "undoing"}),
    "undoing": frozenset({"undone", "failed"}),
    "undone": frozenset(),
}
"""From each state, the states that may follow."""

OPEN: frozenset[PlanState] = frozenset({"proposed", "approved", "applying", "undoing"})
"""States in which more is to come."""


class Reason(BaseModel):
    """Why a plan is proposed: the verdict and the lines that prove it, fit to be shown."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    summary: Text = Field(description="One sentence for a person")
    verdict: str | None = Field(None, description="`error_name` of the diagnosis")
    error_type: str | None = None
    component: str | None = Field(None, description="`faulty_component` of the diagnosis")
    rule: str | None = Field(None, description="What decided: a rule of the diagnosis")
    job: str | None = None
    run: int | None = Field(None, ge=0, description="Restarts of the job before this run")
    nodes: tuple[str, ...] = ()
    confirmed_by: str | None = Field(
        None, description="The signal besides text that confirmed the fault, if any did"
    )
    evidence: tuple[EvidenceLine, ...] = ()


class Plan(BaseModel):
    """A list of actions and the reason for them.

    Plans with equal `id` are equal: proposing one twice has no effect. `id` is derived from cluster
    and `key`, which names the subject of the plan (`job 17 run 0`), so that two agents, or one that
    was restarted, cannot do the same thing twice.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str = Field(pattern=r"^[0-9a-f]{12}$")
    key: Text
    cluster: Text
    purpose: Purpose
    created: Moment = Field(description="[s since epoch]")
    expires: Moment | None = Field(
        None, description="Not approved by then, it never will be [s since epoch]"
    )
    reason: Reason
    actions: tuple[Action, ...]

    @classmethod
    def of(
        cls,
        purpose: Purpose,
        *,
        cluster: str,
        key: str,
        created: float,
        reason: Reason,
        actions: Callable[[str], Sequence[Action]] | Sequence[Action],
        expires: float | None = None,
    ) -> Self:
        """A plan with its id; `actions` may be a function of the id, for marks that hold it."""
        id_ = plan_id(cluster, key)
        return cls(
            id=id_,
            key=key,
            cluster=cluster,
            purpose=purpose,
            created=created,
            expires=expires,
            reason=reason,
            actions=tuple(actions(id_) if callable(actions) else actions),
        )

    @property
    def isolates(self) -> tuple[str, ...]:
        """The nodes that it takes out of service."""
        return tuple(action.node for action in self.actions if isinstance(action, Drain))

    @property
    def restarts(self) -> tuple[str, ...]:
        """The jobs that it requeues."""
        return tuple(action.job for action in self.actions if isinstance(action, Requeue))


def plan_id(cluster: str, key: str) -> str:
    """The id of the plan about `key` on a cluster: 12 hexadecimal digits."""
    return sha256(f"{cluster}\0{key}".encode("utf-8", "backslashreplace")).hexdigest()[:12]


def drain_mark(verdict: str | None, id_: str) -> str:
    """The mark of a drain: the verdict for people, the plan's id for schedmate."""
    words = re.sub(r"[^a-z0-9]+", "-", (verdict or "recovery").lower()).strip("-")[:40].strip("-")
    return f"{words or 'recovery'}-{id_}"


# Results of queries of the record: the state of plans, and actions that were begun.


Outcome = Literal[
    "done",  # it was taken, or was found to be so
    "failed",  # it was refused or went wrong, and is not in effect
    "void",  # it is certain that it was not taken; it may be begun again
]
"""The outcome of an attempt. None instead: undetermined, the action may have been taken or not."""


class StateError(ActionError):
    """A plan, or a step of one, is not in a state that allows this."""


class PlanStatus(NamedTuple):
    """The present state of a plan."""

    plan: Plan
    state: PlanState
    since: Instant
    """When it came into this state."""
    by: str
    """Who changed it to this state."""
    note: str
    """The comment of whoever changed the state."""
    number: int
    """Sequence number of its proposal: larger is newer."""


class Attempt(NamedTuple):
    """An action that was begun."""

    id: int
    """The number of its entry in the record."""
    plan: str
    step: int
    """Which action of the plan, from 0."""
    undo: bool
    """Whether `action` takes that one back."""
    action: Action
    at: Instant
    by: str
    outcome: Outcome | None
    detail: str
    data: dict[str, Any]

    @property
    def key(self) -> str:
        """The same for every attempt at this step, for executors that recognise a repeated
        request."""
        return f"{self.plan}-{self.step}{'-undo' if self.undo else ''}"


# Carries out a plan exactly once, even if the process is killed at any moment.
#
# For each action: probe the cluster, record the intent (the guard is called in the same
# transaction), act, record the answer. After a crash between the last two the attempt has no
# outcome, and a probe decides: the action is done, or it was never taken and is repeated, or the
# cluster has changed and the plan fails.


TIMEOUT_S = 60.0
"""Time limit of an action without one of its own [s]."""

MOST_TRIES = 5
"""How often an action is begun that gets no answer and turns out not to have been taken."""

StopReason = Literal[
    "refused",  # a guard forbids it until a person decides
    "waits",  # a guard forbids it for now
    "changed",  # the cluster is not as the plan expects it
    "failed",  # the executor reports a failure
    "unknown",  # whether it was taken cannot be determined yet
]


class Result(NamedTuple):
    """How far a plan has come. `stopped` is None when all of it is done."""

    status: PlanStatus
    stopped: StopReason | None = None
    detail: str = ""
    wait_s: float | None = None
    """Time after which to try again, if it is known [s]."""


class _StoppedError(Exception):
    def __init__(self, why: StopReason, detail: str, wait_s: float | None = None) -> None:
        super().__init__(detail)
        self.why, self.detail, self.wait_s = why, detail, wait_s


def carry_out(
    record: Record, id_: str, executor: Executor, guard: Guard, *, by: str, retry: bool = False
) -> Result:
    """Take the actions of an approved plan in order, or the remaining ones after a crash.

    Repeating this for an applied plan has no effect. A failed plan is tried again only with
    `retry`. Raises `ClaimedError` if another process carries it out, `StateError` for a plan that
    is not approved, `BrokenRecordError` for a record that was changed by something else, and
    `RecordError`, with nothing done, if it cannot be recorded.
    """
    with record.claim(id_):
        record.ensure_proven(id_)
        record.expire(only=id_)
        status = record.plan(id_)
        if status.state == "applied":
            return Result(status)
        if status.state == "approved" or (status.state == "failed" and retry):
            status = record.move(id_, "applying", by=by)
        if status.state != "applying":
            raise StateError(f"plan {id_} is {status.state}: {_advice_for(status)}.")
        skipped = []
        try:
            for step, action in enumerate(status.plan.actions):
                why = _take(
                    *(record, status, step, action, executor, guard, by), undo=False, retry=retry
                )
                if why is not None:
                    skipped.append(f"{action.in_words}: skipped, {why}")
        except _StoppedError as stop:
            if stop.why in ("refused", "changed", "failed"):
                # people are told all the same: a guard may stop a plan, not the news of it
                _notify(record, status, executor, guard, by)
            return _stopped_result(record, status, stop, by)
        note = "; ".join(skipped)
        return Result(record.move(id_, "applied", by=by, note=note), detail=note)


def _notify(record: Record, status: PlanStatus, executor: Executor, guard: Guard, by: str) -> None:
    """Take the notifications of a plan that does not go on."""
    for step, action in enumerate(status.plan.actions):
        if isinstance(action, Notify):
            with suppress(_StoppedError):
                _take(record, status, step, action, executor, guard, by, undo=False)


def take_back(record: Record, id_: str, executor: Executor, guard: Guard, *, by: str) -> Result:
    """Undo the actions of a plan that were done, the last one first.

    Changes that others made since are kept. Repeating this for an undone plan has no effect.
    """
    with record.claim(id_):
        record.ensure_proven(id_)
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
            return _stopped_result(record, status, stop, by)
        note = "; ".join(left)
        return Result(record.move(id_, "undone", by=by, note=note), detail=note)


def _was_done(
    record: Record, id_: str, step: int, action: Action, executor: Executor, by: str
) -> bool:
    attempts = record.attempts(plan=id_, step=step, undo=False)
    if attempts and attempts[-1].outcome is None:
        return _settle(record, attempts[-1], _probe(executor, action), by) == "done"
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
) -> str | None:
    """Take one action, unless it is done; the reason if it is skipped.

    Raises `_StoppedError` if the plan cannot continue.
    """
    id_ = status.plan.id
    before = record.attempts(plan=id_, step=step, undo=undo)
    if before and before[-1].outcome == "done":
        return None
    finding = _probe(executor, action)
    tries = sum(one.outcome in ("void", None) for one in before)
    if before and before[-1].outcome is None and _settle(record, before[-1], finding, by) == "done":
        return None
    if tries >= MOST_TRIES and not retry:
        raise _StoppedError("failed", f"{action.in_words}: no answer, {tries} times")
    if finding.state == "moot":
        observation = {"step": step, "undo": undo, "detail": finding.detail}
        record.observe("moot", id_, by=by, data=observation)
        return finding.detail or "it is so already"
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
        why: StopReason = "refused" if refusal.wait_s is None else "waits"
        raise _StoppedError(why, f"{refusal.rule}: {refusal}", refusal.wait_s) from None
    if finding.state == "done":
        record.answer(attempt.id, "done", by=by, detail=finding.detail or "found to be so")
        return None
    answer = _act(executor, action, attempt)
    if answer.outcome == "unknown":
        raise _StoppedError("unknown", answer.detail)
    outcome, detail = answer.outcome, answer.detail
    if not record.answer(attempt.id, outcome, by=by, detail=detail, data=answer.data):
        first = record.attempts(plan=id_, step=step, undo=undo)[-1]  # the first answer is final
        outcome, detail = ("done" if first.outcome == "done" else "failed"), first.detail
    if outcome == "failed":
        raise _StoppedError("failed", detail)
    return None


def _act(executor: Executor, action: Action, attempt: Attempt) -> Answer:
    timeout = getattr(action, "timeout_s", TIMEOUT_S)
    try:
        return executor.act(action, key=attempt.key, timeout_s=timeout)
    except (SchedmateError, OSError) as error:
        # whether the action was taken is unknown
        return Answer("unknown", str(error))


def _probe(executor: Executor, action: Action) -> Finding:
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


def _stopped_result(record: Record, status: PlanStatus, stop: _StoppedError, by: str) -> Result:
    if stop.why not in ("waits", "unknown"):
        status = record.move(status.plan.id, "failed", by=by, note=f"{stop.why}: {stop.detail}")
    return Result(status, stop.why, stop.detail, stop.wait_s)


def _advice_for(status: PlanStatus) -> str:
    if status.state == "proposed":
        return f"`schedmate recover approve {status.plan.id}` lets it be carried out"
    if status.state == "failed":
        return f"{status.note}; `schedmate recover apply --retry` tries it again"
    return "it is not carried out"


class _Derived(NamedTuple):
    """The tables of the record, derived from the entries of its chain alone."""

    plans: dict[str, list[Any]]
    """By id: proposed, moved, state, purpose, expires."""
    attempts: dict[int, list[Any]]
    """By id: plan, step, undo, kind, answered, outcome."""

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> Self:
        """Derive them. Raises `BrokenRecordError` for entries that no record of schedmate has:
        a move from a state in which the plan is not, an approval of another plan."""
        derived = cls({}, {})
        digests: dict[str, str] = {}
        for entry in entries:
            id_, body = entry.about, entry.body
            try:
                if entry.kind == "proposed":
                    expires = body["expires"]
                    derived.plans[id_] = [
                        *(entry.seq, entry.seq, "proposed", body["purpose"], expires)
                    ]
                    digests[id_] = sha256(canonical(body).encode()).hexdigest()
                elif entry.kind == "moved":
                    plan = derived.plans[id_]
                    if body["from"] != plan[2] or body["to"] not in NEXT[body["from"]]:
                        raise BrokenRecordError(f"entry {entry.seq} cannot follow")
                    if body.get("plan", digests[id_]) != digests[id_]:
                        raise BrokenRecordError(f"entry {entry.seq} approves another plan")
                    plan[1:3] = entry.seq, body["to"]
                elif entry.kind == "intended":
                    step = (id_, body["step"], int(body["undo"]), body["action"]["kind"])
                    derived.attempts[entry.seq] = [*step, None, None]
                elif entry.kind == "answered":
                    derived.attempts[body["attempt"]][4:] = entry.seq, body["outcome"]
            except (KeyError, TypeError) as error:
                raise BrokenRecordError(f"entry {entry.seq} is none of a record") from error
        return derived


class Record(Journal):
    """The record: an append-only file of plans, approvals, attempts, answers and observations.

    It makes "exactly once" possible. Before an action is taken its intent is committed (`intend`),
    and after it the answer (`answer`). A process that is killed in between leaves an attempt
    without an outcome: `undetermined()` lists these, and only a probe of the cluster
    (`Executor.probe`) can tell whether the action was taken. `carry_out` does all of that; any
    other caller of these two methods has to do the same. ::

        with Record(path) as record:
            record.propose(plan, by="agent")              # the same plan twice is one
            record.approve(plan.id, by="alice")           # raises StateError where it cannot be
            with record.claim(plan.id):                   # one process at a time carries it out
                record.move(plan.id, "applying", by="agent")
                attempt = record.intend(plan.id, 0, by="agent", guard=check)
                ...                                       # take plan.actions[0]
                record.answer(attempt.id, "done", by="agent")
                record.move(plan.id, "applied", by="agent")

    Readers (a dashboard) open it with `read_only=True`; `entries(after=seq)` gives what is new.
    Several processes of one machine may write at once. Every write is committed when the call
    returns, or raises `RecordError` and did not happen.
    """

    # -- plans -----------------------------------------------------------

    def propose(self, plan: Plan, *, by: str) -> PlanStatus:
        """Store a plan as proposed; an existing plan with this id stays unchanged."""
        with self.writing():
            if not self.rows("SELECT 1 FROM plans WHERE id = ?", (plan.id,)):
                made = self.append("proposed", plan.id, by, plan.model_dump(mode="json"))
                self.change(
                    "INSERT INTO plans VALUES (?, ?, ?, 'proposed', ?, ?)",
                    (plan.id, made.seq, made.seq, plan.purpose, plan.expires),
                )
            return self.plan(plan.id)

    def plan(self, id_: str) -> PlanStatus:
        """The present state of a plan. Raises `StateError` if no plan has this id."""
        statuses = self._statuses("id = ?", (id_,))
        if not statuses:
            raise StateError(
                f"no plan {id_!r} in {self.path}; `schedmate recover status` lists them."
            )
        return statuses[0]

    def plans(
        self,
        *,
        states: Iterable[PlanState] | None = None,
        purpose: Purpose | None = None,
        limit: int = 100,
        before: int | None = None,
    ) -> list[PlanStatus]:
        """The newest plans first; for the next page, those with a `number` below `before`."""
        wanted = json.dumps(sorted(states)) if states is not None else None
        return self._statuses(
            "(? IS NULL OR state IN (SELECT value FROM json_each(?))) "
            "AND (? IS NULL OR purpose = ?) AND (? IS NULL OR proposed < ?) "
            "ORDER BY proposed DESC LIMIT ?",
            (wanted, wanted, purpose, purpose, before, before, limit),
        )

    def counts(self) -> dict[PlanState, int]:
        """How many plans are in each state that any is in."""
        return dict(self.rows("SELECT state, count(*) FROM plans GROUP BY state"))

    def move(self, id_: str, to: PlanState, *, by: str, note: str = "") -> PlanStatus:
        """Bring a plan into another state. Raises `StateError` where `NEXT` has no such way, so
        that of two processes that try the same one fails."""
        with self.writing():
            status = self.plan(id_)
            if to not in NEXT[status.state]:
                raise StateError(f"plan {id_} is {status.state} and cannot become {to}.")
            body = {"from": status.state, "to": to, "note": note}
            if to == "approved":
                body["plan"] = self._digest_of(status.number)
            made = self.append("moved", id_, by, body)
            self.change("UPDATE plans SET state = ?, moved = ? WHERE id = ?", (to, made.seq, id_))
            return status._replace(state=to, since=made.at, by=by, note=note)

    def approve(self, id_: str, *, by: str, note: str = "") -> PlanStatus:
        """Approve a proposed plan, by a person or a rule of the administrator.

        Raises `StateError` if it is not proposed, or no longer: a plan past its time expires.
        """
        with self.writing():
            self.ensure_proven(id_)
            self.expire(only=id_)
            status = self.plan(id_)
            if status.state != "expired":
                return self.move(id_, "approved", by=by, note=note)
        raise StateError(f"plan {id_} has expired; `schedmate recover plan` makes a new one.")

    def _digest_of(self, proposal: int) -> str:
        """The digest of the plan as it was proposed, to which its approval is bound."""
        ((body,),) = self.rows("SELECT body FROM entries WHERE seq = ?", (proposal,))
        return sha256(body.encode()).hexdigest()

    def reject(self, id_: str, *, by: str, note: str = "") -> PlanStatus:
        """Reject a proposed or approved plan; it is not proposed again."""
        return self.move(id_, "rejected", by=by, note=note)

    def expire(self, *, only: str | None = None) -> list[str]:
        """Expire plans whose time has passed before they were begun; return their ids."""
        with self.writing():
            due = self.rows(
                "SELECT id FROM plans WHERE state IN ('proposed', 'approved') AND expires <= ? "
                "AND (? IS NULL OR id = ?)",
                (self.now().time, only, only),
            )
            for (id_,) in due:
                self.move(id_, "expired", by="schedmate", note="it was not approved in time")
            return [id_ for (id_,) in due]

    def claim(self, name: str) -> AbstractContextManager[int]:
        """Hold a plan (its id), or any other name, until the block or the process ends.

        Raises `ClaimedError` at once if another process holds it.
        """
        return claim(self.path.with_name(self.path.name + ".claims"), name)

    def _statuses(self, where: str, values: Sequence[Any]) -> list[PlanStatus]:
        columns = "document, state, time, boot, uptime, actor, move, proposed"
        sql = f"SELECT {columns} FROM plan_status WHERE {where}"  # noqa: S608 - our own words
        statuses = []
        for document, state, *at, actor, move, number in self.rows(sql, values):
            with self.parsing(number):
                statuses.append(
                    PlanStatus(
                        plan=Plan.model_validate_json(document),
                        state=state,
                        since=Instant(*at),
                        by=actor,
                        note=json.loads(move).get("note", ""),
                        number=number,
                    )
                )
        return statuses

    # -- actions ---------------------------------------------------------

    def intend(
        self,
        id_: str,
        step: int,
        *,
        by: str,
        undo: bool = False,
        guard: Callable[[Action], None] | None = None,
    ) -> Attempt:
        """Record that an action of a plan is about to be taken. Take it only then.

        `guard` is called with it in the same transaction: what it reads of the record cannot change
        before the intent is written, and an exception from it prevents that. Raises `StateError` if
        the plan is not `applying` (`undoing` for an undo), the step was done, or an earlier attempt
        at it is undetermined.
        """
        with self.writing():
            self.ensure_proven(id_)
            status = self.plan(id_)
            wanted: PlanState = "undoing" if undo else "applying"
            if status.state != wanted:
                raise StateError(f"plan {id_} is {status.state}, not {wanted}.")
            action: Action | None = status.plan.actions[step]
            action = action.undo() if undo and action is not None else action
            if action is None:
                raise StateError(f"step {step} of plan {id_} cannot be taken back.")
            for earlier in self.attempts(plan=id_, step=step, undo=undo):
                if earlier.outcome == "done":
                    raise StateError(f"step {step} of plan {id_} is done.")
                if earlier.outcome is None:
                    raise StateError(
                        f"step {step} of plan {id_} was begun and has no outcome; look whether it "
                        f"was taken before it is begun again."
                    )
            if guard is not None:
                guard(action)
            body = {"step": step, "undo": undo, "action": action.model_dump(mode="json")}
            made = self.append("intended", id_, by, body)
            self.change(
                "INSERT INTO attempts VALUES (?, ?, ?, ?, ?, NULL, NULL)",
                (made.seq, id_, step, undo, action.kind),
            )
            return Attempt(made.seq, id_, step, undo, action, made.at, by, None, "", {})

    def answer(
        self,
        attempt: int,
        outcome: Outcome,
        *,
        by: str,
        detail: str = "",
        data: dict[str, Any] | None = None,
    ) -> bool:
        """Record the outcome of an attempt.

        The first answer is final: a later one is stored as an observation `late answer`, changes
        nothing and returns False.
        """
        with self.writing():
            row = self.rows("SELECT plan, outcome FROM attempts WHERE id = ?", (attempt,))
            if not row:
                raise StateError(f"no attempt {attempt} in {self.path}.")
            plan, before = row[0]
            body = {"attempt": attempt, "outcome": outcome, "detail": detail, "data": data or {}}
            if before is not None:
                self.append("late answer", plan, by, body)
                return False
            made = self.append("answered", plan, by, body)
            self.change(
                "UPDATE attempts SET outcome = ?, answered = ? WHERE id = ?",
                (outcome, made.seq, attempt),
            )
            return True

    def attempts(
        self,
        *,
        plan: str | None = None,
        step: int | None = None,
        undo: bool | None = None,
        kind: Kind | None = None,
    ) -> list[Attempt]:
        """Started attempts, oldest first, by plan, step, direction or kind."""
        return self._attempts(
            "(? IS NULL OR plan = ?) AND (? IS NULL OR step = ?) AND (? IS NULL OR undo = ?) "
            "AND (? IS NULL OR kind = ?)",
            (plan, plan, step, step, undo, undo, kind, kind),
        )

    def undetermined(self, plan: str | None = None) -> list[Attempt]:
        """Attempts without an answer, oldest first; the cluster shows their result."""
        return self._attempts("outcome IS NULL AND (? IS NULL OR plan = ?)", (plan, plan))

    def _attempts(self, where: str, values: Sequence[Any]) -> list[Attempt]:
        columns = "id, plan, step, undo, outcome, time, boot, uptime, actor, intent, answer"
        sql = f"SELECT {columns} FROM attempt_status WHERE {where} ORDER BY id"  # noqa: S608
        attempts = []
        for id_, plan, step, undo, outcome, *at, actor, intent, answer in self.rows(sql, values):
            with self.parsing(id_):
                result = json.loads(answer)
                attempts.append(
                    Attempt(
                        id=id_,
                        plan=plan,
                        step=step,
                        undo=bool(undo),
                        action=ACTION.validate_python(json.loads(intent)["action"]),
                        at=Instant(*at),
                        by=actor,
                        outcome=outcome,
                        detail=result.get("detail", ""),
                        data=result.get("data", {}),
                    )
                )
        return attempts

    # -- retention -------------------------------------------------------

    def rotate(self, keep_s: float, *, by: str, needed: Callable[[Record], int]) -> Path | None:
        """Move entries older than `keep_s` [s] into an archive beside the record; its path.

        None if nothing is so old. See `Journal.archive_before`.

        What is still needed stays, whatever its age: plans with more to come, attempts without an
        outcome, the entries from the number that `needed` gives, and every entry of a plan of which
        one stays. Raises `BrokenRecordError` for a record that was changed by something else.
        """
        with self.writing():
            at = self.now().time - keep_s
            ((newer, last),) = self.rows(
                "SELECT (SELECT min(seq) FROM entries WHERE time >= ?), max(seq) FROM entries",
                (at,),
            )
            if last is None:
                return None
            ((opened,),) = self.rows(
                "SELECT min(proposed) FROM plans WHERE state IN (SELECT value FROM json_each(?)) "
                "OR id IN (SELECT plan FROM attempts WHERE outcome IS NULL)",
                (json.dumps(sorted(OPEN)),),
            )
            # the last entry stays, so that the chain is never empty
            cut = min(one for one in (newer, opened, needed(self), last) if one is not None)
            while True:
                ((begun,),) = self.rows(
                    "SELECT min(proposed) FROM plans WHERE moved >= ? OR id IN "
                    "(SELECT about FROM entries WHERE seq >= ?)",
                    (cut, cut),
                )
                if begun is None or begun >= cut:
                    break
                cut = begun
            if cut <= self._origin().first:
                return None
            archive = self.archive_before(cut, by=by)
            self.change(
                "DELETE FROM attempts WHERE plan IN (SELECT id FROM plans WHERE proposed < ?)",
                (cut,),
            )
            self.change("DELETE FROM plans WHERE proposed < ?", (cut,))
        self.shrink()
        return archive

    def rotate_above(
        self, size: float, keep_s: float, *, by: str, needed: Callable[[Record], int]
    ) -> Path | None:
        """`rotate` a file that is larger than `size` [bytes], at most once in a third of `keep_s`:
        each archive is a copy of what is there."""
        if self.path.stat().st_size <= size:
            return None
        last = max((one.at.time for one in self.entries(kind=ROTATED)), default=-math.inf)
        if self.now().time - last < keep_s / 3:
            return None
        return self.rotate(keep_s, by=by, needed=needed)

    # -- proof -----------------------------------------------------------

    def verify(self, checkpoint: tuple[int, str] | None = None) -> Verified:
        """Verify the chain, and that the tables of plans and attempts say what its entries say."""
        verified = super().verify(checkpoint)
        if verified.broken is not None:
            return verified
        try:
            self._compare(_Derived.of(self.entries()), None)
        except BrokenRecordError as error:
            return verified._replace(broken=str(error))
        return verified

    def ensure_proven(self, id_: str) -> None:
        """Raise `BrokenRecordError` unless the record is intact and its entries alone say what is
        about to be carried out: the plan, its approval, its state, its attempts."""
        self.ensure_intact()
        try:
            self._compare(_Derived.of(self.entries(about=id_)), id_)
        except BrokenRecordError as error:
            raise BrokenRecordError(
                f"{self.path} was changed by something else than schedmate: {error}; nothing of "
                "it is carried out."
            ) from None

    def _compare(self, derived: _Derived, only: str | None) -> None:
        plans = self.rows(
            "SELECT id, proposed, moved, state, purpose, expires FROM plans "
            "WHERE ? IS NULL OR id = ?",
            (only, only),
        )
        for id_, *row in plans:
            entries = derived.plans.pop(id_, None)
            if entries is None or tuple(row) != tuple(entries):
                says = "no such plan" if entries is None else f"{entries[2]}"
                raise BrokenRecordError(
                    f"plan {id_} is {row[2]} in the table of plans, by its entries {says}"
                )
        if derived.plans:
            raise BrokenRecordError(f"plan {next(iter(derived.plans))} is in no table")
        attempts = self.rows(
            "SELECT id, plan, step, undo, kind, answered, outcome FROM attempts "
            "WHERE ? IS NULL OR plan = ?",
            (only, only),
        )
        for number, *row in attempts:
            if derived.attempts.pop(number, None) != row:
                raise BrokenRecordError(f"the table of attempts differs from entry {number}")
        if derived.attempts:
            raise BrokenRecordError(f"attempt {next(iter(derived.attempts))} is in no table")

    # -- observations ----------------------------------------------------

    def observe(self, what: str, about: str, *, by: str, data: dict[str, Any]) -> Entry:
        """Store an observation that supports a decision: a signal that confirms a fault, a breaker
        that tripped.

        `entries(kind=what, about=...)` finds it again.
        """
        if what in ("proposed", "moved", "intended", "answered"):
            raise ValueError(f"{what!r} is no observation")
        with self.writing():
            return self.append(what, about, by, data)


ISOLATION_ENDED = "isolation ended"
"""The observation that others returned a node to service, or took it over; about the plan."""


def isolations(record: Record) -> dict[str, Attempt]:
    """The nodes that we took out of service, or may have, with the attempt; without those that we
    or others returned."""
    drained: dict[str, Attempt] = {}
    both = [*record.attempts(kind="drain"), *record.attempts(kind="resume")]
    for attempt in sorted(both, key=lambda attempt: attempt.id):
        if isinstance(attempt.action, Drain) and attempt.outcome in ("done", None):
            drained[attempt.action.node] = attempt
        elif isinstance(attempt.action, Resume) and attempt.outcome == "done":
            drained.pop(attempt.action.node, None)
    for entry in record.entries(kind=ISOLATION_ENDED):
        node = entry.body["node"]
        if node in drained and drained[node].id == entry.body["drain"]:
            del drained[node]
    return drained
