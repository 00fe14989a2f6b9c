"""The report of `schedmate fleet diagnose`: why idle GPUs cannot be used (Figures 13 and 14)."""

from __future__ import annotations

from typing import Any

import numpy as np

from schedmate.report import charts
from schedmate.report.charts import Axis, Figure
from schedmate.report.page import embedded, render
from schedmate.schedulers.fleet.diagnosis import CAUSES, FleetDiagnosis, RequestDiagnosis

WORDS = {
    "fractional": "remainders of shared GPUs",
    "stranded": "stranded: too few are left together",
    "cpu": "CPUs used up",
    "memory": "memory used up",
    "topology": "not under one switch",
}
MOST_TYPES = 6


def fleet_page(
    diagnosis: FleetDiagnosis, document: dict[str, Any], name: str, command: str = ""
) -> str:
    """The whole report as HTML. `document`: as `--json` prints it."""
    types = _types(diagnosis)
    return render(
        "fleet",
        "charts",
        found=diagnosis,
        cluster=name,
        command=command,
        causes=list(WORDS.items()),
        figures=figures(diagnosis),
        types=types,
        nodes=document["nodes_that_matter"],
        data=embedded(document),
    )


def figures(diagnosis: FleetDiagnosis) -> list[Figure]:
    """Figure 13 for requests of one pod; for larger ones the same, and Figure 14."""
    single = [shape for shape in diagnosis.shapes if shape.request.pods == 1]
    large = [shape for shape in diagnosis.shapes if shape.request.pods > 1]
    return [
        *(
            [_lost_figure("Idle GPUs that a request cannot get, by cause", single)]
            if single
            else []
        ),
        *([_lost_figure("The same for jobs on many nodes", large)] if large else []),
        *([_fulfilled_figure(large, _types(diagnosis))] if large else []),
    ]


def _types(diagnosis: FleetDiagnosis) -> list[str]:
    """GPU types, those of which most requests could start first."""
    types = [name for name in diagnosis.snapshot.gpu_types if diagnosis.shapes and name]
    return sorted(types, key=lambda name: -max(shape.by_type[name] for shape in diagnosis.shapes))


def _bars(shapes: list[RequestDiagnosis]) -> tuple[charts.Floats, Axis]:
    """Edges of one bar a request, and the axis that names them."""
    names = tuple(str(one.request) for one in shapes)
    count = len(shapes)
    # a bar begins where its number is the nearest, so that it goes by its name
    edges = np.arange(count + 1, dtype=np.float64) - 0.45
    at = tuple(map(float, range(count)))
    return edges, Axis("request", -0.6, count - 0.35, at, "count", names=names)


def _lost_figure(title: str, shapes: list[RequestDiagnosis]) -> Figure:
    edges, x = _bars(shapes)
    heights = np.array([[shape.lost[cause] for shape in shapes] for cause in CAUSES])
    y = charts.linear_axis(
        "idle GPUs that it cannot get", 0.0, max(1.0, heights.sum(0).max()), "count"
    )
    layers = [
        (WORDS[cause], f"dot s{n}", heights[n])
        for n, cause in enumerate(CAUSES)
        if heights[n].any()
    ]
    return Figure(
        title,
        charts.stacked_bars(f"{title}: one bar for each request", edges, layers, x, y),
        ["request", *(WORDS[cause] for cause in CAUSES), "allocatable", "idle"],
        [
            [
                str(shape.request),
                *(f"{shape.lost[cause]:,.6g}" for cause in CAUSES),
                f"{shape.allocatable:,.6g}",
                f"{shape.allocatable + sum(shape.lost.values()):,.6g}",
            ]
            for shape in shapes
        ],
    )


def _fulfilled_figure(shapes: list[RequestDiagnosis], types: list[str]) -> Figure:
    edges, x = _bars(shapes)
    shown, rest = types[:MOST_TYPES], types[MOST_TYPES:]
    layers = [
        (t, f"dot s{n}", np.array([float(shape.by_type[t]) for shape in shapes]))
        for n, t in enumerate(shown)
    ]
    if rest:
        others = np.array([float(sum(shape.by_type[t] for t in rest)) for shape in shapes])
        layers.append(("other types", "dot s7", others))
    top = max(1.0, *(float(shape.fulfilled) for shape in shapes))
    y = charts.linear_axis("jobs that could start", 0.0, top, "count")
    return Figure(
        "Large jobs that could start now, by GPU type",
        charts.stacked_bars("Jobs that could start: one bar for each request", edges, layers, x, y),
        ["request", *types, "all", "with types mixed"],
        [
            [
                str(shape.request),
                *(f"{shape.by_type[t]:,}" for t in types),
                f"{shape.fulfilled:,}",
                f"{shape.mixed:,}",
            ]
            for shape in shapes
        ],
        note="@switch: all of a job under one access switch.",
    )
