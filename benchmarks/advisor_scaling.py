"""How much faster a job is on more GPUs, from measured step times (the Sia artifact's traces)."""

from __future__ import annotations

import csv
import math
import statistics
from pathlib import Path
from typing import Any

Steps = dict[str, tuple[int, dict[float, float]]]
"""By placement or size: GPUs, and step time [s] by the batch size of one GPU."""


def scaling_rows(data: Path) -> list[dict[str, Any]]:
    """Exponents a of samples per second ~ GPUs ** a, by what stays fixed; empty without traces."""
    weak: list[float] = []
    strong: list[float] = []
    for pattern, read in (("placements*.csv", _placements), ("scalability*.csv", _replicas)):
        for path in sorted(data.glob(f"sia/traces/*/{pattern}")):
            steps = read(path)
            least, base = min(steps.values(), key=lambda item: item[0])
            for gpus, times in steps.values():
                if gpus == least:
                    continue
                more = gpus / least
                for batch, step_s in times.items():
                    if batch in base:
                        weak.append(_exponent(more * base[batch] / step_s, more))
                    if batch * more in base:
                        strong.append(_exponent(base[batch * more] / step_s, more))
    return [
        {"fixed": fixed, "pairs": len(values), **_quantiles(values)}
        for fixed, values in (("batch of each GPU", weak), ("global batch", strong))
        if values
    ]


def _exponent(speedup: float, gpus: float) -> float:
    return math.log(speedup) / math.log(gpus)


def _quantiles(values: list[float]) -> dict[str, float]:
    tenths = statistics.quantiles(values, n=10)
    return {"p10": round(tenths[0], 2), "p50": round(tenths[4], 2), "p90": round(tenths[8], 2)}


def _placements(path: Path) -> Steps:
    """A placement is one digit a node: its GPUs."""
    steps: Steps = {}
    for row in _rows(path):
        placement = row["placement"].strip()
        gpus = sum(int(digit) for digit in placement)
        _, times = steps.setdefault(placement, (gpus, {}))
        times.setdefault(float(row["local_bsz"]), float(row["step_time"]))
    return steps


def _replicas(path: Path) -> Steps:
    """The best step time of each number of GPUs, over the nodes they were spread on."""
    steps: Steps = {}
    for row in _rows(path):
        gpus = int(float(row["num_replicas"]))
        _, times = steps.setdefault(str(gpus), (gpus, {}))
        batch, step_s = float(row["local_bsz"]), float(row["step_time"])
        times[batch] = min(times.get(batch, math.inf), step_s)
    return steps


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))
