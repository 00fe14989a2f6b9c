"""Snapshots: what they hold, what they refuse, and how they are stored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from cli_runner import Cli
from fleets import fleet, fleets, machines
from hypothesis import given, settings

from schedmate.base.errors import InputError
from schedmate.cluster.exports import read_snapshot
from schedmate.schedulers.fleet import document
from schedmate.schedulers.fleet.snapshot import MILLI, FleetSnapshot
from schedmate.schedulers.fleet.synthesize import calibration, synthesize

ROOT = Path(__file__).parent.parent.parent
SCHEMA = json.loads((ROOT / "docs" / "schemas" / "fleet-v1.schema.json").read_text())


def small() -> dict[str, Any]:
    return {
        "schema": "schedmate.fleet/v1",
        "nodes": [*machines(2, labels={"zone": "a"}), {"name": "cpu", "gpus": 0, "cpus": 8}],
        "tasks": [
            {"id": "a", "job": "j", "node": "n0", "gpus": 4, "cpus": 8, "group": "g"},
            {"id": "b", "job": "j", "node": "n1", "gpus": 0.25, "avoid": ["g"]},
            {"id": "c", "node": "cpu", "cpus": 2.5, "class": "lp", "locked": True},
        ],
    }


def stored(tmp_path: Path, says: Any) -> Path:
    path = tmp_path / "fleet.json"
    path.write_text(says if isinstance(says, str) else json.dumps(says))
    return path


def test_what_tasks_hold_is_added_up_by_node(tmp_path: Path) -> None:
    found = read_snapshot(stored(tmp_path, small()))
    assert found.whole_free.tolist() == [4, 7, 0]
    assert found.idle_gpus == pytest.approx(11.75)
    assert (found.cpus_free[[0, 2]] / MILLI).tolist() == [120, 5.5]
    assert found.jobs == ["j", "c"]
    assert found.tasks.low_priority.tolist() == [False, False, True]


@pytest.mark.parametrize("suffix", [".json", ".jsonl", ".parquet"])
@given(one=fleets())
@settings(max_examples=15)
def test_every_format_holds_all_of_it(
    tmp_path_factory: pytest.TempPathFactory, suffix: str, one: FleetSnapshot
) -> None:
    path = tmp_path_factory.mktemp("fleet") / f"fleet{suffix}"
    document.write_snapshot(one, path)
    again = read_snapshot(path)
    assert again.hash == one.hash
    assert again.origin == one.origin
    assert np.array_equal(again.tasks.checkpoint_age_s, one.tasks.checkpoint_age_s)
    if suffix == ".json":
        jsonschema.validate(json.loads(path.read_text()), SCHEMA)


@given(one=fleets())
@settings(max_examples=20)
def test_the_hash_is_of_the_content_and_not_of_its_order(one: FleetSnapshot) -> None:
    nodes, tasks = list(document.node_rows(one)), list(document.task_rows(one))
    assert fleet(nodes[::-1], tasks[::-1]).hash == one.hash
    aged = fleet(nodes, [{**task, "checkpoint_age_s": 7.0} for task in tasks])
    assert aged.hash == one.hash
    for change in ({"locked": True}, {"cpus": 0.001}, {"class": "lp"}):
        if tasks and {**tasks[0], **change} != tasks[0]:
            assert fleet(nodes, [{**tasks[0], **change}, *tasks[1:]]).hash != one.hash


BAD = {
    "a node that is not there": (("tasks", 0, "node", "gone"), "'a' is on node 'gone', which"),
    "too many GPUs": (("tasks", 0, "gpus", 9), "hold 9 GPUs and it has 8"),
    "too many CPUs": (("tasks", 0, "cpus", 200), "hold 200 CPUs and it has 128"),
    "too much memory": (("tasks", 0, "memory_mb", 2e6), "hold 2,000,000 MB of memory"),
    "a label that nobody has": (("tasks", 0, "require", {"rack": "1"}), "requires a label 'rack'"),
    "a value that nobody has": (("tasks", 0, "require", {"zone": "z"}), "requires zone=z, which"),
    "a label of another node": (("tasks", 2, "require", {"zone": "a"}), "labelled otherwise"),
    "two nodes of a name": (("nodes", 1, "name", "n0"), "two nodes are called 'n0'"),
    "two tasks of a name": (("tasks", 1, "id", "a"), "two tasks are called 'a'"),
    "no name": (("nodes", 1, "name", ""), "node 2 has no 'name'"),
    "a fraction above one": (("tasks", 0, "gpus", 1.5), "neither whole nor below 1"),
    "less than nothing": (("tasks", 0, "cpus", -1), "cpus is -1, not between"),
    "no number": (("tasks", 0, "gpus", "4"), "gpus is '4', no number"),
    "a truth as a number": (("tasks", 0, "gpus", True), "gpus is True, no number"),
    "an infinity": (("tasks", 0, "cpus", float("inf")), "cpus is inf"),
    "half a GPU of a node": (("nodes", 0, "gpus", 7.5), "no number of GPUs"),
    "another class": (("tasks", 0, "class", "mid"), "neither 'hp' nor 'lp'"),
    "a slip in a name": (("tasks", 0, "lockd", True), "unknown field 'lockd'; did you mean locked"),
    "text for a flag": (("tasks", 0, "locked", "no"), "neither true nor false"),
    "a group for a list": (("tasks", 0, "avoid", "g"), "no list of groups"),
    "a task that is not an object": (("tasks", 0, None, 3), "task 1 is not an object"),
}


@pytest.mark.parametrize("name", BAD)
def test_faults_are_said_and_never_assumed_away(tmp_path: Path, name: str) -> None:
    (section, position, key, value), message = BAD[name]
    says = small()
    if key is None:
        says[section][position] = value
    else:
        says[section][position][key] = value
    with pytest.raises(InputError) as error:
        read_snapshot(stored(tmp_path, says))
    assert message in str(error.value)
    assert str(error.value).endswith(".")


def test_constraints_that_contradict_what_is_there(tmp_path: Path) -> None:
    says = small()
    says["tasks"] += [
        {"id": "d", "node": "n0", "gpus": 1, "group": "g", "avoid": ["g"]},
    ]
    with pytest.raises(InputError, match="'d' avoids group 'g', and 'a' of that group"):
        read_snapshot(stored(tmp_path, says))


def test_a_task_may_avoid_its_own_group(tmp_path: Path) -> None:
    says = small()
    says["tasks"] = [{"id": "d", "node": "n0", "gpus": 1, "group": "g", "avoid": ["g"]}]
    assert len(read_snapshot(stored(tmp_path, says)).tasks) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not a complete schedmate.fleet/v1 document"),
        ('{"schema": "schedmate.fleet/v1", "nodes": [{"name": "a" "gpus": 1}]}', "not a complete"),
        ('{"schema": "schedmate.fleet/v1", "nodes": [{"name": "a"} {}]}', "',' or ']' expected"),
        ('{"schema": "schedmate.other/v1"}', "not 'schedmate.fleet/v1'"),
        ('{"schema": "schedmate.fleet/v1", "nodes": [], "tasks": []}', "has no nodes"),
        ('{"schema": "schedmate.fleet/v1", "nodes": [{"name": "a", "gpus": 0}]}', "has a GPU"),
        ('{"schema": "schedmate.fleet/v1", "origin": 3, "nodes": []}', "origin is 3"),
        ("[" * 100_000, "not a complete"),
        ('{"a": ' * 100_000, "not a complete"),
        ("", "expected in line 1"),
    ],
)
def test_documents_that_are_none(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message.replace("[", r"\[")):
        read_snapshot(stored(tmp_path, text))


def test_fractions_that_do_not_fit_on_their_gpus() -> None:
    node = [{"name": "n", "gpus": 2, "cpus": 8}]
    thirds = [{"id": f"t{n}", "node": "n", "gpus": 0.6} for n in range(3)]
    with pytest.raises(InputError, match="fractions on node 'n' do not fit"):
        fleet(node, thirds)
    same = [{"id": f"t{n}", "node": "n", "gpus": 0.6, "device": 0} for n in range(2)]
    with pytest.raises(InputError, match="do not fit"):
        fleet(node, same)
    packed = fleet(node, thirds[:2])
    assert sorted(packed.tasks.device.tolist()) == [0, 1]
    assert "2 fractions of GPUs have no known GPU" in packed.notes[0]


def test_tasks_before_nodes(tmp_path: Path) -> None:
    says = small()
    turned = {"tasks": says["tasks"], "nodes": says["nodes"], "schema": says["schema"]}
    assert (
        read_snapshot(stored(tmp_path, turned)).hash == read_snapshot(stored(tmp_path, says)).hash
    )


def test_the_synthetic_fleet_is_that_of_the_paper() -> None:
    says = calibration()
    published = {name: one["value"] for name, one in says["published"].items()}
    types = says["types"].values()
    assert sum(one["nodes"] for one in types) == published["nodes"]
    assert sum(one["nodes"] * one["gpus"] for one in types) == published["gpus"]
    assert len(types) == published["gpu_types"]
    found = synthesize(3000, seed=3)
    assert synthesize(3000, seed=3).hash == found.hash
    assert synthesize(3000, seed=4).hash != found.hash
    assert found.synthetic
    holds = found.tasks.gpus > 0
    assert found.tasks.locked[holds].mean() == pytest.approx(published["locked"], abs=0.06)
    assert 1 - found.idle_gpus / found.gpus == pytest.approx(published["allocated"], abs=0.04)
    hp = found.tasks.gpus[~found.tasks.low_priority].sum() / MILLI / found.gpus
    assert hp == pytest.approx(published["hp_allocated"], abs=0.07)
    of_job = np.bincount(found.tasks.job, weights=found.tasks.gpus) / MILLI
    assert np.median(of_job[of_job > 0]) == published["median_job_gpus"]
    # every access switch has GPUs of one type and no more nodes than the paper says
    for code in range(len(found.switches)):
        under = found.nodes.switch == code
        assert len(set(found.nodes.gpu_type[under].tolist())) == 1
        assert under.sum() <= 64


def test_the_commands_write_and_check(cli: Cli, tmp_path: Path) -> None:
    path, again = tmp_path / "fleet.json", tmp_path / "fleet.parquet"
    done = cli("fleet", "synthesize", "--nodes", "60", "--seed", "2", "-o", str(path))
    assert done.code == 0, done.err
    assert "60 nodes" in done.err
    assert cli("fleet", "convert", str(path), "-o", str(again)).code == 0
    says = json.loads(cli("fleet", "check", str(again), "--json").out)
    schema = json.loads((ROOT / "docs" / "schemas" / "fleet-check-v1.schema.json").read_text())
    jsonschema.validate(says, schema)
    assert says["snapshot"] == read_snapshot(path).hash
    assert says["nodes"] == 60
    assert sum(one["gpus"] for one in says["by_type"].values()) == says["gpus"]
    shown = cli("fleet", "check", str(path)).out
    assert "origin = synthetic" in shown
    assert "H20" in shown
    assert "37707" in cli("fleet", "synthesize", "--sources").out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("check", "nowhere.json"), 3, "there is no snapshot nowhere.json"),
        (("synthesize", "--nodes", "3"), 2, "at least 24 nodes"),
        (("convert", ".", "--fill", "0"), 2, "a share of all GPUs"),
        (("convert", ".", "--fill", "1", "--at", "1d"), 2, "use one"),
        (("convert", ".", "--fill", "1", "--placement", "worst"), 2, "best-fit or random"),
        (("convert", "nowhere", "--fill", "1"), 3, "cannot read nowhere"),
    ],
)
def test_bad_arguments(cli: Cli, arguments: tuple[str, ...], code: int, message: str) -> None:
    done = cli("fleet", *arguments)
    assert done.code == code
    assert message in done.err
