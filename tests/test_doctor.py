"""`schedmate doctor`: facts, how to mend them, an exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_runner import Cli

from schedmate.base.errors import installing
from schedmate.base.files import without_password
from schedmate.commands import doctor
from schedmate.retrieval import database, index

EXAMPLES = Path(__file__).parent.parent / "examples"


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
    assert "bge" in found["extras not installed"]["fact"]
    assert "(to add one: " in found["extras not installed"]["fact"]
    assert not any("not needed" in one["fact"] for one in found.values())


def test_a_history_is_described(
    cli: Cli, example_history: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCHEDMATE_HISTORY", str(example_history))
    code, found = checks(cli)
    assert code == 0
    assert found["history"]["status"] == "ok"
    assert "40 records" in found["history"]["fact"]


def test_an_unmeasured_threshold_is_a_warning(
    cli: Cli, example_history: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCHEDMATE_HISTORY", str(example_history))
    monkeypatch.setattr("schedmate.retrieval.embedders.BundledEmbedder.threshold", 0.99)
    code, found = checks(cli)
    assert code == 0
    assert found["threshold"]["status"] == "warning"
    assert "schedmate history calibrate" in found["threshold"]["fix"]
    monkeypatch.setenv("SCHEDMATE_THRESHOLD", "0.93")
    assert "threshold" not in checks(cli)[1]


def test_an_embedder_that_does_not_answer_is_not_the_historys_fault(
    cli: Cli, example_history: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCHEDMATE_HISTORY", str(example_history))
    monkeypatch.setenv("SCHEDMATE_EMBEDDER", "openai")
    monkeypatch.setenv("SCHEDMATE_EMBEDDER_BASE_URL", "http://127.0.0.1:9/v1")
    code, found = checks(cli)
    assert code == 1
    assert found["embedder"]["status"] == "failed"
    assert found["history"]["status"] == "ok"


def test_a_history_of_another_embedder_is_a_failed_check(
    cli: Cli, example_history: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCHEDMATE_HISTORY", str(example_history))
    monkeypatch.setattr("schedmate.retrieval.embedders.BundledEmbedder.id", "newer")
    code, found = checks(cli)
    assert code == 1
    assert found["history"]["status"] == "failed"
    assert found["history"]["fix"] == "schedmate history rebuild"


def test_a_history_on_a_network_file_system(
    cli: Cli, example_history: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCHEDMATE_HISTORY", str(example_history))
    assert checks(cli)[1]["history disk"]["status"] == "ok"
    table = example_history.parent / "mounts"
    table.write_text(f"40 22 0:45 / {example_history} rw - nfs4 server:/export rw\n")
    monkeypatch.setattr(database, "MOUNTS", table)
    code, found = checks(cli)
    assert code == 0
    assert found["history disk"]["status"] == "warning"
    assert "nfs4" in found["history disk"]["fact"]


def test_a_large_index_that_is_lost(
    cli: Cli, example_history: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCHEDMATE_HISTORY", str(example_history))
    for module in (index, index):
        monkeypatch.setattr(module, "EXACT_UP_TO", 5)
    _, found = checks(cli)
    assert found["index"]["status"] == "warning"
    command = found["index"]["fix"].split()[1:]
    searched = cli(
        *("analyze", str(EXAMPLES / "train_repo"), "--history", str(example_history)),
        *("--command", "python train.py data=imagenette"),
    )
    assert searched.err.count("schedmate history rebuild --index") == 1
    assert cli(*command).code == 0
    assert checks(cli)[1]["index"]["status"] == "ok"


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
    assert found["extra bge"]["fix"] == installing("bge")


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


@pytest.mark.parametrize(
    ("address", "fix"),
    [
        ("htp://x", "SCHEDMATE_LLM_BASE_URL=http://127.0.0.1:8000/v1"),
        ("http://127.0.0.1:9/v1", "vllm serve"),
    ],
)
def test_a_model_that_is_not_reached_says_what_to_change(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, address: str, fix: str
) -> None:
    monkeypatch.setenv("SCHEDMATE_LLM_BASE_URL", address)

    code, found = checks(cli)

    assert code == 1
    assert fix in found["model"]["fix"]
    assert "schedmate doctor" not in found["model"]["fact"]


def test_a_password_in_a_file_is_reported_and_not_shown(
    cli: Cli, clean_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = clean_environment / ".config" / "schedmate" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text('embedder_base_url = "https://me:hunter2@127.0.0.1:9/v1"\n')
    fault = checks(cli)[1]["settings"]
    assert fault["status"] == "warning"
    assert str(file) in fault["fact"]
    assert "https://me:***@127.0.0.1:9/v1" in fault["fact"]
    assert "SCHEDMATE_EMBEDDER_BASE_URL" in fault["fix"]
    for shown in (
        cli("doctor"),
        cli("config", "show"),
        cli("config", "show", "--origin", "--json"),
    ):
        assert "hunter2" not in shown.out + shown.err
    assert "https://me:***@127.0.0.1:9/v1" in cli("config", "show").out
    file.unlink()
    monkeypatch.setenv("SCHEDMATE_EMBEDDER_BASE_URL", "https://me:hunter2@127.0.0.1:9/v1")
    assert "settings" not in checks(cli)[1], "where it belongs"


@pytest.mark.parametrize(
    ("address", "fit"),
    [
        ("https://me:hunter2@host/v1", "https://me:***@host/v1"),
        ("https://me:hun/ter2@host/v1", "https://me:***@host/v1"),
        ("me:hunter2@host", "me:***@host"),
        ("http://me@host:8000/v1", "http://me@host:8000/v1"),
        ("http://host:8000/a@b", "http://host:8000/a@b"),
        ("http://[::1]:8000/v1", "http://[::1]:8000/v1"),
        ("http://127.0.0.1:8000/v1", "http://127.0.0.1:8000/v1"),
    ],
)
def test_an_address_is_shown_without_its_password(address: str, fit: str) -> None:
    assert without_password(address) == fit
