"""The value of the remainder of a shared GPU, by shadow prices.

Dividing GPUs into the parts that jobs request is a cutting stock problem (Gilmore and Gomory,
1961): use the fewest GPUs. The dual of its linear program prices each part in GPUs, and a remainder
is worth as much as the best parts that fit into it: 0.19 of a GPU that only a rare part could use
is worth nothing; 0.35, half of what a common pair takes, is worth a half.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from schedmate.errors import require

STEPS = 1000
"""Parts of a GPU are counted in thousandths."""
_EPSILON = 1e-9
_MOST_PATTERNS = 500


def worths(parts: Mapping[int, int]) -> NDArray[np.float64]:
    """Value of each remainder of a GPU [GPUs], by thousandths, from 0 to 1,000.

    `parts`: how often each part is requested, by thousandths (1 to 999). Without any, a remainder
    is worth nothing. Raises `UsageError` without the extra `schedulers`.
    """
    found = np.zeros(STEPS + 1)
    if parts:
        require("pricing rests of GPUs", "schedulers", "scipy")
        sizes = sorted(parts)
        shares = np.array([parts[size] for size in sizes], float)
        found, _ = _best(sizes, _duals(sizes, shares / shares.sum()))
    found[STEPS] = 1.0
    return np.minimum(found, 1.0)


def counted(shares: Iterable[float]) -> dict[int, int]:
    """Parts of a GPU by thousandths, without whole GPUs."""
    found: dict[int, int] = {}
    for share in shares:
        if 0 < (part := round(share * STEPS)) < STEPS:
            found[part] = found.get(part, 0) + 1
    return found


def _duals(sizes: list[int], shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Prices of the parts, by column generation."""
    from scipy.optimize import linprog

    patterns = [
        [STEPS // size * (n == k) for n in range(len(sizes))] for k, size in enumerate(sizes)
    ]
    while True:
        table = np.array(patterns, float).T
        solved = linprog(np.ones(len(patterns)), A_ub=-table, b_ub=-shares, method="highs")
        prices = np.maximum(-solved.ineqlin.marginals, 0.0)
        worth, last = _best(sizes, prices)
        if worth[STEPS] <= 1.0 + _EPSILON or len(patterns) >= _MOST_PATTERNS:
            return np.asarray(prices)
        patterns.append(_pattern(sizes, last))


def _best(
    sizes: list[int], prices: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The most that parts in each rest are worth together, and the last part of it."""
    worth, last = np.zeros(STEPS + 1), np.full(STEPS + 1, -1)
    for rest in range(1, STEPS + 1):
        worth[rest] = worth[rest - 1]
        for k, size in enumerate(sizes):
            if size > rest:
                break
            if (more := worth[rest - size] + prices[k]) > worth[rest] + _EPSILON:
                worth[rest], last[rest] = more, k
    return worth, last


def _pattern(sizes: list[int], last: NDArray[np.int64]) -> list[int]:
    pattern, rest = [0] * len(sizes), STEPS
    while rest:
        if last[rest] < 0:
            rest -= 1
        else:
            pattern[last[rest]] += 1
            rest -= sizes[last[rest]]
    return pattern
