"""ElasticFlow: minimum satisfactory shares, admission, and what is left by marginal returns."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedmate.base.errors import UsageError
from schedmate.schedulers.estimators import Estimator
from schedmate.schedulers.goodput import PlannedAgent, SpeedSource
from schedmate.schedulers.model import NEVER, Allocation, Cluster, Job, Terms
from schedmate.schedulers.policies.elasticflow import (
    Demand,
    ElasticFlow,
    admit,
    share,
    shares,
    slot_ends,
)
from schedmate.schedulers.sim.engine import Simulation
from schedmate.schedulers.sim.outcome.audit import audit
from schedmate.schedulers.sim.workload import Workload
from schedmate.schedulers.sim.world import FOREVER, SimulationObserver

SIZES = (1, 2, 4, 8)
SPEEDS = (1.0, 1.8, 3.0, 4.0)
"""Diminishing returns."""


def demand(index: int, left: float, deadline_s: float, **more: Any) -> Demand:
    return Demand(Job(f"job{index}", index, 0.0, 1), SIZES, SPEEDS, left, deadline_s, **more)


def test_slots_reach_the_horizon_and_grow() -> None:
    ends = slot_ends(60.0, 86_400.0)
    lengths = np.diff(ends, prepend=0.0)
    assert ends[-1] >= 86_400
    assert lengths[:12].tolist() == [60.0] * 12
    assert (np.diff(lengths[12:]) > 0).all()
    assert len(ends) < 60


def test_the_share_is_the_fewest_gpus_that_meet_the_deadline() -> None:
    ends = slot_ends(60.0, 3600.0)
    free = np.full(len(ends), 8.0)
    for work, gpus in ((3600.0, 1), (3601.0, 2), (1.8 * 3600, 2), (14_000.0, 8)):
        found = share(demand(0, work, 3600.0), free, ends)
        assert found is not None
        assert found.gpus == gpus
    assert share(demand(0, 14_401.0, 3600.0), free, ends) is None


def test_the_share_takes_more_where_earlier_deadlines_leave_less() -> None:
    ends = slot_ends(60.0, 600.0)
    free = np.full(len(ends), 8.0)
    free[: len(ends) // 2] = 0.0
    found = share(demand(0, 600.0, 600.0), free, ends)
    assert found is not None
    assert (found.gpus, found.plan[0], found.plan.max()) == (4, 0, 4)


def test_a_restart_counts_against_the_deadline() -> None:
    ends = slot_ends(60.0, 600.0)
    free = np.full(len(ends), 8.0)
    costly = share(demand(0, 600.0, 600.0, change_s=30.0), free, ends)
    kept = share(demand(0, 600.0, 600.0, change_s=30.0, held=1), free, ends)
    assert costly is not None
    assert kept is not None
    assert (costly.gpus, kept.gpus) == (2, 1)


@settings(max_examples=40)
@given(
    works=st.lists(st.tuples(st.floats(1, 5e4), st.floats(60, 2e4)), min_size=1, max_size=8),
    capacity=st.integers(1, 16),
)
def test_promises_never_need_more_gpus_than_there_are_and_get_the_work_done(
    works: list[tuple[float, float]], capacity: int
) -> None:
    demands = [demand(index, *one) for index, one in enumerate(works)]
    ends = slot_ends(300.0, max(due for _, due in works))
    found = shares(demands, capacity, ends)
    plans = [one.plan for one in found.values() if one is not None]
    assert sum(plans, np.zeros(len(ends))).max(initial=0.0) <= capacity
    for one in demands:
        promised = found[one.job.index]
        if promised is not None:
            lengths = np.diff(np.minimum(ends, one.deadline_s), prepend=0.0)
            speeds = np.array([one.speed(int(gpus)) for gpus in promised.plan])
            assert (speeds * lengths).sum() >= one.left * (1 - 1e-6)


def test_a_new_job_is_refused_where_it_would_break_a_promise() -> None:
    ends = slot_ends(60.0, 3600.0)
    known = [demand(0, 3.9 * 3600, 3600.0)]
    found, refused = admit(known, [demand(1, 600.0, 1800.0)], 8, ends)
    assert [one.job.index for one in refused] == [1]
    assert found[0] is not None
    found, refused = admit(known, [demand(1, 600.0, 1800.0)], 16, ends)
    assert not refused
    assert found[1] is not None


class Planned(SimulationObserver):
    """Jobs that do what `SPEEDS` says, and tell what they have left."""

    def __init__(self, work: list[float]) -> None:
        self.work = work
        speeds = {("A40", gpus): speed for gpus, speed in zip(SIZES, SPEEDS, strict=True)}
        self.agents = [PlannedAgent(speeds, 1, 0.0, one) for one in work]

    def pace(
        self, job: int, done: float, allocation: Allocation, partner: int | None
    ) -> tuple[float, float]:
        gpus = sum(mask.bit_count() for _, mask in allocation)
        speed = SPEEDS[SIZES.index(gpus)]
        self.agents[job].seen = SpeedSource(self.work[job] - done, self.watch.now, speed)
        return speed, FOREVER

    def restart_s(self, job: int, allocation: Allocation, previous: Allocation) -> float:
        return 0.0

    def saved(self, job: int, done: float, since: float) -> float:
        return done

    def submitted(self, job: Job) -> None:
        job.agent = self.agents[job.index]

    def stopped(self, job: Job) -> None:
        agent = self.agents[job.index]
        agent.seen = SpeedSource(agent.left(self.watch.now) or 0.0, self.watch.now, 0.0)


def simulated(
    policy: ElasticFlow,
    rows: list[tuple[float, float, float]],
    estimator: Estimator | None = None,
) -> Any:
    """Rows of submission [s], work and deadline [s], on 8 GPUs."""
    workload = Workload.of([(at, work, 1) for at, work, _ in rows])
    for job, (_, _, deadline) in zip(workload.jobs, rows, strict=True):
        job.min_gpus, job.max_gpus = 1, 8
        job.terms = None if deadline == NEVER else Terms(deadline=deadline)
    physics = Planned([work for _, work, _ in rows])
    simulation = Simulation(
        workload,
        policy,
        Cluster.parse("1x8:A40"),
        estimator=estimator,
        physics=physics,
        observers=[physics],
    )
    outcome = simulation.run()
    audit(workload, simulation.cluster, outcome)
    return outcome


def test_who_is_admitted_meets_the_deadline_and_who_cannot_be_is_dropped() -> None:
    policy = ElasticFlow(interval_s=60)
    outcome = simulated(
        policy, [(0, 7200, 7200), (0, 7200, 3600), (60, 14_000, 1800), (60, 600, 1800)]
    )
    assert outcome.end[0] <= 7200
    assert outcome.end[1] <= 3600
    assert outcome.end[2] == NEVER
    assert outcome.end[3] <= 1800


def test_with_loosened_deadlines_nobody_is_dropped() -> None:
    policy = ElasticFlow(interval_s=60, late="wait")
    rows = [(0.0, 7200.0, 3600.0), (60.0, 14_000.0, 1800.0)]
    outcome = simulated(policy, rows)
    assert outcome.end[0] <= 3600
    assert outcome.end[1] < NEVER


@settings(max_examples=15)
@given(st.integers(0, 10**6))
def test_whoever_is_not_dropped_meets_the_deadline(seed: int) -> None:
    draw = np.random.default_rng(seed)
    at = np.cumsum(draw.exponential(900, 12))
    work = draw.lognormal(8, 0.9, 12)
    due = at + work * draw.uniform(0.3, 1.7, 12)
    rows = list(zip(at.tolist(), work.tolist(), due.tolist(), strict=True))
    ends = simulated(ElasticFlow(interval_s=60), rows).end
    assert all(
        end == NEVER or end <= deadline + 1e-6 for end, deadline in zip(ends, due, strict=True)
    )


def test_who_was_refused_takes_nothing_from_who_was_promised() -> None:
    # The second cannot be promised its deadline, which is the earlier one.
    rows = [(0.0, 6800.0, 3120.0), (0.0, 11_200.0, 3000.0)]
    assert simulated(ElasticFlow(interval_s=60), rows).end[1] == NEVER
    outcome = simulated(ElasticFlow(interval_s=60, late="wait"), rows)
    assert outcome.end[0] <= 3120
    assert max(outcome.end) < NEVER


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.floats(1, 5e4), st.floats(60, 2e4)), min_size=1, max_size=8),
    st.integers(0, 4),
    st.integers(1, 16),
)
def test_admission_is_by_the_shares_of_all(
    works: list[tuple[float, float]], known: int, capacity: int
) -> None:
    demands = [demand(index, *one) for index, one in enumerate(works)]
    ends = slot_ends(300.0, max(due for _, due in works))
    found, refused = admit(demands[:known], demands[known:], capacity, ends)
    gone = {one.job.index for one in refused}
    kept = [one for one in demands if one.job.index not in gone]
    whole = shares(kept, capacity, ends)
    assert set(found) == set(whole)
    for index, one in whole.items():
        other = found[index]
        assert (one is None) == (other is None)
        assert one is None or other is None or (one.plan == other.plan).all()
    for one in kept[known:]:
        assert whole[one.job.index] is not None


def test_who_is_seen_late_is_admitted_as_others_are() -> None:
    class Slow(Estimator):
        def latency_s(self, job: Job) -> float:
            return 600.0 if job.index else 0.0

    rows = [(0.0, 3.8 * 3600, 3600.0), (0.0, 2000.0, 1800.0), (0.0, 14_000.0, 2000.0)]
    outcome = simulated(ElasticFlow(interval_s=60), rows, Slow())
    assert outcome.end[0] <= 3600
    assert outcome.end[2] == NEVER, "it cannot end in time, and is dropped when it is first seen"


def test_what_promises_leave_over_is_used() -> None:
    outcome = simulated(ElasticFlow(interval_s=60), [(0, 3600, 86_400)])
    assert outcome.end[0] == pytest.approx(3600 / 4.0)


def test_jobs_without_deadlines_share_what_there_is() -> None:
    rows = [(0.0, 3600.0, NEVER)] * 4
    outcome = simulated(ElasticFlow(interval_s=60), rows)
    assert max(outcome.end) <= 3600 / 1.8 + 60  # two GPUs each, more as others end
    assert outcome.first_start == [0.0] * 4


def test_without_suspension_who_runs_goes_on() -> None:
    late = [(0.0, 36_000.0, NEVER), (600.0, 14_000.0, 4200.0)]
    for suspend in (True, False):
        outcome = simulated(ElasticFlow(interval_s=60, suspend=suspend), late)
        parts = sorted((part.start, part.end) for part in outcome.segments if part.job == 0)
        gap = any(b[0] > a[1] for a, b in pairwise(parts))
        assert gap == suspend


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(UsageError, match="late=never"):
        ElasticFlow(late="never")


def test_time_needed_counts_the_restart_only_where_the_size_changes() -> None:
    one = demand(0, 100.0, math.inf, held=2, change_s=10.0)
    assert one.rest_s(2) == pytest.approx(100 / 1.8)
    assert one.rest_s(4) == pytest.approx(100 / 3.0 + 10)
    assert one.rest_s(3) == math.inf
