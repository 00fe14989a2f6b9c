"""A model that cannot be reached: an attempt is written down, and no call and no token."""

from __future__ import annotations

import json
import socket
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_runner import Cli
from openai_server import Raw, serve

from schedmate.llm.store import STORE_FILE, Call, Store


@pytest.fixture
def nobody() -> Iterator[str]:
    """A base URL at which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}/v1"


@pytest.fixture
def analyze(cli: Cli, tmp_path: Path) -> Cli:
    (tmp_path / "train.py").write_text("import sys\nprint(sys.argv)\n")
    return lambda *more: cli("analyze", str(tmp_path), "-c", "python train.py", "--json", *more)


def test_no_call_and_no_token(cli: Cli, analyze: Cli, nobody: str) -> None:
    done = analyze("--llm-base-url", nobody, "--model", "m")
    assert done.code == 0, done.err
    model = json.loads(done.out)["model"]
    assert model["outcome"] == "unavailable"
    assert (model["calls"], model["input_tokens"], model["output_tokens"]) == (0, 0, 0)
    ledger = json.loads(cli("llm", "ledger", "--json").out)
    [call] = ledger["calls"]
    assert call["attempts"] >= 1
    assert (call["sent"], call["input_tokens"], call["cost"]) == (0, 0, 0.0)
    [total] = ledger["totals"]
    assert (total["calls"], total["failed"], total["unsent"]) == (0, 0, 1)
    assert total["input_tokens"] == total["output_tokens"] == 0
    assert "0 calls, 0 tokens" in cli("llm", "ledger").out
    assert "1 more reached no server" in cli("llm", "ledger").out


def test_no_budget_is_used(analyze: Cli, nobody: str, clean_environment: Path) -> None:
    for _ in range(3):
        analyze("--llm-base-url", nobody, "--model", "m")
    store = Store(clean_environment / ".local" / "share" / "schedmate")
    assert store.spent() == (0, 0.0)
    store.close()


def test_a_name_without_address_counts_nothing(
    analyze: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    done = analyze("--llm-base-url", "http://model.example/v1", "--model", "m")
    model = json.loads(done.out)["model"]
    assert (model["outcome"], model["calls"]) == ("unavailable", 0)


def test_a_proxy_that_does_not_connect_counts_nothing(
    analyze: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve(lambda request: Raw(502)) as proxy:
        monkeypatch.setenv("https_proxy", proxy.url.removesuffix("/v1"))
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        done = analyze("--llm-base-url", "https://model.example/v1", "--model", "m")
    model = json.loads(done.out)["model"]
    assert (model["outcome"], model["calls"], model["input_tokens"]) == ("unavailable", 0, 0)


def test_a_server_that_fails_counts(cli: Cli, analyze: Cli) -> None:
    with serve(lambda request: Raw(503, b"{}", {"retry-after": "0"})) as server:
        done = analyze("--llm-base-url", server.url, "--model", "m")
    model = json.loads(done.out)["model"]
    assert model["calls"] == 1
    assert model["input_tokens"] > 0  # it may have been paid for
    [call] = json.loads(cli("llm", "ledger", "--json").out)["calls"]
    assert (call["attempts"], call["sent"]) == (3, 3)


def test_a_budget_that_is_used_up_is_no_call(
    cli: Cli, analyze: Cli, nobody: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCHEDMATE_LLM_CALL_TOKENS", "1")
    done = analyze("--llm-base-url", nobody, "--model", "m")
    assert json.loads(done.out)["model"]["calls"] == 0
    [total] = json.loads(cli("llm", "ledger", "--json").out)["totals"]
    assert (total["calls"], total["unsent"]) == (0, 1)


def test_a_ledger_of_an_earlier_version_is_kept(cli: Cli, tmp_path: Path) -> None:
    store = Store(tmp_path)
    for attempts, verdict in ((1, "ok"), (0, "ok"), (2, "rejected")):
        store.add(Call(1.0, "test", None, "here", "m", verdict, 5, 2, attempts=attempts))  # type: ignore[arg-type]
    store.close()
    with sqlite3.connect(tmp_path / STORE_FILE) as database:
        database.execute("ALTER TABLE calls DROP COLUMN sent")
        database.execute("PRAGMA user_version = 1")
    for _ in range(2):
        store = Store(tmp_path)
        assert [(one["attempts"], one["sent"]) for one in store.calls()] == [(2, 2), (0, 0), (1, 1)]
        store.add(Call(1.0, "test", None, "here", "m", "ok"))
        store.close()
        with sqlite3.connect(tmp_path / STORE_FILE) as database:
            database.execute("DELETE FROM calls WHERE id > 3")
