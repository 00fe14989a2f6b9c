"""A server that answers as Prometheus would, with what a test says."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs


def answer_of(values: Mapping[str, float]) -> object:
    """The answer that has these quantities of a job."""
    samples = [
        {"metric": {"quantity": name}, "value": [0, str(value)]} for name, value in values.items()
    ]
    return {"status": "success", "data": {"resultType": "vector", "result": samples}}


@contextmanager
def prometheus(answers: list[object], asked: list[dict[str, list[str]]]) -> Iterator[str]:
    """A server that gives the first of the answers; what it is asked goes into `asked`."""

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            asked.append(parse_qs(body) | {"login": [self.headers.get("Authorization", "")]})
            raw = json.dumps(answers[0]).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
