"""Gantt chart: the job on each GPU, node by node, in a time span of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from schedmate.durations import format_duration
from schedmate.report.axes import Axis, Floats, linear
from schedmate.report.charts import WIDTH, x_ticks
from schedmate.report.page import shown
from schedmate.schedulers.model import Cluster
from schedmate.schedulers.sim.outcome.metrics import SIZES
from schedmate.schedulers.sim.outcome.results import Result
from schedmate.schedulers.sim.outcome.timeline import jobs_waiting

NODES = 16
"""Most nodes drawn."""
BARS = 1500
"""Most bars of a time range that was not chosen by hand."""
LIMIT = 4000
"""Most bars ever drawn; the longest are kept."""
LANES = 160
"""Most GPUs drawn."""
LANE, GAP, LABEL, EDGE = 5, 6, 92, 16
"""Heights of a GPU and between nodes, widths of the names and at the end [pixels]."""
NAME, SHORT = 14, 8
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
    last = max(float(one.jobs["end_s"].max()) for one in results) - origin
    lanes = np.cumsum([node.gpus for node in cluster.nodes])
    nodes = tuple(range(max(1, min(NODES, int(np.searchsorted(lanes, LANES, side="right"))))))
    if chosen is not None:
        return Window(chosen[0], chosen[1], nodes)
    waiting = jobs_waiting(first.jobs, first.segments)
    peak = float(waiting.time[int(np.argmax(waiting.value))]) - origin
    width = max(last, 1.0)
    while True:
        start = min(max(0.0, peak - width / 2), max(0.0, last - width))
        window = Window(start, start + width, nodes)
        if max(len(_inside(one, window)[0]) for one in results) <= BARS or width < 60:
            return window
        width /= 2


def gantt(result: Result, cluster: Cluster, window: Window) -> tuple[Markup, int]:
    """The chart of one run, and the number of short bars that were left out.

    A job that joined another on its GPUs is a bar of half the height over it.
    """
    tops, y = {}, GAP
    for node in window.nodes:
        tops[node] = y
        y += LANE * cluster.nodes[node].gpus + GAP
    x = linear("after the first submission", window.start, window.end, "duration")
    inside, start, end = _inside(result, window)
    kept = np.sort(inside[np.argsort(start[inside] - end[inside], kind="stable")][:LIMIT])
    # those that joined come last, over their partners
    kept = kept[np.argsort(result.segments["kind"][kept] == "packed", kind="stable")]
    left = x.place(start[kept], LABEL, WIDTH - EDGE).tolist()
    right = x.place(end[kept], LABEL, WIDTH - EDGE).tolist()
    columns = ("job", "kind", "node", "first_gpu", "gpus", "failed")
    rows = zip(*(result.segments[name][kept].tolist() for name in columns), strict=True)
    times = zip(left, right, start[kept].tolist(), end[kept].tolist(), strict=True)
    ids, asked = result.jobs["job_id"], result.jobs["gpus"]
    bars = []
    for row, (x0, x1, began, ended) in zip(rows, times, strict=True):
        job, kind, node, first, gpus, failed = row
        joined = kind == "packed"
        height = LANE * max(1.0, gpus)
        top = tops[node] + LANE * first
        bars.append(
            Markup(
                '<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}">'
                "<title>{}, {} GPUs, {}: {} to {}{}</title></rect>"
            ).format(
                f"{kind} {_size(int(asked[job]))}",
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
        f"{format_duration(window.end)}: {len(kept)} bars"
    )
    chart = Markup(
        '<svg class="chart gantt" viewBox="0 0 {} {}" role="img" aria-label="{}">{}{}{}</svg>'
    ).format(
        WIDTH, y + 26, shown(about), _nodes(cluster, tops), _ticks(x, y), Markup("").join(bars)
    )
    return chart, len(inside) - len(kept)


def _nodes(cluster: Cluster, tops: dict[int, int]) -> Markup:
    parts = []
    for position, top in tops.items():
        node = cluster.nodes[position]
        height = LANE * node.gpus
        parts.append(
            Markup(
                '<rect class="node" x="{}" y="{}" width="{}" height="{}"></rect>'
                '<text class="tick y long" x="{}" y="{:.0f}">{}</text>'
                '<text class="tick y short" aria-hidden="true" x="{}" y="{:.0f}">{}</text>'
            ).format(
                LABEL,
                top,
                WIDTH - EDGE - LABEL,
                height,
                LABEL - 6,
                top + height / 2 + 4,
                shown(f"{node.name} {node.gpu_type}".strip(), NAME),
                LABEL - 6,
                top + height / 2 + 4,
                _ending(shown(node.name, 200)),
            )
        )
    return Markup("").join(parts)


def _ending(name: str) -> str:
    """The end of a name, which distinguishes nodes."""
    return name if len(name) <= SHORT else "…" + name[1 - SHORT :]


def _ticks(x: Axis, y: int) -> Markup:
    start, end = LABEL, WIDTH - EDGE
    lines = "".join(f"M{float(x.place(tick, start, end)):.1f} 0V{y}" for tick in x.ticks)
    return Markup('<path class="grid" d="{}"></path>{}').format(
        lines, x_ticks(x, start, end, y + 18)
    )


def _size(gpus: int) -> str:
    """The style of a bar: that of the job's size class."""
    return next(f"z{n}" for n, (low, high, _) in enumerate(SIZES) if low <= gpus <= high)


def _inside(result: Result, window: Window) -> tuple[NDArray[np.int64], Floats, Floats]:
    """Rows of the segments that are drawn; starts and ends of all, after the first submission."""
    segments, origin = result.segments, float(result.jobs["submit_s"].min())
    start, end = segments["start_s"] - origin, segments["end_s"] - origin
    drawn = (start < window.end) & (end > window.start) & np.isin(segments["node"], window.nodes)
    return np.flatnonzero(drawn), start, end
