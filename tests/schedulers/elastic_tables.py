"""Small made-up tables of step times, in the layout of measured ones."""

from __future__ import annotations

import csv
from itertools import combinations_with_replacement
from pathlib import Path

from schedmate.schedulers.goodput import Throughput

SLOW = Throughput(0.02, 0.004, 0.05, 0.004, 0.02, 0.001, 2.0)
FAST = Throughput(0.01, 0.001, 0.03, 0.003, 0.005, 0.0005, 3.0)


def write(folder: Path, *, epochs: int = 5, per_epoch: float = 4000.0) -> Path:
    """The folder of an application `toy`, measured on the GPU types `slow` and `fast`."""
    toy = folder / "toy"
    toy.mkdir(parents=True)
    for name, model, most in (("slow", SLOW, 64), ("fast", FAST, 256)):
        sizes = [4, 16, 64, most]
        shapes = [
            shape
            for nodes in (1, 2, 3)
            for shape in combinations_with_replacement((1, 2, 4), nodes)
        ]
        placements, scalability = [], []
        for shape in shapes:
            for size in sorted(set(sizes)):
                acc, step = model.step_times(len(shape), sum(shape), size)
                times = (size, float(step), float(step - acc))
                placements.append(("".join(map(str, shape)), *times))
                scalability.append((len(shape), sum(shape), *times))
        ending = ("local_bsz", "step_time", "sync_time")
        _csv(toy / f"placements-{name}.csv", ("placement", *ending), placements)
        _csv(toy / f"scalability-{name}.csv", ("num_nodes", "num_replicas", *ending), scalability)
    for batch in (32, 64, 128, 256):
        rows = [((epoch + 1) * per_epoch, 1.0, 4.0 + epoch) for epoch in range(epochs)]
        _csv(toy / f"validation-{batch}.csv", ("progress", "grad_sqr", "grad_var"), rows)
    return folder


def workload(path: Path, jobs: int = 12, gap_s: float = 40.0, category: str = "adaptive") -> Path:
    """A workload of such jobs, a new one every `gap_s`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [(f"toy-{n}", n * gap_s, "toy", 1 + n % 4, 64, category) for n in range(jobs)]
    _csv(path, ("name", "time", "application", "num_replicas", "batch_size", "category"), rows)
    return path


def _csv(path: Path, header: tuple[str, ...], rows: list[tuple[object, ...]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows([header, *rows])
