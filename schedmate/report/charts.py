"""Line charts, intervals and densities as inline SVG: no library, no script, nothing fetched.

Text in a chart goes through `shown` and is escaped. The style sheet defines the looks: series n has
the class `s{n}`, which differs from others by dash as well as by colour.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup, escape

from schedmate.report.axes import Axis, Floats
from schedmate.report.page import shown

WIDTH, HEIGHT = 640, 320
LEFT, RIGHT, TOP, BOTTOM = 82, 34, 36, 50
STYLES = 8
"""Different looks of series, which repeat beyond this number."""


@dataclass(frozen=True)
class Series:
    """One curve; with `steps`, `y[i]` holds from `x[i]` to `x[i + 1]`, else points are joined."""

    name: str
    style: int
    x: Floats
    y: Floats
    steps: bool = False


@dataclass(frozen=True)
class Figure:
    """A chart, and the same in numbers."""

    title: str
    chart: Markup
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


def lines(about: str, series: Sequence[Series], x: Axis, y: Axis) -> Markup:
    """Curves in one chart. `about` describes it in words."""
    paths = []
    for one in series:
        px = x.place(one.x, LEFT, WIDTH - RIGHT)
        py = y.place(one.y, HEIGHT - BOTTOM, TOP)
        name = escape(shown(one.name, 80))
        paths.append(
            Markup('<path class="line s{}" data-name="{}" d="{}"><title>{}</title></path>').format(
                one.style % STYLES, name, _path(px, py, one.steps), name
            )
        )
    return _svg(about, x, y, Markup("").join(paths), "curves")


def dotted(about: str, series: Sequence[Series], x: Axis, y: Axis) -> Markup:
    """Curves over one another with a dot at every point."""
    marks = []
    for one in series:
        px = x.place(one.x, LEFT, WIDTH - RIGHT)
        py = y.place(one.y, HEIGHT - BOTTOM, TOP)
        name = escape(shown(one.name, 80))
        marks.append(
            Markup('<path class="line s{}" d="{}"><title>{}</title></path>').format(
                one.style % STYLES, _path(px, py, one.steps), name
            )
        )
        marks += [
            Markup(
                '<circle class="dot s{}" cx="{:.1f}" cy="{:.1f}" r="4"><title>{}</title></circle>'
            ).format(one.style % STYLES, across, down, name)
            for across, down in zip(px.tolist(), py.tolist(), strict=True)
        ]
    return _svg(about, x, y, Markup("").join(marks), "dots")


def cdf(values: Floats, x: Axis) -> tuple[Floats, Floats]:
    """The share of values at most x, exact at every half pixel of the axis."""
    at = np.linspace(0, 1, 2 * (WIDTH - LEFT - RIGHT) + 1)
    where = (
        np.exp(math.log(x.low) + at * math.log(x.high / x.low))
        if x.log
        else (x.low + at * (x.high - x.low))
    )
    where[-1] = x.high
    ordered = np.sort(values)
    return where, np.searchsorted(ordered, where * (1 + 1e-12), side="right") / len(ordered)


def stacked(
    about: str, edges: Floats, layers: Sequence[tuple[str, str, Floats]], x: Axis, y: Axis
) -> Markup:
    """Bars from each edge to the next, of layers: name, class of the style sheet, heights."""
    places = x.place(edges, LEFT, WIDTH - RIGHT)
    below = np.zeros(len(edges) - 1)
    bars = []
    for name, style, heights in layers:
        tops, bottoms = (y.place(one, HEIGHT - BOTTOM, TOP) for one in (below + heights, below))
        below = below + heights
        for n in np.flatnonzero(heights).tolist():
            bar = Markup(
                '<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}">'
                "<title>{}: {} from {}</title></rect>"
            ).format(
                style,
                places[n],
                tops[n],
                max(1.0, places[n + 1] - places[n] - 1),
                bottoms[n] - tops[n],
                shown(name, 60),
                y.text(float(heights[n])),
                x.text(float(edges[n])),
            )
            bars.append(bar)
    return _svg(about, x, y, Markup("").join(bars), "bars")


def density(about: str, first: Floats, second: Floats, axes: tuple[Axis, Axis]) -> Markup:
    """How many of the pairs lie where, in squares of five shades; few pairs as points."""
    x, y = axes
    box = (LEFT, WIDTH - RIGHT, HEIGHT - BOTTOM, TOP)
    diagonal = Markup('<path class="zero" d="M{0} {2}L{1} {3}"></path>').format(*box)
    px, py = x.place(first, *box[:2]), y.place(second, *box[2:])
    if len(px) <= 800:
        marks = [
            Markup('<circle class="point" cx="{:.1f}" cy="{:.1f}" r="2"></circle>').format(a, b)
            for a, b in zip(px.tolist(), py.tolist(), strict=True)
        ]
        return _svg(about, x, y, diagonal + Markup("").join(marks), "points")
    size = 5
    cells, counts = np.unique(
        np.stack(((px - LEFT) // size, (py - TOP) // size)).astype(int), axis=1, return_counts=True
    )
    shades = np.minimum(4, (5 * np.log1p(counts) / math.log1p(counts.max())).astype(int))
    marks = [
        Markup(
            '<rect class="d{}" x="{}" y="{}" width="{s}" height="{s}"><title>{:,}</title></rect>'
        ).format(shade, LEFT + size * a, TOP + size * b, count, s=size)
        for (a, b), count, shade in zip(
            cells.T.tolist(), counts.tolist(), shades.tolist(), strict=True
        )
    ]
    return _svg(about, x, y, Markup("").join(marks) + diagonal, "density")


def heat(
    about: str, values: Floats, axes: tuple[Axis, Axis], text: Callable[[float], str]
) -> Markup:
    """A value for each cell of a grid over both axes (columns x rows), more and less than zero.

    `text` writes a value.
    """
    x, y = axes
    px = np.linspace(LEFT, WIDTH - RIGHT, values.shape[0] + 1)
    py = np.linspace(HEIGHT - BOTTOM, TOP, values.shape[1] + 1)
    most = float(np.abs(values).max()) or 1.0
    marks = [
        Markup(
            '<rect class="{} d{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}">'
            "<title>{}</title></rect>"
        ).format(
            "more" if value > 0 else "less",
            min(4, int(5 * abs(value) / most)),
            px[column],
            py[row + 1],
            px[column + 1] - px[column],
            py[row] - py[row + 1],
            text(value),
        )
        for column, cells in enumerate(values.tolist())
        for row, value in enumerate(cells)
        if abs(value) > most / 100
    ]
    return _svg(about, x, y, Markup("").join(marks), "heat")


def _svg(about: str, x: Axis, y: Axis, inside: Markup, kind: str) -> Markup:
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    grid = [f"M{float(x.place(tick, LEFT, right)):.1f} {TOP}V{bottom}" for tick in x.ticks]
    ticks = [x_ticks(x, LEFT, right, bottom + 20)]
    for tick, label in zip(y.ticks, y.labels(), strict=True):
        at = float(y.place(tick, bottom, TOP))
        grid.append(f"M{LEFT} {at:.1f}H{right}")
        ticks.append(text_at(LEFT - 8, at + 5, "tick y", label))
    ticks.append(text_at((LEFT + right) / 2, HEIGHT - 6, "axis", x.label))
    ticks.append(text_at(4, 18, "axis y", y.label))
    focus = Markup(' tabindex="0"') if kind == "curves" else ""
    return Markup(
        '<svg class="chart {kind}" viewBox="0 0 {w} {h}" role="img" aria-label="{about}"{focus} '
        'data-x="{xl} {xh} {xk} {xg}" data-y="{yl} {yh} {yk}" data-box="{l} {r} {b} {t}">'
        '<path class="grid" d="{grid}"></path>{inside}{ticks}</svg>'
    ).format(
        kind=kind,
        w=WIDTH,
        h=HEIGHT,
        about=shown(about),
        focus=focus,
        xl=f"{x.low:.9g}",
        xh=f"{x.high:.9g}",
        xk=x.kind,
        xg="log" if x.log else "linear",
        yl=f"{y.low:.9g}",
        yh=f"{y.high:.9g}",
        yk=y.kind,
        l=LEFT,
        r=right,
        b=bottom,
        t=TOP,
        grid="".join(grid),
        inside=inside,
        ticks=Markup("").join(ticks),
    )


def x_ticks(x: Axis, start: float, end: float, y: float) -> Markup:
    """The labels of a horizontal axis; where space is short, every second one is hidden."""
    return Markup("").join(
        text_at(float(x.place(tick, start, end)), y, "tick odd" if n % 2 else "tick", label)
        for n, (tick, label) in enumerate(zip(x.ticks, x.labels(), strict=True))
    )


def text_at(x: float, y: float, kind: str, text: str) -> Markup:
    return Markup('<text class="{}" x="{:.1f}" y="{:.1f}">{}</text>').format(
        kind, x, y, shown(text, 60)
    )


def _path(x: Floats, y: Floats, steps: bool) -> str:
    """Path data, without points that lie on a straight line between others."""
    px, py = np.round(x, 1), np.round(y, 1)
    turns = np.ones(len(px), dtype=bool)
    turns[1:-1] = (py[1:-1] != py[:-2]) | (py[1:-1] != py[2:])
    px, py = px[turns], py[turns]
    points = list(zip(px.tolist(), py.tolist(), strict=True))
    draw = "H{:g}V{:g}" if steps else "L{:g} {:g}"
    return "M{:g} {:g}".format(*points[0]) + "".join(draw.format(*one) for one in points[1:])
