"""Curves and bars as SVG files of their own, drawn as in schedmate's reports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from _record import is_dry
from markupsafe import escape

from schedmate.report.charts import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Axis,
    Series,
    line_chart,
)

COLOURS = ("#1f5fbf", "#c2410c", "#15803d", "#7e22ce", "#0e7490", "#a16207", "#be185d", "#475569")
DASHES = ("", "7 3", "2 3", "9 3 2 3", "4 2", "1 3", "12 4", "6 2 1 2")
STYLE = "".join(
    f".line.s{n}{{stroke:{colour};stroke-dasharray:{dash or 'none'}}}"
    for n, (colour, dash) in enumerate(zip(COLOURS, DASHES, strict=True))
)
LEGEND = 18
FONT = "11px system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif"
SHARED = (
    f"text{{font:{FONT};fill:#334155}}.tick,.axis{{text-anchor:middle}}.axis.y{{text-anchor:start}}"
    ".tick.y{text-anchor:end}.grid{stroke:#cbd5e1;fill:none}.title{font-size:13px;font-weight:600}"
)
"""What all figures look like; the diagrams of docs/ have the same letters and background."""


def save(
    path: Path,
    title: str,
    series: Sequence[Series],
    axes: tuple[Axis, Axis],
    band: tuple[float, float, str] | None = None,
) -> None:
    """Write `series` to `path`; `band` marks a stretch of the y axis and says what it is."""
    chart = str(line_chart(title, series, *axes))
    inside = chart[chart.index(">") + 1 : chart.rindex("</svg>")]
    marked = ""
    if band is not None:
        low, high, words = band
        top, bottom = (float(axes[1].place(one, HEIGHT - BOTTOM, TOP)) for one in (high, low))
        marked = (
            f'<rect x="{LEFT}" y="{top:.1f}" width="{WIDTH - LEFT - RIGHT}" '
            f'height="{bottom - top:.1f}" fill="#facc15" fill-opacity=".3"/>'
            f'<text class="tick" x="{WIDTH - 150}" y="{top - 4:.1f}">{escape(words)}</text>'
        )
    legend = "".join(
        f'<path class="line s{one.style % 8}" d="M{LEFT} {y}h28"/>'
        f'<text class="name" x="{LEFT + 36}" y="{y + 4}">{escape(one.name)}</text>'
        for n, one in enumerate(series)
        for y in (HEIGHT + 28 + LEGEND * n,)
    )
    style = f".line{{fill:none;stroke-width:1.8}}{STYLE}"
    _write(path, title, f"{marked}{inside}{legend}", style, len(series))


def save_bars(path: Path, title: str, chart: str, names: Iterable[str]) -> None:
    """Write a chart of bars, whose n-th layer is called `names[n]`, to `path`."""
    inside = chart[chart.index(">") + 1 : chart.rindex("</svg>")]
    style = "".join(f".dot.s{n}{{fill:{colour}}}" for n, colour in enumerate(COLOURS))
    layers = list(names)
    legend = "".join(
        f'<rect class="dot s{n}" x="{LEFT}" y="{y - 8}" width="12" height="12"/>'
        f'<text x="{LEFT + 20}" y="{y + 2}">{escape(name)}</text>'
        for n, name in enumerate(layers)
        for y in (HEIGHT + 28 + LEGEND * n,)
    )
    _write(path, title, f"{inside}{legend}", style, len(layers))


def _write(path: Path, title: str, drawing: str, style: str, entries: int) -> None:
    """Write a figure with so many entries in its legend, unless nothing is to be kept."""
    if is_dry():
        return
    height = HEIGHT + 28 + LEGEND * entries
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 -24 {WIDTH} {height + 24}" '
        f'width="{WIDTH}" role="img" aria-label="{escape(title)}"><style>{SHARED}{style}</style>'
        f'<rect y="-24" width="{WIDTH}" height="{height + 24}" rx="10" fill="#fff"/>'
        f'<text class="title" x="8" y="-8">{escape(title)}</text>{drawing}</svg>\n',
        encoding="utf-8",
    )
