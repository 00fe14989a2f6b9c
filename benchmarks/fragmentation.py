"""How much of a full cluster is lost to fragments: placement rules on openb, as FGD (ATC'23) did.

    python benchmarks/fragmentation.py FOLDER          # alibaba gpu-v2023; ten seeds
    python benchmarks/fragmentation.py FOLDER --trial  # seeds 100 to 104: ours was chosen on these
    python benchmarks/fragmentation.py FOLDER --mixes  # ours and FGD: new orders, two other mixes

Recorded nodes with GPUs and recorded pods, those without GPUs too. Pods are shuffled, and resampled
until they ask for 1.3 times all GPUs; they arrive one by one and stay; who finds no room is turned
away. The published numbers are of ten orders (seeds 42 to 51) drawn by the authors' generator,
ours of ten orders drawn by another one.

Rules of the authors, by their sources (hkust-adsl/kubernetes-scheduler-simulator): best fit takes
the node with the least sum of idle processors over 128 and idle GPUs over 8, in
steps of a hundredth, and the fullest GPU on it; of equals the first node by name. Then what the
bundled placements make of the same orders: `fgd` takes the fullest of equals, `fgd-priced` keeps
rests of GPUs for what makes most of them. `schedmate.schedulers.space.Space` knows no pods without
GPUs, so that it runs without them, and so does FGD beside it.

After 100 % a plan of section 3's defragmentation is carried out, and who was turned away comes
again in the same order. Bound: the fewest GPUs onto which the parts of GPUs that have arrived at
100 % can be packed by the linear program, whatever the processors.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from _record import record

from schedmate.schedulers import Allocation, Cluster, Job
from schedmate.schedulers.fleet.defrag import METHODS, Costs, search_moves
from schedmate.schedulers.fleet.openb import MARKS, arrivals, cluster_and_pods, fill
from schedmate.schedulers.fleet.plan import choose_steps, make_plan, require_safe
from schedmate.schedulers.fleet.snapshot import Builder, FleetSnapshot
from schedmate.schedulers.fragmentation import (
    EPSILON,
    THOUSANDTHS,
    Choices,
    Floats,
    FragmentationSpace,
    count_parts,
    remainder_values,
)
from schedmate.schedulers.space import Space

SEEDS = tuple(range(42, 52))
TRIAL = tuple(range(100, 105))
PUBLISHED = {
    "random": "14.98, 14.28, 13.70 +- .31, 12.53",
    "best fit": "10.01, 7.18, 7.14 +- .14, 6.92",
    "FGD": "10.02, 5.09, 4.77 +- .10, 4.61",
}
"""Unallocated GPUs [%] at these shares of arrived GPUs: the authors' expected_results."""
Held = list[tuple[Job, Allocation]]


class First(FragmentationSpace):
    """FGD as published: of nodes that cost as little, the first by name."""

    __slots__ = ()

    def _one_of(self, nodes: Any) -> int:
        return int(nodes[0])


class PublishedBestFit(First):
    """The authors' best fit, over processors and GPUs."""

    __slots__ = ()

    def weigh(self, job: Job, choices: Choices) -> Floats:
        """Minus their score; its fraction tells only GPUs of a node apart."""
        idle = choices.cpus / 128 / 2 + choices.after.sum(axis=1) / 8 / 2
        rest = choices.before[np.arange(len(idle)), choices.gpu]
        found: Floats = -np.floor(100 * (1 - idle) + EPSILON) + rest / 1000 * (job.share < 1.0)
        return found

    def _costs(self, job: Job, nodes: int) -> Any:
        known = super()._costs(job, nodes)
        return known._replace(costs=np.floor(known.costs))


class Anywhere(First):
    """Any node that has room."""

    __slots__ = ("draw",)

    def weigh(self, job: Job, choices: Choices) -> Floats:
        """The fullest GPU of each node."""
        rest: Floats = choices.before[np.arange(len(choices.gpu)), choices.gpu]
        return rest

    def _costs(self, job: Job, nodes: int) -> Any:
        known = super()._costs(job, nodes)
        return known._replace(costs=np.where(known.costs < np.inf, 0.0, np.inf))

    def _one_of(self, nodes: Any) -> int:
        return int(self.draw.choice(nodes))


def anywhere(cluster: Cluster, jobs: Sequence[Job], seed: int) -> Anywhere:
    """With a generator of its own."""
    space = Anywhere(cluster, jobs[:1])
    space.draw = np.random.default_rng(seed)
    return space


Make = Callable[[Cluster, Sequence[Job], int], Space]
RULES: dict[str, tuple[Make, bool]] = {
    "random": (anywhere, True),
    "best fit, published": (lambda cluster, jobs, _: PublishedBestFit(cluster, jobs), True),
    "FGD, published": (lambda cluster, jobs, _: First(cluster, jobs), True),
    "fgd": (lambda cluster, jobs, _: FragmentationSpace(cluster, jobs), True),
    "fgd-priced (ours)": (
        lambda cluster, jobs, _: FragmentationSpace(cluster, jobs, priced=True), True,
    ),
    "best-fit": (lambda cluster, *_: Space(cluster), False),
    "best fit, published ": (lambda cluster, jobs, _: PublishedBestFit(cluster, jobs), False),
    "fgd ": (lambda cluster, jobs, _: FragmentationSpace(cluster, jobs), False),
    "fgd-priced (ours) ": (
        lambda cluster, jobs, _: FragmentationSpace(cluster, jobs, priced=True), False,
    ),
}  # fmt: skip
"""How each is made, and whether pods without GPUs come too."""
FOLLOWED = ("fgd", "fgd-priced (ours)")


NEW = tuple(range(200, 210))
STUDENT = 2.262
"""The 97.5 % quantile of Student's t with nine degrees of freedom."""


def mixes(folder: Path) -> None:
    """Unallocated GPUs at 100 % under FGD and ours, on the same ten orders of each mix."""
    cluster, pods = cluster_and_pods(folder)
    parts = [pod for pod in pods if pod.share < 1.0]
    draw = np.random.default_rng(0)
    rows = []
    for mix, chosen in {
        "openb, as recorded": pods,
        "synthetic: each part of a GPU twice": pods + parts,
        "synthetic: parts of one to seven eighths, drawn evenly": [
            replace(pod, share=float(draw.integers(1, 8)) / 8) if pod.share < 1.0 else pod
            for pod in pods
        ],
    }.items():
        found = {
            rule: np.array(
                [arrive(cluster, chosen, RULES[rule][0], seed, rule, None)[2] for seed in NEW]
            )
            for rule in ("FGD, published", "fgd", "fgd-priced (ours)")
        }
        ours = found["fgd-priced (ours)"]
        for rule, values in found.items():
            gain = values - ours
            half = STUDENT * gain.std(ddof=1) / len(NEW) ** 0.5
            cells = {"mix": mix, "rule": rule, "at 100%": f"{values.mean():.2f}"}
            if rule != "fgd-priced (ours)":
                cells["ours is lower by"] = f"{gain.mean():.2f} +- {half:.2f}"
                cells["in orders"] = f"{(gain > 0).sum()} of {len(NEW)}"
            rows.append(cells)
            print(cells, file=sys.stderr, flush=True)
    record(
        "fragmentation_mixes", rows,
        unit="unallocated GPUs [%], and the difference on the same orders with its 95 % interval",
        trace=f"openb (alibaba gpu-v2023), orders of seeds {NEW[0]} to {NEW[-1]}",
    )  # fmt: skip


def main(folder: Path, seeds: Sequence[int], name: str) -> None:
    """Both tables."""
    cluster, pods = cluster_and_pods(folder)
    rows, after = [], []
    for rule, (make, all_pods) in RULES.items():
        began = time.process_time()
        found = []
        for seed in seeds:
            chosen = pods if all_pods else [pod for pod in pods if pod.gpus]
            follow = after if rule in FOLLOWED else None
            found.append(arrive(cluster, chosen, make, seed, rule, follow))
        spent = (time.process_time() - began) / len(seeds)
        means, spread = np.mean(found, axis=0), np.std(found, axis=0, ddof=1)
        cells = {
            f"at {mark:.0%}": f"{mean:.2f} +- {one:.2f}"
            for mark, mean, one in zip(MARKS, means, spread, strict=True)
        }
        rows.append(
            {"rule": rule.strip(), "pods": "all" if all_pods else "with GPUs", **cells}
            | {"CPU s a seed": "" if follow is not None else round(spent, 1)}
        )
        print(rows[-1], file=sys.stderr, flush=True)
    bounds = [bound(cluster, arrivals(pods, cluster, seed)) for seed in seeds]
    rows.append({"rule": "bound", "pods": "all", "at 100%": f"{np.mean(bounds):.2f}"})
    record(
        name, rows,
        trace="openb (alibaba gpu-v2023): recorded nodes and pods, shuffled and resampled "
        f"by seeds {seeds[0]} to {seeds[-1]}, not by the authors' generator",
        unit="unallocated GPUs [%], mean and standard deviation, by GPUs that arrived, of all",
        published="; ".join(f"{one}: {text}" for one, text in PUBLISHED.items()),
    )  # fmt: skip
    record(
        f"{name}_defragmented",
        [_followed(rule, [one for one in after if one["rule"] == rule]) for rule in FOLLOWED],
        trace="the same orders at 100 %, then `fleet defrag --budget 200`, and who was turned away "
        "once more; means over the seeds",
    )


BUDGET = 200


def _followed(rule: str, found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    means = {key: float(np.mean([one[key] for one in found])) for key in found[0] if key != "rule"}
    return {
        "rule": rule,
        "migrations": round(means["migrations"], 1),
        "emptied": round(means["emptied"], 1),
        "turned away": round(means["refused"]),
        "placed then": round(means["placed"], 1),
        "unallocated before": f"{means['before']:.2f}",
        "after": f"{means['after']:.2f}",
        "CPU s": round(means["cpu_s"], 1),
    }


def arrive(
    cluster: Cluster, pods: Sequence[Job], make: Make, seed: int, rule: str,
    follow: list[dict[str, Any]] | None,
) -> list[float]:  # fmt: skip
    """Unallocated GPUs [%] at each mark; `follow` is given what defragmentation does at 100 %."""
    jobs = arrivals(pods, cluster, seed)
    found: list[float] = []
    for state in fill(cluster, jobs, make(cluster, jobs, seed)):
        found.append(state.unallocated)
        if state.mark == 1.0 and follow is not None:
            then = again(cluster, jobs, make, seed, list(state.held), state.refused)
            follow.append({"rule": rule, "refused": len(state.refused), **then})
    return found


def again(
    cluster: Cluster, jobs: Sequence[Job], make: Make, seed: int, held: Held,
    refused: Sequence[Job],
) -> dict[str, float]:  # fmt: skip
    """Defragment, and let those who were turned away come again."""
    began = time.process_time()
    snapshot = snapshot_of(cluster, held)
    moves = search_moves(snapshot, METHODS["schedmate"]).moves
    plan = choose_steps(make_plan(snapshot, moves), Costs(), BUDGET).plan
    require_safe(plan)
    at, device = plan.node_after(), snapshot.tasks.device.copy()
    for step in plan.steps:
        device[step.task] = step.device
    space = make(cluster, jobs, seed)
    allocated = 0.0
    # Parts of GPUs first: whole ones take what these leave.
    for t in sorted(range(len(held)), key=lambda t: held[t][0].share == 1.0):
        job, node = held[t][0], int(at[t])
        free = [bit for bit in range(cluster.nodes[node].gpus) if space.free[node] >> bit & 1]
        mask = 1 << int(device[t]) if job.share < 1.0 else sum(1 << one for one in free[: job.gpus])
        assert space.take(job, ((node, mask),))
        allocated += job.gpus * job.share
    before, placed = allocated, 0
    for job in refused:
        if space.place(job) is not None:
            placed += 1
            allocated += job.gpus * job.share
    return {
        "migrations": len(plan.steps), "emptied": len(plan.emptied), "placed": placed,
        "before": 100 * (1 - before / cluster.gpus), "after": 100 * (1 - allocated / cluster.gpus),
        "cpu_s": time.process_time() - began,
    }  # fmt: skip


def snapshot_of(cluster: Cluster, held: Held) -> FleetSnapshot:
    """Where jobs are, as a snapshot."""
    builder = Builder("openb")
    for node in cluster.nodes:
        builder.node(
            {
                "name": node.name, "gpu_type": node.gpu_type, "gpus": node.gpus,
                "cpus": node.cpus, "memory_mb": node.memory_mb,
            }
        )  # fmt: skip
    for t, (job, ((node, mask),)) in enumerate(held):
        row = {
            "id": f"{job.name}-{t}", "job": job.name, "node": cluster.nodes[node].name,
            "gpus": job.gpus * job.share, "cpus": job.cpus, "memory_mb": job.memory_mb,
            "any_gpu_type": not job.gpu_type,
        }  # fmt: skip
        builder.task(row | ({"device": mask.bit_length() - 1} if job.share < 1.0 else {}))
    return builder.build("synthetic: openb's pods in random order, placed")


def bound(cluster: Cluster, jobs: Sequence[Job]) -> float:
    """GPUs that no packing of the parts that arrived at 100 % can use [%]."""
    arrived, shares = 0.0, []
    for job in jobs:
        arrived += job.gpus * job.share
        shares += [job.share] if job.gpus == 1 else []
        if arrived >= cluster.gpus:
            break
    parts = count_parts(shares)
    prices = remainder_values(parts)
    # By duality the fewest GPUs are what all parts are worth.
    gpus = sum(count * prices[part] for part, count in parts.items())
    return (
        100
        * (gpus - sum(part * count for part, count in parts.items()) / THOUSANDTHS)
        / cluster.gpus
    )


if __name__ == "__main__":
    match sys.argv[1:]:
        case [folder]:
            main(Path(folder), SEEDS, "fragmentation")
        case [folder, "--trial"]:
            main(Path(folder), TRIAL, "fragmentation_trial")
        case [folder, "--mixes"]:
            mixes(Path(folder))
        case _:
            sys.exit(__doc__)
