"""The test suite cannot leave this machine."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest


def test_another_machine_cannot_be_reached() -> None:
    with (
        socket.socket() as sock,
        pytest.raises(RuntimeError, match=r"may not connect to 192\.0\.2\.1"),
    ):
        sock.connect(("192.0.2.1", 80))


def test_a_name_cannot_be_looked_up() -> None:
    with pytest.raises(RuntimeError, match=r"may not look up example\.org"):
        socket.getaddrinfo("example.org", 443)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_this_machine_can(host: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection((host, server.getsockname()[1]), timeout=5) as client:
            assert client.getpeername()[0] == "127.0.0.1"


def test_unix_sockets_work(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind(path)
        server.listen()
        client.connect(path)
        assert client.getpeername() == path


def test_home_is_not_the_users(clean_environment: Path) -> None:
    assert Path.home() == clean_environment
    ours = {name: value for name, value in os.environ.items() if name.startswith("SCHEDMATE_")}
    assert ours == {"SCHEDMATE_SITE": str(clean_environment / "site")}
