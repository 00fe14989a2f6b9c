"""When waiting jobs are expected to start: the queue as it is now, run forward with estimates.

In order of priority each job gets the earliest time at which enough GPUs of its partition are free
for as long as it runs, which is backfill that delays nobody before it. Run times are drawn from
their estimates, many times, so that the answer is an interval. Which GPUs are on one node, and jobs
that come later, are not modelled; a job that waits for anything but its turn has no answer.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from schedmate.cluster.adapter import LiveJob, LiveNode
from schedmate.jobs import JobSpec, Remaining

STARTS = "starts"
"""The mark in an agent's memory: by job `p10`, `p50`, `p90` and `scheduler` [s since epoch]."""
MOST_QUEUED = 1_000
"""Jobs of a queue up to which it is run forward."""
DRAWS = 40
MOST_WAITING = 200
"""Waiting jobs of a partition that are modelled, the first in its order."""
_FOR_GPUS = frozenset({"", "None", "Priority", "Resources"})
"""Why a job waits that needs nothing but its turn, in Slurm's words."""
_LEVELS = (0.1, 0.5, 0.9)


class Runs(NamedTuple):
    """How long a job still runs, or will run once it has started [s]."""

    gpus: float
    estimate: tuple[float, float, float] | None = None
    """Its 10th, 50th and 90th percentiles; None: unknown."""
    limit: float | None = None
    """What its time limit leaves; None: it has none."""

    @classmethod
    def of(cls, spec: JobSpec, left: Remaining) -> Runs:
        """By a job's description and what is known of the time that it still takes."""
        limit = spec.launch.time_limit_s
        times = (left.remaining_p10_s, left.remaining_s, left.remaining_p90_s)
        low, median, high = times
        known = low is not None and median is not None and high is not None
        return cls(
            float(spec.launch.gpus or 0),
            (low, median, high) if known else None,  # type: ignore[arg-type]
            None if limit is None else max(0.0, limit - left.elapsed_s),
        )

    @property
    def is_known(self) -> bool:
        """Whether there is anything to draw from."""
        return self.estimate is not None or self.limit is not None

    def draw(self, level: float) -> float:
        """The time that this share of such jobs takes at most.

        Of a job without an estimate the limit alone is known, and all times up to it are as likely.
        """
        most = math.inf if self.limit is None else self.limit
        if self.estimate is None:
            return level * most
        logs = [math.log(max(1.0, one)) for one in self.estimate]
        low, high = (0, 1) if level < _LEVELS[1] else (1, 2)
        slope = (logs[high] - logs[low]) / (_LEVELS[high] - _LEVELS[low])
        return min(most, math.exp(logs[1] + slope * (level - _LEVELS[1])))


class Start(NamedTuple):
    """When a job is expected to start, in seconds from now; None: unknown, and `why`."""

    p10: float | None = None
    p50: float | None = None
    p90: float | None = None
    why: str = ""

    def at(self, now: float) -> tuple[float | None, ...]:
        """The three as points in time [s since epoch]."""
        return tuple(None if one is None else now + one for one in self[:3])


def expected_starts(
    jobs: Sequence[LiveJob], runs: Mapping[str, Runs], nodes: Iterable[LiveNode]
) -> dict[str, Start]:
    """The expected start of each waiting job, by id. `runs` has what is known of every job."""
    pools = _Pools(nodes)
    starts: dict[str, Start] = {}
    waiting: dict[int, list[LiveJob]] = {}
    ends: dict[int, list[Runs]] = {}
    for job in jobs:
        known, pool = runs.get(job.id), pools.of(job)
        if job.state == "RUNNING":
            if pool is not None and known is not None and known.gpus:
                ends.setdefault(pool, []).append(known)
        elif job.held:
            starts[job.id] = Start(why="it is held")
        elif job.reason not in _FOR_GPUS:
            starts[job.id] = Start(why=f"it waits for something else than GPUs: {job.reason}")
        elif known is None or not known.gpus:
            starts[job.id] = Start(why="it asks for no GPU")
        elif pool is None or known.gpus > pools.all[pool]:
            starts[job.id] = Start(why="no partition of its has that many GPUs in service")
        elif not known.is_known:
            starts[job.id] = Start(why="it has neither an estimate nor a time limit")
        else:
            waiting.setdefault(pool, []).append(job)
    for pool, ours in waiting.items():
        if not all(one.is_known for one in ends.get(pool, ())):
            reason = "a running job there has neither an estimate nor a time limit"
            starts |= dict.fromkeys((job.id for job in ours), Start(why=reason))
            continue
        ours.sort(key=lambda job: (-(job.priority or 0), job.submitted or 0.0))
        behind = Start(why=f"over {MOST_WAITING} jobs wait before it")
        starts |= dict.fromkeys((job.id for job in ours[MOST_WAITING:]), behind)
        first = [runs[job.id] for job in ours[:MOST_WAITING]]
        found = _drawn(pools.free[pool], ends.get(pool, []), first)
        for job, times in zip(ours, found, strict=False):
            times.sort()
            if math.isfinite(times[-1]):
                low, median, high = (times[int(level * (DRAWS - 1))] for level in _LEVELS)
                starts[job.id] = Start(low, median, high)
            else:
                starts[job.id] = Start(why="jobs of which nothing is known hold its GPUs")
    return starts


class _Pools:
    """Partitions that share nodes are one pool of GPUs."""

    def __init__(self, nodes: Iterable[LiveNode]) -> None:
        self._pool: dict[str, int] = {}
        self.free: dict[int, float] = {}
        self.all: dict[int, float] = {}
        for number, node in enumerate(nodes):
            same = {self._pool[queue] for queue in node.queues if queue in self._pool}
            self._pool |= dict.fromkeys(node.queues, number)
            self._pool |= {queue: number for queue, pool in self._pool.items() if pool in same}
            serves = node.healthy and not node.drained
            for total, mine in (
                (self.all, node.gpus if serves else 0),
                (self.free, max(0, node.gpus - node.gpus_used) if serves else 0),
            ):
                total[number] = mine + sum(total.pop(pool) for pool in same)

    def of(self, job: LiveJob) -> int | None:
        """The pool of a job's partitions, the first that has nodes."""
        return next((self._pool[queue] for queue in job.queues if queue in self._pool), None)


def _drawn(free: float, running: list[Runs], waiting: list[Runs]) -> list[list[float]]:
    """The start of each waiting job [s from now], once for each draw."""
    starts: list[list[float]] = [[] for _ in waiting]
    for number in range(DRAWS):
        draw = random.Random(number)  # noqa: S311 - the same each time, so that answers are stable
        plan = _Plan(free, [(one.draw(draw.random()), one.gpus) for one in running])
        for place, job in zip(starts, waiting, strict=True):
            place.append(plan.put(job.gpus, max(1.0, job.draw(draw.random()))))
    return starts


class _Plan:
    """Free GPUs from now on, as steps; the last one lasts for ever."""

    def __init__(self, free: float, ends: Iterable[tuple[float, float]]) -> None:
        self._times, self._free = [0.0], [free]
        for end, gpus in sorted(ends):
            self._times.append(end)
            self._free.append(self._free[-1] + gpus)

    def put(self, gpus: float, length: float) -> float:
        """The earliest start of a job of this size and length, which is booked; infinity: none."""
        times, free = self._times, self._free
        begin: int | None = None
        for step, there in enumerate(free):
            if there < gpus:
                begin = None
            elif begin is None:
                begin = step
            if begin is not None and (
                step + 1 == len(free) or times[step + 1] >= times[begin] + length
            ):
                break
        if begin is None:
            return math.inf
        start = times[begin]
        end = start + length
        stop = bisect_left(times, end)
        if stop == len(times) or times[stop] != end:
            times.insert(stop, end)
            free.insert(stop, free[stop - 1])
        for step in range(begin, stop):
            free[step] -= gpus
        return start
