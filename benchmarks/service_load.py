"""How many requests does `schedmate serve` answer, and how quickly?

    python benchmarks/service_load.py [--records 100000] [--seconds 10]

A history of made-up jobs (`repeated` of history_scale.py), a server over a unix socket, and a
client (`_http_client.py`) on the same cores. The yardstick is a FastAPI endpoint that does nothing
but take JSON and give JSON, under the same server and client, in the same run: the machine is
shared, so compare with it rather than with another day. `server_cpu_ms` is CPU time of the server's
process for each answer, which other work on the machine changes less. `advise` has its metadata
given: `resubmitted` jobs have run before (200 workloads, again and again), `unseen` ones need a
search for similar jobs, `mixed` is three of the first to one of the second. `while reading` is
`mixed` again while two other clients have a long log read all the time. `storing` is one job a
request, which is on disk when it is answered. The experts have learned from all jobs before the
server starts, which takes minutes; `while learning` is `mixed` with a tenth as many jobs
again that have just been imported. `beyond` sends from more connections than requests
are taken on at once: the rest is refused with 503.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from _http_client import Connection, load, post
from _record import record
from history_scale import asked, build, jobs, workloads

from schedmate.jobs import WorkloadMetadata
from schedmate.retrieval.embedders import load_embedder
from schedmate.retrieval.history import JobHistory
from schedmate.retrieval.learning import RunTimes
from schedmate.settings import load_settings

GOALS = {"requests_per_s": 700, "p99_ms": 50}
TRIVIAL = """
import sys, uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
app = FastAPI()
class Ask(BaseModel):
    name: str
    gpus: int
@app.post("/")
async def root(ask: Ask) -> Ask:
    return ask
uvicorn.run(app, uds=sys.argv[1], log_config=None, access_log=False)
"""


@contextmanager
def served(command: list[str], path: Path) -> Iterator[int]:
    """The process id of a server that listens on a unix socket."""
    with subprocess.Popen([sys.executable, *command], stderr=subprocess.DEVNULL) as process:
        try:
            wait_for(path)
            yield process.pid
        finally:
            process.terminate()


def wait_for(path: Path) -> None:
    """Return once the server answers that it is ready."""
    until = time.monotonic() + 120
    ready = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    while time.monotonic() < until:
        try:
            connection = Connection(str(path))
            status, _ = connection.ask(ready)
            connection.close()
        except OSError:
            status = 0
        if status in (200, 404):  # the yardstick has no such page
            return
        time.sleep(0.1)
    raise TimeoutError("the server is not ready")


def cpu_s(pid: int) -> float:
    """CPU time that a process has used, its children apart [s]."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def advise(metadata: WorkloadMetadata, number: int) -> bytes:
    """A request for advice."""
    said = metadata.model_dump(mode="json", by_alias=True, exclude={"evidence"})
    job = {"job_id": f"load-{number}", "user": "load", "launch": {"gpus": 4}}
    return post("/v1/advise", {"job": job, "metadata": said})


@contextmanager
def readers(path: str, log: Path, count: int) -> Iterator[list[int]]:
    """So many clients that have a log read, again and again; gives how often it was."""
    done = [0]
    stop = threading.Event()
    request = post("/v1/diagnose", {"job": {"job_id": "read"}, "logs": [str(log)]})

    def one() -> None:
        connection = Connection(path)
        while not stop.is_set():
            status, _ = connection.ask(request)
            done[0] += status == 200
        connection.close()

    threads = [threading.Thread(target=one) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield done
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def learned(history: Path) -> None:
    """Have the experts learn from all jobs."""
    with JobHistory.open(history, load_embedder()) as store:
        count = RunTimes.of(store, load_settings()).learn()
    print(f"learned from {count:,} jobs")


def import_more(history: Path, records: int, path: Path) -> None:
    """Store a tenth as many jobs again, and then one by the server, which begins to learn."""
    known = workloads()
    more = list(jobs(records // 10, lambda n: known[n % len(known)]))
    with JobHistory.open(history, load_embedder()) as store:
        store.add_many(one.model_copy(update={"job_id": f"more-{one.job_id}"}) for one in more)
    one = Connection(str(path))
    one.ask(post("/v1/history", {"jobs": [json.loads(more[0].model_dump_json())]}))
    one.close()


def long_log(path: Path) -> Path:
    """A log that takes some tenths of a second to read."""
    lines = [f"step {n} loss {2.0 / (n + 1):.4f} step_time 0.5 s\n" for n in range(150_000)]
    lines.append("RuntimeError: CUDA error: an illegal memory access was encountered\n")
    path.write_text("".join(lines))
    return path


def main() -> None:
    """Measure, print and record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--name", default="service_load", help="of the results")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="service-load-"))
    rows: list[dict[str, Any]] = []

    def measured(what: str, path: Path, server: int, requests: list[bytes], **how: Any) -> None:
        row = {"what": what, "load_before": round(os.getloadavg()[0], 2)}
        before = cpu_s(server)
        row |= load(str(path), requests, seconds=given.seconds, **how)
        row["server_cpu_ms"] = round(1000 * (cpu_s(server) - before) / row.pop("answers"), 3)
        rows.append(row)
        print(json.dumps(row), flush=True)

    try:
        history = folder / "history"
        build(history, given.records, "repeated")
        learned(history)
        questions = asked("repeated", given.records)
        known = [advise(one, n) for n, one in enumerate(questions["resubmitted"])]
        unseen = [advise(one, n) for n, one in enumerate(questions["unseen"])]
        mixed = [(unseen if n % 4 == 3 else known)[n] for n in range(len(known))]
        stored = [
            post("/v1/history", {"jobs": [{"job_id": f"new-{n}", "state": "RUNNING"}]})
            for n in range(5_000)
        ]
        plain, path = folder / "trivial.sock", folder / "serve.sock"
        trivial = ["-c", TRIVIAL, str(plain)]
        with served(trivial, plain) as server:
            measured("yardstick", plain, server, [post("/", {"name": "x", "gpus": 8})])
        command = ["-m", "schedmate", "serve", "--socket", str(path)]
        command += ["--history", str(history), "--state", str(folder / "state")]
        command += ["--root", str(folder), "--rate", "0", "--reading", "2"]
        with served(command, path) as server:
            measured("advise, resubmitted", path, server, known)
            measured("advise, unseen", path, server, unseen)
            measured("advise, mixed", path, server, mixed)
            with readers(str(path), long_log(folder / "long.log"), 2) as done:
                measured("advise, mixed, while reading", path, server, mixed)
            rows[-1]["logs_read"] = done[0]
            measured("storing", path, server, stored)
            import_more(history, given.records, path)
            measured("advise, mixed, while learning", path, server, mixed)
            measured("advise, beyond", path, server, mixed, connections=160)
        with served(trivial, plain) as server:
            measured("yardstick again", plain, server, [post("/", {"name": "x", "gpus": 8})])
    finally:
        shutil.rmtree(folder)
    if given.name:
        record(given.name, rows, goals=GOALS, synthetic_records=given.records)


if __name__ == "__main__":
    main()
