"""Actions of an agent: each is a plan, recorded before it is carried out."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from schedmate.cluster.actions import Action
from schedmate.cluster.adapter import ClusterAdapter, RefusedError
from schedmate.cluster.bounds import Bounds, check_band, kill_switch_is_on
from schedmate.cluster.record import Plan, PlanStatus, Purpose, Reason, Record, Result, carry_out
from schedmate.cluster.report import Done, Pass

if TYPE_CHECKING:
    from schedmate.cluster.recovery.recover import ClusterRecovery

EXPIRY_S = 300.0
"""After this time a change of order that was not begun is not begun any more [s]."""

AGENT = "schedmate agent"
"""The agent's name in the record."""

WOULD = "would"
"""The observation of an action that an agent in the shadow did not take."""


class Acting:
    """Carries out plans, its own and those of recovery; in a dry run (no record) only reports
    them."""

    def __init__(
        self,
        adapter: ClusterAdapter,
        record: Record | None,
        bounds: Bounds,
        healer: ClusterRecovery | None,
        *,
        shadow: bool = False,
    ) -> None:
        self._adapter = adapter
        self._record = record
        self._bounds = bounds
        self._healer = healer
        self._shadow = shadow

    def go_on(self, report: Pass) -> None:
        """Carry out approved plans, and finish those of an interrupted agent."""
        if self._record is None or self._shadow or report.stopped:
            return
        self._record.ensure_intact()
        if self._healer is not None:
            self._healer.reconcile()
        self._record.expire()
        for status in reversed(self._record.plans(states={"approved", "applying"}, limit=1000)):
            if status.plan.cluster == self._adapter.cluster:
                self._carry_out(status.plan, report)

    def do(self, purpose: Purpose, action: Action, report: Pass, why: str) -> bool:
        """Plan an action, approve it by the bounds, carry it out; whether it was done."""
        if self._record is None or self._shadow:
            report.actions.append(Done(action=action, state="would"))
            if self._record is not None:
                document = {"action": action.model_dump(mode="json"), "why": why}
                self._record.observe(WOULD, purpose, by=AGENT, data=document)
            return self._shadow
        text = action.model_dump_json()
        key = f"{purpose} at {report.time:.3f} {sha256(text.encode()).hexdigest()[:16]}"
        plan = Plan.of(
            purpose,
            cluster=self._adapter.cluster,
            key=key,
            created=report.time,
            expires=report.time + EXPIRY_S,
            reason=Reason(summary=why),
            actions=[action],
        )
        with (
            self._record.writing()
        ):  # in one transaction, so that no other approval can come between
            self._record.propose(plan, by=AGENT)
            self._record.approve(plan.id, by="policy: bounds.yaml")
        return self._carry_out(plan, report)

    def _carry_out(self, plan: Plan, report: Pass) -> bool:
        assert self._record is not None
        if plan.purpose != "recovery":
            result = carry_out(self._record, plan.id, self._adapter, self, by=AGENT)
        elif self._healer is not None:
            result = self._healer.apply(plan.id)
        else:  # approved elsewhere: the agent with recovery.yaml carries it out
            return False
        report.actions += self._taken(plan, result)
        if result.stopped:
            report.problems.append(f"plan {plan.id}: {result.stopped}: {result.detail}")
        return result.stopped is None

    def _taken(self, plan: Plan, result: Result) -> list[Done]:
        """What came of each action of a plan: some may be done although another was refused."""
        assert self._record is not None
        last = {attempt.step: attempt for attempt in self._record.attempts(plan=plan.id)}
        skipped = {
            entry.body["step"]: str(entry.body["detail"])
            for entry in self._record.entries(kind="moot", about=plan.id)
        }
        taken = []
        for step, action in enumerate(plan.actions):
            state, detail = str(result.status.state), result.detail
            if step in last and last[step].outcome == "done":
                state, detail = "applied", last[step].detail
            elif step in skipped:
                state, detail = "skipped", skipped[step]
            taken.append(Done(plan=plan.id, action=action, state=state, detail=detail))
        return taken

    def check(self, record: Record, status: PlanStatus, action: Action, *, undo: bool) -> None:
        """As a `Guard` of the agent's own plans: the kill switch and the band."""
        if kill_switch_is_on(self._bounds.kill_switch):
            place, wait_s = self._bounds.kill_switch, self._bounds.poll
            raise RefusedError("kill switch", f"{place} is there.", wait_s=wait_s)
        check_band(self._bounds.order, action, undo=undo)
