"""A stand-in for a Kubernetes API server: `with ApiServer(store) as server: server.url`.

Every body is checked by the published schemas, every write by its resourceVersion, every request by
the rights of who makes it (the bearer token names a service account as `NAMESPACE/NAME`; `admin`
may do all). It lists in pages, watches with bookmarks, knows dry runs, JSON, merge and strategic
merge patches, server-side apply, status, eviction under disruption budgets and logs; it can be told
to forget old versions, to be busy, and to be restarted over what it kept.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import parse_qsl, unquote, urlsplit

from api_calls import ADMIN, Call, Failure
from api_rights import Rights
from api_store import Store

__all__ = ["ADMIN", "ApiServer", "Asked", "Failure", "Fault"]


class Fault(NamedTuple):
    """What the server does to some requests instead of answering them."""

    method: str
    path: re.Pattern[str]
    failure: Failure | None
    """None: the request is carried out, and the connection broken before the answer."""


class Asked(NamedTuple):
    """A request that was made."""

    who: str
    method: str
    path: str
    query: dict[str, str]
    code: int


class ApiServer:
    """One server; `stop` and `start` again is a restart, at the same address."""

    def __init__(self, store: Store, rights: Rights | None = None) -> None:
        self.store, self.rights = store, rights
        self.asked: list[Asked] = []
        self.faults: list[Fault] = []
        self.logs: dict[tuple[str, str, str, bool], str] = {}
        """By namespace, pod, container, and whether it is the previous one's."""
        self.before: Callable[[str, str], None] = lambda _method, _path: None
        """Called before each request: for tests that are quicker than the client."""
        self._http: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None
        self._port = 0
        self._going = False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def stopping(self) -> bool:
        return not self._going

    def start(self) -> None:
        handler = type("Handler", (_Handler,), {"server_of": self})
        self._http = _Server(("127.0.0.1", self._port), handler)
        self._port, self._going = self._http.server_port, True
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        if self._http is None or self._thread is None:
            return
        self._going = False
        self._http.shutdown()
        self._http.break_off()
        self._thread.join()
        self._http.server_close()
        self._http = None

    def fail(self, method: str, path: str, failure: Failure | None, times: int = 1) -> None:
        self.faults += [Fault(method, re.compile(path), failure)] * times

    def requests(self, method: str, path: str = "") -> list[Asked]:
        """Successful requests of a method to paths with a text in them, dry runs left out."""
        return [
            one
            for one in self.asked
            if one.method == method
            and path in one.path
            and one.code < 300
            and not one.query.get("dryRun")
        ]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._open: set[Any] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # a client that has gone

    def break_off(self) -> None:
        for one in list(self._open):
            with suppress(OSError):
                one.shutdown(2)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_of: ApiServer

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        server = self.server_of
        url = urlsplit(self.path)
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        path = unquote(url.path)
        who = self.headers.get("Authorization", "").removeprefix("Bearer ").strip()
        who = self.headers.get("Impersonate-User") or who  # kubectl sends no token without TLS
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            server.before(self.command, path)
            fault = next(
                (
                    f
                    for f in server.faults
                    if f.method in (self.command, "*") and f.path.search(path)
                ),
                None,
            )
            if fault is not None:
                server.faults.remove(fault)
                if fault.failure is not None:
                    raise fault.failure
            code, answer = Call(server, self.command, path, query, who, raw, self.headers).answer()
            if fault is not None:
                self.close_connection = True
                return
        except Failure as failure:
            self._note(who, path, query, failure.code)
            headers = (
                {} if failure.retry_after is None else {"Retry-After": str(failure.retry_after)}
            )
            self._send(
                failure.code, json.dumps(failure.status).encode(), "application/json", headers
            )
            return
        self._note(who, path, query, code)
        if callable(answer):
            self._stream(answer)
        elif isinstance(answer, bytes):
            self._send(code, answer, "text/plain")
        else:
            self._send(code, json.dumps(answer).encode(), "application/json")

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815 - http.server's names

    def _note(self, who: str, path: str, query: dict[str, str], code: int) -> None:
        self.server_of.asked.append(Asked(who, self.command, path, query, code))

    def _send(
        self, code: int, body: bytes, kind: str, headers: dict[str, str] | None = None
    ) -> None:
        self.send_response(code)
        for name, value in {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            **(headers or {}),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, events: Callable[[], Any]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for type_, found in events():
                line = json.dumps({"type": type_, "object": found}).encode() + b"\n"
                self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.close_connection = True
