"""Pollux (OSDI'21): elastic jobs by goodput, blind to GPU types; a baseline for Sia.

Pollux searches allocations with a genetic algorithm (`search=genetic`), which comes close to the
best mean of speedups. If all GPUs are equal, that mean has an exact optimum by dynamic programming
over Sia's sizes (`search=optimum`), and jobs are then placed where there is room.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schedmate.base.errors import UsageError
from schedmate.schedulers.free import lowest_gpus
from schedmate.schedulers.goodput import Shape
from schedmate.schedulers.model import Allocation, Cluster, Job
from schedmate.schedulers.policies.elastic import (
    Placement,
    Wish,
    allowed_shapes,
    capacity_of,
    changeable,
    decisions_for,
    node_groups,
    shape_of,
)
from schedmate.schedulers.policies.sia import Choice, ProgramError, restart_factor, solve_program
from schedmate.schedulers.policy import Decision, Policy, View, require_schedulers_extra

# Elasticity that ignores GPU types, after Pollux (OSDI'21): a baseline for Sia.
#
# Pollux searches allocations with a genetic algorithm (`search=genetic`), which comes close to
# the best mean of speedups. If all GPUs are equal, that mean has an exact optimum by dynamic
# programming over Sia's sizes (`search=optimum`), and jobs are then placed where there is room.


SEARCHES = ("optimum", "genetic", "greedy")


class Pollux(Policy):
    """Pollux: elastic jobs by goodput, as if all GPUs were equal."""

    name = "pollux"
    rounds = True
    one_pool = True
    adapts_batch = True

    def __init__(
        self,
        p: float = -1.0,
        interval_s: float = 60.0,
        search: str = "optimum",
        population: int = 100,
        generations: int = 100,
        seed: int = 0,
    ) -> None:
        """
        Args:
            p: fairness: the power of speedups that is summed up (section 4.2), negative.
            interval_s: length of a round [s].
            search: `optimum` of that sum, over Sia's sizes; `genetic`, as published: any numbers of
                GPUs on any nodes; `greedy`: one GPU to each job in order of submission, then more
                to the job whose speedup gains most.
            population: allocations that the genetic search keeps.
            generations: how often it replaces them.
            seed: of its draws.
        """
        require_schedulers_extra("scipy")
        if p >= 0:
            raise UsageError(f"policy pollux: p={p:g} must be below 0, such as -1.")
        if search not in SEARCHES:
            raise UsageError(f"policy pollux: search={search} is none of {', '.join(SEARCHES)}.")
        if population < 2 or generations < 1:
            raise UsageError(
                "policy pollux: population must be at least 2, and generations at least 1."
            )
        self.search = search
        self.population = population
        self.generations = generations
        self.seed = seed
        self.p = p
        self.interval_s = interval_s

    def decide(self, view: View) -> Sequence[Decision]:
        if self.search == "genetic":
            options = SearchOptions(self.p, self.population, self.generations, self.seed)
            return decisions_for(view, allocate_by_search(view, options), changeable(view))
        cluster = view.space.cluster
        capacity, jobs = capacity_of(view), changeable(view)
        fair = -(-sum(capacity.values()) // max(len(jobs), 1))
        wishes: list[Wish] = []
        offered: list[tuple[Job, dict[int, float], dict[int, list[Shape]]]] = []
        for job in jobs:
            if job.agent is not None and job.allocation and job.agent.restoring_until > view.now:
                present = shape_of(cluster, job.allocation)
                capacity[present.gpu_type] -= present.gpus
                wishes.append(Wish(job, present, pinned=True))
            else:
                offered.append((job, *_speedups(job, cluster, view.now, fair)))
        speedups = [one for _, one, _ in offered]
        find = self._optimum if self.search == "optimum" else self._greedy
        try:
            chosen = find(speedups, sum(capacity.values()))
        except ProgramError as error:
            view.warn(f"allocations kept, as the best sizes were not found: {error}")
            return []
        for place in sorted(chosen, key=lambda place: (-chosen[place], place)):
            job, sizes, shapes = offered[place]
            for gpus in sorted((one for one in sizes if one <= chosen[place]), reverse=True):
                if shape := _with_room(job, shapes[gpus], capacity, cluster):
                    capacity[shape.gpu_type] -= gpus
                    wishes.append(Wish(job, shape))
                    break
        return decisions_for(view, Placement(view, wishes).placed, jobs)

    def _optimum(self, speedups: list[dict[int, float]], left: int) -> dict[int, int]:
        """GPUs of each job, with as many jobs as possible running, by the least sum of powers."""
        powers = [{gpus: one**self.p for gpus, one in row.items()} for row in speedups]
        # More than all powers together, so that no sum makes up for a job without GPUs.
        without = 1.0 + sum(max(row.values(), default=0.0) for row in powers)
        choices = [
            [Choice(0, gpus, power - without) for gpus, power in row.items()] for row in powers
        ]
        solution = solve_program(choices, [left], gap=0.0)
        return {
            place: choices[place][one].gpus for place, one in enumerate(solution) if one is not None
        }

    def _greedy(self, speedups: list[dict[int, float]], left: int) -> dict[int, int]:
        chosen: dict[int, int] = {}
        heap: list[tuple[float, int, int]] = []
        for place, row in enumerate(speedups):
            least = min(row, default=0)
            if least and least <= left:
                chosen[place], left = least, left - least
                self._offer(heap, place, row, least)
        heapify(heap)
        while heap:
            _, place, gpus = heappop(heap)
            if gpus - chosen[place] <= left:
                left -= gpus - chosen[place]
                chosen[place] = gpus
                self._offer(heap, place, speedups[place], gpus)
        return chosen

    def _offer(
        self, heap: list[tuple[float, int, int]], place: int, speedups: dict[int, float], now: int
    ) -> None:
        """Enter the next larger sizes, by how much the sum gains with each GPU."""
        for gpus, speedup in speedups.items():
            if gpus > now and speedup > speedups[now]:
                gain = speedups[now] ** self.p - speedup**self.p
                heappush(heap, (-gain / (gpus - now), place, gpus))


def _speedups(
    job: Job, cluster: Cluster, now: float, fair: int
) -> tuple[dict[int, float], dict[int, list[Shape]]]:
    """Goodput by number of GPUs, relative to the fair share, and the shapes of that number.

    The fair share is the number of GPUs that each job would have if all had equally many, or the
    most that this one can use of them. The goodput of a number is the mean over the types with
    known values.
    """
    shapes: dict[int, list[Shape]] = {}
    for shape in allowed_shapes(job, cluster):
        shapes.setdefault(shape.gpus, []).append(shape)
    if not shapes:
        return {}, shapes
    smallest = min(shapes)
    if job.agent is None or not job.agent.models:
        return {smallest: 1.0}, shapes
    goodputs: dict[int, float] = {}
    for gpus, alike in shapes.items():
        measured = [one for one in job.agent.goodputs(tuple(alike)).tolist() if 0 < one < np.inf]
        if measured:
            goodputs[gpus] = sum(measured) / len(measured)
    if not goodputs:
        return {smallest: 1.0}, shapes
    usual = goodputs[max((gpus for gpus in goodputs if gpus <= fair), default=min(goodputs))]
    present = shape_of(cluster, job.allocation).gpus if job.allocation else 0
    factor = restart_factor(job, now) if present in goodputs else 1.0
    return {
        gpus: max(goodput / usual * (1.0 if gpus == present else factor), 1e-9)
        for gpus, goodput in sorted(goodputs.items())
    }, shapes


def _with_room(
    job: Job, shapes: list[Shape], capacity: dict[str, int], cluster: Cluster
) -> Shape | None:
    """On the fewest nodes, as speed depends on them; then where it is now, else where most is
    free."""
    now = shape_of(cluster, job.allocation).gpu_type if job.allocation else ""
    fitting = [one for one in shapes if one.gpus <= capacity.get(one.gpu_type, 0)]
    return max(
        fitting,
        key=lambda one: (-one.nodes, one.gpu_type == now, capacity[one.gpu_type]),
        default=None,
    )


# The matrix of a view, GPUs of each job on each node, for the genetic search; and back.


class SearchOptions(NamedTuple):
    """Parameters of the search: see `Pollux`."""

    p: float
    population: int
    generations: int
    seed: int


def allocate_by_search(view: View, options: SearchOptions) -> dict[int, Allocation]:
    """The GPUs of all jobs that are to have some, by the position of the job."""
    free, placed, jobs = list(view.space.free), {}, []
    for job in changeable(view):
        allocation = job.allocation
        if allocation and (_restoring(job, view.now) or not (job.migratable and job.preemptible)):
            placed[job.index] = allocation
            continue
        for node, mask in allocation:
            free[node] |= mask
        jobs.append(job)
    # The job with the least service goes first, if there are not enough GPUs.
    jobs.sort(key=lambda job: (job.attained_s(view.now) * job.gpus, job.index))
    nodes = [n for n, node in enumerate(view.space.cluster.nodes) if not node.role]
    if not jobs or not nodes:
        return placed
    problem = _problem(view, jobs, nodes, free, options.p)
    seed = hash((options.seed, round(1000 * view.now))) % (1 << 32)
    best = search_allocations(problem, options.population, options.generations, seed)
    return placed | _gpus_of_counts(jobs, nodes, free, best)


def _problem(view: View, jobs: list[Job], nodes: list[int], free: list[int], p: float) -> Problem:
    cluster = view.space.cluster
    types = sorted({cluster.nodes[node].gpu_type for node in nodes})
    room = np.array([free[node].bit_count() for node in nodes], dtype=np.int16)
    kinds = np.array([types.index(cluster.nodes[node].gpu_type) for node in nodes])
    shape = (len(jobs), len(nodes))
    present, most = np.zeros(shape, np.int16), np.zeros(shape, np.int16)
    low, high = np.zeros((2, len(jobs)), np.int16)
    for row, job in enumerate(jobs):
        here = dict(job.allocation)
        present[row] = [here.get(node, 0).bit_count() for node in nodes]
        usable = [one in _types(job, types) for one in types]
        most[row] = np.where(np.array(usable)[kinds], room, 0)
        low[row], high[row] = _range(job)
    total, each = int(room.sum()), max((size for _, _, size in node_groups(cluster)), default=1)
    fair = -(-total // len(jobs))
    speeds = [_Speeds(job, _types(job, types)) for job in jobs]
    usual = [
        speed.of(-(-gpus // each), gpus)
        for speed, gpus in zip(speeds, np.clip(fair, low, high).tolist(), strict=True)
    ]

    def speedup(job: int, some: int, gpus: int) -> float:
        return speeds[job].of(some, gpus) / usual[job] if usual[job] > 0 else 0.0

    keeps = np.array([restart_factor(job, view.now) for job in jobs])
    return Problem(present, most, room, kinds, low, high, keeps, speedup, p)


def _types(job: Job, types: list[str]) -> list[str]:
    usable = types if job.agent is None else [one for one in types if one in job.agent.limits]
    return [one for one in usable if job.gpu_type in ("", one)]


def _range(job: Job) -> tuple[int, int]:
    """The fewest and the most GPUs that a job can have now."""
    if job.agent is None or job.min_gpus >= job.max_gpus:
        return job.gpus, job.gpus
    replica = max(limit.gpus for limit in job.agent.limits.values())
    if not job.agent.models:
        return job.min_gpus, job.min_gpus
    return job.min_gpus, max(job.min_gpus, min(job.max_gpus, job.agent.most_replicas * replica))


class _Speeds:
    """Goodput of a job by nodes and GPUs, whatever their type."""

    def __init__(self, job: Job, types: list[str]) -> None:
        self._agent = job.agent if job.agent is not None and job.agent.models else None
        self._types = types

    def of(self, nodes: int, gpus: int) -> float:
        """The mean over the types with known values, 0 if there are none; 1 without an agent."""
        if self._agent is None:
            return 1.0
        alike = tuple(Shape(one, nodes, gpus) for one in self._types)
        goodputs = [one for one in self._agent.goodputs(alike).tolist() if 0 < one < np.inf]
        return sum(goodputs) / len(goodputs) if goodputs else 0.0


def _restoring(job: Job, now: float) -> bool:
    return job.agent is not None and job.agent.restoring_until > now


def _gpus_of_counts(
    jobs: list[Job], nodes: list[int], free: list[int], best: Counts
) -> dict[int, Allocation]:
    """Choose GPUs for counts: a job with the same number on each node as now keeps them."""
    allocations: dict[int, Allocation] = {}
    others: list[tuple[Job, dict[int, int]]] = []
    for job, row in zip(jobs, best.tolist(), strict=True):
        counts = {node: count for node, count in zip(nodes, row, strict=True) if count}
        if counts == {node: mask.bit_count() for node, mask in job.allocation}:
            for node, mask in job.allocation:
                free[node] &= ~mask
            allocations[job.index] = job.allocation
        elif counts:
            others.append((job, counts))
    for job, counts in others:
        here, parts = dict(job.allocation), []
        for node, count in counts.items():
            own = here.get(node, 0) & free[node]
            mask = lowest_gpus(own, min(count, own.bit_count()))
            mask |= lowest_gpus(free[node] & ~mask, count - mask.bit_count())
            free[node] &= ~mask
            parts.append((node, mask))
        allocations[job.index] = tuple(parts)
    return allocations


# Genetic search over allocations, as in Pollux (OSDI'21, section 4.2).
#
# NSGA-II (Deb et al. 2002) with the operators of the published scheduler and simulator (adaptdl,
# Apache-2.0): a population of matrices, GPUs of each job on each node, of which the better half
# survives each generation.


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


def search_allocations(problem: Problem, population: int, generations: int, seed: int) -> Counts:
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
        present = self.problem.held
        states = np.repeat(present[None], self.population, axis=0)
        states[1:] = self._mutated(states[1:])
        states = self._repaired(states)
        states = states[_distinct(states)]
        values = self._values(states)
        order = _best_members(values, self.population)
        for _ in range(generations):
            parents = self._chosen(len(order))
            born = self._repaired(self._mutated(self._crossed(states[order][parents])))
            states = np.concatenate([states[order], born])
            values = np.concatenate([values[order], self._values(born)])
            distinct = _distinct(states)
            states, values = states[distinct], values[distinct]
            order = _best_members(values, self.population)
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
        effective = speedups * np.where(changed, self.problem.keeps, 1.0)
        powers = (effective * self.scale + _NOTHING) ** self.problem.p
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
        first_parents, second_parents = parents[0::2], parents[1::2]
        jobs = first_parents.shape[1]
        point = self.draw.integers(0, jobs, (len(first_parents), 1))
        first = (np.arange(jobs) < point)[..., None]
        return np.concatenate(
            [
                np.where(first, first_parents, second_parents),
                np.where(first, second_parents, first_parents),
            ]
        )

    def _mutated(self, states: Counts) -> Counts:
        draw, present, most = self.draw, self.problem.held, self.problem.most
        count, jobs, _ = states.shape
        back = draw.random((count, jobs), np.float32) < _BACK
        states = np.where(back[..., None], present, states)
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
        """The states, changed so that they respect all limits of jobs and nodes."""
        problem = self.problem
        states = np.minimum(states, problem.most)
        if len(self.kinds) > 1:
            states = self._of_one_kind(states)
        # Of the jobs on several nodes, one a node: their traffic would disturb each other.
        spread = (np.count_nonzero(states, axis=2) > 1)[..., None] & (states > 0)
        states[spread & (spread.cumsum(axis=1, dtype=np.int16) > 1)] = 0
        # At most the GPUs and nodes that a job can use, whichever they are.
        over = states.sum(axis=2, dtype=np.int16) > problem.high
        over |= np.count_nonzero(states, axis=2) > MOST_NODES
        if over.any():
            rows = states[over]
            shuffled = np.argsort(self.draw.random(rows.shape, np.float32), axis=1)
            rows = np.take_along_axis(rows, shuffled, axis=1)
            high = np.broadcast_to(problem.high, over.shape)[over][:, None]
            rows = _rises(np.minimum(rows.cumsum(axis=1, dtype=np.int16), high), 1)
            rows[np.cumsum(rows > 0, axis=1) > MOST_NODES] = 0
            states[over] = np.take_along_axis(rows, np.argsort(shuffled, axis=1), axis=1)
        full = (states.sum(axis=1, dtype=np.int16) > problem.free).any(axis=1)
        if full.any():
            sums = states[full].cumsum(axis=1, dtype=np.int16)
            states[full] = _rises(np.minimum(sums, problem.free), 1)
        states[states.sum(axis=2, dtype=np.int16) < problem.low] = 0
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


def _best_members(values: Floats, count: int) -> NDArray[np.int64]:
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
    distances = [(-np.inf, one[2]) for one in (front[0], front[-1])[: len(front)]]
    for before, this, after in zip(front, front[1:], front[2:], strict=False):
        gap = (after[0] - before[0]) / wide + (before[1] - after[1]) / tall
        distances.append((-gap, this[2]))
    return distances
