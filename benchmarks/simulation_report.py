"""What a comparison costs beside its simulations: tables, reading them back, the report.

    python benchmarks/simulation_report.py [TRACE.CSV] [CLUSTER]

Without a trace, on 82,247 made-up jobs, as many as Philly has. Processor time of this process.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from _record import record
from simulator_speed import synthetic

from schedmate.report.simulation import Comparison, simulation_page
from schedmate.schedulers.model import Cluster
from schedmate.schedulers.sim.comparison import compare
from schedmate.schedulers.sim.outcome.results import read_result, write_result
from schedmate.schedulers.sim.parameters import HONEST
from schedmate.schedulers.sim.runs import Plan

POLICIES = ("fifo", "sjf", "qssf", "srtf", "tiresias", "lucid")
T = TypeVar("T")


def main(trace: Path | None, cluster: str) -> None:
    """Times every step over all policies."""
    if trace is None:
        workload, name = synthetic(82_247), "82,247 made-up jobs"
    else:
        from schedmate.schedulers.sim.traces import read_trace

        workload = read_trace(trace)
        name = f"{trace.name}, {len(workload):,} jobs"
    plan = Plan(POLICIES, Cluster.parse(cluster), "noisy:1", HONEST, 0, False, cluster)
    rows: list[dict[str, Any]] = []

    def timed(step: str, work: Callable[[], T], size: Callable[[T], int]) -> T:
        began = time.process_time()
        done = work()
        cpu_s = time.process_time() - began
        rows.append({"step": step, "CPU s": round(cpu_s, 2), "MB": round(size(done) / 1e6, 2)})
        return done

    results = timed(
        f"simulate {len(POLICIES)} policies, compare them",
        lambda: list(compare(workload, [plan])),
        lambda _: 0,
    )
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)

        def keep() -> int:
            for result in results:
                write_result(result, out / result.numbers["policy"], plan.cluster, "")
            return sum(path.stat().st_size for path in out.rglob("*.*"))

        timed("write tables (CSV, Parquet) and Perfetto traces", keep, lambda size: size)
        timed(
            "read them back",
            lambda: [read_result(out / policy) for policy in POLICIES],
            lambda _: 0,
        )
    document = {"runs": [result.numbers for result in results]}
    found = Comparison([plan], results, document, name, workload.made_up)
    timed("the report", lambda: simulation_page(found), lambda page: len(page.encode()))
    record("simulation_report", rows, trace=name, cluster=cluster, policies=", ".join(POLICIES))


if __name__ == "__main__":
    main(
        Path(sys.argv[1]) if len(sys.argv) > 1 else None,
        sys.argv[2] if len(sys.argv) > 2 else "80x8",
    )
