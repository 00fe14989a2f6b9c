"""From a diagnosis to the next plan: what recovery would do about one failed run of a job.

The order is fixed: confirm (by a diagnostic, if there is only text), isolate (only what is
confirmed), restart elsewhere from the last checkpoint, notify people. Diagnostics are a plan of
their own; once it is applied, asking again returns the plan that follows from their results. The
same case returns the same plan, by its id, so that nothing is done twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from schedmate.hosts import host_name, listed
from schedmate.jobs import Diagnosis, EvidenceLine
from schedmate.recovery.configuration import Configuration, Rule, ruled_by_rules
from schedmate.recovery.guards import ALLOWED_TEXT
from schedmate.schedulers.live.actions import Action, Diagnose, Drain, Notify, Requeue
from schedmate.schedulers.live.plans import Plan, Reason, mark, plan_id
from schedmate.schedulers.live.record import Record
from schedmate.schedulers.live.statuses import PlanStatus, StateError

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
        faulty = tuple(node for node, said in tested.items() if said.get("state") == "faulty")
        if faulty:
            by = f"{self._names()}: {tested[faulty[0]].get('detail', '')}"
            return self._act(faulty, by, suspect, f"Confirmed by {by}.")
        if tested:
            said = next(iter(tested.values())).get("detail", "")
            return self._act(
                (), None, suspect, f"No diagnostic found a faulty node ({said}); none is isolated."
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
            return listed(named, self.case.nodes)
        # without the scheduler's word for it, only the node's own
        return named if self.diagnosis.origin in NODE_SIDE else None

    def _confirmed_by(self) -> str | None:
        plan, diagnosis = self.diagnosis.plan, self.diagnosis
        if self.case.confirmed_by:
            return f"a person: {self.case.confirmed_by}"
        if plan is not None and plan.isolation == "confirmed" and diagnosis.origin in NODE_SIDE:
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
        found: dict[str, Mapping[str, Any]] = {}
        assert self.record is not None
        for attempt in self.record.attempts(plan=status.plan.id, kind="diagnose"):
            for node, said in attempt.data.get("nodes", {}).items():
                # one that is faulty in any test is faulty
                if found.get(node, {}).get("state") != "faulty":
                    found[node] = said
        return found

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
            Drain(node=node, mark=mark(self.diagnosis.error_name, id_)) for node in isolate
        ]
        # keeping one job away from a suspect node isolates nothing
        avoid = tuple(dict.fromkeys((*isolate, *([suspect] if suspect else ()))))
        if self._restarts():
            elsewhere = avoid if self._elsewhere() or isolate else ()
            actions.append(Requeue(job=self.case.job, run=self.case.run, exclude=elsewhere))
        actions += self._notices(isolate)
        if not actions:
            return Proposal(None, f"{why} There is nothing to notify and nothing to restart.")
        parts = []
        if isolate:
            parts.append(f"isolate {', '.join(isolate)}")
        if self._restarts():
            parts.append(f"restart job {self.case.job}{self._how()}")
        if not parts:
            parts.append("tell the " + " and the ".join(dict.fromkeys(self._recipients(isolate))))
        summary = f"{self._headline()}: {', then '.join(parts)}. {why}"
        return Proposal(self._plan(key, summary, confirmed, actions, isolate or avoid), why)

    def _restarts(self) -> bool:
        if self.rule.restart != "as diagnosed":
            return self.rule.restart == "yes"
        plan = self.diagnosis.plan
        return plan is not None and plan.restart != "no"

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
        told = [plan.notify] if plan is not None and plan.notify != "nobody" else []
        if isolate and "operator" not in told:
            told.append("operator")
        return [str(one) for one in told]

    def _notices(self, isolate: tuple[str, ...]) -> list[Action]:
        diagnosis = self.diagnosis
        summary = diagnosis.plan.summary if diagnosis.plan is not None else diagnosis.reason
        return [
            Notify(
                to="operator" if to == "operator" else "user",
                job=self.case.job,
                text=f"job {self.case.job}: {self._headline()}. {summary}",
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


def _evidence(diagnosis: Diagnosis) -> tuple[EvidenceLine, ...]:
    decided = [one for one in diagnosis.evidence if one.note == "decided"]
    rest = [one for one in diagnosis.evidence if one.note != "decided"]
    return tuple([*decided, *rest][:QUOTED])
