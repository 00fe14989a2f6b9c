"""The JSON documents of simulating: each fits its published schema, and the schema names all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from cli_runner import Cli

ROOT = Path(__file__).parents[2]
SCHEMAS = ("simulate", "trace", "synthesize", "tune", "explain", "policies")


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("documents") / "jobs.csv"
    rows = [
        f"j{n},{n * 60},{100 + n % 17 * 40},{1 + n % 4},vc{n % 2},user{n % 3},train-{n % 5},{n}"
        for n in range(600)
    ]
    header = "job_id,submit_s,duration_s,gpus,vc,user,name,guess"
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def fitting(name: str, text: str) -> dict[str, Any]:
    """The document, once it is proved to be what its schema says."""
    schema = json.loads((ROOT / "docs" / "schemas" / f"{name}-v1.schema.json").read_text())
    document: dict[str, Any] = json.loads(text)
    jsonschema.validate(document, schema)
    assert set(document) <= set(schema["properties"])
    for run in document.get("runs", ()):
        assert set(run) <= set(schema["$defs"]["run"]["properties"])
    return document


def test_the_schemas_are_schemas() -> None:
    for name in SCHEMAS:
        path = ROOT / "docs" / "schemas" / f"{name}-v1.schema.json"
        jsonschema.Draft202012Validator.check_schema(json.loads(path.read_text()))


def test_simulate(cli: Cli, trace: Path) -> None:
    base = ("simulate", str(trace), "--cluster", "4x4@vc0,4x4@vc1", "--json")
    document = fitting(
        "simulate",
        cli(
            *(*base, "--policy", "fifo,tiresias,lucid+schedmate", "--workloads", "lucid"),
            *("--seed", "0,1", "--node-mtbf", "10d", "--failures", "bugs=0.1"),
        ).out,
    )
    assert document["origin"] == document["runs"][0]["origin"] == "synthetic"
    assert [one["policy"] for one in document["over_seeds"]] == [
        "fifo",
        "tiresias",
        *document["runs"][2]["policy"].split(),
    ]
    assert set(document["runs"][0]["fairness"]) == {"user", "vc"}
    document = fitting("simulate", cli(*base, "--policy", "fifo").out)
    assert (document["origin"], document["synthetic"], document["made_up"]) == (
        *("unstated", False),
        [],
    )


def test_traces(cli: Cli, trace: Path, tmp_path: Path) -> None:
    document = fitting("trace", cli("traces", "check", str(trace), "--json").out)
    assert document["recurrence"] == 0.9
    out = tmp_path / "drawn.csv"
    drawn = cli("traces", "synthesize", "kalos", "--jobs", "300", "--json", "-o", str(out))
    assert fitting("synthesize", drawn.out)["origin"] == "synthetic"
    document = fitting("trace", cli("traces", "check", str(out), "--json").out)
    assert document["made_up"] == fitting("synthesize", drawn.out)["made_up"]


def test_tune_explain_policies(cli: Cli, trace: Path) -> None:
    fitting("policies", cli("policies", "--json").out)
    tune = ("tune", str(trace), "--policy", "sjf-ageing", "--cluster", "2x4", "--json")
    document = fitting("tune", cli(*tune, "--try", "weight=0.01,1", "--origin", "recorded").out)
    assert document["origin"] == "recorded"
    assert len(document["trials"]) == 3
    pytest.importorskip("interpret")
    document = fitting("explain", cli("explain", str(trace), "--job", "j599", "--json").out)
    assert document["job"]["id"] == "j599"
    assert fitting("explain", cli("explain", str(trace), "--json").out)["job"] is None
