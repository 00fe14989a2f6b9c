"""`schedmate traces synthesize` and `spot`: traces drawn after published statistics."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from schedmate.commands.trace_options import OutOption, origin_of, say_written
from schedmate.errors import UsageError
from schedmate.plain import dumps
from schedmate.terminal import say


def synthesize(
    calibration: Annotated[
        str,
        typer.Argument(
            metavar="CLUSTER", help="venus, saturn, seren, kalos, philly, pai, or a YAML file."
        ),
    ],
    out: OutOption = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Number of jobs; fewer than published cover a shorter time."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0,
    arrivals: Annotated[
        str | None,
        typer.Option(
            metavar="FILE[:COLUMN]",
            help=(
                "CSV with the number of submissions in equal parts of the published time, "
                "instead of the assumed daily pattern. Default column: submit_gpu_job."
            ),
        ),
    ] = None,
    workloads: Annotated[
        str | None,
        typer.Option(
            metavar="RECIPE[:SETTING=V,...]",
            help=(
                "Recipe of synthetic workloads, as in `simulate`; none: no workloads and no "
                "users. Default: the cluster's, with the same seed."
            ),
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the comparison as JSON; needs --out.")
    ] = False,
) -> None:
    """Draw a trace that matches a cluster's published statistics.

    Example: schedmate traces synthesize venus --jobs 20000 -o venus.csv
    """
    from schedmate.render.traces import show_matches
    from schedmate.schedulers.sim.traces.arrivals import read_arrivals
    from schedmate.schedulers.sim.traces.assign import assign
    from schedmate.schedulers.sim.traces.calibration import Calibration, matches
    from schedmate.schedulers.sim.traces.recipe import parse
    from schedmate.schedulers.sim.traces.synthesize import synthesize as draw
    from schedmate.schedulers.sim.traces.writer import require_writer, write_trace
    from schedmate.terminal.screen import Screen

    require_writer(out)
    if as_json and out is None:
        raise UsageError("--json says how well the trace matches; name a file for it with --out.")
    found = Calibration.read(calibration)
    recipe = None
    if workloads != "none":
        recipe = parse(workloads or f"{found.assumed['recipe']}:seed={seed}")
    series = None
    if arrivals is not None:
        file, _, column = arrivals.rpartition(":")
        place = Path(arrivals) if Path(arrivals).exists() or not file else Path(file)
        series = read_arrivals(place, column if place == Path(file) else "submit_gpu_job")
    workload = draw(found, jobs, seed, series)
    if recipe is not None:
        workload = assign(workload, *recipe)
    write_trace(workload, out)
    rows = matches(workload, found)
    if as_json:
        document = {
            "schema": "schedmate.synthesize/v1",
            **origin_of(workload),
            "notes": workload.notes,
            "jobs": len(workload),
            "cluster": found.cluster,
            "targets": [
                {"target": row.target, "published": row.published, "drawn": row.drawn}
                for row in rows
            ],
        }
        typer.echo(dumps(document, indent=1))
    else:
        show_matches(rows, found, Screen(sys.stderr if out is None else sys.stdout))
    for note in workload.notes:
        say(f"note: {note}.")
    say_written(workload, out)


def spot(
    nodes: Annotated[
        int, typer.Option(metavar="N", help="Nodes of eight GPUs for which jobs are drawn.")
    ] = 256,
    days: Annotated[
        float | None, typer.Option(metavar="D", help="Days of submissions. Default: 14.")
    ] = None,
    lp: Annotated[
        float | None,
        typer.Option(min=0, metavar="SHARE", help="Demand of spot jobs, as a share of all GPUs."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0,
    out: OutOption = None,
    show_sources: Annotated[
        bool,
        typer.Option("--sources", help="Print the sentence or figure behind each number."),
    ] = False,
) -> None:
    """Draw jobs of high priority, and spot jobs.

    For `simulate --policy spot`, after the ASI paper. The paper's figures have few numbers, so many
    values are guesses; see --sources.

    Example: schedmate traces spot --nodes 256 -o spot.csv
    """
    from schedmate.schedulers.sim.traces.spot import draw, sources
    from schedmate.schedulers.sim.traces.writer import require_writer, write_trace

    if show_sources:
        for name, value, source in sources():
            typer.echo(f"{name}: {value} ({source})")
        return
    require_writer(out)
    workload, cluster = draw(nodes, days, seed, lp)
    write_trace(workload, out)
    say_written(workload, out)
    counts: dict[tuple[int, str], int] = {}
    for node in cluster.nodes:
        counts[node.gpus, node.gpu_type] = counts.get((node.gpus, node.gpu_type), 0) + 1
    groups = ",".join(f"{count}x{gpus}:{kind}" for (gpus, kind), count in counts.items())
    quotas = ",".join(f"{tenant}={gpus}" for tenant, gpus in cluster.quotas)
    say(f"simulate with --policy spot --cluster {groups} --quota {quotas}")
