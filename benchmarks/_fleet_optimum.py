"""The most nodes that any migration could vacate: the integer program of Section 4.1, by HiGHS.

Every movable task goes to one node that may take it; a vacated node takes none. The order of
moves is ignored, so a plan that is safe at every step may reach less. GPUs shared by fractions
count by the sum of the parts, which can also allow more than is possible.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from schedmate.base.errors import InputError, require
from schedmate.schedulers.fleet.room import Part, Room
from schedmate.schedulers.fleet.snapshot import MILLI, NONE

MOST_VARIABLES = 200_000
"""Beyond it HiGHS takes hours and much memory."""


class Bound(NamedTuple):
    """Result of the integer program."""

    emptied: int
    """Nodes of the best solution found."""
    most: float
    """No solution has more."""
    variables: int
    constraints: int


def most_emptied(part: Part, time_limit_s: float = 60.0) -> Bound:
    """The integer program of one part; nodes that are empty already stay so.

    Raises `MissingExtraError` without SciPy, and `InputError` if it is too large.
    """
    require("the integer program", "schedulers", "scipy")
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import coo_array

    room = Room(part)
    size = len(part.gpus)
    there = [n for n in range(size) if room.tasks[n]]
    free = [n for n in there if part.gpus[n] and all(part.movable[t] for t in room.tasks[n])]
    y = {n: k for k, n in enumerate(free)}
    pairs: dict[tuple[int, int], int] = {}
    for t, movable in enumerate(part.movable):
        if movable:
            kinds = set(room.reaches[part.reach[t]])
            for n in there:
                if n == part.node[t] or part.kind[n] in kinds:
                    pairs[t, n] = len(free) + len(pairs)
    variables = len(free) + len(pairs)
    if variables > MOST_VARIABLES:
        raise InputError(
            f"the integer program would have {variables:,} variables, more than "
            f"{MOST_VARIABLES:,}; take fewer nodes."
        )
    rows: list[tuple[list[int], list[float], float, float]] = []
    tasks = sorted({t for t, _ in pairs})
    for t in tasks:
        mine = [pairs[t, n] for n in there if (t, n) in pairs]
        rows.append((mine, [1.0] * len(mine), 1.0, 1.0))
    for n in there:
        coming = [(t, pairs[t, n]) for t in tasks if (t, n) in pairs]
        staying = [t for t in room.tasks[n] if not part.movable[t]]
        for capacity, need in (
            (part.gpus[n] * MILLI, part.need),
            (part.cpus[n], part.need_cpus),
            (part.memory[n], part.need_memory),
        ):
            left = float(capacity - sum(need[t] for t in staying))
            scale = max(float(capacity), 1.0)
            columns = [x for t, x in coming if need[t]]
            values = [need[t] / scale for t, _ in coming if need[t]]
            if n in y:
                columns.append(y[n])
                values.append(left / scale)
            if columns:
                rows.append((columns, values, -np.inf, left / scale))
        rows += _apart(part, coming, staying)
    # a fraction or a task of CPUs alone takes so little of a node that the sums above hardly bind
    for (_t, n), x in pairs.items():
        if n in y:
            rows.append(([x, y[n]], [1.0, 1.0], -np.inf, 1.0))
    if not free:
        return Bound(0, 0.0, variables, len(rows))
    at = [(r, c, v) for r, (columns, values, _, _) in enumerate(rows)
          for c, v in zip(columns, values, strict=True)]  # fmt: skip
    r, c, v = zip(*at, strict=True)
    matrix = coo_array((v, (r, c)), shape=(len(rows), variables)).tocsr()
    low, high = np.array([one[2] for one in rows]), np.array([one[3] for one in rows])
    cost = np.zeros(variables)
    cost[: len(free)] = -1.0
    solution = milp(
        cost,
        integrality=np.ones(variables),
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(matrix, low, high + 1e-9),
        options={"time_limit": time_limit_s},
    )
    emptied = 0 if solution.x is None else round(float(-solution.fun))
    dual = getattr(solution, "mip_dual_bound", None)
    most = float(len(free)) if dual is None else float(-dual)
    return Bound(emptied, most, variables, len(rows))


def _apart(
    part: Part, coming: list[tuple[int, int]], staying: list[int]
) -> list[tuple[list[int], list[float], float, float]]:
    """At most one of two tasks on a node if one avoids the group of the other."""
    rows: list[tuple[list[int], list[float], float, float]] = []
    for i, (t, x) in enumerate(coming):
        avoid, group = part.avoid[t], part.group[t]
        if not avoid and group == NONE:
            continue
        for neighbour in staying:
            if part.group[neighbour] in avoid or group in part.avoid[neighbour]:
                rows.append(([x], [1.0], -np.inf, 0.0))
                break
        for neighbour, z in coming[i + 1 :]:
            if part.group[neighbour] in avoid or group in part.avoid[neighbour]:
                rows.append(([x, z], [1.0, 1.0], -np.inf, 1.0))
    return rows
