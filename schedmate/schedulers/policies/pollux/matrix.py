"""The matrix of a view, GPUs of each job on each node, for the genetic search; and back."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from schedmate.schedulers.goodput.agent import Shape
from schedmate.schedulers.model import Allocation, Job
from schedmate.schedulers.policies.pollux.genetic import Counts, Problem, search
from schedmate.schedulers.policies.sia.configurations import groups
from schedmate.schedulers.policies.sia.policy import restart_factor
from schedmate.schedulers.pools import lowest
from schedmate.schedulers.view import View


class Options(NamedTuple):
    """Parameters of the search: see `Pollux`."""

    p: float
    population: int
    generations: int
    seed: int


def allocate(view: View, options: Options) -> dict[int, Allocation]:
    """The GPUs of all jobs that are to have some, by the position of the job."""
    free, placed, jobs = list(view.space.free), {}, []
    for job in view.jobs():
        held = job.allocation
        if held and (_restoring(job, view.now) or not (job.migratable and job.preemptible)):
            placed[job.index] = held
            continue
        if not job.profiling:
            for node, mask in held:
                free[node] |= mask
            jobs.append(job)
    # The job with the least service goes first, if there are not enough GPUs.
    jobs.sort(key=lambda job: (job.attained_s(view.now) * job.gpus, job.index))
    nodes = [n for n, node in enumerate(view.space.cluster.nodes) if not node.role]
    if not jobs or not nodes:
        return placed
    problem = _problem(view, jobs, nodes, free, options.p)
    seed = hash((options.seed, round(1000 * view.now))) % (1 << 32)
    best = search(problem, options.population, options.generations, seed)
    return placed | _gpus(jobs, nodes, free, best)


def _problem(view: View, jobs: list[Job], nodes: list[int], free: list[int], p: float) -> Problem:
    cluster = view.space.cluster
    types = sorted({cluster.nodes[node].gpu_type for node in nodes})
    room = np.array([free[node].bit_count() for node in nodes], dtype=np.int16)
    kinds = np.array([types.index(cluster.nodes[node].gpu_type) for node in nodes])
    shape = (len(jobs), len(nodes))
    held, most = np.zeros(shape, np.int16), np.zeros(shape, np.int16)
    low, high = np.zeros((2, len(jobs)), np.int16)
    for row, job in enumerate(jobs):
        here = dict(job.allocation)
        held[row] = [here.get(node, 0).bit_count() for node in nodes]
        usable = [one in _types(job, types) for one in types]
        most[row] = np.where(np.array(usable)[kinds], room, 0)
        low[row], high[row] = _range(job)
    total, each = int(room.sum()), max((size for _, _, size in groups(cluster)), default=1)
    fair = -(-total // len(jobs))
    speeds = [_Speeds(job, _types(job, types)) for job in jobs]
    usual = [
        speed.of(-(-gpus // each), gpus)
        for speed, gpus in zip(speeds, np.clip(fair, low, high).tolist(), strict=True)
    ]

    def speedup(job: int, some: int, gpus: int) -> float:
        return speeds[job].of(some, gpus) / usual[job] if usual[job] > 0 else 0.0

    keeps = np.array([restart_factor(job, view.now) for job in jobs])
    return Problem(held, most, room, kinds, low, high, keeps, speedup, p)


def _types(job: Job, types: list[str]) -> list[str]:
    known = types if job.agent is None else [one for one in types if one in job.agent.limits]
    return [one for one in known if job.gpu_type in ("", one)]


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
        known = [one for one in self._agent.goodputs(alike).tolist() if 0 < one < np.inf]
        return sum(known) / len(known) if known else 0.0


def _restoring(job: Job, now: float) -> bool:
    return job.agent is not None and job.agent.restoring_until > now


def _gpus(
    jobs: list[Job], nodes: list[int], free: list[int], best: Counts
) -> dict[int, Allocation]:
    """Choose GPUs for counts: a job with the same number on each node as now keeps them."""
    found: dict[int, Allocation] = {}
    others: list[tuple[Job, dict[int, int]]] = []
    for job, row in zip(jobs, best.tolist(), strict=True):
        counts = {node: count for node, count in zip(nodes, row, strict=True) if count}
        if counts == {node: mask.bit_count() for node, mask in job.allocation}:
            for node, mask in job.allocation:
                free[node] &= ~mask
            found[job.index] = job.allocation
        elif counts:
            others.append((job, counts))
    for job, counts in others:
        here, parts = dict(job.allocation), []
        for node, count in counts.items():
            own = here.get(node, 0) & free[node]
            mask = lowest(own, min(count, own.bit_count()))
            mask |= lowest(free[node] & ~mask, count - mask.bit_count())
            free[node] &= ~mask
            parts.append((node, mask))
        found[job.index] = tuple(parts)
    return found
