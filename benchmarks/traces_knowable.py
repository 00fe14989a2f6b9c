"""What past jobs can tell of a job's run time where a recipe made up what jobs train.

    python benchmarks/traces_knowable.py DATA

DATA has philly/philly.csv: its submissions, GPUs and run times are real, the workloads are not.
Each job is predicted by the mean of the last three before it, either of its own workload (no search
for similar jobs can do better by resemblance alone) or of equal metadata, whoever submitted them.
Results that rest on a recipe have to be read beside this table.
"""

from __future__ import annotations

import sys
from collections import defaultdict, deque
from pathlib import Path
from typing import Any

from _record import record

from schedmate.schedulers.sim.traces import read_trace
from schedmate.schedulers.sim.traces.assign import GROUP, assign
from schedmate.schedulers.sim.traces.recipe import parse_recipe
from schedmate.schedulers.sim.workload import Workload

SETTINGS = (
    *("", "recurrence=0.3", "recurrence=0.9"),
    "stated=1",
    *("stated=1,recurrence=0.3", "stated=1,recurrence=0.9"),
    *("stated=1,spread=0.2", "stated=1,spread=0.8"),
    *("stated=1,noise=0.1", "stated=1,noise=0.7", "stated=1,noise=1.5"),
    *("stated=1,early=0", "stated=1,early=0.3"),
)


def main(data: Path) -> None:
    """One row a setting and kind of match."""
    trace = read_trace(data / "philly" / "philly.csv")
    rows = []
    for settings in SETTINGS:
        workload = assign(trace, *parse_recipe(f"lucid:{settings}"))
        # Jobs of equal metadata share one object.
        metadata = [id(one) for one in workload.metadata]
        for match, keys in (
            ("same workload", workload.columns[GROUP]),
            ("equal metadata", metadata),
        ):
            rows.append(
                {"settings": settings or "defaults", "match": match, **_told(workload, keys)}
            )
    record(
        "traces_knowable",
        rows,
        trace="Microsoft Philly, 82,247 jobs, real; workloads by recipe lucid, synthetic",
    )


def _told(workload: Workload, keys: list[Any]) -> dict[str, Any]:
    past: defaultdict[Any, deque[float]] = defaultdict(lambda: deque(maxlen=3))
    errors = []
    for key, duration in zip(keys, workload.duration_s, strict=True):
        seen = past[key]
        if seen:
            errors.append(abs(sum(seen) / len(seen) - duration) / max(duration, 1.0))
        seen.append(duration)
    return {
        "jobs with a match": f"{len(errors) / len(workload):.0%}",
        "within 50 %": f"{sum(one < 0.5 for one in errors) / len(errors):.0%}",
        "within 100 %": f"{sum(one < 1 for one in errors) / len(errors):.0%}",
    }


if __name__ == "__main__":
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
    else:
        main(Path(sys.argv[1]))
