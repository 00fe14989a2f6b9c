"""What starting an actor on Ray costs, and whose cost it is.

    .venv/bin/python benchmarks/ray_start.py

One node of four GPUs that are numbers. Four actors in turn, each with a GPU to itself and detached
as the runners of `schedmate ray` are: an empty one, and ours; where Ray starts a process for each,
and where it has started processes ahead (`RAY_enable_worker_prestart=1` on the node). Also a job on
a runner that is there already. CPU time is that of the actor's process until it answers, less what
it had used before; wall time depends on what else the machine does.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from _record import record

GPUS = 4
SETTLED_S = 10.0
"""How long the cluster may take to start processes ahead [s]."""
TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")


class Empty:
    """An actor that can do nothing but answer."""

    def __init__(self, meter: object) -> None:
        self.meter = meter

    def describe(self) -> dict[str, int]:
        return {"pid": os.getpid()}


def cpu_s(pid: int) -> float:
    """CPU time of a process so far; 0 where there is none [s]."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(words[11]) + int(words[12])) * TICK_S


def measure(kind: str, ahead: bool) -> list[dict[str, float]]:
    """The starts of four actors on a cluster of their own."""
    from schedmate.cluster.ray import local
    from schedmate.cluster.ray.backend import RayBackend, connect
    from schedmate.schedulers.model import Cluster

    class Wide(local.LocalCluster):
        """Ray starts as many processes ahead as a node has CPUs."""

        def add(self, name: str, gpus: int) -> None:
            self.nodes[name] = self._cluster.add_node(
                node_ip_address=local.LOOPBACK,
                node_name=name,
                num_cpus=gpus,
                num_gpus=gpus,
                object_store_memory=80 * local.MB,
            )

    quick = {**local.QUICK, **({"RAY_enable_worker_prestart": "1"} if ahead else {})}
    found = []
    with Wide(Cluster.parse(f"1x{GPUS}"), quick) as cluster:
        connect(cluster.address)
        import ray

        backend = RayBackend("start", ())
        if kind == "empty":
            backend._actor = ray.remote(Empty)  # noqa: SLF001 - the same options, another class
        node = backend.nodes()[0].id
        time.sleep(SETTLED_S)
        for number in range(GPUS):
            before = {int(one.name): cpu_s(int(one.name)) for one in Path("/proc").glob("[1-9]*")}
            began = time.perf_counter()
            handle = backend.create(f"start.{number}", node, 1)
            pid = backend.answer(backend.call(handle, "describe"))["pid"]
            wall = time.perf_counter() - began
            cpu = cpu_s(pid) - before.get(pid, 0.0)
            found.append({"wall": wall, "cpu": cpu, "ahead": float(pid in before)})
            began = time.perf_counter()
            backend.answer(backend.call(handle, "describe"))
            found[-1]["again"] = time.perf_counter() - began
    return found


def main() -> None:
    if len(sys.argv) > 1:
        print(json.dumps(measure(sys.argv[1], sys.argv[2] == "ahead")))
        return
    rows: list[dict[str, Any]] = []
    for kind, ahead in (("empty", ""), ("ours", ""), ("ours", "ahead")):
        load = os.getloadavg()[0]
        words = [sys.executable, __file__, kind, ahead]
        said = subprocess.run(words, capture_output=True, text=True, check=True, timeout=300)
        found = json.loads(said.stdout.splitlines()[-1])
        chosen = [one for one in found if bool(one["ahead"]) == bool(ahead)]
        rows.append(
            {
                "actor": kind,
                "its process": "was there" if ahead else "is started",
                "starts": len(chosen),
                "CPU time [s]": round(statistics.median(one["cpu"] for one in chosen), 2),
                "wall time [s]": round(statistics.median(one["wall"] for one in chosen), 2),
                "a call of it when it is there [ms]": round(
                    1000 * statistics.median(one["again"] for one in chosen), 1
                ),
                "load average": round(load, 1),
            }
        )
        print(rows[-1], flush=True)
    record("ray_start", rows, cluster=f"1x{GPUS}")


if __name__ == "__main__":
    main()
