"""Secure connections: verified, bounded, and otherwise like plain ones."""

from __future__ import annotations

import base64
import shutil
import socket
import ssl
import subprocess
import threading
import time
from pathlib import Path

import httpx2
import pytest
from socket_server import Behaviour, for_ever, once, socket_server

from schedmate.base.http import deadline, open_client

BOUNDED_S = 150.0
BODY = b"hello " * 100_000

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the keys")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate of its own authority for 127.0.0.1, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-keyout", "key", "-out", "cert", "-days", "2", "-subj", "/CN=test",
         "-addext", "subjectAltName=IP:127.0.0.1,DNS:model.example"],
        cwd=folder, check=True, capture_output=True,
    )  # fmt: skip
    return folder / "cert", folder / "key"


def secured(behaviour: Behaviour, certificate: tuple[Path, Path]) -> Behaviour:
    """The behaviour inside TLS, after the request has come."""

    def behave(connection: socket.socket) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        with context.wrap_socket(connection, server_side=True) as inner:
            while b"\r\n\r\n" not in inner.recv(65_536):
                pass
            behaviour(inner)

    return behave


def get(port: int, timeout_s: float = BOUNDED_S) -> httpx2.Response:
    url = f"https://127.0.0.1:{port}/"
    with open_client(url, []) as http, deadline(time.monotonic() + timeout_s):
        return http.get(url)


def test_a_reply_comes_through(
    certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(BODY)
    with socket_server(secured(once(head, BODY), certificate), reads=False) as server:
        assert get(server.port).content == BODY


def test_the_end_of_the_connection_is_the_end_of_the_reply(
    certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    with socket_server(
        secured(once(b"HTTP/1.1 200 OK\r\n\r\n", BODY), certificate), reads=False
    ) as server:
        assert get(server.port).content == BODY


def test_a_certificate_that_nobody_vouches_for_is_refused(certificate: tuple[Path, Path]) -> None:
    with socket_server(secured(once(b"no"), certificate), reads=False) as server:
        with pytest.raises(httpx2.ConnectError, match="certificate verify failed"):
            get(server.port)


@pytest.mark.parametrize("pause_s", [0.05, 0])
def test_a_server_that_never_ends_is_left(
    certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, pause_s: float
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    endless = for_ever(b"HTTP/1.1 200 OK\r\n", b"x-a: b\r\n", pause_s=pause_s)
    began = time.monotonic()
    with socket_server(secured(endless, certificate), reads=False) as server:
        with pytest.raises(httpx2.TransportError):
            get(server.port, 0.4)
    assert time.monotonic() - began < BOUNDED_S


def test_a_proxy_is_used_and_not_given_the_key(
    certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    echo = b"HTTP/1.1 200 OK\r\ncontent-length: 41\r\n\r\nproxy password, key-of-the-server, hello."
    with socket_server(secured(once(echo), certificate), reads=False) as server:

        def relay(connection: socket.socket) -> None:
            connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            with socket.create_connection(("127.0.0.1", server.port)) as other:
                back = threading.Thread(target=pump, args=(other, connection))
                back.start()
                pump(connection, other)
                back.join()

        with socket_server(relay) as proxy:
            address = f"http://bob:proxy%20password@127.0.0.1:{proxy.port}"
            monkeypatch.setenv("https_proxy", address)
            url = "https://model.example/v1"
            with open_client(url, ["key-of-the-server"]) as http:
                with deadline(time.monotonic() + BOUNDED_S):
                    reply = http.get(url, headers={"Authorization": "Bearer key-of-the-server"})
    assert reply.text == "[key], [key], hello."
    [asked] = proxy.requests
    assert asked.startswith(b"CONNECT model.example:443 ")
    assert base64.b64encode(b"bob:proxy password") in asked
    assert b"key-of-the-server" not in asked


def pump(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(65_536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # one of them has gone
