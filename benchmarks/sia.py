"""Sia: against the published simulator, with profiling paid for, the solver's speed, and case 2.

    python benchmarks/sia.py fidelity --data DIR --kept FOLDER [--only philly-1,saturn-1]
    python benchmarks/sia.py baselines --data DIR --kept FOLDER
    python benchmarks/sia.py searches --data DIR --kept FOLDER [--only philly-1,saturn-1]
    python benchmarks/sia.py ties --data DIR --kept FOLDER
    python benchmarks/sia.py charge --data DIR --kept FOLDER [--only ...]
    python benchmarks/sia.py figure
    python benchmarks/sia.py solver

DIR holds `workloads/` and `traces/` of Sia's artifact, which has no licence and is not included.
Finished runs are kept in FOLDER. Each part is recorded as sia_PART, with `--modes published` as
sia_PART_published.
"""

from __future__ import annotations

import argparse
import random
import resource
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from _figure import save
from _record import RESULTS, record, recorded

from schedmate.report import charts
from schedmate.schedulers.goodput import Shape
from schedmate.schedulers.model import Cluster, Job
from schedmate.schedulers.policies.sia import Choice, Sia, solve_program
from schedmate.schedulers.policy import View
from schedmate.schedulers.sim.comparison import compare
from schedmate.schedulers.sim.parameters import world
from schedmate.schedulers.sim.runs import Plan
from schedmate.schedulers.sim.traces import read_trace

CLUSTER = "6x4:aws,2x8:dgx-ext,3x8:rtx"
PUBLISHED = {"philly-1": (0.547, 8.42, 15.83), "saturn-1": (0.591, 9.02, 14.05)}
PUBLISHED["newtrace-1"] = (0.810, 5.36, 51.25)
"""Average JCT, p99 JCT (index int(0.99 n)) and makespan that the published simulator gave [h]."""
PAPER = {"philly": (0.6, 9.5, 14.2), "saturn": (0.7, 10.9, 14.9), "newtrace": (0.7, 4.6, 52.2)}
"""The same, means over the workloads of a trace, as Sia's paper rounds them (table 3)."""
GAVEL = {"philly-1": (1.671, 28.22, 35.63), "saturn-1": (1.798, 21.77, 27.27)}
"""The same of Gavel in the published simulator."""
BASELINES = (
    *("sia", "gavel:objective=max-sum", "gavel:objective=max-min"),
    *("pollux", "pollux:search=greedy"),
)
SEARCHES = ("pollux", "pollux:search=genetic", "pollux:search=greedy", "sia")
FIRST = 40
"""Jobs of a workload on which Pollux' searches are compared, as the genetic one takes long."""
COUNTS = {"philly": 8, "saturn": 10, "newtrace": 5}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parts = {one.__name__: one for one in (fidelity, baselines, searches, ties, charge)}
    parser.add_argument("part", choices=(*parts, "solver", "figure"))
    parser.add_argument("--data", type=Path)
    parser.add_argument("--kept", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--modes", default="published,honest")
    arguments = parser.parse_args()
    if arguments.part == "solver":
        record("sia_solver", list(solver()), what="CPU of one round's program, 19 shapes and more")
        return
    if arguments.part == "figure":
        figure(recorded("sia_charge")["rows"])
        return
    if arguments.data is None or arguments.kept is None:
        parser.error("--data DIR and --kept FOLDER are needed")
    names = [one for one in arguments.only.split(",") if one]
    names = names or [f"{trace}-{n + 1}" for trace, count in COUNTS.items() for n in range(count)]
    rows = list(parts[arguments.part](arguments, names))
    one = "" if "," in arguments.modes else f"_{arguments.modes}"
    record(
        f"sia_{arguments.part}{one}",
        rows,
        cluster=CLUSTER,
        workloads=", ".join(names),
        seed=0,
        notes="workloads and tables of the artifact of Sia; synthetic arrivals after real traces",
    )


def run(
    where: argparse.Namespace, name: str, policy: str, mode: str, first: int = 0
) -> dict[str, Any]:
    """One run's numbers, with the artifact's p99 beside ours; `first`: of so many jobs."""
    trace, _, number = name.rpartition("-")
    workload = read_trace(
        where.data / "workloads" / trace / f"workload-{number}.csv", tables=where.data / "traces"
    )
    if first:
        workload = workload.select(range(first))
    plan = Plan((policy,), Cluster.parse(CLUSTER), "none", world(mode))
    (found,) = compare(workload, [plan], out=where.kept / f"{mode}{first or ''}" / name)
    jct = np.sort(found.jobs["jct_s"])
    print(name, policy, mode, found.numbers["avg_jct_h"], found.numbers["cpu_s"], file=sys.stderr)
    begun = {(*one,) for one in zip(found.segments["job"], found.segments["start_s"], strict=True)}
    return {
        **found.numbers,
        "p99_artifact_h": float(jct[int(0.99 * len(jct))]) / 3600,
        "moves": len(begun) / len(jct) - 1,
    }


def fidelity(where: argparse.Namespace, names: list[str]) -> Iterator[dict[str, Any]]:
    """Each workload in both modes, and means over the workloads of a trace."""
    for mode in where.modes.split(","):
        kept: dict[str, list[dict[str, Any]]] = {}
        for name in names:
            numbers = run(where, name, "sia", mode)
            kept.setdefault(name.rpartition("-")[0], []).append(numbers)
            yield {
                "mode": mode,
                "workload": name,
                **_row([numbers]),
                **(_against([numbers], PUBLISHED.get(name)) if mode == "published" else {}),
            }
        for trace, several in kept.items():
            if len(several) > 1:
                yield {
                    "mode": mode,
                    "workload": f"mean of {len(several)} {trace}; against Sia's paper",
                    **_row(several),
                    **(_against(several, PAPER[trace]) if mode == "published" else {}),
                }


def _against(
    several: Sequence[dict[str, Any]], other: tuple[float, float, float] | None
) -> dict[str, str]:
    keys = {"JCT": "avg_jct_h", "p99": "p99_artifact_h", "makespan": "makespan_h"}
    return {
        f"{title} vs published": f"{statistics.fmean(o[key] for o in several) / value - 1:+.1%}"
        for (title, key), value in zip(keys.items(), other or (), strict=False)
    }


def baselines(where: argparse.Namespace, names: list[str]) -> Iterator[dict[str, Any]]:
    """Gavel, beside the published simulator, and Pollux."""
    for name in names:
        for policy in BASELINES:
            for mode in where.modes.split(","):
                numbers = run(where, name, policy, mode)
                known = GAVEL.get(name) if (policy, mode) == (BASELINES[1], "published") else None
                row = {"mode": mode, "workload": name, "policy": policy, **_row([numbers])}
                yield {**row, **_against([numbers], known)}


def searches(where: argparse.Namespace, names: list[str]) -> Iterator[dict[str, Any]]:
    """Pollux by its genetic search, the optimum over Sia's sizes, and a greedy search; and Sia."""
    for mode in where.modes.split(","):
        for name in names:
            runs = {policy: run(where, name, policy, mode, FIRST) for policy in SEARCHES}
            for policy, numbers in runs.items():
                change = numbers["avg_jct_h"] / runs[SEARCHES[0]]["avg_jct_h"] - 1
                row = {"mode": mode, "workload": f"{name}, first {FIRST}", "policy": policy}
                yield {**row, **_row([numbers]), "JCT vs optimum": f"{change:+.1%}"}


class Tied(Sia):
    """Sia, which chooses at random between configurations whose rounded costs are equal."""

    def __init__(self, tie: int = 0, **settings: Any) -> None:
        super().__init__(**settings)
        self.draw = random.Random(tie)

    def _choices(
        self, job: Job, shapes: tuple[Shape, ...], types: list[str], view: View
    ) -> list[Choice]:
        found = super()._choices(job, shapes, types, view)
        return [one._replace(cost=one.cost + self.draw.uniform(-1e-4, 1e-4)) for one in found]


def ties(where: argparse.Namespace, names: list[str]) -> Iterator[dict[str, Any]]:
    """How much rests on which of equally good programs the solver returns."""
    settings = "profile_s=0:lambda_a=0:decimals=2"  # those of the published mode
    for name in names:
        several = [run(where, name, f"sia:Tied:tie={n}:{settings}", "published") for n in range(5)]
        row = {"workload": name, "ties broken": "at random, five times", **_row(several)}
        for title, key in (("JCT h", "avg_jct_h"), ("p99 h", "p99_artifact_h")):
            values = [one[key] for one in several]
            row[f"{title}, least to most"] = f"{min(values):.3f} to {max(values):.3f}"
        yield {**row, **_against(several, PUBLISHED.get(name))}


def _row(several: list[dict[str, Any]]) -> dict[str, Any]:
    def mean(key: str) -> float:
        return statistics.fmean(one[key] for one in several)

    spread = statistics.pstdev(one["avg_jct_h"] for one in several)
    return {
        "avg JCT h": f"{mean('avg_jct_h'):.3f}" + (f" ± {spread:.3f}" if len(several) > 1 else ""),
        "p99 h (artifact's)": f"{mean('p99_artifact_h'):.2f}",
        "p50 h": f"{mean('median_jct_h'):.3f}",
        "p99 h": f"{mean('p99_jct_h'):.2f}",
        "queue h": f"{mean('avg_queue_h'):.3f}",
        "p99 queue h": f"{mean('p99_queue_h'):.2f}",
        "makespan h": f"{mean('makespan_h'):.2f}",
        "changes/job": f"{mean('moves'):.2f}",
        "CPU s": f"{mean('cpu_s'):.1f}",
        "peak MB so far": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def charge(where: argparse.Namespace, names: list[str]) -> Iterator[dict[str, Any]]:
    """What bypassing the profile is worth, by what the profile costs and who is matched."""
    for trace, several in _by_trace(names).items():
        for seconds in (20, 120, 360):
            yield from _saved(where, trace, several, seconds, (0.5, 1.0))


def _by_trace(names: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(name.rpartition("-")[0], []).append(name)
    return found


def _saved(
    where: argparse.Namespace, trace: str, several: list[str], seconds: int, rates: Sequence[float]
) -> Iterator[dict[str, Any]]:
    base = [run(where, one, f"sia:profile_s={seconds}", "honest") for one in several]
    plain = [one["avg_jct_h"] for one in base]
    for rate in rates:
        policy = f"sia+schedmate:profile_s={seconds}:match_rate={rate}"
        runs = [run(where, one, policy, "honest") for one in several]
        ours = [one["avg_jct_h"] for one in runs]
        matched = sum(one["schedmate"]["advisor"]["bootstrapped"] for one in runs)
        less = 1 - sum(ours) / sum(plain)
        low, high = _interval(plain, ours)
        yield {
            "trace": trace,
            "workloads": len(several),
            "profile s": seconds,
            "may match": rate,
            "matched": f"{matched / sum(one['jobs'] for one in runs):.0%}",
            "Sia JCT h": f"{statistics.fmean(plain):.3f}",
            "Sia+SchedMate JCT h": f"{statistics.fmean(ours):.3f}",
            "less": f"{less:.1%}",
            "95 % over workloads": f"{low:.1%} to {high:.1%}",
            "better in": f"{sum(a < b for a, b in zip(ours, plain, strict=True))}",
            "p99 h": " -> ".join(
                f"{statistics.fmean(o['p99_artifact_h'] for o in which):.2f}"
                for which in (base, runs)
            ),
            "in the paper's 13.3 to 20 %": "yes" if 0.133 <= less <= 0.2 else "",
        }


def figure(rows: Sequence[dict[str, Any]]) -> None:
    """The table of `charge` as curves, with what the paper's Table 3 says."""
    curves: dict[tuple[str, float], list[tuple[float, float]]] = {}
    for row in rows:
        point = (float(row["profile s"]), float(row["less"].strip("%")) / 100)
        curves.setdefault((row["trace"], row["may match"]), []).append(point)
    save(
        RESULTS / "sia_charge.svg",
        "Average JCT that SchedMate saves Sia, by what profiling costs",
        [
            charts.Series(
                f"{trace}, {'every job' if rate == 1 else 'half of the jobs'} may be matched",
                n,
                *np.array(points).T,
            )
            for n, ((trace, rate), points) in enumerate(curves.items())
        ],
        (
            charts.linear_axis("profile of one GPU type [s]", 0.0, 360.0, "count"),
            charts.linear_axis("less", 0.0, 0.25, "share"),
        ),
        (0.133, 0.2, "paper: 13.3 to 20 %"),
    )


def _interval(plain: Sequence[float], ours: Sequence[float]) -> tuple[float, float]:
    """95 % interval of 1 - sum(ours) / sum(plain), by a paired bootstrap over workloads."""
    draw, pairs = np.random.default_rng(0), np.array([plain, ours])
    found = []
    for _ in range(1000):
        one, other = pairs[:, draw.integers(0, len(plain), len(plain))].sum(axis=1)
        found.append(1 - other / one)
    low, high = np.percentile(found, (2.5, 97.5))
    return float(low), float(high)


def solver() -> Iterator[dict[str, Any]]:
    """Random goodputs of realistic form: types of different speed, concave in GPUs, most held."""
    for jobs, scale in ((10, 1), (20, 1), (60, 1), (160, 4), (640, 16), (1280, 32)):
        times = []
        for seed in range(8 if scale < 10 else 4):
            rows, capacity = program(jobs, scale, seed)
            began = time.process_time()
            solve_program(rows, capacity)
            times.append(1000 * (time.process_time() - began))
        times = times[1:]  # the first one loads the solver
        yield {
            "jobs": jobs,
            "GPUs": 64 * scale,
            "mean ms": f"{statistics.fmean(times):.1f}",
            "max ms": f"{max(times):.1f}",
        }


def program(jobs: int, scale: int, seed: int) -> tuple[list[list[Choice]], list[int]]:
    """The costs of one round, and the GPUs of each type."""
    draw = random.Random(seed)
    groups = ((6 * scale, 4), (2 * scale, 8), (3 * scale, 8))
    rows = []
    for _ in range(jobs):
        most, shape = 2 ** draw.randrange(7), draw.uniform(0.5, 0.95)
        speed = (1.0, draw.uniform(1.5, 6), draw.uniform(1, 2.2))
        options = [
            (kind, gpus)
            for kind, (nodes, size) in enumerate(groups)
            for gpus in (1, 2, 4, 8, *(n * size for n in range(2, min(nodes, 16) + 1)))
            if gpus <= most and (gpus <= size or gpus % size == 0)
        ]
        held, keep = draw.randrange(len(options)), draw.uniform(0.5, 0.95)
        if draw.random() < 0.2:
            keep = 1.0
        row = []
        for place, (kind, gpus) in enumerate(options):
            worth = speed[kind] * gpus**shape * draw.uniform(0.9, 1.1)
            row.append(Choice(kind, gpus, (worth * (1.0 if place == held else keep)) ** -0.5 - 1.1))
        rows.append(row)
    return rows, [nodes * size for nodes, size in groups]


if __name__ == "__main__":
    main()
