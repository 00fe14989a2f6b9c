"""The page of `schedmate parallel plan`: the frontier plotted and the pipeline drawn."""

from __future__ import annotations

import numpy as np
from markupsafe import Markup

from schedmate.report.charts import Series, dot_chart, linear_axis
from schedmate.report.page import render, shown
from schedmate.schedulers.parallelism.planner import Planning
from schedmate.schedulers.parallelism.predict import Prediction

_WIDTH, _LANE, _LEFT = 640, 26, 70
_MOST_LANES = 32


def parallel_page(planning: Planning) -> str:
    """The report of a planning as HTML."""
    return render(
        "parallel",
        "charts",
        found=planning,
        best=planning.best.proxy,
        frontier=_frontier(planning),
        pipeline=_pipeline(planning.best.proxy),
    )


def _frontier(planning: Planning) -> Markup:
    """Computation bias against communication load of every grid's frontier."""
    grids = [grid for grid in planning.grids if grid.frontier][:8]
    points = [plan for grid in grids for plan in grid.frontier]
    series = [
        Series(
            f"{grid.stages} stage{'s' * (grid.stages > 1)}",
            place,
            np.array([plan.bias for plan in grid.frontier]),
            np.array([plan.communication for plan in grid.frontier]),
        )
        for place, grid in enumerate(grids)
    ]
    x = linear_axis(
        "Computation bias (GPUs)", 0.0, max([plan.bias for plan in points] + [0.01]), "count"
    )
    most = max([plan.communication for plan in points] + [1e-6])
    y = linear_axis("Communication load", 0.0, most, "duration")
    return dot_chart("Plans that no other beats in both, by number of stages", series, x, y)


def _pipeline(best: Prediction) -> Markup:
    """The 1F1B schedule of the first micro-batches: a lane a stage, forward and backward blocks.

    Stages are drawn as long as the slowest one, which is the pace of the schedule.
    """
    stages = len(best.plan.stages)
    shown_batches = min(best.plan.micro_batches, 2 * stages + 2, 16)
    lanes = min(stages, _MOST_LANES)
    slots = 3 * (shown_batches + lanes - 1)
    unit = (_WIDTH - _LEFT - 10) / slots
    parts = []
    for lane in range(lanes):
        y = 10 + lane * _LANE
        parts.append(
            Markup('<text class="small" x="4" y="{}">stage {}</text>').format(y + 15, lane + 1)
        )
        for batch, (start, width, kind) in _lane(lane, lanes, shown_batches):
            parts.append(
                Markup(
                    '<rect class="{}" x="{:.1f}" y="{}" width="{:.1f}" height="{}">'
                    "<title>{} of micro-batch {}</title></rect>"
                ).format(
                    "dot s0" if kind == "forward" else "dot s1",
                    _LEFT + start * unit,
                    y,
                    max(1.0, width * unit - 1),
                    _LANE - 6,
                    shown(kind, 20),
                    batch + 1,
                )
            )
    return Markup(
        '<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>'
    ).format(
        _WIDTH,
        20 + lanes * _LANE,
        "1F1B schedule of the first micro-batches",
        Markup("").join(parts),
    )


def _lane(lane: int, lanes: int, batches: int) -> list[tuple[int, tuple[float, float, str]]]:
    """Blocks of a stage: a forward takes one slot, a backward two."""
    blocks = []
    ahead = lanes - lane
    order = [("forward", batch) for batch in range(min(ahead, batches))]
    for batch in range(batches):
        order.append(("backward", batch))
        if batch + ahead < batches:
            order.append(("forward", batch + ahead))
    clock = 0.0
    for kind, batch in order:
        earliest = (
            (lane + batch) if kind == "forward" else lanes + 2 * (lanes - 1 - lane) + 3 * batch
        )
        start = max(clock, float(earliest))
        width = 1.0 if kind == "forward" else 2.0
        blocks.append((batch, (start, width, kind)))
        clock = start + width
    return blocks
