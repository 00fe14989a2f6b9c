"""A pool whose tasks end in any order and whose processes die, without a process."""

from __future__ import annotations

import random
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any


class DiedError(Exception):
    """A simulated process has ended."""


@dataclass
class Deaths:
    """Every so many tasks one dies that holds nothing deadly."""

    every: int = 0


class SimulatedPool:
    """See `schedmate.base.spread.Pool`; a task has ended when it is submitted."""

    task_s = 1.0

    def __init__(
        self,
        size: int,
        most: int,
        poison: frozenset[int],
        *,
        knows_place: bool,
        seed: int,
        deaths: Deaths | None = None,
    ) -> None:
        self.size = self.retries = size
        self.most = most
        self.deaths = self.largest = 0
        self._poison = poison
        self._knows = knows_place
        self._random = random.Random(seed)
        self._more = deaths or Deaths()
        self._tasks = 0
        self._places: dict[Future[Any], int] = {}

    def submit(self, items: Sequence[int]) -> Future[tuple[list[int], float]]:
        self.largest = max(self.largest, len(items))
        future: Future[tuple[list[int], float]] = Future()
        self._tasks += 1
        bad = [place for place, item in enumerate(items) if item in self._poison]
        chance = self._more.every and self._tasks % self._more.every == 0 and len(items) > 1
        if bad or chance:
            self.deaths += 1
            self._places[future] = bad[0] if bad else self._random.randrange(len(items))
            future.set_exception(DiedError())
        else:
            future.set_result((list(items), len(items) * self._random.choice((1e-4, 1e-2))))
        return future

    def died(self, error: BaseException) -> bool:
        return isinstance(error, DiedError)

    def reached(self, task: Future[tuple[list[int], float]]) -> int | None:
        place = self._places.pop(task)
        return place if self._knows else None
