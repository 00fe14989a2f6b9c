"""Traces of many seeds, runs over them on all cores that are kept, and gains with their intervals.

A seed is another draw of a synthetic trace, or another part of a real one that no other seed has;
its recipe is drawn anew, too. All policies of a seed run on the same jobs, so gains are paired.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from _bounds import KnowingLucid  # noqa: F401 - policies name it
from _colocation import measured
from _runs import LARGEST, PROFILE_ERROR, demand
from scipy import stats

from schedmate.base.spread import spread
from schedmate.schedulers.model import Cluster
from schedmate.schedulers.sim.comparison import package_digest
from schedmate.schedulers.sim.interference import named
from schedmate.schedulers.sim.parameters import HONEST, Parameters, UtilisationCurve
from schedmate.schedulers.sim.runs import Plan, run_policy
from schedmate.schedulers.sim.traces import read_trace
from schedmate.schedulers.sim.traces.assign import assign
from schedmate.schedulers.sim.traces.recipe import Calibration, Recipe, parse_recipe
from schedmate.schedulers.sim.traces.synthesize import synthesize
from schedmate.schedulers.sim.workload import Workload
from schedmate.schedulers.sim.world import FailureRates

SEEDS = tuple(range(1, 21))
PHILLY_STEP, PHILLY_TUNED, PHILLY_SHIFT = 4_000, 8, 4_000
"""Parts of Philly are this far apart; the one on which settings were looked at, 30,000 to 34,000,
is left out."""
VENUS_STEP = 6_000
SIDE_BY_SIDE = 6
"""Parts of a trace that run at once on a cluster of a given size: as on a site as many times as
large. With one part, moved together, few jobs would have ended when like ones are submitted."""
SPLITS = 400
"""Ways to cut the seeds in half, to see whether intervals hold."""


class Cell(NamedTuple):
    """One run, by everything that it depends on."""

    trace: str
    seed: int
    policy: str
    told: str
    recipe: str = ""
    """Settings of the recipe."""
    world: str = "pairs"
    jobs: int = 1500
    load: float = 1.2
    failing: float = 0.0
    """Share of jobs with a bug."""
    nodes: int = 0
    """Of the cluster, which then has the jobs of `SIDE_BY_SIDE` seeds at once. 0: the cluster is as
    large as the load of one seed asks for."""


def found(
    cells: Iterable[Cell], data: Path, kept: Path, processes: int = 1
) -> dict[Cell, dict[str, Any]]:
    """What each run comes to; those that are kept are not repeated, stopped ones go on."""
    kept.mkdir(parents=True, exist_ok=True)
    wanted = list(dict.fromkeys(cells))
    answers: dict[Cell, dict[str, Any]] = {}
    left: dict[tuple[Any, ...], list[Cell]] = {}
    for cell in wanted:
        path = kept / f"{_key(cell)}.json"
        if path.exists():
            answers[cell] = json.loads(path.read_text())
        else:
            # A trace is made once for all policies on it.
            left.setdefault(_source(cell), []).append(cell)
    print(f"{len(answers)} runs are there, {len(wanted) - len(answers)} to do", file=sys.stderr)
    for group, done in spread(_work, list(left.values()), (data, kept), processes=processes):
        if done is None:
            raise SystemExit(f"a process ended at {group[0]}; run again")
        answers.update(zip(group, done, strict=True))
        print(f"{len(answers)}/{len(wanted)} {group[0][:2]}", file=sys.stderr, flush=True)
    return answers


def _work(group: list[Cell], shared: tuple[Path, Path]) -> list[dict[str, Any]]:
    data, kept = shared
    done = []
    for cell in group:
        numbers = _run(cell, data)
        path = kept / f"{_key(cell)}.json"
        part = path.with_suffix(".part")
        part.write_text(json.dumps(numbers))
        part.rename(path)
        done.append(numbers)
    return done


def _source(cell: Cell) -> tuple[Any, ...]:
    return (cell.trace, cell.jobs, cell.seed, cell.load, cell.recipe, cell.nodes)


def _key(cell: Cell) -> str:
    return hashlib.sha256(repr(tuple(cell)).encode() + package_digest()).hexdigest()[:20]


def _run(cell: Cell, data: Path) -> dict[str, Any]:
    trace, *rest = _source(cell)
    work, cluster = trace_of(trace, data, *rest)
    memory = str(Recipe.read(recipe_of(cell.trace)).gpu_memory_mb)
    shares = {name: {"gpu_memory_mb": memory} for name in ("lucid", "horus", "KnowingLucid")}
    world = replace(_world(cell.world, data), profile_error=PROFILE_ERROR).with_settings(shares)
    failures = None
    if cell.failing:
        gpu_s = sum(d * j.gpus for d, j in zip(work.duration_s, work.jobs, strict=True))
        broken = cell.failing * len(work) * 0.11 / 0.89  # by the infrastructure, as in Acme
        failures = FailureRates(gpu_mtbf=gpu_s / broken, bugs=cell.failing, user=7200.0)
    policy = cell.policy
    if policy.startswith("_bounds:"):
        policy += f":gpu_memory_mb={memory}"
    plan = Plan((policy,), Cluster.parse(cluster), cell.told, world, cell.seed, failures=failures)
    numbers = run_policy(work, plan, policy).numbers
    for name in ("by_size", "fairness", "gpu_time_h"):
        numbers.pop(name, None)
    load = demand(work) / Cluster.parse(cluster).gpus
    alone = float(np.mean(work.duration_s)) / 3600
    return {**numbers, "alone_h": alone, "cluster": cluster, "load": load}


@lru_cache(maxsize=2)
def _world(name: str, data: Path) -> Parameters:
    if name == "curve":
        return replace(HONEST, interference=UtilisationCurve())
    if name == "pairs":
        lucid = data / "lucid"
        table = measured(lucid / "data" / "colocate_info.csv", lucid / "single_data.csv")
        return replace(HONEST, interference=table)
    return replace(HONEST, interference=named(name))


def recipe_of(trace: str) -> str:
    """The recipe that is meant for a trace."""
    return "schedmate" if trace in ("Seren", "Table 1") else "lucid"


@lru_cache(maxsize=1)
def trace_of(
    name: str, data: Path, jobs: int, seed: int, load: float, settings: str, nodes: int = 0
) -> tuple[Workload, str]:
    """One of the traces, and a cluster on which it has this load."""
    if name == "Table 1":
        return _table1(data, seed, load, settings)
    if nodes:
        seeds = range(SIDE_BY_SIDE * (seed - 1) + 1, SIDE_BY_SIDE * seed + 1)
        parts = [_part(name, data, jobs, one) for one in seeds]
        part = Workload.of(sorted(row for one in parts for row in _rows(one)))
        part.name, part.recorded = parts[0].name, parts[0].recorded
    else:
        part = _part(name, data, jobs, seed)
    part = part.select(n for n, job in enumerate(part.jobs) if job.gpus <= LARGEST)
    if nodes:
        _squeeze(part, load * nodes * 8)
    else:
        nodes = max(max(j.gpus for j in part.jobs) // 8 + 4, round(demand(part) / 8 / load))
    recipe = f"{recipe_of(name)}:seed={seed}" + f",{settings}" * bool(settings)
    return assign(part, *parse_recipe(recipe)), f"{nodes}x8"


def _rows(part: Workload) -> list[tuple[float, float, int]]:
    """Its jobs, submitted from 0 to 1."""
    begin, end = part.jobs[0].submit_time, part.jobs[-1].submit_time
    return [
        ((job.submit_time - begin) / (end - begin), length, job.gpus)
        for job, length in zip(part.jobs, part.duration_s, strict=True)
    ]


def _squeeze(work: Workload, gpus: float) -> None:
    """Move all submissions together, or apart, until this many GPUs are asked for on average."""
    times = [job.submit_time for job in work.jobs]
    span = times[-1] - times[0]
    low, high = 3600.0, 90 * 86_400.0
    for _ in range(30):
        middle = (low * high) ** 0.5
        for job, time in zip(work.jobs, times, strict=True):
            job.submit_time = (time - times[0]) / span * middle
        low, high = (low, middle) if demand(work) < gpus else (middle, high)


def _part(name: str, data: Path, jobs: int, seed: int) -> Workload:
    if name == "Philly":
        first = PHILLY_STEP * (seed - 1) + PHILLY_SHIFT * (seed > PHILLY_TUNED - 1)
        return read_trace(data / "philly" / "philly.csv").select(range(first, first + jobs))
    if name == "Venus":
        first = VENUS_STEP * (seed - 1)
        return venus(data).select(range(first, first + jobs))
    return synthesize(Calibration.read(name.lower()), jobs, seed)


@lru_cache(maxsize=1)
def venus(data: Path) -> Workload:
    """Every GPU job of Helios Venus: real arrivals, GPUs and run times, these cut at 48 h."""
    with gzip.open(data / "helios" / "venus_jobs.csv.gz", "rt", newline="") as stream:
        rows = [
            (float(row["arrival_s"]), max(1.0, float(row["service_sec"])), int(row["gpu_count"]))
            for row in csv.DictReader(stream)
        ]
    work = Workload.of(rows)
    work.name, work.recorded = "venus", True
    return work


TABLE1_JOBS, TABLE1_GPUS, TABLE1_MOST = 241, 128, 120
"""The paper caps jobs at 128 GPUs, of which Lucid keeps a node for profiling."""
TABLE1_ALONE_S = (6.85 - 3.40) * 3600


def _table1(data: Path, seed: int, load: float, settings: str) -> tuple[Workload, str]:
    """241 jobs of Philly and of a trace that meets Acme's figures, half each, on 128 GPUs.

    The paper says neither how they were chosen nor when they were submitted: half are in a row of
    each trace, run times are cut at 48 h and scaled to the mean that its Table 1 implies (JCT less
    queueing), and submissions are moved together until the load is `load`.
    """
    half = TABLE1_JOBS // 2
    first = PHILLY_STEP * (seed - 1) + PHILLY_SHIFT * (seed > PHILLY_TUNED - 1)
    parts = [
        read_trace(data / "philly" / "philly.csv").select(range(first, first + half + 1)),
        synthesize(Calibration.read("seren"), 500, seed).select(range(half)),
    ]
    rows = [
        (at, min(length, 172_800.0), min(gpus, TABLE1_MOST))
        for part in parts
        for at, length, gpus in _rows(part)
    ]
    scale = TABLE1_ALONE_S / float(np.mean([length for _, length, _ in rows]))
    work = Workload.of([(at, length * scale, gpus) for at, length, gpus in rows])
    _squeeze(work, load * TABLE1_GPUS)
    recipe = f"schedmate:seed={seed}" + f",{settings}" * bool(settings)
    return assign(work, *parse_recipe(recipe)), f"{TABLE1_GPUS // 8}x8"


class Gain(NamedTuple):
    """How many times shorter the average JCT of one policy is than that of another."""

    ratio: float
    """The geometric mean over seeds."""
    low: float
    high: float
    """Of its 95 % interval: Student's t of the logarithms over seeds."""
    best: float
    worst: float
    """Of single seeds."""
    median: float
    """Of single seeds."""
    holds: float
    """Share of ways to cut the seeds in half in which one half's mean lies in the 95 % interval
    that the other half gives for it; 0.95 if intervals hold."""

    def __str__(self) -> str:
        return f"{self.ratio:.3f} ({self.low:.3f} to {self.high:.3f})"


def gain(base: Sequence[float], this: Sequence[float]) -> Gain:
    """From the average JCT of each seed."""
    logs = np.log(np.array(base) / np.array(this))
    count = len(logs)
    middle, wide = float(logs.mean()), 0.0
    if count > 1:
        wide = float(stats.t.ppf(0.975, count - 1) * logs.std(ddof=1) / np.sqrt(count))
    low, high = np.exp((middle - wide, middle + wide))
    return Gain(
        float(np.exp(middle)), float(low), float(high),
        float(np.exp(logs.max())), float(np.exp(logs.min())), float(np.exp(np.median(logs))),
        _holds(logs),
    )  # fmt: skip


def _holds(logs: np.ndarray) -> float:
    half = len(logs) // 2
    if half < 3 or not logs.std():
        return float("nan")
    draw = np.random.default_rng(0)
    inside = 0
    for _ in range(SPLITS):
        order = draw.permutation(len(logs))
        one, other = logs[order[:half]], logs[order[half:]]
        # The mean of as many new seeds is as uncertain as that of these.
        error = one.std(ddof=1) * np.sqrt(1 / len(one) + 1 / len(other))
        inside += abs(other.mean() - one.mean()) <= stats.t.ppf(0.975, half - 1) * error
    return inside / SPLITS
