"""How long the service takes for the pages of its dashboard over a year of 300,000 jobs.

    python benchmarks/dashboard.py [--jobs 300000]

The history is synthetic: a year of jobs of 400 users with 60 workloads, a fifth of them failed. A
service of its own answers over a unix socket, one request after the other; the first request of a
page is the first since the service was ready. Times are at the server's door, whole pages.
"""

from __future__ import annotations

import argparse
import http.client
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from _record import record

from schedmate.jobs import JobRecord, LaunchConfig, WorkloadMetadata
from schedmate.retrieval.embedders import load_embedder
from schedmate.retrieval.history import JobHistory

SEED = 0
YEAR_S = 365 * 86_400.0
REPEATS = 9
GOAL_MS = 300
MODELS = ("resnet50", "gpt2", "llama-7b", "bert-base", "vit-large", "whisper-small")
STATES = ("COMPLETED",) * 8 + ("FAILED", "TIMEOUT")


def year(count: int, end: float) -> Iterator[JobRecord]:
    """Synthetic jobs that end by then, the first submitted first."""
    draw = np.random.default_rng(SEED)
    works = [
        WorkloadMetadata.model_validate(
            {
                "model_config": {"model_name": MODELS[n % 6]},
                "dataset_config": {"train": f"corpus-{n % 10}"},
            }
        )
        for n in range(60)
    ]
    begins = np.sort(end - YEAR_S * draw.random(count))
    for n, submit in enumerate(begins.tolist()):
        took = float(np.exp(draw.normal(8.0, 1.5)))
        yield JobRecord(
            job_id=f"cluster/{n}",
            name=f"train-{n % 97}",
            user=f"user{int(draw.integers(400))}",
            launch=LaunchConfig(gpus=int(2 ** draw.integers(7))),
            metadata=works[int(draw.integers(60))],
            submit_time=submit,
            start_time=submit + 60,
            end_time=min(end, submit + 60 + took),
            duration_s=took,
            state=STATES[int(draw.integers(10))],  # type: ignore[arg-type]
            synthetic="benchmarks/dashboard.py",
        )


class _Unix(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=60)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self._path))


def fetched(path: Path, page: str) -> tuple[float, int]:
    """Milliseconds of a page, and its size [bytes]."""
    connection = _Unix(path)
    began = time.perf_counter()
    connection.request("GET", page)
    answer = connection.getresponse()
    body = answer.read()
    took = 1e3 * (time.perf_counter() - began)
    connection.close()
    assert answer.status == 200, (page, answer.status)
    return took, len(body)


def main() -> None:
    """Measure and record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=300_000)
    count = parser.parse_args().jobs
    rows = []
    with tempfile.TemporaryDirectory(prefix="schedmate-dashboard-") as made:
        folder = Path(made)
        with JobHistory.open(folder / "history", load_embedder()) as history:
            history.add_many(year(count, time.time()))
        place = folder / "serve.sock"
        command = (
            *(sys.executable, "-m", "schedmate", "serve", "--socket", str(place)),
            *("--history", str(folder / "history"), "--state", str(folder / "state")),
        )
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as service:
            try:
                assert service.stderr is not None
                while json.loads(service.stderr.readline())["message"] != "ready":
                    pass
                for what, page in (
                    ("first page", "/"),
                    ("job", f"/jobs/cluster%2F{count - 9}"),
                    ("search that finds", "/search?q=train-7"),
                    ("search that finds nothing", "/search?q=nothing-of-that"),
                ):
                    first, size = fetched(place, page)
                    again = [fetched(place, page)[0] for _ in range(REPEATS)]
                    rows.append(
                        {
                            "page": what,
                            "first_ms": round(first),
                            "median_ms": round(statistics.median(again)),
                            "most_ms": round(max(again)),
                            "kb": round(size / 1e3),
                        }
                    )
            finally:
                service.terminate()
    record("dashboard", rows, synthetic_jobs=count, repeats=REPEATS, goal_ms=GOAL_MS)


if __name__ == "__main__":
    main()
