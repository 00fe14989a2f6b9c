"""Sia (SOSP'23): elastic jobs on several GPU types, by an integer program over goodputs.

Every round: goodputs of all shapes, the integer program, and its shapes to GPUs (`elastic.py`).
"""

from __future__ import annotations

import ctypes
import math
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

import numpy as np

from schedmate.schedulers.goodput import Floats, Shape
from schedmate.schedulers.model import Allocation, Cluster, Job
from schedmate.schedulers.policies.elastic import (
    Placement,
    Wish,
    allowed_shapes,
    capacity_of,
    changeable,
    decisions_for,
    place_without_stopping,
    shape_of,
)
from schedmate.schedulers.policy import Decision, Policy, Profile, View, require_schedulers_extra

# Sia's integer program as a matrix, for the general solver and for its linear relaxation.


_CLOSE = 40
"""Most jobs that the linear program leaves open, besides those that it splits."""
_WHOLE = 1e-6


class Choice(NamedTuple):
    """One configuration that a job could get."""

    kind: int
    """Which capacity it uses."""
    gpus: int
    cost: float
    """Its cost in the objective; a job without GPUs adds 0."""


class ProgramError(Exception):
    """The solver found no assignment, or none in time."""


class Relaxed(NamedTuple):
    """A part of an assignment, by a linear program."""

    chosen: list[int | None]
    """Position of the choice of each job; None if it waits or is left open."""
    open_jobs: list[int]
    left: list[int]
    """GPUs of each kind for those."""
    bound: float
    """No assignment costs less."""


class ProgramMatrix:
    """The program as a matrix: a column for each choice, a row for each job and each kind.

    With `many`, a row stands for this number of jobs with the same choices, and a column for how
    many of them get it: jobs that can be exchanged would keep the general solver busy for minutes.
    """

    def __init__(
        self,
        choices: Sequence[Sequence[Choice]],
        useful: list[list[int]],
        capacity: Sequence[int],
        many: Sequence[int] | None = None,
    ) -> None:
        from scipy.sparse import csr_array

        self.choices, self.capacity = choices, capacity
        self.columns = [(job, place) for job, row in enumerate(useful) for place in row]
        items = [choices[job][place] for job, place in self.columns]
        self.jobs, count = len(choices), len(items)
        self.rows = np.array([job for job, _ in self.columns])
        self.kinds = np.array([choice.kind for choice in items])
        self.gpus = np.array([choice.gpus for choice in items], dtype=float)
        self.costs = np.array([choice.cost for choice in items])
        where = (
            np.concatenate([self.rows, self.jobs + self.kinds]),
            np.tile(np.arange(count), 2),
        )
        self.matrix = csr_array(
            (np.concatenate([np.ones(count), self.gpus]), where),
            shape=(self.jobs + len(capacity), count),
        )
        self.many = np.ones(self.jobs) if many is None else np.array(many, dtype=float)
        self.most = np.concatenate([self.many, np.array(capacity, dtype=float)])

    def relaxed(self, time_limit_s: float) -> Relaxed | None:
        """The choices of the linear program and the jobs that it leaves open; None without a
        solution.

        It splits at most as many jobs as there are kinds. Those are left open, with the jobs for
        which at its prices of GPUs a second choice is nearly as good.
        """
        from scipy.optimize import linprog

        with _off_standard_output():
            solution = linprog(
                self.costs,
                A_ub=self.matrix,
                b_ub=self.most,
                method="highs-ipm",
                options={"time_limit": time_limit_s},
            )
        if solution.x is None or solution.status != 0:
            return None
        prices = -solution.ineqlin.marginals[self.jobs :]
        reduced = self.costs + prices[self.kinds] * self.gpus
        best = np.zeros((self.jobs, 2))  # the two least of each job, waiting being one
        for job, value in zip(self.rows.tolist(), reduced.tolist(), strict=True):
            if value < best[job, 0]:
                best[job] = value, best[job, 0]
            elif value < best[job, 1]:
                best[job, 1] = value
        split = (solution.x > _WHOLE) & (solution.x < 1 - _WHOLE)
        close = np.argsort(best[:, 1] - best[:, 0], kind="stable")[:_CLOSE]
        open_jobs = {*self.rows[split].tolist(), *close.tolist()}
        chosen: list[int | None] = [None] * self.jobs
        left = list(self.capacity)
        for (job, one), value in zip(self.columns, solution.x, strict=True):
            if value > 0.5 and job not in open_jobs:
                chosen[job] = one
                left[self.choices[job][one].kind] -= self.choices[job][one].gpus
        return (
            Relaxed(chosen, sorted(open_jobs), left, float(solution.fun))
            if min(left) >= 0
            else None
        )

    def optimum(self, time_limit_s: float, gap: float) -> list[list[int]]:
        """Solve with the general solver: for each row the choices of its jobs that get one.

        Raises `ProgramError` if it finds no solution.
        """
        from scipy.optimize import Bounds, LinearConstraint, milp

        chosen: list[list[int]] = [[] for _ in range(self.jobs)]
        if not self.columns:
            return chosen
        with _off_standard_output():
            result = milp(
                self.costs,
                integrality=np.ones(len(self.columns)),
                bounds=Bounds(0, self.many[self.rows]),
                constraints=LinearConstraint(self.matrix, ub=self.most),
                options={"time_limit": time_limit_s, "mip_rel_gap": gap},
            )
        if result.x is None:
            raise ProgramError(str(result.message).partition(" (")[0])
        for (job, one), value in zip(self.columns, result.x, strict=True):
            chosen[job] += [one] * round(value)
        return chosen


@contextmanager
def _off_standard_output() -> Iterator[None]:
    """Redirect what C code prints to standard error meanwhile.

    HiGHS prints some messages despite the option that silences it, and these would end up in JSON
    on standard output.
    """
    try:
        output = os.dup(1)
    except OSError:  # closed, so that nothing can be written there
        yield
        return
    standard = ctypes.CDLL(None)
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
        standard.fflush(None)
        with suppress(OSError):  # closed too
            os.dup2(2, 1)
        yield
    finally:
        standard.fflush(None)  # it is buffered in C, and would come out later
        os.dup2(output, 1)
        os.close(output)


# Every round: goodputs, the integer program, placement.


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
        require_schedulers_extra("scipy")
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
        jobs = changeable(view)
        wishes: list[Wish] = []
        for job in jobs:
            if job.allocation and (_is_restoring(job, view.now) or not job.migratable):
                present = shape_of(cluster, job.allocation)
                capacity[present.gpu_type] -= present.gpus
                wishes.append(Wish(job, present, pinned=True))
        busy = {wish.job.index for wish in wishes}
        profiles = self._profiles(jobs, cluster, capacity, wishes)
        offered, choices, types = [], [], list(capacity)
        alike: dict[tuple[int, str, str], tuple[tuple[Shape, ...], list[Choice]]] = {}
        for job in jobs:
            if job.index not in busy and job.index not in profiles:
                if job.agent is None:  # jobs of a fixed size differ in nothing else
                    held = cluster.nodes[job.allocation[0][0]].gpu_type if job.allocation else ""
                    key = (job.gpus, job.gpu_type, f"on {held}" if job.allocation else "")
                    if key not in alike:
                        shapes = self._shapes(job, cluster, view)
                        alike[key] = (shapes, self._choices(job, shapes, types, view))
                    shapes, row = alike[key]
                else:
                    shapes = self._shapes(job, cluster, view)
                    row = self._choices(job, shapes, types, view)
                offered.append((job, shapes))
                choices.append(row)
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
        decisions = decisions_for(view, taken, jobs)
        decisions += [
            Profile(job, measured[index], self.profile_s)
            for index, (job, _) in profiles.items()
            if measured[index]
        ]
        return decisions

    def settled(self, view: View) -> bool:
        """Goodputs and costs of restarts change with time, and jobs of a fixed size have none."""
        return all(job.agent is None for job in view.jobs())

    def _solved(
        self,
        offered: list[tuple[Job, tuple[Shape, ...]]],
        choices: list[list[Choice]],
        room: list[int],
    ) -> list[int | None]:
        """The program's solution; if no job may be suspended, one that keeps all running jobs."""
        if self.suspend:
            return solve_program(choices, room, time_limit_s=self.solver_s)
        runs = [bool(job.allocation) for job, _ in offered]
        bound = [
            [one._replace(cost=one.cost - _KEPT) for one in row] if runs_now else row
            for runs_now, row in zip(runs, choices, strict=True)
        ]
        # The same absolute distance from the optimum, although costs are much larger.
        gap = 1e-4 * max(1, len(runs)) / (len(runs) + _KEPT * sum(runs) + 1)
        chosen = solve_program(bound, room, time_limit_s=self.solver_s, gap=gap)
        if any(runs_now and one is None for runs_now, one in zip(runs, chosen, strict=True)):
            raise ProgramError("a running job would have been suspended")
        return chosen

    def _placed(self, view: View, wishes: list[Wish]) -> dict[int, Allocation]:
        if not self.suspend:
            return place_without_stopping(view, wishes)
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
        profiles: dict[int, tuple[Job, list[int]]] = {}
        if not self.profile_s:
            return profiles
        room = {gpu_type: (left + 1) // 2 for gpu_type, left in capacity.items()}
        for job in jobs:
            agent = job.agent
            if agent is None or job.profiled or job.allocation or agent.ratios is not None:
                continue
            unknown = {
                shape.gpu_type: shape.gpus
                for shape in sorted(allowed_shapes(job, cluster), key=lambda one: -one.gpus)
                if not agent.knows(shape.gpu_type)
            }
            parts = [(one, agent.limits[one].gpus) for one in unknown]
            if not parts:
                continue
            profiles[job.index] = (job, [])
            left = room if len(profiles) > 1 else capacity
            if any(left[gpu_type] < gpus for gpu_type, gpus in parts):
                continue
            for gpu_type, gpus in parts:
                room[gpu_type] -= gpus
                capacity[gpu_type] -= gpus
                # A stand-in for each part, so that placement finds GPUs for it as for any job.
                part = Job(job.id, -1 - len(wishes), job.submit_time, gpus)
                wishes.append(Wish(part, Shape(gpu_type, 1, gpus)))
                profiles[job.index][1].append(part.index)
        return profiles

    def _shapes(self, job: Job, cluster: Cluster, view: View) -> tuple[Shape, ...]:
        if job.agent is None:
            view.warn("a job has no performance model and gets the requested GPUs")
        return allowed_shapes(job, cluster)

    def _choices(
        self, job: Job, shapes: tuple[Shape, ...], types: list[str], view: View
    ) -> list[Choice]:
        """The cost of each shape: its normalised goodput to the power of p (section 3.3)."""
        goodputs = _goodputs(job, shapes, view)
        present = -1
        if job.allocation:
            now = shape_of(view.space.cluster, job.allocation)
            for place, shape in enumerate(shapes):
                if (shape.gpu_type, shape.gpus) == (now.gpu_type, now.gpus):
                    present = place
        factor = 1.0 if present < 0 else restart_factor(job, view.now)
        values = goodputs.tolist()
        least = min((value for value in values if value > 0), default=1.0)
        kinds = {gpu_type: kind for kind, gpu_type in enumerate(types)}
        choices = []
        for place, (shape, goodput) in enumerate(zip(shapes, values, strict=True)):
            worth = goodput / least * (1.0 if place == present else factor)
            if goodput <= 0:
                cost = math.inf
            elif self.p < 0:
                power = worth**self.p if worth > 0 else math.inf
                cost = min(round(power, self.decimals), _MOST) - self.lambda_n
            else:
                cost = -min(round(worth**self.p, self.decimals), _MOST) - self.lambda_n
            if job.agent is None and job.allocation:
                # Worth as much as any that waits: without this they would take turns every round.
                cost -= self.lambda_a
            if present >= 0 and place != present:
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
    usable = np.isfinite(goodputs) & (goodputs >= 0)
    if not agent.models:
        least: dict[str, int] = {}
        for shape in shapes:
            least[shape.gpu_type] = min(shape.gpus, least.get(shape.gpu_type, shape.gpus))
        return np.array([float(shape.gpus == least[shape.gpu_type]) for shape in shapes])
    if (np.isinf(goodputs) | (goodputs < 0)).any():
        view.warn("a goodput that is not a number was left out")
    return np.where(usable, goodputs, 0.0)


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


# Sia's integer program: one configuration for each job, or none, within the GPUs of each type.


_STATES = 20_000
"""Up to this number of combinations of free GPUs, dynamic programming is used."""


def solve_program(
    choices: Sequence[Sequence[Choice]],
    capacity: Sequence[int],
    *,
    time_limit_s: float = 5.0,
    gap: float = 1e-4,
) -> list[int | None]:
    """The cheapest assignment: the position of the choice of each job, or None.

    Args:
        choices: choices of each job.
        capacity: GPUs of each kind.
        time_limit_s: time after which the best assignment so far is used, if there is one [s].
        gap: relative distance from the optimum that is good enough.

    Raises `ProgramError` if the solver finds none.
    """
    if min(capacity, default=0) < 0:
        raise ProgramError("jobs that stay as they are hold more GPUs than there are")
    alike = {id(row): row for row in choices}
    best = {key: _useful(row, capacity) for key, row in alike.items()}
    useful = [best[id(row)] for row in choices]
    if (easy := _independent(choices, useful, capacity)) is not None:
        return easy
    if not _is_small(capacity):
        if (groups := _groups(choices)) is not None:
            rows = [choices[jobs[0]] for jobs in groups]
            useful = [useful[jobs[0]] for jobs in groups]
            many = ProgramMatrix(rows, useful, capacity, [len(jobs) for jobs in groups])
            found: list[int | None] = [None] * len(choices)
            for jobs, taken in zip(groups, many.optimum(time_limit_s, gap), strict=True):
                for job, one in zip(jobs, taken, strict=False):
                    found[job] = one
            return found
        table = ProgramMatrix(choices, useful, capacity)
        if (near := _near_optimum(choices, table, time_limit_s, gap)) is not None:
            return near
    return _optimum(choices, useful, capacity, time_limit_s, gap)


def _groups(choices: Sequence[Sequence[Choice]]) -> list[list[int]] | None:
    """Jobs with the same choices, each group in order; None if most jobs are like no other."""
    found: dict[tuple[Choice, ...], list[int]] = {}
    for job, row in enumerate(choices):
        found.setdefault(tuple(row), []).append(job)
    return list(found.values()) if 2 * len(found) <= len(choices) else None


def _near_optimum(
    choices: Sequence[Sequence[Choice]], table: ProgramMatrix, time_limit_s: float, gap: float
) -> list[int | None] | None:
    """An assignment within `gap` of the optimum; None when this way finds none.

    What the linear program leaves open is decided among those jobs.
    """
    part = table.relaxed(time_limit_s)
    if part is None:
        return None
    rest = [choices[job] for job in part.open_jobs]
    useful = [_useful(row, part.left) for row in rest]
    try:
        decided = _optimum(rest, useful, part.left, time_limit_s, gap)
    except ProgramError:
        return None
    chosen = part.chosen
    for job, taken in zip(part.open_jobs, decided, strict=True):
        chosen[job] = taken
    cost = sum(choices[job][one].cost for job, one in enumerate(chosen) if one is not None)
    return chosen if cost - part.bound <= gap * abs(part.bound) else None


def _is_small(capacity: Sequence[int]) -> bool:
    return math.prod(one + 1 for one in capacity) <= _STATES


def _optimum(
    choices: Sequence[Sequence[Choice]],
    useful: list[list[int]],
    capacity: Sequence[int],
    time_limit_s: float,
    gap: float,
) -> list[int | None]:
    """Solve by dynamic programming if it is small enough, else with the general solver."""
    if _is_small(capacity):
        return _by_capacity(choices, useful, capacity)
    found = ProgramMatrix(choices, useful, capacity).optimum(time_limit_s, gap)
    return [taken[0] if taken else None for taken in found]


def _useful(row: Sequence[Choice], capacity: Sequence[int]) -> list[int]:
    """Choices that can be part of an optimum, best first.

    A choice is left out if another of the same kind costs no more and needs no more GPUs, or if it
    costs more than waiting.
    """
    useful: list[int] = []
    least: dict[int, float] = {}
    for choice in sorted(range(len(row)), key=lambda choice: (row[choice].gpus, row[choice].cost)):
        kind, gpus, cost = row[choice]
        if cost < min(0.0, least.get(kind, 0.0)) and gpus <= capacity[kind]:
            least[kind] = cost
            useful.append(choice)
    return sorted(useful, key=lambda choice: row[choice].cost)


def _independent(
    choices: Sequence[Sequence[Choice]], useful: list[list[int]], capacity: Sequence[int]
) -> list[int | None] | None:
    """The best choice of each job, if there is room for all: then it is the optimum."""
    left = list(capacity)
    chosen: list[int | None] = []
    for row, order in zip(choices, useful, strict=True):
        chosen.append(order[0] if order else None)
        if order:
            best = row[order[0]]
            left[best.kind] -= best.gpus
            if left[best.kind] < 0:
                return None
    return chosen


def _by_capacity(
    choices: Sequence[Sequence[Choice]], useful: list[list[int]], capacity: Sequence[int]
) -> list[int | None]:
    """The optimum by dynamic programming: the least cost for every number of GPUs of each kind.

    On a cluster of tens of GPUs that is several times faster than the general solver.
    """
    best = np.zeros([gpus + 1 for gpus in capacity])
    spare = np.empty_like(best)
    stages = [best]
    for row, order in zip(choices, useful, strict=True):
        before, best = best, best.copy()
        for choice in order:
            kind, gpus, cost = row[choice]
            above = (slice(None),) * kind + (slice(gpus, None),)
            below = (slice(None),) * kind + (slice(None, -gpus),)
            reached, cheapest = spare[above], best[above]
            np.add(before[below], cost, out=reached)
            np.minimum(cheapest, reached, out=cheapest)
        stages.append(best)
    chosen: list[int | None] = [None] * len(choices)
    left = list(capacity)
    for job in range(len(choices) - 1, -1, -1):
        least, before = stages[job + 1][tuple(left)], stages[job]
        if least == before[tuple(left)]:
            continue
        for choice in useful[job]:
            kind, gpus, cost = choices[job][choice]
            left[kind] -= gpus
            if left[kind] >= 0 and before[tuple(left)] + cost == least:
                chosen[job] = choice
                break
            left[kind] += gpus
    return chosen
