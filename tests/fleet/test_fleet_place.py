"""Large jobs under few access switches: against all ways there are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import permutations, product
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from cli_runner import Cli
from fleets import fleet, machines
from hypothesis import given, settings
from hypothesis import strategies as st

from schedmate.schedulers.fleet import document
from schedmate.schedulers.fleet.plan import planned_moves
from schedmate.schedulers.fleet.synthesize import synthesize
from schedmate.schedulers.fleet.topology import (
    allocate,
    allocate_in_best_order,
    allocation_score,
    capacity,
    clear_switch,
    entropy,
    fewest,
    published,
    under_one_switch,
)
from schedmate.schedulers.fleet.verify import plan_faults

ROOT = Path(__file__).parent.parent.parent
ROOMS = st.lists(st.integers(0, 6), min_size=1, max_size=5).map(lambda one: dict(enumerate(one)))


def every_way(gpus: int, room: dict[int, int]) -> Iterator[dict[int, int]]:
    """All ways to take so many GPUs."""
    for parts in product(*(range(free + 1) for free in room.values())):
        if sum(parts) == gpus:
            yield {s: g for s, g in zip(room, parts, strict=True) if g}


@given(room=ROOMS, gpus=st.integers(1, 14))
@settings(max_examples=40)
def test_one_job_gets_the_least_entropy_and_fewest_switches(
    room: dict[int, int], gpus: int
) -> None:
    found = fewest(gpus, room)
    ways = list(every_way(gpus, room))
    if not ways:
        assert sum(found.values()) == sum(room.values()) < gpus
        return
    assert found in ways
    least = min(entropy(list(way.values())) for way in ways)
    assert entropy(list(found.values())) == pytest.approx(least)
    assert len(found) == min(map(len, ways))


def test_the_published_algorithm_is_not_optimal() -> None:
    room = {0: 10, 1: 9, 2: 1}
    assert published(19, room) == {0: 10, 2: 1, 1: 8}
    assert fewest(19, room) == {0: 10, 1: 9}
    assert entropy([10, 1, 8]) > entropy([10, 9]) + 0.1


@given(room=ROOMS, gpus=st.integers(1, 14))
def test_the_published_algorithm_takes_what_there_is(room: dict[int, int], gpus: int) -> None:
    found = published(gpus, room)
    assert sum(found.values()) == min(gpus, sum(room.values()))
    assert all(taken <= room[s] for s, taken in found.items())
    better = fewest(gpus, room)
    assert entropy(list(better.values())) <= entropy(list(found.values())) + 1e-9


def test_the_tightest_switch_is_taken_where_several_would_do() -> None:
    assert fewest(4, {0: 9, 1: 5, 2: 4, 3: 3}) == {2: 4}
    assert fewest(11, {0: 9, 1: 5, 2: 3, 3: 2}) == {0: 9, 3: 2}
    assert under_one_switch(4, {0: 9, 1: 5}) == {1: 4}
    assert under_one_switch(10, {0: 9, 1: 5}) == {}


def test_entropy_is_that_of_equation_1() -> None:
    assert entropy([8]) == entropy([]) == 0
    assert entropy([4, 4]) == pytest.approx(0.6931, abs=1e-4)
    assert entropy([1, 1, 2]) == pytest.approx(1.0397, abs=1e-4)


@given(room=ROOMS, sizes=st.lists(st.integers(1, 6), min_size=1, max_size=4))
@settings(max_examples=30)
def test_several_jobs_fare_no_worse_than_largest_first(
    room: dict[int, int], sizes: list[int]
) -> None:
    largest = allocate(sorted(sizes, reverse=True), room, fewest)
    found = allocate_in_best_order(sizes, room)
    assert allocation_score(found) <= allocation_score(largest)
    assert [one.gpus for one in found] == sizes
    for s, free in room.items():
        assert sum(one.parts.get(s, 0) for one in found) <= free
    for one in found:
        assert sum(one.parts.values()) in (0, one.gpus)


@given(room=ROOMS, sizes=st.lists(st.integers(1, 6), min_size=2, max_size=4))
@settings(max_examples=30)
def test_within_switches_as_many_fit_as_any_order_fits(
    room: dict[int, int], sizes: list[int]
) -> None:
    orders = (allocate(order, room, under_one_switch) for order in permutations(sizes))
    assert allocation_score(allocate_in_best_order(sizes, room, under_one_switch)) == min(
        map(allocation_score, orders)
    )


def test_a_better_order_than_largest_first_is_found() -> None:
    room, sizes = {0: 5, 1: 5, 2: 2, 3: 6}, [9, 6, 5]
    largest = allocation_score(allocate(sizes, room, fewest))
    assert allocation_score(allocate_in_best_order(sizes, room)) < largest


def test_many_jobs_are_searched_and_the_seed_decides() -> None:
    room = {n: 8 + n % 5 for n in range(12)}
    sizes = [13, 7, 9, 5, 11, 8, 3, 12, 6]
    assert allocate_in_best_order(sizes, room, seed=1) == allocate_in_best_order(
        sizes, room, seed=1
    )
    assert allocation_score(allocate_in_best_order(sizes, room, seed=1)) <= allocation_score(
        allocate(sorted(sizes, reverse=True), room, fewest)
    )


def test_capacity_is_what_goes_with_cpus_memory_and_pods() -> None:
    nodes = [{**node, "switch": f"s{n // 2}"} for n, node in enumerate(machines(4))]
    nodes.append({**machines(1)[0], "name": "alone"})
    tasks = [
        {"id": "a", "node": "n0", "gpus": 2, "cpus": 64},
        {"id": "b", "node": "n1", "gpus": 0.5},
        {"id": "c", "node": "n2", "memory_mb": 9e5},
    ]
    snapshot = fleet(nodes, tasks)
    assert capacity(snapshot, "A", 0).room == {0: 13, 1: 16, 6: 8}
    assert capacity(snapshot, "A", 16_000).room == {0: 11, 1: 16, 6: 8}
    assert capacity(snapshot, "A", 16_000, 20_000_000).room == {0: 11, 1: 13, 6: 8}
    assert capacity(snapshot, "A", 16_000, 0, pod=4).room == {0: 8, 1: 16, 6: 8}
    assert capacity(snapshot, "B", 0).room == {}


def test_tasks_are_moved_away_to_make_room_under_a_switch() -> None:
    nodes = [{**node, "switch": f"s{n // 2}"} for n, node in enumerate(machines(6))]
    tasks: list[dict[str, Any]] = [
        {"id": "a", "node": "n0", "gpus": 2, "checkpoint_age_s": 9000},
        {"id": "b", "node": "n2", "gpus": 2},
        {"id": "c", "node": "n4", "gpus": 2, "locked": True},
    ]
    snapshot = fleet(nodes, tasks)
    room = capacity(snapshot, "A", 1000)
    assert under_one_switch(16, room.room) == {}
    found = clear_switch(snapshot, room, 16, (1000, 0, 1), "A")
    assert found is not None
    # b loses less than a, and c may not be moved
    assert [snapshot.tasks.name[step.task] for step in found.plan.steps] == ["b"]
    assert snapshot.switches[found.switch] == "s1"
    assert found.gpus == {2: 8, 3: 8}
    assert plan_faults(snapshot, planned_moves(found.plan), found.plan.emptied) == []
    assert clear_switch(snapshot, room, 17, (1000, 0, 1), "A") is None


@pytest.mark.parametrize("seed", range(4))
def test_what_is_cleared_is_there_when_the_plan_is_done(seed: int) -> None:
    snapshot = synthesize(1200, seed=seed)
    needs = (4000, 0, 8)
    room = capacity(snapshot, "H20", *needs)
    gpus = max(room.room.values()) + 8
    found = clear_switch(snapshot, room, gpus, needs, "H20")
    assert found is not None
    assert plan_faults(snapshot, planned_moves(found.plan), found.plan.emptied) == []
    at = found.plan.node_after()
    rows = list(document.task_rows(snapshot))
    for row, n in zip(rows, at.tolist(), strict=True):
        row["node"] = snapshot.nodes.name[n]
        row.pop("device", None)
    after = fleet(document.node_rows(snapshot), rows)
    assert capacity(after, "H20", *needs).room[found.switch] >= gpus
    assert sum(found.gpus.values()) >= gpus


def test_what_is_left_for_a_job_is_what_the_others_leave(cli: Cli, tmp_path: Path) -> None:
    nodes = [{**node, "switch": f"s{n // 2}"} for n, node in enumerate(machines(4))]
    path = tmp_path / "fleet.json"
    document.write_snapshot(fleet(nodes, []), path)
    both = ("fleet", "place", str(path), "--gpus", "20", "--gpus", "24")
    says = json.loads(cli(*both, "--json").out)
    assert sorted(job["placed"] for job in says["jobs"]) == [False, True]
    placed = next(job["gpus"] for job in says["jobs"] if job["placed"])
    assert (says["usable_gpus"], says["left_gpus"]) == (32, 32 - placed)
    left = f"no room; {32 - placed} such GPUs are idle beside the other jobs"
    assert left in cli(*both).out


def test_a_node_without_a_switch_is_one_of_its_own(cli: Cli, tmp_path: Path) -> None:
    """For `diagnose` as for `place`."""
    path = tmp_path / "fleet.json"
    document.write_snapshot(fleet(machines(2), []), path)
    for gpus, fits in (("8", True), ("16", False)):
        says = json.loads(
            cli("fleet", "diagnose", str(path), "-r", f"{gpus}x1G1C@switch", "--json").out
        )
        assert bool(says["requests"][0]["fulfilled"]) is fits
        placed = cli("fleet", "place", str(path), "--gpus", gpus, "--within-switch")
        assert (placed.code == 0) is fits


def test_the_command(cli: Cli, tmp_path: Path) -> None:
    nodes = [{**node, "switch": f"s{n // 2}"} for n, node in enumerate(machines(5))]
    tasks = [{"id": f"t{n}", "node": f"n{n}", "gpus": n} for n in (1, 2, 3)]
    path, plan = tmp_path / "fleet.json", tmp_path / "plan.json"
    document.write_snapshot(fleet(nodes, tasks), path)
    says = json.loads(cli("fleet", "place", str(path), "--gpus", "17", "--json").out)
    schema = json.loads((ROOT / "docs" / "schemas" / "fleet-placement-v1.schema.json").read_text())
    jsonschema.validate(says, schema)
    (job,) = says["jobs"]
    assert job["switches"] == {"s0": 15, "s2": 2}
    assert sum(job["nodes"].values()) == 17
    assert "under 2 switches" in cli("fleet", "place", str(path), "--gpus", "17").out
    one = ("fleet", "place", str(path), "--gpus", "16", "--within-switch")
    refused = cli(*one)
    assert refused.code == 4
    assert "no room; 34 such GPUs are idle, 15 of them under one switch" in refused.out
    made = json.loads(cli(*one, "--migrate", str(plan), "--json").out)
    jsonschema.validate(made, schema)
    assert made["migrations"] == 1
    assert made["jobs"][0]["switches"] == {"s0": 16}
    assert cli("fleet", "verify", str(path), str(plan)).code == 0
    two = json.loads(cli("fleet", "place", str(path), *("--gpus", "8") * 2, "--json").out)
    used: dict[str, int] = {}
    for job in two["jobs"]:
        for name, count in job["nodes"].items():
            used[name] = used.get(name, 0) + count
    assert all(count <= 8 for count in used.values())
    assert sum(used.values()) == 16


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--gpus", "8", "--gpu-type", "H200"), 3, "no GPU type 'H200'; did you mean H20?"),
        (("--gpus", "8"), 2, "choose one"),
        (("--gpus", "0"), 2, "gpus"),
        (("--gpus", "9", "--pod", "8", "--gpu-type", "H20"), 2, "not a multiple"),
        (("--gpus", "8", "--gpu-type", "H20", "--migrate", "x"), 2, "--within-switch"),
        (("--gpus", "99", "--gpu-type", "H20"), 4, ""),
    ],
)
def test_bad_arguments(
    cli: Cli, tmp_path: Path, arguments: tuple[str, ...], code: int, message: str
) -> None:
    path = tmp_path / "fleet.json"
    nodes = [{**node, "gpu_type": ["H20", "A10"][n]} for n, node in enumerate(machines(2))]
    document.write_snapshot(fleet(nodes, []), path)
    done = cli("fleet", "place", str(path), *arguments)
    assert done.code == code
    assert message in done.err
