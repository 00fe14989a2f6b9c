"""The figures of a simulation's report: each a chart, and the same in numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from schedmate.durations import format_duration
from schedmate.report import axes, charts
from schedmate.report.axes import SHARE, Axis, Floats
from schedmate.report.charts import Figure, Series
from schedmate.report.intervals import intervals
from schedmate.report.page import shown as short
from schedmate.schedulers.sim.outcome.metrics import SIZES
from schedmate.schedulers.sim.outcome.results import Result
from schedmate.schedulers.sim.outcome.words import label
from schedmate.schedulers.sim.runs import Plan

PERCENTS = (10, 25, 50, 75, 90, 99, 99.9, 100)


def gain(runs: Sequence[dict[str, Any]], keys: Sequence[str]) -> Markup | None:
    """Each run's gain over the first policy, with its interval; None with one policy only.

    `keys` are the settings that distinguish runs of one policy.
    """
    policies = list(dict.fromkeys(run["policy"] for run in runs))
    rows = [
        (label(run, keys), policies.index(run["policy"]), *run["jct_less_first_h"])
        for run in runs
        if "jct_less_first_h" in run
    ]
    if not rows:
        return None
    low, high = min(0.0, *(row[3] for row in rows)), max(0.0, *(row[4] for row in rows))
    axis = axes.linear("average JCT less that of the first policy", low, high, "hours")
    about = "Difference of JCT to the first policy, with 95 % intervals"
    return intervals(about, rows[:40], axis)


def distributions(shown: Sequence[Result]) -> list[Figure]:
    """How JCT and queueing delay are spread over the jobs of each run."""
    return [
        _cdf(title, [(one.numbers["policy"], one.jobs[column]) for one in shown], what)
        for title, column, what in (
            ("Job completion time (JCT)", "jct_s", "JCT"),
            ("Queueing delay", "queue_s", "queueing delay"),
        )
    ]


def sizes(shown: Sequence[Result]) -> list[Figure]:
    """JCT within each size class: a policy may serve some at the cost of others."""
    gpus = shown[0].jobs["gpus"]
    figures = []
    for low, high, title in SIZES:
        some = (gpus >= low) & (gpus <= high)
        if some.any() and not some.all():
            values = [(one.numbers["policy"], one.jobs["jct_s"][some]) for one in shown]
            figures.append(_cdf(f"JCT of {int(some.sum()):,} jobs of {title}", values, "JCT"))
    return figures


def _cdf(title: str, values: Sequence[tuple[str, Floats]], what: str) -> Figure:
    everything = np.concatenate([one for _, one in values])
    positive = everything[everything > 0]
    low = float(positive.min()) if len(positive) else 1.0
    axis = axes.log_durations(what, low, float(everything.max()))
    series = [Series(name, n, *charts.cdf(one, axis)) for n, (name, one) in enumerate(values)]
    return Figure(
        title,
        charts.lines(
            f"Share of jobs with at most this {what}, for each policy", series, axis, SHARE
        ),
        ["policy", *(f"p{percent:g}" for percent in PERCENTS)],
        [
            [name, *(format_duration(float(one)) for one in np.percentile(some, PERCENTS))]
            for name, some in values
        ],
    )


def pair(first: Result, other: Result, style: int) -> Figure:
    """Each job under one policy against the same job under another."""
    one, two = first.jobs["jct_s"], other.jobs["jct_s"]
    names = first.numbers["policy"], other.numbers["policy"]
    both = np.concatenate((one, two))
    low, high = float(max(1.0, both[both > 0].min(initial=1e9))), float(both.max())
    both_axes = (
        axes.log_durations(f"JCT under {names[0]}", low, high),
        axes.log_durations(f"JCT under {names[1]}", low, high),
    )
    sooner, later = one - two > 1.0, two - one > 1.0
    rows = []
    for what, some in (
        ("sooner", sooner),
        ("later", later),
        ("the same, within 1 s", ~(sooner | later)),
    ):
        middle = float(np.median(np.abs(one - two)[some])) if some.any() else 0.0
        rows.append([what, f"{int(some.sum()):,}", f"{some.mean():.1%}", format_duration(middle)])
    return Figure(
        f"{names[1]} against {names[0]}",
        charts.density(
            f"JCT of each job under {names[0]} and {names[1]}; below the diagonal it ends sooner "
            f"under {names[1]}",
            one,
            two,
            both_axes,
        ),
        [f"under {names[1]}", "jobs", "share", "median difference"],
        rows,
    )


def estimates(shown: Sequence[Result]) -> Figure | None:
    """Accuracy of the policies' estimates: predicted over true duration."""
    ratios = {}
    for one in shown:
        true, said = one.jobs["duration_s"], one.jobs["predicted_s"]
        known = ~np.isnan(said) & (true > 0) & (said > 0)
        if known.any():
            ratios[one.numbers["policy"]] = said[known] / true[known]
    if not ratios:
        return None
    everything = np.concatenate(list(ratios.values()))
    low, high = np.percentile(everything, (0.1, 99.9))
    axis = axes.log_ratios("predicted over true duration", min(0.5, low), max(2.0, high))
    policies = [one.numbers["policy"] for one in shown]
    series = [
        Series(name, policies.index(name), *charts.cdf(one, axis)) for name, one in ratios.items()
    ]
    return Figure(
        "How good the predictions were",
        charts.lines(
            "Share of jobs predicted at most this many times too long", series, axis, SHARE
        ),
        ["policy", "jobs with a prediction", "p10", "median", "p90", "within a factor of 2"],
        [
            [
                name,
                f"{len(one):,}",
                *(f"{float(value):.3g}x" for value in np.percentile(one, (10, 50, 90))),
                f"{float(((one >= 0.5) & (one <= 2)).mean()):.1%}",
            ]
            for name, one in ratios.items()
        ],
    )


def sweep(plans: Sequence[Plan], results: Sequence[Result]) -> list[Figure]:
    """Average JCT against whatever of cluster and estimator was varied."""
    figures = []
    policies = plans[0].policies
    for key, of in (("cluster", _cluster_of), ("estimator", _estimator_of)):
        kinds = list(dict.fromkeys(map(of, plans)))
        if len(kinds) < 2:
            continue
        means = np.full((len(policies), len(kinds)), np.nan)
        for p in range(len(policies)):
            for k, kind in enumerate(kinds):
                means[p, k] = np.mean(
                    [
                        results[n * len(policies) + p].numbers["avg_jct_h"]
                        for n, plan in enumerate(plans)
                        if of(plan) == kind
                    ]
                )
        x = Axis(
            key,
            -0.3,
            len(kinds) - 0.7,
            tuple(map(float, range(len(kinds)))),
            key,
            names=tuple(short(kind, 24) for kind in kinds),
        )
        y = axes.linear("average JCT", 0.0, float(means.max()), "hours")
        at = np.arange(len(kinds), dtype=float)
        series = [Series(name, p, at, means[p]) for p, name in enumerate(policies)]
        figures.append(
            Figure(
                f"Average JCT by {key}",
                charts.lines(f"Average JCT of each policy by {key}", series, x, y),
                ["policy", *kinds],
                [[name, *(f"{one:.2f} h" for one in means[p])] for p, name in enumerate(policies)],
            )
        )
    return figures


def _cluster_of(plan: Plan) -> str:
    return plan.cluster_name


def _estimator_of(plan: Plan) -> str:
    return plan.estimator
