"""Whole public traces through the readers and the simulator: what they hold, what is left out.

    python benchmarks/traces_whole.py FILE...

Every file is read, converted and read back, which has to give the same jobs, and run under FIFO and
SJF (told the truth: this is about the readers) with the audit on, on nodes of eight GPUs of which
there are as many as its jobs need on average, and a tenth more, or as its largest job needs.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from _record import record

from schedmate.base.errors import InputError
from schedmate.schedulers.model import Cluster
from schedmate.schedulers.sim.parameters import HONEST
from schedmate.schedulers.sim.runs import Plan, run_policy
from schedmate.schedulers.sim.traces import read_trace
from schedmate.schedulers.sim.traces.writer import trace_facts, write_trace
from schedmate.schedulers.sim.workload import Workload


def main(paths: Sequence[Path]) -> None:
    """Make the table."""
    record("traces_whole", [_row(path) for path in paths], units="hours")


def _row(path: Path) -> dict[str, Any]:
    print(path, file=sys.stderr)
    row: dict[str, Any] = {"trace": path.name}
    try:
        workload = read_trace(path)
    except InputError as error:
        return {**row, "refused": str(error).partition("; name them")[0].replace(str(path), "it")}
    held = trace_facts(workload)
    # GPU types and virtual clusters are the cluster's: here all nodes are open to all.
    for job in workload.jobs:
        job.gpu_type = ""
    nodes = max(held["load_gpus"] * 1.1, held["max_gpus"]) // 8 + 1
    row |= {
        "origin": workload.origin,
        "jobs": len(workload),
        "days": round(held["span_s"] / 86_400, 1),
        "GPU h": round(held["gpu_h"]),
        "said of it": "; ".join(one for one in workload.notes if "nothing says" not in one),
        "read back alike": _reads_back(workload),
        "nodes": int(nodes),
    }
    for policy in ("fifo", "sjf"):
        plan = Plan((policy,), Cluster.parse(f"{nodes:.0f}x8"), "oracle", HONEST)
        numbers = run_policy(workload, plan, policy).numbers
        row |= {
            f"{policy} JCT": round(numbers["avg_jct_h"], 2),
            f"{policy} queue": round(numbers["avg_queue_h"], 2),
            f"{policy} CPU s": numbers["cpu_s"],
        }
    return row


def _reads_back(workload: Workload) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "back.csv"
        write_trace(workload, path)
        back = read_trace(path)
    same = (
        [one.id for one in back.jobs] == [one.id for one in workload.jobs]
        and [(one.submit_time, one.gpus, one.share) for one in back.jobs]
        == [(one.submit_time, one.gpus, one.share) for one in workload.jobs]
        and back.duration_s == workload.duration_s
        and back.origin == workload.origin
    )
    return "yes" if same else "no"


if __name__ == "__main__":
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
    else:
        main([Path(one) for one in sys.argv[1:]])
