"""Slurm's queue: reservations, predictions beside limits, priorities; scenarios by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedmate.base.errors import UsageError
from schedmate.schedulers import Cluster
from schedmate.schedulers.board import Board
from schedmate.schedulers.estimators import Table
from schedmate.schedulers.model import NEVER
from schedmate.schedulers.policies.slurm import OUT_OF_TIME, Slurm, corrected_s
from schedmate.schedulers.policy import Drop, Usage
from schedmate.schedulers.registry import make
from schedmate.schedulers.sim.record import Outcome
from schedmate.schedulers.sim.workload import Workload
from tests.schedulers.worlds import run


def with_limits(
    rows: Sequence[tuple[float, float, int, float | None]], users: str = ""
) -> Workload:
    """Jobs of (submitted, runs, GPUs, limit), and the user of each as one letter."""
    workload = Workload.of([row[:3] for row in rows])
    for number, (job, row) in enumerate(zip(workload.jobs, rows, strict=True)):
        job.time_limit_s = row[3]
        job.user = users[number] if users else ""
    return workload


def starts(workload: Workload, policy: str, cluster: str = "1x10", **more: object) -> list[float]:
    outcome: Outcome = run(workload, make(policy), cluster, **more)  # type: ignore[arg-type]
    return list(outcome.first_start)


# One job holds 6 of 10 GPUs until 100. The second wants all; the others could pass it.
PASSING = [
    (0.0, 100.0, 6, 100.0),
    (1.0, 50.0, 10, 50.0),
    (2.0, 98.0, 4, 98.0),  # ends exactly when the second may start
    (3.0, 10.0, 4, 10.0),
]


def test_easy_lets_a_job_pass_that_ends_in_time() -> None:
    # The third holds the 4 GPUs from 2 to 100; the last would delay the second, and waits.
    assert starts(with_limits(PASSING), "slurm") == [0, 100, 2, 150]


def test_no_job_passes_that_could_delay_the_first_blocked_one() -> None:
    rows = [*PASSING[:2], (2.0, 98.5, 4, 98.5), PASSING[3]]
    # One half second too long: it waits, and the last passes both.
    assert starts(with_limits(rows), "slurm") == [0, 100, 150, 3]


def test_a_long_job_may_take_gpus_that_the_reservation_leaves() -> None:
    rows = [(0.0, 100.0, 6, 100.0), (1.0, 50.0, 8, 50.0), (2.0, 500.0, 2, 500.0)]
    assert starts(with_limits(rows), "slurm") == [0, 100, 2]


def test_strict_order_lets_nobody_pass() -> None:
    assert starts(with_limits(PASSING), "slurm:strict=true") == [0, 100, 150, 150]


def test_without_reservations_everybody_passes() -> None:
    rows = [(0.0, 100.0, 6, 100.0), (1.0, 50.0, 10, 50.0), (2.0, 400.0, 4, 400.0)]
    assert starts(with_limits(rows), "slurm:reservations=0") == [0, 402, 2]
    assert starts(with_limits(rows), "slurm") == [0, 100, 150]


# The first blocked job starts at 100. The second blocked one could follow at 110, unless the last
# job, which does not delay the first blocked one, has taken 4 GPUs.
TWO_BLOCKED = [
    (0.0, 100.0, 6, 100.0),
    (1.0, 10.0, 5, 10.0),
    (2.0, 50.0, 9, 50.0),
    (3.0, 300.0, 4, 300.0),
]


def test_easy_protects_the_first_blocked_job_only() -> None:
    assert starts(with_limits(TWO_BLOCKED), "slurm") == [0, 100, 303, 3]


def test_conservative_backfill_protects_every_blocked_job() -> None:
    assert starts(with_limits(TWO_BLOCKED), "slurm:conservative=true") == [0, 100, 110, 160]
    assert starts(with_limits(TWO_BLOCKED), "slurm:reservations=2") == [0, 100, 110, 160]


def test_reservations_are_on_the_exact_gpus_of_nodes() -> None:
    # Two nodes of 4. One runs until 50, the other until 200; the third job needs a whole node.
    rows = [(0.0, 50.0, 3, 50.0), (0.0, 200.0, 3, 200.0), (1.0, 10.0, 4, 10.0)]
    # A job of one GPU for 100 s may take the node that is full until 200, not the one reserved.
    outcome = run(with_limits([*rows, (2.0, 100.0, 1, 100.0)]), make("slurm"), "2x4")
    assert list(outcome.first_start) == [0, 0, 50, 2]
    (segment,) = [one for one in outcome.segments if one.job == 3]
    (busy,) = [one for one in outcome.segments if one.job == 1]
    assert segment.allocation[0][0] == busy.allocation[0][0]


def test_the_shortest_passes_first() -> None:
    rows = [
        (0.0, 100.0, 6, 100.0),
        (1.0, 50.0, 10, 50.0),
        (1.0, 10.0, 4, 10.0),  # holds the rest until 11
        (2.0, 80.0, 4, 80.0),
        (3.0, 70.0, 4, 70.0),
    ]
    assert starts(with_limits(rows), "slurm") == [0, 100, 1, 11, 150]
    assert starts(with_limits(rows), "slurm:shortest=true") == [0, 100, 1, 150, 11]


# Predictions beside limits.


def test_predictions_plan_and_limits_do_not() -> None:
    rows = [(0.0, 100.0, 6, 1000.0), (1.0, 50.0, 10, 60.0), (2.0, 90.0, 4, 1000.0)]
    perfect = [100.0, 50.0, 90.0]
    # By its limit the third job would end at 1002, past the reservation at 1000.
    assert starts(with_limits(rows), "slurm:predict=false", estimator=Table(perfect)) == [
        0, 100, 150,
    ]  # fmt: skip
    assert starts(with_limits(rows), "slurm", estimator=Table(perfect)) == [0, 100, 2]


def test_a_prediction_that_is_outlived_is_corrected_upward() -> None:
    # Predicted 10 s, limit 400 s, and it runs for 300 s: 10, 70 (+1 min), 370 (+5 min).
    rows = [(0.0, 300.0, 6, 400.0), (1.0, 50.0, 10, 60.0), (2.0, 150.0, 4, 150.0)]
    # At 2 the second should start at 10, then at 70: 152 is too late. At 70 the plan says 370, and
    # a job that ends at 220 may pass.
    told = Table([10.0, 50.0, 150.0])
    assert starts(with_limits(rows), "slurm", estimator=told) == [0, 300, 70]


@pytest.mark.parametrize(
    ("ran", "planned"),
    [(0, 10), (9, 10), (10, 70), (69, 70), (70, 370), (370, 1000), (999, 1000), (1000, 1270)],
)
def test_corrections_grow_up_to_the_limit_and_past_it(ran: float, planned: float) -> None:
    # 10, +60, +300, +900 s (1270 is above the limit of 1000 s, which counts while it is ahead).
    assert corrected_s(10.0, 1000.0, ran) == planned
    assert corrected_s(10.0, NEVER, 370.0) == 1270.0


def test_a_job_is_ended_at_its_limit_not_at_its_prediction() -> None:
    rows = [(0.0, 500.0, 10, 300.0), (1.0, 50.0, 10, 60.0), (2.0, 40.0, 1, 40.0)]
    outcome = run(with_limits(rows), make("slurm"), "1x10", estimator=Table([20.0, 50.0, 40.0]))
    assert list(outcome.first_start) == [0, 300, 350]
    assert outcome.ledger.dropped[0].time == 300
    assert outcome.ledger.dropped[0].why == OUT_OF_TIME
    assert set(outcome.ledger.dropped) == {0}


def test_limits_end_nothing_where_they_are_off() -> None:
    rows = [(0.0, 500.0, 10, 300.0), (1.0, 50.0, 10, 60.0)]
    outcome = run(with_limits(rows), make("slurm:limits=false"), "1x10")
    assert list(outcome.end) == [500, 550]


def test_a_board_ends_a_job_at_its_limit() -> None:
    board = Board(Cluster.parse("1x4"), make("slurm"))
    (job,) = with_limits([(0.0, 100.0, 4, 60.0)]).jobs
    job.reset()
    board.submit(job, 0.0)
    (start,) = board.decide(0.0)
    board.accept(start, 0.0)
    assert board.decide(59.0) == []
    assert board.decide(60.0) == [Drop(job, OUT_OF_TIME)]


# Priorities.


def test_qos_comes_before_age_and_size_before_the_order_of_submission() -> None:
    rows = [(0.0, 100.0, 10, 100.0), (1.0, 10.0, 10, 10.0), (2.0, 10.0, 10, 10.0)]
    workload = with_limits(rows)
    workload.jobs[2].priority = 1
    assert starts(workload, "slurm") == [0, 110, 100]
    sizes = with_limits([(0.0, 100.0, 10, 100.0), (1.0, 10.0, 6, 10.0), (2.0, 10.0, 10, 10.0)])
    assert starts(sizes, "slurm:size=1000") == [0, 110, 100]
    assert starts(sizes, "slurm:size=1000:small=true") == [0, 100, 110]


def test_the_share_of_a_user_who_has_used_much_is_low_and_recovers() -> None:
    # User a holds everything until 100; then one job each of a and b wait.
    rows = [(0.0, 100.0, 10, 100.0), (1.0, 10.0, 10, 10.0), (2.0, 10.0, 10, 10.0)]
    workload = with_limits(rows, users="aab")
    assert starts(workload, "slurm:fair_share=1000") == [0, 110, 100]
    assert starts(workload, "slurm:age=1000") == [0, 100, 110]


def test_usage_counts_half_after_its_half_life() -> None:
    (job,) = with_limits([(0.0, 1.0, 4, None)], users="a").jobs
    job.allocation, job.started = ((0, 0b1111),), 0.0
    usage = Usage(1e9)
    usage.add(job, 100.0)
    assert usage.by_user(100.0)["a"] == pytest.approx(400.0, rel=1e-6)
    assert usage.by_user(100.0 + 1e9)["a"] == pytest.approx(200.0, rel=1e-6)
    short = Usage(50.0)
    whole = short.by_user(100.0, [job])["a"]
    short.add(job, 100.0)
    assert short.by_user(100.0)["a"] == whole < 400.0


def test_partitions_have_factors() -> None:
    rows = [(0.0, 100.0, 10, 100.0), (1.0, 10.0, 10, 10.0), (2.0, 10.0, 10, 10.0)]
    workload = with_limits(rows)
    policy = Slurm(partition=1000.0, partitions="debug=1,long=0.2")
    board = Board(Cluster.parse("1x10"), policy)
    workload.jobs[1].vc, workload.jobs[2].vc = "long", "debug"
    board.view.now = 2.0
    first, second = policy.priorities(board.view, workload.jobs[1:])
    assert second - first == pytest.approx(800.0, abs=0.1)


@pytest.mark.parametrize(
    "text", ["slurm:depth=0", "slurm:partitions=debug", "slurm:partitions='a=2'"]
)
def test_impossible_settings_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="policy slurm"):
        make(text)


# Laws, and what backfill promises.

ROWS = st.lists(
    st.tuples(
        st.integers(0, 60).map(float),
        st.integers(1, 60).map(float),
        st.integers(1, 8),
        st.sampled_from([None, 20.0, 60.0]),
    ),
    min_size=2,
    max_size=14,
).map(lambda rows: sorted(rows, key=lambda row: row[0]))


@pytest.mark.parametrize(
    "policy",
    ["slurm", "slurm:conservative=true", "slurm:shortest=true:fair_share=500:size=10",
     "slurm:limits=false:reservations=3", "slurm:strict=true"],
)  # fmt: skip
@given(rows=ROWS, told=st.lists(st.integers(1, 90).map(float), min_size=14, max_size=14))
@settings(max_examples=20)
def test_every_run_keeps_the_laws_whatever_is_predicted(
    policy: str, rows: list[tuple[float, float, int, float | None]], told: list[float]
) -> None:
    workload = with_limits(rows, users="abcabcabcabcab"[: len(rows)])
    outcome = run(workload, make(policy), "2x4", estimator=Table(told))
    for job, end, start in zip(workload.jobs, outcome.end, outcome.first_start, strict=True):
        if "limits=false" in policy or end < NEVER:
            assert end < NEVER
        else:
            assert outcome.ledger.dropped[job.index].time == start + (job.time_limit_s or NEVER)


@given(rows=ROWS)
@settings(max_examples=40)
def test_conservative_backfill_with_exact_times_delays_nobody_beyond_strict_order(
    rows: list[tuple[float, float, int, float | None]],
) -> None:
    exact = with_limits([(at, runs, gpus, runs) for at, runs, gpus, _ in rows])
    strict = starts(exact, "slurm:strict=true", "1x8")
    passed = starts(exact, "slurm:conservative=true", "1x8")
    assert all(one <= other for one, other in zip(passed, strict, strict=True))
