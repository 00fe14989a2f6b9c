"""A real HTTP server on loopback that speaks the OpenAI protocol, well or badly."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Request = dict[str, Any]


@dataclass
class Raw:
    """A reply sent as it is: status, headers and bytes, or whatever `write` does to the socket."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    write: Callable[[Any], None] | None = None


def completion(
    content: str | None = None,
    tool_calls: list[tuple[str, Any]] = (),  # type: ignore[assignment]
    *,
    finish: str | None = None,
    cached: int = 0,
) -> dict[str, Any]:
    """A chat completion as vLLM sends it."""
    calls = [
        {
            "id": f"call_{index}",
            "type": "function",
            "function": {
                "name": name,
                "arguments": args if isinstance(args, str) else json.dumps(args),
            },
        }
        for index, (name, args) in enumerate(tool_calls)
    ]
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if calls:
        message["tool_calls"] = calls
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "test-7B",
        "choices": [
            {
                "index": 0,
                "message": message,
                "finish_reason": finish or ("tool_calls" if calls else "stop"),
            }
        ],
        "usage": {
            "prompt_tokens": 100,
            "completion_tokens": 10,
            "total_tokens": 110,
            "prompt_tokens_details": {"cached_tokens": cached},
        },
    }


@dataclass
class Server:
    """`url` is the base URL; `requests` what came in; `answer` makes each reply."""

    url: str
    answer: Callable[[Request], dict[str, Any] | Raw]
    requests: list[Request] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    models: list[dict[str, Any]] = field(
        default_factory=lambda: [
            {"id": "test-7B", "object": "model", "owned_by": "test", "max_model_len": 65536}
        ]
    )


@contextmanager
def serve(answer: Callable[[Request], dict[str, Any] | Raw]) -> Iterator[Server]:
    """A server for the time of a `with` block."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send(Raw(body=json.dumps({"object": "list", "data": server.models}).encode()))

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            server.requests.append(request)
            server.headers.append(dict(self.headers))
            reply = server.answer(request)
            if isinstance(reply, dict):
                reply = Raw(body=json.dumps(reply).encode())
            self._send(reply)

        def _send(self, reply: Raw) -> None:
            self.send_response(reply.status)
            headers = {"content-type": "application/json", **reply.headers}
            if reply.write is None:
                headers["content-length"] = str(len(reply.body))
            else:
                headers["connection"] = "close"
                self.close_connection = True
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            try:
                if reply.write is None:
                    self.wfile.write(reply.body)
                else:
                    reply.write(self.wfile)
            except OSError:
                self.close_connection = True  # the client has gone, as some tests want

        def log_message(self, *args: object) -> None:
            pass

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True

    httpd = Quiet(("127.0.0.1", 0), Handler)
    server = Server(f"http://127.0.0.1:{httpd.server_address[1]}/v1", answer)
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        httpd.shutdown()
        thread.join()
        httpd.server_close()
