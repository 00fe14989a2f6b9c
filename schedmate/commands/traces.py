"""`schedmate traces`: look at traces of jobs before simulating."""

from __future__ import annotations

import typer

from schedmate.commands.trace_options import (
    MapOption,
    SkipBadOption,
    TraceArgument,
    WorkloadsOption,
    load,
)
from schedmate.durations import format_duration
from schedmate.terminal import clean

app = typer.Typer(no_args_is_help=True, help="Look at traces of jobs before simulating.")


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
    import statistics

    workload = load(trace, columns, skip_bad, workloads)
    durations, jobs = workload.duration_s, workload.jobs
    span = jobs[-1].submit_time - jobs[0].submit_time
    gpu_h = sum(d * job.gpus for d, job in zip(durations, jobs, strict=True)) / 3600
    facts = {
        "jobs": f"{len(workload):,}",
        "submitted over": format_duration(span),
        "duration": f"median {format_duration(statistics.median(durations))}, "
        f"mean {format_duration(statistics.fmean(durations))}",
        "GPUs": f"1 to {max(job.gpus for job in jobs)}, mean "
        f"{statistics.fmean(job.gpus for job in jobs):.2f}",
        "GPU hours": f"{gpu_h:,.0f}",
        "load": f"{gpu_h * 3600 / span:,.0f} GPUs busy on average while jobs arrive"
        if span
        else "all at once",
        "virtual clusters": f"{len(set(workload.vcs))}",
        "users": f"{len({job.user for job in jobs})}",
        "number columns": ", ".join(workload.columns) or "none",
    }
    for name, value in facts.items():
        typer.echo(f"{name} = {clean(value)}")
