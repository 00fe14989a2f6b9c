"""`schedmate doctor` and `schedmate llm ledger` against real servers, good and bad."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cli_runner import Cli
from openai_server import Raw, Request, Server, completion, serve


def capable(request: Request) -> Any:
    """A server that can all that reading needs."""
    if "response_format" in request:
        return completion(json.dumps({"city": "Paris", "country": "France"}), cached=32)
    if "tools" in request:
        return completion(None, [("note_word", {"word": "ready"})], cached=32)
    return completion("one", cached=32)


def findings(cli: Cli, monkeypatch: pytest.MonkeyPatch, server: Server) -> dict[str, Any]:
    monkeypatch.setenv("SCHEDMATE_LLM_BASE_URL", server.url)
    document = json.loads(cli("doctor", "--json").out)
    return {one["name"]: one for one in document["checks"]}


def test_nothing_is_asked_without_a_model(cli: Cli) -> None:
    checks = {one["name"]: one for one in json.loads(cli("doctor", "--json").out)["checks"]}
    assert checks["model"]["status"] == "ok"
    assert "none is set" in checks["model"]["fact"]


def test_a_capable_server(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve(capable) as server:
        checks = findings(cli, monkeypatch, server)
    about = {name: one for name, one in checks.items() if name.startswith("model")}
    assert {one["status"] for one in about.values()} == {"ok"}
    assert "test-7B" in about["model"]["fact"]
    assert "65,536" in about["model context"]["fact"]
    assert "json_schema" in about["model schema"]["fact"]
    assert "32 tokens" in about["model prefix cache"]["fact"]
    assert "model size" not in about


def test_a_small_model_without_tools_schema_or_cache(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve(lambda request: completion("1.0.0.0")) as server:
        server.models = [{"id": "SmolLM2-135M-Instruct", "object": "model", "max_model_len": 2048}]
        checks = findings(cli, monkeypatch, server)
    warned = {name for name, one in checks.items() if one["status"] == "warning"}
    assert {
        "model context",
        "model size",
        "model tools",
        "model schema",
        "model prefix cache",
    } <= warned
    assert "0.135" in checks["model size"]["fact"]
    assert all(checks[name]["fix"] for name in warned)


@pytest.mark.parametrize("reply", [Raw(401, b"{}"), Raw(404, b""), Raw(200, b"<html>")])
def test_a_server_that_is_none(cli: Cli, monkeypatch: pytest.MonkeyPatch, reply: Raw) -> None:
    with serve(lambda request: reply) as server:
        server.models = [{"id": "other", "object": "model"}]
        monkeypatch.setenv("SCHEDMATE_LLM_MODEL", "wanted")
        checks = findings(cli, monkeypatch, server)
        assert cli("doctor").code == 1
    assert checks["model"]["status"] == "failed"
    assert "other" in checks["model"]["fix"]


def test_nobody_there(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve(capable) as server:
        pass
    checks = findings(cli, monkeypatch, server)
    assert checks["model"]["status"] == "failed"
    assert "vllm serve" in checks["model"]["fix"]


def test_a_server_open_to_all_networks(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    from schedmate.llm.probe import listens_openly

    with (
        socket.create_server(("0.0.0.0", 0)) as wide,
        socket.create_server(("127.0.0.1", 0)) as own,
    ):
        assert listens_openly(wide.getsockname()[1])
        assert not listens_openly(own.getsockname()[1])


def test_a_remote_endpoint_without_key_or_encryption(monkeypatch: pytest.MonkeyPatch) -> None:
    from schedmate.commands.doctor import _server_exposure
    from schedmate.llm.endpoint import Endpoint

    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    facts = [one.fact for one in _server_exposure(Endpoint("http://models.example/v1", "m"))]
    assert len(facts) == 2
    monkeypatch.setenv("SCHEDMATE_LLM_API_KEY", "k")
    assert list(_server_exposure(Endpoint("https://models.example/v1", "m"))) == []


def test_ledger_lists_and_adds_up(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no model has been called" in cli("llm", "ledger").out
    with serve(capable) as server:
        findings(cli, monkeypatch, server)
    document = json.loads(cli("llm", "ledger", "--json").out)
    assert document["schema"] == "schedmate.ledger/v1"
    [total] = document["totals"]
    assert (total["purpose"], total["model"], total["calls"]) == ("doctor", "test-7B", 4)
    assert total["input_tokens"] == 400
    assert len(json.loads(cli("llm", "ledger", "--json", "-n", "2").out)["calls"]) == 2
    assert json.loads(cli("llm", "ledger", "--json", "--since", "1s").out)["calls"] is not None
    shown = cli("llm", "ledger").out
    assert "440 tokens" in shown
    assert "test-7B" in shown
