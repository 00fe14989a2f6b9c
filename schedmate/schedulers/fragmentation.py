"""Placement where a job wastes the fewest GPUs: fragmentation gradient descent (FGD, ATC'23).

A node's fragment is the part of its idle GPUs that the expected jobs could not use there, as a mean
over the distribution of jobs (section 3 of "Beware of Fragmentation"): all idle GPUs for a job that
lacks GPUs, CPUs or the GPU type, else those with too little left for it. A job goes to the node,
and a part of a GPU to the GPU, where the fragment grows least. As in the authors' artifact, growth
is compared in a hundred steps of a sigmoid, and the most frequent requests stand for all. Ties go
to the fullest node, which is not in the paper.

Growth knows which remainders of GPUs jobs could use, but not how remainders and parts make up whole
GPUs. `priced` (not in the paper) puts a part of a GPU where the remainder loses least of its value
by shadow prices (`remainder_values`), and breaks ties by growth.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schedmate.base.errors import require
from schedmate.schedulers.free import lowest_gpus
from schedmate.schedulers.model import Allocation, Cluster, Job
from schedmate.schedulers.space import EVERY_NODE, Order, Space

Floats = NDArray[np.float64]
EPSILON = 1e-6
POPULAR = 0.95
"""Share of the jobs whose requests count as those to be expected, the most frequent first."""


class Shapes:
    """The requests to be expected: each with its share, parts of a GPU and processors."""

    def __init__(self, jobs: Iterable[Job], types: list[str], popular: float = POPULAR) -> None:
        counted = Counter(map(request_of, jobs))
        total = counted.total()
        requests, seen = [], 0
        for request, count in counted.most_common():
            requests.append((request, count))
            seen += count
            if seen >= popular * total:
                break
        weights = np.array([weight for _, weight in requests], float)
        self.share: Floats = weights / max(weights.sum(), 1e-12)
        self.gpus = np.array([asked.gpus for asked, _ in requests], float)
        self.part, self.of_part = np.unique(
            [asked.part for asked, _ in requests], return_inverse=True
        )
        self.cpus = np.array([asked.cpus for asked, _ in requests], float)
        names = [
            set(asked.gpu_type.split("|")) if asked.gpu_type else set() for asked, _ in requests
        ]
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
        fragments: Floats = wasted @ self.share
        return fragments


def growth_steps(adds: Floats) -> Floats:
    """Growth in the hundred steps of the artifact: equal where differences are small."""
    steps: Floats = 100.0 - np.floor(100.0 / (1.0 + np.exp(np.round(np.minimum(adds, 50.0), 9))))
    return steps


class Request(NamedTuple):
    """The properties in which requests differ."""

    gpus: int
    part: float
    cpus: float
    gpu_type: str


def request_of(job: Job) -> Request:
    """The request of a job."""
    return Request(job.gpus, job.share, job.cpus, job.gpu_type)


# The space that places each job where fragments grow least.


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
    """The costs of jobs with one request: by node, the cost there and the GPU for a part of one."""

    seen: int
    """Number of changes of nodes that the costs include."""
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
        self._worth = remainder_values(count_parts(job.share for job in jobs)) if priced else None
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
        among: int = EVERY_NODE,
    ) -> Allocation | None:
        """See `Space.find`; `order` is ignored where the fragment decides."""
        gpus = gpus or job.gpus
        plain = job.constraints is None and not borrow and not role and not gpu_type
        if not plain or gpus != job.gpus or gpus > self.largest:
            return super().find(
                job, role, gpus=gpus, gpu_type=gpu_type, borrow=borrow, order=order, among=among
            )
        nodes, _ = self.open_to(job)
        cached = self._costs(job, nodes)
        costs = cached.costs
        if among != EVERY_NODE:
            costs = np.where([among >> node & 1 for node in range(len(costs))], costs, np.inf)
        least = costs.min()
        if least == np.inf:
            return None
        node = self._one_of(np.flatnonzero(costs == least))
        if job.share != 1.0:
            return ((node, 1 << int(cached.gpu[node])),)
        return ((node, lowest_gpus(self.free[node], gpus)),)

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
        growth = growth_steps(np.concatenate(adds))
        if self._worth is None or job.share == 1.0:
            return growth
        row = np.arange(len(kind))
        before, after = (
            self._worth[np.round(left[row, choices.gpu] * THOUSANDTHS).astype(np.int64)]
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
        cached = self._known.get(key)
        if cached is None:
            count = len(self._kind)
            cached = _Known(0, np.full(count, np.inf), np.zeros(count, np.int64))
            changed = [node for node in range(count) if nodes >> node & 1]
        else:
            changed = [node for node in set(self._changes[cached.seen :]) if nodes >> node & 1]
        if changed:
            self._update(job, cached, np.array(sorted(changed), np.int64))
        cached = self._known[key] = cached._replace(seen=len(self._changes))
        return cached

    def _update(self, job: Job, cached: _Known, nodes: NDArray[np.int64]) -> None:
        cached.costs[nodes] = np.inf
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
        cached.costs[at[first]] = costs[first]
        cached.gpu[at[first]] = gpus[first]


# The value of the remainder of a shared GPU, by shadow prices.
#
# Dividing GPUs into the parts that jobs request is a cutting stock problem (Gilmore and Gomory,
# 1961): use the fewest GPUs. The dual of its linear program prices each part in GPUs, and a
# remainder is worth as much as the best parts that fit into it: 0.19 of a GPU that only a rare
# part could use is worth nothing; 0.35, half of what a common pair takes, is worth a half.


THOUSANDTHS = 1000
"""Parts of a GPU are counted in thousandths."""
_EPSILON = 1e-9
_MOST_PATTERNS = 500


def remainder_values(parts: Mapping[int, int]) -> NDArray[np.float64]:
    """Value of each remainder of a GPU [GPUs], by thousandths, from 0 to 1,000.

    `parts`: how often each part is requested, by thousandths (1 to 999). Without any, a remainder
    is worth nothing. Raises `UsageError` without the extra `schedulers`.
    """
    values = np.zeros(THOUSANDTHS + 1)
    if parts:
        require("pricing rests of GPUs", "schedulers", "scipy")
        sizes = sorted(parts)
        shares = np.array([parts[size] for size in sizes], float)
        values, _ = _best_patterns(sizes, _shadow_prices(sizes, shares / shares.sum()))
    values[THOUSANDTHS] = 1.0
    return np.minimum(values, 1.0)


def count_parts(shares: Iterable[float]) -> dict[int, int]:
    """Parts of a GPU by thousandths, without whole GPUs."""
    counts: dict[int, int] = {}
    for share in shares:
        if 0 < (part := round(share * THOUSANDTHS)) < THOUSANDTHS:
            counts[part] = counts.get(part, 0) + 1
    return counts


def _shadow_prices(sizes: list[int], shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Prices of the parts, by column generation."""
    from scipy.optimize import linprog

    patterns = [
        [THOUSANDTHS // size * (n == k) for n in range(len(sizes))] for k, size in enumerate(sizes)
    ]
    while True:
        table = np.array(patterns, float).T
        solved = linprog(np.ones(len(patterns)), A_ub=-table, b_ub=-shares, method="highs")
        prices = np.maximum(-solved.ineqlin.marginals, 0.0)
        worth, last = _best_patterns(sizes, prices)
        if worth[THOUSANDTHS] <= 1.0 + _EPSILON or len(patterns) >= _MOST_PATTERNS:
            return np.asarray(prices)
        patterns.append(_pattern(sizes, last))


def _best_patterns(
    sizes: list[int], prices: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The most that parts in each rest are worth together, and the last part of it."""
    worth, last = np.zeros(THOUSANDTHS + 1), np.full(THOUSANDTHS + 1, -1)
    for rest in range(1, THOUSANDTHS + 1):
        worth[rest] = worth[rest - 1]
        for k, size in enumerate(sizes):
            if size > rest:
                break
            if (more := worth[rest - size] + prices[k]) > worth[rest] + _EPSILON:
                worth[rest], last[rest] = more, k
    return worth, last


def _pattern(sizes: list[int], last: NDArray[np.int64]) -> list[int]:
    pattern, rest = [0] * len(sizes), THOUSANDTHS
    while rest:
        if last[rest] < 0:
            rest -= 1
        else:
            pattern[last[rest]] += 1
            rest -= sizes[last[rest]]
    return pattern
