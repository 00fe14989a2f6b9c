"""Where a job leaves least of the GPUs to waste: fragmentation gradient descent (FGD, ATC'23).

A node's fragment is what of its idle GPUs the jobs to be expected could not use there: all of them
for a job that lacks GPUs, processors or the GPU type, and those too full for it else; the mean over
jobs as they come (section 3 of "Beware of Fragmentation"). A job goes to the node, and a part of a
GPU to the GPU, where that grows least. As in the authors' artifact, growth is compared in a hundred
steps of a sigmoid, and the most frequent requests stand for all. Of equals the fullest node is
taken, which is ours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schedmate.schedulers.fitting import EVERY, Order
from schedmate.schedulers.model import Allocation, Cluster, Job
from schedmate.schedulers.pools import lowest
from schedmate.schedulers.space import Space

Floats = NDArray[np.float64]
_EPSILON = 1e-6
_ROWS = 4096
POPULAR = 0.95
"""Share of the jobs whose requests count as those to be expected, the most frequent first."""


class Shapes:
    """The requests to be expected: each with its share, parts of a GPU and processors."""

    def __init__(self, jobs: Iterable[Job], types: list[str], popular: float = POPULAR) -> None:
        counted = Counter(map(_request, jobs))
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
        """GPUs that are expected to be of no use, for each row.

        `left`: what is idle of each GPU, shape (rows, GPUs); `cpus`: idle processors; `kind`: the
        position of the GPU type.
        """
        usable = left[:, :, None] >= self.part - _EPSILON  # rows, GPUs, parts
        enough = usable.sum(axis=1)[:, self.of_part] >= self.gpus
        total = left.sum(axis=1)
        below = total[:, None] - np.einsum("rg,rgp->rp", left, usable)
        fits = enough & (cpus[:, None] >= self.cpus - _EPSILON) & self.runs_on[kind]
        # A job without GPUs can use none of them.
        fits &= self.gpus > 0
        wasted = np.where(fits, below[:, self.of_part], total[:, None])
        found: Floats = wasted @ self.share
        return found


def _steps(adds: Floats) -> Floats:
    """How good each is, in the hundred steps of the artifact: equal where differences are small."""
    found: Floats = np.floor(100.0 / (1.0 + np.exp(np.round(np.minimum(adds, 50.0), 9))))
    return found


class _Request(NamedTuple):
    gpus: int
    part: float
    cpus: float
    gpu_type: str


def _request(job: Job) -> _Request:
    return _Request(job.gpus, job.share, job.cpus, job.gpu_type)


class _Known(NamedTuple):
    """Of one request: by node, how much a job of it adds to the fragment, and on which GPU."""

    seen: int
    """Changes of nodes that are in it."""
    adds: Floats
    gpu: NDArray[np.int64]


class FragmentationSpace(Space):
    """A `Space` that puts jobs of up to one node where they add least to the fragment.

    Jobs over several nodes, and those with constraints, are put as in any space.

    Args:
        jobs: what is to be expected, such as all jobs of the trace or those of the last month.
    """

    __slots__ = ("_changes", "_idle_cpus", "_kind", "_known", "_left", "_shapes", "_width")

    def __init__(self, cluster: Cluster, jobs: Iterable[Job]) -> None:
        super().__init__(cluster)
        nodes = cluster.nodes
        types = sorted({node.gpu_type for node in nodes})
        self._shapes = Shapes(jobs, types)
        self._width = max(node.gpus for node in nodes)
        self._kind = np.array([types.index(node.gpu_type) for node in nodes], np.int64)
        self._left = np.zeros((len(nodes), self._width))
        self._idle_cpus = np.zeros(len(nodes))
        self._changes: list[int] = []
        self._known: dict[tuple[object, ...], _Known] = {}
        for node in range(len(nodes)):
            self._look(node)

    def find(
        self,
        job: Job,
        role: str = "",
        *,
        gpus: int = 0,
        gpu_type: str = "",
        borrow: bool = False,
        order: Order | None = None,
        among: int = EVERY,
    ) -> Allocation | None:
        """See `Space.find`; `order` does not count where the fragment decides."""
        gpus = gpus or job.gpus
        plain = job.constraints is None and not borrow and not role and not gpu_type
        if not plain or gpus != job.gpus or gpus > self.largest:
            return super().find(
                job, role, gpus=gpus, gpu_type=gpu_type, borrow=borrow, order=order, among=among
            )
        nodes, _ = self.open_to(job)
        known = self._adds(job, nodes)
        adds = known.adds
        if among != EVERY:
            adds = np.where([among >> node & 1 for node in range(len(adds))], adds, np.inf)
        fits = np.flatnonzero(adds < np.inf)
        if not len(fits):
            return None
        steps = _steps(adds[fits])
        best = fits[steps == steps.max()]
        node = int(best[np.argmin(self._left[best].sum(axis=1).round(6))])
        if job.share != 1.0:
            return ((node, 1 << int(known.gpu[node])),)
        return ((node, lowest(self.free[node], gpus)),)

    def place(self, job: Job, role: str = "") -> Allocation | None:
        """See `Space.place`."""
        allocation = self.find(job, role)
        if allocation is not None:
            self.take(job, allocation)
        return allocation

    def take(self, job: Job, allocation: Allocation, *, any_size: bool = False) -> bool:
        """See `Space.take`."""
        taken = super().take(job, allocation, any_size=any_size)
        self._changed(allocation)
        return taken

    def give(self, job: Job, allocation: Allocation) -> None:
        """See `Space.give`."""
        super().give(job, allocation)
        self._changed(allocation)

    def claim(self, job: Job, allocation: Allocation) -> None:
        """See `Space.claim`."""
        super().claim(job, allocation)
        self._changed(allocation)

    def end_claim(self, job: Job, allocation: Allocation) -> None:
        """See `Space.end_claim`."""
        super().end_claim(job, allocation)
        self._changed(allocation)

    def close(self, node: int) -> None:
        """See `Free.close`."""
        super().close(node)
        self._changed(((node, 0),))

    def reopen(self, node: int) -> None:
        """See `Free.reopen`."""
        super().reopen(node)
        self._changed(((node, 0),))

    def end_loan(self, job: Job, allocation: Allocation, *, left: bool) -> None:
        """See `Free.end_loan`."""
        super().end_loan(job, allocation, left=left)
        self._changed(allocation)

    def _retake(self, job: Job, allocation: Allocation) -> None:
        super()._retake(job, allocation)
        self._changed(allocation)

    # The state of nodes as numbers.

    def _changed(self, allocation: Allocation) -> None:
        for node, _ in allocation:
            self._look(node)
            self._changes.append(node)

    def _look(self, node: int) -> None:
        free, used = self.free[node], self._shares.used
        closed = self.closed(node)
        row = self._left[node]
        for gpu in range(self.cluster.nodes[node].gpus):
            bit = 1 << gpu
            row[gpu] = 1.0 if free & bit else 0.0
            if not closed and (part := used.get((node, bit))) is not None:
                row[gpu] = round(1.0 - part, 9)
        self._idle_cpus[node] = self.spare(node)[0]

    def _adds(self, job: Job, nodes: int) -> _Known:
        key = (*_request(job), job.memory_mb, job.vc)
        known = self._known.get(key)
        if known is None:
            count = len(self._kind)
            known = _Known(0, np.full(count, np.inf), np.zeros(count, np.int64))
            changed = [node for node in range(count) if nodes >> node & 1]
        else:
            changed = [node for node in set(self._changes[known.seen :]) if nodes >> node & 1]
        if changed:
            self._update(job, known, np.array(sorted(changed), np.int64))
        known = self._known[key] = known._replace(seen=len(self._changes))
        return known

    def _update(self, job: Job, known: _Known, nodes: NDArray[np.int64]) -> None:
        known.adds[nodes] = np.inf
        afford = [self.affords(int(node), job, job.gpus) for node in nodes]
        nodes = nodes[afford]
        left = self._left[nodes]
        if job.share != 1.0:
            rows, gpus = np.nonzero(left >= job.share - _EPSILON)
        else:
            rows = np.flatnonzero((left >= 1.0 - _EPSILON).sum(axis=1) >= job.gpus)
            gpus = np.zeros_like(rows)
        if not len(rows):
            return
        after = left[rows]
        if job.share != 1.0:
            after[np.arange(len(rows)), gpus] -= job.share
        else:
            whole = after >= 1.0 - _EPSILON
            after[whole & (whole.cumsum(axis=1) <= job.gpus)] = 0.0
        at = nodes[rows]
        cpus, kind = self._idle_cpus[at] - job.cpus, self._kind[at]
        adds = np.concatenate(
            [
                self._shapes.fragments(
                    after[n : n + _ROWS], cpus[n : n + _ROWS], kind[n : n + _ROWS]
                )
                for n in range(0, len(rows), _ROWS)
            ]
        )
        before = self._shapes.fragments(left, self._idle_cpus[nodes], self._kind[nodes])
        adds = adds - before[rows]
        # Of the GPUs of a node the best one; the first of equals.
        best = np.lexsort((gpus, adds, rows))
        first = best[np.unique(rows[best], return_index=True)[1]]
        known.adds[nodes[rows[first]]] = adds[first]
        known.gpu[nodes[rows[first]]] = gpus[first]
