"""The idle GPUs of a node that typical jobs could not use (section 3 of FGD, ATC'23)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schedmate.schedulers.model import Job

Floats = NDArray[np.float64]
EPSILON = 1e-6
POPULAR = 0.95
"""Share of the jobs whose requests count as those to be expected, the most frequent first."""


class Shapes:
    """The requests to be expected: each with its share, parts of a GPU and processors."""

    def __init__(self, jobs: Iterable[Job], types: list[str], popular: float = POPULAR) -> None:
        counted = Counter(map(request_of, jobs))
        total = counted.total()
        kept, seen = [], 0
        for request, count in counted.most_common():
            kept.append((request, count))
            seen += count
            if seen >= popular * total:
                break
        weights = np.array([weight for _, weight in kept], float)
        self.share: Floats = weights / max(weights.sum(), 1e-12)
        self.gpus = np.array([one.gpus for one, _ in kept], float)
        self.part, self.of_part = np.unique([one.part for one, _ in kept], return_inverse=True)
        self.cpus = np.array([one.cpus for one, _ in kept], float)
        names = [set(one.gpu_type.split("|")) if one.gpu_type else set() for one, _ in kept]
        self.runs_on = np.array(
            [[not some or kind in some or not kind for some in names] for kind in types], bool
        )

    def fragments(self, left: Floats, cpus: Floats, kind: NDArray[np.int64]) -> Floats:
        """Expected number of unusable GPUs for each row.

        `left`: idle part of each GPU, shape (rows, GPUs); `cpus`: idle CPUs; `kind`: position of
        the GPU type.
        """
        usable = left[:, :, None] >= self.part - EPSILON  # rows, GPUs, parts
        enough = usable.sum(axis=1)[:, self.of_part] >= self.gpus
        total = left.sum(axis=1)
        below = total[:, None] - np.einsum("rg,rgp->rp", left, usable)
        fits = enough & (cpus[:, None] >= self.cpus - EPSILON) & self.runs_on[kind]
        # A job without GPUs can use no GPU.
        fits &= self.gpus > 0
        wasted = np.where(fits, below[:, self.of_part], total[:, None])
        found: Floats = wasted @ self.share
        return found


def steps(adds: Floats) -> Floats:
    """Growth in the hundred steps of the artifact: equal where differences are small."""
    found: Floats = 100.0 - np.floor(100.0 / (1.0 + np.exp(np.round(np.minimum(adds, 50.0), 9))))
    return found


class Request(NamedTuple):
    """The properties in which requests differ."""

    gpus: int
    part: float
    cpus: float
    gpu_type: str


def request_of(job: Job) -> Request:
    """The request of a job."""
    return Request(job.gpus, job.share, job.cpus, job.gpu_type)
