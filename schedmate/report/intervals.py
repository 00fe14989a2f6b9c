"""Charts of intervals: a row each, its name and value over it."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from schedmate.report.axes import Axis
from schedmate.report.charts import BOTTOM, STYLES, WIDTH, text_at, x_ticks
from schedmate.report.page import shown

EDGE, ROW = 28, 52
"""Space left and right, and the height of a row."""


def intervals(about: str, rows: Sequence[tuple[str, int, float, float, float]], x: Axis) -> Markup:
    """One row each: name, style, middle, low and high end of an interval."""
    height = ROW * len(rows) + BOTTOM
    start, end = EDGE, WIDTH - EDGE
    lines = [f"M{float(x.place(one, start, end)):.1f} 4V{height - BOTTOM + 4}" for one in x.ticks]
    parts = [
        Markup(
            '<path class="grid" d="{}"></path><path class="zero" d="M{:.1f} 4V{}"></path>'
        ).format("".join(lines), float(x.place(0.0, start, end)), height - BOTTOM + 4)
    ]
    for row, (name, style, middle, low, high) in enumerate(rows):
        m, a, b = (float(x.place(one, start, end)) for one in (middle, low, high))
        y = ROW * row
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
