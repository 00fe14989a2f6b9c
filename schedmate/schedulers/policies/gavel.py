"""Gavel (OSDI'20): jobs of a fixed size share several GPU types over time, by a linear program."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from schedmate.base.errors import UsageError
from schedmate.schedulers.goodput import Floats, Shape
from schedmate.schedulers.model import Cluster, Job
from schedmate.schedulers.policies.elastic import (
    Placement,
    Wish,
    capacity_of,
    changeable,
    decisions_for,
    place_without_stopping,
    requested_shapes,
)
from schedmate.schedulers.policy import Decision, Policy, View, require_schedulers_extra

OBJECTIVES = ("max-min", "max-sum")

_FASTER = 1.1
"""Factor by which a type must be faster for a job that is never suspended to move there."""


class Gavel(Policy):
    """Gavel: which share of time on which GPU type, every six minutes a linear program."""

    name = "gavel"
    rounds = True
    one_pool = True
    interval_s: float

    def __init__(
        self, objective: str = "max-min", interval_s: float = 360.0, suspend: bool = True
    ) -> None:
        """Args:
        objective: `max-min` fairness of each job's throughput times its GPUs, relative to an
            equal share of every type (section 4.1); or `max-sum` of iterations per second.
        interval_s: length of a round [s].
        suspend: whether jobs share GPUs over time, as published; if not, a running job keeps
            its number of GPUs until it ends, and moves to a type that suits it better if that
            has free ones."""
        require_schedulers_extra("scipy")
        if objective not in OBJECTIVES:
            raise UsageError(
                f"policy gavel: objective={objective} is none of {', '.join(OBJECTIVES)}."
            )
        self.objective = objective
        self.interval_s = interval_s
        self.suspend = suspend

    def decide(self, view: View) -> Sequence[Decision]:
        cluster = view.space.cluster
        capacity = capacity_of(view)
        types, jobs = list(capacity), changeable(view)
        if not jobs:
            return []
        speeds = np.array([_speeds(job, cluster, types) for job in jobs])
        gpus = np.array([job.gpus for job in jobs])
        if self.objective == "max-sum":
            weights = _rates(jobs)
        else:
            equal = np.array(list(capacity.values())) / max(sum(capacity.values()), 1)
            weights = gpus / np.maximum(speeds @ equal, 1e-9)
        shares = self._shares(speeds * weights[:, None], gpus, list(capacity.values()))
        if shares is None:
            view.warn("the linear program was not solved: allocations kept")
            return []
        order = self._by_priority(view, jobs, types, shares, speeds)
        if not self.suspend:
            return self._unsuspended(view, order, types, speeds)
        wishes = []
        granted: set[int] = set()
        for job, kind in order:
            if job.index not in granted and job.gpus <= capacity[types[kind]]:
                capacity[types[kind]] -= job.gpus
                granted.add(job.index)
                wishes.append(Wish(job, _shape(job, cluster, types[kind])))
        return decisions_for(view, Placement(view, wishes).placed, jobs)

    def _unsuspended(
        self, view: View, order: list[tuple[Job, int]], types: list[str], speeds: Floats
    ) -> Sequence[Decision]:
        """Running jobs stay, or move to a faster type with free GPUs; then others start."""
        cluster = view.space.cluster
        position = {job.index: place for place, job in enumerate(changeable(view))}
        free = capacity_of(view)
        now: dict[int, int] = {}
        for job in changeable(view):
            if not job.allocation:
                continue
            now[job.index] = kind = types.index(cluster.nodes[job.allocation[0][0]].gpu_type)
            free[types[kind]] -= job.gpus
        moved: set[int] = set()
        running = [one for one in order if one[0].index in now and self._can_move(one[0], view)]
        for job, kind in running:
            present, row = now[job.index], speeds[position[job.index]]
            better = row[kind] > row[present] * _FASTER
            if job.index not in moved and better and free[types[kind]] >= job.gpus:
                moved.add(job.index)
                free[types[present]] += job.gpus
                free[types[kind]] -= job.gpus
                now[job.index] = kind
        for job, kind in order:
            if job.index not in now and free[types[kind]] >= job.gpus:
                free[types[kind]] -= job.gpus
                now[job.index] = kind
        jobs = changeable(view)
        wishes = [
            Wish(job, _shape(job, cluster, types[now[job.index]]))
            for job in jobs
            if job.index in now
        ]
        return decisions_for(view, place_without_stopping(view, wishes), jobs)

    def _can_move(self, job: Job, view: View) -> bool:
        return job.migratable and (job.agent is None or job.agent.restoring_until <= view.now)

    def _shares(self, worth: Floats, gpus: Floats, capacity: list[int]) -> Floats | None:
        """Part of time of each job on each type: (jobs, types); `worth` is that of all its time."""
        from scipy.optimize import linprog
        from scipy.sparse import coo_array

        jobs, types = worth.shape
        place = np.arange(jobs * types)
        job, kind = np.divmod(place, types)
        rows, columns, values = [job, jobs + kind], [place, place], [np.ones(len(place)), gpus[job]]
        most = [np.ones(jobs), np.array(capacity, dtype=float)]
        cost = -worth.ravel()
        if self.objective == "max-min":
            # One more variable: the least that any job gets.
            rows += [jobs + types + job, jobs + types + np.arange(jobs)]
            columns += [place, np.full(jobs, jobs * types)]
            values += [-worth.ravel(), np.ones(jobs)]
            most.append(np.zeros(jobs))
            # Of the fairest, the one that gets most done: the published program takes any.
            cost = np.append(1e-3 * cost / jobs, -1.0)
        matrix = coo_array(
            (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))),
            shape=(sum(len(one) for one in most), len(cost)),
        )
        solution = linprog(cost, A_ub=matrix.tocsr(), b_ub=np.concatenate(most), bounds=(0, 1))
        return None if solution.x is None else solution.x[: jobs * types].reshape(jobs, types)

    def _by_priority(
        self, view: View, jobs: list[Job], types: list[str], shares: Floats, speeds: Floats
    ) -> list[tuple[Job, int]]:
        """Every job on every type that it can use, in the order in which they are served.

        The order is the share by the program over the share so far of the time of all jobs on the
        type, with half a round added in advance (section 5). Pairs without a share come last, so
        that no GPU is idle while jobs wait.
        """
        nodes = view.space.cluster.nodes
        had = np.full(shares.shape, self.interval_s / 2)
        for position, job in enumerate(jobs):
            held_s = dict(job.agent.held_s) if job.agent is not None else {}
            if job.allocation:
                now = nodes[job.allocation[0][0]].gpu_type
                held_s[now] = held_s.get(now, 0.0) + view.now - job.started
            if job.agent is None and len(types) == 1:
                held_s = {types[0]: job.attained_s(view.now)}
            had[position] += [held_s.get(gpu_type, 0.0) for gpu_type in types]
        priority = shares / (had / had.sum(axis=0))
        order = [
            ((-priority[position, kind], -speeds[position, kind], job.index, kind), job, kind)
            for position, job in enumerate(jobs)
            for kind in range(len(types))
            if speeds[position, kind] > 0
        ]
        order.sort(key=lambda one: one[0])
        return [(job, kind) for _, job, kind in order]


def _speeds(job: Job, cluster: Cluster, types: list[str]) -> list[float]:
    """Throughput on each type, as a part of that on the fastest.

    A type unknown to the job's agent counts as the fastest, so that it is tried.
    """
    shapes = [_shape(job, cluster, gpu_type) for gpu_type in types]
    possible = [shape.gpus > 0 for shape in shapes]
    speeds = [float("nan")] * len(types)
    if job.agent is not None:
        speeds = job.agent.goodputs(tuple(shapes)).tolist()
        if job.agent.ratios is not None and not job.agent.models:
            speeds = [job.agent.ratios.get(gpu_type, 0.0) for gpu_type in types]
    best = max((one for one in speeds if 0 < one < np.inf), default=1.0)
    # A type that does not fit its batch size counts for little, not for nothing: it can run.
    parts = [1.0 if one != one else max(one / best, 1e-3) for one in speeds]
    return [part if can else 0.0 for part, can in zip(parts, possible, strict=True)]


def _shape(job: Job, cluster: Cluster, gpu_type: str) -> Shape:
    """Throughput on its requested number of GPUs of this type; 0 if it cannot run there."""
    for shape in requested_shapes(job, cluster):
        if shape.gpu_type == gpu_type:
            return shape
    return Shape(gpu_type, 1, 0)


def _rates(jobs: list[Job]) -> Floats:
    """Iterations per second of each job on its fastest type; the mean of the others if unknown."""
    rates = np.array([job.agent.rate(job.gpus) if job.agent else math.nan for job in jobs])
    measured = np.isfinite(rates)
    return np.where(measured, rates, rates[measured].mean() if measured.any() else 1.0)
