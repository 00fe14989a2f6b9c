"""Policies on synthetic traces that meet the published figures of Venus, Saturn, Seren and Kalos.

    python benchmarks/schedulers_synthetic.py

No cluster ran these jobs: `schedmate traces synthesize` drew them, and a recipe said what they
train (docs/traces.md). Costs are honest ones, and all policies are told the same durations, learnt
from jobs that ended before (the user's mean), but for SJF, which is an oracle here, and Horus,
which orders by submission and packs by true utilisation.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from _record import record

from schedmate.schedulers.model import Cluster
from schedmate.schedulers.sim.parameters import HONEST
from schedmate.schedulers.sim.runs import Plan, run_policy
from schedmate.schedulers.sim.traces.assign import assign
from schedmate.schedulers.sim.traces.recipe import Calibration, matches, parse_recipe
from schedmate.schedulers.sim.traces.synthesize import synthesize
from schedmate.schedulers.sim.traces.writer import trace_facts
from schedmate.schedulers.sim.workload import Workload

CASES = (
    # cluster, jobs (None: as published), nodes (0: its VCs), what that is, memory of a GPU [MB]
    ("venus", None, 135, "published size, one pool", 24_576),
    ("venus", 40_000, 0, "published virtual clusters, 58 of 181 days", 24_576),
    ("kalos", None, 302, "published size", 81_920),
    ("kalos", None, 151, "half the published size", 81_920),
    ("saturn", 60_000, 260, "published size, 16 of 181 days", 24_576),
    ("seren", 60_000, 286, "published size, 17 of 184 days", 81_920),
    ("seren", 60_000, 186, "a third fewer nodes, 17 of 184 days", 81_920),
)
POLICIES = (
    ("fifo", "none"),
    ("sjf", "oracle"),
    ("qssf", "user-mean"),
    ("tiresias", "none"),
    ("horus", "oracle"),
    ("lucid", "user-mean"),
    ("lucid:lookahead_s=0", "user-mean"),
)
SEED = 0


def main() -> None:
    """Run all cases, then say how well each trace meets its targets."""
    rows: list[dict[str, Any]] = []
    met: list[dict[str, Any]] = []
    speed: list[dict[str, Any]] = []
    for name, jobs, nodes, what, memory_mb in CASES:
        calibration = Calibration.read(name)
        began = time.process_time()
        workload = synthesize(calibration, jobs, SEED)
        drawn = time.process_time()
        workload = assign(workload, *parse_recipe(f"{calibration.assumed['recipe']}:seed={SEED}"))
        if not any(row["cluster"] == name for row in met):
            speed.append(
                {
                    "cluster": name,
                    "jobs": len(workload),
                    "drawn in CPU s": round(drawn - began, 2),
                    "workloads in CPU s": round(time.process_time() - drawn, 2),
                }
            )
            met += [
                {"cluster": name, "figure": row.target, "published": round(row.published, 3)}
                | {"drawn": round(row.drawn, 3), "off": f"{row.off:+.1%}"}
                for row in matches(workload, calibration)
            ]
        rows += _rows(
            name, workload, f"{nodes}x8" if nodes else calibration.cluster, what, memory_mb
        )
        record(
            "schedulers_synthetic",
            rows,
            trace="synthetic: drawn from published figures, workloads made up",
            units="hours",
            seed=SEED,
        )
    record("traces_synthetic_match", met, trace="synthetic", seed=SEED)
    record("traces_synthetic_speed", speed, trace="synthetic", seed=SEED)


def _rows(
    name: str, workload: Workload, spec: str, what: str, memory_mb: int
) -> list[dict[str, Any]]:
    cluster = Cluster.parse(spec)
    shown = f"{len(cluster.nodes)}x8" + " in virtual clusters" * ("@" in spec)
    load = trace_facts(workload)["load_gpus"] / cluster.gpus
    rows = []
    for policy, estimator in POLICIES:
        if policy == "horus" and "@" in spec:
            # Where thousands wait for weeks it takes minutes: its lanes are by utilisation too.
            continue
        print(f"{name} {shown} {policy} {estimator}", file=sys.stderr)
        packs = policy.startswith(("horus", "lucid"))
        settings = f"{policy}:gpu_memory_mb={memory_mb}" if packs else policy
        plan = Plan((settings,), cluster, estimator, HONEST, SEED)
        numbers = run_policy(workload, plan, settings).numbers
        rows.append(
            {
                "trace": f"{name} (synthetic)",
                "jobs": len(workload),
                "cluster": shown,
                "which is": what,
                "load": round(load, 2),
                "policy": policy,
                "durations": estimator,
                "JCT": round(numbers["avg_jct_h"], 2),
                "p99 JCT": round(numbers["p99_jct_h"], 1),
                "queue": round(numbers["avg_queue_h"], 3),
                "p99.9 queue": round(numbers["p999_queue_h"], 1),
                "preempted": numbers["preemptions"],
                "packed": numbers["packed"],
                "GPU time lost": f"{_lost(numbers['gpu_time_h']):.1%}",
                "Jain, users": round(numbers["fairness"]["user"]["jain"], 3),
                "CPU s": numbers["cpu_s"],
            }
        )
    return rows


def _lost(hours: dict[str, float]) -> float:
    return 1 - hours["useful"] / (hours["held"] + hours["shared"])


if __name__ == "__main__":
    main()
