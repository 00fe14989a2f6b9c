"""Line charts, intervals and densities as inline SVG: no library, no script, nothing fetched.

Text in a chart goes through `shown` and is escaped. Looks are the style sheet's: series n has the
class `s{n}`, which differs from others by dash as well as by colour.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import NDArray

from schedmate.report.page import shown

WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 68, 16, 10, 42
NAMES = 216
"""Width left for names of rows."""
STYLES = 8
"""Different looks of series; further ones begin anew."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Axis:
    """What one direction of a chart means: `kind` says how its values are written."""

    label: str
    low: float
    high: float
    ticks: tuple[float, ...]
    kind: str
    log: bool = False
    names: tuple[str, ...] = ()
    """Of the values 0, 1, ..., where they stand for things."""

    def place(self, values: Any, start: float, end: float) -> Floats:
        """Where values lie between the pixels `start` and `end`; those beyond it, at its end."""
        scale = np.log if self.log else np.asarray
        low, high = float(scale(self.low)), float(scale(self.high))
        inside = np.clip(np.asarray(values, dtype=float), self.low, self.high)
        return start + (scale(inside) - low) / (high - low) * (end - start)

    def text(self, value: float) -> str:
        """A value as people read it."""
        return self.names[round(value)] if self.names else _TEXTS[self.kind](value)


def _duration(seconds: float) -> str:
    days, rest = divmod(seconds, 86_400.0)
    if days and rest >= 3600 and rest % 3600 < 1:
        return f"{days:.0f} d {rest / 3600:.0f} h"
    for size, unit in ((86_400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def factor(score: float) -> str:
    """What a term of a logarithm does: `x 1.20` or `: 1.50`."""
    return f"x {math.exp(score):.2f}" if score >= 0 else f": {math.exp(-score):.2f}"


_TEXTS: dict[str, Callable[[float], str]] = {
    "duration": _duration,
    "count": lambda value: f"{value:,.6g}",
    "share": lambda value: f"{100 * value:.3g} %",
    "ratio": lambda value: f"{value:.3g}x",
    "hours": lambda value: f"{value:,.4g} h",
    "effect": factor,
    "logarithm": lambda value: _duration(math.expm1(max(value, 0.0))),
}
_STEPS = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, *(3600 * n for n in (1, 2, 3, 6, 12, 24)))
"""Round steps of time below a day [s]."""
_TIMES = (1, 10, 60, 600, 3600, 6 * 3600, 86_400, 7 * 86_400, 30 * 86_400, 365 * 86_400)


def log_durations(label: str, low: float, high: float) -> Axis:
    """Times [s] on a logarithmic axis."""
    low, high = max(1.0, low), max(10.0, high, 1.0001 * low)
    ticks = tuple(float(one) for one in _TIMES if low <= one <= high)
    return Axis(label, low, high, ticks, "duration", log=True)


def log_ratios(label: str, low: float, high: float) -> Axis:
    """Factors on a logarithmic axis."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    ticks = tuple(10.0**n for n in range(first, last + 1))
    return Axis(label, ticks[0], ticks[-1], ticks, "ratio", log=True)


def linear(label: str, low: float, high: float, kind: str) -> Axis:
    """A linear axis with about five round ticks."""
    rough = max(high - low, 1e-9) / 5
    unit = 86_400.0 if kind == "duration" and rough >= 86_400 else 1.0
    power = unit * 10.0 ** math.floor(math.log10(rough / unit))
    steps = (
        _STEPS if kind == "duration" and 1 <= rough < 86_400 else [power * n for n in (1, 2, 5, 10)]
    )
    step = min(steps, key=lambda one: abs(one - rough))
    high = max(high, low + step)
    first = math.ceil(low / step - 1e-9)
    ticks = tuple(step * n for n in range(first, math.floor(high / step + 1e-9) + 1))
    return Axis(label, low, high, ticks, kind)


SHARE = Axis("share of jobs", 0.0, 1.0, (0.0, 0.25, 0.5, 0.75, 1.0), "share")


@dataclass(frozen=True)
class Series:
    """One curve; with `steps`, `y[i]` holds from `x[i]` to `x[i + 1]`, else points are joined."""

    name: str
    style: int
    x: Floats
    y: Floats
    steps: bool = False


def lines(about: str, series: Sequence[Series], x: Axis, y: Axis) -> Markup:
    """Curves over one another. `about` says in words what is to be seen."""
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


def intervals(about: str, rows: Sequence[tuple[str, int, float, float, float]], x: Axis) -> Markup:
    """One row each: name, style, middle, low and high end of an interval."""
    height = 26 * len(rows) + 46
    zero = x.place(0.0, NAMES, WIDTH - RIGHT)
    parts = [Markup('<path class="zero" d="M{:.1f} 4V{}"></path>').format(float(zero), height - 38)]
    for row, (name, style, middle, low, high) in enumerate(rows):
        m, a, b = (float(x.place(one, NAMES, WIDTH - RIGHT)) for one in (middle, low, high))
        y = 20 + 26 * row
        parts.append(
            Markup(
                '<g class="s{0}"><title>{1}: {2} ({3} to {4})</title>'
                '<text class="name" x="{10}" y="{5}">{1}</text>'
                '<path class="line s{0} solid" d="M{6:.1f} {7}H{8:.1f}"></path>'
                '<circle class="dot s{0}" cx="{9:.1f}" cy="{7}" r="4"></circle></g>'
            ).format(
                style % STYLES,
                escape(shown(name, 32)),
                *(x.text(one) for one in (middle, low, high)),
                y + 4,
                a,
                y,
                b,
                m,
                NAMES - 8,
            )
        )
    ticks = [
        Markup('<text x="{:.1f}" y="{}" class="tick">{}</text>').format(
            float(x.place(tick, NAMES, WIDTH - RIGHT)), height - 22, x.text(tick)
        )
        for tick in x.ticks
    ]
    caption = Markup('<text x="{}" y="{}" class="axis">{}</text>').format(
        (NAMES + WIDTH - RIGHT) / 2, height - 4, x.label
    )
    return Markup(
        '<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}{}{}</svg>'
    ).format(WIDTH, height, shown(about), Markup("").join(parts), Markup("").join(ticks), caption)


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
    grid, ticks = [], []
    for tick in x.ticks:
        at = float(x.place(tick, LEFT, right))
        grid.append(f"M{at:.1f} {TOP}V{bottom}")
        ticks.append(_text(at, bottom + 16, "tick", x.text(tick)))
    for tick in y.ticks:
        at = float(y.place(tick, bottom, TOP))
        grid.append(f"M{LEFT} {at:.1f}H{right}")
        ticks.append(_text(LEFT - 6, at + 4, "tick y", y.text(tick)))
    ticks.append(_text((LEFT + right) / 2, HEIGHT - 6, "axis", x.label))
    ticks.append(
        Markup('<text class="axis" transform="translate(12 {}) rotate(-90)">{}</text>').format(
            (TOP + bottom) / 2, shown(y.label, 60)
        )
    )
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


def _text(x: float, y: float, kind: str, text: str) -> Markup:
    return Markup('<text class="{}" x="{:.1f}" y="{:.1f}">{}</text>').format(
        kind, x, y, shown(text, 60)
    )


def _path(x: Floats, y: Floats, steps: bool) -> str:
    """Path data; points that a straight line passes through anyway are left out."""
    px, py = np.round(x, 1), np.round(y, 1)
    turns = np.ones(len(px), dtype=bool)
    turns[1:-1] = (py[1:-1] != py[:-2]) | (py[1:-1] != py[2:])
    px, py = px[turns], py[turns]
    points = list(zip(px.tolist(), py.tolist(), strict=True))
    draw = "H{:g}V{:g}" if steps else "L{:g} {:g}"
    return "M{:g} {:g}".format(*points[0]) + "".join(draw.format(*one) for one in points[1:])
