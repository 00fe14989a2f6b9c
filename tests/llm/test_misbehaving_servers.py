"""Servers that misbehave below what a client expects: every request ends, and nothing is followed.

Each behaviour meets the three ways in which schedmate talks to a server: a chat completion, the
list of models, and embeddings.
"""

from __future__ import annotations

import gzip
import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx2
import pytest
from cli_runner import Cli
from socket_server import (
    Behaviour,
    SocketServer,
    dripping,
    for_ever,
    once,
    silent_after,
    socket_server,
)

from schedmate.base.errors import SchedmateError
from schedmate.base.http import deadline, open_client
from schedmate.llm import LLM
from schedmate.llm.endpoint import Endpoint
from schedmate.llm.probe import served_models
from schedmate.llm.store import Budget, Store
from schedmate.retrieval import embedders as openai_backend
from schedmate.retrieval.embedders import load_embedder

TIMEOUT_S = 0.2
BOUNDED_S = 150.0
"""What tells a request that ended from one that would go on; far above TIMEOUT_S."""
TRIES = 10

OK = b"HTTP/1.1 200 OK\r\n"
JSON = OK + b"content-type: application/json\r\n"
CHUNKED = JSON + b"transfer-encoding: chunked\r\n\r\n"
MODEL = b'{"id": "m", "object": "model", "created": 1, "owned_by": "x"}'


def _reply(body: bytes, *headers: bytes) -> bytes:
    lines = [b"content-length: %d" % len(body), b"connection: close", *headers]
    return JSON + b"\r\n".join(lines) + b"\r\n\r\n" + body


def _close_half(connection: socket.socket) -> None:
    connection.shutdown(socket.SHUT_WR)
    while connection.recv(65_536):
        pass


BEHAVIOURS: dict[str, Behaviour] = {
    "says nothing": silent_after(),
    "drips its status line": dripping(b"HTTP/1.1 200 " + b"O" * 10_000),
    "drips a header": dripping(OK + b"x-a: " + b"a" * 10_000),
    "drips headers without end": for_ever(OK, b"x-a: b\r\n"),
    "drips spaces before its status line": for_ever(b" "),
    "floods with 100 Continue": for_ever(b"HTTP/1.1 100 Continue\r\n\r\n", pause_s=0),
    "drips 100 Continue": for_ever(b"HTTP/1.1 100 Continue\r\n\r\n"),
    "drips 103 Early Hints": for_ever(b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"),
    "has headers without end": for_ever(OK, b"x-a: " + b"b" * 60_000 + b"\r\n", pause_s=0),
    "drips its body": for_ever(JSON + b"content-length: 100000\r\n\r\n{", b" "),
    "drips chunks": for_ever(CHUNKED, b"1\r\n \r\n"),
    "drips the length of a chunk": for_ever(CHUNKED, b"0"),
    "has an endless chunk extension": for_ever(CHUNKED + b"1;a=", b"b" * 60_000, pause_s=0),
    "has endless chunks": for_ever(CHUNKED, b"10000\r\n" + b" " * 65_536 + b"\r\n", pause_s=0),
    "has an endless body": for_ever(JSON + b"\r\n", b" " * 65_536, pause_s=0),
    "drips trailers": for_ever(CHUNKED + b"0\r\n", b"x-a: b\r\n"),
    "promises a terabyte and is silent": silent_after(
        JSON + b"content-length: 1000000000000\r\n\r\n{"
    ),
    "promises a number that is none": silent_after(JSON + b"content-length: -5\r\n\r\n{"),
    "sends chunks that are none": silent_after(CHUNKED + b"zz\r\nhello\r\n"),
    "closes half of the connection": _close_half,
    "closes in the middle": once(JSON + b"content-length: 500\r\n\r\n{"),
    "sends a bomb": silent_after(
        _reply(gzip.compress(b" " * 50_000_000), b"content-encoding: gzip")
    ),
    "nests a hundred thousand lists": silent_after(_reply(b'{"data": ' + b"[" * 100_000)),
    "speaks something else": silent_after(b"220 mail.example ESMTP\r\n"),
    "lists models without end": for_ever(
        CHUNKED + b'12\r\n{"object": "list", \r\n9\r\n"data": [\r\n',
        b"%x\r\n%s,\r\n" % (len(MODEL) + 1, MODEL),
        pause_s=0,
    ),
    "lists models slowly": for_ever(
        CHUNKED + b'12\r\n{"object": "list", \r\n9\r\n"data": [\r\n',
        b"%x\r\n%s,\r\n" % (len(MODEL) + 1, MODEL),
    ),
    "switches protocols": silent_after(
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\n\r\n"
    ),
}  # fmt: skip


@pytest.fixture
def chat(tmp_path: Path) -> Iterator[Callable[[str], object]]:
    opened: list[LLM] = []

    def ask(url: str) -> object:
        store = Store(tmp_path / "data")
        options = {"timeout_s": TIMEOUT_S, "max_tokens": 256, "budget": Budget()}
        opened.append(LLM(endpoint=Endpoint(url, "m"), store=store, **options))  # type: ignore[arg-type]
        return opened[-1].chat("test").invoke("hello")

    yield ask
    for llm in opened:
        llm.close()


@pytest.fixture(params=["chat", "models", "embeddings"])
def request_to(
    request: pytest.FixtureRequest,
    chat: Callable[[str], object],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[str], object]:
    """One way to send a request to a base URL."""
    monkeypatch.setattr(openai_backend, "OPENAI_TIMEOUT_S", TIMEOUT_S)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-a-key-of-some-length")
    ways: dict[str, Callable[[str], object]] = {
        "chat": chat,
        "models": lambda url: served_models(Endpoint(url, ""), timeout_s=TIMEOUT_S),
        "embeddings": lambda url: load_embedder("openai", base_url=url),
    }
    return ways[request.param]


@contextmanager
def bounded() -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < BOUNDED_S


def tries(server: SocketServer) -> Iterator[None]:
    """Until a request came: on a busy machine TIMEOUT_S may be over before one is sent."""
    for _ in range(TRIES):
        yield
        if server.requests:
            return


@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_a_request_ends(request_to: Callable[[str], object], behaviour: str) -> None:
    with socket_server(BEHAVIOURS[behaviour]) as server:
        for _ in tries(server):
            with bounded(), pytest.raises(SchedmateError) as caught:
                request_to(f"http://127.0.0.1:{server.port}/v1")
        assert server.requests
        assert server.all_hung_up(BOUNDED_S), "the connection was left open"
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "behaviour",
    {
        "says nothing": silent_after(),
        "drips a record": dripping(b"\x16\x03\x03\x40\x00" + b"\0" * 10_000),
        "floods": for_ever(b"\x16\x03\x03\x40\x00" + b"\0" * 16_384, pause_s=0),
    }.items(),
    ids=lambda item: item[0],
)
def test_a_handshake_ends(
    request_to: Callable[[str], object], behaviour: tuple[str, Behaviour]
) -> None:
    with socket_server(behaviour[1], reads=False) as server:
        with bounded(), pytest.raises(SchedmateError):
            request_to(f"https://127.0.0.1:{server.port}/v1")
        assert server.all_hung_up(BOUNDED_S)


def test_a_connection_that_nobody_accepts_ends(request_to: Callable[[str], object]) -> None:
    with socket.socket() as listening, socket.socket() as first, socket.socket() as second:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        for waiting in (first, second):  # they fill the queue, and the next one gets no answer
            waiting.setblocking(False)
            waiting.connect_ex(listening.getsockname())
        with bounded(), pytest.raises(SchedmateError):
            request_to(f"http://127.0.0.1:{listening.getsockname()[1]}/v1")


def test_a_name_that_is_looked_up_for_ever_ends(
    request_to: Callable[[str], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: time.sleep(BOUNDED_S * 2))
    with bounded(), pytest.raises(SchedmateError):
        request_to("http://localhost:1/v1")


def test_a_request_that_is_not_read_ends() -> None:
    """What is sent is larger than all buffers on the way, and the server takes none of it."""
    content = b" " * 50_000_000
    with socket_server(lambda it: time.sleep(BOUNDED_S * 2), reads=False) as server:
        url = f"http://127.0.0.1:{server.port}"
        with open_client(url, []) as http, bounded(), deadline(time.monotonic() + 3.0):
            with pytest.raises(httpx2.WriteTimeout):
                http.post(url, content=content)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("elsewhere", [True, False], ids=["another host", "itself"])
def test_a_redirection_is_not_followed(
    request_to: Callable[[str], object], status: int, elsewhere: bool
) -> None:
    with socket_server(once(_reply(b"{}"))) as other:
        head = b"HTTP/1.1 %d Moved\r\ncontent-length: 0\r\n" % status
        place = b"location: http://127.0.0.1:%d/v1/loop\r\n\r\n"
        ports: list[int] = []
        with socket_server(lambda it: it.sendall(head + place % ports[0])) as server:
            ports.append(other.port if elsewhere else server.port)
            for _ in tries(server):
                with bounded(), pytest.raises(SchedmateError):
                    request_to(f"http://127.0.0.1:{server.port}/v1")
        assert other.requests == []
        assert len(server.requests) == 1


def test_an_empty_page_of_models_that_promises_more_is_the_last(
    request_to: Callable[[str], object],
) -> None:
    more = {"object": "list", "data": [], "has_more": True, "first_id": "a", "last_id": "a"}
    with socket_server(once(_reply(json.dumps(more).encode()))) as server:
        for _ in tries(server):
            with bounded(), suppress(SchedmateError):
                request_to(f"http://127.0.0.1:{server.port}/v1")
        assert len(server.requests) == 1


@pytest.mark.parametrize("behaviour", ["drips a header", "lists models without end"])
@pytest.mark.parametrize("command", ["doctor", "analyze"])
def test_commands_end(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, behaviour: str, command: str
) -> None:
    (tmp_path / "train.py").write_text("import argparse\nprint('hello')\n")
    arguments = {
        "doctor": ["doctor"],
        "analyze": ["analyze", str(tmp_path), "-c", "python train.py"],
    }
    monkeypatch.setenv("SCHEDMATE_LLM_TIMEOUT_S", str(TIMEOUT_S))
    with socket_server(BEHAVIOURS[behaviour]) as server:
        monkeypatch.setenv("SCHEDMATE_LLM_BASE_URL", f"http://127.0.0.1:{server.port}/v1")
        for _ in tries(server):
            with bounded():
                done = cli(*arguments[command])
        assert server.requests
    assert done.code == (1 if command == "doctor" else 0), done.err
    assert "Traceback" not in done.err
