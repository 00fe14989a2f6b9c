"""Which of equally full nodes a job goes to (ASI paper, section 4.2, non-preemptive scheduling).

The fullest node that has room comes first; that is how `Space.find` packs. Of nodes that are
equally full, those come first that host jobs of the same class, and of these the ones with the most
evictions so far for a job of high priority, those with the fewest for a spot job.
"""

from __future__ import annotations

from collections.abc import Iterator

from schedmate.schedulers.fitting import Order
from schedmate.schedulers.model import Allocation
from schedmate.schedulers.pools import bits
from schedmate.schedulers.view import View


class Ranking:
    """The two criteria of the node ranking, for one call of the policy.

    `colocation` and `history` switch them on.
    """

    def __init__(self, view: View, *, colocation: bool = True, history: bool = True) -> None:
        self._colocation = colocation
        self._high = view.census().high if colocation else 0
        self._levels: list[int] | None = None if history and view.evicted else [-1]
        self._evicted = view.evicted

    def order(self, *, low: bool) -> Order:
        """The order for a job of this class."""

        def order(nodes: int) -> Iterator[int]:
            # A spot job goes where only spot jobs are, one of high priority where others are.
            same = nodes & (~self._high if low else self._high) if self._colocation else nodes
            if same:
                yield from self._by_history(same, low=low)
            if other := nodes & ~same:
                yield from self._by_history(other, low=low)

        return order

    def placed(self, allocation: Allocation, *, low: bool) -> None:
        """A job of this class was just placed there."""
        if not low and self._colocation:
            for node, _ in allocation:
                self._high |= 1 << node

    def _by_history(self, nodes: int, *, low: bool) -> Iterator[int]:
        if self._levels is None:
            self._levels = self._evicted.levels()
        for level in self._levels if low else reversed(self._levels):
            if some := nodes & level:
                yield from bits(some)
