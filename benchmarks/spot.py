"""SpotGPU: what spot jobs get of idle GPUs, what they cost others, and whom to evict.

    python benchmarks/spot.py gain           # published rules against random victims, both classes
    python benchmarks/spot.py lost           # the same without checkpoints, and with more LP jobs
    python benchmarks/spot.py standby        # use of lent GPUs by LP demand, and why not more
    python benchmarks/spot.py knowledge      # with estimates of what jobs have left to do
    python benchmarks/spot.py openb FOLDER   # openb's pods and nodes (alibaba gpu-v2023)
    python benchmarks/spot.py bound          # against the program of the paper's Appendix A
    python benchmarks/spot.py speed          # 10,000 nodes, 100,000 jobs

Synthetic jobs are drawn by `schedmate traces spot`: that HP jobs hold 68 % of the GPUs is put in,
and so are the shape of days and nights, spot demand and checkpoints (its `--sources`). What comes
out: what spot jobs get, what HP jobs lose by it, what evictions waste. Every policy of a seed runs
on the same jobs until all have ended; allocation is counted from day 2 to 14. Ratios are means of
the logarithm over seeds with Student's 95 % interval. No setting was chosen on these seeds (but on
100 and 101).
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from _record import record
from scipy import stats

from schedmate.schedulers import Cluster, Job, Node, Terms, registry
from schedmate.schedulers.sim.engine import Simulation
from schedmate.schedulers.sim.outcome.audit import audit
from schedmate.schedulers.sim.outcome.metrics import rare_numbers
from schedmate.schedulers.sim.parameters import HONEST
from schedmate.schedulers.sim.record import Outcome
from schedmate.schedulers.sim.runs import make_estimator
from schedmate.schedulers.sim.traces import read_trace
from schedmate.schedulers.sim.traces.spot import DAY, draw
from schedmate.schedulers.sim.workload import Workload

SEEDS = tuple(range(1, 13))
NODES, DAYS, WARM = 256, 14.0, 2.0
LOADS = (0.25, 0.35)
RANDOM = "spot:victims=random:colocation=false:history=false"
ORIGIN = f"synthetic: HP and LP jobs after the ASI paper, {NODES} nodes, {DAYS:g} days"


class Result(NamedTuple):
    """One run."""

    hp_held: float
    held: float
    """Share of all GPUs, with those of spot jobs; lent ones count as their holder's."""
    hp_queue_s: float
    hp_p90_s: float
    hp_p99_s: float
    lp_jct_h: float
    lp_weighted_h: float
    """Mean with each job counted by its GPU time."""
    lp_p99_h: float
    evictions: int
    lost_gpu_h: float
    harvested: float
    cpu_s: float


def run(
    workload: Workload, cluster: Cluster, policy: str, told: str = "none", seed: int = 0,
    window: tuple[float, float] = (WARM * DAY, DAYS * DAY),
) -> Result:  # fmt: skip
    """Simulate, audit and count."""
    began = time.process_time()
    simulation = Simulation(
        workload, registry.make(policy), cluster,
        estimator=make_estimator(told, workload, seed), seed=seed,
    )  # fmt: skip
    outcome = simulation.run()
    took = time.process_time() - began
    audit(workload, simulation.cluster, outcome)
    low = [job.terms is not None and job.terms.low for job in workload.jobs]
    held = [0.0, 0.0]
    for one in outcome.segments:
        length = min(one.end, window[1]) - max(one.start, window[0])
        if length > 0 and one.kind != "loan":
            job = workload.jobs[one.job]
            held[low[one.job]] += length * job.gpus * job.share
    capacity = cluster.gpus * (window[1] - window[0])
    submitted = np.array([job.submit_time for job in workload.jobs])
    jct = np.array(outcome.end) - submitted
    queue = np.maximum(jct - np.array(outcome.held_s), 0.0)
    spot = np.array(low)
    mine, theirs = jct[spot], queue[~spot]
    weight = np.array(workload.duration_s)[spot] * np.array(
        [job.gpus * job.share for job in workload.jobs if low[job.index]]
    )
    numbers = rare_numbers(workload, outcome)
    lent = numbers.get("lent_gpu_h", 0.0)
    return Result(
        held[0] / capacity,
        sum(held) / capacity,
        float(theirs.mean()),
        *(float(one) for one in np.percentile(theirs, (90, 99))),
        float(mine.mean()) / 3600 if len(mine) else 0.0,
        float((mine * weight).sum() / weight.sum()) / 3600 if len(mine) else 0.0,
        float(np.percentile(mine, 99)) / 3600 if len(mine) else 0.0,
        sum(job.evictions for job in workload.jobs),
        float(numbers.get("evicted_lost_gpu_h", 0.0)),
        numbers.get("borrowed_gpu_h", 0.0) / lent if lent else 0.0,
        took,
    )


def ratio(this: Sequence[float], base: Sequence[float]) -> str:
    """This over the base, with its 95 % interval over seeds."""
    logs = np.log(np.array(this) / np.array(base))
    middle, wide = float(logs.mean()), 0.0
    if len(logs) > 1:
        wide = float(stats.t.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) / np.sqrt(len(logs)))
    low, mean, high = np.exp((middle - wide, middle, middle + wide))
    return f"{mean - 1:+.1%} ({low - 1:+.1%} to {high - 1:+.1%})"


def row(name: str, found: Sequence[Result], base: Sequence[Result] | None) -> dict[str, Any]:
    """Means over seeds, and LP completion time against the base."""

    def mean(field: str) -> float:
        return float(np.mean([getattr(one, field) for one in found]))

    spot = mean("lp_jct_h") > 0
    against = base is not None and spot
    return {
        "policy": name,
        "HP held": f"{mean('hp_held'):.1%}",
        "HP + LP": f"{mean('held'):.1%}",
        "HP queue s": f"{mean('hp_queue_s'):.0f}",
        "p90": f"{mean('hp_p90_s'):.0f}",
        "p99": f"{mean('hp_p99_s'):.0f}",
        "LP JCT h": f"{mean('lp_jct_h'):.2f}" if spot else "",
        "against base": ratio(
            [one.lp_jct_h for one in found], [one.lp_jct_h for one in base or ()]
        ) if against else "",
        "by GPU time": ratio(
            [one.lp_weighted_h for one in found], [one.lp_weighted_h for one in base or ()]
        ) if against else "",
        "LP p99 h": f"{mean('lp_p99_h'):.0f}" if spot else "",
        "evictions": round(mean("evictions")),
        "lost GPU h": round(mean("lost_gpu_h")),
        "Standby used": f"{mean('harvested'):.0%}" if mean("harvested") else "",
        "CPU s": f"{mean('cpu_s'):.1f}",
    }  # fmt: skip


def without_checkpoints(workload: Workload) -> Workload:
    """The same jobs, of which none makes a checkpoint or saves its work when told to stop."""
    for job in workload.jobs:
        assert job.terms is not None
        job.terms = replace(job.terms, checkpoint_s=1e9, saves=False)
    return workload


def high_only(workload: Workload) -> Workload:
    """Its jobs of high priority."""
    return workload.select(
        job.index for job in workload.jobs if job.terms is None or not job.terms.low
    )


def gain() -> None:
    """Both classes against HP alone, and the published rules against random ones."""
    _gain("spot_gain_25", CASES, "LP jobs would use 25% of all GPUs", SEEDS)


def lost() -> None:
    """The same where nobody makes checkpoints, and where spot jobs always wait."""
    few = {name: CASES[name] for name in (BASE, "published", "HP as if alone (ours)")}
    nothing = "LP jobs would use 25% of all GPUs; evicted jobs start over, without checkpoints"
    _gain("spot_gain_no_checkpoints", few, nothing, SEEDS[:8], saves=False)
    _gain("spot_gain_35", few, "LP jobs would use 35% of all GPUs", SEEDS[:8], load=0.35)


def standby() -> None:
    """What becomes of the GPU time that is lent, by how much spot jobs ask for."""
    rows, seeds = [], SEEDS[:4]
    for load in (0.25, 0.35, 0.5):
        found = []
        for seed in seeds:
            workload, cluster = draw(NODES, DAYS, seed, load)
            simulation = Simulation(workload, registry.make("spot"), cluster, seed=seed)
            outcome = simulation.run()
            audit(workload, simulation.cluster, outcome)
            found.append(lent_time(workload, outcome))
        row: dict[str, Any] = {"LP demand": f"{load:.0%}"}
        for what in LENT:
            shares = np.array([one[what] / sum(one.values()) for one in found])
            half = stats.t.ppf(0.975, len(seeds) - 1) * shares.std(ddof=1) / len(seeds) ** 0.5
            row[what] = f"{shares.mean():.0%} +- {half:.0%}"
        rows.append(row)
    record(
        "spot_standby", rows,
        trace=f"{ORIGIN}, seeds {seeds}", spot="GPUs that LP jobs would use, of all",
        counts="of the GPU time that is lent until the day that the trace ends; means over seeds "
        "with 95 % intervals; LP jobs borrow GPUs of one node and of the type that they ask for",
    )  # fmt: skip


LENT = ("used", "no spot job of the type waits", "all that wait need more GPUs of a node", "other")


def lent_time(workload: Workload, outcome: Outcome) -> Counter[str]:
    """GPU seconds that were lent, by what became of them, up to the last submission."""
    ends = DAYS * DAY
    changes: list[tuple[float, str, int, int, int]] = []

    def during(start: float, end: float, what: str, node: int, gpus: int, job: int) -> None:
        if start < min(end, ends):
            changes.append((start, what, node, gpus, job))
            changes.append((min(end, ends), what, node, -gpus, job))

    nodes_of = {}
    for loan in outcome.ledger.loans:
        for node, mask in loan.allocation:
            nodes_of[node] = workload.jobs[loan.job].gpu_type
            during(loan.start, loan.called, "lent", node, mask.bit_count(), loan.job)
    free_from = [job.submit_time for job in workload.jobs]
    for one in sorted(outcome.segments, key=lambda one: one.start):
        job = workload.jobs[one.job]
        if job.terms is not None and job.terms.low:
            during(free_from[one.job], one.start, "waits", -1, job.gpus, one.job)
            free_from[one.job] = one.end
            for node, mask in one.allocation if one.kind == "loan" else ():
                during(one.start, one.end, "used", node, mask.bit_count(), one.job)
    changes.sort()
    left, used = Counter[int](), Counter[int]()
    waiting: dict[str, Counter[int]] = {}
    found, before = Counter[str](), 0.0
    for at, what, node, gpus, job in changes:
        for place, lent in left.items() if at > before else ():
            taken = min(lent, used[place])
            found["used"] += (at - before) * taken
            sizes = [one for one, n in waiting.get(nodes_of[place], {}).items() if n]
            why = 1 if not sizes else 2 if min(sizes) > lent - taken else 3
            found[LENT[why]] += (at - before) * (lent - taken)
        before = at
        if what == "waits":
            sign = 1 if gpus > 0 else -1
            waiting.setdefault(workload.jobs[job].gpu_type, Counter())[abs(gpus)] += sign
        else:
            (left if what == "lent" else used)[node] += gpus
    return found


BASE = "random victims, no co-location, no history (base)"
CASES = {
    "HP alone": "spot",
    BASE: RANDOM,
    "published": "spot",
    "published, no co-location, no history": "spot:colocation=false:history=false",
    "published, nothing borrowed": "spot:windows=none",
    "HP as if alone (ours)": "spot:protect=true",
}


def _gain(
    name: str, cases: dict[str, str], about: str, seeds: Sequence[int], *,
    load: float = LOADS[0], saves: bool = True,
) -> None:  # fmt: skip
    found: dict[str, list[Result]] = {case: [] for case in cases}
    for seed in seeds:
        workload, cluster = draw(NODES, DAYS, seed, load)
        if not saves:
            workload = without_checkpoints(workload)
        for case, policy in cases.items():
            jobs = high_only(workload) if case == "HP alone" else workload
            found[case].append(run(jobs, cluster, policy, seed=seed))
    rows = [row(case, one, found[BASE]) for case, one in found.items()]
    record(name, rows, trace=f"{ORIGIN}, seeds {tuple(seeds)}", spot=about)


def knowledge() -> None:
    """What each use of an estimate is worth, with perfect and with wrong ones."""
    told = ("oracle", "noisy:1.0", "user-mean")
    uses = {
        "victims": "spot:victims=remaining",
        "windows": "spot:windows=worth",
        "order of spot jobs": "spot:shortest=true",
        "all three": "spot:victims=remaining:windows=worth:shortest=true",
    }
    seeds = tuple(range(1, 13))
    for load in LOADS[:1]:
        found: dict[str, list[Result]] = {"published (base)": []}
        for seed in seeds:
            workload, cluster = draw(NODES, DAYS, seed, load)
            found["published (base)"].append(run(workload, cluster, "spot", seed=seed))
            for name, policy in uses.items():
                for estimator in told:
                    if name != "all three" and estimator != "oracle":
                        continue
                    key = f"{name}, {estimator}"
                    found.setdefault(key, []).append(
                        run(workload, cluster, policy, estimator, seed)
                    )
        base = found["published (base)"]
        record(
            f"spot_knowledge_{round(100 * load)}",
            [row(name, one, base) for name, one in found.items()],
            trace=f"{ORIGIN}, seeds {seeds}",
            spot=f"LP jobs would use {load:.0%} of all GPUs",
            estimates="noisy:S multiplies each run time by a log-normal factor with standard "
            "deviation S of its logarithm; user-mean is the mean of what the same user's jobs of "
            "as many GPUs took, of which each user has one kind, with 0.6 between its runs",
        )


def openb(folder: Path) -> None:
    """Real pods, their classes and their times, on a real list of nodes cut so that it is full."""
    from schedmate.schedulers.fleet.openb import read_nodes

    whole = read_trace(folder / "openb_pod_list_default.csv")
    rows = []
    nodes = [
        Node(one["name"], one["gpus"], one["gpu_type"], one["cpus"], one["memory_mb"])
        for one in read_nodes(folder)
    ]
    found: dict[str, list[Result]] = {}
    for share in (160, 120, 80):
        # Every n-th node, so that GPU types stay; pods that fit none of them are left out.
        kept = tuple(nodes[::share])
        workload = fitting(whole, kept)
        submitted = np.array([job.submit_time for job in workload.jobs])
        window = (float(np.percentile(submitted, 2)), float(submitted.max()))
        cases = {"HP alone": "spot", "random (base)": RANDOM, "published": "spot"}
        found = {}
        for name, policy in cases.items():
            jobs = high_only(workload) if name == "HP alone" else workload
            found[name] = [run(jobs, Cluster(kept), policy, window=window)]
        base = found["random (base)"]
        rows += [
            {"nodes": len(kept), "pods": len(workload), **row(name, one, base)}
            for name, one in found.items()
        ]
    record(
        "spot_openb", rows,
        trace="openb (alibaba gpu-v2023): recorded pods, times and classes (BE is spot); every "
        "n-th of its nodes, as few pods run at once",
        checkpoints="every 1,800 s, an assumption: openb does not say",
    )  # fmt: skip


def fitting(workload: Workload, nodes: Sequence[Node]) -> Workload:
    """The pods for which one of the nodes is large enough."""
    kept = [
        job.index
        for job in workload.jobs
        if any(
            job.gpus <= node.gpus
            and job.gpu_type in ("", node.gpu_type)
            and job.cpus <= node.cpus
            and job.memory_mb <= node.memory_mb
            for node in nodes
        )
    ]
    return workload.select(kept)


BOUND_CASES = 12
STEP_S, ALPHA = 600.0, 0.5


def bound() -> None:
    """Small cases: evictions and kept work of the policy against the best schedule there is."""
    from _spot_optimum import Case, optimal_schedule

    rows, totals = [], np.zeros(4)
    cluster, horizon, every = Cluster.parse("2x4"), 20, 2
    for seed in range(BOUND_CASES):
        draw = np.random.default_rng(seed)
        drawn = []
        for number in range(9):
            low = number < 6
            at = int(draw.integers(0, 3) if low else draw.integers(2, 9))
            gpus = int(draw.choice((1, 2, 4) if low else (2, 4)))
            drawn.append((at, gpus, int(draw.integers(1, 5 if low else 3)), low))
        drawn.sort()
        jobs = [
            Job(
                str(n), n, at * STEP_S, gpus,
                terms=Terms(low, checkpoint_s=every * STEP_S),
            )
            for n, (at, gpus, _, low) in enumerate(drawn)
        ]  # fmt: skip
        workload = Workload(
            "case", jobs, [blocks * every * STEP_S for *_, blocks, _ in drawn], [None] * len(jobs)
        )
        parameters = replace(HONEST, restart_s=0.0, restart_large_s=0.0)
        simulation = Simulation(
            workload, registry.make("spot:grace_s=0"), cluster, parameters=parameters,
            until=horizon * STEP_S,
        )  # fmt: skip
        outcome = simulation.run()
        runs = np.bincount([one.job for one in outcome.segments], minlength=len(jobs))
        evicted = int(np.maximum(runs - 1, 0).sum())
        kept = sum(
            job.gpus * _kept(outcome, job, workload.duration_s[job.index], every * STEP_S)
            for job in jobs
        ) / (cluster.gpus * horizon * STEP_S)
        starts = {
            job.index: round(outcome.first_start[job.index] / STEP_S)
            for job in jobs
            if job.terms is not None and not job.terms.low
        }
        optimum = optimal_schedule(
            Case(
                jobs, [blocks for *_, blocks, _ in drawn], [at for at, *_ in drawn], starts,
                every, horizon,
            ),
            cluster, ALPHA,
        )  # fmt: skip
        totals += (evicted, optimum.evictions, kept, optimum.kept)
        rows.append(
            {
                "case": seed, "evictions": evicted, "optimum": optimum.evictions,
                "kept work": f"{kept:.3f}", "optimum ": f"{optimum.kept:.3f}",
                "objective": f"{evicted / len(jobs) - ALPHA * kept:.3f}",
                "optimum  ": f"{optimum.objective:.3f}",
                "variables": optimum.variables, "CPU s": f"{optimum.cpu_s:.1f}",
            }
        )  # fmt: skip
    rows.append(
        {
            "case": "all", "evictions": int(totals[0]), "optimum": int(totals[1]),
            "kept work": f"{totals[2]:.3f}", "optimum ": f"{totals[3]:.3f}", "objective": "",
            "optimum  ": "", "variables": "", "CPU s": "",
        }
    )  # fmt: skip
    record(
        "spot_bound", rows,
        trace=f"synthetic: 9 jobs on two nodes of four GPUs, {horizon} steps, a checkpoint every "
        f"{every} steps, no grace time, restarts take none",
        program=f"Appendix A with alpha = {ALPHA}, evictions over jobs; it knows all jobs before "
        "and moves them freely, so no online policy can be expected to reach it",
    )  # fmt: skip


def _kept(outcome: Outcome, job: Job, work_s: float, every_s: float) -> float:
    if outcome.end[job.index] < float("inf"):
        return work_s
    done = sum(one.work for one in outcome.segments if one.job == job.index)
    lost = sum(
        one.done - one.kept for one in outcome.ledger.evictions.values() if one.job == job.index
    )
    return (done - lost) // every_s * every_s


def speed() -> None:
    """The engine under spot, with growth."""
    rows = []
    for nodes, days in ((1_000, 4.0), (10_000, 4.0)):
        began = time.process_time()
        workload, cluster = draw(nodes, days, 0, 0.25)
        drawn = time.process_time() - began
        jobs = len(workload)
        began = time.process_time()
        simulation = Simulation(workload, registry.make("spot"), cluster, until=days * DAY)
        outcome = simulation.run()
        took = time.process_time() - began
        began = time.process_time()
        audit(workload, simulation.cluster, outcome)
        rows.append(
            {
                "nodes": f"{nodes:,}", "GPUs": f"{cluster.gpus:,}", "jobs": f"{jobs:,}",
                "pods": f"{sum(max(1, j.gpus // 8) for j in workload.jobs):,}",
                "evictions": sum(job.evictions for job in workload.jobs),
                "simulation CPU s": round(took, 1),
                "audit CPU s": round(time.process_time() - began, 1),
                "draw CPU s": round(drawn, 1),
            }
        )  # fmt: skip
    record("spot_speed", rows, trace="synthetic, seed 0, until the last submission")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["gain"]:
            gain()
        case ["lost"]:
            lost()
        case ["standby"]:
            standby()
        case ["knowledge"]:
            knowledge()
        case ["openb", folder]:
            openb(Path(folder))
        case ["bound"]:
            bound()
        case ["speed"]:
            speed()
        case _:
            sys.exit(__doc__)
