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
    columns = [(job, one) for job, row in enumerate(useful) for one in row]
    found = _milp([choices[job][one] for job, one in columns], columns, capacity, time_limit_s, gap)
    chosen: list[int | None] = [None] * len(choices)
    for (job, one), value in zip(columns, found, strict=True):
        if value > 0.5:
            chosen[job] = one
    return chosen


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


def _milp(
    items: list[Choice],
    columns: list[tuple[int, int]],
    capacity: Sequence[int],
    time_limit_s: float,
    gap: float,
) -> Floats:
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array

    count = len(items)
    number: dict[int, int] = {}
    rows = np.array([number.setdefault(job, len(number)) for job, _ in columns])
    kinds = np.array([one.kind for one in items])
    values = np.concatenate([np.ones(count), np.array([one.gpus for one in items], dtype=float)])
    jobs = len(number)
    where = (np.concatenate([rows, jobs + kinds]), np.tile(np.arange(count), 2))
    matrix = csr_array((values, where), shape=(jobs + len(capacity), count))
    most = np.concatenate([np.ones(jobs), np.array(capacity, dtype=float)])
    result = milp(
        np.array([one.cost for one in items]),
        integrality=np.ones(count),
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(matrix, ub=most),
        options={"time_limit": time_limit_s, "mip_rel_gap": gap},
    )
    if result.x is None:
        raise ProgramError(str(result.message))
    return np.asarray(result.x)
