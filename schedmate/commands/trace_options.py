"""What every command that reads a trace has in common: its options, and reading it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from schedmate.errors import UsageError
from schedmate.terminal import counted, say

if TYPE_CHECKING:
    from schedmate.schedulers.sim.workload import Workload

TraceArgument = Annotated[
    Path, typer.Argument(metavar="TRACE", help="CSV, Parquet or sacct file of jobs.")
]
MapOption = Annotated[
    str | None,
    typer.Option(
        "--map",
        metavar="FIELD=COLUMN,...",
        help=(
            "Columns of a trace of unknown format: submit=t0,duration=len:h,gpus=n; units "
            "of time are s, m, h or d."
        ),
    ),
]
SkipBadOption = Annotated[
    bool, typer.Option("--skip-bad", help="Skip bad rows instead of refusing the trace.")
]
OriginOption = Annotated[
    str | None,
    typer.Option(
        metavar="recorded|synthetic:WHAT",
        help=(
            "Origin of the jobs, if the trace does not state it: recorded on a cluster, "
            "or synthetic, such as 'synthetic: durations scaled'."
        ),
    ),
]
OutOption = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        metavar="FILE",
        help="CSV or .parquet file. Default: CSV to standard output.",
    ),
]
WorkloadsOption = Annotated[
    str | None,
    typer.Option(
        metavar="RECIPE[:SETTING=V,...]",
        help=(
            "Add synthetic workloads to the jobs: lucid:recurrence=0.8,spread=0.3,seed=1. "
            "Recipes: lucid, schedmate, or a YAML file."
        ),
    ),
]


def load(
    trace: Path,
    columns: str | None,
    skip_bad: bool,
    workloads: str | None = None,
    tables: Path | None = None,
    origin: str | None = None,
) -> Workload:
    """The workload in a file, with what the reader noticed said on standard error.

    With `workloads`, its jobs are given types by that recipe.
    """
    from schedmate.scale.objects import local
    from schedmate.schedulers.sim.traces import read_trace

    recipe = None
    if workloads is not None:
        from schedmate.schedulers.sim.traces.assign import assign
        from schedmate.schedulers.sim.traces.recipe import parse

        recipe = parse(workloads)
    mapping = None
    if columns is not None:
        pairs = [part.partition("=") for part in columns.split(",")]
        if not all(field.strip() and column.strip() for field, _, column in pairs):
            raise UsageError(f"--map {columns!r}: write FIELD=COLUMN,FIELD=COLUMN.")
        mapping = {field.strip(): column.strip() for field, _, column in pairs}
    with local(trace) as path:
        workload = read_trace(
            path, columns=mapping, skip_bad=skip_bad, tables=tables, origin=origin
        )
    if tables is not None and workload.tables is None:
        raise UsageError(
            f"--tables is for workloads of elastic jobs, and {trace} is not one; leave it out."
        )
    if recipe is not None:
        workload = assign(workload, *recipe)
    for note in workload.notes:
        say(f"note: {trace.name}: {note}.")
    return workload


def origin_of(workload: Workload) -> dict[str, Any]:
    """What every document about a trace says of where its jobs come from."""
    return {
        "origin": workload.origin,
        "synthetic": workload.synthetic,
        "made_up": list(workload.made_up),
    }


def say_written(workload: Workload, out: Path | None) -> None:
    """Say what was written to a file, and that it is synthetic if it is."""
    if out is not None:
        label = f", synthetic: {'; '.join(workload.made_up)}" * workload.synthetic
        say(f"{counted(len(workload), 'job')} written to {out}{label}")
