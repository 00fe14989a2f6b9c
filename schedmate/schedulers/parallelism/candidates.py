"""Planning requests, and the candidate plans that are compared before they are priced."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from schedmate.schedulers.parallelism.models import ModelSpec

MOST_KEPT = 12
"""A frontier keeps at most this many plans."""


class Request(NamedTuple):
    """A planning request: a model on GPUs of one type."""

    spec: ModelSpec
    gpu: str
    gpus: int
    gpus_per_node: int
    global_batch: int
    sequence: int
    precision: str
    sharding: str = "none"
    recompute: str = "none"
    uniform: bool = False
    """Only plans whose stages have the same number of GPUs, as most frameworks need."""


@dataclass(frozen=True)
class Candidate:
    """A plan of a grid by the two metrics that need no execution."""

    layers: tuple[int, ...]
    gpus: tuple[int, ...]
    """GPUs of each stage."""
    data: int
    micro_batches: int
    bias: float
    """Computation bias, Equation 3 [GPUs]."""
    communication: float
    """Communication load, Equation 4 [s]."""

    @property
    def tensor(self) -> tuple[int, ...]:
        """Tensor-parallel GPUs of each stage."""
        return tuple(count // self.data for count in self.gpus)


def frontier(candidates: list[Candidate], most: int = MOST_KEPT) -> list[Candidate]:
    """The Pareto frontier by bias and communication, thinned to `most` plans.

    Of the two plans with the most similar partitions, the one that communicates more goes.
    """
    kept: list[Candidate] = []
    for one in sorted(candidates, key=lambda plan: (plan.bias, plan.communication)):
        if not kept or one.communication < kept[-1].communication - 1e-15:
            kept.append(one)
    while len(kept) > most:
        pairs = [(_difference(a, b), place) for place, (a, b) in enumerate(pairwise(kept))]
        place = min(pairs)[1]
        worse = place if kept[place].communication >= kept[place + 1].communication else place + 1
        del kept[worse]
    return kept


def _difference(one: Candidate, other: Candidate) -> float:
    return sum(abs(a - b) for a, b in zip(one.layers, other.layers, strict=True))
