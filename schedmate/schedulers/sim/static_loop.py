"""The event loop of queues whose order is fixed when a job is submitted.

It does what the engine does for such a policy, event by event and with exactly the same numbers, on
arrays: there are no job objects, and what the results do not need is not stored.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import Any, NamedTuple

from schedmate.schedulers.model import Allocation, Job
from schedmate.schedulers.space import Space

NEVER = float("inf")
_TOLD = 1000
_MOST = 1 << 62


class Queue(NamedTuple):
    """Jobs by position in order of submission; those with the same request are of one kind."""

    submit_s: Sequence[float]
    run_s: Sequence[float]
    kind: Sequence[int]
    asking: Sequence[Job]
    """A job of each kind, for the space."""
    lane: Sequence[int]
    """The lane of each kind: jobs behind one that does not fit wait too."""
    key: Callable[[int], tuple[Any, ...]]
    """The place in the queue of a job that has just come: the least is first, the job is last."""
    came: Callable[[int], None] | None = None
    """Called for each job that is submitted, before its rank is computed."""
    went: Callable[[int], None] | None = None
    """Called for each job that ends."""


class Ran(NamedTuple):
    """The times of a run."""

    started: array[float]
    """When each job started [s]."""
    ended: array[float]
    """When each ended [s]."""
    order: array[int]
    """The jobs as they ended."""
    places: list[Allocation]
    """Their GPUs, in that order."""


def run(queue: Queue, space: Space, progress: Callable[[int], None] | None = None) -> Ran:
    """Run all jobs; each must fit into the empty space.

    `progress` is called from time to time with the number of submitted jobs.
    """
    submit_s, run_s, kind, asking, lane_of, key_of, came, went = queue
    count, free, place, give = len(submit_s), space.free, space.place, space.give
    sizes = {node.gpus for node in space.cluster.nodes}
    least = [
        0 if job.share < 1 else min(_least(job.gpus, size) for size in sizes) for job in asking
    ]
    lanes: dict[int, list[tuple[Any, ...]]] = {}
    started, ended = array("d", bytes(8 * count)), array("d", bytes(8 * count))
    where: list[Allocation] = [()] * count
    held: Allocation | None
    order, places = array("q"), []
    events: list[tuple[float, int]] = []
    position, upcoming, tell = 0, submit_s[0], _TOLD
    lowest = _MOST  # of `least`, among waiting jobs
    while events or position < count:
        room, new = -1, []
        if events and events[0][0] <= upcoming:
            now = events[0][0]
            while events and events[0][0] == now:
                job = heappop(events)[1]
                ended[job] = now
                held, where[job] = where[job], ()
                order.append(job)
                places.append(held)
                give(asking[kind[job]], held)
                if went is not None:
                    went(job)
                if lanes:
                    for node, _ in held:
                        left = free[node].bit_count()
                        if left > room:
                            room = left
        else:
            now = upcoming
        while upcoming == now:
            job, position = position, position + 1
            upcoming = submit_s[position] if position < count else NEVER
            asks = kind[job]
            if came is not None:
                came(job)
            if not (lanes or upcoming == now) and (held := place(asking[asks])):
                # No job waits: it starts at once.
                started[job], where[job] = now, held
                heappush(events, (now + run_s[job], job))
                break
            lane, key = lane_of[asks], key_of(job)
            waiting = lanes.setdefault(lane, [])
            heappush(waiting, key)
            if waiting[0] is key:
                new.append(lane)
        if progress is not None and position >= tell:
            tell = position + _TOLD
            progress(position)
        if room < lowest and not new:
            continue
        # Jobs refused before fit only where GPUs were released.
        heads = [
            (waiting[0], lane)
            for lane, waiting in lanes.items()
            if least[kind[waiting[0][-1]]] <= room or lane in new
        ]
        for job, held in _started(heads, lanes, queue, place):
            started[job], where[job] = now, held
            heappush(events, (now + run_s[job], job))
        lowest = min([least[kind[waiting[0][-1]]] for waiting in lanes.values()] or [_MOST])
    return Ran(started, ended, order, places)


def _started(
    heads: list[tuple[tuple[Any, ...], int]],
    lanes: dict[int, list[tuple[Any, ...]]],
    queue: Queue,
    place: Callable[[Job], Allocation | None],
) -> list[tuple[int, Allocation]]:
    """Take the jobs that fit out of these lanes, given with their first jobs, by rank."""
    kind, asking, found = queue.kind, queue.asking, []
    heapify(heads)
    while heads:
        key, lane = heads[0]
        job = key[-1]
        held = place(asking[kind[job]])
        if not held:
            heappop(heads)
            continue
        found.append((job, held))
        waiting = lanes[lane]
        heappop(waiting)
        if waiting:
            heapreplace(heads, (waiting[0], lane))
        else:
            del lanes[lane]
            heappop(heads)
    return found


def _least(gpus: int, size: int) -> int:
    """Least number of free GPUs on one node of a pool with which that node helps to place a job.

    A job larger than a node takes whole ones and a part of a further one (`Space.find`).
    """
    return gpus if gpus <= size else gpus % size or size
