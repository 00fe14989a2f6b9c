"""How jobs that share GPUs slow each other down: time slices, and pairs that Gavel measured.

`sim.parameters` has the curve and the table of named pairs. Here are the physics for what no table
names, by name for `simulate --colocation` (`named`).
"""

from __future__ import annotations

import csv
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from schedmate.base.data import load
from schedmate.base.errors import UsageError
from schedmate.schedulers.model import Profile

if TYPE_CHECKING:
    from schedmate.schedulers.sim.parameters import Interference


Speeds = tuple[float, float]

SLICES = "slices"
GAVEL = ("gavel-v100", "gavel-p100", "gavel-k80")
NAMES = (SLICES, *GAVEL)
"""Bundled models of interference between jobs that share a GPU."""

SWITCHING = 0.05
"""Share of a GPU that is lost where jobs take turns on it: an assumption."""

_WHOLE = Profile(100.0, 100.0, 0.0, False)
"""What a job of unknown use counts as."""

_HERE = Path(__file__).parent
_BATCH = re.compile(r"(.+) \(batch size (\d+)\)")


class TimeSlicing:
    """Jobs take turns on a GPU, as contexts do without MPS: max-min fair shares of its time.

    A job that keeps a GPU busy for u % of the time alone gets that much if both together need no
    more than all of it; else each gets up to half, plus what the other leaves, and `switching` of
    all is lost. Two saturated jobs run at 0.475 of their speed each: kernels that fill the GPU
    cannot overlap. This is an upper bound on interference, as utilisation says how long kernels
    run, not how much of the GPU they fill.
    """

    def __init__(self, switching: float = SWITCHING) -> None:
        self.switching = switching

    def speeds(
        self, first: Profile | None, second: Profile | None, configs: tuple[str, str]
    ) -> Speeds:
        """See `Interference`."""
        first_util, second_util = (
            max((p or _WHOLE).gpu_util, 1.0) / 100.0 for p in (first, second)
        )
        if first_util + second_util <= 1.0:
            return 1.0, 1.0
        there = 1.0 - self.switching
        half = there / 2
        shares = (
            min(first_util, max(half, there - second_util)),
            min(second_util, max(half, there - first_util)),
        )
        return shares[0] / first_util, shares[1] / second_util


class GavelPairs:
    """Pairs that Gavel measured on one GPU type, for jobs of the same kind of network.

    `gavel.yaml` maps models to Gavel's jobs. Older GPUs are fuller: two jobs together reach 1.06
    times the throughput of one on a K80 in the median, 1.13 on a P100, 1.37 on a V100, where a
    fifth of the pairs reach less than one alone.
    """

    def __init__(self, gpu: str) -> None:
        self.pairs, self._batches = _gavel(gpu)
        """Speeds by Gavel's names of its jobs, in both orders."""
        document = load("schedulers/sim/gavel.yaml")
        self._families: dict[str, str] = document["families"]
        self._otherwise: str = document["otherwise"]
        self._known: dict[str, tuple[str, ...]] = {}

    def speeds(
        self, first: Profile | None, second: Profile | None, configs: tuple[str, str]
    ) -> Speeds:
        """See `Interference`."""
        low, high = sorted(configs)
        # Every two families were measured, not every two batch sizes.
        pair = next(
            self.pairs[one, two]
            for one in self._near(low)
            for two in self._near(high)
            if (one, two) in self.pairs
        )
        if low == high:  # the order of the two means nothing
            return (sum(pair) / 2,) * 2
        return pair if configs[0] == low else pair[::-1]

    def _near(self, config: str) -> tuple[str, ...]:
        """The measured jobs of a configuration's family, nearest batch size first."""
        names = self._known.get(config)
        if names is None:
            model, batch = config, 1.0
            parts = config.rsplit("/", 3)
            if len(parts) == 4 and parts[2].isdigit():
                model, batch = parts[0], float(parts[2])
            sizes = self._batches[self._families.get(model, self._otherwise)]
            order = sorted(sizes, key=lambda size: abs(np.log(max(size, 1) / max(batch, 1))))
            names = self._known[config] = tuple(sizes[size] for size in order)
        return names


def named(name: str) -> Interference:
    """The bundled interference of this name; raises `UsageError` for none."""
    if name == SLICES:
        return TimeSlicing()
    if name in GAVEL:
        return GavelPairs(name.removeprefix("gavel-"))
    raise UsageError(f"no interference {name!r}; there are {', '.join(NAMES)}.")


@cache
def _gavel(gpu: str) -> tuple[dict[tuple[str, str], Speeds], dict[str, dict[int, str]]]:
    """The speeds of each pair in both orders, and the jobs of each family by batch size."""
    pairs: dict[tuple[str, str], Speeds] = {}
    batches: dict[str, dict[int, str]] = {}
    with (_HERE / "gavel_pairs.csv").open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(line for line in stream if not line.startswith("#")):
            if row["gpu"] != gpu:
                continue
            first_job, second_job = row["job1"], row["job2"]
            speeds = (float(row["speed1"]), float(row["speed2"]))
            pairs[first_job, second_job] = speeds
            pairs[second_job, first_job] = speeds[::-1]
            for job in (first_job, second_job):
                parts = _BATCH.fullmatch(job)
                family, size = (parts[1], int(parts[2])) if parts else (job, 1)
                batches.setdefault(family, {})[size] = job
    return pairs, batches
