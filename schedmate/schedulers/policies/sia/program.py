"""Sia's integer program: one configuration for each job, or none, within the GPUs of each type."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from schedmate.schedulers.policies.sia.linear import Choice, ProgramError, Table

__all__ = ["Choice", "ProgramError", "solve"]

_STATES = 20_000
"""Up to this number of combinations of free GPUs, dynamic programming is used."""


def solve(
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
    useful = [_useful(row, capacity) for row in choices]
    if (easy := _independent(choices, useful, capacity)) is not None:
        return easy
    if not _is_small(capacity):
        table = Table(choices, useful, capacity)
        if (near := _nearly(choices, table, time_limit_s, gap)) is not None:
            return near
    return _optimum(choices, useful, capacity, time_limit_s, gap)


def _nearly(
    choices: Sequence[Sequence[Choice]], table: Table, time_limit_s: float, gap: float
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
    return Table(choices, useful, capacity).optimum(time_limit_s, gap)


def _useful(row: Sequence[Choice], capacity: Sequence[int]) -> list[int]:
    """Choices that can be part of an optimum, best first.

    A choice is left out if another of the same kind costs no more and needs no more GPUs, or if it
    costs more than waiting.
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
    best = np.zeros([one + 1 for one in capacity])
    spare = np.empty_like(best)
    stages = [best]
    for row, order in zip(choices, useful, strict=True):
        before, best = best, best.copy()
        for one in order:
            kind, gpus, cost = row[one]
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
        for one in useful[job]:
            kind, gpus, cost = choices[job][one]
            left[kind] -= gpus
            if left[kind] >= 0 and before[tuple(left)] + cost == least:
                chosen[job] = one
                break
            left[kind] += gpus
    return chosen
