"""`schedmate fleet defrag` and `verify`: plans that empty nodes, and the proof that one is safe."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from schedmate.commands.fleet_snapshots import (
    SeedOption,
    SnapshotArgument,
    load_snapshot,
)
from schedmate.commands.options import JsonOption
from schedmate.errors import InputError, UsageError
from schedmate.plain import dumps
from schedmate.terminal import counted, progress, say

if TYPE_CHECKING:
    from schedmate.schedulers.fleet.budget import Choice
    from schedmate.schedulers.fleet.snapshot import FleetSnapshot

_MOST_FAULTS = 10


def defrag(
    snapshot: SnapshotArgument,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FILE", help="Write the plan as JSON.")
    ] = None,
    budget: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Migrations at most.")
    ] = None,
    rounds: Annotated[
        int, typer.Option(min=1, max=100, help="Rounds at most; each draws new groups.")
    ] = 5,
    depth: Annotated[
        int, typer.Option(min=1, max=10, help="Longest ejection chain (the paper's K).")
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
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", "-j", min=1, metavar="N", help="Processes. Default: all cores."),
    ] = None,
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
    """Plan migrations that empty nodes and stay safe if any step fails.

    A plan is a list of waves; in a wave, each new instance is up before the old one stops. A move
    waits for the moves in its `after`, and is skipped if one of them failed. Nodes are emptied
    while their GPUs are worth more than the moves cost. Only a plan that passes `fleet verify` is
    printed.

    Example: schedmate fleet defrag fleet.json --budget 200 -o plan.json
    """
    from schedmate.files import open_output
    from schedmate.schedulers.fleet.plan_document import document

    found = load_snapshot(snapshot)
    if remaining is not None:
        from schedmate.schedulers.fleet.remaining import read_remaining, with_remaining

        found = with_remaining(found, read_remaining(remaining), remaining.name)
        known = int((found.tasks.remaining_s < float("inf")).sum())
        say(f"remaining time: {known:,} of {counted(len(found.tasks), 'task')} have an estimate")
    began = time.monotonic()
    choice = _planned(
        found, _options(method, rounds, depth, group, seed), (overlap_s, worth_h), budget, jobs
    )
    says = document(choice, time.monotonic() - began, method, seed)
    if out is not None:
        with open_output(out) as stream:
            stream.write(dumps(says, indent=1) + "\n")
        say(f"plan: {out}")
    if cron_report:
        _report(says)
    elif as_json:
        typer.echo(dumps(says, indent=1))
    else:
        _show(says)


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
    from schedmate.schedulers.fleet.plan_document import read_plan
    from schedmate.schedulers.fleet.verify import faults

    found = load_snapshot(snapshot)
    read = read_plan(plan, found)
    wrong = faults(found, read.moves, read.emptied)
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

    from schedmate.errors import did_you_mean
    from schedmate.schedulers.fleet.defrag import METHODS

    if method not in METHODS:
        hint = did_you_mean(method, METHODS) or f"; choose {', '.join(METHODS)}."
        raise UsageError(f"there is no method {method!r}{hint}")
    base = METHODS[method]
    # to have no chains is what makes best-fit best-fit
    rules = base.rules if base.rules.depth == 1 else replace(base.rules, depth=depth)
    return replace(base, rules=rules, rounds=rounds, group=group, seed=seed)


def _planned(
    snapshot: FleetSnapshot,
    options: Any,
    prices: tuple[float, float],
    budget: int | None,
    jobs: int | None,
) -> Choice:
    """The plan, once it is proved."""
    from schedmate.schedulers.fleet.budget import choose
    from schedmate.schedulers.fleet.defrag import Costs, search
    from schedmate.schedulers.fleet.plan import make_plan
    from schedmate.schedulers.fleet.plan_document import proved

    costs = Costs(overlap_s=prices[0], worth_h=prices[1])
    groups = options.rounds * -(-len(snapshot.nodes) // options.group)
    # a process starts more slowly than a small fleet is searched
    processes = jobs or (len(os.sched_getaffinity(0)) if groups > 20 * options.rounds else 1)
    with progress("searching", groups) as advance:
        found = search(snapshot, options, costs, processes=processes, progress=advance)
    choice = choose(make_plan(snapshot, found.moves), costs, budget)
    proved(choice.plan)
    return choice


def _show(says: dict[str, Any]) -> None:
    from schedmate.terminal.screen import Screen

    screen = Screen(sys.stdout)
    screen.line(_line(says), "good" if says["emptied"] else None)
    screen.line(
        f"{counted(says['migrations'], 'migration')} in {counted(len(says['waves']), 'wave')}; "
        f"they cost {says['cost_gpu_h']:,.6g} GPU h of work and overlap, and the emptied nodes are "
        f"worth {says['worth_gpu_h']:,.6g}"
    )
    for key, why in (
        ("left_too_dear", "would cost more to empty than they are worth"),
        ("left_over_budget", "are beyond the budget"),
        ("left_ending", "will be free before emptying pays"),
    ):
        if says[key]:
            screen.line(f"{counted(says[key], 'further node')} {why}")
    if says["emptied"]:
        first = ", ".join(says["emptied"][:10])
        more = f" and {len(says['emptied']) - 10:,} more" if len(says["emptied"]) > 10 else ""
        screen.line(f"{first}{more}", label="emptied = ")
    screen.line(f"{says['origin']}; {says['method']}, {says['seconds']:.1f} s", label="from = ")


def _line(says: dict[str, Any]) -> str:
    slack = says["slack_after"] - says["slack_before"]
    share = f" ({slack / says['slack_before']:+.1%})" if says["slack_before"] else ""
    emptied = f"{counted(len(says['emptied']), 'node')} with {counted(says['emptied_gpus'], 'GPU')}"
    return (
        f"{emptied} can be emptied; nodes with slack go from {says['slack_before']:,} to "
        f"{says['slack_after']:,}{share}"
    )


def _report(says: dict[str, Any]) -> None:
    """One line as a comment, and the metrics of node_exporter's text files."""
    metrics = {
        "emptied_nodes": (len(says["emptied"]), "nodes that a plan would empty"),
        "emptied_gpus": (says["emptied_gpus"], "GPUs of these nodes"),
        "migrations": (says["migrations"], "migrations that this takes"),
        "waves": (len(says["waves"]), "waves of migrations"),
        "slack_nodes_before": (says["slack_before"], "nodes not fully occupied now"),
        "slack_nodes_after": (says["slack_after"], "nodes not fully occupied after the plan"),
        "cost_gpu_hours": (says["cost_gpu_h"], "work done again and overlap"),
        "search_seconds": (says["seconds"], "time that planning took"),
    }
    lines = [f"# {_line(says)}; {counted(says['migrations'], 'migration')}"]
    for key, (value, about) in metrics.items():
        name = f"schedmate_fleet_{key}"
        lines += [f"# HELP {name} {about}", f"# TYPE {name} gauge", f"{name} {value}"]
    typer.echo("\n".join(lines))
