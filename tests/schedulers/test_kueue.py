"""Kueue's quotas: cohorts, borrowing, reclaiming and fair sharing, by hand; and its laws."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedmate.base.errors import UsageError
from schedmate.schedulers import Cluster
from schedmate.schedulers.model import Terms
from schedmate.schedulers.policies.kueue import Cohort, Kueue
from schedmate.schedulers.registry import make
from schedmate.schedulers.sim.record import Outcome
from schedmate.schedulers.sim.workload import Workload
from tests.schedulers.worlds import of, run

QUOTAS = (("a", 4), ("b", 4))


def of_tenants(*rows: tuple[str, float, float, int], priorities: str = "") -> Workload:
    """Jobs of (tenant, submitted, runs, GPUs), with the priority of each as one digit."""
    workload = Workload.of([row[1:] for row in rows])
    for number, (job, row) in enumerate(zip(workload.jobs, rows, strict=True)):
        job.terms = Terms(tenant=row[0])
        job.priority = int(priorities[number]) if priorities else 0
    return workload


def simulated(
    workload: Workload, policy: str = "kueue", quotas: tuple[tuple[str, int], ...] = QUOTAS
) -> Outcome:
    return run(workload, make(policy), replace(Cluster.parse("1x8"), quotas=quotas))


def test_the_cohort_by_hand() -> None:
    # a has 4 and lends 2 of them; b has 4 and borrows at most 1; 2 GPUs are in no quota.
    one = Cohort({"a": 4, "b": 4}, own=2, borrow={"b": 1}, lend={"a": 2}, weight={"a": 2.0})
    assert one.lendable == 2 + 2 + 4
    assert [one.most(tenant) for tenant in ("a", "b", "c")] == [10, 5, 8]
    one.used.update({"a": 7, "b": 2})
    # a borrows 3; of the 8 that can be lent it takes 5, as 2 of its own are not among them.
    assert (one.borrowed("a"), one.share("a")) == (3, 3 / 8 / 2)
    assert [one.available(tenant) for tenant in ("a", "b", "c")] == [1, 1, 1]
    assert one.share("c", 2) == 2 / 8


def documented(*jobs: tuple[str, float, float, int], policy: str = "kueue") -> list[float]:
    """First starts with the queues of Kueue's documentation: team a has 9 and team b 12."""
    cluster = replace(Cluster.parse("21x1"), quotas=(("a", 9), ("b", 12)))
    return run(of_tenants(*jobs), make(policy), cluster).first_start


@pytest.mark.parametrize(
    ("policy", "runs"),
    [
        ("kueue", 21),  # "can admit Workloads with resources adding up to 12+9=21"
        ("kueue:borrow='a=1'", 10),  # borrowingLimit: "up to 9+1=10"
        ("kueue:lend='b=1'", 10),  # lendingLimit of the other: 9+1=10
    ],
)
def test_borrowing_as_documented(policy: str, runs: int) -> None:
    starts = documented(*[("a", 0.0, 50.0, 1)] * 22, policy=policy)
    assert starts.count(0.0) == runs
    # "team-b-cq can borrow": without a limit all of the cohort is its to use.
    assert Cohort({"a": 9, "b": 12}, own=0, borrow={"a": 1}).most("b") == 21


def test_a_nominal_quota_goes_before_borrowing_as_documented() -> None:
    # "Kueue will admit Workloads in team-b-cq before admitting any new Workloads in team-a-cq."
    for policy in ("kueue", "kueue:fair=false", "kueue:reclaim=never"):
        starts = documented(
            ("a", 0.0, 50.0, 9), ("a", 10.0, 50.0, 3), ("b", 10.0, 90.0, 12), policy=policy
        )
        assert starts == [0.0, 50.0, 10.0]


def test_a_smaller_job_is_evicted_where_the_larger_would_leave_too_little() -> None:
    # LessThanOrEqualToFinalShare "might favor preemption of smaller workloads, regardless of start
    # time": with its second job y has 3 of 8. Without its last job x would have 2, less than y;
    # without its first, 5. By LessThanInitialShare alone the last one would go.
    jobs = (("x", 0.0, 90.0, 2), ("x", 1.0, 90.0, 5), ("y", 2.0, 90.0, 1), ("y", 3.0, 90.0, 2))
    found = simulated(of_tenants(*jobs), quotas=())
    assert list(found.counts["evictions"]) == [1, 0, 0, 0]
    assert found.first_start == [0.0, 1.0, 2.0, 3.0]
    # One job that holds all of it goes by LessThanInitialShare: 4 of 8 are less than 8 of 8.
    greedy = simulated(of_tenants(("x", 0.0, 90.0, 8), ("y", 3.0, 90.0, 4)), quotas=())
    assert (greedy.first_start, list(greedy.counts["evictions"])) == ([0.0, 3.0], [1, 0])


def test_idle_quota_is_borrowed_and_reclaimed() -> None:
    jobs = (("b", 0.0, 100.0, 4), ("b", 0.0, 100.0, 4), ("a", 10.0, 50.0, 4))
    found = simulated(of_tenants(*jobs))
    # b borrows a's quota; its last admitted job has to go when a wants it back, until a is done.
    assert found.first_start == [0.0, 0.0, 10.0]
    assert list(found.counts["evictions"]) == [0, 1, 0]
    assert of(found, 1)[1][0] == 60.0
    waits = simulated(of_tenants(*jobs), "kueue:reclaim=never")
    assert waits.first_start == [0.0, 0.0, 100.0]
    limited = simulated(of_tenants(*jobs), "kueue:borrow='b=0'")
    assert limited.first_start == [0.0, 100.0, 10.0]
    kept = simulated(of_tenants(*jobs), "kueue:lend='a=3'")
    assert kept.first_start == [0.0, 100.0, 10.0]


def test_lower_reclaims_only_lower_priority() -> None:
    jobs = (("b", 0.0, 100.0, 4), ("b", 0.0, 100.0, 4), ("a", 10.0, 50.0, 4))
    same = simulated(of_tenants(*jobs), "kueue:reclaim=lower")
    assert same.first_start[2] == 100.0
    higher = simulated(of_tenants(*jobs, priorities="001"), "kueue:reclaim=lower")
    assert higher.first_start[2] == 10.0


def test_within_a_tenant_priority_evicts() -> None:
    jobs = (("a", 0.0, 100.0, 8), ("a", 10.0, 20.0, 8))
    assert simulated(of_tenants(*jobs, priorities="01")).first_start == [0.0, 10.0]
    assert simulated(of_tenants(*jobs)).first_start == [0.0, 100.0]
    never = simulated(of_tenants(*jobs, priorities="01"), "kueue:within=never")
    assert never.first_start == [0.0, 100.0]


def test_borrowers_share_fairly() -> None:
    # No quotas: all is borrowed. x holds everything in jobs of 2 when y comes: y gets half.
    jobs = [("x", 0.0, 100.0, 2)] * 4 + [("y", 10.0, 100.0, 2)] * 4
    found = simulated(of_tenants(*jobs), quotas=())
    assert sum(start == 10.0 for start in found.first_start[4:]) == 2
    assert sum(found.counts["evictions"]) == 2
    # With twice the weight it holds 5.33 of 8 in pieces of 2: a third job would be 6.
    heavy = simulated(of_tenants(*jobs), "kueue:weights='y=3'", quotas=())
    assert sum(start == 10.0 for start in heavy.first_start[4:]) == 3
    unfair = simulated(of_tenants(*jobs), "kueue:fair=false", quotas=())
    assert unfair.first_start[4:] == [100.0] * 4


def test_the_first_job_blocks_only_if_strict() -> None:
    jobs = (("a", 0.0, 50.0, 2), ("a", 1.0, 10.0, 8), ("a", 2.0, 10.0, 2))
    assert simulated(of_tenants(*jobs)).first_start == [0.0, 50.0, 2.0]
    assert simulated(of_tenants(*jobs), "kueue:strict=true").first_start == [0.0, 50.0, 60.0]


def test_what_no_quota_could_ever_hold_is_dropped() -> None:
    found = simulated(of_tenants(("b", 0.0, 10.0, 6)), "kueue:borrow='b=1'")
    assert found.ledger.dropped[0].why == "b may use 5 GPUs"
    for wrong in ("reclaim=some", "within=any", "borrow=8", "weights='a=x'"):
        with pytest.raises(UsageError, match="kueue:"):
            make(f"kueue:{wrong}")


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"), st.integers(0, 60), st.integers(1, 60), st.integers(1, 4),
            st.integers(0, 2),
        ),
        min_size=1, max_size=14,
    ),
    st.sampled_from(["any", "lower", "never"]),
    st.booleans(),
)  # fmt: skip
def test_the_laws_of_quotas(
    rows: list[tuple[str, int, int, int, int]], reclaim: str, fair: bool
) -> None:
    rows = sorted(rows, key=lambda row: row[1])
    workload = of_tenants(
        *((tenant, float(at), float(runs), gpus) for tenant, at, runs, gpus, _ in rows),
        priorities="".join(str(row[4]) for row in rows),
    )
    quotas = (("a", 4), ("b", 2))
    found = run(
        workload,
        Kueue(fair=fair, reclaim=reclaim, borrow="a=2", lend="b=1"),
        replace(Cluster.parse("1x8"), quotas=quotas),
    )
    moments = sorted({one.start for one in found.segments} | {one.end for one in found.segments})
    nominal, lends = {"a": 4, "b": 2, "c": 0}, {"a": 4, "b": 1, "c": 0}
    for begin, end in pairwise(moments):
        used: Counter[str] = Counter()
        for one in found.segments:
            if one.start <= begin and one.end >= end:
                used[rows[one.job][0]] += rows[one.job][3]
        # Nobody exceeds its quota and borrowing limit, and no more is borrowed than is lent.
        assert used["a"] <= 6
        lent = sum(max(0, used[one] - (nominal[one] - lends[one])) for one in "abc")
        assert lent <= 2 + 4 + 1
        # A tenant within its quota waits for borrowers only if it may not evict them.
        if reclaim == "any":
            for number, (tenant, at, _, gpus, _) in enumerate(rows):
                waits = at <= begin and found.first_start[number] >= end
                if waits and used[tenant] + gpus <= nominal[tenant]:
                    others = {one for one in "abc" if used[one] > nominal[one]} - {tenant}
                    assert not others or sum(used.values()) + gpus > 8
