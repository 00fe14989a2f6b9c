"""A sentence on the sources of an interval's width."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from schedmate.jobs import IntervalBasis
from schedmate.retrieval.candidates import Candidate
from schedmate.retrieval.predictive import Prediction, Run
from schedmate.retrieval.spread import WORTH, Spread
from schedmate.terminal import counted

Recurrence = Literal["same job", "same job, other length", "similar jobs"]

_RUNS: dict[Recurrence, tuple[str, str]] = {
    "same job": ("of the same job", "runs of one job"),
    "same job, other length": ("of the same job with another length", "runs of one job"),
    "similar jobs": ("of similar jobs", "runs of similar jobs"),
}
"""The runs at hand, and such runs in general."""

CORRECTED = 0.05
"""Doubt about a correction [log of a factor] from which on it is mentioned."""


def basis(
    candidates: Sequence[Candidate],
    runs: Sequence[Run],
    same: str,
    prediction: Prediction,
    spread: Spread,
    tail: float,
    shared: float,
) -> IntervalBasis:
    """Of an estimate from these past runs, in the same order, for a job of the workload `same`.

    `tail` times a mean absolute error is the distance that eight of ten stay within, and `shared`
    [log of a factor] that of what all runs have in common. At least one run completed.
    """
    completed = [at for at, run in enumerate(runs) if not run.censored]
    times = [runs[at].duration_s for at in completed]
    recurrence: Recurrence = "similar jobs"
    if any(candidates[at].exact for at in completed):
        recurrence = "same job"
    elif any(candidates[at].workload == same for at in completed):
        recurrence = "same job, other length"
    found = IntervalBasis(
        recurrence=recurrence,
        runs=len(completed),
        cut_short=len(runs) - len(completed),
        runs_factor=max(times) / min(times),
        expected_factor=math.exp(math.hypot(prediction.expected * tail, shared)),
        learned_from=spread.jobs,
        from_runs=prediction.own,
        text="",
    )
    doubted = any(candidates[at].adjustment.doubt > CORRECTED for at in completed)
    return found.model_copy(update={"text": _sentence(found, doubted)})


def _sentence(found: IntervalBasis, doubted: bool) -> str:
    these, such = _RUNS[found.recurrence]
    runs = f"{counted(found.runs, 'run')} {these}"
    if found.from_runs >= 0.5:
        text = (
            f"how much {runs} vary (the longest took {found.runs_factor:,.1f} times as long as "
            "the shortest)"
        )
    else:
        where = "on other clusters"
        if found.learned_from >= WORTH:
            where = f"in this history, measured on {counted(found.learned_from, 'repeated job')}"
        elif found.learned_from:
            where = "in this history and on other clusters"
        corrected = ", rescaled in the same way" if doubted else ""
        text = (
            f"how much {such} vary {where} (80 % within a factor of "
            f"{found.expected_factor:,.1f}{corrected}); "
        )
        if found.runs == 1:
            text += f"{runs} available"
        else:
            text += f"{runs} available, within a factor of {found.runs_factor:,.2f}"
    cut = f"; {found.cut_short} more cut short" if found.cut_short else ""
    return f"covers 80 % of such jobs; its width reflects {text}{cut}"
