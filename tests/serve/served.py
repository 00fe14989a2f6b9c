"""A service of a test's own: in this process, over a unix socket, with a client."""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import uvicorn
from processes import LONG_S

from schedmate.serve.app import create_app
from schedmate.serve.options import Limits, ServeOptions
from schedmate.serve.service import Service
from schedmate.settings import load_settings

TOKEN = "0123456789abcdef-of-a-test"


class Served:
    """The service, its address, and clients for it."""

    def __init__(self, service: Service, address: Any) -> None:
        self.service = service
        self.address = address

    def client(self, token: str | None = None, **headers: str) -> httpx2.Client:
        """A client that keeps its connections open; close it."""
        unix = isinstance(self.address, str)
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        return httpx2.Client(
            transport=httpx2.HTTPTransport(uds=self.address) if unix else None,
            base_url="http://localhost" if unix else f"http://127.0.0.1:{self.address}",
            headers=headers,
            timeout=LONG_S,
            trust_env=False,
        )

    def post(self, path: str, document: Any, **how: Any) -> httpx2.Response:
        with self.client(**how) as client:
            return client.post(path, json=document)

    def get(self, path: str, **how: Any) -> httpx2.Response:
        with self.client(**how) as client:
            return client.get(path)


@contextmanager
def served(folder: Path, history: Path | None = None, **options: Any) -> Iterator[Served]:
    """A service that is ready; over TCP where `port` is given, 0 for a free one."""
    given: dict[str, Any] = {"limits": Limits(advice_s=60.0)}
    given |= {"state": folder / "state", "record": folder / "record.db", **options}
    path = folder / f"{secrets.token_hex(4)}.sock"
    if "port" not in given:
        given["socket"] = path
    service = Service(
        load_settings(history=history or folder / "history", deadline_s=60.0),
        ServeOptions(**given),
    )
    if "port" in given:
        listener = socket.create_server(("127.0.0.1", given["port"]))
        address: Any = listener.getsockname()[1]
    else:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.listen()
        address = str(path)
    config = uvicorn.Config(create_app(service), log_config=None, lifespan="on")  # type: ignore[arg-type]
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        wait_until(lambda: service.ready or service.failure is not None)
        yield Served(service, address)
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


def wait_until(happened: Any) -> None:
    """Return once something is so that will be."""
    until = time.monotonic() + LONG_S
    while not happened():
        assert time.monotonic() < until, "it never happened"
        time.sleep(0.01)
