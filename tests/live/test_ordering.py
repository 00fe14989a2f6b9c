"""From estimates to values of order: within the band, monotone, and nobody starves."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedmate.cluster.actions import Order
from schedmate.cluster.adapter import LiveJob, RefusedError
from schedmate.cluster.bounds import (
    OrderBounds,
    check_band,
    is_ordered,
    moved_trust,
    order_to_set,
    order_value,
)
from schedmate.jobs import Estimate, JobRecord

BOUNDS = OrderBounds(allowed=True, shortest=60.0, longest=86_400.0, ageing=7_200.0)


def estimate(seconds: float) -> Estimate:
    return Estimate(duration_s=seconds, duration_p90_s=2 * seconds, abstained=False)


DURATIONS = st.floats(0.01, 1e8)
WAITS = st.floats(0.0, 1e6)
TRUSTS = st.floats(0.0, 1.0)
SOME_BOUNDS = st.builds(
    OrderBounds,
    allowed=st.just(True),
    lowest=st.integers(-100_000, -1),
    highest=st.integers(0, 100_000),
    levels=st.integers(2, 101),
    shortest=st.floats(1.0, 1e4),
    longest=st.floats(2e4, 1e7),
    ageing=st.floats(1.0, 1e6),
)


@given(SOME_BOUNDS, st.none() | DURATIONS.map(estimate), TRUSTS, WAITS)
def test_a_value_is_always_within_the_band_and_one_of_the_levels(
    bounds: OrderBounds, one: Estimate | None, trust: float, waited_s: float
) -> None:
    value = order_value(bounds, one, trust=trust, waited_s=waited_s)
    assert bounds.lowest <= value <= bounds.highest
    step = (bounds.highest - bounds.lowest) / (bounds.levels - 1)
    assert (value - bounds.lowest) / step == pytest.approx(
        round((value - bounds.lowest) / step), abs=0.51 / step + 1e-6
    )


@given(DURATIONS, DURATIONS, TRUSTS, WAITS)
def test_what_takes_longer_never_comes_earlier(
    one: float, other: float, trust: float, waited_s: float
) -> None:
    short, long = sorted((one, other))
    first, second = (
        order_value(BOUNDS, estimate(seconds), trust=trust, waited_s=waited_s)
        for seconds in (short, long)
    )
    assert first >= second


@given(st.none() | DURATIONS.map(estimate), TRUSTS, WAITS, WAITS)
def test_waiting_never_lowers_a_job(
    one: Estimate | None, trust: float, wait: float, more: float
) -> None:
    before, after = (
        order_value(BOUNDS, one, trust=trust, waited_s=waited) for waited in (wait, wait + more)
    )
    assert after >= before


@given(st.none() | DURATIONS.map(estimate), TRUSTS)
def test_after_ageing_everybody_has_the_highest_value(one: Estimate | None, trust: float) -> None:
    assert order_value(BOUNDS, one, trust=trust, waited_s=BOUNDS.ageing) == BOUNDS.highest


@given(DURATIONS, TRUSTS)
def test_mistrust_takes_a_gain_away_and_never_puts_anybody_back(
    seconds: float, trust: float
) -> None:
    full, partly, none = (
        order_value(BOUNDS, estimate(seconds), trust=one, waited_s=0.0) for one in (1.0, trust, 0.0)
    )
    unknown = order_value(BOUNDS, None, trust=1.0, waited_s=0.0)
    assert none <= partly <= full
    assert none == min(full, unknown)


def test_without_an_estimate_a_job_stays_where_the_scheduler_has_it() -> None:
    assert order_value(BOUNDS, None, trust=1.0, waited_s=0.0) == 0
    abstained = Estimate(reason="nothing is similar")
    assert order_value(BOUNDS, abstained, trust=1.0, waited_s=0.0) == 0


def test_the_ends_of_the_scale() -> None:
    ends = [
        order_value(BOUNDS, estimate(seconds), trust=1.0, waited_s=0.0)
        for seconds in (1.0, 60.0, 3600.0, 86_400.0, 1e7)
    ]
    assert ends[:2] == [3000, 3000]
    assert ends[3:] == [-3000, -3000]
    assert -3000 < ends[2] < 3000


def run(seconds: float, state: str = "COMPLETED") -> JobRecord:
    return JobRecord(job_id="1", duration_s=seconds, state=state)


def test_trust_falls_with_runs_that_take_far_longer_and_comes_back_slowly() -> None:
    one = estimate(100.0)  # 90th percentile: 200 s
    trust = 1.0
    for _ in range(10):
        trust = moved_trust(trust, one, run(1000.0))
    assert trust < 0.15
    assert moved_trust(trust, one, run(1000.0, "CANCELLED")) < trust
    assert moved_trust(trust, one, run(50.0, "CANCELLED")) == trust
    values = [trust]
    for _ in range(5):
        values.append(moved_trust(values[-1], one, run(100.0)))
    assert all(before < after <= 1.0 for before, after in pairwise(values))
    assert values[1] - values[0] < 0.15
    assert moved_trust(trust, Estimate(), run(1000.0)) == trust


def test_one_overrun_in_ten_costs_an_honest_user_little() -> None:
    one, trust = estimate(100.0), 1.0
    for number in range(200):
        trust = moved_trust(trust, one, run(1000.0 if number % 10 == 9 else 100.0))
    assert trust > 0.6


def test_values_that_somebody_else_gave_are_left_alone() -> None:
    wanted = {"1": 500, "2": 500, "3": 500, "4": 500, "5": 500}
    present = {"1": 0, "2": 1000, "3": 77, "4": 500}
    ours = {"2": (1000, 0), "3": (1000, 0)}
    action = order_to_set(wanted, present, ours)
    assert action is not None
    assert action.values == {"1": 500, "2": 500}
    assert action.previous == {"1": 0, "2": 1000}
    assert order_to_set({"4": 500}, present, {}) is None


def test_giving_that_was_cut_off_before_it_began_is_not_taken_for_somebody_else_s() -> None:
    # 1000 was to become 500, which is written down; the job still has 1000
    action = order_to_set({"1": 0}, {"1": 1000}, {"1": (500, 1000)})
    assert action is not None
    assert action.values == {"1": 0}


def live(**changes: object) -> LiveJob:
    fields = {
        "id": "1", "group": "1", "state": "PENDING", "user": "alice", "queues": ("batch",),
        "submitted": 1.0, "started": None, "nodes": (), "held": False, "reason": "",
    }  # fmt: skip
    return LiveJob(**fields | changes)  # type: ignore[arg-type]


def test_which_jobs_are_ordered() -> None:
    assert is_ordered(BOUNDS, live())
    assert not is_ordered(BOUNDS, live(state="RUNNING"))
    assert not is_ordered(BOUNDS, live(held=True))
    only = BOUNDS.model_copy(update={"queues": ("gpu",)})
    assert not is_ordered(only, live())
    assert is_ordered(only, live(queues=("batch", "gpu")))


def test_the_band_is_checked_again_before_anything_is_set() -> None:
    check_band(BOUNDS, Order(values={"1": 3000}, previous={}), undo=False)
    with pytest.raises(RefusedError, match="outside of the band"):
        check_band(BOUNDS, Order(values={"1": 3001}, previous={}), undo=False)
    off = BOUNDS.model_copy(update={"allowed": False})
    with pytest.raises(RefusedError, match="allow no change"):
        check_band(off, Order(values={"1": 10}, previous={}), undo=False)
    check_band(off, Order(values={"1": 0}, previous={"1": 500}), undo=False)


def test_what_is_too_uncertain_for_a_time_still_has_a_place() -> None:
    def uncertain(*seconds: float) -> Estimate:
        return Estimate(abstained=True, reason="too uncertain", quantiles_s=sorted(seconds))

    def value(one: Estimate | None) -> int:
        return order_value(BOUNDS, one, trust=1.0, waited_s=0.0)

    short, long = BOUNDS.shortest, BOUNDS.longest
    mostly_short = value(uncertain(*[short] * 20, *[long] * 5))
    mostly_long = value(uncertain(*[short] * 5, *[long] * 20))
    assert value(estimate(short)) > mostly_short > mostly_long > value(estimate(long))
    assert value(Estimate(abstained=True)) == value(None) == 0
