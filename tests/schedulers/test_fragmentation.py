"""Fragmentation gradient descent: the fragment of a node by hand, and jobs where it grows least."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedmate.schedulers import Cluster, Job, Node
from schedmate.schedulers.fragmentation import (
    FragmentationSpace,
    Shapes,
    count_parts,
    remainder_values,
)
from schedmate.schedulers.policies.queues import Fifo
from schedmate.schedulers.sim.engine import Simulation
from schedmate.schedulers.sim.outcome.audit import audit
from schedmate.schedulers.sim.workload import Workload
from tests.schedulers.worlds import run


def asks(gpus: int, share: float = 1.0, cpus: float = 0.0, gpu_type: str = "") -> Job:
    return Job(f"{gpus}/{share}/{cpus}", 0, 0.0, gpus, share=share, cpus=cpus, gpu_type=gpu_type)


def test_a_fragment_is_what_expected_jobs_cannot_use() -> None:
    shapes = Shapes([asks(1, 0.5, 2), asks(2, 1.0, 4), asks(1, gpu_type="B")], ["A", "B"])
    left = np.array([[1.0, 0.4], [1.0, 1.0], [1.0, 1.0]])
    cpus, kind = np.array([8.0, 3.0, 8.0]), np.array([0, 0, 1])
    # The first node: 0.4 is too little for a half, two GPUs are not there, type B is not.
    # The second: enough for the half, too few processors for two GPUs.
    expected = [(0.4 + 1.4 + 1.4) / 3, (0.0 + 2.0 + 2.0) / 3, 0.0]
    assert shapes.fragments(left, cpus, kind) == pytest.approx(expected)


def test_rare_requests_do_not_count() -> None:
    many = [asks(1)] * 95 + [asks(4)] * 5
    assert len(Shapes(many, [""]).share) == 1
    assert len(Shapes(many, [""], popular=1.0).share) == 2


def test_a_part_of_a_gpu_goes_where_it_wastes_least() -> None:
    # Pairs of GPUs are expected as often as fractions: the node whose pair is broken already.
    cluster = Cluster((Node("a", 2), Node("b", 2)))
    space = FragmentationSpace(cluster, [asks(2), asks(1, 0.4)])
    assert space.place(asks(1)) == ((0, 1),)
    assert space.place(asks(1, 0.4)) == ((0, 2),)
    assert space.place(asks(1, 0.4)) == ((0, 2),)
    assert space.place(asks(2)) == ((1, 3),)
    assert space.place(asks(1)) is None


def test_what_is_given_back_can_be_had_again() -> None:
    cluster = Cluster((Node("a", 2, cpus=4),))
    space = FragmentationSpace(cluster, [asks(1)])
    job = asks(1, cpus=4)
    first = space.place(job)
    assert first is not None
    assert space.place(asks(1, cpus=1)) is None
    space.give(job, first)
    space.begin()
    assert space.place(job) == first
    space.rollback()
    assert space.place(job) == first


@pytest.mark.parametrize("seed", range(8))
def test_what_it_knows_of_requests_stays_true(seed: int) -> None:
    """After many changes, what is remembered is what a new space would find."""
    rng = random.Random(seed)
    cluster = Cluster(tuple(Node(f"n{n}", rng.choice((2, 4)), cpus=16) for n in range(5)))
    kinds = [asks(1, 0.3, 1), asks(1, 0.7, 2), asks(1, 1.0, 4), asks(2, 1.0, 3)]
    space, held = FragmentationSpace(cluster, kinds), []
    for step in range(120):
        if held and rng.random() < 0.4:
            space.give(*held.pop(rng.randrange(len(held))))
            continue
        job = rng.choice(kinds)
        fresh = FragmentationSpace(cluster, kinds)
        for other, allocation in held:
            fresh.take(other, allocation)
        found = space.find(job)
        assert found == fresh.find(job), step
        if found is not None:
            space.take(job, found)
            held.append((job, found))


def test_policies_run_on_it_as_on_any_space() -> None:
    rng = random.Random(0)
    rows = [(float(n), rng.uniform(5, 50), rng.choice((1, 1, 2, 4))) for n in range(60)]
    workload = Workload.of(rows)
    for job in workload.jobs:
        job.share = 0.5 if job.gpus == 1 and rng.random() < 0.5 else 1.0
    simulation = Simulation(
        workload,
        Fifo(backfill=True),
        Cluster.parse("3x4"),
        space=lambda cluster: FragmentationSpace(cluster, workload.jobs),
    )
    outcome = simulation.run()
    audit(workload, simulation.cluster, outcome)
    assert max(outcome.end) < 2 * max(run(workload, Fifo(backfill=True), "3x4").end)


def test_a_rest_is_worth_what_is_made_of_it() -> None:
    # 0.8 wastes its rest, which nobody asks for; pairs of 0.5 and triples of 0.3 make up a GPU.
    worth = remainder_values(count_parts([0.8, 0.5, 0.5, 0.3, 0.3, 0.3, 1.0]))
    assert worth[[190, 300, 500, 600, 800, 1000]] == pytest.approx([0, 1 / 3, 1 / 2, 2 / 3, 1, 1])
    assert (np.diff(worth) >= 0).all()


def test_what_completes_a_part_is_worth_what_the_part_leaves() -> None:
    # As many of 0.7 as of 0.3: together they are a GPU, so that their prices add up to one.
    worth = remainder_values({700: 50, 300: 50})
    assert worth[300] + worth[700] == pytest.approx(1.0)
    assert remainder_values({}).tolist() == [0.0] * 1000 + [1.0]


@settings(max_examples=30)
@given(st.dictionaries(st.integers(1, 999), st.integers(1, 50), min_size=1, max_size=6))
def test_no_way_to_cut_a_gpu_is_worth_more_than_the_gpu(parts: dict[int, int]) -> None:
    worth = remainder_values(parts)
    for one in parts:
        for other in parts:
            if one + other <= 1000:
                assert worth[one] + worth[other] <= worth[one + other] + 1e-6 <= 1 + 2e-6


def test_rests_are_kept_for_what_makes_most_of_them() -> None:
    # 0.2 could go beside 0.5 (where the rest of a half is spoilt for another half) or beside 0.8.
    jobs = [asks(1, 0.5)] * 6 + [asks(1, 0.8)] * 3 + [asks(1, 0.2)]
    space = FragmentationSpace(Cluster((Node("a", 1), Node("b", 1))), jobs, priced=True)
    assert space.place(asks(1, 0.5)) == ((0, 1),)
    assert space.place(asks(1, 0.8)) == ((1, 1),)
    assert space.place(asks(1, 0.2)) == ((1, 1),)
    assert space.place(asks(1, 0.5)) == ((0, 1),)


def test_a_pod_without_gpus_takes_processors_only() -> None:
    cluster = Cluster((Node("a", 1, cpus=4), Node("b", 1, cpus=8)))
    space = FragmentationSpace(cluster, [asks(1, cpus=4)])
    pod = asks(0, cpus=4)
    found = space.place(pod)
    assert found == ((1, 0),)  # where a pod with a GPU still has its processors
    assert space.spare(1)[0] == 4
    space.give(pod, found)
    assert space.spare(1)[0] == 8
