"""Elasticity that ignores GPU types, after Pollux (OSDI'21): a baseline for Sia.

Pollux searches allocations with a genetic algorithm (`search=genetic`, `genetic.py`), which comes
close to the best mean of speedups. If all GPUs are equal, that mean has an exact optimum by dynamic
programming over Sia's sizes (`search=optimum`), and jobs are then placed where there is room.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

import numpy as np

from schedmate.errors import UsageError
from schedmate.schedulers.decisions import Decision
from schedmate.schedulers.goodput.agent import Shape
from schedmate.schedulers.learned.packages import require
from schedmate.schedulers.model import Cluster, Job
from schedmate.schedulers.policies.pollux.matrix import Options, allocate
from schedmate.schedulers.policies.sia.configurations import allowed, shape_of
from schedmate.schedulers.policies.sia.placement import Placement, Wish, capacity_of, decisions
from schedmate.schedulers.policies.sia.policy import restart_factor
from schedmate.schedulers.policies.sia.program import Choice, ProgramError, solve
from schedmate.schedulers.policy import Policy
from schedmate.schedulers.view import View

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
        require("scipy")
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
            options = Options(self.p, self.population, self.generations, self.seed)
            return decisions(view, allocate(view, options), view.jobs())
        cluster = view.space.cluster
        capacity, jobs = capacity_of(view), view.jobs()
        fair = -(-sum(capacity.values()) // max(len(jobs), 1))
        wishes: list[Wish] = []
        offered: list[tuple[Job, dict[int, float], dict[int, list[Shape]]]] = []
        for job in jobs:
            if job.agent is not None and job.allocation and job.agent.restoring_until > view.now:
                held = shape_of(cluster, job.allocation)
                capacity[held.gpu_type] -= held.gpus
                wishes.append(Wish(job, held, pinned=True))
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
        return decisions(view, Placement(view, wishes).placed, jobs)

    def _optimum(self, speedups: list[dict[int, float]], left: int) -> dict[int, int]:
        """GPUs of each job, with as many jobs as possible running, by the least sum of powers."""
        powers = [{gpus: one**self.p for gpus, one in row.items()} for row in speedups]
        # More than all powers together, so that no sum makes up for a job without GPUs.
        without = 1.0 + sum(max(row.values(), default=0.0) for row in powers)
        choices = [
            [Choice(0, gpus, power - without) for gpus, power in row.items()] for row in powers
        ]
        found = solve(choices, [left], gap=0.0)
        return {
            place: choices[place][one].gpus for place, one in enumerate(found) if one is not None
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
    usual = goodputs[max((gpus for gpus in goodputs if gpus <= fair), default=min(goodputs))]
    held = shape_of(cluster, job.allocation).gpus if job.allocation else 0
    factor = restart_factor(job, now) if held in goodputs else 1.0
    return {
        gpus: max(goodput / usual * (1.0 if gpus == held else factor), 1e-9)
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
