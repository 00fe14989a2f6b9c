"""What makes Lucid's decisions quick changes nothing about them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate, pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedmate.schedulers.estimators import Load, Table
from schedmate.schedulers.lanes import Lanes
from schedmate.schedulers.model import Cluster, Job, Profile
from schedmate.schedulers.registry import make
from schedmate.schedulers.sim.engine import Simulation
from schedmate.schedulers.sim.record import Outcome
from schedmate.schedulers.sim.workload import Workload
from schedmate.schedulers.space import Space

USES = [None, None, Profile(10.0, 5.0, 2000.0), Profile(60.0, 20.0, 8000.0)]
ROWS = st.tuples(
    st.integers(0, 60).map(lambda n: n * 40.0),
    st.integers(0, 200).map(lambda n: n * 10.0),
    st.sampled_from([1, 1, 1, 2, 3, 4, 8, 12]),
    st.sampled_from(USES),
)


def run(rows: list[Any], policy: str) -> Outcome:
    workload = Workload.of([row[:3] for row in rows], profiles=[row[3] for row in rows])
    simulation = Simulation(
        workload, make(policy), Cluster.parse("6x4"), estimator=Table(workload.duration_s)
    )
    return simulation.run()


@settings(max_examples=30)
@given(
    rows=st.lists(ROWS, min_size=1, max_size=40),
    policy=st.sampled_from(["lucid", "lucid:capacity=-1", "lucid:backfill=false", "lucid:burst=2"]),
)
def test_who_is_not_offered_would_not_have_been_accepted(rows: list[Any], policy: str) -> None:
    quick = run(rows, policy)
    walk = Lanes.walk
    with pytest.MonkeyPatch.context() as patched:

        def whole(self: Lanes, accept: Callable[[Job], object], _hopeless: object = None) -> Any:
            return walk(self, accept)

        patched.setattr(Lanes, "walk", whole)
        slow = run(rows, policy)
    assert quick.segments == slow.segments
    assert quick.decisions == slow.decisions


@settings(max_examples=40)
@given(
    taken=st.lists(st.integers(1, 13), max_size=12),
    gpus=st.integers(1, 24),
    share=st.sampled_from([1.0, 1.0, 0.5]),
    cluster=st.sampled_from(["3x8", "2x4,2x8", "2x4:T4,1x8:A100", "1x8@a,2x4@b"]),
)
def test_where_space_is_full_nothing_is_found(
    taken: list[int], gpus: int, share: float, cluster: str
) -> None:
    space = Space(Cluster.parse(cluster))
    for index, size in enumerate(taken):
        space.place(Job(str(index), index, 0.0, size, vc="a" if "@" in cluster else ""))
    job = Job("new", 99, 0.0, gpus if share == 1.0 else 1, share=share)
    space.find(job)  # from here on its pool is known
    if space.full(job):
        assert space.find(job) is None


def counted(times: list[float], asked: list[int], now: float) -> float:
    """The forecast by counting: the last hour, and the same hour of the seven days before."""
    sums = [sum(gpus for at, gpus in zip(times, asked, strict=True) if now - 3600 <= at < now)]
    for day in range(1, 8):
        begin = now - day * 86_400
        if not times or begin < times[0]:
            break
        hour = (begin, begin + 3600)
        sums.append(
            sum(gpus for at, gpus in zip(times, asked, strict=True) if hour[0] <= at < hour[1])
        )
    return max(sums[0], sum(sums) / len(sums)) / 6


@settings(max_examples=30)
@given(
    gaps=st.lists(st.integers(0, 40).map(lambda n: n * 1800.0), min_size=1, max_size=80),
    sizes=st.lists(st.integers(1, 8), min_size=80, max_size=80),
)
def test_the_forecast_counts_the_same_hours(gaps: list[float], sizes: list[int]) -> None:
    load, came, asked = Load(), list[float](), [0]
    for now, gpus in zip(accumulate(gaps), sizes, strict=False):
        came.append(now)
        asked.append(asked[-1] + gpus)
        each = [after - before for before, after in pairwise(asked)]
        for later in (now, now + 0.5):
            assert load.expected(came, later) == pytest.approx(
                counted(came, [1] * len(came), later)
            )
            assert load.expected_gpus(came, asked, later) == pytest.approx(
                counted(came, each, later)
            )
