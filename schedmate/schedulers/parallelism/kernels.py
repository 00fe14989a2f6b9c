"""The device model: time of an operator on a GPU type without measurements.

A matrix product runs in waves of tiles over the GPU's processors; it takes the longer of its work
and its memory traffic, smoothly joined, plus a launch. Constants are in calibration.yaml.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from schedmate import data
from schedmate.schedulers.parallelism.devices import DeviceSpec
from schedmate.schedulers.parallelism.operators import Operator, Shape


@cache
def calibration() -> dict[str, Any]:
    """The constants of calibration.yaml."""
    found: dict[str, Any] = data.load("schedulers/parallelism/calibration.yaml")
    return found


class Shares(NamedTuple):
    """The share of its datasheet peak that a GPU type reaches in long kernels."""

    products: Mapping[str, float]
    """Of its peak of matrix products, by precision."""
    memory: float
    """Of its memory bandwidth."""
    kernels: int = 0
    """Measured kernels that this was fitted to; 0: as bundled."""


@cache
def bundled(name: str) -> Shares:
    """The shares of calibration.yaml."""
    constants = calibration()["kernels"]
    own = constants["by_type"].get(name, {})
    return Shares({**constants["sustained"], **own}, float(constants["memory_share"]))


def product_time(spec: DeviceSpec, shape: Shape, precision: str, share: float) -> float:
    """Time of the work of a matrix product, by the best tile [s]; without its memory traffic."""
    constants = calibration()["kernels"]
    speed = spec.peak(precision) * share
    each = 2 * (shape.inner + constants["inner"]) / speed * spec.processors
    best = math.inf
    for height, width, efficiency in constants["tiles"]:
        for rows, columns in {(height, width), (width, height)}:
            tiles = shape.batch * math.ceil(shape.rows / rows) * math.ceil(shape.columns / columns)
            waves = math.ceil(tiles / spec.processors)
            best = min(best, waves * rows * columns * each / efficiency)
    return best


def operator_time(
    spec: DeviceSpec, operator: Operator, precision: str, shares: Shares | None = None
) -> float:
    """Forward time of an operator on a GPU type [s]."""
    constants = calibration()["kernels"]
    reached = shares or bundled(spec.name)
    if operator.flops == 0:
        return 0.0
    memory = operator.traffic / (spec.bandwidth * reached.memory)
    if operator.shape is None:
        return float(constants["launch_s"] + memory)
    share = float(reached.products.get(spec.runs_as(precision), 0.7))
    work = product_time(spec, operator.shape, precision, share)
    if operator.name == "attention":
        work = operator.flops / (spec.peak(precision) * share * 0.6)
    return float(constants["launch_s"] + (work**3 + memory**3) ** (1 / 3))


def both_times(
    spec: DeviceSpec, operator: Operator, precision: str, shares: Shares | None = None
) -> tuple[float, float]:
    """Forward and backward time of an operator [s]."""
    if operator.flops == 0:
        reached = shares or bundled(spec.name)
        traffic = operator.traffic * operator.passes
        return 0.0, traffic / (spec.bandwidth * reached.memory)
    forward = operator_time(spec, operator, precision, shares)
    return forward, forward * operator.passes
