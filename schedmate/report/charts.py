"""Draws charts as inline SVG: no library, no script, nothing fetched.

Curves, dots, bars, densities, grids and intervals come first; then axes, which say where values
are and how they are written, and which values get a tick.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import MAXYEAR, UTC, datetime
from itertools import count
from typing import Any

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import NDArray

from schedmate.base.inputs import moment_of
from schedmate.report.page import shown

MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
_TIME_UNITS = ((DAY, "d"), (HOUR, "h"), (MINUTE, "min"))
_TIME_STEPS = (
    *(1.0, 2.0, 5.0, 10.0, 30.0),
    *(MINUTE * n for n in (1, 2, 5, 10, 30)),
    *(HOUR * n for n in (1, 2, 3, 6, 12, 24)),
)
"""Round steps of time up to a day [s]."""
_COARSE_TIMES = (1.0, 10.0, MINUTE, 10 * MINUTE, HOUR, 6 * HOUR, DAY, 7 * DAY, 30 * DAY, 365 * DAY)
_FINE_TIMES = (
    *(n * unit for unit in (1.0, MINUTE) for n in (1, 2, 5, 10, 20, 30)),
    *(HOUR * n for n in (1, 2, 3, 6, 12)),
    *(DAY * n for n in (1, 2, 3, 7, 14, 30, 60, 90, 180, 365, 730, 1825, 3650)),
)
"""Round times of a logarithmic axis [s]."""
_FACTORS = ((1.0,), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 5.0, 7.0))
"""Round factors from 1 up to 10, ever closer."""
MOST_TICKS, MOST_DATES = 8, 6
"""Ticks that a chart has room for, and such as are dates."""


def linear_step(low: float, high: float, *, of_time: bool) -> float:
    """The round step with about five ticks."""
    rough = max(high - low, 1e-9) / 5
    unit = DAY if of_time and rough >= DAY else 1.0
    power = unit * 10.0 ** math.floor(math.log10(rough / unit))
    round_ones = _TIME_STEPS if of_time and 1 <= rough < DAY else [power * n for n in (1, 2, 5, 10)]
    return min(round_ones, key=lambda one: abs(one - rough))


def multiples(step: float, low: float, high: float) -> tuple[float, ...]:
    """The multiples of a step from `low` to `high`."""
    first = math.ceil(low / step - 1e-9)
    return tuple(step * n for n in range(first, math.floor(high / step + 1e-9) + 1))


def round_times(low: float, high: float) -> tuple[float, ...]:
    """Round times [s] for a logarithmic axis from `low` to `high`."""
    for times in (_COARSE_TIMES, _FINE_TIMES):
        inside = tuple(one for one in times if low <= one <= high)
        if len(inside) >= 3:
            return inside
    return _thinned(multiples(linear_step(low, high, of_time=True), low, high))


def _thinned(ticks: Sequence[float], most: int = MOST_TICKS) -> tuple[float, ...]:
    return tuple(ticks[:: math.ceil(len(ticks) / most)] if ticks else ())


def are_round(times: Sequence[float]) -> bool:
    """Whether all times [s] are round in the sense of `round_times`, each in its own unit."""
    return all(one in _COARSE_TIMES or one in _FINE_TIMES for one in times)


def round_factors(low: float, high: float) -> tuple[float, ...]:
    """Round factors from `low` to `high`, both above 0; 1/2 is as round as 2."""
    for digits in _FACTORS:
        most = math.ceil(max(math.log10(high), -math.log10(low), 0.0))
        above = {digit * 10.0**power for power in range(most + 1) for digit in digits}
        inside = sorted(
            factor for factor in above | {1 / factor for factor in above} if low <= factor <= high
        )
        if len(inside) >= 3:
            return _thinned(inside)
    step = linear_step(1.0, max(high, 1 / low), of_time=False)
    near = multiples(step, 0.0, max(high, 1 / low) - 1.0)
    inside = sorted(
        {factor for n in near for factor in (1 + n, 1 / (1 + n)) if low <= factor <= high}
    )
    if len(inside) >= 2:
        return _thinned(inside)
    return _thinned(multiples(linear_step(low, high, of_time=False), low, high))


def round_moments(low: float, high: float) -> tuple[float, ...]:
    """Round moments [s since epoch, UTC]: hours, days, or the first days of months or years."""
    span = high - low
    if span <= 90 * DAY:
        step = max(MINUTE, linear_step(low, high, of_time=True))
        if step > DAY:
            step = next(n * DAY for n in (2, 3, 4, 7, 14, 28) if span <= (MOST_DATES - 1) * n * DAY)
        return _thinned(multiples(step, low, high), MOST_DATES)
    months = next((n for n in (1, 3, 6, 12) if span <= (MOST_DATES - 1) * n * 31 * DAY), 0)
    months = months or 12 * math.ceil(span / (MOST_DATES * 366 * DAY))
    first = moment_of(low).year
    moments: list[float] = []
    for month in count(0, months):
        moment = datetime(1, 1, 1, tzinfo=UTC).replace(
            year=max(1, first - first % max(1, months // 12)) + month // 12, month=1 + month % 12
        )
        if (at := moment.timestamp()) > high or moment.year + months // 12 >= MAXYEAR - 1:
            return _thinned(moments, MOST_DATES)
        if at >= low:
            moments.append(at)
    raise AssertionError  # months have no largest unit


def duration_labels(ticks: Sequence[float]) -> list[str]:
    """Times [s] in the largest unit of which all are whole multiples.

    If the numbers would be large, in two units as on a clock: `1 d 06 h`, `2:30 h`.
    """
    whole = [round(seconds) for seconds in ticks]
    if any(abs(seconds - round(seconds)) > 1e-3 for seconds in ticks):
        return [f"{seconds:,.9g} s" for seconds in ticks]
    size, unit = next(
        (
            (int(size), unit)
            for size, unit in _TIME_UNITS
            if not any(seconds % size for seconds in whole)
        ),
        (1, "s"),
    )
    most = max(map(abs, whole), default=0)
    if unit in ("h", "min") and most >= 4 * DAY:
        clock = "{0} d {1:02d} h" if unit == "h" else "{0} d {1:02d}:{2:02d}"
    elif unit == "min" and most > 3 * HOUR:
        clock = "{3}:{2:02d} h"
    elif unit == "s" and most > 5 * MINUTE:
        clock = "{3}:{2:02d}:{4:02d} h" if most >= HOUR else "{2}:{4:02d} min"
    else:
        return [f"{seconds // size:,} {unit}" for seconds in whole]
    return [
        clock.format(
            seconds // 86_400,
            seconds // 3600 % 24,
            seconds // 60 % 60,
            seconds // 3600,
            seconds % 60,
        )
        for seconds in whole
    ]


def date_labels(ticks: Sequence[float]) -> list[str]:
    """Moments [s since epoch] as years, months, days or minutes of UTC, all in one form."""
    dates = [moment_of(one) for one in ticks]
    if any(one % DAY for one in ticks):
        days = {one.date() for one in dates}
        return [f"{one:%H:%M}" if len(days) == 1 else f"{one:%m-%d %H:%M}" for one in dates]
    if any(one.day != 1 for one in dates) or len(dates) < 2:
        return [f"{one:%Y-%m-%d}" for one in dates]
    if any(one.month != 1 for one in dates):
        return [f"{one:%Y-%m}" for one in dates]
    return [f"{one:%Y}" for one in dates]


# Axes of charts: positions of values, ticks, and how values are written.


Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Axis:
    """One direction of a chart: `kind` says how its values are written."""

    label: str
    low: float
    high: float
    ticks: tuple[float, ...]
    kind: str
    log: bool = False
    names: tuple[str, ...] = ()
    """An axis of categories, at 0, 1, ..."""

    def place(self, values: Any, start: float, end: float) -> Floats:
        """Where values lie between the pixels `start` and `end`; those beyond it, at its end."""
        scale = np.log if self.log else np.asarray
        low, high = float(scale(self.low)), float(scale(self.high))
        inside = np.clip(np.asarray(values, dtype=float), self.low, self.high)
        return start + (scale(inside) - low) / (high - low) * (end - start)

    def text(self, value: float) -> str:
        """A value as people read it."""
        return self.names[round(value)] if self.names else _TEXTS[self.kind](value)

    def labels(self) -> Sequence[str]:
        """The texts of the ticks.

        Those of a linear axis of times have one unit; those of a logarithmic one, each its own.
        """
        if self.kind == "logarithm":
            return _log_times([math.expm1(one) for one in self.ticks])
        if self.kind == "duration" and self.log:
            return _log_times(self.ticks)
        write = None if self.names else _LABELS.get(self.kind)
        return [self.text(one) for one in self.ticks] if write is None else write(self.ticks)


def _duration_text(seconds: float) -> str:
    for size, unit in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def factor_text(score: float) -> str:
    """What a term of a logarithm does: `x 1.20` or `: 1.50`."""
    return f"x {math.exp(score):.2f}" if score >= 0 else f": {math.exp(-score):.2f}"


def _moment_text(seconds: float) -> str:
    return f"{moment_of(seconds):%Y-%m-%d %H:%M}"


def _ratio_text(value: float) -> str:
    return f"{value:,.0f}x" if value >= 100 else f"{value:.3g}x"


def _hours_text(value: float) -> str:
    if 0 < abs(value) < 0.01:
        return "0.00 h"
    return f"{value:,.0f} h" if abs(value) >= 100 else f"{value:.3g} h"


_TEXTS: dict[str, Callable[[float], str]] = {
    "duration": _duration_text,
    "count": lambda value: f"{value:,.6g}",
    "share": lambda value: f"{100 * value:.3g} %",
    "ratio": _ratio_text,
    "hours": _hours_text,
    "time": _moment_text,
    "effect": factor_text,
    "logarithm": lambda value: _duration_text(math.expm1(max(value, 0.0))),
}


def _log_times(times: Sequence[float]) -> Sequence[str]:
    """Labels of a logarithmic time axis: round times in their own unit, all others in one."""
    whole = [float(round(one)) for one in times]
    return [_duration_text(one) for one in whole] if are_round(whole) else duration_labels(whole)


_LABELS: dict[str, Callable[[Sequence[float]], Sequence[str]]] = {
    "duration": duration_labels,
    "time": date_labels,
    "effect": lambda scores: [
        f"{'x' if one >= 0 else ':'} {float(f'{math.exp(abs(one)):.4g}'):,g}" for one in scores
    ],
}


def log_duration_axis(label: str, low: float, high: float) -> Axis:
    """Times [s] on a logarithmic axis."""
    low, high = max(1.0, low), max(10.0, high, 1.0001 * low)
    return Axis(label, low, high, round_times(low, high), "duration", log=True)


def logarithm_axis(label: str, low: float, high: float) -> Axis:
    """Values of log(1 + time [s]); its ticks are round times."""
    high = max(high, low + 1e-6)
    times = round_times(math.expm1(max(low, 0.0)), math.expm1(max(high, 0.0)))
    return Axis(label, low, high, tuple(map(math.log1p, times)), "logarithm")


def log_ratio_axis(label: str, low: float, high: float) -> Axis:
    """Factors on a logarithmic axis."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    powers = tuple(10.0**n for n in range(first, last + 1))
    return Axis(label, powers[0], powers[-1], powers, "ratio", log=True)


def effect_axis(label: str, low: float, high: float) -> Axis:
    """Logarithms of factors; its ticks are round factors."""
    high = max(high, low + 1e-6)
    factors = round_factors(math.exp(low), math.exp(high))
    return Axis(label, low, high, tuple(map(math.log, factors)), "effect")


def linear_axis(label: str, low: float, high: float, kind: str) -> Axis:
    """A linear axis with about five round ticks."""
    if kind == "time":
        high = max(high, low + 1.0)
        return Axis(label, low, high, round_moments(low, high), kind)
    step = linear_step(low, high, of_time=kind == "duration")
    high = max(high, low + step)
    return Axis(label, low, high, multiples(step, low, high), kind)


SHARE_AXIS = Axis("share of jobs", 0.0, 1.0, (0.0, 0.25, 0.5, 0.75, 1.0), "share")


# Line charts, intervals and densities as inline SVG: no library, no script, nothing fetched.
#
# Text in a chart goes through `shown` and is escaped. The style sheet defines the looks: series n
# has the class `s{n}`, which differs from others by dash as well as by colour.


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
    """A chart, and a table of its numbers."""

    title: str
    chart: Markup
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    legend: Markup | None = None
    """Which curve is what, where there are several."""


def legend(names: Sequence[str]) -> Markup:
    """What the curves of the styles 0, 1, ... are."""
    sample = Markup(
        '<span><svg class="sample" viewBox="0 0 28 8" width="28" height="8" aria-hidden="true">'
        '<path class="line s{}" d="M0 4H28"></path></svg> {}</span> '
    )
    parts = (sample.format(n % STYLES, shown(name, 60)) for n, name in enumerate(names))
    return Markup('<span class="legend">{}</span>').format(Markup("").join(parts))


def line_chart(about: str, series: Sequence[Series], x: Axis, y: Axis) -> Markup:
    """Curves in one chart. `about` describes it in words."""
    paths = []
    for curve in series:
        px = x.place(curve.x, LEFT, WIDTH - RIGHT)
        py = y.place(curve.y, HEIGHT - BOTTOM, TOP)
        name = escape(shown(curve.name, 80))
        paths.append(
            Markup('<path class="line s{}" data-name="{}" d="{}"><title>{}</title></path>').format(
                curve.style % STYLES, name, _path(px, py, curve.steps), name
            )
        )
    return _svg(about, x, y, Markup("").join(paths), "curves")


def dot_chart(about: str, series: Sequence[Series], x: Axis, y: Axis) -> Markup:
    """Curves over one another with a dot at every point."""
    marks = []
    for curve in series:
        px = x.place(curve.x, LEFT, WIDTH - RIGHT)
        py = y.place(curve.y, HEIGHT - BOTTOM, TOP)
        name = escape(shown(curve.name, 80))
        marks.append(
            Markup('<path class="line s{}" d="{}"><title>{}</title></path>').format(
                curve.style % STYLES, _path(px, py, curve.steps), name
            )
        )
        marks += [
            Markup(
                '<circle class="dot s{}" cx="{:.1f}" cy="{:.1f}" r="4"><title>{}</title></circle>'
            ).format(curve.style % STYLES, across, down, name)
            for across, down in zip(px.tolist(), py.tolist(), strict=True)
        ]
    return _svg(about, x, y, Markup("").join(marks), "dots")


def cdf_chart(values: Floats, x: Axis) -> tuple[Floats, Floats]:
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


def stacked_bars(
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


def density_chart(about: str, first: Floats, second: Floats, axes: tuple[Axis, Axis]) -> Markup:
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


def heat_map(
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


# Charts of intervals: a row each, its name and value over it.


INTERVAL_EDGE, INTERVAL_ROW = 28, 52
"""Space left and right, and the height of a row."""


def interval_chart(
    about: str, rows: Sequence[tuple[str, int, float, float, float]], x: Axis
) -> Markup:
    """One row each: name, style, middle, low and high end of an interval."""
    height = INTERVAL_ROW * len(rows) + BOTTOM
    start, end = INTERVAL_EDGE, WIDTH - INTERVAL_EDGE
    lines = [f"M{float(x.place(one, start, end)):.1f} 4V{height - BOTTOM + 4}" for one in x.ticks]
    parts = [
        Markup(
            '<path class="grid" d="{}"></path><path class="zero" d="M{:.1f} 4V{}"></path>'
        ).format("".join(lines), float(x.place(0.0, start, end)), height - BOTTOM + 4)
    ]
    for row, (name, style, middle, low, high) in enumerate(rows):
        m, a, b = (float(x.place(one, start, end)) for one in (middle, low, high))
        y = INTERVAL_ROW * row
        values = [x.text(one) for one in (middle, low, high)]
        parts.append(
            Markup(
                '<g class="s{s}"><title>{name}: {v[0]} ({v[1]} to {v[2]})</title>'
                '<text class="name" x="{left}" y="{text}">{name}</text>'
                '<text class="value" x="{right}" y="{text}">{v[0]}</text>'
                '<path class="line s{s} solid" d="M{a:.1f} {y}H{b:.1f}"></path>'
                '<circle class="dot s{s}" cx="{m:.1f}" cy="{y}" r="5"></circle></g>'
            ).format(
                s=style % STYLES,
                name=shown(name, 34),
                v=values,
                left=start,
                right=end,
                text=y + 22,
                y=y + 38,
                a=a,
                b=b,
                m=m,
            )
        )
    ticks = x_ticks(x, start, end, height - BOTTOM + 22)
    caption = text_at((start + end) / 2, height - 6, "axis", x.label)
    return Markup(
        '<svg class="chart intervals" viewBox="0 0 {} {}" role="img" aria-label="{}">{}{}{}</svg>'
    ).format(WIDTH, height, shown(about), Markup("").join(parts), ticks, caption)
