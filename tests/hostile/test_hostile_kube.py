"""API servers that do worse than fail: bounded in time and memory, and our token stays ours.

Each is a real server on a socket; memory is that of a process of its own.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from socket_server import Behaviour, dripping, for_ever, once, socket_server

from schedmate.cluster.kubernetes import api as module
from schedmate.cluster.kubernetes.api import Api, Mirror
from schedmate.cluster.kubernetes.connection import (
    KubernetesError,
    NoRoomError,
    Room,
    connect,
    parsed,
    size_of,
)
from schedmate.cluster.kubernetes.logs import Logs, LogSource

TOKEN = "eyJhbGciOi.JSUzI1NiIsImtpZCI6I.kFCQ0RFRkdISUpLTE1OT1BRUlNUVVZXWFla"
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"
PODS = "/api/v1/pods"


def reply(body: bytes, status: str = "200 OK", *headers: bytes) -> bytes:
    lines = [f"HTTP/1.1 {status}".encode(), b"content-length: %d" % len(body), *headers]
    return b"\r\n".join([*lines, b"connection: close", b"", body])


def chunk(body: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(body), body)


def pod(number: int, **fields: Any) -> dict[str, Any]:
    about = {"name": f"p{number}", "namespace": "a", "uid": f"u-{number}", "resourceVersion": "7"}
    return {"metadata": {**about, **fields.pop("metadata", {})}, **fields}


def reach(port: int, folder: Path) -> Api:
    path = folder / "kubeconfig"
    document = {
        "apiVersion": "v1", "kind": "Config", "current-context": "it",
        "clusters": [{"name": "it", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "it", "user": {"token": TOKEN}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
    }  # fmt: skip
    path.write_text(yaml.safe_dump(document))
    return Api(connect(str(path)), qps=1000)


ENDLESS: dict[str, tuple[Behaviour, str]] = {
    "a body without an end": (
        for_ever(CHUNKED, chunk(b'{"items": ['), chunk(b'{"a": 1},' * 10_000), pause_s=0),
        "larger",
    ),
    "a body of empty lists": (
        once(reply(b'{"items": [' + b"[]," * 2_000_000 + b"[]]}")),
        "values",
    ),
    "headers without an end": (for_ever(HEAD, b"x: " + b"y" * 10_000 + b"\r\n", pause_s=0), "127"),
    "one byte after the other": (dripping(CHUNKED + b"1\r\n[\r\n" * 1000), "answer"),
    "a length that is a lie": (once(HEAD + b"content-length: 99999999999\r\n\r\n{"), "127"),
    "bytes that are no reply": (for_ever(b"\0\xff", pause_s=0), "127"),
    "numbers of a million digits": (once(reply(b'{"items": [' + b"9" * 1_000_000 + b"]}")), "-"),
    "lists within lists": (once(reply(b'{"items": ' + b"[" * 100_000)), "not JSON"),
}


@pytest.mark.parametrize("kind", ENDLESS)
def test_a_list_ends(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TIMEOUT_S", 3.0)
    monkeypatch.setattr(module, "LIST_S", 12.0)
    behaviour, why = ENDLESS[kind]
    with socket_server(behaviour) as server:
        api, began = reach(server.port, tmp_path), time.monotonic()
        if why == "-":  # the entry is skipped
            assert api.list(PODS)[0] == []
            assert api.skipped.count == 1
            return
        with pytest.raises(KubernetesError, match=why) as caught:
            api.list(PODS)
        assert time.monotonic() - began < 60.0
        assert TOKEN not in str(caught.value)
        assert len(str(caught.value)) < 600
        api.close()


def paging(page: Callable[[int], bytes]) -> Behaviour:
    numbers = iter(range(10**9))
    return lambda connection: connection.sendall(reply(page(next(numbers))))


@pytest.mark.parametrize("same", [True, False], ids=["one place", "ever new places"])
def test_a_list_that_goes_on_for_ever_ends(
    same: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LISTED_MB", 2)

    def page(number: int) -> bytes:
        items = [pod(number * 100 + one, spec={"text": "x" * 1000}) for one in range(100)]
        place = "again" if same else f"place-{number}"
        return json.dumps({"metadata": {"continue": place}, "items": items}).encode()

    with socket_server(paging(page)) as server:
        api = reach(server.port, tmp_path)
        with pytest.raises(KubernetesError, match="without an end" if same else "2 MiB"):
            api.list(PODS)
        api.close()


def test_pages_that_are_too_long_are_asked_for_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LONGEST_ANSWER", 20_000)
    objects = [pod(number, spec={"text": "x" * 300}) for number in range(200)]

    def answer(connection: socket.socket) -> None:
        query = server.requests[-1].split(b" ")[1].decode().partition("?")[2]
        asked = dict(pair.split("=") for pair in query.split("&"))
        begin, count = int(asked.get("continue", 0)), int(asked["limit"])
        about = {"continue": str(begin + count)} if begin + count < len(objects) else {}
        body = {"metadata": about, "items": objects[begin : begin + count]}
        connection.sendall(reply(json.dumps(body).encode()))

    with socket_server(answer) as server:
        api = reach(server.port, tmp_path)
        assert [one["metadata"]["name"] for one in api.list(PODS)[0]] == [
            one["metadata"]["name"] for one in objects
        ]
        api.close()


@pytest.mark.parametrize(
    "echo",
    [
        TOKEN, f"Authorization: Bearer {TOKEN}", TOKEN.upper(), TOKEN.encode().hex(),
        "".join(f"\\u{ord(one):04x}" for one in TOKEN), TOKEN.replace(".", "%2e"),
    ],
    ids=["plain", "header", "upper", "hex", "escapes", "url"],
)  # fmt: skip
@pytest.mark.parametrize("place", ["message", "reason", "phrase"])
def test_a_refusal_that_repeats_our_headers_prints_no_token(
    echo: str, place: str, tmp_path: Path
) -> None:
    status = "403 Forbidden" if place != "phrase" else f"403 {echo}"
    body = f'{{"message": "{echo if place == "message" else "no"}", "reason": "{echo}"}}'
    with socket_server(once(reply(body.encode(), status))) as server:
        api = reach(server.port, tmp_path)
        with pytest.raises(KubernetesError) as caught:
            api.create("/api/v1/namespaces", {})
        shown = f"{caught.value} {caught.value.reason}"
        assert TOKEN.lower() not in shown.lower()
        assert TOKEN.encode().hex() not in shown
        api.close()


def test_an_object_that_holds_our_token_is_skipped(tmp_path: Path) -> None:
    hidden = "".join(f"\\u{ord(one):04x}" for one in TOKEN)
    text = json.dumps({"items": [pod(1), pod(2, status={"message": "HERE"})]})
    with socket_server(once(reply(text.replace("HERE", hidden).encode()))) as server:
        api = reach(server.port, tmp_path)
        assert [one["metadata"]["name"] for one in api.list(PODS)[0]] == ["p1"]
        assert api.skipped.news() == [f"an object of {PODS} is skipped: it holds our own token"]
        api.close()


def storm(requests: list[bytes], event: Callable[[int], bytes]) -> Behaviour:
    """Empty lists, and watches that send one event after the other; `requests` is the server's."""

    def behave(connection: socket.socket) -> None:
        if b"watch=true" not in requests[-1]:
            listed = b'{"metadata": {"resourceVersion": "1"}, "items": []}'
            connection.sendall(reply(listed))
            return
        connection.sendall(CHUNKED)
        for number in range(10**9):
            connection.sendall(chunk(event(number)))

    return behave


def added(number: int) -> bytes:
    found = pod(number, spec={"text": "x" * 2000})
    return json.dumps({"type": "ADDED", "object": found}).encode() + b"\n"


def test_a_storm_of_objects_fills_no_more_than_the_room_of_all_mirrors(tmp_path: Path) -> None:
    requests: list[bytes] = []
    with socket_server(storm(requests, added)) as server:
        server.requests = requests
        api = reach(server.port, tmp_path)
        api.room = Room(3 << 20)
        mirrors = [Mirror(api, PODS), Mirror(api, "/apis/batch/v1/jobs")]
        for mirror in mirrors:
            mirror.start()
        highest, end = 0, time.monotonic() + 120.0
        told = []
        while not told and time.monotonic() < end:
            highest = max(highest, api.room.used)
            for mirror in mirrors:
                try:
                    mirror.items(1.0)
                except KubernetesError as error:
                    told += ["memory_mb"] if "memory_mb" in str(error) else []
        for mirror in mirrors:
            mirror.stop()
        api.close()
    assert told, "nobody was told"
    assert highest <= 3 << 20


def test_an_event_without_an_end_and_a_watch_that_drips_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LONGEST_EVENT", 100_000)
    with socket_server(for_ever(CHUNKED, chunk(b"x" * 8192), pause_s=0)) as server:
        api = reach(server.port, tmp_path)
        with pytest.raises(KubernetesError, match="too long"):
            list(api.watch(PODS, read_s=5.0))
        api.close()
    with socket_server(for_ever(CHUNKED, b"1\r\n \r\n")) as server:
        api, began = reach(server.port, tmp_path), time.monotonic()
        with pytest.raises(KubernetesError, match="answer"):
            list(api.watch(PODS, read_s=5.0, timeoutSeconds=-58))
        assert time.monotonic() - began < 60.0
        api.close()
    with socket_server(for_ever(CHUNKED, chunk(b"\n"), pause_s=0)) as server:
        monkeypatch.setattr(module, "LONGEST_WATCH", 200_000)
        api = reach(server.port, tmp_path)
        with pytest.raises(KubernetesError, match="larger"):
            list(api.watch(PODS, read_s=5.0))
        api.close()


def test_a_watch_is_ended_by_another_thread(tmp_path: Path) -> None:
    with socket_server(for_ever(CHUNKED, chunk(b"\n"), pause_s=0.2)) as server:
        api = reach(server.port, tmp_path)
        watching = api.watch(PODS, read_s=60.0)
        ended = threading.Event()

        def read() -> None:
            with pytest.raises(KubernetesError):
                list(watching)
            ended.set()

        thread = threading.Thread(target=read)
        thread.start()
        time.sleep(0.5)
        watching.close()
        assert ended.wait(30.0)
        thread.join()
        api.close()


NAMES = ["../../../x", "/abs/x", "a/b", "..", ".", "", "A", "a\0b", "a b", "x" * 254, "-a", "a..b"]


@pytest.mark.parametrize("name", NAMES)
def test_what_is_no_name_is_no_path(name: str, tmp_path: Path) -> None:
    """Neither of an object that the server lists, nor where a log is written."""
    body = json.dumps({"items": [pod(1, metadata={"name": name}), pod(2)]}).encode()
    with socket_server(once(reply(body))) as server:
        api = reach(server.port, tmp_path)
        assert [one["metadata"]["name"] for one in api.list(PODS)[0]] == ["p2"]
        assert api.skipped.count == 1
        api.close()
    with socket_server(once(reply(b"text\n"))) as server:
        api = reach(server.port, tmp_path)
        logs = Logs(api, tmp_path / "state" / "logs")
        for source in (LogSource("a", name, "train"), LogSource("a", "p", name)):
            folder, why = logs.fetch("run", [source], tail=False, warnings={name: ["w"]})
            assert folder is None
            assert "cannot be the name" in why
        assert logs.of_nodes("run", {name: ["line"], "gpu-1": ["line"]})[0].name == "gpu-1.log"
        assert server.requests == []
        api.close()
    written = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert written == {"kubeconfig", "gpu-1.log"}


@pytest.mark.parametrize(
    "found",
    [
        {"spec": {"nodeName": "../x"}}, {"spec": {"containers": [{"name": "/x"}]}},
        {"status": {"containerStatuses": [{"name": "../x"}]}}, {"metadata": {"namespace": "../a"}},
        {"metadata": {"uid": "a b"}}, {"metadata": {"uid": 7}},
        {"metadata": {"resourceVersion": "7&x=1"}}, {"metadata": {"resourceVersion": {}}},
    ],
)  # fmt: skip
def test_other_names_of_an_object_are_names_too(found: dict[str, Any]) -> None:
    assert module.wrong_with(pod(1)) == ""
    assert "cannot be" in module.wrong_with(pod(1, **found))


def test_sizes_are_about_those_in_memory() -> None:
    with pytest.raises(KubernetesError, match="values"):
        parsed(b"[" * 500_000)
    assert parsed(b'{"a": [1e999, NaN, 99999999999999999999999999, 7, -2.5]}') == {
        "a": [None, None, None, 7, -2.5]
    }
    with pytest.raises(ValueError, match="deep"):
        size_of(json.loads("[" * 200 + "]" * 200))
    room = Room(100)
    room.take(60, "a")
    with pytest.raises(NoRoomError):
        room.take(60, "b")
    room.take(-60, "a")
    room.take(100, "b")


SCRIPT = """\
import resource, sys
from schedmate.cluster.kubernetes.api import Api
from schedmate.cluster.kubernetes.connection import connect, KubernetesError
api = Api(connect(sys.argv[1]))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    api.list("/api/v1/pods")
except KubernetesError as error:
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.parametrize("kind", ["a body without an end", "a body of empty lists"])
def test_a_hostile_answer_takes_less_memory_than_a_gigabyte(kind: str, tmp_path: Path) -> None:
    with socket_server(ENDLESS[kind][0]) as server:
        reach(server.port, tmp_path).close()
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, str(tmp_path / "kubeconfig")],
            capture_output=True, text=True, timeout=300, check=True,
        )  # fmt: skip
    assert int(done.stdout) < 150, "MiB more than before"
