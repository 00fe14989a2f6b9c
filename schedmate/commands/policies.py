"""`schedmate policies` and `schedmate traces`: what there is to simulate."""

from __future__ import annotations

import json
import sys

import typer

from schedmate.commands.history_common import JsonOption
from schedmate.commands.simulate import MapOption, SkipBadOption, TraceArgument, load
from schedmate.durations import format_duration
from schedmate.terminal import clean

traces_app = typer.Typer(no_args_is_help=True, help="Look at traces of jobs before simulating.")


def policies(as_json: JsonOption = False) -> None:
    """List the scheduling policies and their settings."""
    from rich import box
    from rich.table import Table

    from schedmate.schedulers import registry
    from schedmate.terminal import console

    rows = []
    for name in registry.names():
        found = registry.policy_class(name)
        rows.append(
            {
                "name": name,
                "what": (found.__doc__ or "").strip().partition("\n")[0],
                "settings": {one.name: one.default for one in registry.parameters(found)},
            }
        )
    if as_json:
        typer.echo(json.dumps({"schema": "schedmate.policies/v1", "policies": rows}, indent=1))
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("policy", "what", "settings"):
        table.add_column(column, overflow="fold")
    for row in rows:
        settings = row["settings"]
        assert isinstance(settings, dict)
        text = ", ".join(f"{key}={value}" for key, value in settings.items())
        table.add_row(clean(row["name"]), clean(row["what"]), clean(text))
    console(sys.stdout).print(table)


@traces_app.command("list")
def list_() -> None:
    """List the trace formats that are recognised, and the columns each needs."""
    from schedmate.schedulers.sim.traces import formats

    for layout in formats():
        typer.echo(f"{layout['name']}: {layout['title']} (columns {', '.join(layout['needs'])})")


@traces_app.command()
def check(trace: TraceArgument, columns: MapOption = None, skip_bad: SkipBadOption = False) -> None:
    """Check every row of a trace, and say what it holds.

    Example: schedmate traces check jobs.csv
    """
    import statistics

    workload = load(trace, columns, skip_bad)
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
