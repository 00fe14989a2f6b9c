"""`schedmate policies`, `tune` and `explain`: lists, fits and explains scheduling policies.

`tune` searches the settings that would have served the recent past best; `explain` shows what
Lucid's learnt models say of a trace.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from schedmate.base.data import dumps
from schedmate.base.errors import UsageError
from schedmate.base.files import write_output
from schedmate.base.inputs import format_duration, parse_duration
from schedmate.base.terminal import Screen, Table, counted, progress, say
from schedmate.commands import options

if TYPE_CHECKING:
    from schedmate.schedulers.sim.explain import Explanation
    from schedmate.schedulers.sim.tuner import Trial
    from schedmate.schedulers.sim.workload import Workload


def policies(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="Show the settings of this policy, with their defaults.",
            show_default=False,
            autocompletion=options.complete_policy,
        ),
    ] = None,
    as_json: options.JsonOption = False,
) -> None:
    """List the scheduling policies, or the settings of one.

    Example: schedmate policies tiresias
    """
    from schedmate.schedulers import registry

    screen = Screen(sys.stdout)
    rows = []
    if name is not None:
        name = registry.PolicySpec.parse(name).name  # as `--policy` takes it, settings and all
    for one in registry.names() if name is None else [name]:
        policy = registry.policy_class(one)
        what = " ".join((policy.__doc__ or "").strip().partition("\n\n")[0].split())
        settings = {parameter.name: parameter.default for parameter in registry.parameters(policy)}
        rows.append({"name": one, "what": what, "settings": settings})
    if as_json:
        typer.echo(dumps({"schema": "schedmate.policies/v1", "policies": rows}, indent=1))
        return
    if name is None:
        table = Table("policy", "what")
        for row in rows:
            table.add(row["name"], row["what"])
        screen.table(table)
        return
    screen.line(what)
    screen.line()
    table = Table("setting", "default", "meaning", below="meaning")
    about = registry.meanings(policy)
    for key, default in settings.items():
        table.add(key, default, about.get(key, ""))
    screen.table(table)
    screen.line()
    screen.line(
        f"to change one: --policy {name}:{next(iter(settings))}=VALUE"
        if settings
        else f"{name} has no settings"
    )


# `schedmate tune`: settings of a policy that would have served the recent past best.


TUNE_SCHEMA = "schedmate.tune/v1"


def tune(
    trace: options.TraceArgument,
    policy: Annotated[
        str,
        typer.Option(
            metavar="P", help="The policy to tune.", autocompletion=options.complete_policy
        ),
    ],
    cluster: Annotated[str, typer.Option(metavar="SPEC", help="As in `simulate`: 108x8.")],
    estimator: Annotated[
        str,
        typer.Option(
            metavar="E",
            help="Where the policy gets run times from, as in `simulate`.",
            autocompletion=options.complete_estimators,
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
    most: Annotated[int, typer.Option(min=1, help="Most simulations.")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="Seed of noise and intervals.")] = 0,
    columns: options.MapOption = None,
    skip_bad: options.SkipBadOption = False,
    origin: options.OriginOption = None,
    workloads: options.WorkloadsOption = None,
    as_json: options.JsonOption = False,
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
    workload = options.load_trace(trace, columns, skip_bad, workloads, origin=origin)
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
        "schema": TUNE_SCHEMA,
        "trace": trace.name,
        **options.trace_origin(workload),
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
        _show_trials(document, format_duration(moment))


def _parse(text: str) -> tuple[str, list[Any]]:
    from schedmate.schedulers.registry import split_outside_quotes, unquoted

    start, *more = split_outside_quotes(text, ",")
    name, _, first = start.partition("=")
    listed = [unquoted(value.strip()) for value in (first, *more) if value.strip()]
    if not name.strip() or not listed:
        raise UsageError(f"--try {text!r}: write NAME=V1,V2.")
    return name.strip(), listed


def _show_trials(document: dict[str, Any], moment: str) -> None:
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


# `schedmate explain`: what Lucid's learnt models say of a trace, and why.


EXPLAIN_SCHEMA = "schedmate.explain/v1"

MODELS = ("run-times", "submissions")


def explain(
    trace: options.TraceArgument,
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
    columns: options.MapOption = None,
    skip_bad: options.SkipBadOption = False,
    origin: options.OriginOption = None,
    workloads: options.WorkloadsOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Show what one of Lucid's models learns from a trace.

    Every prediction is a sum of terms over one or two features, which explain it.

    Example: schedmate explain jobs.csv --job 4711 -o why.html
    """
    if model not in MODELS:
        raise UsageError(f"--model {model!r} is none of {', '.join(MODELS)}.")
    if job is not None and model != "run-times":
        raise UsageError("--job takes an estimate of a run time apart; leave --model out.")
    from schedmate.schedulers.policy import require_schedulers_extra
    from schedmate.schedulers.sim.explain import explain_run_times, explain_submissions

    require_schedulers_extra("interpret", what="`schedmate explain`")
    workload = options.load_trace(trace, columns, skip_bad, workloads, origin=origin)
    if model == "run-times":
        explanation = explain_run_times(workload, job)
    else:
        explanation = explain_submissions(workload)
    if output is not None:
        from schedmate.report.explanation import explanation_page

        write_output(
            output, explanation_page(explanation, trace.name, synthetic=workload.synthetic)
        )
        say(f"wrote {output}")
    if as_json:
        typer.echo(dumps(_explanation_document(explanation, workload, trace.name), indent=1))
    else:
        _show_explanation(explanation)


def _explanation_document(
    explanation: Explanation, workload: Workload, trace: str
) -> dict[str, Any]:
    local = explanation.local
    return {
        "schema": EXPLAIN_SCHEMA,
        "trace": trace,
        **options.trace_origin(workload),
        "model": explanation.model,
        "fitted_on": explanation.fitted_on,
        "intercept": explanation.intercept,
        "terms": [
            {
                "features": term.features,
                "importance": term.importance,
                "cuts": term.cuts,
                "scores": term.scores,
            }
            for term in explanation.terms
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


def _show_explanation(explanation: Explanation) -> None:
    import math

    from schedmate.report.charts import factor_text

    screen = Screen(sys.stdout)
    unit = "ended jobs" if explanation.model == "run-times" else "bins of ten minutes"
    what = {"run-times": "run times", "submissions": "submissions in ten minutes"}[
        explanation.model
    ]
    screen.line(f"{what}: a GA2M fitted on {explanation.fitted_on:,} {unit}")
    if explanation.local is not None:
        local = explanation.local
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
                values = [_value(part, local.values.get(part)) for part in name.split(" & ")]
                table.add(name, ", ".join(values), factor_text(score))
    else:
        table = Table("term", "moves the answer by", right=["moves the answer by"])
        for term in explanation.terms:
            table.add(term.name, factor_text(term.importance))
    screen.line()
    screen.table(table)


def _value(feature: str, value: float | None) -> str:
    from schedmate.schedulers.learned import LOGARITHMIC_FEATURES

    if value is None:
        return "unknown"
    return format_duration(value) if feature in LOGARITHMIC_FEATURES else f"{value:g}"
