"""What follows from a verdict: confirm first, isolate only what is confirmed, restart elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedmate.cluster.adapter import Answer, Finding, Unguarded
from schedmate.cluster.record import Plan, Record, carry_out
from schedmate.cluster.recovery.configuration import Configuration
from schedmate.cluster.recovery.guards import ALLOWED_TEXT
from schedmate.cluster.recovery.recover import Case, propose
from schedmate.cluster.recovery.recover import Recovery as Service
from schedmate.jobs import Diagnosis, Recovery
from schedmate.logparse.failure import of_state
from schedmate.logparse.failure.opinion import reading_of
from schedmate.logparse.failure.plans import limit_plan, plan_for

NODES = ("gpu-1", "gpu-2", "gpu-3")
GPU = {"gpu": {"command": ["test"], "reads": "dcgm"}}


def diagnosis(**parts: object) -> Diagnosis:
    plan = Recovery(
        id="ecc",
        summary="Drain it.",
        isolation="needs confirmation",
        restart="elsewhere from checkpoint",
        notify="operator",
    )
    values = {
        "error_type": "infrastructure",
        "error_name": "ECC Error",
        "faulty_component": "gpu",
        "node": "gpu-2",
        "job_nodes": list(NODES),
        "plan": plan,
    }
    return Diagnosis.model_validate(values | parts)


def confirmed(**parts: object) -> Diagnosis:
    plan = diagnosis().plan
    assert plan is not None
    sure = plan.model_copy(update={"isolation": "confirmed"})
    return diagnosis(plan=sure, origin="node_log", file="dmesg", line=3, **parts)


def configured(**parts: object) -> Configuration:
    return Configuration.model_validate({"diagnostics": GPU} | parts)


def case(found: Diagnosis, **parts: object) -> Case:
    return Case(**({"job": "17", "run": 0, "diagnosis": found, "nodes": NODES} | parts))  # type: ignore[arg-type]


def kinds(plan: Plan | None) -> list[str]:
    assert plan is not None
    return [one.kind for one in plan.actions]


def test_text_is_tested_on_the_node_that_it_names() -> None:
    plan = propose(case(diagnosis()), configured(), None).plan
    assert kinds(plan) == ["diagnose"]
    assert plan is not None
    assert plan.actions[0].target == "node gpu-2"


def test_the_nodes_own_log_isolates_at_once() -> None:
    plan = propose(case(confirmed()), configured(), None).plan
    assert kinds(plan) == ["drain", "requeue", "notify"]
    assert plan is not None
    assert plan.isolates == ("gpu-2",)
    assert plan.reason.confirmed_by == "the node's own log, dmesg:3"


def test_without_a_diagnostic_text_only_keeps_the_job_away() -> None:
    plan = propose(case(diagnosis()), configured(diagnostics={}), None).plan
    assert kinds(plan) == ["requeue", "notify"]
    assert plan is not None
    assert plan.actions[0].in_words == "requeue job 17 without gpu-2"
    assert plan.reason.confirmed_by is None


def test_a_rule_may_trust_text() -> None:
    trusting = configured(rules=[{"isolate": "text"}])
    plan = propose(case(diagnosis()), trusting, None).plan
    assert kinds(plan)[0] == "drain"
    assert plan is not None
    assert plan.reason.confirmed_by == ALLOWED_TEXT


@pytest.mark.parametrize("node", ["victim-1", "gpu-[1-3]", "ALL", "-f", "localhost", None])
def test_a_log_can_accuse_no_node_but_those_of_its_job(node: str | None) -> None:
    trusting = configured(rules=[{"isolate": "text"}])
    for found in (diagnosis(node=node), confirmed(node=node)):
        plan = propose(case(found), trusting, None).plan
        assert plan is not None
        assert plan.isolates == ()
        assert not any(node in one.in_words for one in plan.actions[:1] if node)
    # without the scheduler's list not even its own
    alone = propose(case(diagnosis(), nodes=()), trusting, None).plan
    assert alone is not None
    assert alone.isolates == ()


def test_a_verdict_that_restarts_nothing_tells_the_user() -> None:
    plan = Recovery(id="x", summary="Fix line 3.", restart="no", notify="user")
    found = diagnosis(error_type="script", error_name="Key Error", node=None, plan=plan)
    made = propose(case(found), configured(), None).plan
    assert kinds(made) == ["notify"]
    silent = found.model_copy(update={"plan": plan.model_copy(update={"notify": "nobody"})})
    assert propose(case(silent), configured(), None).plan is None


def test_a_job_that_did_not_fail() -> None:
    assert propose(case(Diagnosis(error_type="none")), configured(), None).plan is None


@pytest.mark.parametrize("name", ["Time Limit", "Preempted"])
def test_what_ended_a_job_without_a_failure_restarts_nothing(name: str) -> None:
    plan = Recovery(id="x", summary="s", restart="from checkpoint", notify="user")
    found = Diagnosis(error_type="none", error_name=name, plan=plan)
    assert kinds(propose(case(found), configured(), None).plan) == ["notify"]
    allowed = configured(rules=[{"isolate": "never"}])
    assert kinds(propose(case(found), allowed, None).plan) == ["requeue", "notify"]


def test_a_rule_decides_about_the_restart() -> None:
    never = configured(rules=[{"isolate": "never", "restart": "no"}])
    assert kinds(propose(case(confirmed()), never, None).plan) == ["notify"]


def test_the_same_run_gives_the_same_plan_and_the_next_another(tmp_path: Path) -> None:
    with Record(tmp_path / "r.db") as record:
        service = Service(configured(), record, None, by="agent")
        _, first = service.plan(case(confirmed()))
        _, again = service.plan(case(confirmed(reason="read again")))
        _, later = service.plan(case(confirmed(), run=1))
        assert first is not None
        assert again is not None
        assert later is not None
        assert first.plan == again.plan
        assert later.plan.id != first.plan.id
        assert service.case(first.plan.id) == case(confirmed())
        assert len(record.plans()) == 2


@pytest.mark.parametrize(
    ("allowed", "state"),
    [
        ([], "proposed"),
        (["isolate", "restart"], "proposed"),
        (["isolate", "restart", "notify"], "approved"),
    ],
)
def test_only_a_plan_that_is_allowed_as_a_whole_needs_no_approval(
    tmp_path: Path, allowed: list[str], state: str
) -> None:
    with Record(tmp_path / "r.db") as record:
        service = Service(configured(automatic=allowed), record, None, by="agent")
        _, status = service.plan(case(confirmed()))
        assert status is not None
        assert (status.state, status.by) == (
            state,
            "recovery.yaml" if state != "proposed" else "agent",
        )


NAMES = st.none() | st.sampled_from([*NODES, "victim"]) | st.text(max_size=12)


@given(
    node=NAMES,
    origin=st.sampled_from(["job_log", "node_log", "exporter", "scheduler"]),
    isolation=st.sampled_from(["none", "needs confirmation", "confirmed"]),
    kind=st.sampled_from(["infrastructure", "framework", "script", "unknown"]),
    component=st.none() | st.sampled_from(["gpu", "nvlink", "network", "node", "storage"]),
    diagnostics=st.booleans(),
    nodes=st.sampled_from([(), NODES]),
)
def test_nothing_that_a_job_can_print_isolates_a_node(
    node: str | None,
    origin: str,
    isolation: str,
    kind: str,
    component: str | None,
    diagnostics: bool,
    nodes: tuple[str, ...],
) -> None:
    plan = Recovery(id="x", summary="s", isolation=isolation, restart="elsewhere", notify="user")  # type: ignore[arg-type]
    found = diagnosis(
        node=node, origin=origin, plan=plan, error_type=kind, faulty_component=component
    )
    configuration = configured() if diagnostics else configured(diagnostics={})
    made = propose(case(found, nodes=nodes), configuration, None).plan
    if made is None or not made.isolates:
        return
    assert origin != "job_log"
    assert isolation == "confirmed"
    assert kind == "infrastructure"
    assert made.isolates == (node,)
    assert not nodes or node in nodes


KINDS = st.sampled_from(["infrastructure", "framework", "script", "none", "unknown"])
NAMES = st.sampled_from(["ECC Error", "Key Error", "NCCL Timeout", None])
PARTS = st.sampled_from(["gpu", "nvlink", "network", "node", "storage", None])
RULES = st.lists(
    st.builds(
        lambda when, isolate, restart, tested: {
            "when": when,
            "isolate": isolate,
            "restart": restart,
            "diagnose": ["gpu"] if tested else [],
        },
        st.one_of(
            st.just({}),
            KINDS.map(lambda one: {"type": [one]}),
            st.sampled_from(["ECC Error", "Key Error"]).map(lambda one: {"name": [one]}),
            st.sampled_from(["gpu", "node"]).map(lambda one: {"component": [one]}),
        ),
        st.sampled_from(["never", "confirmed", "text"]),
        st.sampled_from(["as diagnosed", "yes", "no"]),
        st.booleans(),
    ),
    max_size=4,
)


def read(kind: str, name: str | None, part: str | None) -> Diagnosis:
    """A verdict with the plan that the table gives it."""
    found = Diagnosis.model_validate(
        {
            "error_type": kind,
            "error_name": name,
            "faulty_component": part,
            "node": "gpu-2",
            "job_nodes": list(NODES),
            "file": "job.out",
            "line": 3,
        }
    )
    return found.model_copy(update={"plan": plan_for(found)})


@given(st.tuples(KINDS, NAMES, PARTS), st.tuples(KINDS, NAMES, PARTS), RULES)
def test_what_a_model_reads_never_gives_a_plan_more_rights(
    ruled: tuple[str, str | None, str | None],
    said: tuple[str, str | None, str | None],
    rules: list[dict[str, object]],
) -> None:
    configuration = configured(rules=rules)
    before = read(*ruled)
    after = read(*said).model_copy(update={"source": "model", "by_rules": reading_of(before)})
    assert before.plan is not None
    plan_of_the_model = limit_plan(plan_for(after), before.plan)
    after = after.model_copy(update={"plan": plan_of_the_model})
    by_rules, by_model = configuration.rule_for(before), configuration.rule_for(after)
    order = ["never", "confirmed", "text"]
    assert order.index(by_model.isolate) <= order.index(by_rules.isolate)
    assert set(by_model.diagnose) <= set(by_rules.diagnose)
    plan = propose(case(after), configuration, None).plan
    done = kinds(plan) if plan is not None else []
    restarts = by_rules.restart == "yes" or (
        by_rules.restart == "as diagnosed" and before.plan.restart != "no"
    )
    assert "requeue" not in done or restarts
    assert "drain" not in done or by_rules.isolate == "text"
    if plan is not None:
        assert plan.reason.verdict == before.error_name  # by which restarts are budgeted


def test_a_models_verdict_of_which_nothing_says_what_rules_said_has_no_rights() -> None:
    trusting = configured(rules=[{"isolate": "text", "restart": "yes"}])
    plan = propose(case(diagnosis(source="model")), trusting, None).plan
    assert kinds(plan) == ["notify"]
    assert plan is not None
    assert "as a language model reads it" in plan.reason.summary


# -- the scheduler's word, causes that last, failures that come again


def lost(**parts: object) -> Diagnosis:
    found = of_state(None, "NODE_FAIL", job="17", nodes=NODES, failed_nodes=["gpu-2"])
    assert found is not None
    return found.model_copy(update=parts)


def full_disk() -> Diagnosis:
    found = diagnosis(
        error_name="S3/Storage Error",
        faulty_component="storage",
        rule="errno-28",
        node=None,
        plan=None,
    )
    return found.model_copy(update={"plan": plan_for(found)})


def restarted(record: Record, plan: Plan) -> None:
    """As if an agent had carried the plan out."""
    record.propose(plan, by="agent")
    record.approve(plan.id, by="alice")
    result = carry_out(record, plan.id, Obliging(), Unguarded(), by="agent")
    assert result.stopped is None


class Obliging:
    """A cluster on which everything works."""

    name = "obliging"

    def probe(self, action: object) -> Finding:
        return Finding("ready")

    def act(self, action: object, *, key: str, timeout_s: float) -> Answer:
        return Answer("done")


def test_the_schedulers_word_for_a_lost_node_confirms_it() -> None:
    plan = propose(case(lost()), configured(), None).plan
    assert kinds(plan) == ["drain", "requeue", "notify"]
    assert plan is not None
    assert plan.isolates == ("gpu-2",)
    assert plan.reason.confirmed_by is not None
    assert plan.reason.confirmed_by.startswith("the scheduler: job 17 ended NODE_FAIL")


def test_a_cause_that_lasts_is_awaited_by_a_person(tmp_path: Path) -> None:
    automatic = configured(automatic=["restart", "notify"])
    with Record(tmp_path / "r.db") as record:
        service = Service(automatic, record, None, by="agent")
        _, waits = service.plan(case(full_disk()))
        assert waits is not None
        assert waits.state == "proposed"
        assert kinds(waits.plan) == ["requeue", "notify"]
        assert "Approve it once this is so: the file system has free space" in (
            waits.plan.reason.summary
        )
        passing = diagnosis(node=None, faulty_component=None)
        _, goes = service.plan(case(passing, job="18"))
        assert goes is not None
        assert goes.state == "approved"


def test_what_failed_again_in_the_same_way_is_not_restarted_again(tmp_path: Path) -> None:
    rules = configured(diagnostics={})
    with Record(tmp_path / "r.db") as record:
        first = propose(case(full_disk()), rules, record).plan
        assert first is not None
        restarted(record, first)
        again = propose(case(full_disk(), run=1), rules, record).plan
        assert kinds(again) == ["notify"]
        assert again is not None
        assert f"restarted after the same failure (plan {first.id})" in again.reason.summary
        # another failure, another job
        other = diagnosis(error_name="Network Error", faulty_component="network", node=None)
        assert "requeue" in kinds(propose(case(other, run=1), rules, record).plan)
        assert "requeue" in kinds(propose(case(full_disk(), job="18", run=1), rules, record).plan)
    with Record(tmp_path / "elsewhere.db") as record:
        first = propose(case(diagnosis(node="gpu-1")), rules, record).plan
        assert first is not None
        restarted(record, first)
        # on another node the same failure may be that node's
        elsewhere = propose(case(diagnosis(node="gpu-2"), run=1), rules, record).plan
        assert "requeue" in kinds(elsewhere)
        same = propose(case(diagnosis(node="gpu-1"), run=1), rules, record).plan
        assert kinds(same) == ["notify"]
