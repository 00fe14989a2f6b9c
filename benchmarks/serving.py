"""Services that lend idle GPUs to training: what that is worth, and what it costs the service.

An hour of real requests (Azure 2023, Mooncake) stretched to a day and repeated for a week, scaled
to about twenty replicas of four GPUs, beside a week of real Philly jobs of up to eight GPUs, on
nodes for all replicas and half as many GPUs again. Rates of a replica are assumptions, so the load
is synthetic in its level and real in its shape. `late`: load that came before the autoscaler had
called enough replicas back; `wait`: the longest time that a replica then waited for its borrowers
to leave.

    .venv/bin/python benchmarks/serving.py DATA/traces
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from _record import record

from schedmate.schedulers.model import Cluster
from schedmate.schedulers.sim.parameters import HONEST
from schedmate.schedulers.sim.runs import Plan, run_policy
from schedmate.schedulers.sim.traces import read_trace
from schedmate.schedulers.sim.traces.serving import (
    Service,
    plan_replicas,
    read_requests,
    serving_workload,
)
from schedmate.schedulers.sim.traces.writer import cut_to_gpus, cut_window, draw_jobs

WEEK_S = 7 * 86_400.0
TRACES = ("AzureLLMInferenceTrace_conv.csv", "AzureLLMInferenceTrace_code.csv",
          "mooncake_conversation_trace.jsonl")  # fmt: skip
PREFILL, DECODE = 8000.0, 1500.0
REPLICAS = 20
JOBS = 700


def main() -> None:
    data = Path(sys.argv[1])
    philly = read_trace(data / "philly" / "philly.csv")
    week = draw_jobs(cut_to_gpus(cut_window(philly, 4 * WEEK_S, 5 * WEEK_S), 8), JOBS, seed=0)
    rows: list[dict[str, Any]] = []
    for name in TRACES:
        requests = read_requests(data / "llm" / f"{name}.gz")
        service = Service(4, PREFILL, DECODE, 300.0, hold=2, stretch=24.0, repeat=7)
        service = replace(service, scale=REPLICAS / plan_replicas(requests, service).replicas)
        service = replace(
            service,
            scale=service.scale * REPLICAS / max(plan_replicas(requests, service).load) / 1.2,
        )
        plan = plan_replicas(requests, service)
        workload = serving_workload(plan, service, name.partition(".")[0], week)
        cluster = Cluster.parse(f"{-(-plan.replicas * 4 * 3 // 2 // 8)}x8")
        for windows in ("none", "all"):
            run = run_policy(
                workload, Plan((f"spot:windows={windows}",), cluster, "none", HONEST),
                f"spot:windows={windows}",
            )  # fmt: skip
            numbers = run.numbers
            outcome = run.outcome
            ends = [
                (outcome.end[job.index] - job.submit_time) / 3600
                for job in workload.jobs[plan.replicas :]
            ]
            rows.append(
                {
                    "requests": name.partition(".")[0],
                    "replicas": plan.replicas,
                    "lent, share of time": round(
                        1 - sum(plan.active) / len(plan.active) / plan.replicas, 3
                    ),
                    "late": f"{plan.late:.2%}",
                    "lending": windows,
                    "training JCT h": round(sum(ends) / len(ends), 2),
                    "training p99 h": round(sorted(ends)[len(ends) * 99 // 100], 1),
                    "evictions": sum(outcome.counts.get("evictions", ())),
                    "lent GPU h": round(numbers.get("lent_gpu_h", 0)),
                    "wait s": round(numbers.get("longest_wait_for_lent_s", 0), 1),
                }
            )
    record("serving", rows, jobs=len(week))


if __name__ == "__main__":
    main()
