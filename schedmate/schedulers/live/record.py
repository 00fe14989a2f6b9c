"""The record: an append-only file of plans, approvals, attempts, answers and observations.

It makes "exactly once" possible. Before an action is taken its intent is committed (`intend`), and
after it the answer (`answer`). A process that is killed in between leaves an attempt without an
outcome: `undetermined()` lists these, and only a probe of the cluster (`Executor.probe`) can tell
whether the action was taken. `apply.py` does all of that; anything else that calls these two
methods has to do the same. ::

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

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from schedmate.schedulers.live.actions import ACTION, Action, Kind
from schedmate.schedulers.live.claims import claim
from schedmate.schedulers.live.clock import Instant
from schedmate.schedulers.live.journal import Entry, Journal, RecordError, Verified
from schedmate.schedulers.live.plans import NEXT, Plan, Purpose, State
from schedmate.schedulers.live.statuses import Attempt, Outcome, PlanStatus, StateError

__all__ = [
    "Attempt",
    "Entry",
    "Outcome",
    "PlanStatus",
    "Record",
    "RecordError",
    "StateError",
    "Verified",
]


class Record(Journal):
    """Plans, attempts and observations over a `Journal`, with its `verify`, `head`, `entries` and
    `writing`."""

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
        found = self._statuses("id = ?", (id_,))
        if not found:
            raise StateError(
                f"no plan {id_!r} in {self.path}; `schedmate recover status` lists them."
            )
        return found[0]

    def plans(
        self,
        *,
        states: Iterable[State] | None = None,
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

    def counts(self) -> dict[State, int]:
        """How many plans are in each state that any is in."""
        return dict(self.rows("SELECT state, count(*) FROM plans GROUP BY state"))

    def move(self, id_: str, to: State, *, by: str, note: str = "") -> PlanStatus:
        """Bring a plan into another state. Raises `StateError` where `NEXT` has no such way, so
        that of two processes that try the same one fails."""
        with self.writing():
            status = self.plan(id_)
            if to not in NEXT[status.state]:
                raise StateError(f"plan {id_} is {status.state} and cannot become {to}.")
            made = self.append("moved", id_, by, {"from": status.state, "to": to, "note": note})
            self.change("UPDATE plans SET state = ?, moved = ? WHERE id = ?", (to, made.seq, id_))
            return status._replace(state=to, since=made.at, by=by, note=note)

    def approve(self, id_: str, *, by: str, note: str = "") -> PlanStatus:
        """Approve a proposed plan, by a person or a rule of the administrator.

        Raises `StateError` if it is not proposed, or no longer: a plan past its time expires.
        """
        with self.writing():
            self.expire(only=id_)
            status = self.plan(id_)
            if status.state != "expired":
                return self.move(id_, "approved", by=by, note=note)
        raise StateError(f"plan {id_} has expired; `schedmate recover plan` makes a new one.")

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
        return [
            PlanStatus(
                plan=Plan.model_validate_json(document),
                state=state,
                since=Instant(time, boot, uptime),
                by=actor,
                note=json.loads(move).get("note", ""),
                number=number,
            )
            for document, state, time, boot, uptime, actor, move, number in self.rows(sql, values)
        ]

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
            status = self.plan(id_)
            wanted: State = "undoing" if undo else "applying"
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
        found = []
        for id_, plan, step, undo, outcome, *at, actor, intent, answer in self.rows(sql, values):
            said = json.loads(answer)
            found.append(
                Attempt(
                    id=id_,
                    plan=plan,
                    step=step,
                    undo=bool(undo),
                    action=ACTION.validate_python(json.loads(intent)["action"]),
                    at=Instant(*at),
                    by=actor,
                    outcome=outcome,
                    detail=said.get("detail", ""),
                    data=said.get("data", {}),
                )
            )
        return found

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
