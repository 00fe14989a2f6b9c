"""Measured tables of one application: how long a step takes, what a batch size does to progress.

`placements-TYPE.csv` and `scalability-TYPE.csv` have `local_bsz, step_time, sync_time` [samples, s]
by placement ("44": four GPUs on each of two nodes) and by nodes and replicas; `validation-B.csv`
has progress and gradient statistics of each epoch at global batch size B.
"""

from __future__ import annotations

import csv
from bisect import bisect_left
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from schedmate.data import load
from schedmate.errors import InputError
from schedmate.schedulers.goodput import Limits
from schedmate.schedulers.goodput.throughput import Floats


@cache
def applications() -> dict[str, dict[str, Any]]:
    """Named parameters of applications, from applications.yaml."""
    found: dict[str, dict[str, Any]] = load("schedulers/sim/elastic/applications.yaml")
    return found


class Steps:
    """Step times of one application on one GPU type."""

    def __init__(self, placements: Path, scalability: Path, *, pipeline: bool) -> None:
        self.pipeline = pipeline
        self._times: dict[tuple[tuple[int, ...], int], tuple[float, float]] = {}
        self.by_placement: dict[str, Floats] = {}
        rows = _rows(placements, ("placement", "local_bsz", "step_time", "sync_time"))
        grouped: dict[str, list[list[float]]] = {}
        for row in rows:
            times = [float(row[name]) for name in ("local_bsz", "step_time", "sync_time")]
            grouped.setdefault(_turned(row["placement"]), []).append(times)
        for placement, measured in grouped.items():
            self.by_placement[placement] = np.array(sorted(measured)).T
        self.by_size = self._by_size(scalability)
        sizes = [row[0] for table in self.by_placement.values() for row in table.T]
        nodes = [len(placement) for placement in self.by_placement]
        nodes += [nodes for nodes, _ in self.by_size]
        unit = min(sum(map(int, placement)) for placement in self.by_placement)
        self.limits = Limits(int(min(sizes)), int(max(sizes)), max(nodes), unit if pipeline else 1)

    def _by_size(self, path: Path) -> dict[tuple[int, int], Floats]:
        grouped: dict[tuple[int, int], list[list[float]]] = {}
        names = ("num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time")
        for row in _rows(path, names):
            times = [float(row[name]) for name in names[2:]]
            nodes, replicas = (int(float(row[name])) for name in _WHOLE)
            grouped.setdefault((nodes, replicas), []).append(times)
        for placement, table in self.by_placement.items():
            key = (len(placement), sum(map(int, placement)))
            grouped.setdefault(key, table.T.tolist())
        return {key: np.array(sorted(times)).T for key, times in grouped.items()}

    def times(self, counts: tuple[int, ...], batch: int) -> tuple[float, float]:
        """A step without and one with synchronisation [s]; `counts`: GPUs on each node.

        Interpolated in the batch size; a placement that was not measured takes the mean of those
        next to it in (nodes, replicas).
        """
        found = self._times.get((counts, batch))
        if found is None:
            table = self.by_placement.get(_turned("".join(map(str, counts))))
            if table is None:
                at = self._between(min(len(counts), 16), sum(counts), batch)
            else:
                at = _at(table, batch)
            found = self._times[counts, batch] = self._split(*at)
        return found

    def _split(self, step: float, sync: float) -> tuple[float, float]:
        if self.pipeline:
            # Here a synchronisation takes longer than a step, so it cannot be a part of it.
            return step, step + sync
        return max(step - sync, 1e-6), step

    def _between(self, nodes: int, gpus: int, batch: int) -> tuple[float, float]:
        known = sorted({key[0] for key in self.by_size})
        place = bisect_left(known, nodes)
        low, high = known[max(0, place - 1)], known[min(place, len(known) - 1)]
        if known[min(place, len(known) - 1)] == nodes:
            low = high = nodes
        one, other = (self._of_nodes(count, gpus, batch) for count in (low, high))
        part = 0.0 if low == high else (nodes - low) / (high - low)
        return (one[0] + part * (other[0] - one[0]), one[1] + part * (other[1] - one[1]))

    def _of_nodes(self, nodes: int, gpus: int, batch: int) -> tuple[float, float]:
        sizes = sorted(key[1] for key in self.by_size if key[0] == nodes)
        times = [_at(self.by_size[nodes, size], batch) for size in sizes]
        step = float(np.interp(gpus, sizes, [one[0] for one in times]))
        return step, float(np.interp(gpus, sizes, [one[1] for one in times]))


class Application:
    """One program: its steps on every GPU type, its gradients and its epochs."""

    def __init__(self, folder: Path) -> None:
        self.name = folder.name
        facts = {**applications()["otherwise"], **applications().get(self.name, {})}
        self.slowdown = float(facts["slowdown"])
        self.rescale_s = float(facts["rescale_s"])
        self.told_s = float(facts.get("told_s", self.rescale_s))
        self._noise: dict[tuple[float, int], tuple[float, float]] = {}
        self.counts_on_asked = bool(facts.get("counts_on_asked", True))
        pipeline = bool(facts.get("pipeline"))
        self.steps: dict[str, Steps] = {}
        for path in sorted(folder.glob("placements-*.csv")):
            gpu_type = path.stem.partition("-")[2]
            other = folder / f"scalability-{gpu_type}.csv"
            if other.exists():
                self.steps[gpu_type] = Steps(path, other, pipeline=pipeline)
        curves = {
            int(path.stem.partition("-")[2]): path for path in folder.glob("validation-*.csv")
        }
        if not self.steps or not curves:
            raise InputError(
                f"{folder} has no tables of the application {self.name!r}; it needs "
                "placements-TYPE.csv, scalability-TYPE.csv and validation-BATCH.csv."
            )
        self._read_curves(curves, facts.get("epochs"))

    def _read_curves(self, curves: dict[int, Path], epochs: int | None) -> None:
        self.batches = sorted(curves)
        tables = []
        for batch in self.batches:
            rows = _rows(curves[batch], ("progress", "grad_sqr", "grad_var"))
            tables.append([[float(row[name]) for name in row if name in _NEEDED] for row in rows])
        count = min(epochs or len(tables[0]), *(len(table) for table in tables))
        data = np.array([table[:count] for table in tables])
        names = [name for name in rows[0] if name in _NEEDED]
        column = {name: data[:, :, place] for place, name in enumerate(names)}
        self.ends = np.maximum.accumulate(column["progress"].min(axis=0))
        """Progress at the end of each epoch [iterations of the smallest batch size]."""
        self.squared, self.variance = column["grad_sqr"], column["grad_var"]
        if any(one >= other for one, other in pairwise(self.ends)) or self.ends[0] <= 0:
            raise InputError(
                f"progress in the validation tables of {self.name} does not grow; correct them, or "
                "name other tables with --tables."
            )

    @property
    def work(self) -> float:
        """Progress that a job needs."""
        return float(self.ends[-1])

    def epoch(self, done: float) -> int:
        """The epoch of a job after this progress."""
        return min(int(np.searchsorted(self.ends, done * (1 + 1e-12), "right")), len(self.ends) - 1)

    def noise(self, batch: float, epoch: int) -> tuple[float, float]:
        """Squared norm and variance of the gradient at this global batch size."""
        found = self._noise.get((batch, epoch))
        if found is None:
            squared = np.interp(batch, self.batches, self.squared[:, epoch])
            variance = np.interp(batch, self.batches, self.variance[:, epoch])
            found = self._noise[batch, epoch] = float(squared), float(variance)
        return found

    def duration_s(self, gpus: int, batch: int) -> float:
        """Run time on this number of GPUs of the first type by name, at this batch size [s].

        It is what the user's request would take; no policy of elastic jobs knows it.
        """
        steps = self.steps[min(self.steps)]
        unit, widest = steps.limits.gpus, max(int(max(one)) for one in steps.by_placement)
        counts = (widest,) * (gpus // widest) + ((gpus % widest,) if gpus % widest else ())
        replicas = max(1, gpus // unit)
        more = max(0, -(-batch // (replicas * steps.limits.largest)) - 1)
        size = -(-batch // (replicas * (more + 1)))
        accumulation, step = steps.times(counts, size)
        total = 0.0
        for epoch, progress in enumerate(np.diff(self.ends, prepend=0.0)):
            squared, variance = self.noise(batch, epoch)
            scale = batch / self.batches[0]
            total += progress / ((variance + squared) / (variance / scale + squared))
        return float(total * (more * accumulation + step) * self.slowdown)

    def alone(self, gpu_type: str) -> float:
        """Samples per second of one replica that fills its memory, which can only be known by
        trying."""
        limits = self.steps[gpu_type].limits
        _, step = self.steps[gpu_type].times((limits.gpus,), limits.largest)
        return limits.largest / step


_WHOLE = ("num_nodes", "num_replicas")
_NEEDED = ("progress", "grad_sqr", "grad_var")
_LARGEST = 1e30
"""No number is larger: the gradients' variance of BERT in Sia's tables is above 1e16."""


def _rows(path: Path, needs: tuple[str, ...]) -> list[dict[str, str]]:
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            rows = list(csv.DictReader(stream))
    except (OSError, UnicodeError, csv.Error) as error:
        raise InputError(f"cannot read {path}: {error}; check its name and rights.") from None
    missing = [name for name in needs if not rows or name not in rows[0]]
    if missing:
        raise InputError(
            f"{path} has no column {missing[0]!r}, or no rows; name other tables with --tables."
        )
    for line, row in enumerate(rows, 2):
        for name in needs:
            try:
                number = float(row[name])
                if not 0 <= number <= _LARGEST or (name in _WHOLE and not number.is_integer()):
                    raise ValueError
            except (TypeError, ValueError):
                raise InputError(
                    f"{path}, line {line}: {name} is {row[name]!r}; correct it: a number of at "
                    "least 0, whole where it is a count."
                ) from None
    return rows


def _turned(placement: str) -> str:
    """The smallest rotation: which node comes first does not matter."""
    return min(placement[one:] + placement[:one] for one in range(len(placement)))


def _at(table: Floats, batch: float) -> tuple[float, float]:
    sizes, steps, syncs = table
    return float(np.interp(batch, sizes, steps)), float(np.interp(batch, sizes, syncs))


@dataclass(frozen=True)
class Tables:
    """The measured tables of all applications of a workload, and where they are kept."""

    folder: Path
    applications: dict[str, Application]
