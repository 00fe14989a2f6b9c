"""A client that costs little: blocking sockets, kept open, sending bytes that were made before."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import socket
import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any


def post(path: str, document: Any) -> bytes:
    """A request as it goes over the wire."""
    body = json.dumps(document).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class Connection:
    """One kept-alive connection to a unix socket."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(120)
        self._socket.connect(path)

    def ask(self, request: bytes) -> tuple[int, bytes]:
        """Status and body of the answer."""
        self._socket.sendall(request)
        held = b""
        while b"\r\n\r\n" not in held:
            held += self._receive()
        head, _, body = held.partition(b"\r\n\r\n")
        lowered = head.lower()
        at = lowered.index(b"content-length:") + 15
        length = int(lowered[at:].partition(b"\r\n")[0])
        while len(body) < length:
            body += self._receive()
        return int(head[9:12]), body

    def _receive(self) -> bytes:
        got = self._socket.recv(1 << 16)
        if not got:
            raise ConnectionError("the server closed the connection")
        return got

    def close(self) -> None:
        """Let go of it."""
        self._socket.close()


def _load(path: str, requests: Sequence[bytes], connections: int, seconds: float, out: Any) -> None:
    times: list[float] = []
    statuses: Counter[int] = Counter()
    endless = itertools.cycle(requests)
    until = time.perf_counter() + seconds
    lock = threading.Lock()

    def one() -> None:
        connection = Connection(path)
        mine: list[float] = []
        seen: Counter[int] = Counter()
        while (began := time.perf_counter()) < until:
            with lock:
                request = next(endless)
            status, _ = connection.ask(request)
            mine.append(time.perf_counter() - began)
            seen[status] += 1
        connection.close()
        with lock:
            times.extend(mine)
            statuses.update(seen)

    began = time.perf_counter()
    threads = [threading.Thread(target=one) for _ in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    out.put((time.perf_counter() - began, times, dict(statuses)))


def load(
    path: str, requests: Sequence[bytes], *, connections: int = 16, seconds: float = 10.0
) -> dict[str, Any]:
    """Requests/s and latencies [ms] of that many connections that each wait for their answer,
    from one process of its own."""
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=_load, args=(path, requests, connections, seconds, queue))
    process.start()
    wall, times, statuses = queue.get(timeout=seconds + 300)
    process.join()
    times.sort()
    quantile = {
        name: round(1000 * times[min(len(times) - 1, int(level * len(times)))], 1)
        for name, level in (("p50_ms", 0.5), ("p99_ms", 0.99))
    }
    return {
        "connections": connections,
        "answers": len(times),
        "requests_per_s": round(len(times) / wall),
        **quantile,
        "max_ms": round(1000 * times[-1], 1),
        "statuses": " ".join(f"{status}:{count}" for status, count in sorted(statuses.items())),
    }
