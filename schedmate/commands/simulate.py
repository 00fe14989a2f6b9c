"""`schedmate simulate`: scheduling policies on a trace of jobs, compared."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from schedmate.commands import completing
from schedmate.commands.options import JsonOption
from schedmate.commands.scale_options import RayOption, Where
from schedmate.commands.simulate_options import (
    ColocationOption,
    CrossSwitchOption,
    FailuresOption,
    LoadOption,
    NodeMtbfOption,
    PhasesOption,
    PlacementOption,
    QuotaOption,
    SwitchNodesOption,
    check_quotas,
    cluster_of,
    parameters_of,
    seeds_of,
    window_of,
    with_settings,
)
from schedmate.commands.trace_options import (
    MapOption,
    OriginOption,
    SkipBadOption,
    TraceArgument,
    WorkloadsOption,
    load,
    origin_of,
)
from schedmate.durations import parse_duration
from schedmate.errors import UsageError, installing
from schedmate.files import open_output
from schedmate.plain import dumps
from schedmate.terminal import progress, say

SCHEMA = "schedmate.simulate/v1"


def simulate(
    trace: TraceArgument,
    policy: Annotated[
        str,
        typer.Option(
            metavar="P[,P...]",
            autocompletion=completing.policies,
            help="Policies to compare, with settings such as tiresias:threshold_gpu_s=7200, a "
            "value with a colon or comma in quotes; `schedmate policies` lists them.",
        ),
    ],
    cluster: Annotated[
        list[str],
        typer.Option(
            metavar="SPEC",
            help=(
                "Nodes x GPUs, such as 108x8, or groups, such as 6x4:T4@vision,2x8:A100. "
                "Repeatable."
            ),
        ),
    ],
    estimator: Annotated[
        list[str] | None,
        typer.Option(
            metavar="E",
            autocompletion=completing.estimators,
            help=(
                "Where policies get run times from: user-mean (the default), limit, boosting, "
                "ga2m, column:NAME, none, noisy:SIGMA, oracle. Repeatable."
            ),
        ),
    ] = None,
    mode: Annotated[
        str,
        typer.Option(
            metavar="MODE",
            help=(
                "honest: every policy pays all costs and backfills. published: as the Lucid "
                "simulator. +NAME adds and -NAME removes one of its liberties, such as "
                "honest+free-profiling."
            ),
        ),
    ] = "honest",
    load_model: LoadOption = "season",
    colocation: ColocationOption = None,
    node_mtbf: NodeMtbfOption = None,
    failures: FailuresOption = None,
    phases: PhasesOption = None,
    placement: PlacementOption = "best-fit",
    quota: QuotaOption = None,
    switch_nodes: SwitchNodesOption = None,
    cross_switch: CrossSwitchOption = None,
    advisor_latency: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Time that the advisor of a +schedmate policy takes to answer."
        ),
    ] = None,
    detection_rate: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            metavar="SHARE",
            help="Share of slowed-down pairs that a +schedmate policy can detect.",
        ),
    ] = None,
    seed: Annotated[
        str,
        typer.Option(metavar="S[,S...]", help="Seeds of noise and failures; each makes a run."),
    ] = "0",
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write each run's jobs and segments (CSV, Parquet), summary.json and trace.json "
            "(for Perfetto) and report.html there; runs that are already there are not repeated.",
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the report to this HTML file."),
    ] = None,
    gantt: Annotated[
        str | None,
        typer.Option(
            metavar="FROM..TO",
            help=(
                "Time span of the report's Gantt charts since the first submission, such as "
                "3d..3d12h. Default: around the longest queue."
            ),
        ),
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option(
            "--jobs", min=1, metavar="N", help="Runs at the same time, in processes. Default: 1."
        ),
    ] = None,
    ray: RayOption = None,
    tables: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help=(
                "Measured step times of a workload of elastic jobs, one folder per "
                "application. Default: the folder `traces` beside or above it."
            ),
        ),
    ] = None,
    columns: MapOption = None,
    skip_bad: SkipBadOption = False,
    origin: OriginOption = None,
    workloads: WorkloadsOption = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check/--no-check",
            help="Audit each run: no GPU given twice, no job before its submission.",
        ),
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Compare scheduling policies by simulating a trace of jobs.

    With several clusters, estimators or seeds, every policy runs under every combination of them.

    Examples:

      schedmate simulate jobs.csv --policy fifo,sjf,tiresias --cluster 108x8 --out runs

      schedmate simulate jobs.csv --policy sjf --cluster 64x8 --estimator noisy:1 --seed 0,1,2
    """
    from itertools import product

    from schedmate.schedulers.registry import split_outside_quotes
    from schedmate.schedulers.sim.comparison import compare, over_seeds
    from schedmate.schedulers.sim.options import PLACEMENTS
    from schedmate.schedulers.sim.runs import Plan, check_plan
    from schedmate.schedulers.sim.tables import parquet_is_there

    if cross_switch is not None and switch_nodes is None:
        raise UsageError("--cross-switch needs --switch-nodes: nodes under one access switch.")
    parameters = parameters_of(mode, colocation, node_mtbf, cross_switch)
    parts = (name.strip() for name in split_outside_quotes(policy, ","))
    names = tuple(dict.fromkeys(name for name in parts if name))
    latency = None if advisor_latency is None else parse_duration(advisor_latency)
    names = with_settings(names, latency_s=latency, detection_rate=detection_rate)
    rates = changing = None
    if failures is not None:
        from schedmate.schedulers.sim.world.failures import FailureRates

        rates = FailureRates.parse(failures)
    if phases is not None:
        from schedmate.schedulers.sim.world.phases import Phases

        changing = Phases.parse(phases)
    if not names:
        raise UsageError("--policy names none; `schedmate policies` lists them.")
    where = Where(processes, ray, option="--jobs")
    where.check(report)
    window = None if gantt is None else window_of(gantt)
    page = report or (None if out is None else out / "report.html")
    if placement not in PLACEMENTS:
        raise UsageError(f"--placement {placement!r}: there are {', '.join(PLACEMENTS)}.")
    plans = [
        Plan(
            names,
            cluster_of(spec, quota, switch_nodes),
            told,
            parameters,
            one,
            check,
            spec,
            load_model,
            placement,
            rates,
            changing,
        )
        for spec, told, one in product(cluster, estimator or ["user-mean"], seeds_of(seed))
    ]
    for plan in plans:
        check_plan(plan)
    workload = load(trace, columns, skip_bad, workloads, tables, origin)
    if quota is not None:
        check_quotas(plans[0].cluster, workload)
    if out is not None and not parquet_is_there():
        say(f"note: no Parquet files are written beside the CSV; {installing('parquet')}.")
    with progress("simulating", len(plans) * len(names) * len(workload)) as advance:
        done = list(
            compare(workload, plans, out=out, processes=processes or 1, ray=ray, progress=advance)
        )
    numbers = [result.numbers for result in done]
    document: dict[str, Any] = {"schema": SCHEMA, "trace": trace.name}
    document |= origin_of(workload) | {"runs": numbers}
    if seeds := over_seeds(numbers):
        document["over_seeds"] = seeds
    if page is not None:
        from schedmate.report.simulation import Comparison, simulation_page

        command = shlex.join(["schedmate", *sys.argv[1:]])
        whole = Comparison(
            plans, done, document, trace.name, workload.made_up, workload.notes, command
        )
        with open_output(page) as stream:
            stream.write(simulation_page(whole, window))
        say(f"report: {page}")
    if as_json:
        typer.echo(dumps(document, indent=1))
    else:
        from schedmate.render.simulation import show
        from schedmate.terminal.screen import Screen

        show(numbers, Screen(sys.stdout))
