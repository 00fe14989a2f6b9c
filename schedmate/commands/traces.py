"""`schedmate traces`: checks, converts, samples and synthesizes traces of jobs."""

from __future__ import annotations

import math
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from schedmate.base.data import dumps
from schedmate.base.errors import UsageError
from schedmate.base.files import write_output
from schedmate.base.inputs import parse_duration
from schedmate.base.terminal import Screen, say
from schedmate.commands import options


def synthesize(
    calibration: Annotated[
        str,
        typer.Argument(
            metavar="CLUSTER", help="venus, saturn, seren, kalos, philly, pai, or a YAML file."
        ),
    ],
    out: options.OutOption = None,
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
    from schedmate.report.traces import show_matches
    from schedmate.schedulers.sim.traces.assign import assign
    from schedmate.schedulers.sim.traces.recipe import Calibration, matches, parse_recipe
    from schedmate.schedulers.sim.traces.synthesize import read_arrivals
    from schedmate.schedulers.sim.traces.synthesize import synthesize as draw
    from schedmate.schedulers.sim.traces.writer import require_writer, write_trace

    require_writer(out)
    if as_json and out is None:
        raise UsageError("--json says how well the trace matches; name a file for it with --out.")
    statistics = Calibration.read(calibration)
    recipe = None
    if workloads != "none":
        recipe = parse_recipe(workloads or f"{statistics.assumed['recipe']}:seed={seed}")
    series = None
    if arrivals is not None:
        file, _, column = arrivals.rpartition(":")
        place = Path(arrivals) if Path(arrivals).exists() or not file else Path(file)
        series = read_arrivals(place, column if place == Path(file) else "submit_gpu_job")
    workload = draw(statistics, jobs, seed, series)
    if recipe is not None:
        workload = assign(workload, *recipe)
    write_trace(workload, out)
    rows = matches(workload, statistics)
    if as_json:
        document = {
            "schema": "schedmate.synthesize/v1",
            **options.trace_origin(workload),
            "notes": workload.notes,
            "jobs": len(workload),
            "cluster": statistics.cluster,
            "targets": [
                {"target": row.target, "published": row.published, "drawn": row.drawn}
                for row in rows
            ],
        }
        typer.echo(dumps(document, indent=1))
    else:
        show_matches(rows, statistics, Screen(sys.stderr if out is None else sys.stdout))
    for note in workload.notes:
        say(f"note: {note}.")
    options.say_trace_written(workload, out)


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
    out: options.OutOption = None,
    show_sources: Annotated[
        bool,
        typer.Option("--sources", help="Print the sentence or figure behind each number."),
    ] = False,
) -> None:
    """Draw jobs of high priority, and spot jobs.

    For `simulate --policy spot`, after the paper on Alibaba's ASI (OSDI'26). Its figures have few
    numbers, so many values are guesses; see --sources.

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
    options.say_trace_written(workload, out)
    counts: dict[tuple[int, str], int] = {}
    for node in cluster.nodes:
        counts[node.gpus, node.gpu_type] = counts.get((node.gpus, node.gpu_type), 0) + 1
    groups = ",".join(f"{count}x{gpus}:{kind}" for (gpus, kind), count in counts.items())
    quotas = ",".join(f"{tenant}={gpus}" for tenant, gpus in cluster.quotas)
    say(f"simulate with --policy spot --cluster {groups} --quota {quotas}")


def serve(
    requests: Annotated[
        Path,
        typer.Argument(metavar="REQUESTS", help="Azure's CSV or Mooncake's JSON lines, also .gz."),
    ],
    prefill: Annotated[
        float, typer.Option(min=1e-6, metavar="N", help="Prompt tokens a second of one replica.")
    ],
    decode: Annotated[
        float,
        typer.Option(min=1e-6, metavar="N", help="Tokens that one replica generates a second."),
    ],
    beside: Annotated[
        Path | None,
        typer.Option(metavar="TRACE", help="Jobs that may borrow the GPUs, as low priority."),
    ] = None,
    gpus: Annotated[int, typer.Option(min=1, max=10_000, help="GPUs of a replica.")] = 8,
    replicas: Annotated[
        int | None,
        typer.Option(min=1, max=100_000, help="Default: as many as the load ever needs."),
    ] = None,
    period: Annotated[
        str, typer.Option(metavar="TIME", help="Time between two decisions of the autoscaler.")
    ] = "1m",
    hold: Annotated[
        int, typer.Option(min=1, max=10_000, help="Periods until an idle replica lends its GPUs.")
    ] = 5,
    headroom: Annotated[
        float, typer.Option(min=0, max=100, help="Replicas beyond the load, as a share.")
    ] = 0.2,
    stretch: Annotated[
        float,
        typer.Option(min=0.001, max=10_000, help="Factor on all times: 24 makes an hour a day."),
    ] = 1.0,
    repeat: Annotated[
        int, typer.Option(min=1, max=1000, help="How often the load is repeated.")
    ] = 1,
    scale: Annotated[float, typer.Option(min=0.001, max=1e6, help="Factor on the load.")] = 1.0,
    out: options.OutOption = None,
) -> None:
    """Turn requests to a service into replicas that lend idle GPUs.

    For `simulate --policy spot`: replicas are jobs of high priority, whose GPUs an autoscaler lends
    while the load does not need them, and calls back. The load is of real requests; what a replica
    serves is what you state.

    Example: schedmate traces serve conv.csv.gz --prefill 8000 --decode 1500 --stretch 24 --repeat 7
    --beside jobs.csv -o both.csv
    """
    from schedmate.schedulers.sim.traces.serving import (
        Service,
        plan_replicas,
        read_requests,
        serving_workload,
    )
    from schedmate.schedulers.sim.traces.writer import require_writer, write_trace

    require_writer(out)
    seconds = parse_duration(period)
    if seconds < 1:
        raise UsageError(f"--period {period}: give at least 1 s.")
    service = Service(
        *(gpus, prefill, decode, seconds, hold, headroom),
        stretch=stretch,
        repeat=repeat,
        scale=scale,
    )
    plan = plan_replicas(read_requests(requests), service, replicas)
    training = None if beside is None else options.load_trace(beside, None, False, None)
    workload = serving_workload(plan, service, requests.name.split(".")[0], training)
    write_trace(workload, out)
    options.say_trace_written(workload, out)
    lent = 1 - sum(plan.active) / len(plan.active) / plan.replicas
    say(
        f"{plan.replicas} replicas for a load of {sum(plan.load) / len(plan.load):.2f} on average "
        f"and {max(plan.load):.2f} at most; {lent:.0%} of their time is lent; {plan.late:.2%} of "
        "the load came before enough of them were called back"
    )


# `schedmate traces`: look at traces of jobs, convert, cut and draw them.


app = typer.Typer(
    no_args_is_help=True, help="Check, convert, sample and synthesize traces of jobs."
)


@app.command("list")
def list_() -> None:
    """List trace formats, recipes and clusters to synthesize."""
    from schedmate.schedulers.sim.traces import formats
    from schedmate.schedulers.sim.traces.recipe import Calibration, Recipe, calibrations, recipes

    screen = Screen(sys.stdout)
    for layout in formats():
        screen.line(f"{layout['name']}: {layout['title']} (columns {', '.join(layout['needs'])})")
    for name in recipes():
        screen.line(f"--workloads {name}: {Recipe.read(name).title}")
    for name in calibrations():
        screen.line(f"synthesize {name}: after {Calibration.read(name).title}")


@app.command()
def check(
    trace: options.TraceArgument,
    columns: options.MapOption = None,
    skip_bad: options.SkipBadOption = False,
    origin: options.OriginOption = None,
    workloads: options.WorkloadsOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Check every row of a trace and summarize it.

    Example: schedmate traces check jobs.csv
    """
    from schedmate.schedulers.sim.traces.writer import trace_facts

    workload = options.load_trace(trace, columns, skip_bad, workloads, origin=origin)
    if as_json:
        facts = trace_facts(workload).items()
        document: dict[str, Any] = {"schema": "schedmate.trace/v1", "trace": trace.name}
        document |= {name: value if math.isfinite(value) else None for name, value in facts}
        document |= {
            **options.trace_origin(workload),
            "columns": list(workload.columns),
            "notes": workload.notes,
        }
        typer.echo(dumps(document, indent=1))
        return
    from schedmate.report.traces import described

    screen = Screen(sys.stdout)
    for name, value in described(workload).items():
        screen.line(value, label=f"{name} = ")
    screen.line(", ".join(workload.columns) or "none", label="number columns = ")
    screen.line("; ".join((workload.origin, *workload.made_up)), label="origin = ")


@app.command()
def convert(
    trace: options.TraceArgument,
    out: options.OutOption = None,
    columns: options.MapOption = None,
    skip_bad: options.SkipBadOption = False,
    origin: options.OriginOption = None,
    workloads: options.WorkloadsOption = None,
) -> None:
    """Write a trace in schedmate's own format, CSV or Parquet.

    Example: schedmate traces convert cluster_log.csv -o venus.csv
    """
    from schedmate.schedulers.sim.traces.writer import require_writer, write_trace

    require_writer(out)
    workload = options.load_trace(trace, columns, skip_bad, workloads, origin=origin)
    write_trace(workload, out)
    options.say_trace_written(workload, out)


@app.command()
def sample(
    trace: options.TraceArgument,
    out: options.OutOption = None,
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
    columns: options.MapOption = None,
    skip_bad: options.SkipBadOption = False,
    origin: options.OriginOption = None,
) -> None:
    """Take a part of a trace by time, users or at random.

    Jobs are not changed. Prints how the sample differs from the whole trace.

    Example: schedmate traces sample jobs.csv --from 7d --until 14d --users 0.5 -o week.csv
    """
    from schedmate.report.traces import described
    from schedmate.schedulers.sim.traces.writer import (
        cut_to_gpus,
        cut_window,
        draw_jobs,
        draw_share,
        require_writer,
        write_trace,
    )

    require_writer(out)
    whole = part = options.load_trace(trace, columns, skip_bad, origin=origin)
    if since is not None or until is not None:
        end = float("inf") if until is None else parse_duration(until)
        part = cut_window(part, parse_duration(since or "0"), end)
    if vcs is not None:
        part = draw_share(part, part.vcs, vcs, seed)
    if users is not None:
        part = draw_share(part, [job.user for job in part.jobs], users, seed)
    if max_gpus is not None:
        part = cut_to_gpus(part, max_gpus)
    if jobs is not None:
        part = draw_jobs(part, jobs, seed)
    write_trace(part, out)
    before, after = described(whole), described(part)
    for name in before:
        if before[name] != after[name]:
            say(f"{name}: {after[name]} (of {before[name]})")
    options.say_trace_written(part, out)


@app.command()
def delays(
    record: Annotated[
        Path,
        typer.Argument(
            metavar="RECORD",
            help="Accounting as for `site-report`, or the directory of a queue of `ray up`.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--output", "--out", "-o", metavar="FILE", help="Default: standard output."),
    ] = None,
) -> None:
    """Measure how long jobs take to start.

    The file is for `simulate --start-delays`. A queue of `schedmate ray` states for each run when
    it was decided and when it began; runners that were kept and new ones are apart. Of accounting
    count the jobs that came to free GPUs of their partition with no job waiting; jobs of 1 and of
    up to 8 GPUs are apart.

    Example: schedmate traces delays /var/lib/schedmate/ray -o delays.json
    """
    from schedmate.schedulers.sim.starts import (
        Recorded,
        StartDelays,
        samples_of,
        samples_of_queue,
    )

    if record.is_dir():
        from schedmate.cluster.ray.store import QUEUE_FILE, Store

        if not (record / QUEUE_FILE).is_file():
            raise UsageError(
                f"{record} has no {QUEUE_FILE}; name the --state of `schedmate ray up`."
            )
        with Store(record / QUEUE_FILE) as store:
            samples = samples_of_queue(store.begun())
    else:
        from schedmate.commands.site import open_jobs
        from schedmate.retrieval.sacct import ImportReport

        with ExitStack() as stack:
            jobs, _ = open_jobs(stack, record, None, ImportReport())
            samples = samples_of(
                [
                    Recorded(job.partition or "", job.submit, job.start, job.end, size)
                    for job in jobs
                    if job.submit is not None
                    and job.start is not None
                    and job.end is not None
                    and (size := job.gpus or job.cpus or job.nodes)
                ]
            )
    found = StartDelays.fit(samples, record.name)
    write_output(out, found.model_dump_json(by_alias=True, indent=1) + "\n")
    whole = found.groups[-1]
    half = whole.twentieths_s[len(whole.twentieths_s) // 2]
    say(f"{whole.starts:,} starts, {whole.mean_s:.2f} s on average, half within {half:.2f} s")


app.command()(synthesize)
app.command()(spot)
app.command()(serve)
