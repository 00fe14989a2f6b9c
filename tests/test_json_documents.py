"""Every JSON document that names its version has a schema, and fits it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from cli_runner import Cli

ROOT = Path(__file__).parent.parent
SCHEMAS = {
    path.name.removesuffix(".schema.json"): json.loads(path.read_text())
    for path in (ROOT / "docs" / "schemas").iterdir()
}
OOM = "step 1 loss 2\ntorch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"


def fitting(text: str) -> dict[str, Any]:
    """A document, once it is proved to be what the schema that it names says."""
    document: dict[str, Any] = json.loads(text)
    schema = SCHEMAS[document["schema"].removeprefix("schedmate.").replace("/", "-")]
    jsonschema.validate(document, schema)
    assert set(document) <= set(schema["properties"])
    return document


def test_every_document_has_a_schema() -> None:
    named = {
        f"{name}-{version}"
        for path in (
            *(ROOT / "schedmate").rglob("*.py"),
            ROOT / "benchmarks" / "public_benchmark.py",
        )
        for name, version in re.findall(r"\"schedmate\.([a-z-]+)/(v\d+)\"", path.read_text())
    }
    agents = (ROOT / "schedmate" / "commands" / "agents.py").read_text()
    named |= {
        f"{kind}-{name}-v1"
        for kind in ("slurm", "kubernetes")  # whose commands have one body
        for name in re.findall(r"schedmate\.\{kind\.name\}-(\w+)/v1", agents)
    }
    records = {"journal-v1", "scripted-v1", "trajectory-v1"}  # files that schedmate reads itself
    assert named - records == set(SCHEMAS)


@pytest.mark.parametrize("name", sorted(SCHEMAS))
def test_each_is_a_schema(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMAS[name])
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"schema": "schedmate.other/v1"}, SCHEMAS[name])


@pytest.mark.parametrize(
    "command",
    [
        *("config show", "config show --origin", "doctor", "history calibrate", "llm ledger"),
        *(
            "policies",
            "goodput --gpus 64",
            "rules list",
            "rules list nothing-like-it",
            "reproduce",
            "reproduce sia",
        ),
    ],
)
def test_what_needs_no_input(cli: Cli, command: str) -> None:
    fitting(cli(*command.split(), "--json").out)


def test_history(cli: Cli, tmp_path: Path) -> None:
    base = ("--history", str(tmp_path / "history"), "--json")
    jobs = tmp_path / "jobs.jsonl"
    lines = (ROOT / "examples" / "history.jsonl").read_text().splitlines()
    jobs.write_text("\n".join([*lines[:2], "{}", '{"job_id": "17", "state": "RUNNING"}']))
    imported = fitting(cli("history", "import", str(jobs), *base).out)
    assert (imported["imported"], imported["bad"]) == (3, 1)
    assert len(fitting(cli("history", "list", *base).out)["jobs"]) == 3
    assert fitting(cli("history", "stats", *base).out)["stats"]["jobs"] == 3
    ended = ("--duration", "60", "--state", "COMPLETED")
    assert fitting(cli("history", "finish", "17", *ended, *base).out)["job"]["duration_s"] == 60
    assert fitting(cli("history", "show", "17", *base).out)["job"]["fingerprint"]


def test_calls_of_the_ledger(cli: Cli) -> None:
    from schedmate.llm.store import Call, Store
    from schedmate.settings import data_dir

    store = Store(data_dir())
    store.add(Call(1e9, "test", None, "here", "m", "timeout", 1, 2, 0, 0.1, 1, 1, detail="late"))
    store.add(Call(2e9, "test", "17", "here", "m", "ok", 1, 2, 0, 0.1, 1))
    store.close()
    document = fitting(cli("llm", "ledger", "--json").out)
    assert [call["job"] for call in document["calls"]] == ["17", None]
    assert document["totals"][0]["failed"] == 1


def test_lines_of_a_batch(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "oom.log").write_text(OOM)
    (tmp_path / "logs" / "empty.log").touch()
    run = cli(
        *("triage", str(tmp_path / "logs"), "--jsonl", "--jobs", "1"),
        *("--ledger", str(tmp_path / "ledger")),
    )
    jobs = [fitting(line) for line in run.out.splitlines()]
    assert {job["error"] is None for job in jobs} == {True, False}
    (tmp_path / "jobs.jsonl").write_text("no json")
    run = cli("analyze", "--batch", str(tmp_path / "jobs.jsonl"), "--processes", "1")
    assert fitting(run.out)["exit_code"] == 3


def test_two_logs_compared(cli: Cli, tmp_path: Path) -> None:
    for name, seconds in (("a", 1), ("b", 2)):
        lines = [f"step {n} loss 2.5 step_time {seconds} s\n" for n in range(1, 90)]
        (tmp_path / name).write_text("".join(lines))
    compared = cli("track", "--compare", str(tmp_path / "a"), str(tmp_path / "b"), "--json")
    assert fitting(compared.out)["slowed"] is True
