"""Sia's integer program: one configuration for each job, or none, within the GPUs of each type."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


_STATES = 20_000
"""Up to so many combinations of free GPUs, dynamic programming is used."""


_CLOSE = 40
"""Jobs that a linear program leaves open, besides those that it splits."""
_WHOLE = 1e-6


class Choice(NamedTuple):
    """One thing that a job could get."""

    kind: int
    """Which capacity it uses."""
    gpus: int
    cost: float
    """What choosing it adds to the objective; a job that gets nothing adds 0."""


class ProgramError(Exception):
    """The solver found no assignment, or not in time."""


def solve(
    choices: Sequence[Sequence[Choice]],
    capacity: Sequence[int],
    *,
    time_limit_s: float = 5.0,
    gap: float = 1e-4,
) -> list[int | None]:
    """The cheapest assignment: for each job the position of its choice, or None.

    Args:
        choices: of each job.
        capacity: GPUs of each kind.
        time_limit_s: after this the best assignment found so far is taken, if there is one [s].
        gap: relative distance from the optimum that is good enough.

    Raises `ProgramError` when the solver gives none.
    """
    useful = [_useful(row, capacity) for row in choices]
    if (easy := _independent(choices, useful, capacity)) is not None:
        return easy
    if math.prod(one + 1 for one in capacity) <= _STATES:
        return _by_capacity(choices, useful, capacity)
    table = _Table(choices, useful, capacity)
    if (near := table.nearly(time_limit_s, gap)) is not None:
        return near
    return table.optimum(time_limit_s, gap)


def _useful(row: Sequence[Choice], capacity: Sequence[int]) -> list[int]:
    """Choices that can be part of an optimum, best first.

    One that costs as much as another of the same kind with no more GPUs never has to be taken, nor
    one that costs more than to wait.
    """
    kept: list[int] = []
    least: dict[int, float] = {}
    for one in sorted(range(len(row)), key=lambda one: (row[one].gpus, row[one].cost)):
        kind, gpus, cost = row[one]
        if cost < min(0.0, least.get(kind, 0.0)) and gpus <= capacity[kind]:
            least[kind] = cost
            kept.append(one)
    return sorted(kept, key=lambda one: row[one].cost)


def _independent(
    choices: Sequence[Sequence[Choice]], useful: list[list[int]], capacity: Sequence[int]
) -> list[int | None] | None:
    """Everyone's best choice, where there is room for that: then it is the optimum."""
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
    best = np.zeros([one + 1 for one in capacity])
    stages = [best]
    for row, order in zip(choices, useful, strict=True):
        before, best = best, best.copy()
        for one in order:
            kind, gpus, cost = row[one]
            above = (slice(None),) * kind + (slice(gpus, None),)
            below = (slice(None),) * kind + (slice(None, -gpus),)
            np.minimum(best[above], before[below] + cost, out=best[above])
        stages.append(best)
    chosen: list[int | None] = [None] * len(choices)
    left = list(capacity)
    for job in range(len(choices) - 1, -1, -1):
        reached, before = stages[job + 1][tuple(left)], stages[job]
        if reached == before[tuple(left)]:
            continue
        for one in useful[job]:
            kind, gpus, cost = choices[job][one]
            left[kind] -= gpus
            if left[kind] >= 0 and before[tuple(left)] + cost == reached:
                chosen[job] = one
                break
            left[kind] += gpus
    return chosen


class _Table:
    """The program as a matrix: a column for each choice, a row for each job and each kind."""

    def __init__(
        self,
        choices: Sequence[Sequence[Choice]],
        useful: list[list[int]],
        capacity: Sequence[int],
    ) -> None:
        from scipy.sparse import csr_array

        self.choices, self.capacity = choices, capacity
        self.columns = [(job, one) for job, row in enumerate(useful) for one in row]
        items = [choices[job][one] for job, one in self.columns]
        self.jobs, count = len(choices), len(items)
        self.rows = np.array([job for job, _ in self.columns])
        self.kinds = np.array([one.kind for one in items])
        self.gpus = np.array([one.gpus for one in items], dtype=float)
        self.costs = np.array([one.cost for one in items])
        where = (
            np.concatenate([self.rows, self.jobs + self.kinds]),
            np.tile(np.arange(count), 2),
        )
        self.matrix = csr_array(
            (np.concatenate([np.ones(count), self.gpus]), where),
            shape=(self.jobs + len(capacity), count),
        )
        self.most = np.concatenate([np.ones(self.jobs), np.array(capacity, dtype=float)])

    def nearly(self, time_limit_s: float, gap: float) -> list[int | None] | None:
        """An assignment within `gap` of the optimum; None when this way finds none.

        The linear program splits at most as many jobs as there are kinds. Those, and the jobs for
        which at its prices of GPUs a second choice is about as good, are decided among themselves.
        """
        from scipy.optimize import linprog

        found = linprog(
            self.costs,
            A_ub=self.matrix,
            b_ub=self.most,
            method="highs-ipm",
            options={"time_limit": time_limit_s},
        )
        if found.x is None or found.status != 0:
            return None
        prices = -found.ineqlin.marginals[self.jobs :]
        reduced = self.costs + prices[self.kinds] * self.gpus
        best = np.zeros((self.jobs, 2))  # the two least of each job, waiting being one
        for job, value in zip(self.rows.tolist(), reduced.tolist(), strict=True):
            if value < best[job, 0]:
                best[job] = value, best[job, 0]
            elif value < best[job, 1]:
                best[job, 1] = value
        split = (found.x > _WHOLE) & (found.x < 1 - _WHOLE)
        close = np.argsort(best[:, 1] - best[:, 0], kind="stable")[:_CLOSE]
        open_jobs = sorted({*self.rows[split].tolist(), *close.tolist()})
        chosen: list[int | None] = [None] * self.jobs
        left = list(self.capacity)
        for (job, one), value in zip(self.columns, found.x, strict=True):
            if value > 0.5:
                chosen[job] = one
        for job in open_jobs:
            chosen[job] = None
        for job, taken in enumerate(chosen):
            if taken is not None:
                left[self.choices[job][taken].kind] -= self.choices[job][taken].gpus
        if min(left) < 0:
            return None
        rest = [self.choices[job] for job in open_jobs]
        useful = [_useful(row, left) for row in rest]
        if math.prod(one + 1 for one in left) <= _STATES:
            decided = _by_capacity(rest, useful, left)
        else:
            try:
                decided = _Table(rest, useful, left).optimum(time_limit_s, gap)
            except ProgramError:
                return None
        for job, taken in zip(open_jobs, decided, strict=True):
            chosen[job] = taken
        cost = sum(
            self.choices[job][taken].cost for job, taken in enumerate(chosen) if taken is not None
        )
        return chosen if cost - found.fun <= gap * abs(found.fun) else None

    def optimum(self, time_limit_s: float, gap: float) -> list[int | None]:
        """By the general solver. Raises `ProgramError` when it gives none."""
        from scipy.optimize import Bounds, LinearConstraint, milp

        chosen: list[int | None] = [None] * self.jobs
        if not self.columns:
            return chosen
        result = milp(
            self.costs,
            integrality=np.ones(len(self.columns)),
            bounds=Bounds(0, 1),
            constraints=LinearConstraint(self.matrix, ub=self.most),
            options={"time_limit": time_limit_s, "mip_rel_gap": gap},
        )
        if result.x is None:
            raise ProgramError(str(result.message))
        for (job, one), value in zip(self.columns, result.x, strict=True):
            if value > 0.5:
                chosen[job] = one
        return chosen
