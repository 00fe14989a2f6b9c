"""Placement where a job wastes the fewest GPUs: fragmentation gradient descent (FGD, ATC'23).

A node's fragment is the part of its idle GPUs that the expected jobs could not use there, as a mean
over the distribution of jobs (section 3 of "Beware of Fragmentation"): all idle GPUs for a job that
lacks GPUs, CPUs or the GPU type, else those with too little left for it. A job goes to the node,
and a part of a GPU to the GPU, where the fragment grows least. As in the authors' artifact, growth
is compared in a hundred steps of a sigmoid, and the most frequent requests stand for all. Ties go
to the fullest node, which is not in the paper.

Growth knows which remainders of GPUs jobs could use, but not how remainders and parts make up whole
GPUs. `priced` (not in the paper) puts a part of a GPU where the remainder loses least of its value
(`rests.py`), and breaks ties by growth.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schedmate.schedulers.fitting import EVERY, Order
from schedmate.schedulers.fragments import EPSILON, Floats, Shapes, request_of, steps
from schedmate.schedulers.model import Allocation, Cluster, Job
from schedmate.schedulers.pools import lowest
from schedmate.schedulers.rests import STEPS, counted, worths
from schedmate.schedulers.space import Space

_ROWS = 4096


class Choices(NamedTuple):
    """Where a job could go: rows of nodes and GPUs."""

    node: NDArray[np.int64]
    gpu: NDArray[np.int64]
    """The one that a part of a GPU would be on."""
    before: Floats
    """Idle part of each GPU of the node, shape (rows, GPUs)."""
    after: Floats
    """The same with the job."""
    cpus: Floats
    """Idle processors of the node, with the job."""


class _Known(NamedTuple):
    """Of one request: by node, what a job of it costs there, and on which GPU."""

    seen: int
    """Changes of nodes that are in it."""
    costs: Floats
    gpu: NDArray[np.int64]


class FragmentationSpace(Space):
    """A `Space` that places jobs of up to one node where the fragment grows least.

    Jobs over several nodes, and those with constraints, are placed as in any space.

    Args:
        jobs: the expected jobs, such as all jobs of the trace or those of the last month.
        priced: whether remainders of GPUs are valued by prices (not in the paper).
    """

    __slots__ = (
        *("_changes", "_idle_cpus", "_kind", "_known", "_left", "_shapes", "_width", "_worth"),
    )

    def __init__(self, cluster: Cluster, jobs: Iterable[Job], *, priced: bool = False) -> None:
        super().__init__(cluster)
        jobs = list(jobs)
        self._worth = worths(counted(job.share for job in jobs)) if priced else None
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
        """See `Space.find`; `order` is ignored where the fragment decides."""
        gpus = gpus or job.gpus
        plain = job.constraints is None and not borrow and not role and not gpu_type
        if not plain or gpus != job.gpus or gpus > self.largest:
            return super().find(
                job, role, gpus=gpus, gpu_type=gpu_type, borrow=borrow, order=order, among=among
            )
        nodes, _ = self.open_to(job)
        known = self._costs(job, nodes)
        costs = known.costs
        if among != EVERY:
            costs = np.where([among >> node & 1 for node in range(len(costs))], costs, np.inf)
        least = costs.min()
        if least == np.inf:
            return None
        node = self._one_of(np.flatnonzero(costs == least))
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

    # What decides.

    def weigh(self, job: Job, choices: Choices) -> Floats:
        """The job's cost in each place; this rule chooses the lowest."""
        kind = self._kind[choices.node]
        idle = self._idle_cpus[choices.node]
        adds = [
            self._shapes.fragments(choices.after[some], choices.cpus[some], kind[some])
            - self._shapes.fragments(choices.before[some], idle[some], kind[some])
            for some in (slice(n, n + _ROWS) for n in range(0, len(kind), _ROWS))
        ]
        growth = steps(np.concatenate(adds))
        if self._worth is None or job.share == 1.0:
            return growth
        row = np.arange(len(kind))
        before, after = (
            self._worth[np.round(left[row, choices.gpu] * STEPS).astype(np.int64)]
            for left in (choices.before, choices.after)
        )
        # In millionths, so that growth decides where the same is lost but for rounding.
        lost: Floats = np.round((before - after) * 1e6) * 1e3
        return lost + growth

    def _one_of(self, nodes: NDArray[np.int64]) -> int:
        """Which of nodes that cost as little."""
        return int(nodes[np.argmin(self._left[nodes].sum(axis=1).round(6))])

    # The state of nodes as numbers.

    def _changed(self, allocation: Allocation) -> None:
        for node, _ in allocation:
            self._look(node)
            self._changes.append(node)

    def _look(self, node: int) -> None:
        free, used = self.free[node], self._shares.used
        closed, promised = self.closed(node), self._shares.promised.get(node, 0)
        row = self._left[node]
        for gpu in range(self.cluster.nodes[node].gpus):
            bit = 1 << gpu
            row[gpu] = 1.0 if free & bit else 0.0
            if not closed and (part := used.get((node, bit))) is not None:
                row[gpu] = 0.0 if promised & bit else round(1.0 - part, 9)
        self._idle_cpus[node] = self.spare(node)[0]

    def _costs(self, job: Job, nodes: int) -> _Known:
        key = (*request_of(job), job.memory_mb, job.vc)
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
        known.costs[nodes] = np.inf
        afford = [self.affords(int(node), job, job.gpus) for node in nodes]
        nodes = nodes[afford]
        left = self._left[nodes]
        if job.share != 1.0:
            rows, gpus = np.nonzero(left >= job.share - EPSILON)
        else:
            rows = np.flatnonzero((left >= 1.0 - EPSILON).sum(axis=1) >= job.gpus)
            gpus = np.zeros_like(rows)
        if not len(rows):
            return
        after = left[rows]
        if job.share != 1.0:
            after[np.arange(len(rows)), gpus] -= job.share
        else:
            whole = after >= 1.0 - EPSILON
            after[whole & (whole.cumsum(axis=1) <= job.gpus)] = 0.0
        at = nodes[rows]
        costs = self.weigh(
            job, Choices(at, gpus, left[rows], after, self._idle_cpus[at] - job.cpus)
        )
        # Of the GPUs of a node the best one; the first of equals.
        best = np.lexsort((gpus, costs, rows))
        first = best[np.unique(rows[best], return_index=True)[1]]
        known.costs[at[first]] = costs[first]
        known.gpu[at[first]] = gpus[first]
