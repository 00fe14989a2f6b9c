"""`schedmate fleet synthesize`, `convert` and `check`: snapshots of clusters."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from schedmate.commands.options import JsonOption
from schedmate.errors import UsageError
from schedmate.plain import dumps
from schedmate.terminal import counted, progress, say

if TYPE_CHECKING:
    from schedmate.schedulers.fleet.snapshot import FleetSnapshot

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
        "--out",
        "-o",
        metavar="FILE",
        help=".json, .jsonl or .parquet; default: JSON to standard output.",
    ),
]


def load_snapshot(path: Path) -> FleetSnapshot:
    """The snapshot at a path, with what its reader noticed said on standard error."""
    from schedmate.schedulers.fleet.readers import read_snapshot

    snapshot = read_snapshot(path)
    for note in snapshot.notes:
        say(f"note: {path.name}: {note}.")
    return snapshot


def facts(snapshot: FleetSnapshot) -> dict[str, Any]:
    """What every document about a snapshot says of it."""
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
    """Draw a fleet that matches the published statistics of Alibaba's ASI.

    37,707 nodes, 155,410 GPUs of 12 types, 32 to 64 nodes per switch, 40 % of GPU tasks locked.
    Values that are not published are guesses, which --sources lists.

    Example: schedmate fleet synthesize --nodes 2000 -o fleet.json
    """
    from schedmate.data import PACKAGE
    from schedmate.schedulers.fleet.document import write
    from schedmate.schedulers.fleet.synthesize import calibration
    from schedmate.schedulers.fleet.synthesize import synthesize as draw

    if sources:
        typer.echo((PACKAGE / "schedulers" / "fleet" / "asi.yaml").read_text("utf-8"), nl=False)
        return
    size = nodes or int(calibration()["published"]["nodes"]["value"])
    with progress("drawing", size) as advance:
        snapshot = draw(nodes, seed, advance)
    write(snapshot, out)
    _written(snapshot, out)


def convert(
    snapshot: SnapshotArgument,
    out: _OutOption = None,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="For openb: the moment since the start of the trace, such as 120d.",
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
    """Write a snapshot in schedmate's own format, from any that can be read.

    Example: schedmate fleet convert exports/ -o fleet.parquet
    """
    from schedmate.durations import parse_duration
    from schedmate.schedulers.fleet.document import write
    from schedmate.schedulers.fleet.readers import openb

    if at is None and fill is None:
        found = load_snapshot(snapshot)
    else:
        if at is not None and fill is not None:
            raise UsageError("--at is a moment of the trace, --fill draws from all of it; use one.")
        if placement not in ("best-fit", "random"):
            raise UsageError(f"--placement {placement!r}: choose best-fit or random.")
        if fill is not None and not 0 < fill <= 10:
            raise UsageError(f"--fill {fill:g}: a share of all GPUs, as 0.9.")
        found = openb.read_snapshot(
            snapshot,
            at_s=None if at is None else parse_duration(at),
            filled=fill or 1.0,
            placement=placement,
            seed=seed,
        )
        for note in found.notes:
            say(f"note: {note}.")
    write(found, out)
    _written(found, out)


def check(snapshot: SnapshotArgument, as_json: JsonOption = False) -> None:
    """Check that a snapshot is consistent and summarize it.

    Example: schedmate fleet check fleet.json
    """
    from schedmate.terminal.screen import Screen, Table

    found = load_snapshot(snapshot)
    types = _by_type(found)
    if as_json:
        document = {"schema": "schedmate.fleet-check/v1", **facts(found)}
        document |= {"locked_tasks": int(found.tasks.locked.sum()), "slack_nodes": found.slack()}
        document |= {"switches": len(found.switches), "by_type": types, "notes": found.notes}
        typer.echo(dumps(document, indent=1))
        return
    screen = Screen(sys.stdout)
    locked = int(found.tasks.locked.sum())
    screen.line(
        f"{counted(len(found.nodes), 'node')}, {counted(found.gpus, 'GPU')} under "
        f"{len(found.switches):,} switches, "
        f"{counted(len(found.tasks), 'task')} of {counted(len(found.jobs), 'job')}; "
        f"{locked:,} tasks are locked"
    )
    screen.line(found.origin, label="origin = ")
    screen.line(found.hash, label="snapshot = ")
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

    nodes, held = snapshot.nodes, snapshot.gpus_held
    partly = (held > 0) & (held < nodes.gpus * MILLI)
    found = {}
    for code, name in enumerate(snapshot.gpu_types):
        mine = nodes.gpu_type == code
        known = mine & (nodes.cpus < UNLIMITED) & (nodes.cpus > 0)
        gpus = int(nodes.gpus[mine].sum())
        free = snapshot.cpus_free[known].sum() / nodes.cpus[known].sum() if known.any() else None
        found[name] = {
            "nodes": int(mine.sum()),
            "gpus": gpus,
            "idle_gpus": round(gpus - int(held[mine].sum()) / MILLI, 3),
            "slack_nodes": int(partly[mine].sum()),
            "free_cpus_share": None if free is None else round(float(free), 4),
        }
    return found


def _written(snapshot: FleetSnapshot, out: Path | None) -> None:
    if out is not None:
        say(
            f"{counted(len(snapshot.nodes), 'node')} and {counted(len(snapshot.tasks), 'task')} "
            f"written to {out}; {snapshot.origin}"
        )
