"""`schedmate traces`: look at traces of jobs, convert and cut them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from schedmate.commands.history_common import tell
from schedmate.commands.trace_options import (
    MapOption,
    SkipBadOption,
    TraceArgument,
    WorkloadsOption,
    load,
)
from schedmate.durations import format_duration
from schedmate.terminal import clean

if TYPE_CHECKING:
    from schedmate.schedulers.sim.workload import Workload

app = typer.Typer(no_args_is_help=True, help="Look at traces of jobs, convert and cut them.")

OutOption = Annotated[
    Path | None,
    typer.Option(
        "--out", "-o", metavar="FILE", help="CSV or .parquet; default: CSV to standard output."
    ),
]


@app.command("list")
def list_() -> None:
    """List the trace formats that are recognised with the columns each needs, and the recipes."""
    from schedmate.schedulers.sim.traces import formats
    from schedmate.schedulers.sim.traces.recipe import Recipe, recipes

    for layout in formats():
        typer.echo(f"{layout['name']}: {layout['title']} (columns {', '.join(layout['needs'])})")
    for name in recipes():
        typer.echo(f"--workloads {name}: {Recipe.read(name).title}")


@app.command()
def check(
    trace: TraceArgument,
    columns: MapOption = None,
    skip_bad: SkipBadOption = False,
    workloads: WorkloadsOption = None,
) -> None:
    """Check every row of a trace, and say what it holds.

    Example: schedmate traces check jobs.csv
    """
    workload = load(trace, columns, skip_bad, workloads)
    for name, value in _said(workload).items():
        typer.echo(f"{name} = {clean(value)}")
    typer.echo(f"number columns = {clean(', '.join(workload.columns) or 'none')}")
    typer.echo(f"made up = {clean('; '.join(workload.made_up) or 'nothing')}")


@app.command()
def convert(
    trace: TraceArgument,
    out: OutOption = None,
    columns: MapOption = None,
    skip_bad: SkipBadOption = False,
    workloads: WorkloadsOption = None,
) -> None:
    """Write a trace in schedmate's own format, as CSV or (by its ending) Parquet.

    Example: schedmate traces convert cluster_log.csv -o venus.csv
    """
    from schedmate.schedulers.sim.traces.writer import write_trace

    workload = load(trace, columns, skip_bad, workloads)
    write_trace(workload, out)
    _written(workload, out)


@app.command()
def sample(
    trace: TraceArgument,
    out: OutOption = None,
    since: Annotated[
        str | None,
        typer.Option("--from", metavar="TIME", help="Since the first submission, as 7d."),
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Since the first submission, as 14d.")
    ] = None,
    vcs: Annotated[
        float | None, typer.Option(metavar="SHARE", help="Keep this share of virtual clusters.")
    ] = None,
    users: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="Keep this share of users, with all their jobs."),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(metavar="N", help="Keep this many jobs, drawn at random.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of what is drawn.")] = 0,
    columns: MapOption = None,
    skip_bad: SkipBadOption = False,
) -> None:
    """Take a part of a trace: a window of time, some users or virtual clusters, some jobs.

    Jobs stay as they are. What the part has more or less of than the whole is said.

    Example: schedmate traces sample jobs.csv --from 7d --until 14d --users 0.5 -o week.csv
    """
    from schedmate.durations import parse_duration
    from schedmate.schedulers.sim.traces.sample import count_of, share_of, window
    from schedmate.schedulers.sim.traces.writer import write_trace

    whole = part = load(trace, columns, skip_bad)
    if since is not None or until is not None:
        end = float("inf") if until is None else parse_duration(until)
        part = window(part, parse_duration(since or "0"), end)
    if vcs is not None:
        part = share_of(part, part.vcs, vcs, seed)
    if users is not None:
        part = share_of(part, [job.user for job in part.jobs], users, seed)
    if jobs is not None:
        part = count_of(part, jobs, seed)
    write_trace(part, out)
    before, after = _said(whole), _said(part)
    for name in before:
        if before[name] != after[name]:
            tell(f"{name}: {after[name]} (of {before[name]})")
    _written(part, out)


def _said(workload: Workload) -> dict[str, str]:
    from schedmate.schedulers.sim.traces.sample import facts

    found = facts(workload)
    return {
        "jobs": f"{found['jobs']:,}",
        "submitted over": format_duration(found["span_s"]),
        "duration": f"median {format_duration(found['median_s'])}, "
        f"mean {format_duration(found['mean_s'])}",
        "GPUs": f"mean {found['mean_gpus']:.2f}, most {found['max_gpus']:g}",
        "GPU hours": f"{found['gpu_h']:,.0f}",
        "load": f"{found['load_gpus']:,.0f} GPUs busy on average while jobs arrive"
        if found["span_s"]
        else "all at once",
        "virtual clusters": f"{found['vcs']}",
        "users": f"{found['users']}",
    }


def _written(workload: Workload, out: Path | None) -> None:
    if out is not None:
        label = f", synthetic: {'; '.join(workload.made_up)}" * workload.synthetic
        tell(f"{len(workload):,} jobs written to {out}{label}")
