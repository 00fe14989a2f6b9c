"""The command as a process of its own: killed, stopped, in the way of another."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from postgres import address, postgres
from processes import LONG_S, all_ended
from served import wait_until
from test_service import NEW

from schedmate.retrieval.history import JobHistory


def client(path: Path) -> httpx2.Client:
    return httpx2.Client(
        transport=httpx2.HTTPTransport(uds=str(path)), base_url="http://localhost", timeout=LONG_S
    )


def ready(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    with client(path) as one:
        return one.get("/readyz").status_code == 200


@contextmanager
def process(folder: Path, *more: str) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A running `schedmate serve`, ready, and its socket."""
    path = folder / "run" / "serve.sock"
    path.parent.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "schedmate", "serve", "--socket", str(path)]
    command += ["--history", str(folder / "history"), "--state", str(folder / "state"), *more]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as running:
        try:
            wait_until(lambda: ready(path) or running.poll() is not None)
            yield running, path
        finally:
            if running.poll() is None:
                running.kill()
            running.wait()
    assert all_ended(running.pid)


@pytest.mark.slow
def test_killed_under_load_it_loses_nothing_that_it_said_was_stored(tmp_path: Path) -> None:
    acknowledged: set[str] = set()
    with process(tmp_path) as (running, path):

        def store(writer: int) -> None:
            with client(path) as one:
                for number in range(100_000):
                    job = f"{writer}-{number}"
                    try:
                        answer = one.post("/v1/history", json={"jobs": [{"job_id": job}]})
                    except httpx2.TransportError:
                        return
                    assert answer.status_code == 200
                    acknowledged.add(job)

        threads = [threading.Thread(target=store, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(acknowledged) >= 200)
        os.kill(running.pid, signal.SIGKILL)
        for thread in threads:
            thread.join()
    with JobHistory.open(tmp_path / "history", create=False, read_only=True) as history:
        stored = {record.job_id for record in history.export()}
    assert acknowledged <= stored
    assert len(acknowledged) >= 200
    with process(tmp_path) as (_, path), client(path) as one:  # a dead socket is in nobody's way
        assert one.get("/v1/history").json()["size"] == len(stored)


def test_two_share_one_history(tmp_path: Path) -> None:
    share_a_history(tmp_path, str(tmp_path / "history"))


@pytest.mark.live
@pytest.mark.filterwarnings("ignore:XDG_RUNTIME_DIR is not set")
def test_two_share_one_history_in_postgresql(tmp_path: Path) -> None:
    with postgres() as server:
        share_a_history(tmp_path, address(server, tmp_path))


def share_a_history(tmp_path: Path, history: str) -> None:
    """What either of two services stores, both learn from; nothing is lost or double."""
    shared = ("--history", history)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    job = {"metadata": NEW, "state": "COMPLETED", "submit_time": 1e9, "duration_s": 100.0}
    with process(tmp_path / "a", *shared) as (_, first), process(tmp_path / "b", *shared) as (_, b):

        def work(number: int) -> None:
            """Stores a job of its own and one that others store, too, and asks."""
            jobs = [{**job, "job_id": one} for one in (f"n{number}", f"both{number // 2}")]
            with client((first, b)[number % 2]) as one:
                assert one.post("/v1/history", json={"jobs": jobs}).status_code == 200
                assert one.post("/v1/advise", json={"job": {}, "metadata": NEW}).status_code == 200

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(40)))
        for path in (first, b):
            with client(path) as one:
                assert one.get("/v1/history").json()["size"] == 60
                told = one.post("/v1/advise", json={"job": {}, "metadata": NEW}).json()
                assert told["duration_s"] == pytest.approx(100.0), told


def test_it_stops_when_what_it_accepted_is_answered(tmp_path: Path) -> None:
    with process(tmp_path, "--log-requests") as (running, path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        with client(path) as one:
            assert one.post("/v1/history", json={"jobs": [{"job_id": "1"}]}).status_code == 200
        second = subprocess.run(
            [sys.executable, "-m", "schedmate", "serve", "--socket", str(path)],
            capture_output=True, text=True,
        )  # fmt: skip
        assert second.returncode == 3
        assert "another service answers" in second.stderr
        running.terminate()
        assert running.stderr is not None
        said = running.stderr.read()
        assert running.wait() == 0, said
        assert not path.exists()
    lines: list[Any] = [json.loads(line) for line in said.splitlines()]
    assert {line["status"] for line in lines if line["message"] == "request"} >= {200}


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--host", "0.0.0.0"], 2, "--token-file"),
        (["--root", "/no/such/place"], 3, "is not a directory"),
        (["--token-file", "/no/such/file"], 3, "token file"),
        (["--socket-mode", "rw"], 2, "--socket-mode"),
        (["--deadline", "0s"], 2, "--deadline"),
        (["--socket", "/no/such/folder/serve.sock"], 3, "there is no directory /no/such/folder"),
    ],
)
def test_what_it_cannot_start_with_is_one_sentence(
    cli: Any, arguments: list[str], code: int, words: str
) -> None:
    cli("policies")  # whatever any command sets up
    ours = logging.getLogger("schedmate")
    before = list(ours.handlers), ours.propagate
    done = cli("serve", *arguments)
    assert done.code == code
    assert words in done.err
    assert "Traceback" not in done.err
    assert (list(ours.handlers), ours.propagate) == before
