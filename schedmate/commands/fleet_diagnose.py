"""`schedmate fleet diagnose`: why idle GPUs cannot be had."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from schedmate.commands.fleet_snapshots import SnapshotArgument, facts, load_snapshot
from schedmate.commands.options import JsonOption
from schedmate.plain import dumps
from schedmate.terminal import counted, say

if TYPE_CHECKING:
    from schedmate.schedulers.fleet.diagnosis import Diagnosis

SCHEMA = "schedmate.fleet-diagnosis/v1"


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
                "access switch. Repeatable. Default: those of the paper's Figures 13 and 14."
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
    """Explain why idle GPUs cannot be allocated, by request and cause.

    Causes are disjoint and add up to all idle GPUs: remainders of shared GPUs; stranded GPUs, too
    few together for the request; no CPUs or memory left; not under one switch. A GPU with two
    causes is counted under the first of them.

    Example: schedmate fleet diagnose fleet.json -r 8g128c -o report.html
    """
    from schedmate.schedulers.fleet.diagnosis import diagnose as find
    from schedmate.schedulers.fleet.requests import DEFAULT, Request

    requests = tuple(map(Request.parse, request)) if request else DEFAULT
    found = find(load_snapshot(snapshot), requests)
    document = _document(found, nodes)
    if report is not None:
        from schedmate.files import open_output
        from schedmate.report.fleet import fleet_page

        command = shlex.join(["schedmate", *sys.argv[1:]])
        with open_output(report) as stream:
            stream.write(fleet_page(found, document, snapshot.name, command))
        say(f"report: {report}")
    if as_json:
        typer.echo(dumps(document, indent=1))
    else:
        _show(found, document)


def _document(found: Diagnosis, nodes: int) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        **facts(found.snapshot),
        "requests": [
            {
                "request": str(one.request),
                "fulfilled": one.fulfilled,
                "fulfilled_by_type": one.by_type,
                "fulfilled_with_types_mixed": one.mixed,
                "allocatable_gpus": round(one.allocatable, 3),
                "unallocatable_gpus": {cause: round(n, 3) for cause, n in one.lost.items()},
                "unallocatable_by_type": {
                    name: {cause: round(n, 3) for cause, n in lost.items()}
                    for name, lost in one.lost_by_type.items()
                },
            }
            for one in found.shapes
        ],
        "nodes_that_matter": found.worst_nodes(nodes),
    }


def _show(found: Diagnosis, document: dict[str, Any]) -> None:
    from schedmate.schedulers.fleet.diagnosis import CAUSES
    from schedmate.terminal.screen import Screen, Table

    screen = Screen(sys.stdout)
    screen.line(
        f"{found.idle:,.10g} of {counted(found.snapshot.gpus, 'GPU')} are idle "
        f"({found.idle / found.snapshot.gpus:.1%}); {found.snapshot.origin}"
    )
    columns = ("fulfilled", "allocatable", *CAUSES)
    table = Table("request", *columns, right=columns)
    for one in found.shapes:
        lost = (f"{one.lost[cause]:,.6g}" for cause in CAUSES)
        table.add(one.request, f"{one.fulfilled:,}", f"{one.allocatable:,.6g}", *lost)
    screen.line()
    screen.table(table)
    if document["nodes_that_matter"]:
        screen.line()
        screen.line("Nodes with most idle GPUs that cannot be had, on average over the requests:")
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
