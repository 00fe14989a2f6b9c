"""Estimates of remaining time in defragmentation: what ends soon is not worth moving."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedmate.base.errors import InputError
from schedmate.schedulers.fleet.defrag import METHODS, Costs, node_ends, search_moves
from schedmate.schedulers.fleet.document import read_json, read_remaining, task_rows, with_remaining
from schedmate.schedulers.fleet.plan import choose_steps, make_plan, planned_moves
from schedmate.schedulers.fleet.snapshot import FleetSnapshot
from schedmate.schedulers.fleet.verify import plan_faults
from tests.cli_runner import Cli
from tests.fleet.fleets import fleet, fleets, machines


def emptied(snapshot: FleetSnapshot, costs: Costs | None = None) -> list[str]:
    costs = costs or Costs()
    moves = search_moves(snapshot, METHODS["schedmate"], costs).moves
    plan = choose_steps(make_plan(snapshot, moves), costs).plan
    assert plan_faults(snapshot, planned_moves(plan), plan.emptied) == []
    return sorted(snapshot.nodes.name[n] for n in plan.emptied)


def three(first_s: float | None, second_s: float | None) -> FleetSnapshot:
    """Three nodes; what is on the first two could go to the third, or to each other."""
    tasks = [
        {"id": "a", "node": "n0", "gpus": 2, "checkpoint_age_s": 600, "remaining_s": first_s},
        {"id": "b", "node": "n1", "gpus": 2, "checkpoint_age_s": 600, "remaining_s": second_s},
        {"id": "c", "node": "n2", "gpus": 4, "locked": True},
    ]
    return fleet(machines(3), tasks)


def test_a_node_that_will_soon_be_free_is_left_alone() -> None:
    assert emptied(three(None, None)) == ["n0", "n1"]
    assert emptied(three(400, None)) == ["n1"]
    assert emptied(three(400, 500)) == []
    assert emptied(three(80_000, 86_400 * 3)) == ["n0", "n1"]


def test_nothing_is_moved_to_a_node_that_will_soon_be_free() -> None:
    tasks = [
        {"id": "ends", "node": "n0", "gpus": 4, "remaining_s": 300},
        {"id": "stays", "node": "n1", "gpus": 2},
    ]
    assert emptied(fleet(machines(2), tasks)) == []
    del tasks[0]["remaining_s"]
    assert len(emptied(fleet(machines(2), tasks))) == 1


def test_an_emptied_node_is_worth_the_time_for_which_it_would_not_be_free() -> None:
    snapshot = three(3900, None)
    assert node_ends(snapshot).tolist() == [3900, np.inf, np.inf]
    assert (Costs(worth_h=24).of_nodes(snapshot) / 3600).tolist() == [8, 8 * 24, 8 * 24]
    costs = Costs(worth_h=1.5)  # an hour is more than half of it
    choice = choose_steps(
        make_plan(snapshot, search_moves(snapshot, METHODS["schedmate"], costs).moves), costs
    )
    assert choice.worth_gpu_h == pytest.approx(8 * 1.0 + 8 * 1.5)


def test_of_equal_nodes_the_one_that_would_be_held_longer_is_emptied() -> None:
    # There is room for one of the two.
    tasks = [
        {"id": "a", "node": "n0", "gpus": 4, "remaining_s": 15 * 3600},
        {"id": "b", "node": "n1", "gpus": 4, "remaining_s": 90 * 3600},
        {"id": "c", "node": "n2", "gpus": 4, "locked": True},
        {"id": "d", "node": "n0", "gpus": 0, "cpus": 1, "locked": True},
    ]
    assert emptied(fleet(machines(3), tasks)) == ["n1"]
    del tasks[3]
    for first, second in ((15, 90), (90, 15)):
        tasks[0]["remaining_s"], tasks[1]["remaining_s"] = first * 3600, second * 3600
        assert emptied(fleet(machines(3), tasks)) == ["n1" if second > first else "n0"]


@given(one=fleets(), seconds=st.lists(st.sampled_from([0.0, 100.0, 5000.0, 1e6]), min_size=28))
@settings(max_examples=20)
def test_plans_with_estimates_are_as_safe(one: FleetSnapshot, seconds: list[float]) -> None:
    known = with_remaining(one, dict(zip(one.tasks.name, seconds, strict=False)), "the test")
    plan = make_plan(known, search_moves(known, METHODS["schedmate"]).moves)
    plan = choose_steps(plan, Costs()).plan
    assert plan_faults(one, planned_moves(plan), plan.emptied) == []
    soon = Costs().not_worth_it(known)
    assert not any(soon[step.target] or soon[step.source] for step in plan.steps)
    assert known.hash == one.hash


def test_estimates_are_kept_in_a_document(tmp_path: Path) -> None:
    rows = list(task_rows(three(400, None)))
    assert [row.get("remaining_s") for row in rows] == [400.0, None, None]
    document = {
        "schema": "schedmate.fleet/v1", "nodes": machines(3), "tasks": rows,
    }  # fmt: skip
    again = read_json(tmp_path / "fleet.json", json.dumps(document))
    assert again.tasks.remaining_s.tolist() == [400, np.inf, np.inf]
    rows[0]["remaining_s"] = -1
    with pytest.raises(InputError, match="remaining_s is -1"):
        read_json(tmp_path / "fleet.json", json.dumps(document))


def test_defrag_takes_a_table_of_estimates(cli: Cli, tmp_path: Path) -> None:
    rows = [
        {key: value for key, value in row.items() if key != "remaining_s"}
        for row in task_rows(three(None, None))
    ]
    path, table = tmp_path / "fleet.json", tmp_path / "left.csv"
    document = {"schema": "schedmate.fleet/v1", "nodes": machines(3), "tasks": rows}
    path.write_text(json.dumps(document))
    table.write_text("job,remaining_s\na,120\nb,\n")
    arguments = ("fleet", "defrag", str(path), "--remaining", str(table))
    says = json.loads(cli(*arguments, "--json").out)
    assert (says["emptied"], says["left_ending"]) == (["n1"], 1)
    done = cli(*arguments)
    assert "1 of 3 tasks have an estimate" in done.err
    assert "1 further node will be free before emptying pays" in done.out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("job,seconds\na,1\n", "needs the columns remaining_s and job"),
        ("job,remaining_s\na,soon\n", "line 2: remaining_s is 'soon'"),
        ("job,remaining_s\na,-5\n", "line 2: remaining_s is '-5'"),
        ("job,remaining_s\na,5\na,6\n", "line 3: job 'a' comes twice"),
    ],
)
def test_a_table_that_says_nothing_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "left.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_remaining(path)


def test_a_table_of_another_cluster_is_refused() -> None:
    with pytest.raises(InputError, match="names no task or job of the snapshot"):
        with_remaining(three(None, None), {"x": 5.0}, "left.csv")


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (b"job,remaining_s\na\0b,60\n", "line 2 has no job, or one with a NUL byte"),
        (b"remaining_s,job\n60\n", "line 2 has no job, or one with a NUL byte"),
        (b"job,remaining_s\na,6\0\n", "write a time in seconds"),
        (b"job,remaining_s\na,\xff\n", "not CSV in UTF-8"),
    ],
)
def test_a_damaged_table_of_remaining_times(tmp_path: Path, table: bytes, says: str) -> None:
    path = tmp_path / "remaining.csv"
    path.write_bytes(table)
    with pytest.raises(InputError, match=says):
        read_remaining(path)
