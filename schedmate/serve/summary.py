"""An estimate in one line, for a job's comment or a table."""

from __future__ import annotations

from schedmate.durations import format_duration
from schedmate.jobs import Estimate
from schedmate.terminal import clean, counted


def summary(estimate: Estimate) -> str:
    """`2 h 05 min (1 h 40 min to 3 h 10 min), from 5 past runs`, or why there is none."""
    if estimate.abstained or estimate.duration_s is None:
        return clean(f"no estimate: {estimate.reason or 'nothing is known'}", 300)
    interval = ""
    if estimate.duration_p10_s is not None and estimate.duration_p90_s is not None:
        low, high = map(format_duration, (estimate.duration_p10_s, estimate.duration_p90_s))
        interval = f" ({low} to {high})"
    runs = counted(len(estimate.neighbours), "past run")
    return f"{format_duration(estimate.duration_s)}{interval}, from {runs}"
