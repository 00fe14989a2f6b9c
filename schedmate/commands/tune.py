"""`schedmate tune`: settings of a policy that would have served the recent past best."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from schedmate.commands import completing
from schedmate.commands.options import JsonOption
from schedmate.commands.trace_options import (
    MapOption,
    OriginOption,
    SkipBadOption,
    TraceArgument,
    WorkloadsOption,
    load,
    origin_of,
)
from schedmate.durations import format_duration, parse_duration
from schedmate.errors import UsageError
from schedmate.plain import dumps
from schedmate.terminal import counted, progress

if TYPE_CHECKING:
    from schedmate.schedulers.sim.tuner import Trial

SCHEMA = "schedmate.tune/v1"


def tune(
    trace: TraceArgument,
    policy: Annotated[
        str,
        typer.Option(metavar="P", help="The policy to tune.", autocompletion=completing.one_policy),
    ],
    cluster: Annotated[str, typer.Option(metavar="SPEC", help="As in `simulate`: 108x8.")],
    estimator: Annotated[
        str,
        typer.Option(
            metavar="E",
            help="Where the policy gets run times from, as in `simulate`.",
            autocompletion=completing.estimators,
        ),
    ] = "user-mean",
    at: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help=(
                "Moment of tuning, since the first submission. Default: two thirds of the trace."
            ),
        ),
    ] = None,
    window: Annotated[
        str, typer.Option(metavar="TIME", help="How much of the past to simulate.")
    ] = "30d",
    tries: Annotated[
        list[str] | None,
        typer.Option(
            "--try",
            metavar="NAME=V1,V2",
            help=(
                "Values of a setting to try. Repeatable. Default: a list for each bundled "
                "policy with settings worth tuning."
            ),
        ),
    ] = None,
    metric: Annotated[
        str, typer.Option(help="Metric to minimise, as named by `simulate --json`.")
    ] = "avg_jct_h",
    most: Annotated[int, typer.Option(min=1, help="Simulations at most.")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="Seed of noise and intervals.")] = 0,
    columns: MapOption = None,
    skip_bad: SkipBadOption = False,
    origin: OriginOption = None,
    workloads: WorkloadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find the settings of a policy that suit the recent past.

    Simulates the window up to the moment `--at`. Later jobs are not part of the search; the answer
    also shows the effect of the settings on them.

    Example: schedmate tune jobs.csv --policy lucid --cluster 108x8 --window 30d
    """
    from schedmate.schedulers.model import Cluster
    from schedmate.schedulers.sim.parameters import HONEST
    from schedmate.schedulers.sim.runs import Plan, check_plan
    from schedmate.schedulers.sim.tuner import candidates, compare, search, spelled, split

    plan = Plan((policy,), Cluster.parse(cluster), estimator, HONEST, seed, check=False)
    wanted = candidates(policy) if not tries else dict(map(_parse, tries))
    check_plan(plan)
    workload = load(trace, columns, skip_bad, workloads, origin=origin)
    span = workload.jobs[-1].submit_time - workload.jobs[0].submit_time
    moment = span * 2 / 3 if at is None else parse_duration(at)
    past, later = split(workload, moment, parse_duration(window))
    done: list[Trial] = []
    with progress("tuning", most) as advance:
        for trial in search(past, plan, policy, wanted, metric, most):
            done.append(trial)
            advance(len(done), spelled(policy, trial.settings))
    best = [trial for trial in done if trial.best][-1]
    answer = spelled(policy, best.settings)
    plain, tuned, difference = compare(later, plan, policy, best.settings)
    document = {
        "schema": SCHEMA,
        "trace": trace.name,
        **origin_of(workload),
        "policy": answer,
        "metric": metric,
        "past": {
            "jobs": len(past),
            "default": done[0].value,
            "tuned": best.value,
            "simulations": len(done),
        },
        "later": {
            "jobs": len(later),
            "default": plain.numbers[metric],
            "tuned": tuned.numbers[metric],
            "jct_less_default_h": difference,
        },
        "trials": [
            {"policy": spelled(policy, one.settings), metric: one.value, "best": one.best}
            for one in done
        ],
    }
    if as_json:
        typer.echo(dumps(document, indent=1))
    else:
        _show(document, format_duration(moment))


def _parse(text: str) -> tuple[str, list[Any]]:
    from schedmate.schedulers.registry import split_outside_quotes, unquoted

    start, *more = split_outside_quotes(text, ",")
    name, _, first = start.partition("=")
    listed = [unquoted(value.strip()) for value in (first, *more) if value.strip()]
    if not name.strip() or not listed:
        raise UsageError(f"--try {text!r}: write NAME=V1,V2.")
    return name.strip(), listed


def _show(document: dict[str, Any], moment: str) -> None:
    from schedmate.terminal.screen import Screen, Table

    screen = Screen(sys.stdout)
    past, later, metric = document["past"], document["later"], document["metric"]
    mean, low, high = later["jct_less_default_h"]
    settings, jobs = document["policy"], f"{past['jobs']:,}"
    tried = counted(past["simulations"], "simulation")
    after = f"{later['default']:.3f} with the defaults, {later['tuned']:.3f} tuned"
    lines = [
        f"{settings}: best of {tried} of the {jobs} jobs before {moment}",
        f"there {metric} {past['default']:.3f} with the defaults, {past['tuned']:.3f} tuned",
        f"on the {later['jobs']:,} jobs after it {after}",
        f"their JCT {mean:+.3f} h a job (95 %: {low:+.3f} to {high:+.3f})",
    ]
    for number, line in enumerate(lines):
        screen.line(line, None if number else "good")
    table = Table("settings that were better than all before", metric, right=[metric])
    for trial in document["trials"]:
        if trial["best"]:
            table.add(trial["policy"], f"{trial[metric]:.3f}")
    screen.line()
    screen.table(table)
