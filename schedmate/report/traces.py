"""What a trace holds, and how far a synthetic one is from what was published, as text."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from schedmate.base.inputs import format_duration
from schedmate.base.terminal import Screen, Table
from schedmate.schedulers.sim.traces.writer import trace_facts

if TYPE_CHECKING:
    from schedmate.schedulers.sim.traces.recipe import Calibration, Match
    from schedmate.schedulers.sim.workload import Workload


def show_matches(rows: list[Match], calibration: Calibration, screen: Screen) -> None:
    """Print each published figure beside the one of the trace that was drawn."""
    worst = max(rows, key=lambda row: 0.0 if "at most" in row.target else abs(row.off))
    screen.line(
        f"Synthetic, after {calibration.title}: of {len(rows)} published figures the farthest is "
        f"{abs(worst.off):.1%} off ({worst.target})"
    )
    screen.line(f"--cluster {calibration.cluster}")
    numbers = ("published", "drawn", "off")
    table = Table("figure", *numbers, right=numbers)
    for row in rows:
        table.add(row.target, f"{row.published:,.5g}", f"{row.drawn:,.5g}", f"{row.off:+.1%}")
    screen.line()
    screen.table(table)


def described(workload: Workload) -> dict[str, str]:
    """Facts about a trace as text, by name."""
    facts = trace_facts(workload)
    again = "unknown: no names or no users"
    if "recurrence" in facts:
        again = (
            f"{facts['recurrence']:.0%} of jobs (same user, name and GPUs as an earlier one), run "
            f"times spread by a factor of {math.exp(facts['spread']):.2f}"
        )
    return {
        "jobs": f"{facts['jobs']:,}",
        "submitted over": format_duration(facts["span_s"]),
        "duration": f"median {format_duration(facts['median_s'])}, "
        f"mean {format_duration(facts['mean_s'])}",
        "GPUs": f"mean {facts['mean_gpus']:.2f}, most {facts['max_gpus']:g}",
        "GPU hours": f"{facts['gpu_h']:,.0f}",
        "load": f"{facts['load_gpus']:,.0f} GPUs busy on average while jobs arrive"
        if facts["span_s"]
        else "all at once",
        "virtual clusters": f"{facts['vcs']}",
        "users": f"{facts['users']}",
        "resubmitted": again,
    }
