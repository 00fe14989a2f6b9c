"""Recovery as commands and agents use it: cases in, plans kept, approved plans carried out.

recovery = Recovery(configuration, record, executor, by="agent")
proposal, status = recovery.plan(case)       # proposed; approved where recovery.yaml says so
result = recovery.apply(status.plan.id)      # past the guards
result.next                                  # what follows from a diagnostic that was run
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from schedmate.jobs import Diagnosis
from schedmate.recovery.configuration import Configuration, Step
from schedmate.recovery.diagnosing import Diagnosing
from schedmate.recovery.guards import Guards
from schedmate.recovery.inventory import HasInventory, Inventory
from schedmate.recovery.proposing import Case, Proposal, propose
from schedmate.schedulers.live.actions import Diagnose, Drain, Kind
from schedmate.schedulers.live.apply import Result, carry_out, take_back
from schedmate.schedulers.live.executor import ExecutorError, RefusedError
from schedmate.schedulers.live.plans import Plan
from schedmate.schedulers.live.record import Record
from schedmate.schedulers.live.statuses import PlanStatus

CASE = "case"
"""The observation that keeps the case that a plan is about."""
STEPS: dict[Kind, Step] = {
    "diagnose": "diagnose",
    "drain": "isolate",
    "resume": "isolate",
    "requeue": "restart",
    "hold": "restart",
    "release": "restart",
    "notify": "notify",
}
"""Which permission of `automatic` an action of recovery needs."""


class _KeptCase(BaseModel):
    model_config = ConfigDict(extra="forbid")

    job: str
    run: int
    diagnosis: Diagnosis
    nodes: tuple[str, ...] = ()
    confirmed_by: str | None = None
    resume: str | None = None


class Applied(NamedTuple):
    """Result of carrying out a plan, and the plan that follows from it, if any."""

    result: Result
    next: PlanStatus | None = None
    why: str = ""


class Recovery:
    """Recovery of one cluster. `executor` may be None if nothing is carried out."""

    def __init__(
        self,
        configuration: Configuration,
        record: Record,
        executor: HasInventory | None,
        *,
        by: str,
    ) -> None:
        self.configuration, self.record, self.executor, self.by = (
            *(configuration, record, executor),
            by,
        )

    def plan(self, case: Case) -> tuple[Proposal, PlanStatus | None]:
        """Propose the next plan for a case and store it; the same case returns the same plan, in
        its present state.

        Approved at once if `automatic` covers all of it.
        """
        with self.record.writing():
            proposal = propose(case, self.configuration, self.record)
            if proposal.plan is None:
                return proposal, None
            status = self.record.propose(proposal.plan, by=self.by)
            if not any(self.record.entries(kind=CASE, about=status.plan.id)):
                kept = _KeptCase(**case._asdict()).model_dump(mode="json")
                self.record.observe(CASE, status.plan.id, by=self.by, data=kept)
            if status.state == "proposed" and self.is_automatic(status.plan):
                note = "automatic: " + ", ".join(sorted(self.configuration.automatic))
                status = self.record.approve(status.plan.id, by="recovery.yaml", note=note)
        return proposal, status

    def preview(self, case: Case) -> tuple[Proposal, PlanStatus | None]:
        """The plan that `plan` would propose, without storing it."""
        proposal = propose(case, self.configuration, self.record)
        if proposal.plan is None:
            return proposal, None
        now = self.record.now()
        return proposal, PlanStatus(proposal.plan, "proposed", now, self.by, "", 0)

    def is_automatic(self, plan: Plan) -> bool:
        """Whether recovery.yaml lets all of a plan happen without a person."""
        return all(STEPS.get(one.kind) in self.configuration.automatic for one in plan.actions)

    def guards(self, plan: Plan) -> Guards:
        """The guards for a plan, with the present state of the cluster.

        Raises `ExecutorError` if a node is to be isolated and the nodes cannot be determined.
        """
        if not any(isinstance(one, Drain) for one in plan.actions):
            return Guards(self.configuration, Inventory())
        if self.executor is None:
            return Guards(self.configuration, Inventory())
        seen, _ = self.record.head()
        return Guards(self.configuration, replace(self.executor.inventory(), seen=seen))

    def forbidden(self, status: PlanStatus) -> list[RefusedError]:
        """The actions of a plan that the guards would forbid now, in its order."""
        guards = self.guards(status.plan)
        found = []
        for action in status.plan.actions:
            try:
                guards.check(self.record, status, action, undo=False)
            except RefusedError as refusal:
                found.append(refusal)
        return found

    def apply(self, id_: str, *, retry: bool = False) -> Applied:
        """Carry out an approved plan, or the rest of it. See `apply.carry_out`."""
        status = self.record.plan(id_)
        executor = self._executor()
        result = carry_out(
            *(self.record, id_, executor, self.guards(status.plan)), by=self.by, retry=retry
        )
        tested = any(isinstance(one, Diagnose) for one in result.status.plan.actions)
        if result.stopped is None and tested:
            case = self.case(id_)
            if case is not None:
                proposal, following = self.plan(case)
                return Applied(result, following, proposal.why)
        return Applied(result)

    def undo(self, id_: str) -> Result:
        """Undo the steps of a plan."""
        executor = self._executor()
        guards = Guards(self.configuration, Inventory())
        return take_back(self.record, id_, executor, guards, by=self.by)

    def case(self, id_: str) -> Case | None:
        """The case that a plan is about, as it was when the plan was proposed."""
        for one in self.record.entries(kind=CASE, about=id_):
            return Case(**dict(_KeptCase.model_validate(one.body)))
        return None

    def _executor(self) -> Diagnosing:
        if self.executor is None:
            raise ExecutorError(
                "plans cannot be carried out here: recovery.yaml names no commands, and no "
                "agent of a scheduler was started."
            )
        # an executor of recovery runs diagnostics too
        return Diagnosing(self.executor, self.executor, self.configuration)  # type: ignore[arg-type]
