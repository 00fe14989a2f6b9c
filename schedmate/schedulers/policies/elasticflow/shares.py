"""The fewest GPUs with which jobs meet their deadlines (ElasticFlow, section 4.1).

Time is divided into slots, of one round at first, then longer and longer: in the far future only
totals matter. A job's share is found by progressive filling: the smallest number of GPUs that
completes it in time, as far as earlier deadlines leave them free.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from schedmate.schedulers.goodput.throughput import Floats
from schedmate.schedulers.model import Job

EVEN = 12
"""Slots of the length of a round; each one after them is longer than the one before."""
GROWTH = 1.25
MOST = 200
"""Slots at most: more than a year ahead in rounds of a second."""


@dataclass(frozen=True, eq=False)
class Demand:
    """A job within the GPUs of one type."""

    job: Job
    sizes: tuple[int, ...]
    """Numbers of GPUs on which it runs, ascending."""
    speeds: tuple[float, ...]
    """Progress a second on each."""
    left: float
    """Remaining work; infinity: unknown."""
    deadline_s: float = math.inf
    """Time until its deadline [s]."""
    held: int = 0
    """GPUs that it has."""
    change_s: float = 0.0
    """What giving it another number of GPUs costs [s]."""
    pinned: bool = False
    """Whether it is being started or moved, and is not changed."""

    def speed(self, gpus: int) -> float:
        """Progress per second on this many GPUs; 0 if it cannot run on them."""
        return self.speeds[self.sizes.index(gpus)] if gpus in self.sizes else 0.0

    def larger(self, gpus: int) -> int:
        """The next larger number of GPUs on which it runs; 0: none."""
        return next((size for size in self.sizes if size > gpus), 0)

    def rest_s(self, gpus: int) -> float:
        """Time that it needs on this number of GPUs from now on [s]."""
        speed = self.speed(gpus)
        if speed <= 0:
            return math.inf
        return self.left / speed + (0.0 if gpus == self.held else self.change_s)


def slots(interval_s: float, horizon_s: float) -> Floats:
    """Where slots end, from now until at least the horizon [s]."""
    ends: list[float] = []
    length, at = interval_s, 0.0
    while at < horizon_s and len(ends) < MOST:
        at += length
        ends.append(at)
        if len(ends) >= EVEN:
            length *= GROWTH
    return np.array(ends or [interval_s])


class Share(NamedTuple):
    """The GPUs that a job is promised."""

    gpus: int
    """With at most this number in each slot: the minimum satisfactory share."""
    plan: Floats
    """In each slot."""


def share(demand: Demand, free: Floats, ends: Floats) -> Share | None:
    """The minimum satisfactory share within the GPUs that are free in each slot.

    None: no number of GPUs gets it done by its deadline.
    """
    starts = np.concatenate([[0.0], ends[:-1]])
    lengths = np.clip(np.minimum(ends, demand.deadline_s) - starts, 0.0, None)
    sizes, speeds = np.array([0, *demand.sizes]), np.array([0.0, *demand.speeds])
    for gpus in demand.sizes:
        place = np.searchsorted(sizes, np.minimum(gpus, free), side="right") - 1
        useful = lengths.copy()
        first = int(np.argmax(place > 0))
        if sizes[place[first]] != demand.held:
            useful[first] -= demand.change_s
        done = np.cumsum(speeds[place] * useful)
        if done[-1] >= demand.left * (1 - 1e-9):
            last = int(np.searchsorted(done, demand.left * (1 - 1e-9)))
            plan = sizes[place].astype(float)
            plan[last + 1 :] = 0.0
            return Share(gpus, plan)
    return None


def shares(demands: Iterable[Demand], free: Floats | int, ends: Floats) -> dict[int, Share | None]:
    """The shares of jobs by position, by ascending deadline; None: it misses its deadline.

    `free` is the number of GPUs, or the number in each slot.
    """
    left = np.zeros(len(ends)) + free
    found: dict[int, Share | None] = {}
    for one in sorted(demands, key=_urgency):
        found[one.job.index] = promised = share(one, left, ends)
        if promised is not None:
            left -= promised.plan
    return found


def _urgency(one: Demand) -> tuple[float, int]:
    return one.deadline_s, one.job.index


def admit(
    known: Sequence[Demand], new: Sequence[Demand], capacity: int, ends: Floats
) -> tuple[dict[int, Share | None], list[Demand]]:
    """Shares of all admitted jobs, and the refused new jobs.

    A new job is admitted if it meets its deadline and makes no other miss one; the first submitted
    goes first.
    """
    admitted = list(known)
    found = shares(admitted, capacity, ends)
    refused = []
    for one in new:
        free = np.full(len(ends), float(capacity))
        later = []
        for other in admitted:
            promised = found[other.job.index]
            if _urgency(other) > _urgency(one):
                later.append(other)
            elif promised is not None:
                free -= promised.plan
        own = share(one, free, ends)  # later deadlines do not reduce it
        if own is None:
            refused.append(one)
            continue
        trial = shares(later, free - own.plan, ends)
        if any(trial[index] is None and found[index] is not None for index in trial):
            refused.append(one)
            continue
        admitted.append(one)
        found |= {**trial, one.job.index: own}
    return found, refused
