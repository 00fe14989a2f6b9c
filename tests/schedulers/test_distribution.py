"""Policies by the distribution of run times: what their indices are, and whom they run first."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from schedmate.base.errors import UsageError
from schedmate.jobs import Estimate
from schedmate.schedulers import Cluster, Forecast, Job
from schedmate.schedulers.estimators import Table
from schedmate.schedulers.model import Left
from schedmate.schedulers.policies.distribution import RunTime, expected, gittins, run_time
from schedmate.schedulers.registry import make
from schedmate.schedulers.sim.parameters import HONEST
from schedmate.schedulers.sim.record import Outcome
from schedmate.schedulers.sim.runs import Plan, run_policy
from schedmate.schedulers.sim.workload import Workload
from tests.schedulers.worlds import run

LEVELS = [(n + 0.5) / 25 for n in range(25)]
EXPONENTIAL = [-100.0 * math.log(1 - level) for level in LEVELS]
"""Of mean 100 s."""
HEAVY = [100.0 * (1 / (1 - level) - 1) for level in LEVELS]
"""A Pareto distribution: the longer a job has run, the less likely it is to end soon."""
EVEN = [1000.0 * level for level in LEVELS]
"""Uniform up to 1,000 s: the longer a job has run, the more likely it is to end soon."""
TIMES = st.lists(st.floats(0.01, 1e6), min_size=2, max_size=30).map(sorted)


def index(quantiles: Sequence[float], ran_s: float, start_s: float = 0.0) -> float:
    return gittins(RunTime(quantiles).pieces(ran_s), start_s).seconds


def expects(quantiles: Sequence[float], ran_s: float) -> float:
    return expected(RunTime(quantiles).pieces(ran_s)).seconds


# The distribution.


@given(TIMES, st.floats(0.0, 1e6), st.floats(0.0, 1e6))
def test_shares_fall_from_one_and_pass_through_the_quantiles(
    quantiles: list[float], one: float, other: float
) -> None:
    made = RunTime(quantiles)
    low, high = sorted((one, other))
    assert made.longer(0.0) == 1.0
    assert 0.0 <= made.longer(high) <= made.longer(low) <= 1.0
    if len(set(quantiles)) == len(quantiles):
        for number, quantile in enumerate(quantiles):
            assert made.longer(quantile) == pytest.approx(1 - (number + 0.5) / len(quantiles))


@given(TIMES, st.floats(0.0, 1.0), st.floats(0.0, 100.0))
@example([1.0, 1.0, 167.0], 0.0, 0.0)
def test_the_index_is_what_its_definition_says(
    quantiles: list[float], share: float, start_s: float
) -> None:
    made = RunTime(quantiles)
    ran_s = share * quantiles[-1]
    if made.outlived(ran_s):
        return
    # every time to stop on a grid within each piece, by summing shares; they jump where many
    # quantiles are the same, so the last moment before such a time is an edge, too
    times = [ran_s, *(time for time in made.times if time > ran_s), 2 * made.times[-1]]
    grid = [np.append(np.linspace(a, b, 60)[:-1], b - 1e-8 * (b - a)) for a, b in pairwise(times)]
    edges = np.unique(np.concatenate([*grid, times])) - ran_s
    running = np.array([made.longer(ran_s + float(edge), ran_s) for edge in edges])
    mean_s = np.cumsum(np.diff(edges) * (running[:-1] + running[1:]) / 2)
    ended = 1 - running[1:]
    values = (start_s + mean_s[ended > 1e-9]) / ended[ended > 1e-9]
    # a chord lies above an exponential: the sums are never too small
    assert index(quantiles, ran_s, start_s) <= values.min() * (1 + 1e-6) + 1e-9


@given(TIMES, st.floats(0.0, 2e6))
def test_the_expectation_is_the_area_below_the_shares(quantiles: list[float], ran_s: float) -> None:
    made = RunTime(quantiles, limit_s=3e6)
    ahead = np.concatenate([np.geomspace(1e-3, 3e6 - ran_s, 3_000), np.array(made.times) - ran_s])
    ahead = np.unique(np.append(ahead[ahead >= 0], 0.0))
    running = [made.longer(ran_s + float(one), ran_s) for one in ahead]
    area = float(np.trapezoid(running, ahead))
    assert expected(made.pieces(ran_s)).seconds == pytest.approx(area, rel=0.02, abs=0.01)


def test_it_is_memoryless_where_jobs_end_at_a_constant_rate() -> None:
    # Up to the last quantile; and before the first, up to the start of the distribution.
    for ran_s in (0.0, 5.0, 50.0, 150.0, 380.0):
        assert index(EXPONENTIAL, ran_s) == pytest.approx(100.0, rel=1e-3)


def test_who_has_run_less_goes_first_where_jobs_end_ever_less_often() -> None:
    values = [index(HEAVY, ran_s) for ran_s in (2.0, 30.0, 100.0, 1000.0, 10_000.0, 1e6)]
    assert values == sorted(values)
    assert values[0] * 1000 < values[-1]


def test_who_has_run_more_goes_first_where_jobs_end_ever_more_often() -> None:
    values = [index(EVEN, ran_s) for ran_s in (0.0, 200.0, 500.0, 900.0)]
    assert values == sorted(values, reverse=True)
    # the best time to stop such a job is its end: the index is the mean of what is left
    assert values[2] == pytest.approx(250.0, rel=0.05)


@given(st.floats(1.0, 1e6), st.floats(0.0, 0.999), st.integers(1, 25))
def test_a_certain_time_is_what_is_left_of_it(total_s: float, part: float, count: int) -> None:
    ran_s = part * total_s
    assert index([total_s] * count, ran_s) == pytest.approx(total_s - ran_s)
    assert expects([total_s] * count, ran_s) == pytest.approx(total_s - ran_s)
    assert index([total_s] * count, ran_s, 62.0) == pytest.approx(62.0 + total_s - ran_s)


def test_a_restart_makes_short_turns_dear() -> None:
    quantiles = [10.0] * 13 + [1000.0] * 12
    assert index(quantiles, 0.0) == pytest.approx(20.0)
    until = [gittins(RunTime(quantiles).pieces(0.0), start).until_s for start in (0.0, 1e3)]
    assert until == [10.0, 1000.0]


def test_a_time_limit_ends_the_tail() -> None:
    made = RunTime(HEAVY, limit_s=150.0)
    assert made.longer(149.0) > 0.3
    assert made.longer(150.0) == 0.0
    assert expected(made.pieces(140.0)).seconds <= 10.0
    assert expects(HEAVY, 140.0) > 200.0


@pytest.mark.parametrize(
    "quantiles", [[math.nan] * 25, [0.0] * 25, [-1.0, 5.0], [5.0, 1.0], [1.0, math.inf]]
)
def test_impossible_quantiles_give_a_rank_all_the_same(quantiles: list[float]) -> None:
    one = Job("a", 0, 0.0, 1, forecast=Forecast(5.0, quantiles_s=tuple(quantiles)))
    for name in ("gittins", "serpt", "likely-short"):
        rank = make(name).rank(one, 0.0)
        assert isinstance(rank, tuple)
        assert not any(map(math.isnan, rank))


# Jobs.


def test_what_is_known_of_a_job_decides_its_distribution() -> None:
    sure = Job("a", 0, 0.0, 4, forecast=Forecast(500.0))
    assert expected(run_time(sure, 0.0).pieces(0.0)).seconds == 500.0
    sure.service_s = 600.0  # outlived: doubled
    assert expected(run_time(sure, 0.0).pieces(600.0)).seconds == 400.0
    sure.left = Left(30.0, 0.0)
    assert expected(run_time(sure, 0.0).pieces(600.0)).seconds == pytest.approx(30.0)

    spread = Job("b", 1, 0.0, 4, forecast=Forecast(100.0, quantiles_s=tuple(HEAVY)))
    spread.time_limit_s = 150.0
    assert run_time(spread, 0.0).outlived(150.0)
    spread.service_s = 200.0  # a limit that did not end it says nothing any more
    assert not run_time(spread, 0.0).outlived(1e6)

    for name in ("gittins", "serpt"):
        assert make(name).rank(Job("c", 2, 0.0, 1), 0.0) == (0, math.inf)
    assert make("likely-short").rank(Job("c", 2, 0.0, 1), 0.0) == (0, 1.0, math.inf)


def test_an_advisors_distribution_reaches_the_policies() -> None:
    said = Estimate(abstained=False, duration_s=90.0, quantiles_s=EXPONENTIAL)
    forecast = Forecast.of(said)
    assert forecast is not None
    assert forecast.quantiles_s == tuple(EXPONENTIAL)
    one = Job("a", 0, 0.0, 2, forecast=forecast)
    assert make("gittins").rank(one, 0.0) == (0, pytest.approx(200.0, rel=1e-3))
    assert Forecast.of(said.model_copy(update={"quantiles_s": None})) == Forecast(
        90.0, method="none"
    )


def test_time_counts_times_gpus() -> None:
    wide, narrow = (Job(str(n), n, 0.0, n, forecast=Forecast(60.0)) for n in (8, 1))
    shared = Job("s", 2, 0.0, 1, share=0.25, forecast=Forecast(60.0))
    for name in ("gittins", "serpt"):
        ranks = [make(name).rank(one, 0.0) for one in (wide, narrow, shared)]
        assert ranks == [(0, 480.0), (0, 60.0), (0, 15.0)]


def test_the_probability_of_being_short_is_read_from_the_quantiles() -> None:
    policy = make("likely-short:threshold_s=100")
    one = Job("a", 0, 0.0, 1, forecast=Forecast(1.0, quantiles_s=tuple(EXPONENTIAL)))
    assert policy.rank(one, 0.0)[1] == pytest.approx(math.exp(-1))  # type: ignore[index]
    one.service_s = 150.0  # of what is left
    assert policy.rank(one, 0.0)[1] == pytest.approx(math.exp(-1))  # type: ignore[index]
    with pytest.raises(UsageError, match="above 0"):
        make("likely-short:threshold_s=0")


# Whole simulations.


def simulate(
    rows: list[tuple[float, float, int]],
    name: str,
    cluster: str,
    quantiles: Sequence[Sequence[float]] | None = None,
) -> Outcome:
    workload = Workload.of(rows)
    spread = None if quantiles is None else [tuple(one) for one in quantiles]
    estimator = Table(workload.duration_s, quantiles=spread)
    return run(workload, make(name), cluster, estimator=estimator)


ROWS = st.lists(
    st.tuples(
        st.integers(0, 500).map(float), st.integers(1, 400).map(float), st.sampled_from([1, 2, 4])
    ),
    min_size=1,
    max_size=25,
).map(sorted)


@given(ROWS, st.booleans())
def test_with_certain_times_it_is_the_queue_by_gpu_time(
    rows: list[tuple[float, float, int]], backfill: bool
) -> None:
    rest = f"backfill={str(backfill).lower()}"
    usual = simulate(rows, f"qssf:{rest}", "2x4").first_start
    assert simulate(rows, f"gittins:{rest}", "2x4").first_start == usual
    assert simulate(rows, f"serpt:{rest}", "2x4").first_start == usual


def test_with_certain_times_and_preemption_the_shortest_left_goes_first() -> None:
    # When the second comes, the first has 800 s left, and when the third comes 680 s.
    rows = [(0.0, 1000.0, 1), (200.0, 400.0, 1), (720.0, 650.0, 1)]
    for name in ("gittins", "serpt"):
        segments = {
            restart: [
                (one.job, one.start)
                for one in simulate(rows, f"{name}:preempt=true:{restart}", "1x1").segments
            ]
            for restart in ("restart_s=62", "restart_s=0")
        }
        first = [(0, 0.0), (1, 200.0), (0, 600.0)]
        assert segments["restart_s=62"] == [*first, (2, 1405.0)]  # 5 s is what a restart takes
        assert segments["restart_s=0"] == [*first, (2, 720.0), (0, 1370.0)]


def test_a_job_of_many_that_end_soon_goes_first_and_gives_way_when_it_did_not() -> None:
    # Half of such jobs take 10 s, the others a thousand; the second one takes 100 s for certain.
    doubtful = [10.0] * 13 + [1000.0] * 12
    rows = [(0.0, 5.0, 1), (1.0, 1000.0, 1), (2.0, 100.0, 1)]
    spreads = [[5.0], doubtful, [100.0] * 25]
    starts = {
        name: simulate(rows, name, "1x1", spreads).first_start
        for name in ("sjf", "serpt", "gittins", "gittins:preempt=true:restart_s=0")
    }
    assert starts["serpt"] == [0.0, 105.0, 5.0]
    assert starts["gittins"] == [0.0, 5.0, 1005.0]
    # stopped once it has not ended among the first, as soon as ranks are computed again
    stopped = starts["gittins:preempt=true:restart_s=0"]
    assert stopped[:2] == [0.0, 5.0]
    assert 15.0 <= stopped[2] <= 40.0
    # and never for so little, where a restart costs more than is gained
    dear = simulate(rows, "gittins:preempt=true:restart_s=10000", "1x1", spreads)
    assert len(dear.segments) == 3


def test_jobs_of_a_constant_rate_are_not_stopped_for_each_other() -> None:
    draw = random.Random(1)
    rows = sorted((draw.uniform(0, 500), draw.uniform(1, 380), 1) for _ in range(40))
    outcome = simulate(rows, "gittins:preempt=true", "1x4", [EXPONENTIAL] * 40)
    assert len(outcome.segments) == 40
    first_come = simulate(rows, "fifo", "1x4")
    assert outcome.first_start == first_come.first_start


def test_where_jobs_end_ever_less_often_the_newest_goes_first() -> None:
    rows = [(0.0, 5000.0, 1), (1000.0, 20.0, 1)]
    outcome = simulate(rows, "gittins:preempt=true", "1x1", [HEAVY] * 2)
    assert outcome.first_start == [0.0, 1000.0]
    assert simulate(rows, "gittins", "1x1", [HEAVY] * 2).first_start == [0.0, 5000.0]


def test_priority_goes_before_any_probability() -> None:
    workload = Workload.of([(0.0, 100.0, 1), (1.0, 50.0, 1), (2.0, 70.0, 1)])
    workload.jobs[2].priority = 1
    for name in ("gittins", "serpt", "likely-short"):
        outcome = run(workload, make(name), "1x1", estimator=Table(workload.duration_s))
        assert outcome.first_start == [0.0, 170.0, 100.0]


@pytest.mark.parametrize(
    "name", ["gittins", "gittins:preempt=true", "serpt", "serpt:preempt=true", "likely-short"]
)
def test_the_mixture_of_experts_gives_the_simulator_its_distributions(name: str) -> None:
    draw = random.Random(5)
    usual = {"ann": 60.0, "bob": 4_000.0, "eve": 900.0}
    at, rows, users = 0.0, [], []
    for _ in range(300):
        at += draw.expovariate(1 / 300.0)
        users.append(draw.choice(list(usual)))
        rows.append((at, usual[users[-1]] * draw.lognormvariate(0, 0.3), draw.choice([1, 1, 2, 4])))
    workload = Workload.of(rows)
    for job, user in zip(workload.jobs, users, strict=True):
        job.user = user
    plan = Plan((name,), Cluster.parse("1x4"), "experts", HONEST)
    waits = run_policy(workload, plan, name).numbers
    simple = run_policy(workload, plan, "fifo").numbers
    assert waits["avg_queue_h"] < simple["avg_queue_h"]
    assert any(job.forecast is not None and job.forecast.quantiles_s for job in workload.jobs)
