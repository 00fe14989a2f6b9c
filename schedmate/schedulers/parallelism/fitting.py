"""The device model fitted to a table of kernel latencies, as NeuSight (ASPLOS'25) publishes them.

A row is one kernel: `op`, `device`, `latency_ms`, and its sizes: B, M, N, K of `linear` and `bmm`,
B and H of the others. A column `precision` is optional; without it the kernels are fp32.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from statistics import median
from typing import NamedTuple

from schedmate.errors import InputError
from schedmate.schedulers.parallelism.devices import (
    ELEMENT_BYTES,
    PRECISIONS,
    DeviceSpec,
    canonical,
)
from schedmate.schedulers.parallelism.kernels import Shares, bundled, calibration, product_time
from schedmate.schedulers.parallelism.operators import Operator, Shape

LONG = 10
"""Kernels count for a share that take this many times as long as their launch: the rest of their
time is work or traffic."""
FEWEST, MOST = 10, 4000
"""Least number of long kernels for a fit, and the number used, evenly through the table."""

_STREAMS = {"add": 3, "mul": 3, "div": 3, "pow": 3}
"""Tensors that an element-wise kernel reads and writes, where they are not one each."""


class Kernel(NamedTuple):
    """A measured kernel."""

    gpu: str
    """Canonical name of the GPU type."""
    precision: str
    operator: Operator
    seconds: float


def kernels(rows: Iterable[Mapping[str, str]]) -> Iterator[Kernel]:
    """The kernels of rows; raises `InputError` for one whose numbers are none."""
    for number, row in enumerate(rows, 2):
        try:
            yield _kernel(row)
        except (KeyError, TypeError, ValueError):
            numbers = {name: row.get(name) for name in ("B", "M", "N", "K", "H", "latency_ms")}
            said = ", ".join(f"{name}={value!r}" for name, value in numbers.items() if value)
            raise InputError(
                f"the kernel table, line {number}: {row.get('op')!r} needs sizes and a latency "
                f"above 0, and has {said or 'none'}; correct that line, or leave it out"
            ) from None


def _kernel(row: Mapping[str, str]) -> Kernel:
    name, seconds = row["op"], float(row["latency_ms"]) / 1e3
    precision = row.get("precision") or "fp32"
    if not 0 < seconds < math.inf or precision not in PRECISIONS:
        raise ValueError
    element = ELEMENT_BYTES[precision]
    if name in ("linear", "bmm"):
        b, m, n, k = (float(row[size]) for size in "BMNK")
        if not 0 < b * m * n * k < math.inf:
            raise ValueError
        shape = Shape(b, m, k, n) if name == "bmm" else Shape(1, b * m, n, k)
        batch, rows, inner, columns = shape
        work = 2 * batch * rows * inner * columns
        traffic = element * batch * (rows * inner + inner * columns + rows * columns)
        return Kernel(
            canonical(row["device"]), precision, Operator(name, work, traffic, shape), seconds
        )
    elements = float(row["B"]) * float(row["H"])
    if not 0 < elements < math.inf:
        raise ValueError
    traffic = elements * element * _STREAMS.get(name, 2)
    return Kernel(
        canonical(row["device"]), precision, Operator(name, 5 * elements, traffic), seconds
    )


def fitted(
    rows: Iterable[Mapping[str, str]], devices: Mapping[str, DeviceSpec]
) -> dict[str, Shares]:
    """The share of its datasheet peak that each GPU type of a table reaches, by name.

    The shares are medians over long kernels: those of matrix products that are bound by work, and
    of others by traffic. A share that too few kernels show stays as bundled.
    """
    launch = float(calibration()["kernels"]["launch_s"])
    work: dict[tuple[str, str], list[float]] = defaultdict(list)
    traffic: dict[str, list[float]] = defaultdict(list)
    chosen: dict[tuple[str, str, str], list[Kernel]] = defaultdict(list)
    for one in kernels(rows):
        if one.gpu in devices and one.seconds > LONG * launch:
            chosen[one.gpu, one.precision, one.operator.name].append(one)
    for (gpu, precision, _), found in chosen.items():
        spec = devices[gpu]
        for one in found[:: max(1, len(found) // MOST)]:
            operator, seconds = one.operator, one.seconds - launch
            moved_s = operator.traffic / spec.bandwidth
            if operator.shape is None:
                traffic[gpu].append(moved_s / seconds)
                continue
            worked_s = product_time(spec, operator.shape, precision, 1.0)
            if worked_s > 3 * moved_s:
                work[gpu, spec.runs_as(precision)].append(worked_s / seconds)
    answer = {}
    for gpu in {gpu for gpu, _, _ in chosen}:
        known = bundled(devices[gpu].name)
        own = {
            precision: min(median(shares), 1.0)
            for (name, precision), shares in work.items()
            if name == gpu and len(shares) >= FEWEST
        }
        moved = traffic[gpu]
        enough = len(moved) >= FEWEST
        if own or enough:
            answer[gpu] = Shares(
                {**known.products, **own},
                min(median(moved), 1.0) if enough else known.memory,
                len(moved) + sum(len(one) for (name, _), one in work.items() if name == gpu),
            )
    return answer
