"""`schedmate simulate`: compares scheduling policies on a trace of jobs."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from schedmate.base.data import dumps
from schedmate.base.errors import UsageError, did_you_mean, installing
from schedmate.base.files import write_output
from schedmate.base.inputs import parse_duration
from schedmate.base.terminal import Screen, progress, say
from schedmate.commands import options

if TYPE_CHECKING:
    from schedmate.schedulers.model import Cluster
    from schedmate.schedulers.sim.parameters import Parameters
    from schedmate.schedulers.sim.workload import Workload


SCHEMA = "schedmate.simulate/v1"


def simulate(
    trace: options.TraceArgument,
    policy: Annotated[
        str,
        typer.Option(
            metavar="P[,P...]",
            autocompletion=options.complete_policies,
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
            autocompletion=options.complete_estimators,
            help=(
                "Where policies get run times from: user-mean (the default), limit, experts, "
                "qssf, boosting, ga2m, column:NAME, none, noisy:SIGMA, oracle. Repeatable."
            ),
        ),
    ] = None,
    mode: Annotated[
        str,
        typer.Option(
            metavar="MODE",
            help=(
                "honest: every policy pays all costs and backfills. published: as in Lucid's "
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
    start_delays: StartDelaysOption = None,
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
            "--output",
            "--out",
            "-o",
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
    ray: options.RayOption = None,
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
    columns: options.MapOption = None,
    skip_bad: options.SkipBadOption = False,
    origin: options.OriginOption = None,
    workloads: options.WorkloadsOption = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check/--no-check",
            help="Audit each run: no GPU given twice, no job before its submission.",
        ),
    ] = True,
    as_json: options.JsonOption = False,
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
    from schedmate.schedulers.sim.runs import PLACEMENTS, Plan, check_plan
    from schedmate.schedulers.sim.tables import parquet_is_there

    if cross_switch is not None and switch_nodes is None:
        raise UsageError("--cross-switch needs --switch-nodes: nodes under one access switch.")
    parameters = parameters_of(mode, colocation, node_mtbf, cross_switch, start_delays)
    parts = (name.strip() for name in split_outside_quotes(policy, ","))
    names = tuple(dict.fromkeys(name for name in parts if name))
    latency = None if advisor_latency is None else parse_duration(advisor_latency)
    names = with_settings(names, latency_s=latency, detection_rate=detection_rate)
    rates = changing = None
    if failures is not None:
        from schedmate.schedulers.sim.world import FailureRates

        rates = FailureRates.parse(failures)
    if phases is not None:
        from schedmate.schedulers.sim.world import Phases

        changing = Phases.parse(phases)
    if not names:
        raise UsageError("--policy names none; `schedmate policies` lists them.")
    where = options.Workers(processes, ray)
    where.check(report)
    window = None if gantt is None else window_of(gantt)
    page = report or (None if out is None else out / "report.html")
    if placement not in PLACEMENTS:
        raise UsageError(f"--placement {placement!r}: there are {', '.join(PLACEMENTS)}.")
    plans = [
        Plan(
            names,
            cluster_of(spec, quota, switch_nodes),
            estimator_spec,
            parameters,
            one,
            check,
            spec,
            load_model,
            placement,
            rates,
            changing,
        )
        for spec, estimator_spec, one in product(
            cluster, estimator or ["user-mean"], seeds_of(seed)
        )
    ]
    for plan in plans:
        check_plan(plan)
    workload = options.load_trace(trace, columns, skip_bad, workloads, tables, origin)
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
    document |= options.trace_origin(workload) | {"runs": numbers}
    if seeds := over_seeds(numbers):
        document["over_seeds"] = seeds
    if page is not None:
        from schedmate.report.simulation import Comparison, simulation_page

        command = shlex.join(["schedmate", *sys.argv[1:]])
        whole = Comparison(
            plans, done, document, trace.name, workload.made_up, workload.notes, command
        )
        write_output(page, simulation_page(whole, window))
        say(f"report: {page}")
    if as_json:
        typer.echo(dumps(document, indent=1))
    else:
        from schedmate.report.simulation import show_simulation

        show_simulation(numbers, Screen(sys.stdout))


# From the options of `schedmate simulate` to the simulator's own objects.


LoadOption = Annotated[
    str,
    typer.Option(
        "--load",
        metavar="season|ga2m",
        help="How policies forecast submissions: the last hour and the same hour of past "
        "days, or Lucid's throughput model, fitted every week.",
    ),
]
ColocationOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE|NAME",
        help=(
            "How jobs that share GPUs slow each other down: a CSV of measured pairs; "
            "slices (they take turns); or gavel-v100, gavel-p100, gavel-k80, pairs "
            "measured by Gavel (docs/simulator.md). Default: a curve over utilisation."
        ),
    ),
]
NodeMtbfOption = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Make nodes fail: mean time between failures of one node, such as 264d.",
    ),
]
FailuresOption = Annotated[
    str | None,
    typer.Option(
        metavar="RATES",
        help=(
            "Make jobs fail: gpu_mtbf=2000d,bugs=0.2,user=2h (docs/adapters.md); '' for "
            "the defaults."
        ),
    ),
]
PhasesOption = Annotated[
    str | None,
    typer.Option(
        metavar="SETTINGS",
        help=(
            "Make the GPU use of some jobs rise once: share=0.2,rise=50,latest=0.5 (an "
            "assumption; docs/simulator.md); '' for the defaults."
        ),
    ),
]
PlacementOption = Annotated[
    str,
    typer.Option(
        metavar="best-fit|fgd|fgd-priced",
        autocompletion=options.complete_placements,
        help=(
            "Placement rule: the fullest node; fragmentation gradient descent, which "
            "wastes the fewest GPUs; or that with prices for the remainders of shared "
            "GPUs (docs/fleet.md)."
        ),
    ),
]
QuotaOption = Annotated[
    str | None,
    typer.Option(
        metavar="TENANT=GPUS[,...]",
        help="For policy spot: most GPUs that a tenant's jobs of high priority may hold.",
    ),
]
SwitchNodesOption = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Nodes of one GPU type under each access switch."),
]
CrossSwitchOption = Annotated[
    str | None,
    typer.Option(
        metavar="SETTINGS",
        help="Slow down jobs that span switches: longer=0.27,communication=0.2 "
        "(docs/simulator.md); '' for the defaults. Needs --switch-nodes.",
    ),
]


StartDelaysOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Delay each first start as measured on a cluster: the file of `traces delays`.",
    ),
]


def with_settings(names: tuple[str, ...], **values: float | None) -> tuple[str, ...]:
    """The policies, each with those of the settings `values` that it has.

    Raises `UsageError` for a setting that no policy has.
    """
    from schedmate.schedulers import registry

    for key, value in values.items():
        if value is None:
            continue
        having = [name for name in names if registry.has_setting(name, key)]
        if not having:
            raise UsageError(
                f"none of {', '.join(names)} has {key}; add a policy named +schedmate, such as "
                "lucid+schedmate."
            )
        names = tuple(f"{name}:{key}={value:g}" if name in having else name for name in names)
    return names


def check_quotas(cluster: Cluster, workload: Workload) -> None:
    """Refuse quotas of tenants that the trace does not have: a misspelt one would hold nobody."""
    tenants = {job.terms.tenant for job in workload.jobs if job.terms is not None} - {""}
    for tenant, _ in cluster.quotas:
        if tenant not in tenants:
            shown = ", ".join(sorted(tenants)[:8]) or "none"
            hint = did_you_mean(tenant, sorted(tenants)) or "."
            raise UsageError(f"--quota: no tenant {tenant!r} in the trace; it has {shown}{hint}")


def cluster_of(spec: str, quotas: str | None, switch_nodes: int | None) -> Cluster:
    """The cluster of this specification, with quotas as `ads=64,search=128`, and with its nodes of
    each GPU type under access switches of so many."""
    from dataclasses import replace

    from schedmate.schedulers.model import Cluster

    cluster = Cluster.parse(spec)
    if switch_nodes is not None:
        seen: dict[str, int] = {}
        wired = []
        for node in cluster.nodes:
            before = seen.get(node.gpu_type, 0)
            seen[node.gpu_type] = before + 1
            wired.append(node._replace(switch=f"{node.gpu_type}/{before // switch_nodes}"))
        cluster = replace(cluster, nodes=tuple(wired))
    gpus_by_tenant: dict[str, int] = {}
    for part in filter(None, (quotas or "").split(",")):
        tenant, equals, gpus = part.strip().rpartition("=")
        if not equals or not tenant or not gpus.isdigit():
            raise UsageError(f"--quota {part!r}: write tenants and GPUs as ads=64,search=128.")
        gpus_by_tenant[tenant] = int(gpus)
    return replace(cluster, quotas=tuple(gpus_by_tenant.items()))


def parameters_of(
    mode: str,
    colocation: Path | None,
    node_mtbf: str | None,
    cross_switch: str | None = None,
    start_delays: Path | None = None,
) -> Parameters:
    """The simulator's costs of running, sharing and restarting jobs, by the options."""
    from dataclasses import replace

    from schedmate.schedulers.sim.parameters import ColocationTable, world
    from schedmate.schedulers.sim.world import LEAST_MTBF_S

    parameters = world(mode)
    if colocation is not None:
        from schedmate.schedulers.sim import interference

        if str(colocation) in interference.NAMES:
            table = interference.named(str(colocation))
        else:
            table = ColocationTable.read(colocation, parameters.harmless)
        parameters = replace(parameters, interference=table)
    if node_mtbf is not None:
        mtbf = parse_duration(node_mtbf)
        if mtbf < LEAST_MTBF_S:
            raise UsageError(
                f"--node-mtbf {node_mtbf}: nodes that fail every {LEAST_MTBF_S:g} s or more often "
                "run nothing; write it as 264d."
            )
        parameters = replace(parameters, node_mtbf_s=mtbf)
    if cross_switch is not None:
        from schedmate.schedulers.sim.parameters import Spanning

        parameters = replace(parameters, spanning=Spanning.parse(cross_switch))
    if start_delays is not None:
        from schedmate.schedulers.sim.starts import StartDelays

        parameters = replace(parameters, start_delays=StartDelays.read(start_delays))
    return parameters


def seeds_of(text: str) -> list[int]:
    """The distinct seeds in `0,1,2`."""
    try:
        seeds = [int(part) for part in text.split(",")]
        if min(seeds) < 0:
            raise ValueError
    except ValueError:
        raise UsageError(f"--seed {text!r}: write whole numbers as 0 or 0,1,2.") from None
    return list(dict.fromkeys(seeds))


def window_of(text: str) -> tuple[float, float]:
    """The stretch of time [s] in `3d..3d12h`."""
    start, dots, end = text.partition("..")
    window = (parse_duration(start), parse_duration(end)) if dots else (0.0, 0.0)
    if window[0] >= window[1]:
        raise UsageError(f"--gantt {text!r}: write a stretch of time as 3d..3d12h.")
    return window
