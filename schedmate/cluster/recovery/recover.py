"""Recovers failed runs of jobs: makes the next plan, keeps it, and carries out approved ones.

    recovery = Recovery(configuration, record, executor, by="agent")
    proposal, status = recovery.plan(case)      # proposed; approved where recovery.yaml says so
    result = recovery.apply(status.plan.id)

The order of steps is fixed: confirm (by a diagnostic, if there is only text), isolate (only what is
confirmed), restart elsewhere from the last checkpoint, notify people. `ClusterRecovery` is the same
for the reconcile loop, through a cluster's adapter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import BaseModel, ConfigDict

from schedmate.base.errors import SettingsError
from schedmate.base.inputs import host_name, matching_host
from schedmate.cluster.actions import Action, Diagnose, Drain, Kind, Notify, Requeue
from schedmate.cluster.adapter import (
    Answer,
    ClusterAdapter,
    ExecutorError,
    Finding,
    Ran,
    RefusedError,
    Runner,
)
from schedmate.cluster.bounds import Bounds
from schedmate.cluster.record import (
    ISOLATION_ENDED,
    Plan,
    PlanStatus,
    Reason,
    Record,
    Result,
    StateError,
    carry_out,
    drain_mark,
    isolations,
    plan_id,
    take_back,
)
from schedmate.cluster.recovery.configuration import (
    Commands,
    Configuration,
    Rule,
    Step,
    load_configuration,
    ruled_by_rules,
)
from schedmate.cluster.recovery.diagnosing import Diagnosing
from schedmate.cluster.recovery.guards import ALLOWED_TEXT, Guards, HasInventory, Inventory
from schedmate.cluster.recovery.local import LocalExecutor
from schedmate.jobs import Diagnosis, EvidenceLine

if TYPE_CHECKING:
    from schedmate.cluster.ended import Failure

NODE_SIDE = frozenset({"node_log", "exporter", "scheduler"})
"""Origins of evidence that a job cannot write."""
QUOTED = 8
"""Lines of evidence that a plan carries."""


class Case(NamedTuple):
    """One run of a job that failed."""

    job: str
    run: int
    """Restarts of the job before this run."""
    diagnosis: Diagnosis
    nodes: tuple[str, ...] = ()
    """The nodes of the run, by the scheduler."""
    confirmed_by: str | None = None
    """Result of a person's inspection of the node, if there was one."""
    resume: str | None = None
    """How the job resumes from its last checkpoint, in words for the reader of the plan."""


class Proposal(NamedTuple):
    """The next plan for a case, or None and why there is nothing to do."""

    plan: Plan | None
    why: str


def propose(case: Case, configuration: Configuration, record: Record | None) -> Proposal:
    """The next plan for a case.

    `record` has the results of earlier diagnostics; None: none. Nothing is written:
    `record.propose(plan)` does that.
    """
    diagnosis = case.diagnosis
    if diagnosis.error_type == "none" and (
        diagnosis.plan is None or diagnosis.plan.restart == "no"
    ):
        return Proposal(None, "The job did not fail; there is nothing to recover.")
    return _Proposing(case, configuration, record).next()


class _Proposing:
    def __init__(self, case: Case, configuration: Configuration, record: Record | None) -> None:
        self.case, self.configuration, self.record = case, configuration, record
        self.diagnosis = case.diagnosis
        self.rule: Rule = configuration.rule_for(case.diagnosis)
        self.key = f"job {case.job} run {case.run}"

    def next(self) -> Proposal:
        confirmed = self._confirmed_by()
        suspect = self._suspect()
        if self.rule.isolate == "never":
            return self._act((), None, suspect, "The rules isolate nothing for this verdict.")
        if confirmed and suspect:
            return self._act((suspect,), confirmed, suspect, f"Confirmed by {confirmed}.")
        if self.rule.isolate == "text" and suspect:
            return self._act((suspect,), ALLOWED_TEXT, suspect, "On its text alone.")
        tested = self._tested()
        if tested is None:
            nodes = (suspect,) if suspect else self.case.nodes
            return self._diagnose(nodes, suspect)
        faulty = tuple(node for node, health in tested.items() if health.get("state") == "faulty")
        if faulty:
            by = f"{self._names()}: {tested[faulty[0]].get('detail', '')}"
            return self._act(faulty, by, suspect, f"Confirmed by {by}.")
        if tested:
            health = next(iter(tested.values())).get("detail", "")
            return self._act(
                (),
                None,
                suspect,
                f"No diagnostic found a faulty node ({health}); none is isolated.",
            )
        return self._act(
            (),
            None,
            suspect,
            "Only the job's log blames it, and no diagnostic is configured to confirm it.",
        )

    # -- evidence --------------------------------------------------------

    def _suspect(self) -> str | None:
        """The node that the verdict names, if it is one of the job's."""
        named = host_name(self.diagnosis.node)
        if named is None:
            # a person who inspected the only node inspected this one
            looked = self.case.confirmed_by is not None and len(self.case.nodes) == 1
            return self.case.nodes[0] if looked else None
        if self.case.nodes:
            return matching_host(named, self.case.nodes)
        # without the scheduler's word for it, only the node's own
        return named if self.diagnosis.origin in NODE_SIDE else None

    def _confirmed_by(self) -> str | None:
        plan, diagnosis = self.diagnosis.plan, self.diagnosis
        if self.case.confirmed_by:
            return f"a person: {self.case.confirmed_by}"
        if plan is not None and plan.isolation == "confirmed" and diagnosis.origin in NODE_SIDE:
            if diagnosis.origin == "scheduler":
                said = [one.text for one in diagnosis.evidence if one.note == "decided"]
                return f"the scheduler: {said[0]}" if said else "the scheduler"
            return f"the node's own log, {diagnosis.file}:{diagnosis.line}"
        return None

    def _names(self) -> str:
        return ", ".join(self.rule.diagnose)

    def _tested(self) -> Mapping[str, Mapping[str, Any]] | None:
        """Results of the diagnostics for each node; None if they still have to be run, empty if
        there are none or they cannot be run."""
        if not self.rule.diagnose or not (self._suspect() or self.case.nodes):
            return {}
        status = self._status("diagnose")
        if status is None or status.state in ("proposed", "approved", "applying"):
            return None
        tested: dict[str, Mapping[str, Any]] = {}
        assert self.record is not None
        for attempt in self.record.attempts(plan=status.plan.id, kind="diagnose"):
            for node, result in attempt.data.get("nodes", {}).items():
                # one that is faulty in any test is faulty
                if tested.get(node, {}).get("state") != "faulty":
                    tested[node] = result
        return tested

    def _status(self, what: str) -> PlanStatus | None:
        if self.record is None:
            return None
        try:
            return self.record.plan(plan_id(self.configuration.cluster, f"{self.key}: {what}"))
        except StateError:
            return None

    # -- plans -----------------------------------------------------------

    def _diagnose(self, nodes: Sequence[str], suspect: str | None) -> Proposal:
        actions = []
        for name in self.rule.diagnose:
            diagnostic = self.configuration.diagnostics[name]
            # a search needs more than one node: all of the job's take part
            among = tuple(self.case.nodes or nodes) if diagnostic.how == "halving" else tuple(nodes)
            actions.append(
                Diagnose(
                    diagnostic=name, nodes=among, how=diagnostic.how, timeout_s=diagnostic.timeout
                )
            )
        accused = f"node {suspect}" if suspect else "one of its nodes"
        summary = (
            f"{self._headline()}: only text accuses {accused}; run {self._names()} to confirm it."
        )
        plan = self._plan("diagnose", summary, None, actions)
        return Proposal(plan, "Nothing is isolated before a test of the node has failed.")

    def _act(
        self, isolate: tuple[str, ...], confirmed: str | None, suspect: str | None, why: str
    ) -> Proposal:
        key = "recover"
        id_ = plan_id(self.configuration.cluster, f"{self.key}: {key}")
        actions: list[Action] = [
            Drain(node=node, mark=drain_mark(self.diagnosis.error_name, id_)) for node in isolate
        ]
        # keeping one job away from a suspect node isolates nothing
        avoid = tuple(dict.fromkeys((*isolate, *([suspect] if suspect else ()))))
        elsewhere = avoid if self._elsewhere() or isolate else ()
        earlier = self._same_restart(elsewhere) if self._restarts() else None
        restarts = self._restarts() and earlier is None
        if restarts:
            actions.append(Requeue(job=self.case.job, run=self.case.run, exclude=elsewhere))
        if earlier is not None:
            why += f" {earlier}"
        actions += self._notices(isolate, earlier or "")
        if not actions:
            return Proposal(None, f"{why} There is nothing to notify and nothing to restart.")
        parts = []
        if isolate:
            parts.append(f"isolate {', '.join(isolate)}")
        if restarts:
            parts.append(f"restart job {self.case.job}{self._how()}")
            if self._awaits():
                why += f" Approve it once this is so: {self._awaits()}."
        if not parts:
            parts.append("tell the " + " and the ".join(dict.fromkeys(self._recipients(isolate))))
        summary = f"{self._headline()}: {', then '.join(parts)}. {why}"
        return Proposal(self._plan(key, summary, confirmed, actions, isolate or avoid), why)

    def _restarts(self) -> bool:
        if self.rule.restart != "as diagnosed":
            return self.rule.restart == "yes"
        plan = self.diagnosis.plan
        return plan is not None and plan.restart != "no"

    def _awaits(self) -> str | None:
        return awaited(self.diagnosis)

    def _same_restart(self, exclude: tuple[str, ...]) -> str | None:
        """Why a restart would end as the one before: the job was restarted after the same failure,
        and no node is avoided now that was not avoided then."""
        if self.record is None:
            return None
        ruled, now = ruled_by_rules(self.diagnosis), self.record.now()
        for attempt in reversed(self.record.attempts(kind="requeue", undo=False)):
            action = attempt.action
            if not isinstance(action, Requeue) or attempt.outcome not in ("done", None):
                continue
            if action.job != self.case.job or action.run >= self.case.run:
                continue
            if attempt.at.age(now) > self.configuration.restarts.within:
                return None
            status = self.record.plan(attempt.plan)
            same = (status.plan.reason.verdict, status.plan.reason.rule)
            if same != (ruled.error_name, ruled.rule) or set(exclude) - set(action.exclude):
                return None
            return (
                f"The job was restarted after the same failure (plan {attempt.plan}), and failed "
                "again: it is not restarted until a person has changed something."
            )
        return None

    def _elsewhere(self) -> bool:
        plan = self.diagnosis.plan
        return plan is not None and plan.restart.startswith("elsewhere")

    def _how(self) -> str:
        if self.case.resume:
            return f" ({self.case.resume})"
        saved = self.diagnosis.checkpoint
        if saved is None:
            return " (from the beginning, unless it finds its checkpoint by itself)"
        return f" (its log says that step {saved.step} was saved at {saved.path})"

    def _recipients(self, isolate: tuple[str, ...]) -> list[str]:
        plan = self.diagnosis.plan
        recipients = [plan.notify] if plan is not None and plan.notify != "nobody" else []
        if isolate and "operator" not in recipients:
            recipients.append("operator")
        return [str(one) for one in recipients]

    def _notices(self, isolate: tuple[str, ...], more: str) -> list[Action]:
        diagnosis = self.diagnosis
        summary = diagnosis.plan.summary if diagnosis.plan is not None else diagnosis.reason
        return [
            Notify(
                to="operator" if to == "operator" else "user",
                job=self.case.job,
                text=" ".join(f"job {self.case.job}: {self._headline()}. {more} {summary}".split()),
            )
            for to in self._recipients(isolate)
        ]

    def _headline(self) -> str:
        diagnosis = self.diagnosis
        what = diagnosis.error_name or diagnosis.error_type
        by = ", as a language model reads it" if diagnosis.source == "model" else ""
        return f"{what} ({diagnosis.faulty_component or diagnosis.error_type}{by})"

    def _plan(
        self,
        what: str,
        summary: str,
        confirmed: str | None,
        actions: Sequence[Action],
        nodes: Sequence[str] = (),
    ) -> Plan:
        diagnosis, configuration = self.diagnosis, self.configuration
        ruled = ruled_by_rules(diagnosis)  # budgets are by it, so that a model widens none
        created = self.record.now().time if self.record is not None else 0.0
        return Plan.of(
            "recovery",
            cluster=configuration.cluster,
            key=f"{self.key}: {what}",
            created=created,
            expires=created + configuration.expires,
            reason=Reason(
                summary=summary,
                verdict=ruled.error_name,
                error_type=ruled.error_type,
                component=ruled.faulty_component,
                rule=ruled.rule,
                job=self.case.job,
                run=self.case.run,
                nodes=tuple(nodes),
                confirmed_by=confirmed,
                evidence=_evidence(diagnosis),
            ),
            actions=actions,
        )


def awaited(diagnosis: Diagnosis) -> str | None:
    """What must be so before a restart can help; None: nothing, the restart itself changes what
    failed, or the failure was a passing one."""
    return diagnosis.plan.awaits if diagnosis.plan is not None else None


def _evidence(diagnosis: Diagnosis) -> tuple[EvidenceLine, ...]:
    decided = [one for one in diagnosis.evidence if one.note == "decided"]
    rest = [one for one in diagnosis.evidence if one.note != "decided"]
    return tuple([*decided, *rest][:QUOTED])


# Recovery as commands and agents use it: cases in, plans kept, approved plans carried out.


CASE_KIND = "case"
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
    """Recovery of one cluster. `executor` may be None if nothing is carried out. ::

    recovery = Recovery(configuration, record, executor, by="agent")
    proposal, status = recovery.plan(case)  # proposed; approved where recovery.yaml says so
    result = recovery.apply(status.plan.id)  # past the guards
    result.next  # what follows from a diagnostic that was run
    """

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
            if not any(self.record.entries(kind=CASE_KIND, about=status.plan.id)):
                stored = _KeptCase(**case._asdict()).model_dump(mode="json")
                self.record.observe(CASE_KIND, status.plan.id, by=self.by, data=stored)
            waits = status.plan.restarts and awaited(case.diagnosis) is not None
            if status.state == "proposed" and not waits and self.is_automatic(status.plan):
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
        refusals = []
        for action in status.plan.actions:
            try:
                guards.check(self.record, status, action, undo=False)
            except RefusedError as refusal:
                refusals.append(refusal)
        return refusals

    def apply(self, id_: str, *, retry: bool = False) -> Applied:
        """Carry out an approved plan, or the rest of it. See `apply.carry_out`."""
        self.record.ensure_proven(id_)
        status = self.record.plan(id_)
        executor = self._executor()
        result = carry_out(
            *(self.record, id_, executor, self.guards(status.plan)), by=self.by, retry=retry
        )
        if result.stopped == "refused":
            self._alarm(result, executor)
        tested = any(isinstance(one, Diagnose) for one in result.status.plan.actions)
        if result.stopped is None and tested:
            case = self.case(id_)
            if case is not None:
                proposal, following = self.plan(case)
                return Applied(result, following, proposal.why)
        return Applied(result)

    def _alarm(self, result: Result, executor: Diagnosing) -> None:
        """Tell the operator that a guard stopped a plan, which no guard forbids."""
        plan = result.status.plan
        alarm = Plan.of(
            "recovery",
            cluster=self.configuration.cluster,
            key=f"alarm for {plan.id}: {result.detail}",
            created=self.record.now().time,
            reason=Reason(summary=f"plan {plan.id} was stopped: {result.detail}"),
            actions=[Notify(to="operator", text=f"plan {plan.id} stopped: {result.detail}")],
        )
        with self.record.writing():
            if self.record.propose(alarm, by=self.by).state == "proposed":
                self.record.approve(alarm.id, by="schedmate", note="it only tells")
        if self.record.plan(alarm.id).state in ("approved", "applying"):
            guards = Guards(self.configuration, Inventory())
            carry_out(self.record, alarm.id, executor, guards, by=self.by)

    def reconcile(self) -> list[str]:
        """End the isolation of nodes in the record that others have returned to service, or taken
        over; the nodes.

        Raises `ExecutorError` when the cluster does not answer.
        """
        ended: list[str] = []
        if self.executor is None:
            return ended
        for node, attempt in isolations(self.record).items():
            finding = self._executor().probe(attempt.action)
            if attempt.outcome != "done" or finding.state == "done":
                continue
            seen = f"somebody has changed it since: {finding.detail or finding.state}"
            data = {"node": node, "drain": attempt.id, "detail": seen}
            self.record.observe(ISOLATION_ENDED, attempt.plan, by=self.by, data=data)
            ended.append(node)
        return ended

    def undo(self, id_: str) -> Result:
        """Undo the steps of a plan."""
        self.record.ensure_proven(id_)
        executor = self._executor()
        guards = Guards(self.configuration, Inventory())
        return take_back(self.record, id_, executor, guards, by=self.by)

    def case(self, id_: str) -> Case | None:
        """The case that a plan is about, as it was when the plan was proposed."""
        for one in self.record.entries(kind=CASE_KIND, about=id_):
            return Case(**dict(_KeptCase.model_validate(one.body)))
        return None

    def _executor(self) -> Diagnosing:
        if self.executor is None:
            raise ExecutorError(
                "no cluster can be reached to carry plans out: name the file of the agent's bounds "
                "with --bounds, or commands in recovery.yaml."
            )
        # an executor of recovery runs diagnostics too
        return Diagnosing(self.executor, self.executor, self.configuration)  # type: ignore[arg-type]


# Recovery through a cluster's adapter: rules and guards of recovery.yaml, actions of the adapter.


def load_recovery(bounds: Bounds, cluster: str) -> Configuration | None:
    """recovery.yaml for a cluster, if the bounds name one.

    Raises `SettingsError` for that of another cluster.
    """
    if bounds.recovery is None:
        return None
    return of_cluster(load_configuration(bounds.recovery), cluster)


def of_cluster(configuration: Configuration, cluster: str) -> Configuration:
    """The configuration for the cluster that answers; raises `SettingsError` for another one's."""
    if configuration.cluster not in ("default", cluster):
        raise SettingsError(
            f"recovery.yaml is for cluster {configuration.cluster!r}, and this is {cluster!r}."
        )
    return configuration.model_copy(update={"cluster": cluster})


class ClusterExecutor:
    """Takes recovery's actions through an adapter, and lists its nodes.

    People are notified by the site's command (`commands: notify`); without one, nobody is, and the
    record and the agent's output say so.
    """

    def __init__(
        self, adapter: ClusterAdapter, configuration: Configuration, runner: Runner
    ) -> None:
        self.name = adapter.name
        self._adapter, self._runner = adapter, runner
        commands = configuration.commands
        self._people = LocalExecutor(commands or Commands())

    def probe(self, action: Action) -> Finding:
        """See `Executor.probe`."""
        by = self._people if isinstance(action, Notify) else self._adapter
        return by.probe(action)

    def act(self, action: Action, *, key: str, timeout_s: float) -> Answer:
        """See `Executor.act`."""
        by = self._people if isinstance(action, Notify) else self._adapter
        return by.act(action, key=key, timeout_s=timeout_s)

    def inventory(self) -> Inventory:
        """See `HasInventory.inventory`."""
        return Inventory.of(
            (one.name, one.queues, None if one.healthy else one.reason or "out of service")
            for one in self._adapter.nodes()
        )

    def run(
        self, command: tuple[str, ...], nodes: tuple[str, ...], *, key: str, timeout_s: float
    ) -> Ran:
        """See `Runner.run`."""
        return self._runner.run(command, nodes, key=key, timeout_s=timeout_s)


class ClusterRecovery:
    """The part of recovery that the loop uses, on a cluster with an adapter."""

    def __init__(
        self,
        adapter: ClusterAdapter,
        configuration: Configuration,
        record: Record | None,
        runner: Runner,
        by: str = "schedmate agent",
    ) -> None:
        self.configuration = configuration
        self._service = None
        if record is not None:
            executor = ClusterExecutor(adapter, configuration, runner)
            self._service = Recovery(configuration, record, executor, by=by)

    def preview(self, failure: Failure) -> Plan | None:
        """The plan that would follow a failure, or None; nothing is stored."""
        return propose(_case_of(failure), self.configuration, None).plan

    def propose(self, failure: Failure) -> PlanStatus | None:
        """Store the plan that follows a failure; `recovery.yaml` can approve it at once."""
        assert self._service is not None
        return self._service.plan(_case_of(failure))[1]

    def apply(self, id_: str) -> Result:
        """Carry out an approved plan past recovery's guards, or the rest of it."""
        assert self._service is not None
        return self._service.apply(id_).result

    def reconcile(self) -> list[str]:
        """See `Recovery.reconcile`."""
        return self._service.reconcile() if self._service is not None else []

    def undo(self, id_: str) -> Result:
        """Undo the steps of a plan, except what somebody else has changed since."""
        assert self._service is not None
        return self._service.undo(id_)


def _case_of(failure: Failure) -> Case:
    run = failure.run
    return Case(
        job=run.job, run=failure.restarts, diagnosis=failure.diagnosis, nodes=tuple(run.nodes)
    )
