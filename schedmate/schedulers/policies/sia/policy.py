"""Every round: goodputs, the integer program, placement."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from schedmate.schedulers.decisions import Decision, Profile
from schedmate.schedulers.goodput.agent import Shape
from schedmate.schedulers.goodput.throughput import Floats
from schedmate.schedulers.learned.packages import require
from schedmate.schedulers.model import Allocation, Cluster, Job
from schedmate.schedulers.policies.sia.configurations import allowed, shape_of
from schedmate.schedulers.policies.sia.placement import (
    Placement,
    Wish,
    capacity_of,
    decisions,
    settled,
)
from schedmate.schedulers.policies.sia.program import Choice, ProgramError, solve
from schedmate.schedulers.policy import Policy
from schedmate.schedulers.view import View

_MOST = 3000.0
"""Upper limit of costs: anything worse counts as this."""
_KEPT = 100.0
"""Cost of suspending a job if that is not allowed: more than others can gain."""


class Sia(Policy):
    """Sia: elastic jobs over GPU types by goodput, every minute an integer program."""

    name = "sia"
    rounds = True
    one_pool = True
    adapts_batch = True

    def __init__(
        self,
        p: float = -0.5,
        lambda_n: float = 1.1,
        lambda_a: float = 0.01,
        interval_s: float = 60.0,
        profile_s: float = 20.0,
        solver_s: float = 5.0,
        decimals: int = 12,
        split: bool = False,
        suspend: bool = True,
    ) -> None:
        """Args:
        p: fairness: the power of normalised goodputs that are summed up (section 3.3); -0.5 as
            evaluated (section 4.3), although section 3.3 calls 0.5 the default.
        lambda_n: cost of leaving a job without GPUs.
        lambda_a: cost of any change of a running job besides its restart. The published
            simulator reads this parameter and never uses it, which is 0 here.
        interval_s: length of a round [s].
        profile_s: time for which an unknown job holds one GPU of each type for measurement
            before it starts; 0: it starts unmeasured [s]. Sia section 5.7: under 20 s a type.
        solver_s: time limit of the solver [s].
        decimals: number of decimals to which costs are rounded; the published simulator rounds
            to 2.
        split: spread a configuration over more nodes than it has, if odd sizes leave no room
            for it, as the published simulator does; false: the job waits (section 3.3).
        suspend: whether a running job may lose all its GPUs to others, as published."""
        require("scipy")
        self.p = p
        self.lambda_n = lambda_n
        self.lambda_a = lambda_a
        self.interval_s = interval_s
        self.profile_s = profile_s
        self.solver_s = solver_s
        self.decimals = decimals
        self.split = split
        self.suspend = suspend

    def decide(self, view: View) -> Sequence[Decision]:
        cluster = view.space.cluster
        capacity = capacity_of(view)
        jobs = [job for job in view.jobs() if not job.profiling]
        wishes: list[Wish] = []
        for job in jobs:
            if job.allocation and (_is_restoring(job, view.now) or not job.migratable):
                held = shape_of(cluster, job.allocation)
                capacity[held.gpu_type] -= held.gpus
                wishes.append(Wish(job, held, pinned=True))
        busy = {wish.job.index for wish in wishes}
        profiles = self._profiles(jobs, cluster, capacity, wishes)
        offered, choices = [], []
        for job in jobs:
            if job.index not in busy and job.index not in profiles:
                shapes = self._shapes(job, cluster, view)
                offered.append((job, shapes))
                choices.append(self._choices(job, shapes, list(capacity), view))
        try:
            chosen = self._solved(offered, choices, list(capacity.values()))
        except ProgramError as error:
            view.warn(f"allocations kept, as the integer program was not solved: {error}")
            return []
        for (job, shapes), one in zip(offered, chosen, strict=True):
            if one is not None:
                wishes.append(Wish(job, shapes[one]))
        taken = self._placed(view, wishes)
        measured = {
            index: tuple(sorted(sum((taken.pop(one, ()) for one in parts), ())))
            for index, (_, parts) in profiles.items()
        }
        found = decisions(view, taken, jobs)
        found += [
            Profile(job, measured[index], self.profile_s)
            for index, (job, _) in profiles.items()
            if measured[index]
        ]
        return found

    def _solved(
        self,
        offered: list[tuple[Job, tuple[Shape, ...]]],
        choices: list[list[Choice]],
        room: list[int],
    ) -> list[int | None]:
        """The program's solution; if no job may be suspended, one that keeps all running jobs."""
        if self.suspend:
            return solve(choices, room, time_limit_s=self.solver_s)
        runs = [bool(job.allocation) for job, _ in offered]
        bound = [
            [one._replace(cost=one.cost - _KEPT) for one in row] if kept else row
            for kept, row in zip(runs, choices, strict=True)
        ]
        # The same absolute distance from the optimum, although costs are much larger.
        gap = 1e-4 * max(1, len(runs)) / (len(runs) + _KEPT * sum(runs) + 1)
        chosen = solve(bound, room, time_limit_s=self.solver_s, gap=gap)
        if any(kept and one is None for kept, one in zip(runs, chosen, strict=True)):
            raise ProgramError("a running job would have been suspended")
        return chosen

    def _placed(self, view: View, wishes: list[Wish]) -> dict[int, Allocation]:
        if not self.suspend:
            return settled(view, wishes)
        placement = Placement(view, wishes, split=self.split)
        if placement.unplaced:
            view.warn("a job waited, as no nodes had room for the configuration chosen for it")
        return placement.placed

    def _profiles(
        self, jobs: list[Job], cluster: Cluster, capacity: dict[str, int], wishes: list[Wish]
    ) -> dict[int, tuple[Job, list[int]]]:
        """Profiling decisions for unmeasured jobs, one replica on each unmeasured type.

        Each with the stand-ins that `wishes` then holds, for GPUs that `capacity` then lacks. There
        are none while jobs are measured on half of the cluster, or if all GPUs are busy.
        """
        found: dict[int, tuple[Job, list[int]]] = {}
        if not self.profile_s:
            return found
        room = {gpu_type: (left + 1) // 2 for gpu_type, left in capacity.items()}
        for job in jobs:
            agent = job.agent
            if agent is None or job.profiled or job.allocation or agent.ratios is not None:
                continue
            unknown = {
                shape.gpu_type: shape.gpus
                for shape in sorted(allowed(job, cluster), key=lambda one: -one.gpus)
                if not agent.knows(shape.gpu_type)
            }
            parts = [(one, agent.limits[one].gpus) for one in unknown]
            if not parts:
                continue
            found[job.index] = (job, [])
            left = room if len(found) > 1 else capacity
            if any(left[gpu_type] < gpus for gpu_type, gpus in parts):
                continue
            for gpu_type, gpus in parts:
                room[gpu_type] -= gpus
                capacity[gpu_type] -= gpus
                # A stand-in for each part, so that placement finds GPUs for it as for any job.
                part = Job(job.id, -1 - len(wishes), job.submit_time, gpus)
                wishes.append(Wish(part, Shape(gpu_type, 1, gpus)))
                found[job.index][1].append(part.index)
        return found

    def _shapes(self, job: Job, cluster: Cluster, view: View) -> tuple[Shape, ...]:
        if job.agent is None:
            view.warn("a job has no performance model and gets the requested GPUs")
        return allowed(job, cluster)

    def _choices(
        self, job: Job, shapes: tuple[Shape, ...], types: list[str], view: View
    ) -> list[Choice]:
        """The cost of each shape: its normalised goodput to the power of p (section 3.3)."""
        goodputs = _goodputs(job, shapes, view)
        held = -1
        if job.allocation:
            now = shape_of(view.space.cluster, job.allocation)
            for one, shape in enumerate(shapes):
                if (shape.gpu_type, shape.gpus) == (now.gpu_type, now.gpus):
                    held = one
        factor = 1.0 if held < 0 else restart_factor(job, view.now)
        values = goodputs.tolist()
        least = min((one for one in values if one > 0), default=1.0)
        kinds = {gpu_type: kind for kind, gpu_type in enumerate(types)}
        choices = []
        for one, (shape, goodput) in enumerate(zip(shapes, values, strict=True)):
            worth = goodput / least * (1.0 if one == held else factor)
            if goodput <= 0:
                cost = math.inf
            elif self.p < 0:
                power = worth**self.p if worth > 0 else math.inf
                cost = min(round(power, self.decimals), _MOST) - self.lambda_n
            else:
                cost = -min(round(worth**self.p, self.decimals), _MOST) - self.lambda_n
            if held >= 0 and one != held:
                cost += self.lambda_a
            choices.append(Choice(kinds[shape.gpu_type], shape.gpus, cost))
        return choices


def _goodputs(job: Job, shapes: tuple[Shape, ...], view: View) -> Floats:
    """The goodput of each shape; if nothing is known, 1 for the smallest of each type."""
    agent = job.agent
    if agent is None:
        return np.ones(len(shapes))
    goodputs = agent.goodputs(shapes)
    if agent.models and len(goodputs) and goodputs.min() >= 0 and goodputs.max() < math.inf:
        return goodputs
    known = np.isfinite(goodputs) & (goodputs >= 0)
    if not agent.models:
        least: dict[str, int] = {}
        for shape in shapes:
            least[shape.gpu_type] = min(shape.gpus, least.get(shape.gpu_type, shape.gpus))
        return np.array([float(shape.gpus == least[shape.gpu_type]) for shape in shapes])
    if (np.isinf(goodputs) | (goodputs < 0)).any():
        view.warn("a goodput that is not a number was left out")
    return np.where(known, goodputs, 0.0)


def _is_restoring(job: Job, now: float) -> bool:
    return job.agent is not None and job.agent.restoring_until > now


def restart_factor(job: Job, now: float) -> float:
    """How much a change keeps of a goodput, by what restarts have cost so far (section 3.3)."""
    if job.agent is None:
        return 1.0
    age, cost = now - job.submit_time, job.agent.restart_s
    if age < cost:
        return 1.0
    return max(age - job.agent.restarts * cost, 0.0) / (age + cost)
