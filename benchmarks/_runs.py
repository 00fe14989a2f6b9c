"""Traces that queue, runs over several seeds of them, and what one policy gains over another.

A run that is finished is kept in a folder, so that a benchmark that was stopped goes on.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from schedmate.schedulers.model import Cluster
from schedmate.schedulers.sim.comparison import compare
from schedmate.schedulers.sim.outcome.results import Result
from schedmate.schedulers.sim.parameters import HONEST, ColocationTable
from schedmate.schedulers.sim.runs import Plan
from schedmate.schedulers.sim.traces import read_trace
from schedmate.schedulers.sim.traces.assign import assign
from schedmate.schedulers.sim.traces.recipe import Calibration, parse_recipe
from schedmate.schedulers.sim.traces.synthesize import synthesize
from schedmate.schedulers.sim.workload import Workload

LARGEST = 64
"""Jobs of more GPUs are left out of a few days of a trace: one would set the cluster's size."""
PHILLY_FROM, PHILLY_STEP = 24_000, 10_000
"""Where the part of Philly of each seed begins; parameters were looked at on 30,000 to 34,000."""
PROFILE_ERROR = 0.193
"""Of Lucid's profiler, as SchedMate measured it."""
ROUNDS = 1000


class Trace(NamedTuple):
    """A workload, its cluster, and how much of it is real."""

    name: str
    workload: Workload
    cluster: str
    kind: str
    seed: int
    load: float

    @property
    def alone_h(self) -> float:
        """Average JCT if nobody waited, shared or was profiled: no scheduler can do better [h]."""
        return float(np.mean(self.workload.duration_s)) / 3600


def trace_of(
    name: str, data: Path, jobs: int, seed: int, load: float = 1.2, recipe: str = ""
) -> Trace:
    """One of the traces, with what its jobs train by a recipe, on a cluster of this load.

    `PhillyM` is whole and has the cluster of its own; its seed is that of the recipe alone.
    """
    if name == "PhillyM":
        part = read_trace(data / "phillym" / "phillym.csv")
        chosen, kind = recipe or "lucid", "real arrivals, run times partly resampled and stretched"
    elif name == "Philly":
        first = PHILLY_FROM + PHILLY_STEP * seed
        part = read_trace(data / "philly" / "philly.csv").select(range(first, first + jobs))
        chosen, kind = recipe or "lucid", "real submissions, run times"
    else:
        calibration = Calibration.read(name.lower())
        part = synthesize(calibration, jobs, seed)
        chosen, kind = recipe or calibration.assumed["recipe"], "synthetic"
    if name != "PhillyM":
        part = part.select(n for n, job in enumerate(part.jobs) if job.gpus <= LARGEST)
    nodes = 108
    if name != "PhillyM":
        nodes = max(max(j.gpus for j in part.jobs) // 8 + 4, round(demand(part) / 8 / load))
    separator = "," if ":" in chosen else ":"
    # Code that states how long it runs, an upper bound (docs/traces.md): as these were recorded.
    told = "" if "stated=" in chosen else "stated=1,"
    work = assign(part, *parse_recipe(f"{chosen}{separator}{told}seed={seed}"))
    return Trace(name, work, f"{nodes}x8", kind, seed, demand(part) / 8 / nodes)


def demand(workload: Workload) -> float:
    """GPUs that would be busy on average until the last submission, if nobody had to wait.

    GPU time submitted over time says less: much of it belongs to a few jobs that run on for weeks.
    """
    submit = np.array([job.submit_time for job in workload.jobs])
    gpus = np.array([job.gpus for job in workload.jobs])
    within = np.minimum(workload.duration_s, submit[-1] - submit)
    return float((within * gpus).sum() / (submit[-1] - submit[0]))


def run(
    trace: Trace,
    policy: str,
    told: str,
    data: Path,
    kept: Path,
    *,
    error: float | None = None,
    **plan: Any,
) -> Result:
    """One run, or what is kept of it; `error` is that of profiles."""
    table = ColocationTable.read(data / "lucid" / "data" / "colocate_info.csv")
    missed = PROFILE_ERROR if error is None else error
    world = replace(HONEST, interference=table, profile_error=missed)
    made = Plan((policy,), Cluster.parse(trace.cluster), told, world, seed=trace.seed, **plan)
    more = f"{told}-{missed:g}-{'failing' if plan else ''}"
    folder = kept / f"{trace.name}-{trace.seed}-{trace.load:.1f}-{len(trace.workload)}" / more
    (result,) = compare(trace.workload, [made], out=folder)
    jct = result.numbers["avg_jct_h"]
    print(trace.name, trace.seed, policy, f"{jct:.3f}", result.numbers["cpu_s"], file=sys.stderr)
    return result


def ratio(base: Sequence[Result], this: Sequence[Result]) -> tuple[float, float, float]:
    """Average JCT of `base` over that of `this`, and the 95 % interval of a paired bootstrap.

    One result a seed. Seeds are drawn with replacement, then jobs of each: the same of both.
    """
    pairs = [
        (one.jobs["jct_s"], other.jobs["jct_s"]) for one, other in zip(base, this, strict=True)
    ]
    draw = np.random.default_rng(0)
    found = []
    for _ in range(ROUNDS):
        sums = np.zeros(2)
        for seed in draw.integers(0, len(pairs), len(pairs)).tolist():
            chosen = draw.integers(0, len(pairs[seed][0]), len(pairs[seed][0]))
            sums += [one[chosen].mean() for one in pairs[seed]]
        found.append(sums[0] / sums[1])
    means = np.sum([[one.mean() for one in pair] for pair in pairs], axis=0)
    low, high = np.percentile(found, (2.5, 97.5))
    return float(means[0] / means[1]), float(low), float(high)


def mean(results: Sequence[Result], key: str) -> float:
    """Over seeds, of one of the numbers."""
    return float(np.mean([one.numbers[key] for one in results]))


def counted(results: Sequence[Result], module: str, key: str) -> int | str:
    """Over seeds, of what one of SchedMate's modules counted."""
    found = [one.numbers.get("schedmate", {}).get(module, {}).get(key) for one in results]
    return "" if None in found else round(float(np.mean(found)))


def row(
    traces: Sequence[Trace], title: str, results: Sequence[Result], base: Sequence[Result] | None
) -> dict[str, Any]:
    """A line of a table: means over the seeds, and where the time goes."""
    alone, queue = float(np.mean([one.alone_h for one in traces])), mean(results, "avg_queue_h")
    jct = [one.numbers["avg_jct_h"] for one in results]
    gain = ""
    if base is not None:
        gain = "{:.3f} ({:.3f} to {:.3f})".format(*ratio(base, results))
    return {
        "trace": traces[0].name,
        "policy": title,
        "avg JCT h": f"{np.mean(jct):.3f} ± {np.std(jct, ddof=1) if len(jct) > 1 else 0:.3f}",
        "base / this (95 %)": gain,
        "alone h": f"{alone:.3f}",
        "queue h": f"{queue:.3f}",
        "slowed, profiled, redone h": f"{np.mean(jct) - queue - alone:.3f}",
        **{f"{p} JCT h": f"{mean(results, f'{p}_jct_h'):.3f}" for p in ("median", "p90", "p99")},
        "profiled": round(mean(results, "profiled")),
        "packed": round(mean(results, "packed")),
        "evicted": round(mean(results, "evictions")),
        "preempted": round(mean(results, "preemptions")),
        "CPU s": f"{mean(results, 'cpu_s'):.1f}",
    }


def about(traces: Mapping[str, Sequence[Trace]]) -> dict[str, str]:
    """What stands above a table: each trace with its seeds, cluster and load."""
    return {
        name: f"{several[0].kind}; {len(several[0].workload):,} jobs, seeds "
        f"{', '.join(str(one.seed) for one in several)} on "
        f"{', '.join(one.cluster for one in several)} GPUs, load "
        f"{', '.join(f'{one.load:.2f}' for one in several)}"
        for name, several in traces.items()
    }
