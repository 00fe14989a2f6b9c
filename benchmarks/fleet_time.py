"""Fleets over time: is a move worth it whose job ends soon, and openb at ten of its moments.

    python benchmarks/fleet_time.py remaining       # estimates of remaining time, synthetic fleets
    python benchmarks/fleet_time.py openb FOLDER    # alibaba gpu-v2023, ten moments of 149 days

`remaining`: fleets of `schedmate fleet synthesize`, to which run times are added, and these are
guesses: jobs of training, development, offline processing and CPUs run for a log-normal time
(median 6 h, standard deviation of the logarithm 1.6) and are met at a random moment of it; services
never end. Plans know nothing of it, the truth, the run time with a log-normal error (standard
deviation 1.0), or the median for everybody; an estimate that a job has outrun is doubled until it
has not, as everywhere in schedmate. Nothing new arrives. Gained: GPU hours within 24 h of GPUs on
nodes without tasks, over those without any move. Cost: work done again, GPUs held twice for 300 s
and 0.01 GPU h a move, of tasks that last so long.

`openb`: the pods that run at each moment are recorded, where they run is not: drawn at random.
"""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from _record import record
from fleet import _rate, moved
from numpy.typing import NDArray
from spot import ratio

from schedmate.schedulers.fleet import openb
from schedmate.schedulers.fleet.defrag import METHODS, Costs, node_ends, search_moves
from schedmate.schedulers.fleet.plan import Plan, choose_steps, make_plan, require_safe
from schedmate.schedulers.fleet.snapshot import FleetSnapshot
from schedmate.schedulers.fleet.synthesize import ORIGIN, synthesize

Floats = NDArray[np.float64]
NODES, SEEDS = 3_000, tuple(range(1, 13))
MEDIAN_S, SIGMA, ERROR = 6 * 3600.0, 1.6, 1.0
TOLD = ("nothing", "the truth", "run times wrong by e^(+-1)", "the median for all")
BUDGETS = (None, 500)


def remaining() -> None:
    """What plans win that know how long tasks will still run."""
    found: dict[tuple[str, int | None], list[dict[str, float]]] = {}
    for seed in SEEDS:
        snapshot = synthesize(NODES, seed=seed)
        ran, total = drawn(snapshot, seed)
        truth = total - ran
        for told in TOLD:
            known = with_times(snapshot, left_s(told, ran, total, seed))
            plan = make_plan(
                known, search_moves(known, replace(METHODS["schedmate"], seed=seed)).moves
            )
            for budget in BUDGETS:
                choice = choose_steps(plan, Costs(), budget)
                require_safe(choice.plan)
                numbers = worth(with_times(snapshot, truth), choice.plan)
                numbers["left to end"] = choice.ending
                found.setdefault((told, budget), []).append(numbers)
    rows = []
    for (told, budget), runs in found.items():
        base = [one["net"] for one in found[TOLD[0], budget]]
        means = {key: float(np.mean([one[key] for one in runs])) for key in runs[0]}
        rows.append(
            {
                "budget": budget or "",
                "estimates": told,
                "migrations": round(means["migrations"]),
                "emptied": round(means["emptied"]),
                "left to end": round(means["left to end"]),
                "gained GPU h": round(means["gained"]),
                "cost GPU h": round(means["cost"]),
                "net GPU h": round(means["net"]),
                "net over that without": ratio([one["net"] for one in runs], base),
            }
        )
    rows.sort(key=lambda row: str(row["budget"]))
    record(
        "fleet_remaining", rows,
        trace=f"{ORIGIN}; {NODES:,} nodes, seeds {SEEDS}; run times are guesses "
        f"(median {MEDIAN_S / 3600:g} h, sigma {SIGMA}), services never end",
        interval="95 %, Student's t over the logarithm by seed",
    )  # fmt: skip


def drawn(snapshot: FleetSnapshot, seed: int) -> tuple[Floats, Floats]:
    """For how long each task has run and will have run, the same for tasks of a job [s]."""
    draw = np.random.default_rng((seed, 7))
    jobs = snapshot.jobs
    # Long jobs are met more often than they come.
    total = np.exp(np.log(MEDIAN_S) + SIGMA**2 + SIGMA * draw.standard_normal(len(jobs)))
    ran = total * draw.random(len(jobs))
    service = np.array(["-online-" in name for name in jobs])
    total[service] = np.inf
    return ran[snapshot.tasks.job], total[snapshot.tasks.job]


def left_s(told: str, ran: Floats, total: Floats, seed: int) -> Floats:
    """What plans are told [s]; that services do not end is known to all but those told nothing."""
    if told == TOLD[0]:
        return np.full(len(ran), np.inf)
    if told == TOLD[1]:
        return total - ran
    draw = np.random.default_rng((seed, 8))
    # Tasks of a job are given the same error.
    values, same = np.unique(ran, return_inverse=True)
    said = np.full(len(ran), MEDIAN_S)
    if told == TOLD[2]:
        said = total * np.exp(ERROR * draw.standard_normal(len(values)))[same]
    finite = np.isfinite(total)
    said = np.where(finite, said, np.inf)
    outrun = finite & (said <= ran)
    said[outrun] *= 2.0 ** np.ceil(np.log2(ran[outrun] / said[outrun]) + 1e-9)
    return said - ran


def with_times(snapshot: FleetSnapshot, left: Floats) -> FleetSnapshot:
    """The snapshot with these remaining times."""
    return replace(snapshot, tasks=replace(snapshot.tasks, remaining_s=np.maximum(left, 0.0)))


def worth(truth: FleetSnapshot, plan: Plan) -> dict[str, float]:
    """What a plan wins by what then happens."""
    costs = Costs()
    horizon, gpus = costs.worth_h * 3600.0, truth.nodes.gpus
    before = node_ends(truth)
    after = node_ends(replace(truth, tasks=replace(truth.tasks, node=plan.node_after())))
    # A node is free when its tasks have been brought up elsewhere.
    touched = np.array(sorted({step.source for step in plan.steps}), np.int64)
    after[touched] = np.maximum(after[touched], costs.overlap_s)
    gained = (gpus * (np.clip(horizon - after, 0, None) - np.clip(horizon - before, 0, None))).sum()
    lasting = truth.tasks.remaining_s > costs.overlap_s
    of_move = np.where(lasting, costs.of_moves(truth), costs.per_move_gpu_h * 3600)
    cost = sum(float(of_move[step.task]) for step in plan.steps)
    return {
        "migrations": len(plan.steps),
        "emptied": len(plan.emptied),
        "gained": float(gained) / 3600,
        "cost": cost / 3600,
        "net": (float(gained) - cost) / 3600,
    }


MOMENTS = tuple(range(13, 149, 15))
"""[days]"""
CUTS = (1, 80)


def moments(folder: Path) -> None:
    """Fragment rates before and after, at moments of the trace."""
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as kept:
        for every in CUTS:
            part = cut(folder, Path(kept), every)
            for day in MOMENTS:
                rows += moment(part, day)
    record(
        "fleet_openb_moments", rows,
        trace="openb (alibaba gpu-v2023): recorded nodes, all of them and every 80th, and the pods "
        "that ran at each moment; where they ran is drawn at random, seed 42",
        fragment_rate="idle GPUs that the request cannot get, over all idle GPUs; 8G: on nodes "
        "with eight",
    )  # fmt: skip


def cut(folder: Path, kept: Path, every: int) -> Path:
    """The trace with every n-th of its nodes."""
    part = kept / str(every)
    part.mkdir()
    head, *nodes = (folder / openb.NODES[0]).read_text().splitlines()
    (part / openb.NODES[0]).write_text("\n".join([head, *nodes[::every]]) + "\n")
    (part / openb.PODS).write_bytes((folder / openb.PODS).read_bytes())
    return part


def moment(folder: Path, day: int) -> list[dict[str, Any]]:
    """A row for each method."""
    rows = []
    snapshot = openb.read_openb(folder, at_s=day * 86400.0, placement="random", seed=42)
    for method, budget in (
        ("schedmate", None), ("large-nodes", None), ("large-nodes", 50), ("published", None),
    ):  # fmt: skip
        began = time.process_time()
        found = search_moves(snapshot, replace(METHODS[method], seed=42))
        plan = choose_steps(make_plan(snapshot, found.moves), Costs(), budget).plan
        took = time.process_time() - began
        require_safe(plan)
        after = moved(snapshot, plan)
        row: dict[str, Any] = {
            "nodes": len(snapshot.nodes),
            "day": day,
            "pods": len(snapshot.tasks),
            "GPUs held": f"{1 - snapshot.idle_gpus / snapshot.gpus:.1%}",
            "method": method,
            "budget": budget or "",
            "migrations": len(plan.steps),
            "emptied": len(plan.emptied),
            "slack": f"{snapshot.slack()} -> {after.slack()}",
        }
        for text in ("8G", "1G"):
            rates = (_rate(one, text) for one in (snapshot, after))
            row[f"fragment rate {text}"] = " -> ".join(f"{r:.3f}" for r in rates)
        rows.append(row | {"CPU s": round(took, 2)})
    return rows


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["remaining"]:
            remaining()
        case ["openb", folder]:
            moments(Path(folder))
        case _:
            sys.exit(__doc__)
