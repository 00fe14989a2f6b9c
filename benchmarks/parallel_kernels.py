"""How near does the device model of single kernels come, on GPU types that it knows and others?

    python benchmarks/parallel_kernels.py FOLDER

FOLDER has `kernels.csv.gz`: latencies of kernels on eight GPU types in fp32, as published with
NeuSight (ASPLOS'25) and split by its authors into train (five older types) and test (all eight).

parallel_kernels  |predicted / measured - 1| of the kernels of each part, mean and median:
                  `roofline`: the longer of work over peak and traffic over bandwidth, nothing
                  fitted; `fitted`: the shares of peak and bandwidth that a type reaches are the
                  medians over its own train rows; `left out`: its shares are the means over the
                  other types' train rows, as for a type that nobody timed. The tiles, and how work
                  and traffic are joined, were chosen looking at train rows.
"""

from __future__ import annotations

import csv
import gzip
import io
import sys
from collections import defaultdict
from pathlib import Path
from statistics import mean, median

from _record import record

from schedmate.schedulers.parallelism.devices import DeviceSpec, bundled_devices
from schedmate.schedulers.parallelism.operators import (
    Kernel,
    PeakShares,
    fit_shares,
    operator_time,
    read_kernels,
)

MOST = 4000
"""Kernels of a split, GPU type and kind that are looked at, evenly through the table."""


def roofline(spec: DeviceSpec, kernel: Kernel) -> float:
    """Datasheet numbers alone [s]."""
    operator = kernel.operator
    moved = operator.traffic / spec.bandwidth
    if operator.shape is None:
        return moved
    return max(operator.flops / spec.peak(kernel.precision), moved)


def error(predicted: float, kernel: Kernel) -> float:
    """Relative, without sign."""
    return abs(predicted / kernel.seconds - 1)


def main() -> None:
    """The table."""
    text = gzip.decompress((Path(sys.argv[1]) / "kernels.csv.gz").read_bytes()).decode()
    rows = list(csv.DictReader(io.StringIO(text)))
    train = [row for row in rows if row["split"] == "train"]
    known = fit_shares(train, bundled_devices())
    print(
        {
            name: (round(one.products["fp32"], 2), round(one.memory, 2))
            for name, one in known.items()
        }
    )
    parts: dict[tuple[str, str, str], list[Kernel]] = defaultdict(list)
    for row, one in zip(rows, read_kernels(rows), strict=True):
        kind = "products" if one.operator.shape is not None else "others"
        parts[row["split"], one.gpu, kind].append(one)
    table = []
    totals: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for (split, gpu, kind), found in sorted(parts.items(), reverse=True):
        spec, own = bundled_devices()[gpu], known.get(gpu)
        others = [one for name, one in known.items() if name != gpu]
        left_out = PeakShares(
            {"fp32": mean(one.products["fp32"] for one in others)},
            mean(one.memory for one in others),
        )
        errors: dict[str, list[float]] = defaultdict(list)
        for one in found[:: max(1, len(found) // MOST)]:
            errors["roofline"].append(error(roofline(spec, one), one))
            for how, shares in (("fitted", own), ("left out", left_out)):
                if shares is not None:
                    time = operator_time(spec, one.operator, one.precision, shares)
                    errors[how].append(error(time, one))
        for how, values in errors.items():
            totals[split, kind, how] += values
        table.append(_row(split, gpu, kind, errors))
    for split in ("train", "test"):
        for kind in ("products", "others"):
            of = {how: totals[split, kind, how] for how in ("roofline", "fitted", "left out")}
            table.append(_row(split, "all", kind, of))
    record("parallel_kernels", table)


def _row(split: str, gpu: str, kind: str, errors: dict[str, list[float]]) -> dict[str, str]:
    found = {"split": split, "GPU": gpu, "kernels": kind, "count": str(len(errors["roofline"]))}
    for how in ("roofline", "fitted", "left out"):
        values = errors.get(how)
        found[f"{how}: mean, median"] = (
            f"{mean(values):.0%}, {median(values):.0%}" if values else "-"
        )
    return found


if __name__ == "__main__":
    main()
