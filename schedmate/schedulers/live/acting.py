"""What an agent does to its cluster: each action a plan, kept before it is carried out."""

from __future__ import annotations

from hashlib import sha256

from schedmate.paths import exists
from schedmate.schedulers.live.actions import Action
from schedmate.schedulers.live.adapter import ClusterAdapter
from schedmate.schedulers.live.apply import carry_out
from schedmate.schedulers.live.bounds import Bounds
from schedmate.schedulers.live.ended import Healer
from schedmate.schedulers.live.executor import RefusedError
from schedmate.schedulers.live.ordering import check_band
from schedmate.schedulers.live.plans import Plan, Purpose, Reason
from schedmate.schedulers.live.record import PlanStatus, Record
from schedmate.schedulers.live.report import Done, Pass

EXPIRY_S = 300.0
"""After this time a change of order that was not begun is not begun any more [s]."""

AGENT = "schedmate agent"
"""The agent's name in the record."""


class Acting:
    """Carries out plans, its own and those of recovery; in a dry run (no record) only reports
    them."""

    def __init__(
        self,
        adapter: ClusterAdapter,
        record: Record | None,
        bounds: Bounds,
        healer: Healer | None,
    ) -> None:
        self._adapter = adapter
        self._record = record
        self._bounds = bounds
        self._healer = healer

    def go_on(self, found: Pass) -> None:
        """Carry out approved plans, and finish those of an interrupted agent."""
        if self._record is None or found.stopped:
            return
        self._record.expire()
        for status in reversed(self._record.plans(states={"approved", "applying"}, limit=1000)):
            if status.plan.cluster == self._adapter.cluster:
                self._carry_out(status.plan, found)

    def do(self, purpose: Purpose, action: Action, found: Pass, why: str) -> bool:
        """Plan an action, approve it by the bounds, carry it out; whether it was done."""
        if self._record is None:
            found.actions.append(Done(action=action, state="would"))
            return False
        text = action.model_dump_json()
        key = f"{purpose} at {found.time:.3f} {sha256(text.encode()).hexdigest()[:16]}"
        plan = Plan.of(
            purpose,
            cluster=self._adapter.cluster,
            key=key,
            created=found.time,
            expires=found.time + EXPIRY_S,
            reason=Reason(summary=why),
            actions=[action],
        )
        with (
            self._record.writing()
        ):  # in one transaction, so that no other approval can come between
            self._record.propose(plan, by=AGENT)
            self._record.approve(plan.id, by="policy: bounds.yaml")
        return self._carry_out(plan, found)

    def _carry_out(self, plan: Plan, found: Pass) -> bool:
        assert self._record is not None
        if plan.purpose != "recovery":
            result = carry_out(self._record, plan.id, self._adapter, self, by=AGENT)
        elif self._healer is not None:
            result = self._healer.apply(plan.id)
        else:  # approved elsewhere: the agent with recovery.yaml carries it out
            return False
        state, detail = result.status.state, result.detail
        found.actions += [
            Done(plan=plan.id, action=action, state=state, detail=detail) for action in plan.actions
        ]
        if result.stopped:
            found.problems.append(f"plan {plan.id}: {result.stopped}: {result.detail}")
        return result.stopped is None

    def check(self, record: Record, status: PlanStatus, action: Action, *, undo: bool) -> None:
        """As a `Guard` of the agent's own plans: the kill switch and the band."""
        if exists(self._bounds.kill_switch):
            place, wait_s = self._bounds.kill_switch, self._bounds.poll
            raise RefusedError("kill switch", f"{place} is there.", wait_s=wait_s)
        check_band(self._bounds.order, action, undo=undo)
