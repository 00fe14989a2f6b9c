"""Pollux' genetic search: within all limits, near the optimum, and the same again."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedmate.base.errors import UsageError
from schedmate.schedulers.goodput import Shape
from schedmate.schedulers.model import Cluster, Job
from schedmate.schedulers.policies.pollux import (
    Pollux,
    Problem,
    _best_members,
    _with_room,
    search_allocations,
)
from schedmate.schedulers.sim.parameters import HONEST
from schedmate.schedulers.sim.runs import Plan, run_policy
from schedmate.schedulers.sim.workload import Workload


def problem(
    free: list[int], kinds: list[int], ranges: list[tuple[int, int]], keeps: float = 1.0
) -> Problem:
    """Jobs that have nothing yet and scale like the root of their GPUs, worse over nodes."""
    shape = (len(ranges), len(free))
    low, high = np.array(ranges, dtype=np.int16).T
    return Problem(
        held=np.zeros(shape, np.int16),
        most=np.broadcast_to(np.array(free, np.int16), shape).copy(),
        free=np.array(free, np.int16),
        kinds=np.array(kinds),
        low=low,
        high=high,
        keeps=np.full(len(ranges), keeps),
        speedup=lambda job, nodes, gpus: gpus**0.5 * 0.9 ** (nodes - 1),
        p=-1.0,
    )


nodes = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 1)), min_size=1, max_size=4)
jobs = st.lists(st.sampled_from([(1, 1), (1, 4), (2, 2), (1, 16), (3, 8)]), min_size=1, max_size=5)


@settings(max_examples=30)
@given(nodes, jobs, st.integers(0, 3))
def test_whatever_it_finds_can_be_carried_out(
    some: list[tuple[int, int]], ranges: list[tuple[int, int]], seed: int
) -> None:
    free, kinds = (list(one) for one in zip(*some, strict=True))
    asked = problem(free, kinds, ranges)
    found = search_allocations(asked, 10, 5, seed)
    assert (found == search_allocations(asked, 10, 5, seed)).all()
    assert found.shape == (len(ranges), len(free))
    assert (found >= 0).all()
    assert (found.sum(axis=0) <= free).all()
    for row, (low, high) in zip(found, ranges, strict=True):
        assert row.sum() == 0 or low <= row.sum() <= high
        assert len({kind for kind, count in zip(kinds, row, strict=True) if count}) <= 1
    spread = found[np.count_nonzero(found, axis=1) > 1]
    assert (np.count_nonzero(spread, axis=0) <= 1).all()


def test_it_comes_to_the_best_there_is() -> None:
    asked = problem([4, 4], [0, 0], [(1, 8), (1, 4), (2, 2)])

    def value(state: np.ndarray) -> float:
        gpus = state.sum(axis=1)
        speed = np.sqrt(gpus) * 0.9 ** np.maximum(np.count_nonzero(state, axis=1) - 1, 0)
        return float(1 / ((speed * 2 / 8 + 1e-3) ** -1.0).mean())

    every = (
        np.array(one).reshape(3, 2)
        for one in product(range(5), repeat=6)
        if sum(one[0::2]) <= 4 and sum(one[1::2]) <= 4 and one[4] + one[5] in (0, 2)
    )
    best = max(value(one) for one in every if one[1].sum() <= 4)
    assert value(search_allocations(asked, 50, 40, 0)) == pytest.approx(best, rel=0.02)


def test_who_loses_much_by_a_change_is_left_alone() -> None:
    asked = problem([4, 4], [0, 0], [(1, 4), (1, 4)], keeps=0.5)
    asked.held[:] = [[2, 0], [0, 2]]
    assert (search_allocations(asked, 30, 20, 0) == asked.held).all()
    free = problem([4, 4], [0, 0], [(1, 4), (1, 4)])
    free.held[:] = asked.held
    assert search_allocations(free, 30, 20, 0).sum() == 8


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=30))
def test_the_better_fronts_come_first(pairs: list[tuple[int, int]]) -> None:
    values = np.array(pairs, dtype=float)
    order = _best_members(values, len(pairs))
    assert sorted(order) == list(range(len(pairs)))

    def beats(one: int, other: int) -> bool:
        first, second = values[one], values[other]
        return bool((first <= second).all() and (first < second).any())

    left, fronts = set(range(len(pairs))), []
    while left:
        fronts.append({one for one in left if not any(beats(other, one) for other in left)})
        left -= fronts[-1]
    place = {one: number for number, front in enumerate(fronts) for one in front}
    ranks = [place[one] for one in order.tolist()]
    assert ranks == sorted(ranks)
    # Where not all of a front are kept, its ends are.
    kept = set(_best_members(values, 2).tolist())
    if len(fronts[0]) > 1:
        assert values[list(kept), 0].min() == values[:, 0].min()
        assert values[list(kept), 1].min() == values[:, 1].min()


def test_the_optimum_is_put_on_the_fewest_nodes() -> None:
    cluster = Cluster.parse("4x2:old,2x8:new,1x8:newer")
    wide, narrow, other = Shape("old", 4, 8), Shape("new", 1, 8), Shape("newer", 1, 8)
    job = Job("a", 0, 0.0, 8)
    job.allocation = ((0, 3), (1, 3), (2, 3), (3, 3))
    room = {"old": 8, "new": 16, "newer": 8}
    assert _with_room(job, [wide, narrow, other], room, cluster) == narrow
    assert _with_room(job, [wide, narrow, other], {**room, "new": 4, "newer": 0}, cluster) == wide
    job.allocation = ((6, 255),)
    assert _with_room(job, [wide, narrow, other], room, cluster) == other
    assert _with_room(job, [narrow], {"new": 4}, cluster) is None


def test_jobs_of_one_size_run_by_it_too() -> None:
    workload = Workload.of([(float(n), 300.0, 1 + n % 3) for n in range(8)])
    policy = "pollux:search=genetic:population=20:generations=10"
    run = run_policy(workload, Plan((policy,), Cluster.parse("2x4"), "none", HONEST), policy)
    assert all(
        sum(mask.bit_count() for _, mask in one.allocation) == workload.jobs[one.job].gpus
        for one in run.outcome.segments
    )


@pytest.mark.parametrize("setting", [{"population": 1}, {"generations": 0}])
def test_a_search_of_nothing_is_refused(setting: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="population must be at least 2"):
        Pollux(search="genetic", **setting)  # type: ignore[arg-type]
