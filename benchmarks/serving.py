"""Services that lend idle GPUs to training: what that is worth, and what it costs the service.

An hour of real requests (Azure 2023, Mooncake) stretched to a day and repeated for a week, scaled
to about twenty replicas of four GPUs, beside a week of real Philly jobs of up to eight GPUs, on
nodes for all replicas and half as many GPUs again. Rates of a replica are assumptions, so the load
is synthetic in its level and real in its shape. `late`: load that came before the autoscaler had
called enough replicas back; `wait`: the longest time that a replica then waited for its borrowers
to leave.

`serving_rl`: eight RL jobs of 16 GPUs each, rollouts on 12 of them and updates on the other 4 in
turn (lengths are assumptions), beside the same week of Philly as low priority, on 160 GPUs. They
lend what a phase leaves idle to nobody, to whoever waits, or where a job ends or keeps half of its
work before the phase ends (with true run times).

    .venv/bin/python benchmarks/serving.py DATA/traces
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from _record import record

from schedmate.schedulers.model import Cluster, Job, Terms
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
from schedmate.schedulers.sim.workload import Phase, Workload

WEEK_S = 7 * 86_400.0
TRACES = ("AzureLLMInferenceTrace_conv.csv", "AzureLLMInferenceTrace_code.csv",
          "mooncake_conversation_trace.jsonl")  # fmt: skip
PREFILL, DECODE = 8000.0, 1500.0
REPLICAS = 20
JOBS = 700
RL_JOBS, RL_GPUS = 8, 16


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
    record("serving_rl", [row for one in ((300, 60), (3600, 600), (14_400, 3600))
                          for row in between_phases(week, *one)], jobs=len(week))  # fmt: skip


def between_phases(week: Workload, rollout_s: float, update_s: float) -> list[dict[str, Any]]:
    """What lending between the phases of RL jobs is worth, and what it costs these."""
    begin = week.jobs[0].submit_time
    trained = [Job(f"rl{n}", n, begin, RL_GPUS, terms=Terms()) for n in range(RL_JOBS)]
    others = [
        replace(job, index=job.index + RL_JOBS, terms=Terms(low=True, checkpoint_s=1800.0))
        for job in week.jobs
    ]
    workload = Workload(
        "rl", [*trained, *others], [5 * 86_400.0] * RL_JOBS + week.duration_s,
        [None] * (RL_JOBS + len(others)), made_up=("RL jobs and their phases",),
        phases=dict.fromkeys(range(RL_JOBS), (Phase(rollout_s, 12), Phase(update_s, 4))),
    )  # fmt: skip
    rows = []
    for windows in ("none", "all", "worth"):
        policy = f"spot:windows={windows}"
        plan = Plan((policy,), Cluster.parse("20x8"), "oracle", HONEST)
        run = run_policy(workload, plan, policy)
        jct = [
            (end - job.submit_time) / 3600
            for end, job in zip(run.outcome.end, workload.jobs, strict=True)
        ]
        lent = run.numbers.get("lent_gpu_h", 0.0)
        rows.append(
            {
                "rollout, update s": f"{rollout_s:g}, {update_s:g}",
                "lending": windows,
                "RL JCT h": round(sum(jct[:RL_JOBS]) / RL_JOBS, 1),
                "training JCT h": round(sum(jct[RL_JOBS:]) / len(others), 2),
                "evictions": sum(run.outcome.counts.get("evictions", ())),
                "lent GPU h": round(lent),
                "used": f"{run.numbers.get('borrowed_gpu_h', 0.0) / lent:.0%}" if lent else "",
            }
        )
        print(rows[-1], file=sys.stderr, flush=True)
    return rows


if __name__ == "__main__":
    main()
