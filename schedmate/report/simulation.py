"""Shows a comparison of policies: the HTML report of `schedmate simulate`, and its table.

Each figure is a chart, and the same in numbers: gains, distributions, size classes, estimates,
sweeps; then those with time on their axis, and the Gantt chart, the job on each GPU, node by node.
Parameters are explained by their docstrings.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from schedmate.base.inputs import format_duration
from schedmate.base.terminal import Screen, Table
from schedmate.report import charts
from schedmate.report.charts import (
    SHARE_AXIS,
    WIDTH,
    Axis,
    Figure,
    Floats,
    Series,
    interval_chart,
    linear_axis,
    x_ticks,
)
from schedmate.report.page import embedded, render, shown
from schedmate.report.page import shown as short
from schedmate.schedulers.model import Cluster
from schedmate.schedulers.sim.comparison import over_seeds
from schedmate.schedulers.sim.outcome.metrics import SIZES
from schedmate.schedulers.sim.outcome.results import (
    OPPOSITE,
    Result,
    differences_in_words,
    fault_warnings,
    gpus_held,
    headlines,
    jobs_waiting,
    run_label,
    service_by_class,
    varied_settings,
    work_kept,
)
from schedmate.schedulers.sim.runs import ESTIMATORS, Plan


@dataclass(frozen=True)
class Comparison:
    """The simulated trace and plans: results are in the order of plans, and of the policies of
    each."""

    plans: Sequence[Plan]
    results: Sequence[Result]
    document: dict[str, Any]
    """As `--json` prints it."""
    trace: str
    made_up: Sequence[str] = ()
    """What of the trace is synthetic."""
    notes: Sequence[str] = ()
    command: str = ""


def simulation_page(comparison: Comparison, window: tuple[float, float] | None = None) -> str:
    """The whole report as HTML. `window`: the stretch of the Gantt charts [s].

    The curves show the policies under the first plan; tables have all runs.
    """
    runs = [result.numbers for result in comparison.results]
    plan = comparison.plans[0]
    shown = list(comparison.results[: len(plan.policies)])
    keys = varied_settings(runs)
    return render(
        "simulation",
        "charts",
        found=comparison,
        plan=plan,
        runs=runs,
        keys=keys,
        headlines=headlines(runs),
        differences=[line.partition(OPPOSITE) for line in differences_in_words(runs)],
        warnings=fault_warnings(runs),
        legend=charts.legend([result.numbers["policy"] for result in shown]),
        oracles=sorted({run["policy"] for run in runs if run["oracle"]}),
        estimators={
            run["estimator"]: next(
                (
                    text
                    for name, text in ESTIMATORS.items()
                    if name.split(":")[0] == run["estimator"].split(":")[0]
                ),
                "",
            )
            for run in runs
        },
        span=format_duration(float(np.ptp(shown[0].jobs["submit_s"]))),
        gain=gain_figure(runs, keys),
        distributions=distribution_figures(shown),
        sizes=size_figure(shown),
        parts=[
            (title, key, list(shown[0].numbers[key]), [result.numbers for result in shown])
            for title, key in (("By size", "by_size"), ("By virtual cluster", "by_vc"))
            if shown[0].numbers[key]
        ],
        fairness=[
            (among, result.numbers, result.numbers["fairness"][key])
            for key, among in (("user", "users"), ("vc", "virtual clusters"))
            for result in shown
            if key in result.numbers["fairness"]
        ],
        over_time=figures_over_time(shown, plan),
        gantts=gantt_figures(shown, plan, window),
        pairs=[pair_figure(shown[0], other, n) for n, other in enumerate(shown[1:], start=1)],
        estimates=estimate_figures(shown),
        sweep=sweep_figure(comparison.plans, comparison.results),
        seeds=comparison.document.get("over_seeds", []),
        modules=[
            (run_label(run, keys), module, what)
            for run in runs
            for module, what in run.get("schedmate", {}).items()
            if what
        ],
        parameters=explained_parameters(plan.parameters)
        + ([] if plan.failures is None else explained_parameters(plan.failures))
        + ([] if plan.phases is None else explained_parameters(plan.phases)),
        data=embedded(comparison.document),
    )


# Runs of a simulation as text for a person: the best in words, then a table.


def show_simulation(runs: list[dict[str, Any]], screen: Screen) -> None:
    """Print the comparison, the best average JCT first."""
    for number, line in enumerate(headlines(runs)):
        screen.line(line, None if number else "good")
    settings = varied_settings(runs)
    columns = [column for column in _TABLE_COLUMNS if _has_news(column[1], runs)]
    titles = [title for title, _, _ in columns]
    table = Table("policy", *settings, *titles, right=titles)
    for run in runs:
        table.add(
            *(run[key] for key in ("policy", *settings)),
            *(form.format(run[key]) for _, key, form in columns),
        )
    screen.line()
    screen.table(table)
    screen.line()
    for line in (*service_by_class(runs), *differences_in_words(runs)):
        screen.line(line, "doubtful" if OPPOSITE in line else None)
    for line in fault_warnings(runs):
        screen.line(f"warning: {line}", "doubtful")
    if (hint := too_large(runs)) is not None:
        screen.line(f"note: {hint}")
    for mean in over_seeds(runs):
        jct, deviation = mean["avg_jct_h"]
        screen.line(
            f"{run_label(mean, [key for key in settings if key != 'seed'])}: average JCT "
            f"{jct:.2f} h ± {deviation:.2f} over {len(mean['seeds'])} seeds"
        )


LITTLE_USE = 0.3
"""A cluster that is less in use, with next to no queue, tells policies apart by nothing."""
WELL_USED = 0.8
"""Share of a cluster in use at which policies differ."""
NO_QUEUE = 0.01
"""A queueing delay that is a smaller share of the JCT is none."""


def too_large(runs: Sequence[dict[str, Any]]) -> str | None:
    """What to do about a cluster on which no job waits whatever the policy; None if some do."""
    if len({run["policy"] for run in runs}) < 2:
        return None
    if any(
        run["utilisation"] > LITTLE_USE or run["avg_queue_h"] > NO_QUEUE * run["avg_jct_h"]
        for run in runs
    ):
        return None
    most = max(run["utilisation"] for run in runs)
    return (
        f"at most {most:.1%} of the GPUs are in use and hardly a job waits, so the policies cannot "
        f"differ: give a smaller --cluster; one {WELL_USED / max(most, 1e-6):,.0f} times smaller "
        f"would be about {WELL_USED:.0%} in use."
    )


def _has_news(key: str, runs: Sequence[dict[str, Any]]) -> bool:
    """Whether a column is worth its place: what no run did is left out."""
    return key not in ("preemptions", "packed") or any(run[key] for run in runs)


_TABLE_COLUMNS = (
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


# The figures of a simulation's report: each a chart with a table of its numbers.


PERCENTS = (10, 25, 50, 75, 90, 99, 99.9, 100)


def gain_figure(runs: Sequence[dict[str, Any]], keys: Sequence[str]) -> Markup | None:
    """Each run's gain over the first policy, with its interval; None with one policy only.

    `keys` are the settings that distinguish runs of one policy.
    """
    policies = list(dict.fromkeys(run["policy"] for run in runs))
    rows = [
        (run_label(run, keys), policies.index(run["policy"]), *run["jct_less_first_h"])
        for run in runs
        if "jct_less_first_h" in run
    ]
    if not rows:
        return None
    low, high = min(0.0, *(row[3] for row in rows)), max(0.0, *(row[4] for row in rows))
    axis = charts.linear_axis("average JCT less that of the first policy", low, high, "hours")
    about = "Difference of JCT to the first policy, with 95 % intervals"
    return interval_chart(about, rows[:40], axis)


def distribution_figures(shown: Sequence[Result]) -> list[Figure]:
    """How JCT and queueing delay are spread over the jobs of each run."""
    return [
        _cdf_figure(title, [(one.numbers["policy"], one.jobs[column]) for one in shown], what)
        for title, column, what in (
            ("Job completion time (JCT)", "jct_s", "JCT"),
            ("Queueing delay", "queue_s", "queueing delay"),
        )
    ]


def size_figure(shown: Sequence[Result]) -> list[Figure]:
    """JCT within each size class: a policy may serve some at the cost of others."""
    gpus = shown[0].jobs["gpus"]
    figures = []
    for low, high, title in SIZES:
        some = (gpus >= low) & (gpus <= high)
        if some.any() and not some.all():
            values = [(one.numbers["policy"], one.jobs["jct_s"][some]) for one in shown]
            figures.append(
                _cdf_figure(f"JCT of {int(some.sum()):,} jobs of {title}", values, "JCT")
            )
    return figures


def _cdf_figure(title: str, values: Sequence[tuple[str, Floats]], what: str) -> Figure:
    values = [(name, one[np.isfinite(one)]) for name, one in values]  # of jobs that ended
    everything = np.concatenate([one for _, one in values])
    positive = everything[everything > 0]
    low = float(positive.min()) if len(positive) else 1.0
    axis = charts.log_duration_axis(what, low, float(everything.max()))
    series = [Series(name, n, *charts.cdf_chart(one, axis)) for n, (name, one) in enumerate(values)]
    return Figure(
        title,
        charts.line_chart(
            f"Share of jobs with at most this {what}, for each policy", series, axis, SHARE_AXIS
        ),
        ["policy", *(f"p{percent:g}" for percent in PERCENTS)],
        [
            [name, *(format_duration(float(one)) for one in np.percentile(some, PERCENTS))]
            for name, some in values
        ],
    )


def pair_figure(first: Result, other: Result, style: int) -> Figure:
    """Each job under one policy against the same job under another."""
    first_jct, other_jct = first.jobs["jct_s"], other.jobs["jct_s"]
    ended = np.isfinite(first_jct) & np.isfinite(other_jct)
    first_jct, other_jct = first_jct[ended], other_jct[ended]
    names = first.numbers["policy"], other.numbers["policy"]
    both = np.concatenate((first_jct, other_jct))
    low, high = float(max(1.0, both[both > 0].min(initial=1e9))), float(both.max())
    both_axes = (
        charts.log_duration_axis(f"JCT under {names[0]}", low, high),
        charts.log_duration_axis(f"JCT under {names[1]}", low, high),
    )
    sooner, later = first_jct - other_jct > 1.0, other_jct - first_jct > 1.0
    rows = []
    for what, some in (
        ("sooner", sooner),
        ("later", later),
        ("the same, within 1 s", ~(sooner | later)),
    ):
        middle = float(np.median(np.abs(first_jct - other_jct)[some])) if some.any() else 0.0
        rows.append([what, f"{int(some.sum()):,}", f"{some.mean():.1%}", format_duration(middle)])
    return Figure(
        f"{names[1]} against {names[0]}",
        charts.density_chart(
            f"JCT of each job under {names[0]} and {names[1]}; below the diagonal it ends sooner "
            f"under {names[1]}",
            first_jct,
            other_jct,
            both_axes,
        ),
        [f"under {names[1]}", "jobs", "share", "median difference"],
        rows,
    )


def estimate_figures(shown: Sequence[Result]) -> Figure | None:
    """Accuracy of the policies' estimates: predicted over true duration."""
    ratios = {}
    for one in shown:
        true, predicted = one.jobs["duration_s"], one.jobs["predicted_s"]
        has_prediction = ~np.isnan(predicted) & (true > 0) & (predicted > 0)
        if has_prediction.any():
            ratios[one.numbers["policy"]] = predicted[has_prediction] / true[has_prediction]
    if not ratios:
        return None
    everything = np.concatenate(list(ratios.values()))
    low, high = np.percentile(everything, (0.1, 99.9))
    axis = charts.log_ratio_axis("predicted over true duration", min(0.5, low), max(2.0, high))
    policies = [one.numbers["policy"] for one in shown]
    series = [
        Series(name, policies.index(name), *charts.cdf_chart(one, axis))
        for name, one in ratios.items()
    ]
    return Figure(
        "How good the predictions were",
        charts.line_chart(
            "Share of jobs predicted at most this many times too long", series, axis, SHARE_AXIS
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


def sweep_figure(plans: Sequence[Plan], results: Sequence[Result]) -> list[Figure]:
    """Average JCT against whatever of cluster and estimator was varied."""
    figures = []
    policies = plans[0].policies
    for key, of in (
        ("cluster", attrgetter("cluster_name")),
        ("estimator", attrgetter("estimator")),
    ):
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
        y = charts.linear_axis("average JCT", 0.0, float(means.max()), "hours")
        at = np.arange(len(kinds), dtype=float)
        series = [Series(name, p, at, means[p]) for p, name in enumerate(policies)]
        figures.append(
            Figure(
                f"Average JCT by {key}",
                charts.line_chart(f"Average JCT of each policy by {key}", series, x, y),
                ["policy", *kinds],
                [[name, *(f"{one:.2f} h" for one in means[p])] for p, name in enumerate(policies)],
            )
        )
    return figures


# The figures of a simulation's report that have time on their axis.


TIME_BINS = 400
"""Number of time intervals over which a curve shows means."""


def figures_over_time(shown: Sequence[Result], plan: Plan) -> list[Figure]:
    """GPUs in use and jobs waiting over the time of the trace, and where GPU time went."""
    origin = float(shown[0].jobs["submit_s"].min())
    end = max(float(one.segments["end_s"].max()) for one in shown) - origin
    edges = np.linspace(0.0, max(end, 1e-6), TIME_BINS + 1)
    x = charts.linear_axis("after the first submission", 0.0, float(edges[-1]), "duration")
    gpus = plan.cluster.gpus
    gpu_shares = [gpus_held(one.segments).mean(edges + origin) / gpus for one in shown]
    waiting = [jobs_waiting(one.jobs, one.segments).mean(edges + origin) for one in shown]
    deepest = max(float(one.max()) for one in waiting)
    share = Axis("GPUs in use", 0.0, 1.0, SHARE_AXIS.ticks, "share")
    note = f"Each point is the mean over {format_duration(float(edges[1]))}."
    figures = [
        _curve_of_means("GPUs in use over time", shown, edges, gpu_shares, x, share, note),
        _curve_of_means(
            "Jobs waiting over time",
            shown,
            edges,
            waiting,
            x,
            charts.linear_axis("jobs waiting", 0.0, max(deepest, 1.0), "count"),
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
        y = charts.linear_axis(f"{what}, of all GPUs", 0.0, max(most, 0.001), "share")
        figures.append(_curve_of_means(title, shown, edges, values, x, y, f"{note} {_OF_WORK}"))
    figures[-1] = replace(figures[-1], head=list(_CAUSES), rows=_causes_figure(shown))
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


def _causes_figure(shown: Sequence[Result]) -> list[list[str]]:
    """The use of GPU time over time, of each policy."""
    keys = list(_CAUSES.values())[1:]
    return [
        [one.numbers["policy"], *(f"{one.numbers['gpu_time_h'][key]:,.1f}" for key in keys)]
        for one in shown
    ]


def _curve_of_means(
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
        charts.line_chart(f"{title}, for each policy", series, x, y),
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


def gantt_figures(
    shown: Sequence[Result], plan: Plan, chosen: tuple[float, float] | None
) -> list[Figure]:
    """A Gantt chart per run for a time span [s after the first submission]."""
    window = window_of(shown, plan.cluster, chosen)
    figures = []
    for result in shown:
        chart, left_out = gantt_chart(result, plan.cluster, window)
        nodes = result.segments["node"]
        origin = float(result.jobs["submit_s"].min())
        edges = np.array([window.start, window.end]) + origin
        rows = []
        for node in window.nodes:
            some = {name: values[nodes == node] for name, values in result.segments.items()}
            gpus_in_use = float(gpus_held(some).mean(edges)[0]) if len(some["node"]) else 0.0
            rows.append(
                [
                    plan.cluster.nodes[node].name,
                    f"{gpus_in_use / plan.cluster.nodes[node].gpus:.1%}",
                ]
            )
        note = f"{left_out:,} shorter stretches are not drawn." if left_out else ""
        title = (
            f"{result.numbers['policy']}: {len(window.nodes)} of {len(plan.cluster.nodes)} nodes, "
            f"{format_duration(window.start)} to {format_duration(window.end)}"
        )
        figures.append(Figure(title, chart, ["node", "GPUs in use"], rows, note))
    return figures


# Gantt chart: the job on each GPU, node by node, in a time span of a run.


MOST_NODES = 16
"""Most nodes drawn."""
MOST_BARS = 1500
"""Most bars of a time range that was not chosen by hand."""
MOST_BARS_EVER = 4000
"""Most bars ever drawn; the longest are kept."""
MOST_LANES = 160
"""Most GPUs drawn."""
LANE_HEIGHT, NODE_GAP, LABEL_WIDTH, END_WIDTH = 5, 6, 92, 16
"""Heights of a GPU and between nodes, widths of the names and at the end [pixels]."""
LONGEST_NODE_NAME, SHORT_NODE_NAME = 14, 8
"""Most characters of a node's name, and of the one shown where space is short."""


@dataclass(frozen=True)
class Window:
    """The stretch drawn: times [s] after the first submission, and positions of nodes."""

    start: float
    end: float
    nodes: tuple[int, ...]


def window_of(
    results: Sequence[Result], cluster: Cluster, chosen: tuple[float, float] | None = None
) -> Window:
    """The chosen stretch, else one around the longest queue of the first run that can be drawn."""
    first = results[0]
    origin = float(first.jobs["submit_s"].min())
    last = max(float(result.segments["end_s"].max()) for result in results) - origin
    lanes = np.cumsum([node.gpus for node in cluster.nodes])
    nodes = tuple(
        range(max(1, min(MOST_NODES, int(np.searchsorted(lanes, MOST_LANES, side="right")))))
    )
    if chosen is not None:
        return Window(chosen[0], chosen[1], nodes)
    waiting = jobs_waiting(first.jobs, first.segments)
    peak = float(waiting.time[int(np.argmax(waiting.value))]) - origin
    width = max(last, 1.0)
    while True:
        start = min(max(0.0, peak - width / 2), max(0.0, last - width))
        window = Window(start, start + width, nodes)
        if (
            max(len(_segments_inside(result, window)[0]) for result in results) <= MOST_BARS
            or width < 60
        ):
            return window
        width /= 2


def gantt_chart(result: Result, cluster: Cluster, window: Window) -> tuple[Markup, int]:
    """The chart of one run, and the number of short bars that were left out.

    A job that joined another on its GPUs is a bar of half the height over it.
    """
    tops, y = {}, NODE_GAP
    for node in window.nodes:
        tops[node] = y
        y += LANE_HEIGHT * cluster.nodes[node].gpus + NODE_GAP
    x = linear_axis("after the first submission", window.start, window.end, "duration")
    inside, start, end = _segments_inside(result, window)
    drawn = np.sort(inside[np.argsort(start[inside] - end[inside], kind="stable")][:MOST_BARS_EVER])
    # those that joined come last, over their partners
    drawn = drawn[np.argsort(result.segments["kind"][drawn] == "packed", kind="stable")]
    left = x.place(start[drawn], LABEL_WIDTH, WIDTH - END_WIDTH).tolist()
    right = x.place(end[drawn], LABEL_WIDTH, WIDTH - END_WIDTH).tolist()
    columns = ("job", "kind", "node", "first_gpu", "gpus", "failed")
    rows = zip(*(result.segments[name][drawn].tolist() for name in columns), strict=True)
    times = zip(left, right, start[drawn].tolist(), end[drawn].tolist(), strict=True)
    ids, asked = result.jobs["job_id"], result.jobs["gpus"]
    bars = []
    for row, (x0, x1, began, ended) in zip(rows, times, strict=True):
        job, kind, node, first, gpus, failed = row
        joined = kind == "packed"
        height = LANE_HEIGHT * max(1.0, gpus)
        top = tops[node] + LANE_HEIGHT * first
        bars.append(
            Markup(
                '<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}">'
                "<title>{}, {} GPUs, {}: {} to {}{}</title></rect>"
            ).format(
                f"{kind} {_size_style(int(asked[job]))}",
                x0,
                top + (height / 2 if joined else 0),
                max(0.6, x1 - x0),
                height / 2 if joined else height,
                shown(ids[job], 60),
                int(asked[job]),
                kind,
                format_duration(began),
                format_duration(ended),
                ", ended by a failure" * failed,
            )
        )
        if failed and ended < window.end:
            bars.append(
                Markup('<path class="failure" d="M{:.1f} {:.1f}v{:.1f}"></path>').format(
                    x1, top, height
                )
            )
    about = (
        f"GPUs held on {len(window.nodes)} of {len(cluster.nodes)} nodes under "
        f"{result.numbers['policy']}, from {format_duration(window.start)} to "
        f"{format_duration(window.end)}: {len(drawn)} bars"
    )
    chart = Markup(
        '<svg class="chart gantt" viewBox="0 0 {} {}" role="img" aria-label="{}">{}{}{}</svg>'
    ).format(
        WIDTH,
        y + 26,
        shown(about),
        _node_names(cluster, tops),
        _time_ticks(x, y),
        Markup("").join(bars),
    )
    return chart, len(inside) - len(drawn)


def _node_names(cluster: Cluster, tops: dict[int, int]) -> Markup:
    parts = []
    for position, top in tops.items():
        node = cluster.nodes[position]
        height = LANE_HEIGHT * node.gpus
        parts.append(
            Markup(
                '<rect class="node" x="{}" y="{}" width="{}" height="{}"></rect>'
                '<text class="tick y long" x="{}" y="{:.0f}">{}</text>'
                '<text class="tick y short" aria-hidden="true" x="{}" y="{:.0f}">{}</text>'
            ).format(
                LABEL_WIDTH,
                top,
                WIDTH - END_WIDTH - LABEL_WIDTH,
                height,
                LABEL_WIDTH - 6,
                top + height / 2 + 4,
                shown(f"{node.name} {node.gpu_type}".strip(), LONGEST_NODE_NAME),
                LABEL_WIDTH - 6,
                top + height / 2 + 4,
                _name_ending(shown(node.name, 200)),
            )
        )
    return Markup("").join(parts)


def _name_ending(name: str) -> str:
    """The end of a name, which distinguishes nodes."""
    return name if len(name) <= SHORT_NODE_NAME else "…" + name[1 - SHORT_NODE_NAME :]


def _time_ticks(x: Axis, y: int) -> Markup:
    start, end = LABEL_WIDTH, WIDTH - END_WIDTH
    lines = "".join(f"M{float(x.place(tick, start, end)):.1f} 0V{y}" for tick in x.ticks)
    return Markup('<path class="grid" d="{}"></path>{}').format(
        lines, x_ticks(x, start, end, y + 18)
    )


def _size_style(gpus: int) -> str:
    """The style of a bar: that of the job's size class."""
    return next(f"z{n}" for n, (low, high, _) in enumerate(SIZES) if low <= gpus <= high)


def _segments_inside(result: Result, window: Window) -> tuple[NDArray[np.int64], Floats, Floats]:
    """Rows of the segments that are drawn; starts and ends of all, after the first submission."""
    segments, origin = result.segments, float(result.jobs["submit_s"].min())
    start, end = segments["start_s"] - origin, segments["end_s"] - origin
    drawn = (start < window.end) & (end > window.start) & np.isin(segments["node"], window.nodes)
    return np.flatnonzero(drawn), start, end


# Parameters with their values and their descriptions, from docstrings.


class ExplainedParameter(NamedTuple):
    """One parameter: its meaning, unit and source are the docstring under it."""

    name: str
    value: str
    about: str


def explained_parameters(parameters: Any) -> list[ExplainedParameter]:
    """Every field of a dataclass instance that is set, in order."""
    notes = _notes(type(parameters))
    return [
        ExplainedParameter(field.name, written_value(value), notes.get(field.name) or _about(value))
        for field in fields(parameters)
        if (value := getattr(parameters, field.name)) not in (None, {}, frozenset(), ())
    ]


def written_value(value: Any) -> str:
    """A value in a few words, however much it holds."""
    if is_dataclass(value) and not isinstance(value, type):
        parts = [f"{one.name}={written_value(getattr(value, one.name))}" for one in fields(value)]
        return f"{type(value).__name__}({', '.join(parts)})"
    if isinstance(value, Mapping):
        if len(value) > 8:
            return f"{len(value):,} entries"
        return ", ".join(f"{key}: {written_value(one)}" for key, one in value.items())
    if isinstance(value, frozenset):
        return ", ".join(sorted(map(str, value)))
    return f"{value:,.9g}" if isinstance(value, float) else str(value)


def _about(value: Any) -> str:
    return " ".join((type(value).__doc__ or "").split()) if is_dataclass(value) else ""


def _notes(kind: type) -> dict[str, str]:
    """The string under each field of a class body."""
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(body, ast.ClassDef)
    notes = {}
    for one, after in zip(body.body, body.body[1:], strict=False):
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                notes[one.target.id] = " ".join(str(after.value.value).split())
    return notes
