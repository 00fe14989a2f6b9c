"""`schedmate doctor`: facts, how to mend them, an exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_runner import Cli

from schedmate.commands import doctor


def checks(cli: Cli) -> tuple[int, dict[str, dict[str, Any]]]:
    result = cli("doctor", "--json")
    document = json.loads(result.out)
    assert document["schema"] == "schedmate.doctor/v1"
    assert document["ok"] == (result.code == 0)
    return result.code, {check["name"]: check for check in document["checks"]}


def test_a_fresh_installation_is_well(cli: Cli) -> None:
    code, found = checks(cli)
    assert code == 0
    assert found["python"]["status"] == "ok"
    assert "typer" in found["packages"]["fact"]
    assert found["embedder"]["status"] == "ok"
    assert found["history"]["status"] == "warning"
    assert "schedmate history import" in found["history"]["fix"]
    assert {"extra bge", "extra vllm"} <= set(found)


def test_a_history_is_described(
    cli: Cli, example_history: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCHEDMATE_HISTORY", str(example_history))
    code, found = checks(cli)
    assert code == 0
    assert found["history"]["status"] == "ok"
    assert "40 records" in found["history"]["fact"]


def test_text_has_a_mark_a_fact_and_a_fix(cli: Cli) -> None:
    lines = cli("doctor").out.splitlines()
    assert lines[0].startswith("✓ python: 3.")
    place = next(index for index, line in enumerate(lines) if line.startswith("! history: "))
    assert lines[place + 1].startswith("    to mend: ")


def test_wrong_settings_are_a_failed_check(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCHEDMATE_TOP_K", "none")
    code, found = checks(cli)
    assert code == 1
    assert "SCHEDMATE_TOP_K" in found["settings"]["fact"]


def test_a_misspelt_variable_is_a_warning(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCHEDMATE_TOPK", "3")
    code, found = checks(cli)
    assert code == 0
    assert found["settings"]["status"] == "warning"
    assert "SCHEDMATE_TOPK" in found["settings"]["fact"]


def test_an_embedder_whose_extra_is_missing(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCHEDMATE_EMBEDDER", "bge")
    monkeypatch.setattr(
        doctor, "_version", lambda name: None if name in ("FlagEmbedding", "torch") else "1"
    )
    code, found = checks(cli)
    assert code == 1
    assert found["extra bge"]["status"] == "failed"
    assert found["extra bge"]["fix"] == "pip install 'schedmate[bge]'"


def test_a_damaged_history_is_a_failed_check(
    cli: Cli, example_history: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in example_history.iterdir():
        if path.is_file():
            path.write_bytes(b"\0not what it was\0")
    monkeypatch.setenv("SCHEDMATE_HISTORY", str(example_history))
    code, found = checks(cli)
    assert code == 1
    assert found["history"]["status"] == "failed"
    assert found["history"]["fix"]


def test_an_old_python(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "MINIMUM_PYTHON", (4, 0))
    code, found = checks(cli)
    assert code == 1
    assert found["python"]["status"] == "failed"
