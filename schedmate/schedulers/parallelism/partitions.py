"""Dividing a model's layers into stages and GPUs among them (Arena, section 3.3).

Layers are clustered by load (Equation 2); GPUs of stages are powers of two near their loads
(Equation 3).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import combinations
from typing import TYPE_CHECKING

from schedmate.schedulers.parallelism import operators as ops
from schedmate.schedulers.parallelism.devices import DeviceSpec
from schedmate.schedulers.parallelism.models import ModelSpec
from schedmate.schedulers.parallelism.operators import Sizes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Wholes = NDArray[np.int64]


def loads(spec: ModelSpec, device: DeviceSpec, sizes: Sizes) -> list[float]:
    """Load of every layer for a micro-batch, forward and backward (Equation 2) [s]."""
    found = []
    for layer in ops.all_layers(spec, sizes):
        load = 0.0
        for operator in layer:
            if operator.flops:
                intensity = operator.flops / operator.traffic
                speed = device.roofline(intensity, sizes.precision)
                load += (1 + operator.passes) * operator.flops / speed
        found.append(load)
    return found


def clustered(weights: list[float], count: int) -> list[int]:
    """Where clusters of consecutive layers end, so that their loads are about equal.

    The result ascends and ends with the number of layers.
    """
    total, passed = sum(weights), 0.0
    ends: list[int] = []
    layers = len(weights)
    count = min(count, layers)
    for place, weight in enumerate(weights, 1):
        passed += weight
        open_clusters = count - len(ends)
        must = layers - place <= open_clusters - 1
        full = passed >= total * (len(ends) + 1) / count - weight / 2
        if must or (full and open_clusters > 1):
            ends.append(place)
    return ends


@cache
def power_sums(total: int, parts: int) -> tuple[tuple[int, ...], ...]:
    """All ways to write `total` as a sum of `parts` powers of two, each ascending."""

    def fill(left: int, count: int, largest: int) -> Iterator[tuple[int, ...]]:
        if count == 0:
            if left == 0:
                yield ()
            return
        power = largest
        while power:
            if power <= left - (count - 1) and power * count >= left:
                for rest in fill(left - power, count - 1, power):
                    yield (*rest, power)
            power //= 2

    return tuple(fill(total, parts, 1 << (total.bit_length() - 1)))


def partitions(clusters: int, stages: int) -> Wholes:
    """All C(clusters-1, stages-1) partitions: rows of stage ends, the last being `clusters`."""
    import numpy as np

    rows = list(combinations(range(1, clusters), stages - 1))
    cuts = np.array(rows, dtype=np.int64).reshape(len(rows), stages - 1)
    return np.hstack([cuts, np.full((len(cuts), 1), clusters, dtype=np.int64)])


def assigned(shares: Floats, gpus: int) -> tuple[Wholes, Floats]:
    """GPUs of each stage as powers of two, and the computation bias, for rows of ideal shares.

    The sum of squares is least where shares and powers are in the same order, so that each way to
    split the GPUs needs one comparison of sorted rows. Rows that no split fits have infinite bias.
    """
    import numpy as np

    rows, stages = shares.shape
    order = np.argsort(shares, axis=1, kind="stable")
    ascending = np.take_along_axis(shares, order, axis=1)
    best, least = np.zeros((rows, stages), dtype=np.int64), np.full(rows, np.inf)
    for powers in power_sums(gpus, stages):
        bias = np.sqrt(((ascending - np.array(powers)) ** 2).sum(axis=1))
        better = bias < least - 1e-12
        least[better] = bias[better]
        best[better] = powers
    found = np.zeros_like(best)
    np.put_along_axis(found, order, best, axis=1)
    return found, least
