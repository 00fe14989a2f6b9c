"""Does it pay to schedule large models by their plans? Arena against FCFS, Gavel, Sia, ElasticFlow.

    python benchmarks/parallel_schedulers.py PART --data DIR --kept FOLDER [--seeds 1,2,...]

PART is one of the tables below, or `trial`: seeds 0 and 9 to 13, on which settings were looked at.
DIR has philly/philly.csv, helios/venus_jobs.csv.gz and alibaba/gpu-v2020/pai_sample.csv.gz.
Finished runs are kept in FOLDER.

small      244 jobs in a row of Philly that came within about six hours, on 32 A40 and 32 A10
large      the same on 128 H100 and 256 L20, larger models
venus, pai a day of Helios Venus (days 28, 36, 49) and of PAI (31, 45, 51), by seed, on 1,280 GPUs
philly     a week of Philly on 1,280 GPUs
suspended  `small` with baselines as published, which suspend jobs; in all other tables nobody does
deadlines  `small`, each job due 0.5 to 1.5 times its duration after its submission (as ElasticFlow
           draws them), and 2 to 4 times
objectives `small` under Arena's objectives
parts      `small` without parts of Arena (section 5.7)
settings   `small` under other P and D (section 5.8)
speed      decision times where four days of PAI come within an hour, on 1,280 GPUs
remaining  `small` and `venus`, gains weighed by the time that jobs have left
windows    `small` on fourteen other windows (seeds 14 to 27): Arena over Sia, by how run times vary

Real of it: submissions, run times (at most 6 h in `small` and `large`, 24 h elsewhere; section 5.1
draws iteration counts). Drawn, as in section 5.1: model, batch size, GPUs, GPU type. A job's work
is what it does in its run time on the GPUs that it asks for with the best plan. Throughputs are
those of the end-to-end model times a disturbance of 5 %, not measured ones; nobody has measured
these models on these GPUs in public. Profiles err by another 5 %.

All jobs run the best plan on what they get. Arena knows the best plans' profiled throughputs;
Gavel and ElasticFlow those of data parallelism, Sia that of data parallelism on one GPU times the
number, and what ran already (section 2.3). Charged on the job's own GPUs: the search before each
start, 90 s where it is pruned, 5.48 times that elsewhere (section 5.4); 240 s to restore; before
the first start a profile, Arena 510 s, Gavel and ElasticFlow 600 s, Sia 20 s a GPU type, FCFS none.

Columns: throughput is work in seconds on the GPUs asked for, done a second until 90 % of it is
done, over that of FCFS; mean JCT, queueing (time without GPUs) and makespan in hours; moves of a
job; decision times in CPU milliseconds; ratio: JCT over the duration on the GPUs asked for, 95th
percentile. With several seeds: mean and half the width of its 95 % interval by Student's t; of
throughput and JCT, which are ratios, the geometric mean with its interval.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import math
import pickle
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from _performance import Performance
from _planned import (
    LARGER,
    MODELS,
    Belief,
    Costs,
    Errors,
    Freedom,
    PlannedPhysics,
    Submission,
    planned_workload,
)
from _record import record
from scipy import stats

from schedmate.schedulers.model import NEVER, Cluster
from schedmate.schedulers.parallelism.network import Network
from schedmate.schedulers.parallelism.profile import Tables
from schedmate.schedulers.policies.arena import Arena
from schedmate.schedulers.policies.elasticflow import ElasticFlow
from schedmate.schedulers.policies.gavel import Gavel
from schedmate.schedulers.policies.queues import Fifo
from schedmate.schedulers.policies.sia import Sia
from schedmate.schedulers.policy import Policy
from schedmate.schedulers.sim.engine import Simulation
from schedmate.schedulers.sim.outcome.audit import audit
from schedmate.schedulers.sim.traces import read_trace

PRUNED_S, FULL_S = 90.0, 90.0 * 5.48
TRIALS = (0, 9, 10, 11, 12, 13)
FURTHER = tuple(range(14, 28))
FULL_PROFILE_GPU_S = 510.0 * 18.1
"""GPU time of profiling all plans by running them, by section 5.5 [s]."""


class Place(NamedTuple):
    """A cluster, what runs there, and how long jobs run at most."""

    cluster: str
    models: Sequence[tuple[str, tuple[int, ...]]]
    longest_s: float


SIMULATED = "80x4:A100-40,160x2:A40,160x2:A10,20x16:V100-32"
PLACES = {
    "small": Place("16x2:A40,16x2:A10", MODELS, 6 * 3600.0),
    "large": Place("16x8:H100-80,16x16:L20", LARGER, 6 * 3600.0),
    **dict.fromkeys(("venus", "pai", "philly"), Place(SIMULATED, MODELS, 24 * 3600.0)),
}
PLACES["speed"] = PLACES["pai"]
DAYS = {"venus": (26, 28, 36, 49), "pai": (28, 31, 45, 51), "speed": (28, 31, 45, 51)}


class Scheduler(NamedTuple):
    """A policy, what its jobs' agents tell it, and what it is charged."""

    make: Callable[[], Policy]
    freedom: Freedom
    belief: Belief
    costs: Costs


def scheduler(name: str, *, suspend: bool = False, **settings: Any) -> Scheduler:
    """One of those compared."""
    gpu_types = settings.pop("gpu_types", 2)
    ours = {"costs": Costs(PRUNED_S, profile_s=510.0), "belief": "adaptive", "freedom": "both"}
    ours |= {key: settings.pop(key) for key in tuple(settings) if key in ours}
    found = {
        "FCFS": Scheduler(Fifo, "rigid", "adaptive", Costs(FULL_S)),
        "Gavel": Scheduler(
            lambda: Gavel(objective="max-sum", suspend=suspend),
            *("type", "data-parallel", Costs(FULL_S, profile_s=600.0)),
        ),
        "ElasticFlow": Scheduler(
            lambda: ElasticFlow(suspend=suspend, **settings),
            *("count", "data-parallel", Costs(FULL_S, profile_s=600.0)),
        ),
        "Sia": Scheduler(
            lambda: Sia(profile_s=0, interval_s=300.0, suspend=suspend),
            *("both", "bootstrapped", Costs(FULL_S, profile_s=20.0 * gpu_types)),
        ),
    }
    return found.get(name) or Scheduler(lambda: Arena(**settings), **ours)  # type: ignore[arg-type]


BASELINES = ("FCFS", "Gavel", "ElasticFlow", "Sia")
LEFT_OUT = {"philly": "Sia"}
"""Its programs over thousands of waiting jobs took more than ten minutes a simulated week."""
FREE = Costs(search_s=1.0, restore_s=0.0)


@cache
def performance(name: str) -> Performance:
    """Throughputs on a cluster."""
    types = {node.gpu_type: node.gpus for node in Cluster.parse(PLACES[name].cluster).nodes}
    return Performance(Network(Tables()), types)


@cache
def rows(name: str, seed: int, data: Path) -> tuple[Submission, ...]:
    """Submissions and run times, the first submission at 0."""
    if name in DAYS:
        file = "helios/venus_jobs" if name == "venus" else "alibaba/gpu-v2020/pai_sample"
        with gzip.open(data / f"{file}.csv.gz", "rt", newline="") as stream:
            table = [
                (float(r["arrival_s"]), float(r["service_sec"])) for r in csv.DictReader(stream)
            ]
        first = DAYS[name][seed] * 86400.0
        days = 4 if name == "speed" else 1
        chosen = sorted(row for row in table if first <= row[0] < first + days * 86400)
    else:
        trace = read_trace(data / "philly" / "philly.csv")
        submit, duration = trace.requests.submit_s, trace.duration_s
        start = 10_000 + 5_000 * seed if seed < FURTHER[0] else 5_000 * (seed - 14) + 12_500
        if name == "philly":
            end = int(submit.searchsorted(submit[start] + 7 * 86400))
        else:  # jobs that came in about six hours
            while not 5.5 * 3600 < submit[start + 243] - submit[start] < 6.5 * 3600:
                start += 10
            end = start + 244
        chosen = [(float(submit[n]), float(duration[n])) for n in range(start, end)]
    begin, longest = chosen[0][0], PLACES[name].longest_s
    pace = 96.0 if name == "speed" else 1.0
    return tuple(
        Submission((at - begin) / pace, min(max(length, 60.0), longest)) for at, length in chosen
    )


def run(
    name: str,
    seed: int,
    one: Scheduler,
    data: Path,
    *,
    deadlines: tuple[float, float] | None = None,
    errors: Errors | None = None,
) -> dict[str, float]:
    """The numbers of one run."""
    place = PLACES[name]
    workload, kinds = planned_workload(
        *(name, rows(name, seed, data), performance(name), seed),
        freedom=one.freedom, models=place.models, deadlines=deadlines,
    )  # fmt: skip
    cluster = Cluster.parse(place.cluster)
    errors = errors or Errors()
    physics = PlannedPhysics(
        workload, kinds, performance(name), cluster, one.belief, one.costs, errors
    )
    policy, spent = one.make(), []
    decide = policy.decide

    def timed(view: Any) -> Any:
        start = time.process_time()
        try:
            return decide(view)
        finally:
            spent.append(time.process_time() - start)

    policy.decide = timed  # type: ignore[method-assign]
    begin = time.process_time()
    simulation = Simulation(workload, policy, cluster, physics=physics, observers=[physics])
    outcome = simulation.run()
    audit(workload, simulation.cluster, outcome)
    return {
        **_measured(workload, outcome),
        "decision": statistics.mean(spent) * 1e3,
        "longest decision": max(spent) * 1e3,
        "cpu_s": time.process_time() - begin,
        "warnings": sum(simulation.view.warnings.values()),
    }


def _measured(workload: Any, outcome: Any) -> dict[str, float]:
    ended = [job for job in workload.jobs if outcome.end[job.index] < NEVER]
    jct = {job.index: outcome.end[job.index] - job.submit_time for job in ended}
    held: dict[int, float] = dict.fromkeys(jct, 0.0)
    work = []
    moves = 0
    samples, duration = workload.columns["samples"], workload.duration_s
    for part in outcome.segments:
        moves += 1
        if part.job in held:
            held[part.job] += part.end - part.start
        done = part.work / samples[part.job] * duration[part.job]
        work.append((part.start, part.end, done))
    ratios = sorted(jct[job.index] / duration[job.index] for job in ended)
    met = sum(
        job.terms is not None and outcome.end[job.index] <= job.terms.deadline for job in ended
    )
    return {
        "jobs": len(workload.jobs),
        "ended": len(ended),
        "throughput": _until(work, 0.9),
        "jct_h": statistics.mean(jct.values()) / 3600,
        "queue_h": statistics.mean(jct[n] - held[n] for n in jct) / 3600,
        "makespan_h": max(outcome.segments.ends) / 3600,
        "moves": (moves - len({part.job for part in outcome.segments})) / len(workload.jobs),
        "ratio": ratios[int(0.95 * len(ratios))],
        "met": met / len(workload.jobs),
    }


def _until(work: list[tuple[float, float, float]], part: float) -> float:
    """Work a second from the beginning until this part of all of it is done."""
    total, low, high = sum(done for _, _, done in work), 0.0, max(end for _, end, _ in work)
    for _ in range(40):
        middle = (low + high) / 2
        done = sum(
            done * min(1.0, max(0.0, (middle - start) / (end - start)))
            for start, end, done in work
            if end > start
        )
        low, high = (middle, high) if done < part * total else (low, middle)
    return part * total / high


class Runs:
    """Runs over seeds, kept in a folder with the plans that they needed."""

    def __init__(self, data: Path, kept: Path, seeds: Sequence[int]) -> None:
        self.data, self.kept, self.seeds = data, kept, seeds
        kept.mkdir(parents=True, exist_ok=True)

    def _run(self, name: str, seed: int, one: Scheduler, **more: Any) -> dict[str, float]:
        planned, file = performance(name), self.kept / f"plans-{PLACES[name].cluster}.pickle"
        if file.exists() and not planned.known():
            planned.adopt(pickle.loads(file.read_bytes()))  # our own file
        before = len(planned.known())
        found = run(name, seed, one, self.data, **more)
        if len(planned.known()) > before:
            file.write_bytes(pickle.dumps(planned.known()))
        return found

    def of(self, title: str, name: str, one: Scheduler, **more: Any) -> list[dict[str, float]]:
        """One of each seed."""
        found = []
        for seed in self.seeds:
            file = self.kept / f"{name}-{seed}-{title}.json".replace(" ", "_").replace("/", "_")
            if not file.exists():
                numbers = self._run(name, seed, one, **more)
                file.write_text(json.dumps(numbers))
                print(title, name, seed, json.dumps(numbers), file=sys.stderr, flush=True)
            found.append(json.loads(file.read_text()))
        return found


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Mean, and half the width of its 95 % interval."""
    middle = statistics.mean(values)
    if len(values) < 2:
        return f"{middle:.{digits}f}"
    wide = stats.t.ppf(0.975, len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5
    return f"{middle:.{digits}f} ± {wide:.{digits}f}"


def ratios(values: Sequence[float]) -> str:
    """Geometric mean, and its 95 % interval."""
    logs = [math.log(one) for one in values]
    middle = statistics.mean(logs)
    if len(logs) < 2:
        return f"{math.exp(middle):.2f}"
    wide = stats.t.ppf(0.975, len(logs) - 1) * statistics.stdev(logs) / len(logs) ** 0.5
    low, high = math.exp(middle - wide), math.exp(middle + wide)
    return f"{math.exp(middle):.2f} ({low:.2f} to {high:.2f})"


def line(title: str, found: list[dict[str, float]], base: list[dict[str, float]]) -> dict[str, Any]:
    """A row of a table; `base` is what throughput and JCT are compared with."""

    def each(key: str) -> list[float]:
        return [one[key] for one in found]

    def over(key: str) -> str:
        return ratios([one[key] / other[key] for one, other in zip(found, base, strict=True)])

    return {
        "scheduler": title,
        "throughput": over("throughput"),
        "JCT h": spread(each("jct_h")),
        "JCT": over("jct_h"),
        "queueing h": spread(each("queue_h")),
        "makespan h": spread(each("makespan_h"), 1),
        "moves a job": spread(each("moves")),
        "ratio p95": spread(each("ratio"), 1),
        "decision ms": f"{max(each('decision')):.0f}, at most {max(each('longest decision')):.0f}",
    }


def against(runs: Runs, name: str, *, suspend: bool = False) -> None:
    """All schedulers on one trace; throughput and JCT over those of FCFS."""
    types = len(performance(name).types)
    found = {}
    for title in (*BASELINES, "Arena"):
        if title == LEFT_OUT.get(name):
            continue
        one = scheduler(title, suspend=suspend, gpu_types=types)
        key = f"{title} suspending" if suspend and title not in ("FCFS", "Arena") else title
        found[key] = runs.of(key, name, one)
    table = [line(title, one, found["FCFS"]) for title, one in found.items()]
    more = {"left_out": f"{LEFT_OUT[name]}, which takes too long"} if name in LEFT_OUT else {}
    jobs = ", ".join(f"{len(rows(name, seed, runs.data)):,}" for seed in runs.seeds)
    record(
        f"parallel_schedulers_{'suspended' if suspend else name}",
        table,
        jobs=jobs,
        seeds=list(runs.seeds),
        cluster=PLACES[name].cluster,
        **more,
    )


def deadlines(runs: Runs) -> None:
    """Arena's Equation 6 against ElasticFlow, and what ElasticFlow gains from plans."""
    table = []
    plans = Scheduler(ElasticFlow, "count", "adaptive", Costs(PRUNED_S, profile_s=510.0))
    for factors in ((0.5, 1.5), (2.0, 4.0)):
        base: list[dict[str, float]] = []
        for title, one in (
            ("ElasticFlow", scheduler("ElasticFlow", suspend=True)),
            ("ElasticFlow by plans", plans),
            ("Arena throughput", scheduler("Arena")),
            ("Arena deadline", scheduler("Arena", objective="deadline")),
        ):
            found = runs.of(f"{title} due {factors}", "small", one, deadlines=factors)
            base = base or found
            row = {"due": f"{factors[0]:g} to {factors[1]:g}", **line(title, found, base)}
            row["met"] = spread([one["met"] for one in found])
            row["ended"] = spread([one["ended"] / one["jobs"] for one in found])
            table.append(row)
    record("parallel_schedulers_deadlines", table, seeds=list(runs.seeds))


def variants(runs: Runs, part: str, name: str, made: dict[str, Scheduler], **meta: Any) -> None:
    """Arena with other settings; throughput and JCT over those of Arena."""
    base = runs.of("Arena", name, scheduler("Arena"))
    table = [line("Arena", base, base)]
    for title, one in made.items():
        more = {"errors": Errors(0.05, 0.0)} if title == "exact profiles" else {}
        table.append(line(title, runs.of(title, name, one, **more), base))
    record(f"parallel_schedulers_{part}", table, seeds=list(runs.seeds), **meta)


def windows(runs: Runs) -> None:
    """Arena over Sia, in all windows and by the variation of run times in them."""
    found = {one: runs.of(one, "small", scheduler(one)) for one in ("Sia", "Arena")}
    varies = []
    for seed in runs.seeds:
        lengths = [one.duration_s for one in rows("small", seed, runs.data)]
        varies.append(statistics.stdev(lengths) / statistics.mean(lengths))
    order = sorted(range(len(varies)), key=varies.__getitem__)
    half = len(order) // 2
    table = []
    for title, chosen in (
        ("all", order), ("run times vary less", order[:half]), ("more", order[half:]),
    ):  # fmt: skip
        row: dict[str, Any] = {"windows": title, "number": len(chosen)}
        row["deviation over mean of run times"] = (
            f"{varies[chosen[0]]:.2f} to {varies[chosen[-1]]:.2f}"
        )
        for key in ("throughput", "jct_h", "queue_h"):
            over = [found["Arena"][n][key] / found["Sia"][n][key] for n in chosen]
            row[f"{key} over Sia's"] = ratios(over)
            if key == "jct_h":
                row["lower JCT in"] = sum(one < 1 for one in over)
        table.append(row)
    pairs = zip(found["Arena"], found["Sia"], strict=True)
    over = [arena["jct_h"] / sia["jct_h"] for arena, sia in pairs]
    rank = stats.spearmanr(varies, over)
    record(
        "parallel_schedulers_windows", table, seeds=list(runs.seeds),
        rank_correlation=f"of variation and JCT over Sia's: {rank.statistic:.2f}, "
        f"p = {rank.pvalue:.3f}",
    )  # fmt: skip


def speed(runs: Runs) -> None:
    """Decision times of Arena."""
    found = runs.of("Arena", "speed", scheduler("Arena"))
    row = {
        "mean ms": f"{max(one['decision'] for one in found):.1f}",
        "longest ms": f"{max(one['longest decision'] for one in found):.0f}",
        "jobs": ", ".join(f"{one['jobs']:,}" for one in found),
    }
    record("parallel_schedulers_speed", [row], seeds=list(runs.seeds))


def parts() -> dict[str, Scheduler]:
    """Arena without parts of it, and with more."""
    profiled = Costs(PRUNED_S, profile_gpu_s=FULL_PROFILE_GPU_S)
    return {
        "without profiler": scheduler("", costs=profiled),
        "without planner": scheduler("", belief="data-parallel"),
        "without heterogeneity": scheduler("", freedom="count"),
        "without elasticity": scheduler("", freedom="type", elastic=False),
        "without pruning": scheduler("", costs=Costs(FULL_S, profile_s=510.0)),
        "without moves": scheduler("", depth=0),
        "exact profiles": scheduler(""),
        "free starts": scheduler("", costs=FREE),
    }


def settings() -> dict[str, Scheduler]:
    """Other numbers of queues and depths."""
    return {
        **{f"P = {count}": scheduler("", queues=count) for count in (1, 5)},
        **{f"D = {depth}": scheduler("", depth=depth) for depth in (1, 2, 5, 10)},
    }


def main() -> None:
    """One part."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("part")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--kept", type=Path, required=True)
    parser.add_argument("--seeds")
    given = parser.parse_args()
    few = given.part in (*DAYS, "philly")
    seeds = (given.seeds or ("1,2,3" if few else "1,2,3,4,5,6,7,8")).split(",")
    runs = Runs(given.data, given.kept, [int(one) for one in seeds])
    if given.part in PLACES and given.part != "speed":
        against(runs, given.part)
    elif given.part == "suspended":
        against(runs, "small", suspend=True)
    elif given.part == "deadlines":
        deadlines(runs)
    elif given.part == "windows":
        windows(Runs(given.data, given.kept, FURTHER))
    elif given.part == "objectives":
        made = {one: scheduler("", objective=one) for one in ("fairness",)}
        variants(runs, "objectives", "small", made)
    elif given.part == "parts":
        variants(runs, "parts", "small", parts())
    elif given.part == "settings":
        variants(runs, "settings", "small", settings())
    elif given.part == "speed":
        speed(runs)
    elif given.part == "remaining":
        made = {"remaining": scheduler("", remaining=True)}
        variants(runs, "remaining_small", "small", made)
        days = Runs(given.data, given.kept, (1, 2))
        variants(days, "remaining_venus", "venus", made)
    elif given.part == "trial":
        trial = Runs(given.data, given.kept, TRIALS)
        for title in (*BASELINES, "Arena"):
            trial.of(title, "small", scheduler(title))
    else:
        parser.error(f"no part {given.part}")


if __name__ == "__main__":
    main()
