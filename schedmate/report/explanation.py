"""The page of a learnt model: what each term adds to the answer, and one answer taken apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from schedmate.base.inputs import format_duration
from schedmate.report import charts
from schedmate.report.page import render
from schedmate.schedulers.learned import LOGARITHMIC_FEATURES, Term
from schedmate.schedulers.sim.explain import Explanation, Local

SHAPES = 12
"""Terms that are drawn, the most important first."""
CELLS = 24
"""Rows and columns of the picture of an interaction."""

TITLES = {
    "run-times": ("Run times", "ended jobs"),
    "submissions": ("Submissions in ten minutes", "bins of ten minutes"),
}


@dataclass(frozen=True)
class Shape:
    """The chart of one term of a model."""

    title: str
    chart: Markup


def explanation_page(explanation: Explanation, trace: str, *, synthetic: bool) -> str:
    """The whole page as HTML; `trace` is the name of the file."""
    title, rows = TITLES[explanation.model]
    return render(
        "explanation",
        "charts",
        found=explanation,
        trace=trace,
        synthetic=synthetic,
        title=title,
        rows=rows,
        importances=_importances(explanation.terms),
        shapes=[_shape(term) for term in explanation.terms[:SHAPES]],
        left=len(explanation.terms) - SHAPES,
        local=None if explanation.local is None else _local(explanation.local),
        base="" if explanation.local is None else format_duration(math.exp(explanation.intercept)),
        duration=format_duration,
        factor=charts.factor_text,
    )


def _importances(terms: Sequence[Term]) -> Markup:
    rows = [(term.name, 0, term.importance, 0.0, term.importance) for term in terms]
    return charts.interval_chart("Mean effect of each term", rows, _effects([r[2] for r in rows]))


def _local(local: Local) -> Markup:
    scores = [(name, s) for name, s in local.contributions.items() if name != "intercept"]
    rows = [(name, int(s > 0), s, min(s, 0.0), max(s, 0.0)) for name, s in scores]
    about = "The effect of each term on the mean of all jobs, for this one"
    return charts.interval_chart(about, rows, _effects([s for _, s in scores]))


def _effects(scores: Sequence[float]) -> charts.Axis:
    """An axis of factors: scores are logarithms, so 0 changes nothing."""
    low, high = min([*scores, 0.0]), max([*scores, 0.0])
    margin = 0.05 * max(high - low, 0.1)
    return charts.effect_axis("makes the answer", low - margin * (low < 0), high + margin)


def _shape(term: Term) -> Shape:
    title = f"{term.name}: {charts.factor_text(term.importance)} on average"
    if len(term.features) == 1:
        x, edges = _feature_axis(term.features[0], term.cuts[0])
        scores = np.array(term.scores, dtype=float)
        y = _effects(scores.tolist())
        line = charts.Series(term.name, 0, edges, np.append(scores, scores[-1]), steps=True)
        return Shape(title, charts.line_chart(f"What {term.name} adds", [line], x, y))
    axes = [_feature_axis(name, cuts) for name, cuts in zip(term.features, term.cuts, strict=True)]
    columns, rows = (np.linspace(axis.low, axis.high, CELLS + 1) for axis, _ in axes)
    scores = np.array(term.scores, dtype=float)
    picked = scores[np.ix_(_bins(columns, term.cuts[0]), _bins(rows, term.cuts[1]))]
    about = f"What {term.features[0]} and {term.features[1]} add together"
    return Shape(
        title, charts.heat_map(about, picked, (axes[0][0], axes[1][0]), charts.factor_text)
    )


def _bins(edges: charts.Floats, cuts: Sequence[float]) -> NDArray[np.int64]:
    middles = (edges[:-1] + edges[1:]) / 2
    return np.searchsorted(np.array(cuts), middles, side="right")


def _feature_axis(name: str, cuts: Sequence[float]) -> tuple[charts.Axis, charts.Floats]:
    """The axis of a feature, and where each of its bins begins, with the end of the last."""
    inner = np.array(cuts, dtype=float)
    # The outer bins are open: they are drawn as wide as the inner ones are on average.
    width = (inner[-1] - inner[0]) / (len(inner) - 1) if len(inner) > 1 else 1.0
    low, high = (inner[0] - width, inner[-1] + width) if len(inner) else (0.0, 1.0)
    axis = (
        charts.logarithm_axis(name, low, high)
        if name in LOGARITHMIC_FEATURES
        else charts.linear_axis(name, low, high, "count")
    )
    return axis, np.array([low, *inner, high])
