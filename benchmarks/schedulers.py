"""Policies on the very jobs that the published Lucid simulator was run on, and what explains gaps.

    python benchmarks/schedulers.py DATA

DATA is a directory with phillym/phillym.csv, philly/philly.csv, lucid/single_data.csv and
lucid/data/colocate_info.csv. PhillyM is partly synthetic: real arrivals and scaled durations of one
week, workloads drawn, predictions = true duration x log-normal (sigma 1). Nothing here was fitted
to these results; the published simulator's numbers are in `PUBLISHED`.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from _record import record

from schedmate.schedulers.model import Cluster
from schedmate.schedulers.sim.metrics import paired_difference
from schedmate.schedulers.sim.parameters import HARMLESS, HONEST, PUBLISHED, ColocationTable
from schedmate.schedulers.sim.runs import Plan, Run, run_policy
from schedmate.schedulers.sim.traces import read_trace
from schedmate.schedulers.sim.workload import Workload

PEER = {
    # average JCT, queueing, p99.9 queueing, makespan [h], CPU s; then the paper's average JCT [h]
    "fifo": (35.84, 30.27, 74.1, 560, 164, 36.85),
    "sjf": (9.02, 3.45, 106.6, 542, 103, 9.41),
    "qssf": (8.14, 2.57, 120.6, 584, 149, 9.03),
    "tiresias": (7.25, 1.68, 65.5, 551, 106, 9.02),
    "lucid": (7.11, 1.44, 79.6, 523, 174, 6.84),
    "horus": (None, None, None, None, None, 10.49),
    "horus:backfill=true": (None, None, None, None, None, 10.49),
    "srtf": (None, None, None, None, None, None),
}
"""The published simulator on PhillyM (SJF there knows the true durations), and the paper on the
Philly week that it had; Lucid's time is after a patch that made it hours faster."""

LUCID = "lucid:profile_limit_s=80:profile_gpus=4"
"""With the settings of the published simulator for Philly."""


def main(data: Path) -> None:
    """Run all tables."""
    phillym = read_trace(data / "phillym" / "phillym.csv")
    pairs = data / "lucid" / "data" / "colocate_info.csv"
    scores = data / "lucid" / "single_data.csv"
    fidelity(phillym, pairs, scores)
    parts(phillym, pairs, scores)
    real(data)


def fidelity(workload: Workload, pairs: Path, scores: Path) -> None:
    """Each policy in the published and the honest mode beside the published simulator."""
    rows = []
    published = replace(PUBLISHED, interference=ColocationTable.read(pairs, HARMLESS))
    honest = replace(HONEST, interference=ColocationTable.read(pairs))
    for name, peer in PEER.items():
        policy = {"lucid": f"{LUCID}:scores={scores}"}.get(name, name)
        estimator = "oracle" if name in ("sjf", "srtf") else "column:predicted_duration_s"
        for parameters in (published, honest):
            run = _run(workload, policy, "108x8", estimator, parameters)
            numbers = run.numbers
            rows.append(
                {
                    "policy": run.numbers["settings"].split(":scores")[0],
                    "mode": parameters.name,
                    "durations": estimator.partition(":")[0],
                    **_hours(numbers),
                    "published JCT": peer[0],
                    "JCT differs": _percent(numbers["avg_jct_h"], peer[0]),
                    "published queue": peer[1],
                    "published p99.9": peer[2],
                    "paper JCT": peer[5],
                    "CPU s": numbers["cpu_s"],
                    "published CPU s": peer[4],
                }
            )
    record(
        "schedulers_phillym",
        rows,
        trace="PhillyM, 12,389 jobs, 108 x 8 GPUs; partly synthetic",
        units="hours; CPU s of the published simulator on another day of the same machine",
    )


def parts(workload: Workload, pairs: Path, scores: Path) -> None:
    """What each part of Lucid is worth, honest costs, against QSSF with the same predictions."""
    honest = replace(HONEST, interference=ColocationTable.read(pairs))
    whole = f"{LUCID}:scores={scores}"
    predicted = "column:predicted_duration_s"
    variants = {
        "QSSF": ("qssf", predicted),
        "QSSF + backfill": ("qssf:backfill=true", predicted),
        "Lucid": (whole, predicted),
        "Lucid, thresholds for the tree": (LUCID, predicted),
        "Lucid, T_prof 200 s, N_prof 8": (f"lucid:scores={scores}", predicted),
        "no sharing": (f"{whole}:capacity=-1", predicted),
        "G_SS = 1": (f"{whole}:capacity=1", predicted),
        "no backfill": (f"{whole}:backfill=false", predicted),
        "no profiler": (
            f"{whole}:profile_gpus=0".replace(":profile_gpus=4", ""),
            predicted,
        ),
        "profiling in order of submission": (
            f"{whole}:space_aware=false",
            predicted,
        ),
        "no patience rule": (f"{whole}:patience=1e9", predicted),
        "no estimator": (whole, "none"),
        "learning estimator (user-mean)": (whole, "user-mean"),
        "oracle durations": (whole, "oracle"),
    }
    rows, base = [], None
    for title, (policy, estimator) in variants.items():
        run = _run(workload, policy, "108x8", estimator, honest)
        if title == "Lucid":
            base = run
        rows.append((title, run))
    assert base is not None
    record(
        "schedulers_lucid_parts",
        [
            {
                "variant": title,
                **_hours(run.numbers),
                "packed": run.numbers["packed"],
                "JCT less Lucid's, h (95 %)": _interval(run, base),
                "CPU s": run.numbers["cpu_s"],
            }
            for title, run in rows
        ],
        trace="PhillyM, 12,389 jobs, 108 x 8 GPUs; partly synthetic; honest costs",
    )


def real(data: Path) -> None:
    """The unscaled Philly trace, on clusters small enough that jobs queue."""
    workload = read_trace(data / "philly" / "philly.csv")
    rows = []
    for cluster in ("80x8", "60x8"):
        for policy in (
            "fifo",
            "sjf",
            "sjf-ageing",
            "qssf",
            "qssf:backfill=true",
            "srtf",
            "tiresias",
        ):
            run = _run(workload, policy, cluster, "oracle", HONEST)
            rows.append(
                {"cluster": cluster, "policy": policy, **_hours(run.numbers)}
                | {"preempted": run.numbers["preemptions"], "CPU s": run.numbers["cpu_s"]}
            )
    record(
        "schedulers_philly",
        rows,
        trace="Microsoft Philly, 82,247 jobs, all virtual clusters together; real",
        durations="oracle (FIFO and Tiresias use none)",
    )


def _run(workload: Workload, policy: str, cluster: str, estimator: str, parameters: Any) -> Run:
    print(f"{policy} {parameters.name} {estimator}", file=sys.stderr)
    plan = Plan((policy,), Cluster.parse(cluster), estimator, parameters)
    return run_policy(workload, plan, policy)


def _hours(numbers: dict[str, Any]) -> dict[str, float]:
    return {
        "JCT": round(numbers["avg_jct_h"], 2),
        "median JCT": round(numbers["median_jct_h"], 2),
        "p99 JCT": round(numbers["p99_jct_h"], 1),
        "queue": round(numbers["avg_queue_h"], 2),
        "p99.9 queue": round(numbers["p999_queue_h"], 1),
        "makespan": round(numbers["makespan_h"]),
    }


def _interval(run: Run, base: Run) -> str:
    if run is base:
        return ""
    mean, low, high = paired_difference(run.per_job.jct_s / 3600, base.per_job.jct_s / 3600)
    return f"{mean:+.2f} ({low:+.2f} to {high:+.2f})"


def _percent(value: float, other: float | None) -> str:
    return "" if other is None else f"{value / other - 1:+.1%}"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
    else:
        main(Path(sys.argv[1]))
