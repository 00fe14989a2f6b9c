"""The figures of a simulation's report: each a chart, and the same in numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from markupsafe import Markup

from schedmate.durations import format_duration
from schedmate.report import axes, charts
from schedmate.report.axes import SHARE, Axis, Floats
from schedmate.report.charts import Figure, Series
from schedmate.report.gantt import gantt, window_of
from schedmate.report.page import shown as short
from schedmate.schedulers.sim.metrics import SIZES
from schedmate.schedulers.sim.results import Result
from schedmate.schedulers.sim.runs import Plan
from schedmate.schedulers.sim.timeline import gpus_held, jobs_waiting, work_kept
from schedmate.schedulers.sim.words import label

BINS = 400
"""Stretches of time of which a curve over time shows the means."""
PERCENTS = (10, 25, 50, 75, 90, 99, 99.9, 100)


def gain(runs: Sequence[dict[str, Any]], keys: Sequence[str]) -> Markup | None:
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
    return charts.intervals(about, rows[:40], axis)


def distributions(shown: Sequence[Result]) -> list[Figure]:
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


def over_time(shown: Sequence[Result], plan: Plan) -> list[Figure]:
    origin = float(shown[0].jobs["submit_s"].min())
    end = max(float(one.jobs["end_s"].max()) for one in shown) - origin
    edges = np.linspace(0.0, max(end, 1e-6), BINS + 1)
    x = axes.linear("after the first submission", 0.0, float(edges[-1]), "duration")
    gpus = plan.cluster.gpus
    held = [gpus_held(one.segments).mean(edges + origin) / gpus for one in shown]
    waiting = [jobs_waiting(one.jobs, one.segments).mean(edges + origin) for one in shown]
    deepest = max(float(one.max()) for one in waiting)
    share = Axis("GPUs in use", 0.0, 1.0, SHARE.ticks, "share")
    note = f"Each point is the mean over {format_duration(float(edges[1]))}."
    figures = [
        _curve("GPUs in use over time", shown, edges, held, x, share, note),
        _curve(
            "Jobs waiting over time",
            shown,
            edges,
            waiting,
            x,
            axes.linear("jobs waiting", 0.0, max(deepest, 1.0), "count"),
            note,
        ),
    ]
    if any(one.numbers["gpu_time_h"] is None for one in shown):
        return figures
    both = [work_kept(one.segments) for one in shown]
    for at, (title, what) in enumerate(
        (("Useful work over time", "work kept"), ("GPU time lost over time", "time lost"))
    ):
        values = [steps[at].mean(edges + origin) / gpus for steps in both]
        most = max(float(one.max()) for one in values)
        y = axes.linear(f"{what}, of all GPUs", 0.0, max(most, 0.001), "share")
        figures.append(_curve(title, shown, edges, values, x, y, f"{note} {_OF_WORK}"))
    figures[-1] = replace(figures[-1], head=list(_CAUSES), rows=_causes(shown))
    return figures


_OF_WORK = "Of two jobs on the same GPUs both count, so that work can exceed GPUs in use."
_CAUSES = {
    "GPU hours": "",
    "held": "held",
    "by two jobs": "shared",
    "useful": "useful",
    "profiling": "profiling",
    "restarts": "restarts",
    "failures": "failures",
    "slowed or evicted": "slowed",
}


def _causes(shown: Sequence[Result]) -> list[list[str]]:
    """Of each policy, what became of the GPU time."""
    keys = list(_CAUSES.values())[1:]
    return [
        [one.numbers["policy"], *(f"{one.numbers['gpu_time_h'][key]:,.1f}" for key in keys)]
        for one in shown
    ]


def _curve(
    title: str,
    shown: Sequence[Result],
    edges: Floats,
    values: Sequence[Floats],
    x: Axis,
    y: Axis,
    note: str,
) -> Figure:
    names = [one.numbers["policy"] for one in shown]
    series = [
        Series(name, n, edges, np.append(one, one[-1:]), steps=True)
        for n, (name, one) in enumerate(zip(names, values, strict=True))
    ]
    few = len(edges) // 20
    return Figure(
        title,
        charts.lines(f"{title}, for each policy", series, x, y),
        ["from", *names],
        [
            [
                format_duration(float(edges[at])),
                *(y.text(float(one[at : at + few].mean())) for one in values),
            ]
            for at in range(0, len(edges) - 1, few)
        ],
        note,
    )


def gantts(shown: Sequence[Result], plan: Plan, chosen: tuple[float, float] | None) -> list[Figure]:
    window = window_of(shown, plan.cluster, chosen)
    figures = []
    for one in shown:
        chart, left_out = gantt(one, plan.cluster, window)
        nodes = one.segments["node"]
        origin = float(one.jobs["submit_s"].min())
        edges = np.array([window.start, window.end]) + origin
        rows = []
        for node in window.nodes:
            some = {name: values[nodes == node] for name, values in one.segments.items()}
            held = float(gpus_held(some).mean(edges)[0]) if len(some["node"]) else 0.0
            rows.append(
                [plan.cluster.nodes[node].name, f"{held / plan.cluster.nodes[node].gpus:.1%}"]
            )
        note = f"{left_out:,} shorter stretches are not drawn." if left_out else ""
        title = (
            f"{one.numbers['policy']}: {len(window.nodes)} of {len(plan.cluster.nodes)} nodes, "
            f"{format_duration(window.start)} to {format_duration(window.end)}"
        )
        figures.append(Figure(title, chart, ["node", "GPUs in use"], rows, note))
    return figures


def pair(first: Result, other: Result, style: int) -> Figure:
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
    """How good what the policies were told was: predicted over true duration."""
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
