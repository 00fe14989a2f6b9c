"""The event loop of queues whose order is settled when a job is submitted.

It does what the engine does for such a policy, event by event and to the last digit, on numbers
instead of jobs: no job is an object here, and what nobody asks for is not kept.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import Any, NamedTuple, Protocol

from schedmate.schedulers.model import Allocation, Job
from schedmate.schedulers.space import Space

NEVER = float("inf")
_TOLD = 1000


class Order(Protocol):
    """The order in which jobs wait, given by their position."""

    def key(self, job: int) -> tuple[Any, ...]:
        """The place of a job that is submitted now: what ranks first is least; at last the job."""
        ...

    def ended(self, job: int) -> None:
        """A job has ended, and its run time is known from now on."""


class Queue(NamedTuple):
    """Jobs by position in order of submission; those that ask for the same are of one kind."""

    submit_s: Sequence[float]
    run_s: Sequence[float]
    kind: Sequence[int]
    asking: Sequence[Job]
    """A job of each kind, for the space."""
    lane: Sequence[int]
    """The lane of each kind: those behind a job that finds no place wait too."""
    order: Order


class Ran(NamedTuple):
    """What happened."""

    started: array[float]
    """When each job started [s]."""
    ended: array[float]
    """When each ended [s]."""
    order: array[int]
    """The jobs as they ended."""
    places: list[Allocation]
    """Their GPUs, in that order."""


def run(queue: Queue, space: Space, told: Callable[[int], None] | None = None) -> Ran:
    """Run all jobs; each must fit into the space when that is empty.

    `told` hears now and then how many have been submitted.
    """
    submit_s, run_s, kind, asking = queue.submit_s, queue.run_s, queue.kind, queue.asking
    count = len(submit_s)
    free, place, give, key_of, ended_ = (
        space.free,
        space.place,
        space.give,
        queue.order.key,
        queue.order.ended,
    )
    # What never finds a place on a node with fewer free GPUs; 0: who knows.
    least = [0 if job.share < 1 or job.gpus > space.largest else job.gpus for job in asking]
    lane_of = [queue.lane[one] for one in range(len(asking))]
    lanes: dict[int, list[tuple[Any, ...]]] = {}
    started, ended = array("d", bytes(8 * count)), array("d", bytes(8 * count))
    where: list[Allocation] = [()] * count
    order, places = array("q"), []
    events: list[tuple[float, int]] = []
    position, upcoming = 0, submit_s[0]
    while events or position < count:
        room = -1
        new: list[int] = []
        if events and events[0][0] <= upcoming:
            now = events[0][0]
            while events and events[0][0] == now:
                job = heappop(events)[1]
                ended[job] = now
                held = where[job]
                order.append(job)
                places.append(held)
                where[job] = ()
                give(asking[kind[job]], held)
                ended_(job)
                if lanes:
                    for node, _ in held:
                        room = max(room, free[node].bit_count())
        else:
            now = upcoming
        while upcoming == now:
            job = position
            position += 1
            upcoming = submit_s[position] if position < count else NEVER
            key = key_of(job)
            if not lanes and upcoming != now:
                # Nobody waits: it starts, or is the first to.
                if held := place(asking[kind[job]]):
                    started[job], where[job] = now, held
                    heappush(events, (now + run_s[job], job))
                else:
                    lanes[lane_of[kind[job]]] = [key]
                break
            lane = lane_of[kind[job]]
            waiting = lanes.get(lane)
            if waiting is None:
                lanes[lane] = [key]
                new.append(lane)
            else:
                heappush(waiting, key)
                if waiting[0] is key:
                    new.append(lane)
        if told is not None and position % _TOLD == 0:
            told(position)
        if not lanes or (room < 0 and not new):
            continue
        # Who was refused before finds a place only where GPUs were released.
        heads = [
            (waiting[0], lane)
            for lane, waiting in lanes.items()
            if least[kind[waiting[0][-1]]] <= room or lane in new
        ]
        heapify(heads)
        while heads:
            (*_, job), lane = heads[0]
            held = place(asking[kind[job]])
            if not held:
                heappop(heads)
                continue
            started[job], where[job] = now, held
            heappush(events, (now + run_s[job], job))
            waiting = lanes[lane]
            heappop(waiting)
            if waiting:
                heapreplace(heads, (waiting[0], lane))
            else:
                del lanes[lane]
                heappop(heads)
    return Ran(started, ended, order, places)
