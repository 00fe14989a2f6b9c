"""Pods, labels, switches and groups: where a job may go, and that the audit knows."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedmate.base.errors import InputError
from schedmate.schedulers import Cluster, Constraints, Job, Migrate, Node, Start
from schedmate.schedulers.policies.preemptive import Tiresias
from schedmate.schedulers.policies.queues import Fifo
from schedmate.schedulers.sim.actions import DecisionError
from schedmate.schedulers.sim.outcome.audit import LawBrokenError, audit, check_laws
from schedmate.schedulers.sim.workload import Workload
from schedmate.schedulers.space import Space
from tests.schedulers.worlds import Scripted, job, nodes, run


def asking(gpus: int, index: int = 0, cpus: float = 0, **constraints: object) -> Job:
    found = Constraints(**constraints)  # type: ignore[arg-type]
    return Job(str(index), index, 0.0, gpus, cpus=cpus, constraints=found)


def counts(space: Space, wanted: Job) -> list[tuple[int, int]] | None:
    found = space.find(wanted)
    return None if found is None else [(node, mask.bit_count()) for node, mask in found]


def test_pods_are_not_split_and_fill_as_few_nodes_as_can_be() -> None:
    space = Space(nodes(8, 8, 8, 8))
    assert counts(space, asking(12, pods=4)) == [(0, 6), (1, 6)]
    assert counts(space, asking(12, pods=3)) == [(0, 8), (1, 4)]
    assert counts(space, asking(15, pods=3)) == [(0, 5), (1, 5), (2, 5)]
    assert counts(space, asking(30, pods=5)) is None
    # A pod larger than any node has no place.
    assert counts(space, asking(18, pods=2)) is None
    # The rest goes to the node that it fills best.
    assert space.take(Job("x", 9, 0.0, 4), ((2, 15),))
    assert counts(space, asking(12, pods=3)) == [(0, 8), (2, 4)]


def test_processors_go_with_each_pod() -> None:
    cluster = Cluster(tuple(Node(f"n{n}", 8, cpus=10) for n in range(3)))
    space = Space(cluster)
    assert counts(space, asking(6, pods=3, cpus=15)) == [(0, 4), (1, 2)]
    assert space.take(asking(6, pods=3, cpus=15), ((0, 15), (1, 3)))
    # 2.5 processors a pod: none are left on the first node, 5 on the second, 10 on the third.
    assert counts(space, asking(2, index=1, pods=2, cpus=14)) is None
    assert counts(space, asking(2, index=1, pods=2, cpus=10)) == [(2, 2)]
    assert counts(space, asking(3, index=1, pods=3, cpus=15)) == [(1, 1), (2, 2)]


def test_labels_and_switches() -> None:
    cluster = Cluster(
        tuple(
            Node(f"n{n}", 4, switch="ab"[n // 3], labels=(("disk", "ssd" if n % 2 else "hdd"),))
            for n in range(6)
        )
    )
    space = Space(cluster)
    assert counts(space, asking(2, require=(("disk", "ssd"),))) == [(1, 2)]
    assert counts(space, asking(2, require=(("disk", "nvme"),))) is None
    assert counts(space, asking(8, within_switch=True)) == [(0, 4), (1, 4)]
    # Of two switches with room, the one with less of it.
    assert space.take(Job("x", 9, 0.0, 2), ((3, 3),))
    assert counts(space, asking(8, within_switch=True)) == [(4, 4), (5, 4)]
    assert counts(space, asking(10, pods=5, within_switch=True)) == [(3, 2), (4, 4), (5, 4)]
    assert counts(space, asking(16, within_switch=True)) is None
    assert counts(space, asking(16)) == [(0, 4), (1, 4), (2, 4), (4, 4)]


def test_groups_keep_apart_in_both_directions_until_they_leave() -> None:
    space = Space(nodes(4, 4))
    loud = asking(1, group="loud")
    quiet = asking(1, 1, avoid=frozenset({"loud"}))
    assert space.place(loud) == ((0, 1),)
    assert space.place(quiet) == ((1, 1),)
    assert space.find(asking(1, 2, group="loud")) == ((0, 2),)
    space.give(quiet, ((1, 1),))
    assert space.find(asking(4, 2, group="loud")) == ((1, 15),)
    apart = asking(2, 3, pods=2, group="me", avoid=frozenset({"me"}))
    assert counts(space, apart) == [(0, 1), (1, 1)]
    assert not space.take(apart, ((1, 3),))


@settings(max_examples=40)
@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    held=st.lists(st.integers(0, 4), min_size=4, max_size=4),
    labelled=st.lists(st.booleans(), min_size=4, max_size=4),
    each=st.integers(1, 3),
    pods=st.integers(1, 4),
    apart=st.booleans(),
)
def test_a_gang_has_a_place_whenever_there_is_one(
    sizes: list[int],
    held: list[int],
    labelled: list[bool],
    each: int,
    pods: int,
    apart: bool,
) -> None:
    cluster = Cluster(
        tuple(
            Node(f"n{n}", size, labels=(("good", "yes"),) if labelled[n] else ())
            for n, size in enumerate(sizes)
        )
    )
    space = Space(cluster)
    for node, size in enumerate(sizes):
        if taken := min(held[node], size):
            assert space.take(Job(f"x{node}", 10 + node, 0.0, taken), ((node, (1 << taken) - 1),))
    constraints = {"pods": pods, "require": (("good", "yes"),)}
    if apart:
        constraints |= {"group": "g", "avoid": frozenset({"g"})}
    wanted = asking(each * pods, **constraints)
    room = [
        (size - min(held[node], size)) // each if labelled[node] else 0
        for node, size in enumerate(sizes)
    ]
    room = [min(one, 1) if apart else one for one in room]
    found = space.find(wanted)
    assert (found is not None) == (sum(room) >= pods)
    if found is not None:
        fewest = next(
            n
            for n in range(1, len(room) + 1)
            if any(sum(some) >= pods for some in itertools.combinations(room, n))
        )
        assert len(found) == fewest
        before = list(space.free)
        assert space.take(wanted, found)
        space.give(wanted, found)
        assert space.free == before


def test_gpus_that_do_not_divide_among_pods_are_named() -> None:
    workload = Workload.of([(0.0, 1.0, 8)])
    workload.jobs[0].constraints = Constraints(pods=3)
    with pytest.raises(InputError, match="8 GPUs in 3 equal pods"):
        run(workload, Fifo(), "2x8")


def constrained() -> tuple[Workload, Cluster]:
    workload = Workload.of([(0.0, 10.0, 4), (0.0, 10.0, 2), (5.0, 10.0, 2)])
    first, second, third = workload.jobs
    first.constraints = Constraints(pods=2, within_switch=True)
    second.constraints = Constraints(require=(("disk", "ssd"),), group="loud")
    third.constraints = Constraints(avoid=frozenset({"loud"}))
    cluster = Cluster(
        tuple(
            Node(f"n{n}", 4, switch="ab"[n // 2], labels=(("disk", ["ssd", "hdd"][n % 2]),))
            for n in range(4)
        )
    )
    return workload, cluster


def test_policies_keep_to_constraints_without_knowing_of_them() -> None:
    for policy in (Fifo(backfill=True), Tiresias()):
        workload, cluster = constrained()
        outcome = run(workload, policy, cluster)
        assert max(outcome.end) == 15.0


@pytest.mark.parametrize(
    ("index", "allocation", "law"),
    [
        (0, ((0, 0b111), (1, 1)), "pods of 2 GPUs, and 3"),
        (0, ((1, 3), (2, 3)), "asks for one switch"),
        (1, ((1, 3),), "asks for disk=ssd"),
        (2, None, "keep apart"),
    ],
)
def test_the_audit_finds_a_broken_constraint(index: int, allocation: object, law: str) -> None:
    workload, cluster = constrained()
    outcome = run(workload, Fifo(backfill=True), cluster)
    at = next(n for n, one in enumerate(outcome.segments) if one.job == index)
    if allocation is None:
        ((node, mask),) = next(one.allocation for one in outcome.segments if one.job == 1)
        allocation = ((node, (mask ^ 15) & (mask << 2 | mask >> 2)),)
    outcome.segments.allocations[at] = allocation  # type: ignore[call-overload]
    with pytest.raises(LawBrokenError, match=law):
        check_laws(workload, cluster, outcome)


def test_the_audit_finds_two_pods_that_keep_apart_on_one_node() -> None:
    workload = Workload.of([(0.0, 10.0, 2)])
    workload.jobs[0].constraints = Constraints(pods=2, group="g", avoid=frozenset({"g"}))
    outcome = run(workload, Fifo(), "2x4")
    outcome.segments.allocations[0] = ((0, 3),)
    with pytest.raises(LawBrokenError, match="keep apart"):
        audit(workload, nodes(4, 4), outcome)


def test_a_decision_against_constraints_is_impossible() -> None:
    for script in (
        {0.0: lambda view: [Start(job(view, "0"), ((1, 3), (2, 3)))]},
        {
            0.0: lambda view: [Start(job(view, "0"), ((0, 15),))],
            5.0: lambda view: [Migrate(job(view, "0"), ((1, 3), (2, 3)))],
        },
    ):
        workload, cluster = constrained()
        with pytest.raises(DecisionError, match="its constraints do not allow these GPUs"):
            run(workload, Scripted(script), cluster)
