"""Runs of a simulation as text for a person: the best in words, then a table."""

from __future__ import annotations

from typing import Any

from schedmate.schedulers.sim.comparison import over_seeds
from schedmate.schedulers.sim.outcome.words import (
    by_class,
    differences,
    headlines,
    label,
    varied,
    warnings,
)
from schedmate.terminal.screen import Screen, Table


def show(runs: list[dict[str, Any]], screen: Screen) -> None:
    """Print the comparison, the best average JCT first."""
    for number, line in enumerate(headlines(runs)):
        screen.line(line, None if number else "good")
    settings = varied(runs)
    titles = [title for title, _, _ in _COLUMNS]
    table = Table("policy", *settings, *titles, right=titles)
    for run in runs:
        table.add(
            *(run[key] for key in ("policy", *settings)),
            *(form.format(run[key]) for _, key, form in _COLUMNS),
        )
    screen.line()
    screen.table(table)
    screen.line()
    for line in (*by_class(runs), *differences(runs)):
        screen.line(line)
    for line in warnings(runs):
        screen.line(f"warning: {line}", "doubtful")
    for mean in over_seeds(runs):
        jct, deviation = mean["avg_jct_h"]
        screen.line(
            f"{label(mean, [key for key in settings if key != 'seed'])}: average JCT "
            f"{jct:.2f} h ± {deviation:.2f} over {len(mean['seeds'])} seeds"
        )


_COLUMNS = (
    ("JCT h", "avg_jct_h", "{:.2f}"),
    ("p99", "p99_jct_h", "{:.1f}"),
    ("queue h", "avg_queue_h", "{:.2f}"),
    ("p99.9", "p999_queue_h", "{:.1f}"),
    ("makespan h", "makespan_h", "{:.0f}"),
    ("in use", "utilisation", "{:.1%}"),
    ("preempted", "preemptions", "{:,}"),
    ("packed", "packed", "{:,}"),
    ("CPU s", "cpu_s", "{:.2f}"),
)
