"""The answer of `analyze`, `track` or `diagnose` as one page: what the terminal shows, with curves.

A page is made of the same lines and tables as the terminal's answer, so the two cannot differ.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from io import StringIO
from statistics import median

import numpy as np

from schedmate.base.inputs import format_duration
from schedmate.base.terminal import Screen, Table, Tone
from schedmate.logparse.experiments import Point
from schedmate.report.charts import Figure, Series, line_chart, linear_axis
from schedmate.report.page import render

_QUOTED = re.compile(r"(?P<mark>[> ]) *(?P<place>\S+) \| *")
"""The label of a line of a log that an answer quotes."""
_TABLES = {"field": "Fields", "past job": "Past jobs"}
"""Titles of tables by their first column."""
ROWS = 12
"""Rows of the table below a curve."""
LEAST_OF_SECONDS = 20.0
"""Time between two readings of a clock without fractions of a second of which a step time is made
[s]."""
MOST_DRAWN = 2_000
"""Points of a curve that are drawn; of more, every second one, or every third."""


@dataclass
class Block:
    """What stands between two empty lines: lines (tone, label, text), quotes, a table."""

    lines: list[tuple[Tone | None, str, str]] = field(default_factory=list)
    quotes: list[tuple[bool, str, str]] = field(default_factory=list)
    table: Table | None = None

    @property
    def title(self) -> str | None:
        """A heading for what needs one."""
        if self.table is not None:
            return _TABLES.get(self.table.columns[0], self.table.columns[0].capitalize())
        return "Lines of the log" if self.quotes else None


class _Recorder(Screen):
    """A screen that keeps what is shown on it."""

    def __init__(self) -> None:
        super().__init__(StringIO(), plain=True)
        self.blocks = [Block()]

    def line(self, text: object = "", tone: Tone | None = None, *, label: str = "") -> None:
        """Keep a paragraph; an empty one ends a block."""
        quote = _QUOTED.fullmatch(label)
        if not (text or label):
            self.blocks.append(Block())
        elif quote is not None:
            self.blocks[-1].quotes.append((quote["mark"] == ">", quote["place"], str(text)))
        else:
            if self.blocks[-1].table is not None:
                self.blocks.append(Block())
            self.blocks[-1].lines.append((tone, label.strip(), str(text)))

    def table(self, table: Table) -> None:
        """Keep a table, in a block of its own."""
        self.blocks.append(Block(table=table))


def answer_page(
    command: str, about: str, show: Callable[[Screen], None], figures: Sequence[Figure] = ()
) -> str:
    """The page of what `show` prints; `about` is the log or the repository."""
    recorder = _Recorder()
    show(recorder)
    first, *rest = [
        block for block in recorder.blocks if block.lines or block.quotes or block.table
    ]
    return render(
        "answer",
        "charts",
        command=command,
        about=about,
        first=first,
        blocks=rest,
        figures=figures,
    )


# The curves of a run.


def curves(points: Sequence[Point]) -> list[Figure]:
    """Charts of loss and step time over the iterations, or over the epochs where only they count.

    A curve needs two points.
    """
    label, placed = "iteration", [(p.step, p) for p in points if p.step is not None]
    times = _step_times(placed)
    if len(placed) < 2:
        label, placed = "epoch", [(p.epoch, p) for p in points if p.epoch is not None]
    loss = [(at, p.loss) for at, p in placed if p.loss is not None]
    figures = [_figure("Loss", "loss", label, loss, lambda value: f"{value:.4g}")]
    if times and median(s for _, s in times) < 10:
        ms = [(x, 1000 * s) for x, s in times]
        figures.append(_figure("Step time", "ms", label, ms, lambda value: f"{value:.4g} ms"))
    else:
        figures.append(_figure("Step time", "step time", label, times, format_duration))
    return [figure for figure in figures if figure is not None]


def _step_times(points: Sequence[tuple[float, Point]]) -> list[tuple[float, float]]:
    """Iteration and time of a step [s]: as stated, or by the clock between two lines."""
    if stated := [(at, p.step_time_s) for at, p in points if p.step_time_s]:
        return stated
    for clock in ("time", "elapsed_s"):
        timed = [(at, float(when)) for at, p in points if (when := getattr(p, clock)) is not None]
        if gaps := _gaps(timed):
            return gaps
    return []


def _gaps(timed: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Iteration and step time [s] between times [s]; those in whole seconds are compared only as
    far apart as their rounding hardly counts."""
    least = LEAST_OF_SECONDS if all(when.is_integer() for _, when in timed) else 0.0
    gaps = []
    here, before = timed[0] if timed else (0.0, 0.0)
    for there, after in timed[1:]:
        if there <= here or after < before:
            here, before = there, after
        elif after > before and after - before >= least:
            gaps.append((there, (after - before) / (there - here)))
            here, before = there, after
    return gaps


def _figure(
    title: str,
    unit: str,
    label: str,
    pairs: Sequence[tuple[float, float]],
    text: Callable[[float], str],
) -> Figure | None:
    finite = [(x, y) for x, y in pairs if np.isfinite(x) and np.isfinite(y)]
    if len({x for x, _ in finite}) < 2:
        return None
    x, y = (np.array(one, dtype=float) for one in zip(*finite, strict=True))
    order = np.argsort(x, kind="stable")[:: 1 + len(x) // MOST_DRAWN]
    x, y = x[order], y[order]
    margin = 0.05 * float(y.max() - y.min()) or 0.05 * abs(float(y.max())) or 1.0
    kind = "duration" if unit == "step time" else "count"
    low = max(0.0, float(y.min()) - margin) if y.min() >= 0 else float(y.min()) - margin
    across = linear_axis(label, float(x.min()), float(x.max()), "count")
    up = linear_axis(unit, low, float(y.max()) + margin, kind)
    chart = line_chart(f"{title} over {label}s", [Series(title.lower(), 0, x, y)], across, up)
    picked = np.unique(np.linspace(0, len(x) - 1, min(ROWS, len(x))).astype(int))
    rows = [[f"{x[n]:,.6g}", text(float(y[n]))] for n in picked]
    left = len(pairs) - len(finite)
    note = f"{len(finite):,} readings, {label} {x.min():,.6g} to {x.max():,.6g}"
    note += f"; {left:,} that are no finite number are left out" if left else ""
    return Figure(title, chart, [label, title.lower()], rows, f"{note}.")
