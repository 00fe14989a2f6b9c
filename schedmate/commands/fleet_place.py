"""`schedmate fleet place`: where to put large jobs."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from schedmate.commands.fleet_snapshots import SeedOption, SnapshotArgument, facts, load_snapshot
from schedmate.commands.options import JsonOption
from schedmate.errors import ABSTAINED, InputError, UsageError, did_you_mean
from schedmate.plain import dumps
from schedmate.terminal import counted, say

if TYPE_CHECKING:
    from schedmate.schedulers.fleet.clearing import Cleared
    from schedmate.schedulers.fleet.snapshot import FleetSnapshot
    from schedmate.schedulers.fleet.topology import Allocation, Capacity

SCHEMA = "schedmate.fleet-placement/v1"


def place(
    snapshot: SnapshotArgument,
    gpus: Annotated[
        list[int],
        typer.Option(
            "--gpus", min=1, metavar="N", help="GPUs of a job; repeat it for further jobs."
        ),
    ],
    gpu_type: Annotated[
        str | None,
        typer.Option(
            metavar="TYPE", help="GPU type, such as H20; required if the cluster has several."
        ),
    ] = None,
    cpus_per_gpu: Annotated[
        float,
        typer.Option(min=0, max=1e6, metavar="N", help="CPU cores per GPU."),
    ] = 0.0,
    memory_per_gpu: Annotated[
        float,
        typer.Option(min=0, max=1e6, metavar="GB", help="Host memory per GPU."),
    ] = 0.0,
    pod: Annotated[
        int,
        typer.Option(min=1, metavar="N", help="GPUs per pod; each node gives a multiple of it."),
    ] = 1,
    within_switch: Annotated[
        bool, typer.Option("--within-switch", help="Place each job under one access switch.")
    ] = False,
    migrate: Annotated[
        Path | None,
        typer.Option(
            metavar="PLAN",
            help=(
                "If no switch has room, plan migrations that make room under one, and write "
                "that plan here."
            ),
        ),
    ] = None,
    published: Annotated[
        bool, typer.Option("--published", help="Algorithm 2 as printed, to compare.")
    ] = False,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Place large jobs under as few access switches as possible.

    For one job the entropy over switches (the paper's Equation 1) is minimal. Several jobs are also
    tried in other orders than largest first. Exit code 4 if a job finds no room.

    Example: schedmate fleet place fleet.json --gpus 256 --gpu-type H20 --cpus-per-gpu 12
    """
    from schedmate.schedulers.fleet import topology

    found = load_snapshot(snapshot)
    kind = _type_of(found, gpu_type)
    needs = (round(cpus_per_gpu * 1000), round(memory_per_gpu * 1e6), pod)
    if odd := [size for size in gpus if size % pod]:
        raise UsageError(
            f"--gpus {odd[0]} is not a multiple of --pod {pod}; give one, such as "
            f"{(odd[0] // pod + 1) * pod}."
        )
    if migrate is not None and (not within_switch or len(gpus) > 1):
        raise UsageError(
            "--migrate makes room for one job below one switch; give one --gpus, and "
            "--within-switch."
        )
    rule = topology.within if within_switch else topology.fewest
    if published and not within_switch:
        rule = topology.published
    room = topology.capacity(found, kind, *needs)
    placed = topology.several(gpus, room.room, rule, seed)
    cleared = None
    if migrate is not None and not placed[0].parts:
        cleared = _cleared(found, room, gpus[0], needs, kind, seed, migrate)
        if cleared is not None:
            room = topology.Capacity(room.of_node.copy(), room.domain, room.room)
            for n, count in cleared.gpus.items():
                room.of_node[n] = count
            placed = [topology.Allocation(gpus[0], {cleared.switch: gpus[0]})]
    document = _document(found, room, placed, cleared)
    if as_json:
        typer.echo(dumps(document, indent=1))
    else:
        _show(document, kind)
    if any(not one.parts for one in placed):
        raise typer.Exit(ABSTAINED)


def _type_of(snapshot: FleetSnapshot, gpu_type: str | None) -> str | None:
    types = [name for name in snapshot.gpu_types if name]
    if gpu_type is None:
        with_gpus = {
            snapshot.gpu_types[code] for code in snapshot.nodes.gpu_type[snapshot.nodes.gpus > 0]
        }
        if len(with_gpus) > 1:
            raise UsageError(
                f"--gpu-type: the fleet has {', '.join(sorted(types)[:12])}; choose one, as a job "
                "runs on one type."
            )
        return None
    if gpu_type not in types:
        hint = did_you_mean(gpu_type, types) or f"; it has {', '.join(sorted(types)[:12])}."
        raise InputError(f"the fleet has no GPU type {gpu_type!r}{hint}")
    return gpu_type


def _cleared(
    snapshot: FleetSnapshot,
    room: Capacity,
    gpus: int,
    needs: tuple[int, int, int],
    kind: str | None,
    seed: int,
    out: Path,
) -> Cleared | None:
    import time

    from schedmate.files import open_output
    from schedmate.schedulers.fleet.budget import Choice
    from schedmate.schedulers.fleet.clearing import clear_switch
    from schedmate.schedulers.fleet.plan_document import document, proved

    began = time.monotonic()
    found = clear_switch(snapshot, room, gpus, needs, kind, seed=seed)
    if found is None:
        return None
    proved(found.plan)
    says = document(
        Choice(found.plan, found.cost_gpu_h, 0.0, 0, 0), time.monotonic() - began, "clearing", seed
    )
    with open_output(out) as stream:
        stream.write(dumps(says, indent=1) + "\n")
    say(f"plan: {out}")
    return found


def _document(
    snapshot: FleetSnapshot, room: Capacity, placed: list[Allocation], cleared: Cleared | None
) -> dict[str, Any]:
    import numpy as np

    from schedmate.schedulers.fleet.topology import on_nodes

    names = snapshot.nodes.name
    taken = np.zeros(len(names), dtype=np.int64)
    jobs = []
    for one in placed:
        nodes = on_nodes(room, one.parts, taken)
        jobs.append(
            {
                "gpus": one.gpus,
                "placed": bool(one.parts),
                "entropy": round(one.entropy, 9),
                "switches": {
                    _switch(snapshot, s): count
                    for s, count in sorted(one.parts.items(), key=lambda part: -part[1])
                },
                "nodes": {names[n]: count for n, count in nodes.items()},
            }
        )
    document: dict[str, Any] = {"schema": SCHEMA, **facts(snapshot), "jobs": jobs}
    document["usable_gpus"] = sum(room.room.values())
    document["largest_switch_gpus"] = max(room.room.values(), default=0)
    left = Counter(room.room)
    for one in placed:
        left.subtract(one.parts)
    document["left_gpus"] = sum(max(0, gpus) for gpus in left.values())
    document["largest_switch_left_gpus"] = max(0, *left.values(), 0)
    if cleared is not None:
        document["migrations"] = len(cleared.plan.steps)
        document["waves"] = cleared.plan.waves
        document["cost_gpu_h"] = round(cleared.cost_gpu_h, 3)
    return document


def _switch(snapshot: FleetSnapshot, code: int) -> str:
    count = len(snapshot.switches)
    return snapshot.switches[code] if code < count else snapshot.nodes.name[code - count]


def _show(document: dict[str, Any], kind: str | None) -> None:
    from schedmate.terminal.screen import Screen, Table

    screen = Screen(sys.stdout)
    for job in document["jobs"]:
        what = f"{counted(job['gpus'], 'GPU')} {kind or ''}".strip()
        if not job["placed"]:
            screen.line(
                f"{what}: no room; {document['left_gpus']:,} such GPUs are idle"
                f"{' beside the other jobs' * any(one['placed'] for one in document['jobs'])}, "
                f"{document['largest_switch_left_gpus']:,} of them under one switch",
                "bad",
            )
            continue
        count = len(job["switches"])
        screen.line(
            f"{what}: {counted(len(job['nodes']), 'node')} under "
            f"{count} switch{'es' * (count != 1)}, entropy {job['entropy']:.4g}",
            "good",
        )
        table = Table("switch", "GPUs", right=("GPUs",))
        for name, gpus in job["switches"].items():
            table.add(name, gpus)
        screen.table(table)
    if "migrations" in document:
        screen.line(
            f"after {counted(document['migrations'], 'migration')} in "
            f"{counted(document['waves'], 'wave')} that cost {document['cost_gpu_h']:,.4g} GPU h"
        )
