"""Measured pairs of jobs that share GPUs; a pair without a measurement runs as the nearest one."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from schedmate.base.errors import UsageError, reason_of
from schedmate.base.reading import MOST_RECORDS, bounded_rows, open_text
from schedmate.schedulers.model import Profile
from schedmate.schedulers.sim.parameters import ColocationTable

Speeds = tuple[float, float]
_SCALES = (100.0, 100.0)
"""Points of GPU and memory utilisation that count as one unit of distance."""

_WHOLE = Profile(100.0, 100.0, 0.0, False)
"""What a job of unknown use counts as."""


class NearestPair:
    """An unmeasured pair runs as the nearest measured one by utilisation.

    Nearest in the GPU and memory utilisation of both, in either order; equally near ones count
    with their mean. `pairs` has the utilisation [%] of the first, of the second, and the speeds
    of both: (n x 2), (n x 2), (n x 2).
    """

    def __init__(self, first: np.ndarray, second: np.ndarray, speeds: np.ndarray) -> None:
        here, there = np.hstack([first, second]), np.hstack([second, first])
        self._uses = np.vstack([here, there]) / (_SCALES * 2)
        self._speeds = np.vstack([speeds, speeds[:, ::-1]])
        self._known: dict[tuple[float, ...], Speeds] = {}

    def speeds(
        self, first: Profile | None, second: Profile | None, configs: tuple[str, str]
    ) -> Speeds:
        """See `Interference`."""
        one, two = first or _WHOLE, second or _WHOLE
        # A difference of one percent does not change measured results.
        use = tuple(
            round(value) for p in (one, two) for value in (p.gpu_util, p.memory_util)
        )  # fmt: skip
        speeds = self._known.get(use)
        if speeds is None:
            far = ((self._uses - np.array(use) / (_SCALES * 2)) ** 2).sum(axis=1)
            mean = self._speeds[far <= far.min() + 1e-9].mean(axis=0)
            speeds = self._known[use] = (float(mean[0]), float(mean[1]))
        return speeds


def measured(pairs: Path, alone: Path | None = None) -> ColocationTable:
    """Measured pairs by name; with what each job uses alone, the nearest one for all others.

    Args:
        pairs: CSV as `ColocationTable.read` takes it.
        alone: CSV with model, dataset, batchsize, amp, gpu_util and gmem_util [%].

    Raises `UsageError` when one of them is something else.
    """
    table = ColocationTable.read(pairs)
    if alone is None:
        return table
    uses = {}
    try:
        with open_text(alone, newline="") as stream:
            for row in bounded_rows(csv.DictReader(stream), alone, MOST_RECORDS):
                key = "/".join(row[name] for name in ("model", "dataset", "batchsize", "amp"))
                uses[key] = (float(row["gpu_util"]), float(row["gmem_util"]))
    except (OSError, KeyError, TypeError, ValueError, UnicodeError, csv.Error) as error:
        raise UsageError(
            f"{alone} does not say what jobs use alone ({reason_of(error)}); it needs the columns "
            "model, dataset, batchsize, amp, gpu_util and gmem_util."
        ) from None
    both = [pair for pair in table.pairs if pair[0] in uses and pair[1] in uses]
    if not both:
        raise UsageError(
            f"{alone} has none of the jobs of {pairs}; give two tables of the same measurements."
        )
    table.otherwise = NearestPair(
        np.array([uses[one] for one, _ in both]),
        np.array([uses[two] for _, two in both]),
        np.array([table.pairs[pair] for pair in both]),
    )
    return table
