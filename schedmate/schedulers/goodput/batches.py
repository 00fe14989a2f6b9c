"""Which batch size is best on some GPUs: candidates, and the goodput of each."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schedmate.schedulers.goodput.throughput import Floats, Throughput

_CANDIDATES = 50
"""Global batch sizes that are compared, spaced geometrically."""
_EPSILON = 1e-8
_SPREAD = np.linspace(0.0, 1.0, _CANDIDATES)


def gain(batch: Floats, initial: int, noise: tuple[float, float] | None) -> Floats:
    """Progress of one iteration at these batch sizes, in iterations of the initial one.

    `noise`: squared norm and variance of the gradient; None: unknown.
    """
    scale = batch / initial
    if noise is None:
        return np.minimum(scale, 1.0)
    squared, variance = noise
    return np.asarray((variance + squared) / (variance / scale + squared))


class _Candidates(NamedTuple):
    """Batch sizes to choose from, arrays (shapes, candidates): what noise does not change."""

    size: Floats
    """Of a step."""
    steps: Floats
    """Accumulation steps."""
    batch: Floats
    """Over all replicas and steps."""
    fits: NDArray[np.bool_]
    seconds: Floats
    """Of an iteration."""
    factor: Floats


@lru_cache(maxsize=1 << 13)
def best(
    rows: tuple[tuple[float, ...], ...],
    initial: int,
    largest_total: int,
    most: int,
    noise: tuple[float, float] | None,
) -> Floats:
    """Goodput, batch per step and accumulation steps: read-only array of shape (shapes, 3).

    With `most` 0 the global batch size is `largest_total`, else the best one up to `most`. Cached,
    since jobs of one program in one phase have the same arguments.
    """
    one = _candidates(rows, initial, largest_total, most)
    progress = gain(one.batch, initial, noise)
    goodput = np.where(one.fits, one.factor * progress / one.seconds, 0.0)
    place = np.arange(len(rows)), goodput.argmax(axis=1)
    found = np.empty((len(rows), 3))
    found[:, 0], found[:, 1], found[:, 2] = goodput[place], one.size[place], one.steps[place]
    found.flags.writeable = False
    return found


@lru_cache(maxsize=1 << 11)
def _candidates(
    rows: tuple[tuple[float, ...], ...], initial: int, largest_total: int, most: int
) -> _Candidates:
    columns = np.array(rows, dtype=float)[:, :, None].transpose(1, 0, 2)
    nodes, replicas, smallest, largest, factor = columns[:5]
    model = Throughput(*columns[5:])
    if most:
        least = np.maximum(initial, smallest * replicas)
        total = least * np.maximum(most / least, 1.0) ** _SPREAD
    else:
        total = np.full((len(rows), 1), float(largest_total))
    each = total / replicas
    steps = np.maximum(np.ceil(each / largest - _EPSILON) - 1, 0)
    if most:
        # With one replica, the gradient's variance can only be measured over several steps.
        alone = (replicas == 1) & (total > initial * (1 + _EPSILON))
        steps = np.where(alone, np.maximum(steps, 1), steps)
    size = np.ceil(each / (steps + 1) - _EPSILON)
    batch = replicas * size * (steps + 1)
    fits = (size <= largest) & (size >= smallest)
    fits &= smallest * replicas <= largest_total
    accumulation, step = model.step_times(nodes, replicas, size)
    return _Candidates(size, steps, batch, fits, steps * accumulation + step, factor)
