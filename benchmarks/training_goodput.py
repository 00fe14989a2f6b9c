"""Effective training time ratios as published beside those of `schedmate goodput`.

No parameter is fitted: what a source does not state is a range, the same for all cases, and the
prediction is the range that comes of it. Beside it the simplest baseline, 1 - restart / MTBF, and
the published first-order formula of Meta's clusters (Kokolis et al., HPCA 2025), both over the
same ranges. `simulated` is the mean of 20 simulated runs of 30 days at the middle of the ranges,
`formula` the expectation there.

    .venv/bin/python benchmarks/training_goodput.py
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import yaml
from _record import record

from schedmate.site.reliability import DAY_S, Cause, Training, best_interval, shares, simulated

CASES = Path(__file__).with_name("published_goodput.yaml")
RUNS = 20


@dataclass(frozen=True)
class Corner:
    """One choice of what a source leaves open."""

    training: Training
    interval_s: float
    restart_s: float

    @property
    def ours(self) -> float:
        return shares(self.training, self.interval_s).ettr

    @property
    def naive(self) -> float:
        return max(0.0, 1 - self.restart_s * self.training.rate)

    @property
    def first_order(self) -> float:
        lost = self.training.rate * (self.restart_s + self.interval_s / 2)
        return max(0.0, (1 - lost) / (1 + self.training.write_s / self.interval_s))


def corners(case: dict[str, Any], unstated: dict[str, Any], middle: bool) -> Iterator[Corner]:
    """The ends of all ranges, or their middles."""

    def ends(value: Any) -> list[float]:
        low, high = value if isinstance(value, list) else (value, value)
        return [(low + high) / 2] if middle else sorted({low, high})

    nodes = case["gpus"] // 8
    rates = (
        [DAY_S / (60 * case["mtbf_min"]) / nodes]
        if "mtbf_min" in case
        else [rate / 1000 for rate in ends(case["per_1000_node_days"])]
    )
    restarts = ends(case.get("restart_min", unstated["restart_min"]))
    writes = ends(case.get("write_s", unstated["write_s"]))
    for rate, restart, write in product(rates, restarts, writes):
        one = Training(nodes, (Cause("any", rate, 0.0, 60 * restart),), write)
        interval = 60 * case["interval_min"] if "interval_min" in case else best_interval(one)
        yield Corner(one, interval, 60 * restart)


def main() -> None:
    document = yaml.safe_load(CASES.read_text())
    rows = []
    for case in document["cases"]:
        found = list(corners(case, document["unstated"], middle=False))
        (middle,) = corners(case, document["unstated"], middle=True)
        low, high = case["published"]
        row: dict[str, Any] = {
            "case": case["name"],
            "kind": case["kind"],
            "published": f"{low:.2f}" if low == high else f"over {low:.2f}",
        }
        for name in ("ours", "naive", "first_order"):
            values = [getattr(corner, name) for corner in found]
            mid = getattr(middle, name)
            off = max(low - mid, mid - high, 0.0)
            row[name] = f"{min(values):.3f} to {max(values):.3f}"
            row[f"{name}: published is inside"] = (
                min(values) - 0.005 <= high and low <= max(values) + 0.005
            )
            row[f"{name}: middle is off by"] = round(off, 3)
        rng = random.Random(0)
        runs = [simulated(middle.training, middle.interval_s, 30 * DAY_S, rng) for _ in range(RUNS)]
        row["formula"] = round(middle.ours, 4)
        row["simulated"] = round(sum(runs) / RUNS, 4)
        rows.append(row)
    means: dict[str, Any] = {"case": "all", "kind": f"{len(rows)} cases"}
    for name in ("ours", "naive", "first_order"):
        inside = f"{name}: published is inside"
        means[inside] = f"{sum(row[inside] for row in rows)} of {len(rows)}"
        off = f"{name}: middle is off by"
        means[off] = round(sum(row[off] for row in rows) / len(rows), 3)
    record("training_goodput", [*rows, means])


if __name__ == "__main__":
    main()
