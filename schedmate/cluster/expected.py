"""When waiting jobs are expected to start: the queue run forward, and how long others waited.

In order of priority each job gets the earliest time at which enough GPUs of its partition are free
for as long as it runs, which is backfill that delays nobody before it. Run times are drawn from
their estimates, many times. Which GPUs are on one node, jobs that come later, and a site's limits
and reservations are not modelled: alone, this says much too early. So the last jobs that waited
longer than a job has already say how much longer they did; what one user submitted on one day
counts as one of them, as it often waits for the same. Both are pooled: the queue counts for half
where a job has just come, and less the longer it has waited beside what the queue says, since
something then holds it that the queue does not show (`benchmarks/starts.py`). A job that is held or
waits for anything but its turn has no answer.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from schedmate.cluster.adapter import LiveJob, LiveNode
from schedmate.jobs import JobSpec, Remaining

STARTS = "starts"
"""The mark in an agent's memory: by job `p10`, `p50`, `p90` and `scheduler` [s since epoch]."""
MOST_QUEUED = 1_000
"""Jobs of a queue that are run forward, the first in its order."""
DRAWS = 40
MOST_WAITING = 200
"""Waiting jobs of a partition that are modelled, the first in its order."""
WAITS_S = 400 * 86_400.0
"""How far back jobs are taken that started, by their submission [s]."""
_LAST = 200
"""Waits that say how long a job still waits: the last ones that were longer than it has waited."""
_ENOUGH = 5
"""From how many users' days on they count in full, and are an answer on their own."""
_DAY_S = 86_400.0
_FLOOR_S = 600.0
"""What is added to a wait before two are compared [s]."""
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


Started = tuple[float, float, str | None]
"""Of a job its submission, its start [s since epoch], and its user."""


def first_of(jobs: Sequence[LiveJob]) -> list[LiveJob]:
    """The jobs of a queue that are run forward: running ones, then the first that wait."""
    return sorted(jobs, key=lambda job: (job.state != "RUNNING", *_place(job)))[:MOST_QUEUED]


def _place(job: LiveJob) -> tuple[float, float]:
    return -(job.priority or 0), job.submitted or 0.0


def expected_starts(
    jobs: Sequence[LiveJob],
    runs: Mapping[str, Runs],
    nodes: Iterable[LiveNode],
    now: float,
    before: Iterable[Started] = (),
) -> dict[str, Start]:
    """The expected start of each waiting job, by id, at a moment [s since epoch].

    `runs` has what is known of the jobs. `before` are jobs that have ended; waits of running ones
    are taken from `jobs`.
    """
    pools = _Pools(nodes)
    starts: dict[str, Start] = {}
    queues: dict[int, list[LiveJob]] = {}
    ends: dict[int, list[Runs]] = {}
    lately = list(before)
    for job in jobs:
        known, pool = runs.get(job.id), pools.of(job)
        if job.state == "PENDING":
            why = _no_answer(job, known, 0.0 if pool is None else pools.all[pool])
            if why:
                starts[job.id] = Start(why=why)
            elif pool is not None:
                queues.setdefault(pool, []).append(job)
        elif known is not None and known.gpus:
            if pool is not None:
                ends.setdefault(pool, []).append(known)
            if job.started is not None and job.submitted is not None:
                lately.append((job.submitted, job.started, job.user))
    past = _Waits(lately)
    for pool, queue in queues.items():
        for job, found in _by_queue(pools.free[pool], ends.get(pool, []), queue, runs):
            waited = None if job.submitted is None else max(0.0, now - job.submitted)
            starts[job.id] = past.pooled(found, waited)
    return starts


def _no_answer(job: LiveJob, known: Runs | None, most: float) -> str:
    """Why nothing can be said of a waiting job; `most` are the GPUs of its partitions."""
    if job.held:
        return "it is held"
    if job.reason not in _FOR_GPUS:
        return f"it waits for something else than GPUs: {job.reason}"
    if known is None:
        return "it is not described yet, or far back in the queue"
    if not known.gpus:
        return "it asks for no GPU"
    return "" if known.gpus <= most else "no partition of its has that many GPUs in service"


def _by_queue(
    free: float, running: list[Runs], queue: list[LiveJob], runs: Mapping[str, Runs]
) -> Iterator[tuple[LiveJob, list[float] | str]]:
    """The drawn starts of the jobs that wait for one pool, or why there are none."""
    known = [job for job in sorted(queue, key=_place) if runs[job.id].is_known]
    yield from (
        (job, "it has neither an estimate nor a time limit")
        for job in queue
        if not runs[job.id].is_known
    )
    if not all(one.is_known for one in running):
        reason = "a running job there has neither an estimate nor a time limit"
        yield from ((job, reason) for job in known)
        return
    first = known[:MOST_WAITING]
    for job, times in zip(
        first, _drawn(free, running, [runs[job.id] for job in first]), strict=True
    ):
        endless = not math.isfinite(max(times))
        yield job, "jobs of which nothing is known hold its GPUs" if endless else times
    yield from ((job, f"over {MOST_WAITING} jobs wait before it") for job in known[MOST_WAITING:])


class _Waits:
    """How long jobs waited that have started."""

    def __init__(self, started: list[Started]) -> None:
        import numpy as np

        started.sort(key=lambda job: -job[1])
        self._waits = np.array([start - submitted for submitted, start, _ in started])
        batches: dict[tuple[str | None, float], int] = {}
        self._batches = np.array(
            [
                batches.setdefault((user, submitted // _DAY_S), len(batches))
                for submitted, _, user in started
            ],
            dtype=int,
        )

    def pooled(self, found: list[float] | str, waited: float | None) -> Start:
        """The start of a job by the queue run forward, or why it has none by that, and by waits
        that were longer than its own until now [s]."""
        import numpy as np

        if waited is None:
            waited = math.inf
        longer = np.flatnonzero(self._waits > waited)[:_LAST]
        _, of, sizes = np.unique(self._batches[longer], return_inverse=True, return_counts=True)
        drawn: list[float] = []
        share = 0.0
        if not isinstance(found, str):
            drawn = found
            by_queue = float(np.median(drawn)) + _FLOOR_S
            trusted = 0.5 * by_queue / (by_queue + waited)
            share = 1.0 - (1.0 - trusted) * min(1.0, len(sizes) / _ENOUGH)
        elif len(sizes) < _ENOUGH:
            return Start(why=found)
        times = np.concatenate([drawn, self._waits[longer] - waited])
        of_queue = np.full(len(drawn), share / max(1, len(drawn)))
        of_waits = (1.0 - share) / max(1, len(sizes)) / sizes[of]
        weights = np.concatenate([of_queue, of_waits])
        order = np.argsort(times, kind="stable")
        reached = np.cumsum(weights[order]) - weights[order] / 2
        low, median, high = np.interp(_LEVELS, reached, times[order]).tolist()
        return Start(low, median, high)


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
