"""Arena's scheduler: launching, scaling, and whole runs of large models on several GPU types."""

from __future__ import annotations

import random
from typing import Any

import pytest
from _performance import ModelJob, Performance
from _planned import (
    Belief,
    Costs,
    Errors,
    Freedom,
    PlannedPhysics,
    Submission,
    planned_workload,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from schedmate.base.errors import UsageError
from schedmate.schedulers.goodput import Size
from schedmate.schedulers.model import NEVER, Cluster, Job
from schedmate.schedulers.parallelism.models import find_model
from schedmate.schedulers.parallelism.network import Network
from schedmate.schedulers.parallelism.profile import Tables
from schedmate.schedulers.policies.arena import (
    Allocations,
    Arena,
    Deadlines,
    Fairness,
    Objective,
    Prospect,
    Scaling,
)
from schedmate.schedulers.policies.elasticflow import ElasticFlow
from schedmate.schedulers.policies.gavel import Gavel
from schedmate.schedulers.policies.sia import Sia
from schedmate.schedulers.sim.engine import Simulation
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


def scaling(now: Allocations, speeds: dict[Size, float] = SPEEDS) -> Scaling:
    return Scaling(now, lambda _: Prospect(speeds), Objective())


def test_a_job_is_launched_where_a_gpu_does_most() -> None:
    now = Allocations({"A40": 4, "A10": 4})
    assert scaling(now).launch(job(0), 3)
    assert list(now.held.values()) == [("A40", 1)]


def test_another_is_scaled_down_where_nothing_is_free() -> None:
    now = Allocations({"A40": 4, "A10": 0})
    first = job(0)
    now.set(first, ("A40", 4))
    assert not scaling(now).launch(job(1), 0)
    assert now.held == {first: ("A40", 4)}  # what was tried is not what is
    assert scaling(now).launch(job(1), 3)
    assert now.held[first] == ("A40", 2)


def test_the_last_gpu_of_a_job_is_never_taken() -> None:
    now = Allocations({"A40": 2, "A10": 0})
    for index in range(2):
        now.set(job(index), ("A40", 1))
    assert not scaling(now).launch(job(2), 10)


def test_a_job_that_cannot_be_launched_leaves_everything_as_it_was() -> None:
    now = Allocations({"A40": 8, "A10": 0})
    for index in range(2):
        now.set(job(index), ("A40", 4))
    before = dict(now.held)
    large = {("A40", 8): 1.0}
    rules = Scaling(now, lambda one: Prospect(large if one.index == 9 else SPEEDS), Objective())
    assert not rules.launch(job(9), 3)
    assert now.held == before
    assert now.free == {"A40": 0, "A10": 0}
    assert rules.launch(job(3), 3)  # one that needs less is not given up with it


def test_a_job_is_launched_on_more_gpus_where_they_are_idle_and_worth_it() -> None:
    for least, size in ((0.3, ("A40", 4)), (0.5, ("A40", 2)), (0.9, ("A40", 1))):
        now = Allocations({"A40": 8, "A10": 0})
        rules = scaling(now)
        assert rules.launch(job(0), 3)
        rules.enlarge(least)
        assert list(now.held.values()) == [size]  # twice the GPUs gain 80 %, then 33 %


def test_only_what_is_launched_now_is_enlarged() -> None:
    now = Allocations({"A40": 4, "A10": 0})
    running = job(0)
    now.set(running, ("A40", 1))
    rules = scaling(now)
    assert rules.launch(job(1), 3)
    rules.enlarge(0.1)
    assert now.held[running] == ("A40", 1)
    assert sum(gpus for _, gpus in now.held.values()) == 3


def test_idle_gpus_go_to_whoever_gains_most() -> None:
    now = Allocations({"A40": 3, "A10": 0})
    small, other = job(0), job(1)
    now.set(small, ("A40", 1))
    now.set(other, ("A10", 2))
    now.free["A10"] = 0
    scaling(now).scale_up(1, 0.1)
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
    scaling(now).scale_up(5, 0.1)
    assert now.held[one] == ("A40", 1)


@settings(max_examples=40)
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
    rules = scaling(now, options)
    for index in (97, 98, 99):
        rules.launch(job(index), depth)
    rules.scale_up(depth, 0.1)
    assert all(left >= 0 for left in now.free.values())
    assert {one.index for one in now.held} >= set(range(len(held)))
    for gpu_type, count in total.items():
        used = sum(gpus for kind, gpus in now.held.values() if kind == gpu_type)
        assert used + now.free[gpu_type] == count


def test_only_sizes_on_which_a_deadline_is_met_are_offered() -> None:
    one = Prospect(SPEEDS, left_s=1000, change_s=100, deadline_s=900)
    assert set(Deadlines().sizes(one)) == {("A40", 2), ("A40", 4), ("A10", 4)}
    # What it has needs no restart, and no margin: 1000 / 1.0 + 0 <= 1000.
    held = Prospect(SPEEDS, ("A10", 2), left_s=1000, change_s=500, deadline_s=1000)
    assert set(Deadlines().sizes(held)) == {("A40", 4), ("A10", 2)}
    assert not Deadlines().sizes(Prospect(SPEEDS, left_s=1000, deadline_s=300))
    assert Deadlines().sizes(Prospect(SPEEDS, left_s=1000)) == SPEEDS


def test_fairness_serves_whoever_is_treated_worst() -> None:
    now = Allocations({"A40": 6})
    young, old = job(0), job(1)
    for one in (young, old):
        now.set(one, ("A40", 1))
    now.free["A40"] = 1
    ages = {young: 0.0, old: 5000.0}

    def prospect(one: Job) -> Prospect:
        return Prospect(SPEEDS, now.held[one], 1000, 1000, ages[one])

    Scaling(now, prospect, Fairness()).scale_up(1, 0.1)
    assert now.held == {young: ("A40", 1), old: ("A40", 2)}


def test_with_the_time_left_a_job_that_ends_soon_is_not_moved() -> None:
    short = Prospect(SPEEDS, ("A40", 1), left_s=300, change_s=330)
    long = Prospect(SPEEDS, ("A40", 1), left_s=30_000, change_s=330)
    change = ("A40", 1), ("A40", 2)
    assert Objective().gain(short, *change) == Objective().gain(long, *change)
    weighed = Objective(remaining=True)
    assert weighed.gain(short, *change)[0] == 0.0 < weighed.gain(long, *change)[0]


def test_jobs_that_wait_long_move_up_a_queue() -> None:
    policy = Arena(queues=3, promote_s=100)
    low, high = job(0), job(0, priority=2)
    assert [policy.level(low, at) for at in (0, 100, 250, 9999)] == [3, 2, 1, 1]
    assert policy.level(high, 0) == 1


@pytest.mark.parametrize("settings", [{"queues": 0}, {"depth": -1}, {"objective": "thruput"}])
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="policy arena"):
        Arena(**settings)


def rows(count: int, seed: int = 0) -> list[Submission]:
    draw = random.Random(seed)
    return [Submission(draw.uniform(0, 7200), draw.uniform(300, 7200)) for _ in range(count)]


def simulated(
    policy: Any,
    belief: Belief = "adaptive",
    freedom: Freedom = "both",
    deadlines: tuple[float, float] | None = None,
) -> Any:
    workload, kinds = planned_workload(
        "drawn", rows(28), PERFORMANCE, 3, freedom=freedom, deadlines=deadlines
    )
    costs, errors = Costs(profile_s=500), Errors()
    physics = PlannedPhysics(workload, kinds, PERFORMANCE, CLUSTER, belief, costs, errors)
    simulation = Simulation(workload, policy, CLUSTER, physics=physics, observers=[physics])
    outcome = simulation.run()
    audit(workload, simulation.cluster, outcome)
    return workload, outcome


@pytest.mark.parametrize(
    ("policy", "belief", "freedom"),
    [
        (Arena(), "adaptive", "both"),
        (Arena(elastic=False), "adaptive", "type"),
        (Arena(hetero=False, remaining=True), "adaptive", "count"),
        (Arena(objective="fairness"), "adaptive", "both"),
        (Arena(), "data-parallel", "both"),
        (ElasticFlow(), "data-parallel", "count"),
        (ElasticFlow(suspend=False), "adaptive", "both"),
        (Sia(profile_s=0, interval_s=300), "bootstrapped", "both"),
        (Gavel(), "data-parallel", "type"),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_all_jobs_end_on_gpus_of_one_type(policy: Any, belief: Belief, freedom: Freedom) -> None:
    workload, outcome = simulated(policy, belief, freedom)
    assert all(0 < end < NEVER for end in outcome.end)
    for segment in outcome.segments:
        types = {CLUSTER.nodes[node].gpu_type for node, _ in segment.allocation}
        assert len(types) == 1
        wanted = workload.jobs[segment.job].gpu_type
        assert wanted in ("", *types)
    done = dict.fromkeys(range(len(workload.jobs)), 0.0)
    for segment in outcome.segments:
        done[segment.job] += segment.work
    for index, work in done.items():
        assert work == pytest.approx(workload.columns["samples"][index])


@pytest.mark.parametrize(
    ("policy", "belief", "freedom"),
    [
        (Arena(), "adaptive", "both"),
        (ElasticFlow(suspend=False), "data-parallel", "count"),
        (Sia(profile_s=0, interval_s=300, suspend=False), "bootstrapped", "both"),
        (Gavel(suspend=False), "data-parallel", "type"),
        (Gavel(objective="max-sum", suspend=False), "adaptive", "type"),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_a_job_that_was_admitted_is_never_suspended(
    policy: Any, belief: Belief, freedom: Freedom
) -> None:
    _, outcome = simulated(policy, belief, freedom)
    ends: dict[int, float] = {}
    for segment in sorted(outcome.segments, key=lambda one: (one.job, one.start)):
        assert ends.setdefault(segment.job, segment.start) == segment.start
        ends[segment.job] = segment.end


def test_jobs_are_dropped_whose_deadlines_cannot_be_met_and_the_others_meet_theirs() -> None:
    workload, outcome = simulated(Arena(objective="deadline"), deadlines=(0.5, 3.0))
    ended = [job for job in workload.jobs if outcome.end[job.index] < NEVER]
    assert 0 < len(ended) < len(workload.jobs)
    met = [outcome.end[job.index] <= job.terms.deadline for job in ended]
    # Throughputs are estimates: one that ends a little late is no surprise, many are.
    assert sum(met) >= 0.9 * len(met)
    _, blind = simulated(Arena(), deadlines=(0.5, 3.0))
    in_time = sum(blind.end[job.index] <= job.terms.deadline for job in workload.jobs)
    assert sum(met) > in_time


def test_elasticity_makes_the_cluster_do_more() -> None:
    def makespan(policy: Arena, freedom: Freedom) -> float:
        return max(simulated(policy, freedom=freedom)[1].end)

    assert makespan(Arena(), "both") < makespan(Arena(elastic=False), "type")


def test_adaptive_parallelism_reaches_sizes_that_copies_do_not() -> None:
    kind = ModelJob(find_model("gpt-2.6b"), 128, 1024, "bf16")
    adaptive, copied = PERFORMANCE.adaptive(kind), PERFORMANCE.data_parallel(kind)
    assert set(copied) < set(adaptive)
    for size, speed in copied.items():
        assert adaptive[size] >= 0.99 * speed
