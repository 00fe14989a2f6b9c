"""Leaving with a grace time, moving before the old place is left, and lending: exact to the second.

By `CHEAP`, a checkpoint is made every 7 s of work, a restart takes 5 s, a handover 2 s, and whoever
is asked to stop takes 3 s.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import pytest

from schedmate.base.errors import InputError
from schedmate.schedulers import (
    Borrow,
    Decision,
    Evict,
    Migrate,
    Pack,
    Preempt,
    Resize,
    Start,
    View,
)
from schedmate.schedulers.model import Cluster, Terms, gpus_in
from schedmate.schedulers.policies.spot import Spot
from schedmate.schedulers.sim.actions import DecisionError
from schedmate.schedulers.sim.outcome.audit import LawBrokenError, audit, check_laws, in_use
from schedmate.schedulers.sim.outcome.metrics import PerJob, rare_numbers, spent, summary
from schedmate.schedulers.sim.record import Eviction, Hold, Loan
from schedmate.schedulers.sim.workload import Phase, Workload
from tests.schedulers.worlds import CHEAP, Scripted, job, nodes, of, run


def two(first_s: float = 50.0) -> Workload:
    """A job from the beginning, and one that is submitted at 20 s."""
    return Workload.of([(0.0, first_s, 2), (20.0, 10.0, 2)])


def evict_first(grace_s: float):  # type: ignore[no-untyped-def]
    return lambda view: [Evict(job(view, "0"), grace_s)]


def test_a_job_that_runs_alone_is_evicted_and_loses_what_no_checkpoint_holds() -> None:
    outcome = run(two(), Scripted({20.0: evict_first(0.0)}), "1x2")
    # Of 20 s, 14 are saved; it waits behind the other, restarts, and does the remaining 36.
    assert of(outcome, 0) == [(0.0, 20.0, "run"), (20.0, 61.0, "run")]
    assert outcome.ledger.evictions == {0: Eviction(0, 20.0, 20.0, 0.0, 20.0, 14.0, False)}


@pytest.mark.parametrize(
    ("terms", "grace_s", "left", "kept"),
    [
        (None, 10.0, 23.0, 14.0),  # it is gone after 3 s, not after 10
        (None, 2.0, 22.0, 14.0),  # it is killed after 2 s
        (Terms(saves=True), 10.0, 23.0, 20.0),  # it saves its work in time
        (Terms(saves=True), 2.0, 22.0, 14.0),  # it is killed before it has
        (Terms(checkpoint_s=9.0), 2.0, 22.0, 18.0),  # its user set other checkpoints
    ],
)
def test_a_grace_time(terms: Terms | None, grace_s: float, left: float, kept: float) -> None:
    workload = two()
    workload.jobs[0].terms = terms
    outcome = run(workload, Scripted({20.0: evict_first(grace_s)}), "1x2")
    (eviction,) = outcome.ledger.evictions.values()
    assert (eviction.asked, eviction.left, eviction.kept) == (20.0, left, kept)
    assert of(outcome, 0)[0] == (0.0, left, "run")
    assert outcome.held_s[0] == left + 5.0 + 50.0 - kept
    numbers = rare_numbers(workload, outcome)
    assert numbers["evicted_lost_gpu_h"] == pytest.approx(2 * (20.0 - kept) / 3600)


def test_who_was_told_to_stop_can_be_ended_at_once_but_not_otherwise_touched() -> None:
    workload = Workload.of([(0.0, 50.0, 2), (20.0, 1.0, 2), (21.0, 1.0, 2)])
    script = {20.0: evict_first(60.0), 21.0: evict_first(0.0)}
    outcome = run(workload, Scripted(script), "1x2")
    assert of(outcome, 0)[0] == (0.0, 21.0, "run")
    for then in (
        lambda view: [Preempt(job(view, "0"))],
        lambda view: [Migrate(job(view, "0"), ((0, 3),))],
        lambda view: [Pack(job(view, "1"), job(view, "0"))],
        evict_first(60.0),
    ):
        with pytest.raises(DecisionError, match="was asked to stop"):
            run(workload, Scripted({20.0: evict_first(60.0), 21.0: then}), "1x2")


def test_of_a_pair_one_may_take_its_time_to_leave() -> None:
    workload = two()
    script = {
        20.0: lambda view: [Pack(job(view, "1"), job(view, "0"))],
        22.0: lambda view: [Evict(job(view, "1"), 60.0)],
    }
    workload = Workload.of([(0.0, 50.0, 2), (20.0, 30.0, 2), (22.0, 1.0, 1)])
    outcome = run(workload, Scripted(script), "1x3")
    assert of(outcome, 1)[0] == (20.0, 25.0, "packed")


def test_what_stopping_a_job_would_lose_is_seen() -> None:
    seen = []

    def look(view: View):  # type: ignore[no-untyped-def]
        seen.append(view.lost_s(job(view, "0")))
        return []

    workload = two()
    run(workload, Scripted({20.0: look}), "1x4")
    assert seen == [6.0]


def test_a_move_that_makes_before_it_breaks_costs_the_handover_alone() -> None:
    script = {20.0: lambda view: [Migrate(job(view, "0"), ((1, 3),), overlap=True)]}
    workload = two()
    outcome = run(workload, Scripted(script), "3x2")
    # Brought up for 5 s while it runs on, then a pause of 2 s.
    assert of(outcome, 0) == [(0.0, 25.0, "run"), (25.0, 52.0, "run")]
    assert outcome.ledger.holds == [Hold(0, 20.0, 25.0, ((1, 3),), True)]
    assert workload.jobs[0].moves == 1
    assert rare_numbers(workload, outcome)["moving_gpu_h"] == pytest.approx(10.0 / 3600)
    became = spent(workload, outcome, CHEAP.restart)
    assert became is not None
    assert became.restarts.sum() == 2.0
    assert became.other.sum() == 0.0
    broken = run(two(), Scripted({20.0: lambda view: [Migrate(job(view, "0"), ((1, 3),))]}), "3x2")
    assert of(broken, 0) == [(0.0, 20.0, "run"), (20.0, 55.0, "run")]


def test_both_places_are_held_while_a_job_moves() -> None:
    workload = Workload.of([(0.0, 50.0, 2), (20.0, 30.0, 2), (21.0, 30.0, 2)])
    script = {20.0: lambda view: [Migrate(job(view, "0"), ((1, 3),), overlap=True)]}
    outcome = run(workload, Scripted(script), nodes(2, 4))
    # The other two GPUs of the second node are free at once, those of the first after the move.
    assert outcome.first_start == [0.0, 21.0, 25.0]


def test_a_job_that_ends_while_it_is_brought_up_elsewhere_gives_both_places_back() -> None:
    script = {20.0: lambda view: [Migrate(job(view, "0"), ((1, 3),), overlap=True)]}
    workload = Workload.of([(0.0, 22.0, 2), (20.0, 10.0, 2), (21.0, 10.0, 4)])
    outcome = run(workload, Scripted(script), "2x4")
    assert outcome.ledger.holds == [Hold(0, 20.0, 22.0, ((1, 3),), False)]
    assert outcome.first_start == [0.0, 21.0, 22.0]


def lender() -> Workload:
    """A service of 100 s that lends its GPUs from 20 to 40 s, and two that could use them."""
    workload = Workload.of([(0.0, 100.0, 2), (20.0, 50.0, 2), (45.0, 1.0, 1)])
    workload.standby = {0: [(20.0, 40.0)]}
    return workload


def borrow(view: View):  # type: ignore[no-untyped-def]
    waiting = next(iter(view.pending))
    found = view.space.find_lent(waiting)
    return [] if found is None else [Borrow(waiting, found)]


def test_gpus_are_lent_for_a_window_and_taken_back() -> None:
    workload = lender()
    outcome = run(workload, Scripted({20.0: borrow}), "1x2")
    # Called back at 40 s, the borrower takes 3 s to leave; its owner has paused for as long.
    assert of(outcome, 1)[0] == (20.0, 43.0, "loan")
    assert of(outcome, 0) == [(0.0, 103.0, "run")]
    assert outcome.ledger.loans == [Loan(0, 20.0, 40.0, 43.0, ((0, 3),), 20.0)]
    assert outcome.ledger.evictions[0][:3] == (1, 40.0, 43.0)
    numbers = rare_numbers(workload, outcome)
    assert numbers["lent_gpu_h"] == pytest.approx(40.0 / 3600)
    assert numbers["borrowed_gpu_h"] == pytest.approx(46.0 / 3600)
    assert numbers["longest_wait_for_lent_s"] == 3.0
    cluster, used = Cluster.parse("1x2"), in_use(outcome).segments
    numbers = summary(workload, cluster, outcome, PerJob.of(workload, outcome), None)
    used_gpu_s = sum((one.end - one.start) * gpus_in(one.allocation) for one in used)
    held_gpu_s = numbers["utilisation"] * 2 * numbers["makespan_h"] * 3600
    assert held_gpu_s == pytest.approx(used_gpu_s)  # what is lent is not counted twice


def test_lent_gpus_are_not_free_ones() -> None:
    outcome = run(lender(), Scripted({}), "1x2")
    assert of(outcome, 0) == [(0.0, 100.0, "run")]
    assert outcome.first_start[1] == 100.0
    with pytest.raises(DecisionError, match="can only be borrowed"):
        run(lender(), Scripted({20.0: lambda v: [Start(job(v, "1"), ((0, 3),))]}), "1x2")


class Borrowing(Scripted):
    """As scripted; who finds no free GPUs borrows."""

    borrows: ClassVar[bool] = True

    def decide(self, view: View) -> Sequence[Decision]:
        return super().decide(view) or (borrow(view) if view.pending.any() else [])


def trainer() -> Workload:
    """RL: rollouts of 20 s on three GPUs, updates of 10 s on the last two; one that borrows."""
    workload = Workload.of([(0.0, 60.0, 4), (0.0, 50.0, 1)])
    workload.phases = {0: (Phase(20.0, 3), Phase(10.0, 2))}
    return workload


def test_a_job_lends_what_each_of_its_phases_leaves_idle() -> None:
    outcome = run(trainer(), Borrowing({}), "1x4")
    # At the end of each phase the borrower takes 3 s to leave, and the job waits as long. Of 20 s
    # of work 14 are kept; it restarts for 5 s in each loan, does 5, 15 and, when the job has
    # ended meanwhile, the remaining 22.
    assert of(outcome, 0) == [(0.0, 69.0, "run")]
    assert of(outcome, 1) == [
        *((0.0, 23.0, "loan"), (23.0, 36.0, "loan"), (36.0, 59.0, "loan"), (59.0, 86.0, "loan")),
    ]
    assert outcome.ledger.loans == [
        Loan(0, 0.0, 20.0, 23.0, ((0, 8),), 0.0),
        Loan(0, 23.0, 33.0, 36.0, ((0, 3),), 20.0),
        Loan(0, 36.0, 56.0, 59.0, ((0, 8),), 30.0),
        Loan(0, 59.0, 69.0, 69.0, ((0, 3),), 50.0),
    ]
    alone = run(trainer(), Scripted({}), "1x4")  # a policy that borrows nothing
    assert (alone.end[0], alone.first_start[1], alone.ledger.loans) == (60.0, 60.0, [])


def test_phases_go_by_work_done_over_nodes_and_after_a_restart() -> None:
    workload = Workload.of([(0.0, 45.0, 4), (10.0, 10.0, 4)])
    workload.phases = {0: (Phase(20.0, 4), Phase(10.0, 1))}
    script = {10.0: lambda view: [Preempt(job(view, "0")), Start(job(view, "1"), ((0, 3), (1, 3)))]}
    outcome = run(workload, Borrowing(script), "2x2")
    # It resumes at 20 s, works from 25 s on, and updates from 35 to 45 s on the last of its GPUs.
    assert of(outcome, 0) == [(0.0, 10.0, "run"), (20.0, 60.0, "run")]
    assert outcome.ledger.loans == [Loan(0, 35.0, 45.0, 45.0, ((0, 3), (1, 1)), 20.0)]


def test_short_phases_are_not_worth_borrowing_in() -> None:
    workload = trainer()
    workload.jobs[1].terms = Terms(low=True, checkpoint_s=1800.0)
    assert run(workload, Spot(windows="worth"), "1x4").end[0] == 60.0


@pytest.mark.parametrize(
    ("phases", "said"),
    [
        ((), "without work"),
        ((Phase(0.0, 1),), "without work"),
        ((Phase(1.0, 5),), "of other GPUs than its 4"),
    ],
)
def test_what_is_no_phase(phases: tuple[Phase, ...], said: str) -> None:
    workload = trainer()
    workload.phases = {0: phases}
    with pytest.raises(InputError, match=said):
        run(workload, Borrowing({}), "1x4")
    workload.phases, workload.standby = trainer().phases, {0: [(1.0, 2.0)]}
    with pytest.raises(InputError, match="cannot have windows of lending"):
        run(workload, Borrowing({}), "1x4")


@pytest.mark.parametrize(
    "then",
    [
        lambda view: [Preempt(job(view, "0"))],
        lambda view: [Evict(job(view, "0"))],
        lambda view: [Resize(job(view, "0"), ((0, 1),))],
        lambda view: [Pack(job(view, "1"), job(view, "0"))],
    ],
)
def test_who_lends_is_left_alone(then: object) -> None:
    with pytest.raises(DecisionError, match="lends its GPUs"):
        run(lender(), Scripted({20.0: then}), "1x4")  # type: ignore[dict-item]


def test_a_borrower_stays_when_the_lender_ends() -> None:
    workload = lender()
    workload.duration_s[0] = 30.0
    outcome = run(workload, Scripted({20.0: borrow}), "1x2")
    assert of(outcome, 0) == [(0.0, 30.0, "run")]
    assert of(outcome, 1) == [(20.0, 70.0, "loan")]
    assert outcome.first_start[2] == 70.0


def test_idle_gpus_of_another_virtual_cluster_are_borrowed_and_reclaimed() -> None:
    workload = Workload.of([(0.0, 60.0, 2), (5.0, 50.0, 2), (20.0, 10.0, 2)])
    workload.vcs = ["a", "a", "b"]

    def lend(view: View):  # type: ignore[no-untyped-def]
        waiting = job(view, "1")
        assert view.space.find(waiting) is None
        found = view.space.find(waiting, borrow=True)
        assert found is not None
        view.space.take(waiting, found)
        return [Borrow(waiting, found)]

    def reclaim(view: View):  # type: ignore[no-untyped-def]
        borrower, owner = job(view, "1"), job(view, "2")
        return [Preempt(borrower), Start(owner, borrower.allocation)]

    outcome = run(workload, Scripted({5.0: lend, 20.0: reclaim}), "1x2@a,1x2@b")
    assert of(outcome, 1) == [(5.0, 20.0, "loan"), (60.0, 100.0, "run")]
    assert of(outcome, 2) == [(20.0, 30.0, "run")]


# Planted violations.


def planted(workload: Workload, script: dict, cluster: str = "3x2"):  # type: ignore[no-untyped-def, type-arg]
    from schedmate.schedulers import Cluster

    return Cluster.parse(cluster), run(workload, Scripted(script), cluster)


@pytest.mark.parametrize(
    ("change", "law"),
    [
        ({"left": 30.0}, "while it did not run"),
        ({"asked": 25.0}, "before it was asked"),
        ({"grace_s": 1.0}, "asked to leave them within"),
        ({"kept": 21.0}, "gained work"),
        ({"saves": True}, "saved its work, and lost"),
    ],
)
def test_the_audit_finds_an_eviction_that_cannot_be(change: dict[str, object], law: str) -> None:
    workload = two()
    cluster, outcome = planted(workload, {20.0: evict_first(10.0)}, "1x2")
    position, one = next(iter(outcome.ledger.evictions.items()))
    outcome.ledger.evictions[position] = one._replace(**change)
    with pytest.raises(LawBrokenError, match=law):
        audit(workload, cluster, outcome)


def test_the_audit_finds_a_loss_beyond_the_last_checkpoint() -> None:
    workload = two()
    cluster, outcome = planted(workload, {20.0: evict_first(10.0)}, "1x2")
    workload.jobs[0].terms = Terms(checkpoint_s=4.0)
    with pytest.raises(LawBrokenError, match=r"every 4.0 s, and lost 6.0"):
        audit(workload, cluster, outcome)


@pytest.mark.parametrize(
    ("change", "law"),
    [
        ({"start": 60.0, "end": 61.0}, "while it did not run"),
        ({"allocation": ((1, 1),)}, "another number of GPUs"),
        ({"end": 24.0}, "on which it did not go on"),
        ({"allocation": ((2, 3),)}, "on which it did not go on|two jobs that do not share"),
    ],
)
def test_the_audit_finds_a_move_that_cannot_be(change: dict[str, object], law: str) -> None:
    workload = two()
    script = {20.0: lambda view: [Migrate(job(view, "0"), ((1, 3),), overlap=True)]}
    cluster, outcome = planted(workload, script)
    outcome.ledger.holds[0] = outcome.ledger.holds[0]._replace(**change)
    with pytest.raises(LawBrokenError, match=law):
        audit(workload, cluster, outcome)


def test_the_audit_finds_gpus_used_by_others_while_a_job_is_brought_up_on_them() -> None:
    workload = Workload.of([(0.0, 50.0, 2), (20.0, 10.0, 2), (21.0, 1.0, 1)])
    cluster, outcome = planted(
        workload, {20.0: lambda view: [Migrate(job(view, "0"), ((1, 3),), overlap=True)]}
    )
    hold = outcome.ledger.holds[0]
    ((node, mask),) = next(one.allocation for one in outcome.segments if one.job == 1)
    assert node == 2
    outcome.ledger.holds[0] = hold._replace(allocation=((node, mask),))
    with pytest.raises(LawBrokenError, match="two jobs that do not share|did not go on"):
        audit(workload, cluster, outcome)


@pytest.mark.parametrize(
    ("change", "law"),
    [
        ({"start": 19.0}, "in no window"),
        ({"called": 41.0}, "in no window"),
        ({"back": 39.0}, "before it wanted them|two jobs that do not share"),
        ({"allocation": ((1, 3),)}, "did not hold|two jobs that do not share"),
    ],
)
def test_the_audit_finds_a_loan_that_cannot_be(change: dict[str, object], law: str) -> None:
    workload = lender()
    cluster, outcome = planted(workload, {20.0: borrow}, "2x2")
    if outcome.segments[0].kind != "loan":
        pytest.fail("nothing was borrowed")
    outcome.ledger.loans[0] = outcome.ledger.loans[0]._replace(**change)
    with pytest.raises(LawBrokenError, match=law):
        audit(workload, cluster, outcome)


@pytest.mark.parametrize(
    ("which", "change", "law"),
    [
        (1, {"allocation": ((0, 12),)}, "that its phase uses"),
        (1, {"done": 29.9}, "while it waited|in a phase that lasts"),
        (1, {"done": 22.0}, "while it waited"),
        (1, {"called": 30.0}, "in a phase that lasts"),
        (3, {"start": 57.0}, "while it waited|two jobs that do not share"),
    ],
)
def test_the_audit_finds_phases_that_cannot_be(
    which: int, change: dict[str, object], law: str
) -> None:
    workload = trainer()
    outcome = run(workload, Borrowing({}), "1x4")
    outcome.ledger.loans[which] = outcome.ledger.loans[which]._replace(**change)
    with pytest.raises(LawBrokenError, match=law):
        check_laws(workload, nodes(4), outcome)


def test_the_audit_finds_a_borrower_of_gpus_that_are_wanted_back() -> None:
    workload = lender()
    cluster, outcome = planted(workload, {20.0: borrow}, "1x2")
    outcome.ledger.loans[0] = outcome.ledger.loans[0]._replace(called=30.0)
    at = next(n for n, one in enumerate(outcome.segments) if one.kind == "loan")
    outcome.segments.starts[at] = 35.0
    with pytest.raises(LawBrokenError, match="wanted back"):
        check_laws(workload, cluster, outcome)


def test_the_audit_finds_who_takes_what_was_not_lent() -> None:
    workload = lender()
    cluster, outcome = planted(workload, {20.0: borrow}, "1x2")
    at = next(n for n, one in enumerate(outcome.segments) if one.kind == "loan")
    outcome.segments.kinds[at] = 0
    with pytest.raises(LawBrokenError, match="took GPUs that another lends"):
        audit(workload, cluster, outcome)
    outcome.segments.kinds[at] = 3
    outcome.ledger.loans.clear()
    with pytest.raises(LawBrokenError, match="two jobs that do not share|no job lends"):
        audit(workload, cluster, outcome)


def test_a_policy_that_evicts_and_starts_without_end_is_told() -> None:
    class Restless(Scripted):
        def decide(self, view: View):  # type: ignore[no-untyped-def]
            if view.now >= 20.0 and view.running.any():
                one = next(iter(view.running))
                return [Evict(one), Start(one, one.allocation)]
            return super().decide(view)

    with pytest.raises(DecisionError, match="endlessly at 20 s"):
        run(two(), Restless({}), "1x2")
