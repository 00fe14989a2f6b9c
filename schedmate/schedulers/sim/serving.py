"""The life of jobs in two preemptive queues, in arrays: see `service_loop.py`."""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections.abc import Sequence
from heapq import heappush
from typing import NamedTuple

import numpy as np

from schedmate.schedulers.model import Allocation, Job
from schedmate.schedulers.policy import ServiceRank
from schedmate.schedulers.sim.engine.record import Segments
from schedmate.schedulers.space import Space

NEVER = float("inf")
END, FALLS = 0, 1

Left = tuple[int, int, Allocation]
"""A job that leaves the running ones: its place, group and GPUs."""


class Served(NamedTuple):
    """Jobs by position in order of submission; those with the same request are of one kind."""

    submit_s: Sequence[float]
    run_s: Sequence[float]
    kind: Sequence[int]
    asking: Sequence[Job]
    """A job of each kind, for the space."""
    group: Sequence[int]
    """The group of each kind: jobs are preempted only for those of their group."""
    restart_s: Sequence[float]
    """What going on after a stop takes a job of each kind [s]."""
    rank: ServiceRank


class Serving:
    """The state of a run.

    The place of a job is its position, plus the number of jobs in the second queue.
    """

    def __init__(self, served: Served, space: Space) -> None:
        self.submit_s, self.run_s, self.kind, self.asking, self.group, self.restart_s, _ = served
        self.space = space
        self.count = count = len(self.submit_s)
        self.rank = served.rank
        self.smallest = space.smallest
        self.gpus = [job.gpus for job in self.asking]
        self.sure = [job.gpus <= space.smallest for job in self.asking]
        """By kind: whether it is certain that refused jobs could not have been placed."""
        self.alike = space.smallest == space.largest
        submit_s = np.array(self.submit_s)
        self.last: list[int] = (np.searchsorted(submit_s, submit_s, "right") - 1).tolist()
        """By job: the last one of the same rank, those of one instant."""
        self.zero = array("d", bytes(8 * count))
        self.first = array("d", [NEVER]) * count
        self.started, self.since, self.ended = self.zero[:], self.zero[:], self.zero[:]
        self.done, self.before, self.service = self.zero[:], self.zero[:], self.zero[:]
        self.stops = array("q", bytes(8 * count))
        self.epoch = array("q", bytes(8 * count))
        self.place = array("q", bytes(8 * count))
        self.held: list[Allocation] = [()] * count
        self.order = array("q")
        self.segments = Segments()
        self.events: list[tuple[float, int, int, int]] = []
        self.waiting: dict[int, list[int]] = {}
        """Places of the waiting jobs of each kind, a heap."""
        self.refused = [-1] * len(self.asking)
        """By kind: the place of the first waiting job, if it was refused since it came."""
        self.running: list[list[int]] = [[] for _ in range(max(self.group) + 1)]
        """Places of the running jobs of each group, ascending."""
        self.on: list[dict[int, int]] = [{} for _ in space.free]
        """Running jobs of each node, with their numbers of GPUs."""
        self.left: list[Left] = []
        """Since the last decision."""
        self.fresh = False
        """Whether a job waits that was not offered since it came, and is the first of its kind."""

    # The life of a job.

    def begin(self, job: int, now: float, held: Allocation) -> None:
        """The job gets GPUs, which are booked."""
        started, done, served = now, self.done[job], self.service[job]
        self.started[job] = now
        if self.first[job] == NEVER:
            self.first[job] = now
        kind = self.kind[job]
        if self.stops[job]:
            started += self.restart_s[kind]
        self.since[job], self.before[job], self.held[job] = started, done, held
        epoch, gpus = self.epoch[job], self.gpus[kind]
        heappush(self.events, (started + (self.run_s[job] - done), END, job, epoch))
        left = self.rank.falls_after_s(served, gpus)
        if left < NEVER:
            heappush(self.events, (now + left, FALLS, job, epoch))
        place = job + self.count if self.rank.is_low(served, gpus) else job
        self.place[job] = place
        insort(self.running[self.group[kind]], place)
        for node, mask in held:
            self.on[node][job] = mask.bit_count()

    def leave(self, job: int, now: float) -> None:
        """The job has left its GPUs, which are released already, and is not running any more."""
        held, started, segments = self.held[job], self.started[job], self.segments
        segments.jobs.append(job)
        segments.starts.append(started)
        segments.ends.append(now)
        segments.works.append(self.done[job] - self.before[job])
        segments.allocations.append(held)
        self.held[job] = ()
        self.epoch[job] += 1
        self.service[job] += now - started

    def off(self, job: int) -> None:
        """Take a job out from among the running, and release its GPUs."""
        kind, place, held = self.kind[job], self.place[job], self.held[job]
        group = self.group[kind]
        places = self.running[group]
        del places[bisect_left(places, place)]
        for node, _ in held:
            del self.on[node][job]
        self.space.give(self.asking[kind], held)
        self.left.append((place, group, held))

    def end(self, job: int, now: float) -> None:
        """The job has done its work."""
        self.done[job] = self.run_s[job]
        self.off(job)
        self.leave(job, now)
        self.ended[job] = now
        self.order.append(job)

    def stop(self, job: int, now: float) -> None:
        """The job, which has left its GPUs, keeps its work and waits again."""
        since = self.since[job]
        if now > since:
            self.done[job] = min(self.run_s[job], self.done[job] + (now - since))
        self.leave(job, now)
        self.stops[job] += 1
        gpus = self.gpus[self.kind[job]]
        self.wait(job + self.count if self.rank.is_low(self.service[job], gpus) else job, job)

    def wait(self, place: int, job: int) -> None:
        """The job waits at this place."""
        waiting = self.waiting.setdefault(self.kind[job], [])
        heappush(waiting, place)
        if waiting[0] == place:
            self.fresh = True

    def fall(self, job: int, now: float) -> None:
        """The job has used up its service in the first queue."""
        kind, place = self.kind[job], self.place[job]
        gpus, served = self.gpus[kind], self.service[job] + (now - self.started[job])
        places = self.running[self.group[kind]]
        self.left.append((place, self.group[kind], self.held[job]))
        if self.rank.is_low(served, gpus) and place < self.count:
            del places[bisect_left(places, place)]
            self.place[job] = place + self.count
            insort(places, place + self.count)
        left = self.rank.falls_after_s(served, gpus)
        if now < now + left < NEVER:
            heappush(self.events, (now + left, FALLS, job, self.epoch[job]))
