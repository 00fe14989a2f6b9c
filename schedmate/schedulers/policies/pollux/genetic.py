"""Genetic search over allocations, as in Pollux (OSDI'21, section 4.2).

NSGA-II (Deb et al. 2002) with the operators of the published scheduler and simulator (adaptdl,
Apache-2.0): a population of matrices, GPUs of each job on each node, of which the better half
survives each generation.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int16]
"""GPUs: (states, jobs, nodes), or (jobs, nodes) of one state."""
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

MOST_NODES = 16
"""Of one job."""
_BACK, _THINNED, _ZEROED = 0.1, 0.1, 0.1
"""Probabilities that a mutation reverts a job to its present allocation, and that it removes GPUs
of a job; and, if so, of each node."""
_NOTHING = 1e-3
"""Added to every speedup, so that a negative power of 0 is finite."""


@dataclass(frozen=True)
class Problem:
    """The problem. Jobs are in the order in which they get GPUs if there are not enough."""

    held: Counts
    """What jobs hold now: (jobs, nodes)."""
    most: Counts
    """Most GPUs of a node for each job: (jobs, nodes), 0 where it cannot run."""
    free: Counts
    """Available GPUs of each node."""
    kinds: NDArray[np.int64]
    """GPU type of each node, by number; no job gets GPUs of two types."""
    low: Counts
    """The fewest GPUs of each job, if any."""
    high: Counts
    """The most."""
    keeps: Floats
    """The part of its speed that a change of allocation leaves each job."""
    speedup: Callable[[int, int, int], float]
    """Speedup of the job at this position on these numbers of nodes and GPUs, relative to its fair
    share."""
    p: float
    """The power of the mean of speedups that is made large; negative."""


def search(problem: Problem, population: int, generations: int, seed: int) -> Counts:
    """The best allocation found, (jobs, nodes): within the available GPUs and the jobs' limits."""
    return _Search(problem, population, seed).run(generations)


class _Search:
    def __init__(self, problem: Problem, population: int, seed: int) -> None:
        self.problem = problem
        self.population = population
        self.draw = np.random.default_rng(seed)
        jobs, nodes = problem.held.shape
        top = int(problem.high.max(initial=0)) + 1
        self.known = np.full((jobs, min(nodes, MOST_NODES) + 1, top), np.nan)
        self.known[:, 0, :] = 0.0
        self.kinds = [problem.kinds == kind for kind in np.unique(problem.kinds)]
        self.scale = nodes / max(int(problem.free.sum()), 1)

    def run(self, generations: int) -> Counts:
        held = self.problem.held
        states = np.repeat(held[None], self.population, axis=0)
        states[1:] = self._mutated(states[1:])
        states = self._repaired(states)
        states = states[_distinct(states)]
        values = self._values(states)
        order = _best(values, self.population)
        for _ in range(generations):
            parents = self._chosen(len(order))
            born = self._repaired(self._mutated(self._crossed(states[order][parents])))
            states = np.concatenate([states[order], born])
            values = np.concatenate([values[order], self._values(born)])
            kept = _distinct(states)
            states, values = states[kept], values[kept]
            order = _best(values, self.population)
        best: Counts = states[np.argmin(values[:, 0])]
        return best

    def _values(self, states: Counts) -> Floats:
        """Objectives to minimise, (states, 2): the mean of speedups and the use of nodes."""
        gpus, nodes = states.sum(axis=2, dtype=np.int16), np.count_nonzero(states, axis=2)
        jobs = np.arange(states.shape[1])
        speedups = self.known[jobs, nodes, gpus]
        if np.isnan(speedups).any():
            missing = np.isnan(speedups)
            _, job = np.nonzero(missing)
            rows = np.stack([job, nodes[missing], gpus[missing]], axis=1)
            for one, some, count in np.unique(rows, axis=0).tolist():
                self.known[one, some, count] = self.problem.speedup(one, some, count)
            speedups = self.known[jobs, nodes, gpus]
        changed = (states != self.problem.held).any(axis=2)
        kept = speedups * np.where(changed, self.problem.keeps, 1.0)
        powers = (kept * self.scale + _NOTHING) ** self.problem.p
        mean = powers.mean(axis=1) ** (1.0 / self.problem.p)
        used = (states.any(axis=1) * self.problem.free).sum(axis=1)
        return np.stack([-mean, -speedups.sum(axis=1) / np.maximum(used, 1)], axis=1)

    def _chosen(self, count: int) -> NDArray[np.int64]:
        """Parents of the next generation, in pairs: the better of two each."""
        # The population is sorted, so that the lower place is the better.
        pairs = (self.population + 1) // 2
        return np.asarray(self.draw.integers(0, count, (2 * pairs, 2)).min(axis=1))

    def _crossed(self, parents: Counts) -> Counts:
        """Two children of two parents, which change places from some job on."""
        one, other = parents[0::2], parents[1::2]
        jobs = one.shape[1]
        point = self.draw.integers(0, jobs, (len(one), 1))
        first = (np.arange(jobs) < point)[..., None]
        return np.concatenate([np.where(first, one, other), np.where(first, other, one)])

    def _mutated(self, states: Counts) -> Counts:
        draw, held, most = self.draw, self.problem.held, self.problem.most
        count, jobs, _ = states.shape
        back = draw.random((count, jobs), np.float32) < _BACK
        states = np.where(back[..., None], held, states)
        thinned = draw.random((count, jobs), np.float32) < _THINNED
        rows = states[thinned]
        rows[draw.random(rows.shape, np.float32) < _ZEROED] = 0
        states[thinned] = rows
        # One job gets more of a node with free GPUs, or of one where it already is.
        free = (states.sum(axis=1, dtype=np.int16) < self.problem.free)[:, None, :]
        there = free & (states > 0)
        one = np.float32(1 / jobs)
        other = 1 / np.maximum(there.sum(axis=1, dtype=np.float32), 1)[:, None, :]
        chance = one + np.where(there, other - one * other, np.float32(0))
        more = free & (draw.random(states.shape, np.float32) < chance) & (states < most)
        where = np.nonzero(more)
        states[where] = draw.integers(states[where], most[where[1], where[2]] + 1)
        return states

    def _repaired(self, states: Counts) -> Counts:
        """The same within all limits."""
        one = self.problem
        states = np.minimum(states, one.most)
        if len(self.kinds) > 1:
            states = self._of_one_kind(states)
        # Of the jobs on several nodes, one a node: their traffic would disturb each other.
        spread = (np.count_nonzero(states, axis=2) > 1)[..., None] & (states > 0)
        states[spread & (spread.cumsum(axis=1, dtype=np.int16) > 1)] = 0
        # At most the GPUs and nodes that a job can use, whichever they are.
        over = states.sum(axis=2, dtype=np.int16) > one.high
        over |= np.count_nonzero(states, axis=2) > MOST_NODES
        if over.any():
            rows = states[over]
            shuffled = np.argsort(self.draw.random(rows.shape, np.float32), axis=1)
            rows = np.take_along_axis(rows, shuffled, axis=1)
            high = np.broadcast_to(one.high, over.shape)[over][:, None]
            rows = _rises(np.minimum(rows.cumsum(axis=1, dtype=np.int16), high), 1)
            rows[np.cumsum(rows > 0, axis=1) > MOST_NODES] = 0
            states[over] = np.take_along_axis(rows, np.argsort(shuffled, axis=1), axis=1)
        full = (states.sum(axis=1, dtype=np.int16) > one.free).any(axis=1)
        if full.any():
            sums = states[full].cumsum(axis=1, dtype=np.int16)
            states[full] = _rises(np.minimum(sums, one.free), 1)
        states[states.sum(axis=2, dtype=np.int16) < one.low] = 0
        return states

    def _of_one_kind(self, states: Counts) -> Counts:
        """Restrict each job to the GPU type of which it has most."""
        counts = np.stack([states[:, :, kind].sum(axis=2) for kind in self.kinds])
        first = counts.argmax(axis=0)
        for number, kind in enumerate(self.kinds):
            other = first != number
            states[:, :, kind] = np.where(other[..., None], 0, states[:, :, kind])
        return states


def _rises(sums: Counts, axis: int) -> Counts:
    return np.diff(sums, axis=axis, prepend=np.int16(0)).astype(np.int16)


def _distinct(states: Counts) -> NDArray[np.int64]:
    """Where each state is found first."""
    flat = np.ascontiguousarray(states.reshape(len(states), -1))
    rows = flat.view(np.dtype((np.void, flat.dtype.itemsize * flat.shape[1]))).ravel()
    _, first = np.unique(rows, return_index=True)
    first.sort()
    return first


def _best(values: Floats, count: int) -> NDArray[np.int64]:
    """Positions of the `count` best: by front, and within a front by distance to others.

    Values are pairs, smaller is better. In the order of the first value, those of a front are in
    the opposite order of the second, so one sort is enough.
    """
    order = np.lexsort((values[:, 1], values[:, 0]))
    fronts: list[list[tuple[float, float, int]]] = []
    last: list[float] = []  # second value of the last of each front, ascending
    before, front = (np.nan, np.nan), 0
    for place, pair in zip(order.tolist(), values[order].tolist(), strict=True):
        if tuple(pair) != before:
            before = (pair[0], pair[1])
            front = bisect_right(last, pair[1])
        if front == len(fronts):
            fronts.append([])
            last.append(pair[1])
        fronts[front].append((pair[0], pair[1], place))
        last[front] = pair[1]
    chosen: list[int] = []
    for members in fronts:
        if len(chosen) >= count:
            break
        chosen += [place for _, place in sorted(_crowding(members))]
    return np.array(chosen[:count])


def _crowding(front: list[tuple[float, float, int]]) -> list[tuple[float, int]]:
    """The places of a front with how far apart the neighbours of each are, negative."""
    (low, most, _), (high, least, _) = front[0], front[-1]
    wide, tall = (high - low) or 1.0, (most - least) or 1.0
    found = [(-np.inf, one[2]) for one in (front[0], front[-1])[: len(front)]]
    for before, this, after in zip(front, front[1:], front[2:], strict=False):
        gap = (after[0] - before[0]) / wide + (before[1] - after[1]) / tall
        found.append((-gap, this[2]))
    return found
