"""Emptying nodes: the search, the waves of its plan, and the proof that they are safe."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, combinations
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from _fleet_optimum import most_emptied
from cli_runner import Cli
from fleets import fleet, fleets, machines
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from schedmate.base.errors import InputError
from schedmate.schedulers.fleet import document
from schedmate.schedulers.fleet.defrag import METHODS, Costs, Rules, SearchOptions, search_moves
from schedmate.schedulers.fleet.plan import (
    Choice,
    Plan,
    choose_steps,
    make_plan,
    plan_document,
    planned_moves,
    read_plan,
)
from schedmate.schedulers.fleet.room import Space
from schedmate.schedulers.fleet.snapshot import MILLI, FleetSnapshot
from schedmate.schedulers.fleet.synthesize import synthesize
from schedmate.schedulers.fleet.verify import Planned, plan_faults

ROOT = Path(__file__).parent.parent.parent
SCHEMA = json.loads((ROOT / "docs" / "schemas" / "fleet-plan-v1.schema.json").read_text())


def plan_of(snapshot: FleetSnapshot, method: str = "schedmate", **more: Any) -> Plan:
    return make_plan(snapshot, search_moves(snapshot, replace(METHODS[method], **more)).moves)


# What may happen to a plan, told from the definitions alone.


def impossible(snapshot: FleetSnapshot, on: dict[tuple[int, int], int]) -> bool:
    """Whether tasks cannot be on these nodes at once; keys: task and node, values: GPU."""
    nodes, tasks = snapshot.nodes, snapshot.tasks
    for n in {n for _, n in on}:
        here = {t: device for (t, where), device in on.items() if where == n}
        whole = sum(int(tasks.gpus[t]) for t in here if tasks.gpus[t] >= MILLI)
        parts: dict[int, int] = {}
        for t, device in here.items():
            if 0 < tasks.gpus[t] < MILLI:
                parts[device] = parts.get(device, 0) + int(tasks.gpus[t])
        if (
            whole + len(parts) * MILLI > nodes.gpus[n] * MILLI
            or max(parts.values(), default=0) > MILLI
        ):
            return True
        if any(d >= nodes.gpus[n] or d < 0 for d in parts):
            return True
        if sum(int(tasks.cpus[t]) for t in here) > nodes.cpus[n]:
            return True
        if sum(int(tasks.memory[t]) for t in here) > nodes.memory[n]:
            return True
        for t in here:
            avoided = snapshot.avoid_sets[tasks.avoid[t]]
            if any(other != t and tasks.group[other] in avoided for other in here):
                return True
        labels = snapshot.label_sets[nodes.labels[n]].items()
        for t in here:
            if not snapshot.require_sets[tasks.require[t]].items() <= labels:
                return True
    return False


def goes_wrong(snapshot: FleetSnapshot, moves: Sequence[Planned], failing: frozenset[int]) -> bool:
    """Whether a moment is impossible when these migrations fail."""
    tasks = snapshot.tasks
    on = {(t, int(n)): int(tasks.device[t]) for t, n in enumerate(snapshot.tasks.node.tolist())}
    done: set[int] = set()
    for wave in sorted({move.wave for move in moves}):
        going = [
            k
            for k, move in enumerate(moves)
            if move.wave == wave and set(move.after) <= done and (move.task, move.source) in on
        ]
        # those that fail may have been up for a while
        for k in going:
            if (moves[k].task, moves[k].target) in on:
                return True
            on[moves[k].task, moves[k].target] = moves[k].device
        if impossible(snapshot, on):
            return True
        for k in going:
            if k in failing:
                del on[moves[k].task, moves[k].target]
            else:
                del on[moves[k].task, moves[k].source]
                done.add(k)
    return False


def subsets(count: int) -> Iterator[frozenset[int]]:
    """All of few, and of many those of up to two."""
    sizes = range(count + 1) if count <= 7 else range(3)
    return map(frozenset, chain.from_iterable(combinations(range(count), size) for size in sizes))


@pytest.mark.parametrize("method", METHODS)
@given(one=fleets(), seed=st.integers(0, 3))
@settings(max_examples=20)
def test_plans_are_safe_whatever_fails(method: str, one: FleetSnapshot, seed: int) -> None:
    plan = plan_of(one, method, seed=seed, group=4)
    moves = planned_moves(plan)
    assert plan_faults(one, moves, plan.emptied) == []
    assert not any(one.tasks.locked[move.task] for move in moves)
    for failing in subsets(len(moves)):
        assert not goes_wrong(one, moves, failing), failing
    at = plan.node_after()
    assert all(n not in at for n in plan.emptied)
    for t, n in enumerate(at.tolist()):
        if one.tasks.gpus[t] and not one.tasks.any_type[t]:
            assert one.nodes.gpu_type[n] == one.nodes.gpu_type[one.tasks.node[t]]


@given(one=fleets(), data=st.data())
@settings(max_examples=35)
def test_the_checker_finds_what_can_go_wrong(one: FleetSnapshot, data: st.DataObject) -> None:
    """Moves changed at random: whenever something can happen that must not, it is found."""
    moves = planned_moves(plan_of(one, group=50))
    assume(1 <= len(moves) <= 7)
    for _ in range(data.draw(st.integers(1, 2))):
        k = data.draw(st.integers(0, len(moves) - 1))
        change = data.draw(
            st.sampled_from(["target", "wave", "after", "device", "drop", "task", "together"])
        )
        if change == "target":
            n = data.draw(st.integers(0, len(one.nodes) - 1))
            moves[k] = moves[k]._replace(target=n)
        elif change == "wave":
            moves[k] = moves[k]._replace(wave=data.draw(st.integers(0, 3)))
        elif change == "after":
            moves[k] = moves[k]._replace(after=[])
        elif change == "device":
            moves[k] = moves[k]._replace(device=data.draw(st.integers(-1, 8)))
        elif change == "task":
            t = data.draw(st.integers(0, len(one.tasks) - 1))
            moves[k] = moves[k]._replace(task=t, source=int(one.tasks.node[t]))
        elif change == "together":
            moves = [move._replace(wave=0, after=[]) for move in moves]
        elif len(moves) > 1:
            del moves[k]
    if any(goes_wrong(one, moves, failing) for failing in subsets(len(moves))):
        assert plan_faults(one, moves, [])


def planted() -> tuple[FleetSnapshot, list[Planned]]:
    """n0 is emptied: b makes room for a on n1, fractions and groups beside."""
    nodes = [{**node, "labels": {"zone": "a"}} for node in machines(3, 4)]
    nodes += [{**machines(1, 4)[0], "name": "other", "gpu_type": "B", "labels": {}}]
    tasks = [
        {"id": "a", "node": "n0", "gpus": 4, "cpus": 8, "require": {"zone": "a"}},
        {"id": "b", "node": "n1", "gpus": 2, "cpus": 8, "group": "g"},
        {"id": "c", "node": "n2", "gpus": 1, "cpus": 8},
        {"id": "d", "node": "n2", "gpus": 0.5, "device": 3},
        {"id": "e", "node": "other", "gpus": 1, "locked": True},
    ]
    moves = [
        Planned(1, 1, 2, -1, 0, []),
        Planned(0, 0, 1, -1, 1, [0]),
    ]
    return fleet(nodes, tasks), moves


VIOLATIONS = {
    "takes it from elsewhere": ({0: {"source": 0}}, "and it is on 'n1'"),
    "to where it is": ({0: {"target": 1}}, "to the node that it is on"),
    "waits for nothing": ({1: {"after": []}}, "6 of its 4 GPUs may be needed"),
    "waits for itself": ({1: {"after": [1]}}, "is not before it"),
    "waits for a later one": ({0: {"after": [1]}}, "is not before it"),
    "waits for what is not there": ({1: {"after": [0, 9]}}, "waits for 9, which is not before"),
    "in the same wave": ({1: {"wave": 0}}, "is not before it"),
    "out of order": ({0: {"wave": 2}}, "comes after a later wave"),
    "other GPUs": ({0: {"target": 3}}, "has other GPUs"),
    "locked": ({0: {"task": 4, "source": 3, "target": 1}}, "which is locked"),
    "without labels": ({1: {"target": 3}}, "without the labels"),
    "no device": ({0: {"task": 3, "source": 2, "target": 1}}, "does not state the GPU"),
}


@pytest.mark.parametrize("name", VIOLATIONS)
def test_planted_violations_are_named(name: str) -> None:
    snapshot, moves = planted()
    assert plan_faults(snapshot, moves, [0]) == []
    changes, message = VIOLATIONS[name]
    for k, fields in changes.items():
        moves[k] = moves[k]._replace(**fields)
    found = plan_faults(snapshot, moves, [])
    assert any(message in fault for fault in found), found


def test_the_end_is_checked_too() -> None:
    snapshot, moves = planted()
    assert "'n1' is not empty in the end" in plan_faults(snapshot, moves, [1])[0]
    spare = fleet([*machines(2, 4)], [{"id": "a", "node": "n0", "gpus": 1}])
    assert "'n1' was empty before" in plan_faults(spare, [], [1])[0]


def test_groups_that_avoid_each_other_never_meet() -> None:
    tasks = [
        {"id": "a", "node": "n0", "gpus": 1, "group": "g", "avoid": ["g"]},
        {"id": "b", "node": "n1", "gpus": 1, "group": "g"},
    ]
    snapshot = fleet(machines(2), tasks)
    assert "avoids" in plan_faults(snapshot, [Planned(0, 0, 1, -1, 0, [])], [0])[0]
    assert "avoids" in plan_faults(snapshot, [Planned(1, 1, 0, -1, 0, [])], [1])[0]
    assert plan_of(snapshot).emptied == []


def figure_15() -> FleetSnapshot:
    """Three idle GPUs on Nodes 1 to 3, none of which has two of them for Job-1."""
    held = {"n1": [1, 2, 1], "n2": [2, 2, 1], "n3": [3]}
    nodes = [*machines(1, 4), *[{**machines(1, 5)[0], "name": n} for n in held]]
    nodes[3]["gpus"] = 4
    tasks = [{"id": "Job-1", "node": "n0", "gpus": 2}]
    for name, sizes in held.items():
        tasks += [{"id": f"{name}-{k}", "node": name, "gpus": size} for k, size in enumerate(sizes)]
    nodes[2]["gpus"] = 5
    return fleet(nodes, tasks)


def test_ejection_chains_empty_what_best_fit_cannot() -> None:
    snapshot = figure_15()
    assert snapshot.idle_gpus == 2 + 1 + 0 + 1
    assert plan_of(snapshot, "best-fit").emptied == []
    assert plan_of(snapshot, "published", rules=Rules(depth=1)).emptied == []
    plan = plan_of(snapshot, "published")
    assert [snapshot.nodes.name[n] for n in plan.emptied] == ["n0"]
    assert plan.waves == 2
    assert plan.steps[-1].after


def test_large_nodes_are_emptied_for_large_jobs() -> None:
    nodes = [*machines(2, 8), *[{**node, "name": f"s{n}"} for n, node in enumerate(machines(4, 2))]]
    tasks = [{"id": f"t{n}", "node": f"s{n}", "gpus": 1} for n in range(4)]
    tasks += [{"id": "large", "node": "n0", "gpus": 2}]
    tasks += [{"id": "stays", "node": "n1", "gpus": 6, "locked": True}]
    snapshot = fleet(nodes, tasks)
    names = {
        method: [snapshot.nodes.name[n] for n in plan_of(snapshot, method).emptied]
        for method in ("schedmate", "large-nodes")
    }
    assert "n0" not in names["schedmate"]
    assert "n0" in names["large-nodes"]
    assert len(names["schedmate"]) > len(names["large-nodes"])


def test_the_result_does_not_depend_on_the_number_of_processes() -> None:
    snapshot = synthesize(400, seed=1)
    options = SearchOptions(group=60, seed=5)
    one = search_moves(snapshot, options, processes=1)
    two = search_moves(snapshot, options, processes=2)
    assert one == two
    assert one.emptied
    assert search_moves(snapshot, replace(options, seed=6)).moves != one.moves


def test_chains_and_rounds_by_type_empty_more_at_less_cost() -> None:
    snapshot = synthesize(1500, seed=2)
    emptied, cost = {}, {}
    for method in METHODS:
        plan = plan_of(snapshot, method)
        assert plan_faults(snapshot, planned_moves(plan), plan.emptied) == []
        emptied[method] = len(plan.emptied)
        cost[method] = choose_steps(plan, Costs()).cost_gpu_h
    assert emptied["schedmate"] >= emptied["published"] > emptied["best-fit"]
    assert cost["schedmate"] < cost["published"]


@given(one=fleets(), budget=st.integers(0, 4))
@settings(max_examples=40)
def test_a_budget_is_kept_and_the_rest_is_safe(one: FleetSnapshot, budget: int) -> None:
    whole = plan_of(one, group=50)
    choice = choose_steps(whole, Costs(), budget)
    moves = planned_moves(choice.plan)
    assert len(moves) <= budget
    assert plan_faults(one, moves, choice.plan.emptied) == []
    for failing in subsets(len(moves)):
        assert not goes_wrong(one, moves, failing)
    assert set(choice.plan.emptied) <= set(whole.emptied)
    left = choice.over_budget + choice.too_dear
    assert len(choice.plan.emptied) + left >= len(whole.emptied)


def test_what_costs_more_than_it_is_worth_is_left() -> None:
    tasks = [
        {"id": "old", "node": "n0", "gpus": 2, "checkpoint_age_s": 3600 * 200},
        {"id": "new", "node": "n1", "gpus": 2, "checkpoint_age_s": 60},
        {"id": "stays", "node": "n2", "gpus": 4, "locked": True},
    ]
    plan = plan_of(fleet(machines(3), tasks))
    assert len(plan.emptied) == 2
    choice = choose_steps(plan, Costs())
    assert [plan.snapshot.nodes.name[n] for n in choice.plan.emptied] == ["n1"]
    assert choice.too_dear == 1
    assert choice.cost_gpu_h == pytest.approx(2 * (60 + 300) / 3600 + 0.01)
    assert choice.worth_gpu_h == 8 * 24
    assert len(choose_steps(plan, Costs(worth_h=1000)).plan.emptied) == 2


@given(one=fleets(most_nodes=4))
@settings(max_examples=20)
def test_nothing_empties_more_than_the_integer_program(one: FleetSnapshot) -> None:
    every = np.arange(len(one.nodes))
    at, device = one.tasks.node.astype(np.int64), one.tasks.device.astype(np.int64)
    bound = most_emptied(Space(one).part(every, Space(one).tasks_on(every), at, device))
    for method in METHODS:
        assert len(plan_of(one, method, group=50).emptied) <= bound.most + 1e-6
    assert bound.emptied <= bound.most + 1e-6


def stored(tmp_path: Path, snapshot: FleetSnapshot, plan: Plan) -> Path:
    path = tmp_path / "plan.json"
    says = plan_document(Choice(plan, 0.0, 0.0, 0, 0), 0.0, "schedmate", 0)
    jsonschema.validate(says, SCHEMA)
    path.write_text(json.dumps(says))
    return path


@given(one=fleets())
@settings(max_examples=30)
def test_a_plan_that_is_stored_is_the_same_plan(
    tmp_path_factory: pytest.TempPathFactory, one: FleetSnapshot
) -> None:
    plan = plan_of(one, group=50)
    read = read_plan(stored(tmp_path_factory.mktemp("plan"), one, plan), one)
    assert [*read.moves] == [move._replace(after=list(move.after)) for move in planned_moves(plan)]
    assert read.emptied == plan.emptied
    assert read.same_snapshot


def test_a_cluster_that_has_changed_since(cli: Cli, tmp_path: Path) -> None:
    before = fleet(
        machines(3),
        [
            {"id": "a", "node": "n0", "gpus": 1},
            {"id": "b", "node": "n1", "gpus": 3, "locked": True},
        ],
    )
    path = stored(tmp_path, before, plan_of(before))
    now = tmp_path / "now.json"

    def verified(*tasks: dict[str, Any]) -> Any:
        document.write_snapshot(fleet(machines(3), tasks), now)
        return cli("fleet", "verify", str(now), str(path))

    a, b = (
        {"id": "a", "node": "n0", "gpus": 1},
        {"id": "b", "node": "n1", "gpus": 3, "locked": True},
    )
    same = verified(a, b)
    assert (same.code, same.out[:25]) == (0, "safe, made from this snap")
    assert "although the cluster has changed" in verified(a, {**b, "gpus": 4}).out
    full = verified(a, {**b, "gpus": 8})
    assert full.code == 3
    assert "9 of its 8 GPUs may be needed" in full.err
    assert "has changed since" in full.err
    moved = verified({**a, "node": "n2"}, b)
    assert moved.code == 3
    assert "and it is on 'n2'" in moved.err
    gone = verified(b)
    assert gone.code == 3
    assert "task 'a', which the snapshot does not have" in gone.err
    newcomer = verified(a, b, {"id": "c", "node": "n0", "gpus": 1})
    assert "'n0' is not empty in the end" in newcomer.err


MOVE = {"task": "a", "from": "n0", "to": "n1"}


@pytest.mark.parametrize(
    "says",
    [
        "{",
        [],
        {"schema": "schedmate.fleet-plan/v1"},
        {"schema": "schedmate.fleet-plan/v1", "waves": [[{}]], "emptied": []},
        {"schema": "schedmate.fleet-plan/v1", "waves": 3, "emptied": []},
        {"schema": "schedmate.fleet-plan/v1", "waves": [[{**MOVE, "after": ["x"]}]], "emptied": []},
        {"schema": "schedmate.fleet-plan/v1", "waves": [[{**MOVE, "move": 4}]], "emptied": []},
        {"schema": "schedmate.fleet-plan/v1", "waves": [[{**MOVE, "to": "x"}]], "emptied": []},
        {"schema": "schedmate.fleet-plan/v1", "waves": [[{**MOVE, "to": []}]], "emptied": []},
    ],
)
def test_plans_that_are_none(tmp_path: Path, says: Any) -> None:
    path = tmp_path / "plan.json"
    path.write_text(says if isinstance(says, str) else json.dumps(says))
    snapshot = fleet(machines(2), [{"id": "a", "node": "n0", "gpus": 1}])
    with pytest.raises(InputError):
        read_plan(path, snapshot)


def test_the_command(cli: Cli, tmp_path: Path) -> None:
    path, plan = tmp_path / "fleet.json", tmp_path / "plan.json"
    document.write_snapshot(synthesize(120, seed=1), path)
    done = cli("fleet", "defrag", str(path), "--json", "-o", str(plan))
    says = json.loads(done.out)
    jsonschema.validate(says, SCHEMA)
    assert json.loads(plan.read_text()) == says
    assert says["emptied"]
    assert says["slack_after"] < says["slack_before"]
    assert cli("fleet", "verify", str(path), str(plan)).code == 0
    few = json.loads(cli("fleet", "defrag", str(path), "--budget", "2", "--json").out)
    assert few["migrations"] <= 2
    assert few["left_over_budget"]
    shown = cli("fleet", "defrag", str(path)).out
    assert f"{len(says['emptied'])} nodes with" in shown
    report = cli("fleet", "defrag", str(path), "--cron-report").out.splitlines()
    assert report[0].startswith("# ")
    values = dict(line.split() for line in report if not line.startswith("#"))
    assert values["schedmate_fleet_emptied_nodes"] == str(len(says["emptied"]))
    assert cli("fleet", "defrag", str(path), "--method", "publishd").code == 2


def test_nothing_to_win(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "fleet.json"
    document.write_snapshot(fleet(machines(2), []), path)
    done = cli("fleet", "defrag", str(path))
    assert done.code == 0
    assert "0 nodes with 0 GPUs can be emptied" in done.out
