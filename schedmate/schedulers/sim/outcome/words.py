"""A comparison in words, the same for the terminal and the report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Numbers = dict[str, Any]

SETTINGS = ("cluster", "estimator", "seed")
"""Settings of a run besides its policy."""
NAMED = 4
"""Runs of the same average JCT that are all named."""

ORIGINS = {
    "recorded": "a recorded trace",
    "synthetic": "a synthetic trace, not a recorded one",
    "unstated": "a trace of unstated origin",
}


def varied(runs: Sequence[Numbers]) -> list[str]:
    """Those of `SETTINGS` in which the runs differ."""
    return [key for key in SETTINGS if len({run[key] for run in runs}) > 1]


def label(run: Numbers, keys: Sequence[str]) -> str:
    """The run's policy, with what distinguishes it from other runs of the same policy."""
    more = ", ".join(f"seed {run[key]}" if key == "seed" else str(run[key]) for key in keys)
    return f"{run['policy']} ({more})" if more else str(run["policy"])


def estimator_names(runs: Sequence[Numbers]) -> str:
    """Which estimators the policies used; oracles are marked."""
    sources = {run["estimator"]: run["oracle"] for run in runs}
    return ", ".join(
        name + " (an oracle: true run times, which no scheduler can know)" * oracle
        for name, oracle in sources.items()
    )


def headlines(runs: Sequence[Numbers]) -> list[str]:
    """The policies with the least average JCT, and what the comparison rests on."""
    best = min(runs, key=lambda run: float(run["avg_jct_h"]))
    jct, queue, jobs = best["avg_jct_h"], best["avg_queue_h"], best["jobs"]
    keys, sources = varied(runs), estimator_names(runs)
    first = [label(run, keys) for run in runs if run["avg_jct_h"] == jct]
    if len(first) > NAMED:
        first[1:] = [f"{len(first) - 1} others"]
    name = first[0] if len(first) == 1 else f"{', '.join(first[:-1])} and {first[-1]} alike"
    return [
        f"best average JCT: {name}, {jct:.2f} h over {jobs:,} jobs ({queue:.2f} h queueing)",
        f"run times estimated by {sources}; {best['mode']} costs; {ORIGINS[best['origin']]}",
    ]


def warnings(runs: Sequence[Numbers]) -> list[str]:
    """Faults that were worked around, with their counts."""
    keys = varied(runs)
    return [
        f"{label(run, keys)}: {what}" + (f" ({count:,} times)" if count > 1 else "")
        for run in runs
        for what, count in sorted(run.get("warnings", {}).items())
    ]


def differences(runs: Sequence[Numbers]) -> list[str]:
    """Each run against the first policy under the same plan; sizes with the opposite effect."""
    lines = []
    keys = varied(runs)
    first = runs[0]
    for run in runs:
        if "jct_less_first_h" not in run:
            first = run
            continue
        mean, low, high = run["jct_less_first_h"]
        line = (
            f"{label(run, keys)} against {first['policy']}: mean JCT "
            f"{mean:+.2f} h (95 % interval {low:+.2f} to {high:+.2f})"
        )
        shift = [
            f"{size} {part['avg_jct_h'] - first['by_size'][size]['avg_jct_h']:+.2f} h"
            for size, part in run["by_size"].items()
            if (part["avg_jct_h"] - first["by_size"][size]["avg_jct_h"]) * mean < 0
        ]
        lines.append(f"{line}; in the opposite direction for {', '.join(shift)}" if shift else line)
    return lines


def by_class(runs: Sequence[Numbers]) -> list[str]:
    """Service of high-priority (HP) and spot (LP) jobs, if there are both."""
    lines = []
    keys = varied(runs)
    for run in runs:
        classes = run.get("by_class", {})
        if not {"high", "low"} <= set(classes):
            continue
        high, low = classes["high"], classes["low"]
        line = (
            f"{label(run, keys)}: HP: {high['avg_queue_h']:.2f} h waiting (p99 "
            f"{high['p99_queue_h']:.2f} h); LP: JCT {low['avg_jct_h']:.2f} h, "
            f"{low['evictions']:,} evictions that lost "
            f"{run.get('evicted_lost_gpu_h', 0):,.0f} GPU h (who is preempted loses none)"
        )
        if lent := run.get("lent_gpu_h"):
            line += f"; {run['borrowed_gpu_h'] / lent:.0%} of {lent:,.0f} lent GPU h used"
        lines.append(line)
    return lines
