"""`schedmate llm up`: a server that runs is set up; without one, the lines that start one."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from cli_runner import Cli
from openai_server import completion, serve
from test_doctor_model import capable

from schedmate.llm import runtimes
from schedmate.llm.probe import ServedModel

GB = 1e9


@pytest.mark.parametrize(
    ("device", "memory", "model", "context"),
    [
        ("gpu", 80, "7b-q8", 32768),
        ("gpu", 8, "7b-q4", 16384),
        ("cpu", 64, "7b-q4", 32768),
        ("cpu", 12, "7b-q4", 16384),
        ("cpu", 6, "3b-q4", 16384),
        ("cpu", 2, None, 0),
    ],
)
def test_a_model_is_chosen_by_memory(
    device: str, memory: float, model: str | None, context: int
) -> None:
    choice = runtimes.choose(runtimes.Memory(device, memory * GB, "here"))
    assert (choice and (choice.model, choice.context)) == (model and (model, context))


def test_every_runtime_can_be_started_with_every_model() -> None:
    for runtime in runtimes.usual_places():
        for model in ("7b-q8", "7b-q4", "3b-q4"):
            lines = runtimes.lines_to_start(
                runtime, runtimes.Choice(model, 5 * GB, 8192), install=True
            )
            assert len(lines) >= 2
            assert "{" not in "".join(lines)
            assert runtime == "LM Studio" or any(
                "7b" in x.lower() or "3b" in x.lower() for x in lines
            )


def test_a_large_coder_is_preferred_to_others_that_are_served() -> None:
    def best(*names: str) -> str | None:
        found = runtimes.best_model([ServedModel(name, None, "") for name in names])
        return None if found is None else found.name

    assert best("nomic-embed-text", "llama3:8b", "qwen2.5-coder:7b") == "qwen2.5-coder:7b"
    assert best("qwen2.5-coder:1.5b", "llama3:8b") == "llama3:8b"
    assert best("nomic-embed-text") is None


def test_a_running_server_is_written_to_the_settings_and_checked(cli: Cli, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("top_k = 5\n")
    arguments = ("--config", str(config), "llm", "up", "--memory", "16", "--json")
    with serve(capable) as server:
        trial = cli(*arguments, "--llm-base-url", server.url, "--dry-run")
        assert tomllib.loads(config.read_text()) == {"top_k": 5}
        result = cli(*arguments, "--llm-base-url", server.url)
    assert (trial.code, result.code) == (0, 0), result.err
    written = tomllib.loads(config.read_text())
    document = json.loads(result.out)
    assert written == {"top_k": 5, **document["settings"]}
    assert written["llm_base_url"] == server.url
    assert written["llm_model"] == "test-7B"
    assert written["llm_context_tokens"] == 32768
    assert {one["name"] for one in document["checks"]} >= {"model", "model tools"}


def test_without_a_server_the_lines_that_start_one_are_printed(cli: Cli) -> None:
    with serve(lambda request: completion("")) as server:
        gone = server.url
    result = cli("llm", "up", "--llm-base-url", gone, "--memory", "64")
    assert result.code == 5
    assert "ollama" in result.out or "serve" in result.out
    assert "7b" in result.out.lower()
    assert gone in result.err
    none = cli("llm", "up", "--llm-base-url", gone, "--memory", "1")
    assert none.code == 3
    assert "no model fits" in none.err
