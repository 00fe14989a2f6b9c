"""Why idle GPUs cannot be had: every one counted once, under the right cause."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from cli_runner import Cli
from fleets import fleet, fleets, machines
from hypothesis import given
from hypothesis import strategies as st

from schedmate.base.errors import UsageError
from schedmate.schedulers.fleet import document
from schedmate.schedulers.fleet.diagnosis import CAUSES, DEFAULT_REQUESTS, Request, diagnose
from schedmate.schedulers.fleet.snapshot import MILLI, FleetSnapshot

ROOT = Path(__file__).parent.parent.parent
REQUESTS = st.builds(
    Request,
    pods=st.sampled_from([1, 1, 2, 3]),
    gpus=st.sampled_from([300, 500, 1000, 2000, 8000]),
    cpus=st.sampled_from([0, 2000, 16_000]),
    memory=st.sampled_from([0, 700_000]),
    within_switch=st.booleans(),
)


def lost(snapshot: FleetSnapshot, text: str) -> dict[str, float]:
    """The causes that apply, with the idle GPUs of each."""
    shape = diagnose(snapshot, [Request.parse(text)]).shapes[0]
    return {cause: count for cause, count in shape.lost.items() if count}


@given(one=fleets(), request_=REQUESTS)
def test_every_idle_gpu_is_counted_once(one: FleetSnapshot, request_: Request) -> None:
    shape = diagnose(one, [request_]).shapes[0]
    assert all(count >= 0 for count in shape.lost.values())
    assert shape.allocatable + sum(shape.lost.values()) == pytest.approx(one.idle_gpus)
    for cause in CAUSES:
        of_types = sum(types[cause] for types in shape.lost_by_type.values())
        assert of_types == pytest.approx(shape.lost[cause])
    assert request_.within_switch or not shape.lost["topology"]
    assert shape.fulfilled == sum(shape.by_type.values()) <= shape.mixed


@given(one=fleets(), request_=REQUESTS)
def test_as_many_are_fulfilled_as_can_be_placed_one_by_one(
    one: FleetSnapshot, request_: Request
) -> None:
    """Counted without the columns: pod by pod on each node."""
    pods: dict[tuple[int, int], int] = {}
    for n in range(len(one.nodes)):
        tasks = [t for t in range(len(one.tasks)) if one.tasks.node[t] == n]
        free = dict.fromkeys(range(int(one.nodes.gpus[n])), MILLI)
        for t in tasks:
            if 0 < one.tasks.gpus[t] < MILLI:
                free[int(one.tasks.device[t])] -= int(one.tasks.gpus[t])
        for t in tasks:
            for _ in range(int(one.tasks.gpus[t]) // MILLI):
                del free[next(d for d, left in free.items() if left == MILLI)]
        cpus = int(one.nodes.cpus[n] - sum(one.tasks.cpus[t] for t in tasks))
        memory = int(one.nodes.memory[n] - sum(one.tasks.memory[t] for t in tasks))
        count = 0
        while cpus >= request_.cpus and memory >= request_.memory:
            if request_.gpus < MILLI:
                fitting = [d for d, left in free.items() if left >= request_.gpus]
                if not fitting:
                    break
                free[fitting[0]] -= request_.gpus
            else:
                whole = [d for d, left in free.items() if left == MILLI]
                if len(whole) < request_.gpus // MILLI:
                    break
                for d in whole[: request_.gpus // MILLI]:
                    del free[d]
            cpus -= request_.cpus
            memory -= request_.memory
            count += 1
        # A node without a switch is one of its own.
        switch = int(one.nodes.switch[n])
        place = (switch if switch >= 0 else -1 - n) if request_.within_switch else 0
        key = (int(one.nodes.gpu_type[n]), place)
        pods[key] = pods.get(key, 0) + count
    expected = sum(count // request_.pods for count in pods.values())
    assert diagnose(one, [request_]).shapes[0].fulfilled == expected


def test_whole_numbers_are_added_up() -> None:
    """No cause has a rounding error for a number of GPUs."""
    for text in ("0.3G0C", "0.7G1C", "3x0.1G"):
        found = diagnose(fleet(machines(7, gpus=3), []), [Request.parse(text)]).shapes[0]
        for gpus in (found.allocatable, *found.lost.values()):
            assert gpus == round(gpus, 3)
        assert sum(found.lost.values()) + found.allocatable == pytest.approx(21)


def test_each_cause_by_itself() -> None:
    task = {"id": "t", "node": "n0", "gpus": 6, "cpus": 0}
    assert lost(fleet(machines(1), [task]), "4G") == {"stranded": 2}
    assert lost(fleet(machines(1), [{**task, "cpus": 120}]), "1G8C") == {"cpu": 1}
    assert lost(fleet(machines(1), [{**task, "memory_mb": 9.5e5}]), "1G0C40M") == {"memory": 1}
    assert lost(fleet(machines(1), [{**task, "gpus": 0.25}]), "1G") == {"fractional": 0.75}
    assert lost(fleet(machines(1), [{**task, "gpus": 0.25}]), "0.5G") == {"fractional": 0.25}
    apart = [{**node, "switch": f"s{n % 2}"} for n, node in enumerate(machines(4))]
    assert lost(fleet(apart, []), "4x8G@switch") == {"topology": 32}
    assert not lost(fleet(apart, []), "4x8G")
    assert lost(fleet(apart, []), "3x8G@switch") == {"stranded": 8, "topology": 24}


def test_types_are_not_mixed_in_a_job_unless_asked() -> None:
    nodes = [{**node, "gpu_type": "AB"[n % 2]} for n, node in enumerate(machines(2))]
    shape = diagnose(fleet(nodes, []), [Request.parse("2x8G")]).shapes[0]
    assert (shape.fulfilled, shape.mixed) == (0, 1)


def test_the_nodes_that_matter_come_first() -> None:
    tasks = [
        {"id": "a", "node": "n0", "gpus": 1},
        {"id": "b", "node": "n1", "gpus": 6},
        {"id": "c", "node": "n2", "gpus": 8},
    ]
    found = diagnose(fleet(machines(4), tasks), [Request.parse("8G")]).worst_nodes()
    assert [(one["node"], one["unallocatable_gpus"]) for one in found] == [("n0", 7), ("n1", 2)]


@pytest.mark.parametrize(
    ("text", "again"),
    [
        ("8g128c", "8G128C"),
        ("0.25G2C", "0.25G2C"),
        ("16x8G96C@switch", "16x8G96C@switch"),
        ("1G4C2.5M", "1G4C2.5M"),
        (" 2G ", "2G0C"),
    ],
)
def test_requests(text: str, again: str) -> None:
    assert str(Request.parse(text)) == again
    assert Request.parse(again) == Request.parse(text)


@pytest.mark.parametrize(
    "text", ["", "8", "0G4C", "0x1G", "1.5G", "8G-1C", "8G4C@rack", "9" * 99 + "G"]
)
def test_no_requests(text: str) -> None:
    with pytest.raises(UsageError):
        Request.parse(text)


def test_the_command_and_its_report(cli: Cli, tmp_path: Path) -> None:
    nodes = [
        {**node, "name": f"<b>{n}", "switch": f"s{n % 2}"} for n, node in enumerate(machines(40))
    ]
    tasks = [{"id": f"t{n}", "node": f"<b>{n}", "gpus": 1 + n % 7} for n in range(30)]
    path, page = tmp_path / "fleet.json", tmp_path / "report.html"
    document.write_snapshot(fleet(nodes, tasks), path)
    done = cli("fleet", "diagnose", str(path), "--json", "-o", str(page))
    says = json.loads(done.out)
    schema = json.loads((ROOT / "docs" / "schemas" / "fleet-diagnosis-v1.schema.json").read_text())
    jsonschema.validate(says, schema)
    assert [one["request"] for one in says["requests"]] == list(map(str, DEFAULT_REQUESTS))
    for one in says["requests"]:
        total = one["allocatable_gpus"] + sum(one["unallocatable_gpus"].values())
        assert total == pytest.approx(says["idle_gpus"])
    text = page.read_text()
    assert "origin unstated" in text
    assert "&lt;b&gt;" in text
    assert "<b>" not in text.replace("<bdi>", "")
    assert text.count('<svg class="chart') == 3
    shown = cli("fleet", "diagnose", str(path), "-r", "8g").out
    assert "8G0C" in shown
    assert "largest cause" in shown
    assert cli("fleet", "diagnose", str(path), "-r", "much").code == 2
