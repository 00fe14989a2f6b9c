"""Arena's scheduler: launching, scaling, and whole runs of large models on several GPU types."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedmate.errors import UsageError
from schedmate.schedulers.model import Cluster, Job
from schedmate.schedulers.parallelism.models import model
from schedmate.schedulers.parallelism.network import Network
from schedmate.schedulers.parallelism.performance import Kind, Performance
from schedmate.schedulers.parallelism.profile import Tables
from schedmate.schedulers.policies.arena import Arena
from schedmate.schedulers.policies.arena.scaling import Allocations, Size, launch, scale_up
from schedmate.schedulers.policies.gavel import Gavel
from schedmate.schedulers.policies.sia import Sia
from schedmate.schedulers.sim.elastic.planned import (
    Belief,
    Costs,
    PlannedPhysics,
    Submission,
    planned_workload,
)
from schedmate.schedulers.sim.engine.simulation import Simulation
from schedmate.schedulers.sim.outcome.audit import audit

CLUSTER = Cluster.parse("4x2:A40,4x2:A10")
PERFORMANCE = Performance(Network(Tables()), {"A40": 2, "A10": 2}, most=8)


def job(index: int, gpus: int = 2, **more: Any) -> Job:
    return Job(f"job{index}", index, float(index), gpus, **more)


SPEEDS: dict[Size, float] = {
    ("A40", 1): 1.0,
    ("A40", 2): 1.8,
    ("A40", 4): 2.4,
    ("A10", 2): 1.0,
    ("A10", 4): 1.7,
}


def same(_: Job) -> dict[Size, float]:
    return SPEEDS


def once(_: Job) -> float:
    return 1.0


def test_a_job_is_launched_where_a_gpu_does_most() -> None:
    now = Allocations({"A40": 4, "A10": 4})
    found = launch(job(0), same, now, 3, once)
    assert found is not None
    assert list(found.held.values()) == [("A40", 1)]
    assert now.held == {}  # what was tried is not what is


def test_another_is_scaled_down_where_nothing_is_free() -> None:
    now = Allocations({"A40": 4, "A10": 0})
    first = job(0)
    now.set(first, ("A40", 4))
    found = launch(job(1), same, now, 3, once)
    assert found is not None
    assert found.held[first] == ("A40", 2)
    assert launch(job(1), same, now, 0, once) is None


def test_the_last_gpu_of_a_job_is_never_taken() -> None:
    now = Allocations({"A40": 2, "A10": 0})
    for index in range(2):
        now.set(job(index), ("A40", 1))
    assert launch(job(2), same, now, 10, once) is None


def test_idle_gpus_go_to_whoever_gains_most() -> None:
    now = Allocations({"A40": 3, "A10": 0})
    small, other = job(0), job(1)
    now.set(small, ("A40", 1))
    now.set(other, ("A10", 2))
    now.free["A10"] = 0
    scale_up(same, now, 1, once, 0.1)
    assert now.held[small] == ("A40", 2) or now.held[other][0] == "A40"
    gains = {
        small: SPEEDS[now.held[small]] - 1.0,
        other: SPEEDS[now.held[other]] - SPEEDS["A10", 2],
    }
    assert max(gains.values()) == pytest.approx(0.8)


def test_jobs_that_are_being_moved_are_left_alone() -> None:
    now = Allocations({"A40": 4, "A10": 4})
    one = job(0)
    now.set(one, ("A40", 1))
    now.pinned.add(one)
    scale_up(same, now, 5, once, 0.1)
    assert now.held[one] == ("A40", 1)


@settings(max_examples=100, deadline=None)
@given(
    held=st.lists(st.sampled_from(sorted(SPEEDS)), max_size=4),
    spare=st.tuples(st.integers(0, 8), st.integers(0, 8)),
    depth=st.integers(0, 5),
    speeds=st.lists(st.floats(0.1, 4), min_size=len(SPEEDS), max_size=len(SPEEDS)),
)
def test_nothing_is_given_twice_and_nobody_loses_everything(
    held: list[Size], spare: tuple[int, int], depth: int, speeds: list[float]
) -> None:
    options = dict(zip(SPEEDS, speeds, strict=True))
    now = Allocations({"A40": spare[0], "A10": spare[1]})
    total = dict(now.free)
    for index, size in enumerate(held):
        total[size[0]] += size[1]
        now.free[size[0]] += size[1]
        now.set(job(index), size)
    found = launch(job(99), lambda _: options, now, depth, once) or now
    scale_up(lambda _: options, found, depth, once, 0.1)
    assert all(left >= 0 for left in found.free.values())
    assert {one.index for one in found.held} >= set(range(len(held)))
    for gpu_type, count in total.items():
        used = sum(gpus for kind, gpus in found.held.values() if kind == gpu_type)
        assert used + found.free[gpu_type] == count


def test_jobs_that_wait_long_move_up_a_queue() -> None:
    policy = Arena(queues=3, promote_s=100)
    low, high = job(0), job(0, priority=2)
    assert [policy.level(low, at) for at in (0, 100, 250, 9999)] == [3, 2, 1, 1]
    assert policy.level(high, 0) == 1


@pytest.mark.parametrize("settings", [{"queues": 0}, {"depth": -1}])
def test_settings_that_cannot_be_are_refused(settings: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="policy arena"):
        Arena(**settings)  # type: ignore[arg-type]


def rows(count: int, seed: int = 0) -> list[Submission]:
    draw = random.Random(seed)
    return [Submission(draw.uniform(0, 7200), draw.uniform(300, 7200)) for _ in range(count)]


def simulated(policy: Any, belief: Belief = "adaptive", *, rigid: bool = False) -> Any:
    workload, kinds = planned_workload("drawn", rows(40), PERFORMANCE, 3, rigid=rigid)
    physics = PlannedPhysics(workload, kinds, PERFORMANCE, CLUSTER, belief, Costs(profile_s=500))
    simulation = Simulation(workload, policy, CLUSTER, physics=physics, observers=[physics])
    outcome = simulation.run()
    audit(workload, simulation.cluster, outcome)
    return workload, outcome


@pytest.mark.parametrize(
    ("policy", "belief"),
    [
        (Arena(), "adaptive"),
        (Arena(elastic=False), "adaptive"),
        (Arena(hetero=False, remaining=True), "adaptive"),
        (Arena(), "data-parallel"),
        (Sia(profile_s=0, interval_s=300), "data-parallel"),
        (Gavel(), "data-parallel"),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_all_jobs_end_on_gpus_of_one_type(policy: Any, belief: Belief) -> None:
    workload, outcome = simulated(policy, belief)
    assert all(end > 0 for end in outcome.end)
    for segment in outcome.segments:
        types = {CLUSTER.nodes[node].gpu_type for node, _ in segment.allocation}
        assert len(types) == 1
    done = dict.fromkeys(range(len(workload.jobs)), 0.0)
    for segment in outcome.segments:
        done[segment.job] += segment.work
    for index, work in done.items():
        assert work == pytest.approx(workload.columns["samples"][index])


def test_elasticity_makes_the_cluster_do_more() -> None:
    def makespan(policy: Arena) -> float:
        return max(simulated(policy)[1].end)

    assert makespan(Arena()) < makespan(Arena(elastic=False))


def test_adaptive_parallelism_reaches_sizes_that_copies_do_not() -> None:
    kind = Kind(model("gpt-2.6b"), 128, 1024, "bf16")
    adaptive, copied = PERFORMANCE.adaptive(kind), PERFORMANCE.data_parallel(kind)
    assert set(copied) < set(adaptive)
    for size, speed in copied.items():
        assert adaptive[size] >= 0.99 * speed
