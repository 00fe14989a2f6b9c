"""The figures of a simulation's report that have time on their axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from schedmate.durations import format_duration
from schedmate.report import axes, charts
from schedmate.report.axes import SHARE, Axis, Floats
from schedmate.report.charts import Figure, Series
from schedmate.report.gantt import gantt, window_of
from schedmate.schedulers.sim.outcome.results import Result
from schedmate.schedulers.sim.outcome.timeline import gpus_held, jobs_waiting, work_kept
from schedmate.schedulers.sim.runs import Plan

BINS = 400
"""Number of time intervals over which a curve shows means."""


def over_time(shown: Sequence[Result], plan: Plan) -> list[Figure]:
    """GPUs in use and jobs waiting over the time of the trace, and where GPU time went."""
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
    """The use of GPU time over time, of each policy."""
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
    """A Gantt chart per run for a time span [s after the first submission]."""
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
