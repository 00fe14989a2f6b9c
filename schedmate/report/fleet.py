"""The report of `schedmate fleet diagnose`: why idle GPUs cannot be had (Figures 13 and 14)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np

from schedmate import __version__
from schedmate.report import axes, charts
from schedmate.report.axes import Axis
from schedmate.report.charts import Figure
from schedmate.report.page import embedded, render
from schedmate.schedulers.fleet.diagnosis import CAUSES, Diagnosis, Shape

WORDS = {
    "fractional": "rests of shared GPUs",
    "stranded": "stranded: too few are left together",
    "cpu": "CPUs used up",
    "memory": "memory used up",
    "topology": "not under one switch",
}
MOST_TYPES = 6


def fleet_page(found: Diagnosis, document: dict[str, Any], name: str, command: str = "") -> str:
    """The whole report as HTML. `document`: as `--json` prints it."""
    types = _types(found)
    return render(
        "fleet",
        "charts",
        found=found,
        cluster=name,
        command=command,
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        version=__version__,
        causes=list(WORDS.items()),
        figures=figures(found),
        types=types,
        nodes=document["nodes_that_matter"],
        data=embedded(document),
    )


def figures(found: Diagnosis) -> list[Figure]:
    """Figure 13 for requests of one pod; for larger ones the same, and Figure 14."""
    single = [one for one in found.shapes if one.request.pods == 1]
    large = [one for one in found.shapes if one.request.pods > 1]
    return [
        *([_lost("Idle GPUs that a request cannot get, by cause", single)] if single else []),
        *([_lost("The same for jobs on many nodes", large)] if large else []),
        *([_fulfilled(large, _types(found))] if large else []),
    ]


def _types(found: Diagnosis) -> list[str]:
    """GPU types, those of which most requests could start first."""
    types = [name for name in found.snapshot.gpu_types if found.shapes and name]
    return sorted(types, key=lambda name: -max(one.by_type[name] for one in found.shapes))


def _bars(shapes: list[Shape]) -> tuple[axes.Floats, Axis]:
    """Edges of one bar a request, and the axis that names them."""
    names = tuple(str(one.request) for one in shapes)
    count = len(shapes)
    # a bar begins where its number is the nearest, so that it goes by its name
    edges = np.arange(count + 1, dtype=np.float64) - 0.45
    at = tuple(map(float, range(count)))
    return edges, Axis("request", -0.6, count - 0.35, at, "count", names=names)


def _lost(title: str, shapes: list[Shape]) -> Figure:
    edges, x = _bars(shapes)
    heights = np.array([[one.lost[cause] for one in shapes] for cause in CAUSES])
    y = axes.linear("idle GPUs that it cannot get", 0.0, max(1.0, heights.sum(0).max()), "count")
    layers = [
        (WORDS[cause], f"dot s{n}", heights[n])
        for n, cause in enumerate(CAUSES)
        if heights[n].any()
    ]
    return Figure(
        title,
        charts.stacked(f"{title}: one bar for each request", edges, layers, x, y),
        ["request", *(WORDS[cause] for cause in CAUSES), "allocatable", "idle"],
        [
            [
                str(one.request),
                *(f"{one.lost[cause]:,.6g}" for cause in CAUSES),
                f"{one.allocatable:,.6g}",
                f"{one.allocatable + sum(one.lost.values()):,.6g}",
            ]
            for one in shapes
        ],
    )


def _fulfilled(shapes: list[Shape], types: list[str]) -> Figure:
    edges, x = _bars(shapes)
    shown, rest = types[:MOST_TYPES], types[MOST_TYPES:]
    layers = [
        (t, f"dot s{n}", np.array([float(one.by_type[t]) for one in shapes]))
        for n, t in enumerate(shown)
    ]
    if rest:
        others = np.array([float(sum(one.by_type[t] for t in rest)) for one in shapes])
        layers.append(("other types", "dot s7", others))
    top = max(1.0, *(float(one.fulfilled) for one in shapes))
    y = axes.linear("jobs that could start", 0.0, top, "count")
    return Figure(
        "Large jobs that could start now, by GPU type",
        charts.stacked("Jobs that could start: one bar for each request", edges, layers, x, y),
        ["request", *types, "all", "with types mixed"],
        [
            [
                str(one.request),
                *(f"{one.by_type[t]:,}" for t in types),
                f"{one.fulfilled:,}",
                f"{one.mixed:,}",
            ]
            for one in shapes
        ],
        note="@switch: all of a job under one access switch.",
    )
