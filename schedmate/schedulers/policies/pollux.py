"""Elasticity that is blind to GPU types, after Pollux (OSDI'21): a baseline for Sia.

Pollux searches allocations with a genetic algorithm; here a greedy search does the same work: every
job gets one GPU in order of submission, then GPUs go to whoever's speedup gains most from each. All
types count alike, as Pollux assumes; jobs are then put where there is room.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

import numpy as np

from schedmate.schedulers.goodput.agent import Shape
from schedmate.schedulers.learned.packages import require
from schedmate.schedulers.model import Cluster, Job
from schedmate.schedulers.policies.sia.configurations import allowed, shape_of
from schedmate.schedulers.policies.sia.placement import Placement, Wish, capacity_of, decisions
from schedmate.schedulers.policies.sia.policy import restart_factor
from schedmate.schedulers.policy import Decision, Policy, View


class Pollux(Policy):
    """Pollux-like: elastic jobs by goodput, as if all GPUs were alike."""

    name = "pollux"
    rounds = True
    adapts_batch = True

    def __init__(self, p: float = -1.0, interval_s: float = 60.0) -> None:
        """
        Args:
            p: fairness: the power of speedups that is summed up (section 4.2), negative.
            interval_s: length of a round [s].
        """
        require("scipy")
        self.p = p
        self.interval_s = interval_s

    def decide(self, view: View) -> Sequence[Decision]:
        cluster = view.space.cluster
        capacity, jobs = capacity_of(view), view.jobs()
        chosen: dict[int, int] = {}
        wishes: list[Wish] = []
        offered: list[tuple[Job, dict[int, float], dict[int, list[Shape]]]] = []
        for job in jobs:
            if job.agent is not None and job.allocation and job.agent.restoring_until > view.now:
                held = shape_of(cluster, job.allocation)
                capacity[held.gpu_type] -= held.gpus
                wishes.append(Wish(job, held, pinned=True))
            else:
                offered.append((job, *_speedups(job, cluster, view.now)))
        left = sum(capacity.values())
        heap: list[tuple[float, int, int]] = []
        for place, (_, speedups, _) in enumerate(offered):
            least = min(speedups, default=0)
            if least and least <= left:
                chosen[place], left = least, left - least
                self._offer(heap, place, speedups, least)
        heapify(heap)
        while heap:
            _, place, gpus = heappop(heap)
            if gpus - chosen[place] <= left:
                left -= gpus - chosen[place]
                chosen[place] = gpus
                self._offer(heap, place, offered[place][1], gpus)
        for place in sorted(chosen, key=lambda place: (-chosen[place], place)):
            job, speedups, shapes = offered[place]
            for gpus in sorted((one for one in speedups if one <= chosen[place]), reverse=True):
                if shape := _with_room(job, shapes[gpus], capacity, cluster):
                    capacity[shape.gpu_type] -= gpus
                    wishes.append(Wish(job, shape))
                    break
        return decisions(view, Placement(view, wishes).placed, jobs)

    def _offer(
        self, heap: list[tuple[float, int, int]], place: int, speedups: dict[int, float], now: int
    ) -> None:
        """Enter the next larger sizes, by how much the sum gains with each GPU."""
        for gpus, speedup in speedups.items():
            if gpus > now and speedup > speedups[now]:
                gain = speedups[now] ** self.p - speedup**self.p
                heappush(heap, (-gain / (gpus - now), place, gpus))


def _speedups(
    job: Job, cluster: Cluster, now: float
) -> tuple[dict[int, float], dict[int, list[Shape]]]:
    """By number of GPUs, goodput over the least; and the shapes of that number.

    The goodput of a number is the mean over the types of which something is known.
    """
    shapes: dict[int, list[Shape]] = {}
    for shape in allowed(job, cluster):
        shapes.setdefault(shape.gpus, []).append(shape)
    if not shapes:
        return {}, shapes
    smallest = min(shapes)
    if job.agent is None or not job.agent.models:
        return {smallest: 1.0}, shapes
    goodputs: dict[int, float] = {}
    for gpus, alike in shapes.items():
        known = [one for one in job.agent.goodputs(tuple(alike)).tolist() if 0 < one < np.inf]
        if known:
            goodputs[gpus] = sum(known) / len(known)
    if not goodputs:
        return {smallest: 1.0}, shapes
    least = min(goodputs.values())
    held = shape_of(cluster, job.allocation).gpus if job.allocation else 0
    factor = restart_factor(job, now) if held in goodputs else 1.0
    return {
        gpus: max(goodput / least * (1.0 if gpus == held else factor), 1e-9)
        for gpus, goodput in sorted(goodputs.items())
    }, shapes


def _with_room(
    job: Job, shapes: list[Shape], capacity: dict[str, int], cluster: Cluster
) -> Shape | None:
    """Where the job is, else the type with most room."""
    now = shape_of(cluster, job.allocation).gpu_type if job.allocation else ""
    fitting = [one for one in shapes if one.gpus <= capacity.get(one.gpu_type, 0)]
    return max(fitting, key=lambda one: (one.gpu_type == now, capacity[one.gpu_type]), default=None)
