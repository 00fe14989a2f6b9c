"""Clients that hold connections of the service, against the real server and real sockets."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPResponse
from pathlib import Path

import httpx2
import pytest
from processes import LONG_S

TOKEN = "0123456789abcdef-of-a-test"
HALF_HEADER = b"POST /v1/advise HTTP/1.1\r\nHost: localhost\r\nX-More: "
HALF_BODY = (
    b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 400\r\n"
    b"Content-Type: application/x-www-form-urlencoded\r\n\r\ntoken="
)

HEADER_S, BODY_S = 1.5, 2.0
IMPATIENT = f"""
import functools
from schedmate.serve import options
options.Limits = functools.partial(options.Limits, header_s={HEADER_S}, body_s={BODY_S})
from schedmate.__main__ import main
main()
"""
"""`schedmate`, whose service waits less than its own limits, so that tests need not."""


class Running:
    """A `schedmate serve` with a token, at a port of this machine."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process, self.port = process, port

    def status(self, path: str, token: str | None = TOKEN) -> int:
        """What a new connection is answered."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        url = f"http://127.0.0.1:{self.port}{path}"
        return httpx2.get(url, headers=headers, timeout=LONG_S, trust_env=False).status_code

    def connection(self, text: bytes = b"") -> socket.socket:
        """A connection that has sent this much."""
        made = socket.create_connection(("127.0.0.1", self.port), timeout=LONG_S)
        made.sendall(text)
        return made

    def end(self) -> str:
        """Stop it; returns its log."""
        self.process.send_signal(signal.SIGTERM)
        _, log = self.process.communicate(timeout=LONG_S)
        assert self.process.returncode == 0, log
        return log


@contextmanager
def running(folder: Path) -> Iterator[Running]:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    token = folder / "token"
    token.touch(mode=0o600)
    token.write_text(TOKEN)
    command = [sys.executable, "-c", IMPATIENT, "serve", "--port", str(port)]
    command += ["--history", str(folder / "history"), "--state", str(folder / "state")]
    command += ["--token-file", str(token)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        one = Running(process, port)

        def is_ready() -> bool:
            try:
                return one.status("/readyz") == 200
            except httpx2.TransportError:
                assert process.poll() is None, process.communicate()
                return False

        try:
            until = time.monotonic() + LONG_S
            while not is_ready():
                assert time.monotonic() < until
                time.sleep(0.05)
            yield one
        finally:
            process.kill()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path) as one:
        yield one


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """For tests that leave nothing behind."""
    with running(tmp_path_factory.mktemp("shared")) as one:
        yield one


def ended(connection: socket.socket) -> bool:
    """Whether the service has ended a connection, waiting for it."""
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def test_half_headers_keep_nobody_out_and_are_ended(service: Running) -> None:
    with ExitStack() as stack:
        held = [stack.enter_context(service.connection(HALF_HEADER)) for _ in range(540)]
        for _ in range(20):
            assert service.status("/healthz", token=None) == 200
            assert service.status("/v1/history") == 200
        for one in (held[0], held[-1]):  # the first gave way, the last had its time
            assert ended(one)


def test_a_header_that_drips_is_ended(shared: Running) -> None:
    with shared.connection(HALF_HEADER) as drip:
        with pytest.raises((BrokenPipeError, ConnectionError)):  # noqa: PT012
            for _ in range(600):
                drip.sendall(b"x")
                time.sleep(0.1)


def test_thousands_of_connections_keep_nobody_out(service: Running) -> None:
    with ExitStack() as stack:
        for number in range(2_000):
            stack.enter_context(service.connection())
            if number % 100 == 0:
                assert service.status("/v1/history") == 200
        assert service.status("/healthz", token=None) == 200


def test_half_bodies_take_no_place_of_those_with_a_token(service: Running) -> None:
    with ExitStack() as stack:
        held = [stack.enter_context(service.connection(HALF_BODY)) for _ in range(100)]
        for _ in range(10):
            assert service.status("/v1/history") == 200
            assert service.status("/healthz", token=None) == 200
        for one in held[:50]:
            one.close()
        answer = HTTPResponse(held[-1])  # reads on until all of it is there
        answer.begin()
        assert answer.status == 408
        assert json.load(answer)["error"].startswith("the request is inc")
    assert service.status("/v1/history") == 200
    assert "Traceback" not in service.end()


def test_a_stranger_may_send_a_form_and_no_more(shared: Running) -> None:
    url = f"http://127.0.0.1:{shared.port}/login"
    kind = {"Content-Type": "application/x-www-form-urlencoded"}
    form = "token=" + "x" * 100_000
    answer = httpx2.post(url, content=form, headers=kind, timeout=LONG_S, trust_env=False)
    assert answer.status_code == 413


def test_connections_that_are_kept_open_are_used_again(shared: Running) -> None:
    """The limits are those of waiting: who asks again, after a while too, is answered."""
    headers = {"Authorization": f"Bearer {TOKEN}"}
    base = f"http://127.0.0.1:{shared.port}"
    one_connection = httpx2.Limits(max_connections=1)
    with httpx2.Client(
        base_url=base, headers=headers, limits=one_connection, timeout=LONG_S, trust_env=False
    ) as client:
        for pause_s in (0.0, 0.0, 2 * HEADER_S):
            time.sleep(pause_s)
            assert client.get("/v1/history").status_code == 200


def test_names_of_megabytes_are_cut_before_anything_is_made_of_them(service: Running) -> None:
    long = " ".join(f"word{number}" for number in range(300_000))
    metadata = {"model_config": {"model_name": long}, "dataset_config": {"train": long}}
    job = {"job_id": "1", "name": long, "metadata": metadata}
    headers = {"Authorization": f"Bearer {TOKEN}"}
    url = f"http://127.0.0.1:{service.port}/v1/history"
    stored = httpx2.post(
        url, json={"jobs": [job]}, headers=headers, timeout=LONG_S, trust_env=False
    )
    assert stored.status_code in (200, 413), stored.text
    job["metadata"] = {"model_config": {"model_name": long}}
    job["name"] = "short"
    stored = httpx2.post(
        url, json={"jobs": [job]}, headers=headers, timeout=LONG_S, trust_env=False
    )
    assert stored.status_code == 200, stored.text
    seen = httpx2.get(url, headers=headers, timeout=LONG_S, trust_env=False)
    assert len(seen.text) < 10_000
    assert "Traceback" not in service.end()
