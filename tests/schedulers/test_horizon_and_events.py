"""Jobs that run from the start, that never end or are given up; ranks that change while a job
waits; nodes that are drained; executors that refuse.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedmate.base.errors import InputError
from schedmate.schedulers import (
    Borrow,
    Capabilities,
    Cluster,
    Decision,
    Drop,
    Evict,
    Forecast,
    Job,
    Migrate,
    Pack,
    Policy,
    Preempt,
    Start,
    Terms,
    View,
)
from schedmate.schedulers.estimators import remaining_s
from schedmate.schedulers.lanes import Rank
from schedmate.schedulers.model import NEVER, Left, Profile
from schedmate.schedulers.policies.queues import Fifo, Sjf
from schedmate.schedulers.sim.actions import DecisionError
from schedmate.schedulers.sim.engine import Simulation
from schedmate.schedulers.sim.outcome.audit import LawBrokenError, audit, check_laws
from schedmate.schedulers.sim.outcome.metrics import PerJob, summary
from schedmate.schedulers.sim.record import Dropped, Outage
from schedmate.schedulers.sim.workload import Phase, Workload
from schedmate.schedulers.sim.world import Executor, Maintenance
from tests.schedulers.worlds import CHEAP, Scripted, job, of, run


def numbers_of(workload: Workload, cluster: str, outcome):  # type: ignore[no-untyped-def]
    return summary(workload, Cluster.parse(cluster), outcome, PerJob.of(workload, outcome), None)


# The horizon.


def test_what_runs_from_the_start_is_nobody_s_decision() -> None:
    workload = Workload.of([(0.0, 30.0, 2), (0.0, 10.0, 2), (0.0, 10.0, 2)])
    workload.initial = {2: ((0, 3),)}
    outcome = run(workload, Fifo(), "2x2")
    assert outcome.first_start == [0.0, 10.0, 0.0]
    workload.initial[1] = ((0, 2),)
    with pytest.raises(InputError, match="should run from the start on GPUs that are not free"):
        run(workload, Fifo(), "2x2")


def service(*rows: tuple[float, float, int]) -> Workload:
    """An endless job of one GPU, and others."""
    workload = Workload.of([(0.0, NEVER, 1), *rows])
    workload.jobs[0].terms = Terms(endless=True)
    return workload


def test_a_service_never_ends_and_nobody_waits_for_it() -> None:
    workload = service((0.0, 10.0, 1), (0.0, 10.0, 1))
    outcome = run(workload, Fifo(), "1x2")
    assert outcome.end == [NEVER, 10.0, 20.0]
    assert of(outcome, 0) == [(0.0, 20.0, "run")]
    numbers = numbers_of(workload, "1x2", outcome)
    assert (numbers["jobs"], numbers["unended"]) == (2, 1)
    assert numbers["avg_jct_h"] == pytest.approx(15.0 / 3600)
    assert numbers["utilisation"] == 1.0


def test_a_horizon_cuts_off_whatever_goes_on() -> None:
    workload = service((0.0, 10.0, 1), (0.0, 50.0, 1), (40.0, 5.0, 1))
    outcome = run(workload, Fifo(), "1x2", until=30.0)
    assert outcome.end == [NEVER, 10.0, NEVER, NEVER]
    assert of(outcome, 0) == [(0.0, 30.0, "run")]
    assert of(outcome, 2) == [(10.0, 30.0, "run")]
    assert outcome.ledger.horizon == 30.0
    # Of what ends before, nothing is different, and nobody waits for the rest of the time.
    assert run(Workload.of([(0.0, 10.0, 1)]), Fifo(), "1x1", until=30.0).end == [10.0]


def test_an_infinite_duration_is_for_services_alone() -> None:
    with pytest.raises(InputError, match="runs for inf s"):
        run(Workload.of([(0.0, NEVER, 1)]), Fifo(), "1x1")


def test_a_service_has_no_duration() -> None:
    workload = service((0.0, 10.0, 1))
    workload.duration_s[0] = 100.0
    with pytest.raises(InputError, match="job 0 is a service .* infinite duration"):
        run(workload, Fifo(), "1x2")


class Deadlines(Policy):
    """First come, first served; who can no longer be in time is given up."""

    name: ClassVar[str] = "deadlines"

    def decide(self, view: View):  # type: ignore[no-untyped-def]
        late = [
            one
            for one in view.jobs()
            if one.terms and view.now + remaining_s(one, view.now) > one.terms.deadline
        ]
        if late:
            return [Drop(one, "too late") for one in late]
        return [Start(one, found) for one, found in view.pending.walk(view.space.place)]


def test_a_job_that_cannot_be_in_time_is_dropped_and_counted() -> None:
    from schedmate.schedulers.estimators import Table

    workload = Workload.of([(0.0, 10.0, 1), (0.0, 10.0, 1), (5.0, 10.0, 1)])
    for one, deadline in zip(workload.jobs, (12.0, 15.0, 60.0), strict=True):
        one.terms = Terms(deadline=deadline)
    outcome = run(workload, Deadlines(), "1x1", estimator=Table(workload.duration_s))
    assert outcome.end == [10.0, NEVER, 20.0]
    assert outcome.ledger.dropped == {1: Dropped(10.0, "too late")}
    numbers = numbers_of(workload, "1x1", outcome)
    assert numbers["deadlines"] == {"jobs": 3, "met": 2, "missed": 1}
    assert (numbers["unended"], numbers["dropped"], numbers["jobs"]) == (1, 1, 2)


def test_a_running_job_can_be_dropped() -> None:
    workload = Workload.of([(0.0, 50.0, 1), (10.0, 5.0, 1)])
    script = {10.0: lambda view: [Drop(job(view, "0"), "enough")]}
    outcome = run(workload, Scripted(script), "1x1")
    assert outcome.end == [NEVER, 15.0]
    assert of(outcome, 0) == [(0.0, 10.0, "run")]


def test_remaining_time_is_that_of_the_log_where_it_says_one() -> None:
    one = Job("a", 0, 0.0, 1, forecast=Forecast(100.0))
    one.allocation, one.started = ((0, 1),), 10.0
    assert remaining_s(one, 50.0) == 60.0
    one.left = Left(500.0, 40.0)
    assert remaining_s(one, 50.0) == 490.0
    one.allocation = ()
    assert remaining_s(one, 50.0) == 500.0


@pytest.mark.parametrize(
    ("change", "law"),
    [
        (lambda o, w: o.end.__setitem__(1, 10.0), "is given up, and ended"),
        (lambda o, w: o.ledger.dropped.clear(), "never ended and was not dropped"),
        (
            lambda o, w: o.ledger.dropped.__setitem__(1, Dropped(5.0, "")),
            "after it had been dropped",
        ),
        (lambda o, w: w.initial.__setitem__(0, ((0, 2),)), "did not run from the start where"),
    ],
)
def test_the_audit_finds_an_ending_that_cannot_be(change, law: str) -> None:  # type: ignore[no-untyped-def]
    workload = Workload.of([(0.0, 20.0, 1), (0.0, 50.0, 1)])
    script = {20.0: lambda view: [Drop(job(view, "1"))]}
    outcome = run(workload, Scripted(script), "1x2")
    change(outcome, workload)
    with pytest.raises(LawBrokenError, match=law):
        check_laws(workload, Cluster.parse("1x2"), outcome)


def test_the_audit_finds_what_is_after_the_horizon() -> None:
    workload = service()
    outcome = run(workload, Fifo(), "1x1", until=30.0)
    outcome.ledger.horizon = 29.0
    with pytest.raises(LawBrokenError, match="after the simulation's end"):
        audit(workload, Cluster.parse("1x1"), outcome)


# Ranks and nodes.


class Patience(Sjf):
    """Shortest first, but who has waited for 15 s goes before all others."""

    name: ClassVar[str] = "patience"

    def rank(self, job: Job, now: float) -> Rank:
        assert job.forecast is not None
        if now >= job.submit_time + 15.0:
            return (0.0, job.submit_time)
        return (1.0, job.forecast.duration_s)

    def waiting_until(self, job: Job, now: float) -> float:
        return job.submit_time + 15.0 if now < job.submit_time + 15.0 else NEVER


def test_a_rank_can_change_while_a_job_waits() -> None:
    from schedmate.schedulers.estimators import Table

    rows = [(0.0, 10.0, 1), (0.0, 30.0, 1), *((float(n), 10.0, 1) for n in range(1, 8))]
    workload = Workload.of(rows)
    starts = [
        run(workload, policy, "1x1", estimator=Table(workload.duration_s)).first_start[1]
        for policy in (Sjf(), Patience())
    ]
    assert starts == [80.0, 20.0]


def test_a_node_is_drained_goes_down_and_comes_back_and_the_policy_hears_of_it() -> None:
    heard: list[tuple[float, str, float, list[str]]] = []

    class Listening(Fifo):
        steady = False

        def decide(self, view: View):  # type: ignore[no-untyped-def]
            heard.extend((view.now, one.what, one.until, one.stopped) for one in view.news)
            assert all(view.space.closed(node) for node in view.draining)
            return super().decide(view)

    workload = Workload.of([(0.0, 30.0, 1), (0.0, 12.0, 1), (11.0, 10.0, 1), (12.0, 10.0, 1)])
    outcome = run(
        workload, Listening(), "1x2", maintenance=[Maintenance(0, drain=10.0, down=20.0, up=40.0)]
    )
    assert heard == [
        (10.0, "drain", 20.0, []),
        (20.0, "down", 40.0, ["0"]),
        (40.0, "up", NEVER, []),
    ]
    # The first had saved 14 of its 20 s; nothing started on the drained node.
    assert outcome.first_start == [0.0, 0.0, 40.0, 45.0 + 16.0 - 11.0]
    assert outcome.ledger.outages == [Outage(0, 10.0, 20.0, 40.0)]


@pytest.mark.parametrize(
    ("change", "law"),
    [
        ({"up": 5.0}, "came back before it went"),
        ({"closed": 0.0}, "which was closed"),
        ({"down": 5.0, "closed": 4.0}, "which was down"),
    ],
)
def test_the_audit_finds_what_ran_on_a_closed_node(change: dict[str, float], law: str) -> None:
    workload = Workload.of([(0.0, 10.0, 1)])
    outcome = run(workload, Fifo(), "1x1")
    outcome.ledger.outages.append(Outage(0, 20.0, 30.0, 40.0)._replace(**change))
    with pytest.raises(LawBrokenError, match=law):
        audit(workload, Cluster.parse("1x1"), outcome)


def test_maintenance_of_a_node_that_is_not_there_is_refused() -> None:
    with pytest.raises(InputError, match="nodes 0 to 0"):
        run(Workload.of([(0.0, 1.0, 1)]), Fifo(), "1x1", maintenance=[Maintenance(1, 1, 2, 3)])


def test_jobs_by_node_are_those_that_hold_its_gpus_and_cost_no_look_at_the_others() -> None:
    seen = []

    class Looking(Fifo):
        steady = False

        def decide(self, view: View):  # type: ignore[no-untyped-def]
            for node in range(3):
                scanned = [
                    one for one in view.running if any(at == node for at, _ in one.allocation)
                ]
                assert view.on(node) == sorted(scanned, key=lambda one: one.index)
                seen.append(len(scanned))
            return super().decide(view)

    rows = [(float(n), 7.0 + n % 5, 1 + n % 3) for n in range(40)]
    run(Workload.of(rows), Looking(), "3x4", replace(CHEAP, node_mtbf_s=60.0, repair_s=5.0))
    assert max(seen) > 1


# Executors.


class Unreliable(Executor):
    """It refuses to start a job on the first node before 30 s."""

    def refuses(self, decision: Decision, now: float) -> str:
        if isinstance(decision, Start) and decision.allocation[0][0] == 0 and now < 30.0:
            return "node0 does not answer"
        return ""


def test_a_refused_decision_is_answered_and_tried_again() -> None:
    answers = []

    class Asking(Fifo):
        steady = False

        def decide(self, view: View):  # type: ignore[no-untyped-def]
            answers.extend((one.decision.job.id, one.state, one.why) for one in view.answers)
            return super().decide(view)

    workload = Workload.of([(0.0, 10.0, 1)])
    outcome = run(workload, Asking(), "1x1", executor=Unreliable())
    assert answers == [("0", "refused", "node0 does not answer")]
    assert outcome.first_start == [60.0]
    assert outcome.ledger.refused == {"node0 does not answer": 1}
    assert numbers_of(workload, "1x1", outcome)["refused"] == {"node0 does not answer": 1}


def test_an_executor_that_refuses_for_ever_is_given_up() -> None:
    class Broken(Executor):
        def refuses(self, decision: Decision, now: float) -> str:
            return "no"

    with pytest.raises(DecisionError, match="refused all that policy fifo decided"):
        run(Workload.of([(0.0, 1.0, 1)]), Fifo(), "1x1", executor=Broken())


def test_a_policy_sees_what_its_executor_cannot_do_and_is_refused_the_rest() -> None:
    can = Capabilities(pack=False, overlap=False)
    seen = []

    def pack(view: View):  # type: ignore[no-untyped-def]
        seen.append(view.can)
        return [Pack(job(view, "1"), job(view, "0"))]

    def move(view: View):  # type: ignore[no-untyped-def]
        seen.append([answer.why for answer in view.answers])
        return [Migrate(job(view, "0"), ((0, 2),), overlap=True)]

    workload = Workload.of([(0.0, 30.0, 1), (5.0, 10.0, 1), (6.0, 1.0, 1)])
    outcome = run(workload, Scripted({5.0: pack, 6.0: move}), "1x2", executor=Executor(can))
    assert seen == [can, ["the executor cannot pack"]]
    assert outcome.ledger.refused == {
        "the executor cannot pack": 1,
        "the executor cannot overlap": 1,
    }


class Chaos(Policy):
    """Anything that comes to mind, most of it possible."""

    name: ClassVar[str] = "chaos"
    borrows: ClassVar[bool] = True

    def __init__(self, draws: list[int]) -> None:
        self.draws = draws
        self.at = 0

    def draw(self, below: int) -> int:
        self.at += 1
        return self.draws[self.at % len(self.draws)] % below

    def decide(self, view: View):  # type: ignore[no-untyped-def]
        found: list[Decision] = []
        running, pending = list(view.running), list(view.pending)
        for one in running[:2] if self.draw(3) else ():
            target = view.space.find(one)
            grace = float(self.draw(3) * 2)
            options: list[Decision] = [
                Evict(one, grace),
                Preempt(one),
                Drop(one, "chaos"),
                *([Migrate(one, target, self.draw(2) > 0)] if target else []),
                *([Pack(pending[0], one)] if pending and pending[0].vc == one.vc else []),
            ]
            choice = options[self.draw(len(options))]
            if not (isinstance(choice, Drop) and self.draw(4)):
                found.append(choice)
        if found and self.draw(2):
            return found
        for one in pending:
            lent = view.space.find_lent(one) or view.space.find(one, borrow=True)
            if lent and self.draw(2):
                view.space.take(one, lent)
                found.append(Borrow(one, lent))
            elif place := view.space.place(one):
                found.append(Start(one, place))
        return found


@settings(max_examples=30)
@given(
    rows=st.lists(
        st.tuples(
            st.integers(0, 40).map(float), st.integers(0, 30).map(float), st.sampled_from([1, 2, 4])
        ),
        min_size=1,
        max_size=15,
    ),
    draws=st.lists(st.integers(0, 59), min_size=20, max_size=60),
    terms=st.lists(st.integers(0, 3), min_size=15, max_size=15),
    windows=st.lists(st.integers(0, 30), min_size=15, max_size=15),
    mtbf=st.sampled_from([None, 80.0]),
    vcs=st.booleans(),
)
def test_whatever_is_decided_the_laws_hold_and_all_is_given_back(
    rows: list[tuple[float, float, int]],
    draws: list[int],
    terms: list[int],
    windows: list[int],
    mtbf: float | None,
    vcs: bool,
) -> None:
    profiles = [Profile(30.0, 10.0, 1000.0) for _ in rows]
    workload = Workload.of(rows, profiles=list(profiles))
    kinds = (None, Terms(saves=True), Terms(checkpoint_s=3.0, low=True), Terms(endless=True))
    for one, kind in zip(workload.jobs, terms, strict=False):
        one.terms = kinds[kind]
        if kind == 3:
            workload.duration_s[one.index] = NEVER
        if (start := windows[one.index]) % 3 == 1:
            workload.phases[one.index] = (Phase(5.0, 1), Phase(0.3, one.gpus))
        elif start:
            workload.standby[one.index] = [(float(start), start + 9.0), (start + 9.0, start + 20.0)]
    if vcs:
        workload.vcs = ["ab"[n % 2] for n in range(len(rows))]
    simulation = Simulation(
        workload,
        Chaos(draws),
        Cluster.parse("2x4@a,1x4@b" if vcs else "3x4"),
        parameters=replace(CHEAP, node_mtbf_s=mtbf, repair_s=6.0),
        maintenance=[Maintenance(1, 8.0, 15.0, 22.0)],
        executor=Executor(),
        until=150.0,
        seed=1,
    )
    before = list(simulation.view.space.free)
    outcome = simulation.run()
    audit(workload, simulation.cluster, outcome)
    space = simulation.view.space
    for node in range(len(before)):
        if space.closed(node):
            space.reopen(node)
    assert space.free == before
    assert space.idle == simulation.cluster.gpus
    assert not space.lending()
    assert all(one.status is None and not one.allocation for one in workload.jobs)
