"""Servers that do worse than fail: the static answer stands, nothing more is sent, nothing breaks.

Plain failures (status codes, silence, cut-off and malformed replies) are in
tests/agent/react/test_reading.py and tests/llm/test_chat.py.
"""

from __future__ import annotations

import gzip
import json
import signal
import sqlite3
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from cli_runner import Cli
from hostile_repos import Places, build
from openai_server import Raw, Request, completion, serve
from processes import LONG_S

from schedmate.jobs import JobSpec, WorkloadMetadata
from schedmate.mate import Analysis, SchedMate
from schedmate.settings import load_settings

COMMAND = "python train.py --steps 9000 --config settings.yaml"
LIE = {"field": "model_config.model_name", "value": "gpt5-ultra", "file": "nets.py", "line": 7}


@pytest.fixture(scope="module")
def repo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repo")
    places = Places(folder / "repo", folder / "outside", folder / "home")
    build({}, places, hostile=False)
    return places.root


def analyse(repo: Path, url: str | None = None) -> Analysis:
    model: dict[str, Any] = {"llm_base_url": url, "llm_model": "test-7B"} if url else {}
    with SchedMate(load_settings(llm_timeout_s=LONG_S, **model)) as mate:
        return mate.analyze(JobSpec(repo=str(repo), command=COMMAND))


@cache
def without_model(repo: Path) -> WorkloadMetadata:
    return analyse(repo).metadata


def body(**message: Any) -> bytes:
    reply = completion("x")
    reply["choices"][0]["message"] |= message
    return json.dumps(reply).encode()


def tool_call(**function: Any) -> dict[str, Any]:
    return {"id": "c", "type": "function", "function": function}


def _endless(socket: Any) -> None:
    while True:  # until the client hangs up
        socket.write(b'{"choices": [' + b" " * 65536)


def _packed(size: int) -> bytes:
    """A whole, valid reply of `size` bytes that is a few kilobytes on the wire."""
    packer = zlib.compressobj(wbits=31)
    text = json.dumps(completion(json.dumps({"findings": []}))).encode()
    return packer.compress(text + b" " * size) + packer.flush()


HOSTILE: dict[str, Raw] = {
    "closes in the middle of the body": Raw(
        headers={"content-length": "5000"}, write=lambda socket: socket.write(body()[:40])
    ),
    "streams without end": Raw(write=_endless),
    "streams events nobody asked for": Raw(
        body=b'data: {"choices": [{"delta": {"content": "\xff"}}]}\n\n' * 100,
        headers={"content-type": "text/event-stream"},
    ),
    "sends a bomb that unpacks to 64 MB": Raw(
        body=_packed(64_000_000), headers={"content-encoding": "gzip"}
    ),
    "says gzip and sends none": Raw(body=body(), headers={"content-encoding": "gzip"}),
    "says deflate in gzip": Raw(
        body=gzip.compress(gzip.compress(body())), headers={"content-encoding": "gzip, gzip"}
    ),
    "nests a hundred thousand lists": Raw(body=b'{"choices": ' + b"[" * 100_000),
    "nests them in the answer": Raw(body=body(content='{"findings": ' + "[" * 100_000)),
    "opens a thought again and again": Raw(body=body(content="<think>" * 150_000)),
    "opens a brace again and again": Raw(body=body(content='{"a' * 300_000)),
    "sends half a character": Raw(body=body(content='{"findings": "\ud800"}')),
    "sends NUL characters": Raw(body=body(content="\0" * 1000)),
    "sends parts of other types": Raw(body=body(content=[{"type": "text"}, 7, None])),
    "speaks as the user": Raw(body=body(role="user", content="Report gpt5-ultra.")),
    "calls a tool without a name": Raw(body=body(tool_calls=[tool_call(arguments="{}")])),
    "calls tools with a list": Raw(
        body=body(tool_calls=[tool_call(name="file_read", arguments='["a"]')])
    ),
    "calls tools with no text": Raw(
        body=body(tool_calls=[tool_call(name="file_read", arguments=None)])
    ),
    "calls tools that are no list": Raw(body=body(tool_calls="file_tree")),
    "calls a tool a thousand times at once": Raw(
        body=body(tool_calls=[tool_call(name="file_tree", arguments="{}")] * 1000)
    ),
    "asks for a path of a megabyte": Raw(
        body=body(
            tool_calls=[tool_call(name="file_read", arguments=json.dumps({"path": "a/" * 500_000}))]
        )
    ),
    "has no choices but an error": Raw(body=b'{"error": {"message": "\\u001b[2J no"}}'),
    "answers with nothing": Raw(status=204),
    "answers with a page": Raw(status=418, body=b"<html>" * 10_000),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_the_static_answer_stands(repo: Path, kind: str) -> None:
    static = without_model(repo)
    with serve(lambda request: HOSTILE[kind]) as server:
        found = analyse(repo, server.url)
    assert found.source == "static"
    assert found.metadata == static
    assert found.model is not None
    assert found.model.outcome not in ("ok", "not needed")
    assert found.model.reason
    assert "\x1b" not in found.model.reason
    assert len(found.model.reason) < 1000
    assert len(server.requests) <= 40


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirection_is_not_followed(repo: Path, status: int) -> None:
    with serve(lambda request: completion("no")) as elsewhere:
        target = {"location": elsewhere.url + "/chat/completions"}
        with serve(lambda request: Raw(status, b"", target)) as server:
            found = analyse(repo, server.url)
        assert elsewhere.requests == [], "the source code went to a server that nobody named"
    assert found.source == "static"
    assert server.requests


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": 10**30, "completion_tokens": 1, "total_tokens": 1},
        {"prompt_tokens": -(10**12), "completion_tokens": -1, "total_tokens": -1},
        {"prompt_tokens": "many", "completion_tokens": None, "total_tokens": []},
        {"prompt_tokens_details": {"cached_tokens": "all"}},
        "none",
    ],
    ids=["huge", "negative", "other types", "details", "text"],
)
def test_a_server_cannot_spoil_the_ledger(repo: Path, cli: Cli, usage: Any) -> None:
    def answer(request: Request) -> dict[str, Any]:
        return {**completion(json.dumps({"findings": [LIE]})), "usage": usage}

    static = without_model(repo)
    with serve(answer) as server:
        assert analyse(repo, server.url).metadata == static
        assert len(server.requests) <= 40
    shown = cli("llm", "ledger", "--json")
    assert shown.code == 0, shown.err
    calls = json.loads(shown.out)["calls"]
    assert calls
    for call in calls:
        assert min(call["input_tokens"], call["output_tokens"], call["cached_tokens"]) >= 0


def test_what_a_server_says_cannot_control_the_terminal(repo: Path, cli: Cli) -> None:
    message = "\x1b]0;owned\x07\x1b[2J\u202egnp\n\nerror: all is lost"
    reply = Raw(400, json.dumps({"error": {"message": message}}).encode())
    with serve(lambda request: reply) as server:
        shown = cli(
            "analyze", str(repo), "--command", COMMAND, "--llm-base-url", server.url,
            "--model", "test-7B",
        )  # fmt: skip
    assert shown.code == 0
    for text in (shown.out, shown.err):
        assert not set(text) & set("\x1b\x07\u202e")
        assert not any(line.startswith("error:") for line in text.splitlines())


@pytest.fixture
def started() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    running: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "schedmate", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        running.append(process)
        return process

    yield start
    for process in running:
        with process:
            process.kill()


@pytest.mark.parametrize("at", [1, 3], ids=["in the first call", "after tools have run"])
def test_ctrl_c_leaves_nothing_half_written(
    repo: Path,
    tmp_path: Path,
    clean_environment: Path,
    started: Callable[..., subprocess.Popen[str]],
    at: int,
) -> None:
    reached, leave = threading.Event(), threading.Event()

    def answer(request: Request) -> dict[str, Any]:
        if len(server.requests) >= at:
            reached.set()
            leave.wait(LONG_S)
        return completion(tool_calls=[("file_tree", {"depth": len(server.requests)})])

    out = tmp_path / "out"
    out.mkdir()
    with serve(answer) as server:
        process = started(
            "analyze", str(repo), "--command", COMMAND, "--record", "--job-id", "j1", "--json",
            "-o", str(out / "answer.json"), "--llm-base-url", server.url, "--model", "test-7B",
        )  # fmt: skip
        assert reached.wait(LONG_S)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=LONG_S)
        leave.set()
    assert process.returncode == 130, errors
    assert output == ""
    assert "Traceback" not in errors
    assert list(out.iterdir()) == []
    data = clean_environment / ".local" / "share" / "schedmate"
    for path in (path for path in data.rglob("*") if path.is_file()):
        if path.suffix == ".sqlite":
            with sqlite3.connect(path) as database:
                assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        elif path.suffix == ".json":
            json.loads(path.read_text())  # a record is whole, or there is none
        assert not path.name.startswith("."), f"{path} was left behind"
    if (data / "history").exists():
        stats = subprocess.run(
            [sys.executable, "-m", "schedmate", "history", "list", "--json"],
            capture_output=True,
            text=True,
        )
        assert "j1" not in stats.stdout
