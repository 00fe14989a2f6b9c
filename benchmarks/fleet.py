"""Fleets: how fast they are loaded, diagnosed, defragmented and placed, and how much is won.

    python benchmarks/fleet.py                  # speed and growth, synthetic fleets
    python benchmarks/fleet.py gain             # against what there was, synthetic fleets
    python benchmarks/fleet.py optimum          # against the integer program, 25 nodes
    python benchmarks/fleet.py openb FOLDER     # openb's nodes and pods (alibaba gpu-v2023)
    python benchmarks/fleet.py place            # several jobs, synthetic fleet
    python benchmarks/fleet.py pictures         # those of docs/fleet.md

Every fleet named synthetic is drawn by `schedmate fleet synthesize`; openb's nodes and pods are
recorded, where each pod is was decided here. CPU seconds are those of the process and its children,
wall seconds are of a shared machine. Every plan was proved by the checker.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from _fleet_optimum import most_emptied
from _record import RESULTS, record

from schedmate.cluster.exports import read_snapshot
from schedmate.schedulers.fleet import document, openb, topology
from schedmate.schedulers.fleet.defrag import METHODS, Costs, search_moves
from schedmate.schedulers.fleet.diagnosis import DEFAULT_REQUESTS, Request, diagnose
from schedmate.schedulers.fleet.plan import Plan, choose_steps, make_plan, planned_moves
from schedmate.schedulers.fleet.room import Space
from schedmate.schedulers.fleet.snapshot import FleetSnapshot
from schedmate.schedulers.fleet.synthesize import ORIGIN, synthesize
from schedmate.schedulers.fleet.verify import plan_faults

SIZES = (1_000, 10_000, 37_707)
SEEDS = (0, 1, 2)
HALF_EMPTY = "only its HP tasks and CPU tasks"


def speed() -> None:
    """Each size in a process of its own, so that its memory is its own."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for size in SIZES:
            path = Path(folder) / f"{size}.json"
            document.write_snapshot(synthesize(size, seed=0), path)
            done = subprocess.run(
                [sys.executable, __file__, "one", str(path)],
                capture_output=True, text=True, check=True,
            )  # fmt: skip
            rows.append({"nodes": f"{size:,}", **json.loads(done.stdout)})
    record("fleet_speed", rows, trace=f"{ORIGIN}; seed 0", load="a JSON document")


def one(path: Path) -> dict[str, Any]:
    """Seconds of each step on one snapshot, and the memory it takes."""
    row: dict[str, Any] = {}

    def timed(name: str, work: Callable[[], Any]) -> Any:
        began, wall = _cpu_s(), time.monotonic()
        found = work()
        row[f"{name} CPU s"] = round(_cpu_s() - began, 2)
        row[f"{name} wall s"] = round(time.monotonic() - wall, 2)
        return found

    snapshot = timed("load", lambda: read_snapshot(path))
    row = {"GPUs": snapshot.gpus, "tasks": len(snapshot.tasks), **row}
    row["load MB"] = _peak_mb()
    timed("diagnose", lambda: diagnose(snapshot, DEFAULT_REQUESTS))
    found = timed("defrag, 1 process", lambda: search_moves(snapshot, METHODS["schedmate"]))
    again = timed("2 processes", lambda: search_moves(snapshot, METHODS["schedmate"], processes=2))
    assert found == again
    plan = timed("plan", lambda: choose_steps(make_plan(snapshot, found.moves), Costs()).plan)
    assert timed("proof", lambda: plan_faults(snapshot, planned_moves(plan), plan.emptied)) == []
    timed("place 256", lambda: topology.allocate_in_best_order([256], _room(snapshot).room))
    row["emptied"] = len(plan.emptied)
    row["peak MB"] = _peak_mb()
    return row


def gain() -> None:
    """Emptied nodes, slack nodes, migrations and their cost, by method and seed."""
    rows = []
    cases = ((37_707, "all tasks", SEEDS[:1]), (8_000, "all tasks", SEEDS[1:2]))
    for size, kept, seeds in (*cases, (8_000, HALF_EMPTY, SEEDS)):
        for seed in seeds:
            snapshot = synthesize(size, seed=seed)
            if kept == HALF_EMPTY:
                snapshot = without_spot(snapshot)
            most = volume_bound(snapshot)
            for name in METHODS:
                row = {"nodes": f"{size:,}", "tasks": kept, "seed": seed, "method": name}
                rows.append(row | _gain(snapshot, name, seed) | {"bound by volume": most})
    record(
        "fleet_gain",
        rows,
        trace=ORIGIN,
        bound="by volume: for each GPU type its idle GPUs over the GPUs of a node, less nodes "
        "that are empty already, and at most its nodes without locked tasks",
    )


def _gain(
    snapshot: FleetSnapshot, method: str, seed: int, budget: int | None = None
) -> dict[str, Any]:
    began = _cpu_s()
    found = search_moves(snapshot, replace(METHODS[method], seed=seed))
    took = _cpu_s() - began
    choice = choose_steps(make_plan(snapshot, found.moves), Costs(), budget)
    plan = choice.plan
    assert plan_faults(snapshot, planned_moves(plan), plan.emptied) == []
    before, after = snapshot.slack(), snapshot.slack(plan.node_after())
    return {
        "emptied": len(plan.emptied),
        "GPUs of these": int(snapshot.nodes.gpus[plan.emptied].sum()),
        "slack before": before,
        "after": after,
        "change": f"{after / before - 1:+.1%}" if before else "",
        "migrations": len(plan.steps),
        "waves": plan.waves,
        "cost GPU h": round(choice.cost_gpu_h),
        "CPU s": round(took, 1),
    }


def volume_bound(snapshot: FleetSnapshot) -> int:
    """No migration empties more: GPUs stay in their type, and each node has as many as another."""
    nodes, total = snapshot.nodes, 0
    locked = np.bincount(
        snapshot.tasks.node, weights=snapshot.tasks.locked, minlength=len(nodes)
    ).astype(bool)
    used = snapshot.task_count > 0
    for code in range(len(snapshot.gpu_types)):
        mine = nodes.gpu_type == code
        size = int(nodes.gpus[mine].min())
        idle = (nodes.gpus[mine] * 1000 - snapshot.gpus_held[mine]).sum() // (1000 * size)
        total += min(int(idle) - int((mine & ~used).sum()), int((mine & used & ~locked).sum()))
    return total


def without_spot(snapshot: FleetSnapshot) -> FleetSnapshot:
    """The fleet when its spot tasks with GPUs have gone."""
    tasks = snapshot.tasks
    keep = ~tasks.low_priority | (tasks.gpus == 0)
    columns: dict[str, Any] = {
        one.name: getattr(tasks, one.name)[keep] for one in fields(tasks) if one.name != "name"
    }
    names = [tasks.name[t] for t in np.flatnonzero(keep)]
    return replace(snapshot, tasks=replace(tasks, name=names, **columns))


def optimum(count: int = 10) -> None:
    """Nodes of one type, 25 at a time, beside the best of the integer program."""
    rows = []
    folder = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    for kind in ("all tasks", HALF_EMPTY, *(["openb, 80 % full"] if folder else [])):
        sums = dict.fromkeys(("optimum", "bound", *METHODS), 0.0)
        took, variables, constraints = 0.0, [], []
        draw = np.random.default_rng(0)
        for k in range(count):
            part_of = _twenty_five(kind, k, draw, folder)
            every = np.arange(25)
            space = Space(part_of)
            at = part_of.tasks.node.astype(np.int64)
            device = part_of.tasks.device.astype(np.int64)
            began = time.monotonic()
            best = most_emptied(space.part(every, space.tasks_on(every), at, device), 60.0)
            took += time.monotonic() - began
            variables.append(best.variables)
            constraints.append(best.constraints)
            sums["optimum"] += best.emptied
            sums["bound"] += best.most
            for name, options in METHODS.items():
                plan = make_plan(part_of, search_moves(part_of, replace(options, seed=k)).moves)
                assert plan_faults(part_of, planned_moves(plan), plan.emptied) == []
                sums[name] += len(plan.emptied)
        rows.append(
            {
                "25 nodes of": kind,
                "instances": count,
                "variables": round(float(np.mean(variables))),
                "constraints": round(float(np.mean(constraints))),
                "HiGHS wall s": round(took, 1),
                **{name: round(value, 2) for name, value in sums.items()},
                "of the optimum": f"{sums['schedmate'] / sums['optimum']:.1%}",
            }
        )
    record("fleet_optimum", rows, trace=f"{ORIGIN}; openb: recorded pods, placed at random here",
           counts="emptied nodes over all instances; bound: HiGHS after at most 60 s")  # fmt: skip


def _twenty_five(
    kind: str, seed: int, draw: np.random.Generator, folder: Path | None
) -> FleetSnapshot:
    if kind.startswith("openb"):
        assert folder is not None
        whole = _openb(folder, 0.8, "random", seed)
        pool = np.flatnonzero(whole.nodes.gpus == 8)
    else:
        whole = _fleet(kind)
        sizes = np.bincount(whole.nodes.gpu_type[whole.nodes.gpus == 8])
        code = int(draw.choice(np.flatnonzero(sizes > 60)))
        pool = np.flatnonzero(whole.nodes.gpu_type == code)
    return part(whole, np.sort(draw.permutation(pool)[:25]))


_FLEETS: dict[Any, FleetSnapshot] = {}


def _fleet(kind: str) -> FleetSnapshot:
    if kind not in _FLEETS:
        whole = synthesize(8_000, seed=1)
        _FLEETS[kind] = without_spot(whole) if kind == HALF_EMPTY else whole
    return _FLEETS[kind]


def _openb(folder: Path, filled: float, placement: str, seed: int) -> FleetSnapshot:
    key = (filled, placement, seed % 3)
    if key not in _FLEETS:
        _FLEETS[key] = openb.read_openb(
            folder, filled=filled, placement=placement, seed=seed % 3 + 42
        )
    return _FLEETS[key]


def part(snapshot: FleetSnapshot, nodes: np.ndarray[Any, Any]) -> FleetSnapshot:
    """A snapshot of some nodes."""
    from schedmate.schedulers.fleet.snapshot import Builder

    chosen = {snapshot.nodes.name[n] for n in nodes}
    builder = Builder("part")
    for row in document.node_rows(snapshot):
        if row["name"] in chosen:
            builder.node(row)
    for row in document.task_rows(snapshot):
        if row["node"] in chosen:
            builder.task(row)
    return builder.build(snapshot.origin)


def on_openb(folder: Path) -> None:
    """Recorded nodes and pods, placed here; fragment rates for a whole node of eight GPUs."""
    rows = []
    for filled, placement in ((0.8, "random"),):
        for seed in (42,):
            snapshot = openb.read_openb(folder, filled=filled, placement=placement, seed=seed)
            for method, options in METHODS.items():
                began = time.process_time()
                found = search_moves(snapshot, replace(options, seed=seed))
                took = time.process_time() - began
                whole = make_plan(snapshot, found.moves)
                for budget in (None, 50, 500) if method == "large-nodes" else (None,):
                    plan = choose_steps(whole, Costs(), budget).plan
                    assert plan_faults(snapshot, planned_moves(plan), plan.emptied) == []
                    after = moved(snapshot, plan)
                    row: dict[str, Any] = {
                        "pods ask for": f"{filled:.0%}",
                        "placed": placement,
                        "seed": seed,
                        "method": method,
                        "budget": budget or "",
                        "migrations": len(plan.steps),
                        "emptied": len(plan.emptied),
                        "slack": f"{snapshot.slack()} -> {after.slack()}",
                        "CPU s": round(took, 1),
                    }
                    for text in ("8G", "1G"):
                        rates = (_rate(one, text) for one in (snapshot, after))
                        row[f"fragment rate {text}"] = " -> ".join(f"{r:.3f}" for r in rates)
                    rows.append(row)
    record(
        "fleet_openb",
        rows,
        trace="openb: recorded nodes and pods (alibaba gpu-v2023), pods drawn and placed here",
        fragment_rate="idle GPUs that the request cannot get, over all idle GPUs; 8G: on nodes "
        "with eight",
    )


def _rate(snapshot: FleetSnapshot, text: str) -> float:
    large = snapshot.nodes.gpus >= int(text[0])
    shape = diagnose(snapshot, [Request.parse(text)]).shapes[0]
    idle = (snapshot.nodes.gpus * 1000 - snapshot.gpus_held)[large].sum() / 1000
    return float(shape.node_lost[large].sum() / idle) if idle else 0.0


def moved(snapshot: FleetSnapshot, plan: Plan) -> FleetSnapshot:
    """The snapshot when all of a plan is done."""
    device = snapshot.tasks.device.copy()
    for step in plan.steps:
        device[step.task] = step.device
    tasks = replace(snapshot.tasks, node=plan.node_after().astype(np.int32), device=device)
    return replace(snapshot, tasks=tasks)


def placing() -> None:
    """Jobs of several sizes at once on the synthetic fleet."""
    rows = []
    for seed in SEEDS:
        snapshot = synthesize(8_000, seed=seed)
        room = _room(snapshot).room
        for sizes in ([256], [128] * 4, [256, 128, 128, 64, 64, 32, 32, 32]):
            largest = sorted(sizes, reverse=True)
            methods: dict[str, Callable[[], list[topology.Allocation]]] = {
                "Algorithm 2 as printed": partial(
                    topology.allocate, largest, room, topology.published
                ),
                "largest first, fewest switches": partial(
                    topology.allocate, largest, room, topology.fewest
                ),
                "searched orders": partial(topology.allocate_in_best_order, sizes, room),
            }
            for name, work in methods.items():
                began = time.process_time()
                found = work()
                rows.append(
                    {
                        "seed": seed,
                        "jobs": " ".join(map(str, sizes)),
                        "method": name,
                        "without room": sum(not one.parts for one in found),
                        "switches": sum(len(one.parts) for one in found),
                        "entropy": round(sum(one.entropy for one in found), 4),
                        "CPU s": round(time.process_time() - began, 3),
                    }
                )
    record("fleet_place", rows, trace=ORIGIN, request="H20 GPUs with 12 CPUs each")


def pictures() -> None:
    """Figures 13 and 14 of the synthetic fleet, as files of their own."""
    from _figure import save_bars

    from schedmate.report.fleet import WORDS, figures

    found = diagnose(synthesize(seed=0), DEFAULT_REQUESTS)
    causes, topology_too, _ = figures(found)
    for name, figure in (("causes", causes), ("large_jobs", topology_too)):
        path = RESULTS / f"fleet_{name}.svg"
        save_bars(path, f"{figure.title} (synthetic fleet, seed 0)", figure.chart, WORDS.values())


def _room(snapshot: FleetSnapshot) -> topology.Capacity:
    return topology.capacity(snapshot, "H20", 12_000)


def _cpu_s() -> float:
    sums = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in sums)


def _peak_mb() -> int:
    """Most memory of this program so far; `ru_maxrss` would also count what started it."""
    status = Path("/proc/self/status").read_text().partition("VmHWM:")[2]
    return int(status.split()[0]) // 1024


if __name__ == "__main__":
    what = sys.argv[1] if len(sys.argv) > 1 else "speed"
    if what == "one":
        print(json.dumps(one(Path(sys.argv[2]))))
    elif what == "openb":
        on_openb(Path(sys.argv[2]))
    else:
        {"speed": speed, "gain": gain, "optimum": optimum, "place": placing, "pictures": pictures}[
            what
        ]()
