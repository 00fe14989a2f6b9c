"""`schedmate fleet`: finds out why idle GPUs cannot be used, and plans migrations."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from schedmate.base.data import PACKAGE, dumps
from schedmate.base.errors import ABSTAINED, InputError, UsageError, did_you_mean
from schedmate.base.files import write_output
from schedmate.base.inputs import parse_duration
from schedmate.base.terminal import Screen, Table, counted, progress, say
from schedmate.commands.options import JsonOption, ProcessesOption

if TYPE_CHECKING:
    from schedmate.schedulers.fleet.diagnosis import FleetDiagnosis
    from schedmate.schedulers.fleet.plan import Choice
    from schedmate.schedulers.fleet.snapshot import FleetSnapshot
    from schedmate.schedulers.fleet.topology import Allocation, Capacity, ClearedSwitch


DIAGNOSIS_SCHEMA = "schedmate.fleet-diagnosis/v1"


def diagnose(
    snapshot: SnapshotArgument,
    request: Annotated[
        list[str] | None,
        typer.Option(
            "--request",
            "-r",
            metavar="[PODSx]GPUSgCPUSc[GBm][@switch]",
            help=(
                "A job's request: 8g128c, 0.5g4c, or 16x8g96c@switch for pods under one "
                "access switch. Repeatable. Default: those of the ASI paper's figures."
            ),
        ),
    ] = None,
    nodes: Annotated[
        int, typer.Option(min=0, metavar="N", help="How many of the most affected nodes to name.")
    ] = 20,
    report: Annotated[
        Path | None, typer.Option("-o", "--report", metavar="HTML", help="Write a report.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Explain why idle GPUs cannot be allocated.

    Shows the causes for each request. They are disjoint and add up to all idle GPUs: remainders
    of shared GPUs; stranded GPUs, too few together for the request; no CPUs or memory left; not
    under one switch. A GPU with two causes is counted under the first of them.

    Example: schedmate fleet diagnose fleet.json -r 8g128c -o report.html
    """
    from schedmate.schedulers.fleet.diagnosis import DEFAULT_REQUESTS, Request
    from schedmate.schedulers.fleet.diagnosis import diagnose as find

    requests = tuple(map(Request.parse, request)) if request else DEFAULT_REQUESTS
    diagnosis = find(load_snapshot(snapshot), requests)
    document = _diagnosis_document(diagnosis, nodes)
    if report is not None:
        from schedmate.report.fleet import fleet_page

        command = shlex.join(["schedmate", *sys.argv[1:]])
        write_output(report, fleet_page(diagnosis, document, snapshot.name, command))
        say(f"report: {report}")
    if as_json:
        typer.echo(dumps(document, indent=1))
    else:
        _show_diagnosis(diagnosis, document)


def _diagnosis_document(diagnosis: FleetDiagnosis, nodes: int) -> dict[str, Any]:
    return {
        "schema": DIAGNOSIS_SCHEMA,
        **snapshot_facts(diagnosis.snapshot),
        "requests": [
            {
                "request": str(shape.request),
                "fulfilled": shape.fulfilled,
                "fulfilled_by_type": shape.by_type,
                "fulfilled_with_types_mixed": shape.mixed,
                "allocatable_gpus": round(shape.allocatable, 3),
                "unallocatable_gpus": {cause: round(n, 3) for cause, n in shape.lost.items()},
                "unallocatable_by_type": {
                    name: {cause: round(n, 3) for cause, n in lost.items()}
                    for name, lost in shape.lost_by_type.items()
                },
            }
            for shape in diagnosis.shapes
        ],
        "nodes_that_matter": diagnosis.worst_nodes(nodes),
    }


def _show_diagnosis(diagnosis: FleetDiagnosis, document: dict[str, Any]) -> None:
    from schedmate.schedulers.fleet.diagnosis import CAUSES

    screen = Screen(sys.stdout)
    screen.line(
        f"{diagnosis.idle:,.10g} of {counted(diagnosis.snapshot.gpus, 'GPU')} are idle "
        f"({diagnosis.idle / diagnosis.snapshot.gpus:.1%}); {diagnosis.snapshot.origin}"
    )
    columns = ("fulfilled", "allocatable", *CAUSES)
    table = Table("request", *columns, right=columns)
    for shape in diagnosis.shapes:
        lost = (f"{shape.lost[cause]:,.6g}" for cause in CAUSES)
        table.add(shape.request, f"{shape.fulfilled:,}", f"{shape.allocatable:,.6g}", *lost)
    screen.line()
    screen.table(table)
    if document["nodes_that_matter"]:
        screen.line()
        screen.line("Nodes with most idle GPUs that requests cannot use, on average:")
        numbers = ("lost", "idle", "free CPUs", "tasks")
        worst = Table("node", "GPU type", *numbers, "largest cause", right=numbers)
        for node in document["nodes_that_matter"]:
            free = node["free_cpus"]
            worst.add(
                node["node"],
                node["gpu_type"],
                f"{node['unallocatable_gpus']:.2f}",
                f"{node['idle_gpus']:g}",
                "not limited" if free is None else f"{free:g}",
                node["tasks"],
                node["cause"],
            )
        screen.table(worst)


# `schedmate fleet defrag` and `verify`: plans that empty nodes, and the proof that one is safe.


_MOST_FAULTS = 10


def defrag(
    snapshot: SnapshotArgument,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--output", "--out", metavar="FILE", help="Write the plan as JSON."),
    ] = None,
    budget: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Most migrations in the plan.")
    ] = None,
    rounds: Annotated[
        int, typer.Option(min=1, max=100, help="Most rounds; each draws new groups of nodes.")
    ] = 5,
    depth: Annotated[
        int, typer.Option(min=1, max=10, help="Longest ejection chain (K in the ASI paper).")
    ] = 3,
    group: Annotated[int, typer.Option(min=2, metavar="N", help="Nodes per group.")] = 500,
    method: Annotated[
        str,
        typer.Option(
            help="schedmate, which empties most nodes; large-nodes, which empties large ones, for "
            "large jobs; or, to compare: published (Algorithm 1), best-fit (without chains), "
            "random-eviction."
        ),
    ] = "schedmate",
    overlap_s: Annotated[
        float,
        typer.Option(
            min=0,
            max=1e9,
            metavar="SECONDS",
            help="Time for which a moving task holds both nodes.",
        ),
    ] = 300.0,
    worth_h: Annotated[
        float,
        typer.Option(
            min=0,
            max=1e9,
            metavar="HOURS",
            help="Hours for which an emptied node counts as a gain: until the next run.",
        ),
    ] = 24.0,
    remaining: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help=(
                "CSV with columns job (or task) and remaining_s [s], estimated; a node that "
                "will be free soon is not emptied."
            ),
        ),
    ] = None,
    jobs: ProcessesOption = None,
    seed: SeedOption = 0,
    cron_report: Annotated[
        bool,
        typer.Option(
            "--cron-report",
            help="Print only what a plan would gain: one line and Prometheus metrics.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Plan migrations that empty nodes.

    The plan stays safe if any step fails. It is a list of waves; in a wave, each new instance is up
    before the old one stops. A move waits for the moves in its `after`, and is skipped if one of
    them failed. Nodes are emptied while their GPUs are worth more than the moves cost. Only a plan
    that passes `fleet verify` is printed.

    Example: schedmate fleet defrag fleet.json --budget 200 -o plan.json
    """
    from schedmate.schedulers.fleet.plan import plan_document

    fleet = load_snapshot(snapshot)
    if remaining is not None:
        from schedmate.schedulers.fleet.document import read_remaining, with_remaining

        fleet = with_remaining(fleet, read_remaining(remaining), remaining.name)
        estimated = int((fleet.tasks.remaining_s < float("inf")).sum())
        say(
            f"remaining time: {estimated:,} of {counted(len(fleet.tasks), 'task')} have an estimate"
        )
    began = time.monotonic()
    choice = _proved_plan(
        fleet, _options(method, rounds, depth, group, seed), (overlap_s, worth_h), budget, jobs
    )
    document = plan_document(choice, time.monotonic() - began, method, seed)
    if out is not None:
        write_output(out, dumps(document, indent=1) + "\n")
        say(f"plan: {out}")
    if cron_report:
        _print_metrics(document)
    elif as_json:
        typer.echo(dumps(document, indent=1))
    else:
        _show_plan(document)


def verify(
    snapshot: SnapshotArgument,
    plan: Annotated[
        Path, typer.Argument(metavar="PLAN", help="A plan written by `fleet defrag -o`.")
    ],
) -> None:
    """Prove that a plan is safe on a snapshot, or list its faults.

    Run it on a fresh snapshot before a plan is applied: it reports whether every step is still safe
    if the cluster has changed. Exit code 3 if one is not.

    Example: schedmate fleet verify now.json plan.json
    """
    from schedmate.schedulers.fleet.plan import read_plan
    from schedmate.schedulers.fleet.verify import plan_faults

    fleet = load_snapshot(snapshot)
    read = read_plan(plan, fleet)
    wrong = plan_faults(fleet, read.moves, read.emptied)
    if wrong:
        for fault in wrong[:_MOST_FAULTS]:
            say(f"{fault}.")
        changed = "" if read.same_snapshot else ", and the cluster has changed since it was made"
        raise InputError(
            f"{plan} is not safe on {snapshot.name} ({counted(len(wrong), 'fault')}){changed}; "
            "make a new plan with `schedmate fleet defrag`."
        )
    waves = len({move.wave for move in read.moves})
    since = "made from this snapshot" if read.same_snapshot else "although the cluster has changed"
    typer.echo(
        f"safe, {since}: {counted(len(read.moves), 'migration')} in {counted(waves, 'wave')} empty "
        f"{counted(len(read.emptied), 'node')}, whatever fails"
    )


def _options(method: str, rounds: int, depth: int, group: int, seed: int) -> Any:
    from dataclasses import replace

    from schedmate.schedulers.fleet.defrag import METHODS

    if method not in METHODS:
        hint = did_you_mean(method, METHODS) or f"; choose {', '.join(METHODS)}."
        raise UsageError(f"there is no method {method!r}{hint}")
    base = METHODS[method]
    # to have no chains is what makes best-fit best-fit
    rules = base.rules if base.rules.depth == 1 else replace(base.rules, depth=depth)
    return replace(base, rules=rules, rounds=rounds, group=group, seed=seed)


def _proved_plan(
    snapshot: FleetSnapshot,
    options: Any,
    prices: tuple[float, float],
    budget: int | None,
    jobs: int | None,
) -> Choice:
    """The plan of the search, after a proof that each of its steps is safe."""
    from schedmate.schedulers.fleet.defrag import Costs, search_moves
    from schedmate.schedulers.fleet.plan import choose_steps, make_plan, require_safe

    costs = Costs(overlap_s=prices[0], worth_h=prices[1])
    groups = options.rounds * -(-len(snapshot.nodes) // options.group)
    # a process starts more slowly than a small fleet is searched
    processes = jobs or (len(os.sched_getaffinity(0)) if groups > 20 * options.rounds else 1)
    with progress("searching", groups) as advance:
        search = search_moves(snapshot, options, costs, processes=processes, progress=advance)
    choice = choose_steps(make_plan(snapshot, search.moves), costs, budget)
    require_safe(choice.plan)
    return choice


def _show_plan(document: dict[str, Any]) -> None:
    screen = Screen(sys.stdout)
    screen.line(_plan_line(document), "good" if document["emptied"] else None)
    screen.line(
        f"{counted(document['migrations'], 'migration')} in "
        f"{counted(len(document['waves']), 'wave')}; they cost {document['cost_gpu_h']:,.6g} GPU h "
        f"of work and overlap, and the emptied nodes are worth {document['worth_gpu_h']:,.6g}"
    )
    for key, why in (
        ("left_too_dear", "would cost more to empty than they are worth"),
        ("left_over_budget", "are beyond the budget"),
        ("left_ending", "will be free before emptying pays"),
    ):
        if document[key]:
            screen.line(f"{counted(document[key], 'further node')} {why}")
    if document["emptied"]:
        first = ", ".join(document["emptied"][:10])
        more = (
            f" and {len(document['emptied']) - 10:,} more" if len(document["emptied"]) > 10 else ""
        )
        screen.line(f"{first}{more}", label="emptied = ")
    screen.line(
        f"{document['origin']}; {document['method']}, {document['seconds']:.1f} s", label="from = "
    )


def _plan_line(document: dict[str, Any]) -> str:
    slack = document["slack_after"] - document["slack_before"]
    share = f" ({slack / document['slack_before']:+.1%})" if document["slack_before"] else ""
    gpus = counted(document["emptied_gpus"], "GPU")
    emptied = f"{counted(len(document['emptied']), 'node')} with {gpus}"
    return (
        f"{emptied} can be emptied; nodes with slack go from {document['slack_before']:,} to "
        f"{document['slack_after']:,}{share}"
    )


def _print_metrics(document: dict[str, Any]) -> None:
    """Print a plan's figures as metrics for node_exporter's textfile collector."""
    metrics = {
        "emptied_nodes": (len(document["emptied"]), "nodes that a plan would empty"),
        "emptied_gpus": (document["emptied_gpus"], "GPUs of these nodes"),
        "migrations": (document["migrations"], "migrations that this takes"),
        "waves": (len(document["waves"]), "waves of migrations"),
        "slack_nodes_before": (document["slack_before"], "nodes not fully occupied now"),
        "slack_nodes_after": (document["slack_after"], "nodes not fully occupied after the plan"),
        "cost_gpu_hours": (document["cost_gpu_h"], "work done again and overlap"),
        "search_seconds": (document["seconds"], "time that planning took"),
    }
    lines = [f"# {_plan_line(document)}; {counted(document['migrations'], 'migration')}"]
    for key, (value, about) in metrics.items():
        name = f"schedmate_fleet_{key}"
        lines += [f"# HELP {name} {about}", f"# TYPE {name} gauge", f"{name} {value}"]
    typer.echo("\n".join(lines))


# `schedmate fleet place`: where to put large jobs.


PLACEMENT_SCHEMA = "schedmate.fleet-placement/v1"


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
        bool, typer.Option("--published", help="Algorithm 2 as the paper prints it.")
    ] = False,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Place large jobs under as few access switches as possible.

    For one job the entropy over switches (Equation 1 of the ASI paper) is minimal. Several jobs
    are also tried in other orders than largest first. Exit code 4 if a job finds no room.

    Example: schedmate fleet place fleet.json --gpus 256 --gpu-type H20 --cpus-per-gpu 12
    """
    from schedmate.schedulers.fleet import topology

    fleet = load_snapshot(snapshot)
    kind = _type_of(fleet, gpu_type)
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
    rule = topology.under_one_switch if within_switch else topology.fewest
    if published and not within_switch:
        rule = topology.published
    room = topology.capacity(fleet, kind, *needs)
    placed = topology.allocate_in_best_order(gpus, room.room, rule, seed)
    cleared = None
    if migrate is not None and not placed[0].parts:
        cleared = _clear_switch(fleet, room, gpus[0], needs, kind, seed, migrate)
        if cleared is not None:
            room = topology.Capacity(room.of_node.copy(), room.domain, room.room)
            for n, count in cleared.gpus.items():
                room.of_node[n] = count
            placed = [topology.Allocation(gpus[0], {cleared.switch: gpus[0]})]
    document = _placement_document(fleet, room, placed, cleared)
    if as_json:
        typer.echo(dumps(document, indent=1))
    else:
        _show_placement(document, kind)
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


def _clear_switch(
    snapshot: FleetSnapshot,
    room: Capacity,
    gpus: int,
    needs: tuple[int, int, int],
    kind: str | None,
    seed: int,
    out: Path,
) -> ClearedSwitch | None:
    import time

    from schedmate.schedulers.fleet.plan import Choice, plan_document, require_safe
    from schedmate.schedulers.fleet.topology import clear_switch

    began = time.monotonic()
    clearing = clear_switch(snapshot, room, gpus, needs, kind, seed=seed)
    if clearing is None:
        return None
    require_safe(clearing.plan)
    document = plan_document(
        Choice(clearing.plan, clearing.cost_gpu_h, 0.0, 0, 0),
        time.monotonic() - began,
        "clearing",
        seed,
    )
    write_output(out, dumps(document, indent=1) + "\n")
    say(f"plan: {out}")
    return clearing


def _placement_document(
    snapshot: FleetSnapshot, room: Capacity, placed: list[Allocation], cleared: ClearedSwitch | None
) -> dict[str, Any]:
    import numpy as np

    from schedmate.schedulers.fleet.topology import on_nodes

    names = snapshot.nodes.name
    taken = np.zeros(len(names), dtype=np.int64)
    jobs = []
    for allocation in placed:
        nodes = on_nodes(room, allocation.parts, taken)
        jobs.append(
            {
                "gpus": allocation.gpus,
                "placed": bool(allocation.parts),
                "entropy": round(allocation.entropy, 9),
                "switches": {
                    _switch(snapshot, s): count
                    for s, count in sorted(allocation.parts.items(), key=lambda part: -part[1])
                },
                "nodes": {names[n]: count for n, count in nodes.items()},
            }
        )
    document: dict[str, Any] = {
        "schema": PLACEMENT_SCHEMA,
        **snapshot_facts(snapshot),
        "jobs": jobs,
    }
    document["usable_gpus"] = sum(room.room.values())
    document["largest_switch_gpus"] = max(room.room.values(), default=0)
    left = Counter(room.room)
    for allocation in placed:
        left.subtract(allocation.parts)
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


def _show_placement(document: dict[str, Any], kind: str | None) -> None:
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


# `schedmate fleet synthesize`, `convert` and `check`: snapshots of clusters.


SnapshotArgument = Annotated[
    Path,
    typer.Argument(
        metavar="SNAPSHOT",
        help="JSON, JSON lines or Parquet of schedmate.fleet/v1; `kubectl get nodes,pods -A -o "
        "json`; or a folder of exports of kubectl or scontrol.",
    ),
]
SeedOption = Annotated[int, typer.Option(min=0, help="Random seed.")]
_OutOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "--out",
        "-o",
        metavar="FILE",
        help=".json, .jsonl or .parquet; default: JSON to standard output.",
    ),
]


def load_snapshot(path: Path) -> FleetSnapshot:
    """The snapshot at a path, with what its reader noticed said on standard error."""
    from schedmate.cluster.exports import read_snapshot

    snapshot = read_snapshot(path)
    for note in snapshot.notes:
        say(f"note: {path.name}: {note}.")
    return snapshot


def snapshot_facts(snapshot: FleetSnapshot) -> dict[str, Any]:
    """The facts about a snapshot that every JSON document on it states."""
    return {
        "origin": snapshot.origin,
        "snapshot": snapshot.hash,
        "nodes": len(snapshot.nodes),
        "gpus": snapshot.gpus,
        "tasks": len(snapshot.tasks),
        "idle_gpus": round(snapshot.idle_gpus, 3),
    }


def synthesize(
    out: _OutOption = None,
    nodes: Annotated[
        int | None, typer.Option(metavar="N", help="Nodes; default: the published 37,707.")
    ] = None,
    seed: SeedOption = 0,
    sources: Annotated[
        bool, typer.Option("--sources", help="Print the source of each number, and exit.")
    ] = False,
) -> None:
    """Draw a fleet by the published statistics of ASI.

    ASI is Alibaba's cluster: 37,707 nodes, 155,410 GPUs of 12 types, 32 to 64 nodes per switch,
    40 % of GPU tasks locked. Values that are not published are guesses, which --sources lists.

    Example: schedmate fleet synthesize --nodes 2000 -o fleet.json
    """
    from schedmate.schedulers.fleet.document import write_snapshot
    from schedmate.schedulers.fleet.synthesize import calibration
    from schedmate.schedulers.fleet.synthesize import synthesize as draw

    if sources:
        typer.echo((PACKAGE / "schedulers" / "fleet" / "asi.yaml").read_text("utf-8"), nl=False)
        return
    size = nodes or int(calibration()["published"]["nodes"]["value"])
    with progress("drawing", size) as advance:
        snapshot = draw(nodes, seed, advance)
    write_snapshot(snapshot, out)
    _say_written(snapshot, out)


def convert(
    snapshot: SnapshotArgument,
    out: _OutOption = None,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="For Alibaba's trace openb: the moment since its start, such as 120d.",
        ),
    ] = None,
    fill: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="For openb: draw pods until they ask for this share of all GPUs.",
        ),
    ] = None,
    placement: Annotated[
        str,
        typer.Option(
            help="For openb, which does not record nodes: place pods by best-fit or at random."
        ),
    ] = "best-fit",
    seed: SeedOption = 0,
) -> None:
    """Write a snapshot in schedmate's own format.

    Example: schedmate fleet convert exports/ -o fleet.parquet
    """
    from schedmate.schedulers.fleet import openb
    from schedmate.schedulers.fleet.document import write_snapshot

    if at is None and fill is None:
        fleet = load_snapshot(snapshot)
    else:
        if at is not None and fill is not None:
            raise UsageError("--at is a moment of the trace, --fill draws from all of it; use one.")
        if placement not in ("best-fit", "random"):
            raise UsageError(f"--placement {placement!r}: choose best-fit or random.")
        if fill is not None and not 0 < fill <= 10:
            raise UsageError(f"--fill {fill:g}: a share of all GPUs, as 0.9.")
        fleet = openb.read_openb(
            snapshot,
            at_s=None if at is None else parse_duration(at),
            filled=fill or 1.0,
            placement=placement,
            seed=seed,
        )
        for note in fleet.notes:
            say(f"note: {note}.")
    write_snapshot(fleet, out)
    _say_written(fleet, out)


def check(snapshot: SnapshotArgument, as_json: JsonOption = False) -> None:
    """Check that a snapshot is consistent and summarize it.

    Example: schedmate fleet check fleet.json
    """
    fleet = load_snapshot(snapshot)
    types = _by_type(fleet)
    if as_json:
        document = {"schema": "schedmate.fleet-check/v1", **snapshot_facts(fleet)}
        document |= {"locked_tasks": int(fleet.tasks.locked.sum()), "slack_nodes": fleet.slack()}
        document |= {"switches": len(fleet.switches), "by_type": types, "notes": fleet.notes}
        typer.echo(dumps(document, indent=1))
        return
    screen = Screen(sys.stdout)
    locked = int(fleet.tasks.locked.sum())
    screen.line(
        f"{counted(len(fleet.nodes), 'node')}, {counted(fleet.gpus, 'GPU')} under "
        f"{len(fleet.switches):,} switches, "
        f"{counted(len(fleet.tasks), 'task')} of {counted(len(fleet.jobs), 'job')}; "
        f"{locked:,} tasks are locked"
    )
    screen.line(fleet.origin, label="origin = ")
    screen.line(fleet.hash, label="snapshot = ")
    columns = ("nodes", "GPUs", "idle GPUs", "slack nodes", "free CPUs")
    table = Table("GPU type", *columns, right=columns)
    for name, row in types.items():
        table.add(
            name or "none",
            f"{row['nodes']:,}",
            f"{row['gpus']:,}",
            f"{row['idle_gpus']:,.10g}",
            f"{row['slack_nodes']:,}",
            "" if row["free_cpus_share"] is None else f"{row['free_cpus_share']:.0%}",
        )
    screen.line()
    screen.table(table)


def _by_type(snapshot: FleetSnapshot) -> dict[str, dict[str, Any]]:
    from schedmate.schedulers.fleet.snapshot import MILLI, UNLIMITED

    nodes, held_by_jobs = snapshot.nodes, snapshot.gpus_held
    partly = (held_by_jobs > 0) & (held_by_jobs < nodes.gpus * MILLI)
    by_type = {}
    for code, name in enumerate(snapshot.gpu_types):
        mine = nodes.gpu_type == code
        with_cpus = mine & (nodes.cpus < UNLIMITED) & (nodes.cpus > 0)
        gpus = int(nodes.gpus[mine].sum())
        free = (
            snapshot.cpus_free[with_cpus].sum() / nodes.cpus[with_cpus].sum()
            if with_cpus.any()
            else None
        )
        by_type[name] = {
            "nodes": int(mine.sum()),
            "gpus": gpus,
            "idle_gpus": round(gpus - int(held_by_jobs[mine].sum()) / MILLI, 3),
            "slack_nodes": int(partly[mine].sum()),
            "free_cpus_share": None if free is None else round(float(free), 4),
        }
    return by_type


def _say_written(snapshot: FleetSnapshot, out: Path | None) -> None:
    if out is not None:
        say(
            f"{counted(len(snapshot.nodes), 'node')} and {counted(len(snapshot.tasks), 'task')} "
            f"written to {out}; {snapshot.origin}"
        )


# `schedmate fleet`: clusters that are full yet idle; the group of the commands above.


app = typer.Typer(
    no_args_is_help=True,
    help="Find out why idle GPUs cannot be used, and plan migrations.",
    epilog="After Alibaba's ASI (OSDI'26); docs/fleet.md explains the terms.",
)
for command in (check, convert, diagnose, defrag, verify, place, synthesize):
    app.command()(command)
