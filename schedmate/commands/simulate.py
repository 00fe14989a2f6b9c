"""`schedmate simulate`: scheduling policies on a trace of jobs, compared."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from schedmate.commands.history_common import JsonOption, tell
from schedmate.durations import parse_duration
from schedmate.errors import UsageError
from schedmate.terminal import clean, progress

if TYPE_CHECKING:
    from schedmate.schedulers.sim.workload import Workload

SCHEMA = "schedmate.simulate/v1"

TraceArgument = Annotated[Path, typer.Argument(metavar="TRACE", help="CSV or sacct file of jobs.")]
MapOption = Annotated[
    str | None,
    typer.Option(
        "--map",
        metavar="FIELD=COLUMN,...",
        help="Columns of a trace of unknown format, as submit=t0,duration=len,gpus=n.",
    ),
]
SkipBadOption = Annotated[
    bool, typer.Option("--skip-bad", help="Leave bad rows out instead of refusing the trace.")
]


def simulate(
    trace: TraceArgument,
    policy: Annotated[
        str,
        typer.Option(
            metavar="P[,P...]",
            help="Policies to compare, with settings as tiresias:threshold_gpu_s=7200; "
            "`schedmate policies` lists them.",
        ),
    ],
    cluster: Annotated[
        str,
        typer.Option(
            metavar="SPEC", help="Nodes x GPUs as 108x8, or groups as 6x4:T4@vision,2x8:A100."
        ),
    ],
    estimator: Annotated[
        str,
        typer.Option(
            metavar="E",
            help="What policies are told of durations: user-mean, limit, boosting, ga2m, "
            "column:NAME, none, noisy:SIGMA, oracle.",
        ),
    ] = "user-mean",
    mode: Annotated[
        str,
        typer.Option(help="honest: everything is paid for; published: as the Lucid simulator."),
    ] = "honest",
    colocation: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="CSV of measured speeds of packed pairs."),
    ] = None,
    node_mtbf: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Let nodes fail: the mean time between failures of one, as 264d.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of noise and failures.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write each policy's jobs.csv, summary.json and trace.json (for Perfetto) there; "
            "runs that are already there are not repeated.",
        ),
    ] = None,
    columns: MapOption = None,
    skip_bad: SkipBadOption = False,
    check: Annotated[
        bool, typer.Option("--check/--no-check", help="Prove that each run could have happened.")
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Simulate scheduling policies on a trace of jobs and compare them.

    Example: schedmate simulate jobs.csv --policy fifo,sjf,tiresias --cluster 108x8
    """
    from dataclasses import replace

    from schedmate.schedulers.model import Cluster
    from schedmate.schedulers.sim.parameters import HARMLESS, MODES, ColocationTable
    from schedmate.schedulers.sim.runs import Plan, run_all

    if mode not in MODES:
        raise UsageError(f"--mode {mode!r} is none of {', '.join(MODES)}.")
    parameters = MODES[mode]
    if colocation is not None:
        harmless = HARMLESS if mode == "published" else frozenset()
        table = ColocationTable.read(colocation, harmless)
        parameters = replace(parameters, interference=table)
    if node_mtbf is not None:
        mtbf = parse_duration(node_mtbf)
        if not mtbf:
            raise UsageError("--node-mtbf 0: nodes that always fail run nothing; write it as 264d.")
        parameters = replace(parameters, node_mtbf_s=mtbf)
    names = tuple(name.strip() for name in policy.split(",") if name.strip())
    if not names:
        raise UsageError("--policy names none; `schedmate policies` lists them.")
    plan = Plan(names, Cluster.parse(cluster), estimator, parameters, seed, check)
    workload = load(trace, columns, skip_bad)
    done: list[dict[str, Any]] = []
    with progress("simulating", len(names) * len(workload)) as advance:

        def told(name: str, submitted: int) -> None:
            advance(len(done) * len(workload) + submitted, name)

        for numbers in run_all(workload, plan, out, told):
            done += [numbers]
    if as_json:
        typer.echo(json.dumps({"schema": SCHEMA, "trace": trace.name, "runs": done}, indent=1))
    else:
        show(done)


def load(trace: Path, columns: str | None, skip_bad: bool) -> Workload:
    """The workload in a file, with what the reader noticed said on standard error."""
    from schedmate.schedulers.sim.traces import read_trace

    mapping = None
    if columns is not None:
        pairs = [part.partition("=") for part in columns.split(",")]
        if not all(field.strip() and column.strip() for field, _, column in pairs):
            raise UsageError(f"--map {columns!r}: write FIELD=COLUMN,FIELD=COLUMN.")
        mapping = {field.strip(): column.strip() for field, _, column in pairs}
    workload = read_trace(trace, columns=mapping, skip_bad=skip_bad)
    for note in workload.notes:
        tell(f"note: {trace.name}: {note}.")
    return workload


def show(runs: list[dict[str, Any]]) -> None:
    """The comparison as a table, the best average JCT first in words."""
    from rich import box
    from rich.table import Table

    from schedmate.terminal import console

    screen = console(sys.stdout)
    best = min(runs, key=lambda run: float(run["avg_jct_h"]))
    screen.print(
        f"{clean(best['policy'])}: average JCT {best['avg_jct_h']:.2f} h over "
        f"{best['jobs']:,} jobs, {best['avg_queue_h']:.2f} h of it waiting",
        soft_wrap=True,
    )
    sources = {run["estimator"]: run["oracle"] for run in runs}
    told = ", ".join(
        clean(name) + " (an oracle: nobody can know it)" * oracle
        for name, oracle in sources.items()
    )
    screen.print(f"durations from {told}; {best['mode']} costs", soft_wrap=True)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("policy", *(title for title, _, _ in _COLUMNS)):
        table.add_column(name, justify="left" if name == "policy" else "right")
    for run in runs:
        table.add_row(
            clean(run["policy"], 60), *(form.format(run[key]) for _, key, form in _COLUMNS)
        )
    screen.print(table)
    for run in runs[1:]:
        mean, low, high = run["jct_less_first_h"]
        screen.print(
            f"{clean(run['policy'], 60)} less {clean(runs[0]['policy'], 60)}, job by job: "
            f"{mean:+.2f} h (95 %: {low:+.2f} to {high:+.2f})",
            soft_wrap=True,
        )


_COLUMNS = (
    ("JCT h", "avg_jct_h", "{:.2f}"),
    ("p99", "p99_jct_h", "{:.1f}"),
    ("queue h", "avg_queue_h", "{:.2f}"),
    ("p99.9", "p999_queue_h", "{:.1f}"),
    ("makespan h", "makespan_h", "{:.0f}"),
    ("in use", "utilisation", "{:.1%}"),
    ("preempted", "preemptions", "{:,}"),
    ("packed", "packed", "{:,}"),
    ("CPU s", "cpu_s", "{:.2f}"),
)
