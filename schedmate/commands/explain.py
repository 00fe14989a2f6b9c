"""`schedmate explain`: what Lucid's learnt models say of a trace, and why."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

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
from schedmate.durations import format_duration
from schedmate.errors import UsageError
from schedmate.plain import dumps
from schedmate.terminal import say

if TYPE_CHECKING:
    from schedmate.schedulers.sim.explain import Explanation
    from schedmate.schedulers.sim.workload import Workload

SCHEMA = "schedmate.explain/v1"

MODELS = ("run-times", "submissions")


def explain(
    trace: TraceArgument,
    model: Annotated[
        str,
        typer.Option(
            metavar="|".join(MODELS),
            help="Lucid's Workload Estimate Model, or its Throughput Predict Model.",
        ),
    ] = "run-times",
    job: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="Break down the estimate of this job, as of its submission."
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write plots as HTML.")
    ] = None,
    columns: MapOption = None,
    skip_bad: SkipBadOption = False,
    origin: OriginOption = None,
    workloads: WorkloadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what one of Lucid's models learns from a trace.

    Every prediction is a sum of terms over one or two features, which explain it.

    Example: schedmate explain jobs.csv --job 4711 -o why.html
    """
    if model not in MODELS:
        raise UsageError(f"--model {model!r} is none of {', '.join(MODELS)}.")
    if job is not None and model != "run-times":
        raise UsageError("--job takes an estimate of a run time apart; leave --model out.")
    from schedmate.schedulers.learned.packages import require
    from schedmate.schedulers.sim.explain import explain_run_times, explain_submissions

    require("interpret", what="`schedmate explain`")
    workload = load(trace, columns, skip_bad, workloads, origin=origin)
    if model == "run-times":
        found = explain_run_times(workload, job)
    else:
        found = explain_submissions(workload)
    if output is not None:
        from schedmate.files import open_output
        from schedmate.report.explanation import explanation_page

        with open_output(output) as stream:
            stream.write(explanation_page(found, trace.name, synthetic=workload.synthetic))
        say(f"wrote {output}")
    if as_json:
        typer.echo(dumps(_document(found, workload, trace.name), indent=1))
    else:
        _show(found)


def _document(found: Explanation, workload: Workload, trace: str) -> dict[str, Any]:
    local = found.local
    return {
        "schema": SCHEMA,
        "trace": trace,
        **origin_of(workload),
        "model": found.model,
        "fitted_on": found.fitted_on,
        "intercept": found.intercept,
        "terms": [
            {
                "features": term.features,
                "importance": term.importance,
                "cuts": term.cuts,
                "scores": term.scores,
            }
            for term in found.terms
        ],
        "job": None
        if local is None
        else {
            "id": local.job,
            "estimate_s": local.answer_s,
            "true_s": local.true_s,
            "contributions": local.contributions,
            "values": local.values,
        },
    }


def _show(found: Explanation) -> None:
    import math

    from schedmate.report.axes import factor
    from schedmate.terminal.screen import Screen, Table

    screen = Screen(sys.stdout)
    unit = "ended jobs" if found.model == "run-times" else "bins of ten minutes"
    what = {"run-times": "run times", "submissions": "submissions in ten minutes"}[found.model]
    screen.line(f"{what}: a GA2M fitted on {found.fitted_on:,} {unit}")
    if found.local is not None:
        local = found.local
        screen.line(
            f"job {local.job}: {format_duration(local.answer_s)} estimated, "
            f"{format_duration(local.true_s)} in the trace",
            "good",
        )
        table = Table("term", "value", "makes it", right=["makes it"])
        for name, score in local.contributions.items():
            if name == "intercept":
                table.add("all jobs", "", format_duration(math.exp(score)))
            else:
                known = [_value(part, local.values.get(part)) for part in name.split(" & ")]
                table.add(name, ", ".join(known), factor(score))
    else:
        table = Table("term", "moves the answer by", right=["moves the answer by"])
        for term in found.terms:
            table.add(term.name, factor(term.importance))
    screen.line()
    screen.table(table)


def _value(feature: str, value: float | None) -> str:
    from schedmate.schedulers.learned.durations import LOGARITHMS

    if value is None:
        return "unknown"
    return format_duration(value) if feature in LOGARITHMS else f"{value:g}"
