"""The device model: how long an operator takes on a GPU type that nobody timed it on.

A matrix product runs in waves of tiles over the GPU's processors; it takes the longer of its work
and its memory traffic, smoothly joined, plus a launch. Constants are in calibration.yaml.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

from schedmate import data
from schedmate.schedulers.parallelism.devices import DeviceSpec
from schedmate.schedulers.parallelism.operators import Operator, Shape


@cache
def calibration() -> dict[str, Any]:
    """The constants of calibration.yaml."""
    found: dict[str, Any] = data.load("schedulers/parallelism/calibration.yaml")
    return found


def sustained(spec: DeviceSpec, precision: str) -> float:
    """The share of its peak that a GPU type sustains in long matrix products."""
    constants = calibration()["kernels"]
    own = constants["by_type"].get(spec.name, {})
    return float(own.get(precision, constants["sustained"].get(precision, 0.7)))


def product_time(
    spec: DeviceSpec, shape: Shape, precision: str, share: float | None = None
) -> float:
    """Time of the work of a matrix product, by the best tile [s]; without its memory traffic."""
    constants = calibration()["kernels"]
    speed = spec.peak(precision) * (sustained(spec, precision) if share is None else share)
    each = 2 * (shape.inner + constants["inner"]) / speed * spec.processors
    best = math.inf
    for height, width, efficiency in constants["tiles"]:
        for rows, columns in {(height, width), (width, height)}:
            tiles = shape.batch * math.ceil(shape.rows / rows) * math.ceil(shape.columns / columns)
            waves = math.ceil(tiles / spec.processors)
            best = min(best, waves * rows * columns * each / efficiency)
    return best


def operator_time(spec: DeviceSpec, operator: Operator, precision: str) -> float:
    """Forward time of an operator on a GPU type [s]."""
    constants = calibration()["kernels"]
    if operator.flops == 0:
        return 0.0
    memory = operator.traffic / (spec.bandwidth * constants["memory_share"])
    if operator.shape is None:
        return float(constants["launch_s"] + memory)
    work = product_time(spec, operator.shape, precision)
    if operator.name == "attention":
        work = operator.flops / (spec.peak(precision) * sustained(spec, precision) * 0.6)
    return float(constants["launch_s"] + (work**3 + memory**3) ** (1 / 3))


def both_times(spec: DeviceSpec, operator: Operator, precision: str) -> tuple[float, float]:
    """Forward and backward time of an operator [s]."""
    forward = operator_time(spec, operator, precision)
    if operator.flops == 0:
        traffic = operator.traffic * operator.passes
        return 0.0, traffic / (spec.bandwidth * calibration()["kernels"]["memory_share"])
    return forward, forward * operator.passes
