"""`schedmate traces`: look at traces of jobs, convert, cut and draw them."""

from __future__ import annotations

import math
import sys
from typing import Annotated, Any

import typer

from schedmate.commands.options import JsonOption
from schedmate.commands.trace_options import (
    MapOption,
    OriginOption,
    OutOption,
    SkipBadOption,
    TraceArgument,
    WorkloadsOption,
    load,
    origin_of,
    say_written,
)
from schedmate.commands.traces_synthesize import spot, synthesize
from schedmate.plain import dumps
from schedmate.terminal import say

app = typer.Typer(
    no_args_is_help=True, help="Check, convert, sample and synthesize traces of jobs."
)


@app.command("list")
def list_() -> None:
    """List trace formats, recipes and clusters to synthesize."""
    from schedmate.schedulers.sim.traces import formats
    from schedmate.schedulers.sim.traces.calibration import Calibration, calibrations
    from schedmate.schedulers.sim.traces.recipe import Recipe, recipes
    from schedmate.terminal.screen import Screen

    screen = Screen(sys.stdout)
    for layout in formats():
        screen.line(f"{layout['name']}: {layout['title']} (columns {', '.join(layout['needs'])})")
    for name in recipes():
        screen.line(f"--workloads {name}: {Recipe.read(name).title}")
    for name in calibrations():
        screen.line(f"synthesize {name}: after {Calibration.read(name).title}")


@app.command()
def check(
    trace: TraceArgument,
    columns: MapOption = None,
    skip_bad: SkipBadOption = False,
    origin: OriginOption = None,
    workloads: WorkloadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check every row of a trace and summarize it.

    Example: schedmate traces check jobs.csv
    """
    from schedmate.schedulers.sim.traces.sample import facts

    workload = load(trace, columns, skip_bad, workloads, origin=origin)
    if as_json:
        found = facts(workload).items()
        document: dict[str, Any] = {"schema": "schedmate.trace/v1", "trace": trace.name}
        document |= {name: value if math.isfinite(value) else None for name, value in found}
        document |= {
            **origin_of(workload),
            "columns": list(workload.columns),
            "notes": workload.notes,
        }
        typer.echo(dumps(document, indent=1))
        return
    from schedmate.render.traces import described
    from schedmate.terminal.screen import Screen

    screen = Screen(sys.stdout)
    for name, value in described(workload).items():
        screen.line(value, label=f"{name} = ")
    screen.line(", ".join(workload.columns) or "none", label="number columns = ")
    screen.line("; ".join((workload.origin, *workload.made_up)), label="origin = ")


@app.command()
def convert(
    trace: TraceArgument,
    out: OutOption = None,
    columns: MapOption = None,
    skip_bad: SkipBadOption = False,
    origin: OriginOption = None,
    workloads: WorkloadsOption = None,
) -> None:
    """Write a trace in schedmate's own format, CSV or Parquet.

    Example: schedmate traces convert cluster_log.csv -o venus.csv
    """
    from schedmate.schedulers.sim.traces.writer import require_writer, write_trace

    require_writer(out)
    workload = load(trace, columns, skip_bad, workloads, origin=origin)
    write_trace(workload, out)
    say_written(workload, out)


@app.command()
def sample(
    trace: TraceArgument,
    out: OutOption = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="TIME",
            help="Start of the window since the first submission, such as 7d.",
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="End of the window since the first submission, such as 14d."
        ),
    ] = None,
    vcs: Annotated[
        float | None, typer.Option(metavar="SHARE", help="Keep this share of virtual clusters.")
    ] = None,
    users: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="Keep this share of users, with all their jobs."),
    ] = None,
    max_gpus: Annotated[
        float | None, typer.Option(metavar="N", help="Keep jobs of at most this many GPUs.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(metavar="N", help="Keep this many jobs, drawn at random.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0,
    columns: MapOption = None,
    skip_bad: SkipBadOption = False,
    origin: OriginOption = None,
) -> None:
    """Take a part of a trace by time, users, VCs or at random.

    Jobs are not changed. Prints how the sample differs from the whole trace.

    Example: schedmate traces sample jobs.csv --from 7d --until 14d --users 0.5 -o week.csv
    """
    from schedmate.durations import parse_duration
    from schedmate.render.traces import described
    from schedmate.schedulers.sim.traces.sample import count_of, share_of, up_to, window
    from schedmate.schedulers.sim.traces.writer import require_writer, write_trace

    require_writer(out)
    whole = part = load(trace, columns, skip_bad, origin=origin)
    if since is not None or until is not None:
        end = float("inf") if until is None else parse_duration(until)
        part = window(part, parse_duration(since or "0"), end)
    if vcs is not None:
        part = share_of(part, part.vcs, vcs, seed)
    if users is not None:
        part = share_of(part, [job.user for job in part.jobs], users, seed)
    if max_gpus is not None:
        part = up_to(part, max_gpus)
    if jobs is not None:
        part = count_of(part, jobs, seed)
    write_trace(part, out)
    before, after = described(whole), described(part)
    for name in before:
        if before[name] != after[name]:
            say(f"{name}: {after[name]} (of {before[name]})")
    say_written(part, out)


app.command()(synthesize)
app.command()(spot)
