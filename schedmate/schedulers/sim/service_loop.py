"""The event loop of two preemptive queues by attained service.

It does what the engine does for such a policy, event by event and with exactly the same numbers, on
arrays instead of job objects.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import NamedTuple

import numpy as np

from schedmate.schedulers.free import lowest_gpus
from schedmate.schedulers.model import NEVER, Allocation, Job
from schedmate.schedulers.policy import ServiceRank
from schedmate.schedulers.sim.record import Segments
from schedmate.schedulers.space import Space

END, FALLS = 0, 1

LeavingJob = tuple[int, int, Allocation]
"""A job that leaves the running ones: its place, group and GPUs."""


class ServedJobs(NamedTuple):
    """Jobs by position in order of submission; those with the same request are of one kind."""

    submit_s: Sequence[float]
    run_s: Sequence[float]
    kind: Sequence[int]
    asking: Sequence[Job]
    """A job of each kind, for the space."""
    group: Sequence[int]
    """The group of each kind: jobs are preempted only for those of their group."""
    restart_s: Sequence[float]
    """By kind: time that a job needs to restart after a stop [s]."""
    rank: ServiceRank


class ServiceState:
    """The state of a run.

    The place of a job is its position, plus the number of jobs in the second queue.
    """

    def __init__(self, served: ServedJobs, space: Space) -> None:
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
        """By job: the last of the jobs with its rank, which were submitted at the same instant."""
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
        self.left: list[LeavingJob] = []
        """Since the last decision."""
        self.fresh = False
        """Whether a job waits that was not offered since it came, and is the first of its kind."""

    # The life of a job.

    def begin(self, job: int, now: float, allocation: Allocation) -> None:
        """The job gets GPUs, which are booked."""
        started, done, served = now, self.done[job], self.service[job]
        self.started[job] = now
        if self.first[job] == NEVER:
            self.first[job] = now
        kind = self.kind[job]
        if self.stops[job]:
            started += self.restart_s[kind]
        self.since[job], self.before[job], self.held[job] = started, done, allocation
        epoch, gpus = self.epoch[job], self.gpus[kind]
        heappush(self.events, (started + (self.run_s[job] - done), END, job, epoch))
        left = self.rank.falls_after_s(served, gpus)
        if left < NEVER:
            heappush(self.events, (now + left, FALLS, job, epoch))
        place = job + self.count if self.rank.is_low(served, gpus) else job
        self.place[job] = place
        insort(self.running[self.group[kind]], place)
        for node, mask in allocation:
            self.on[node][job] = mask.bit_count()

    def leave(self, job: int, now: float) -> None:
        """The job has left its GPUs, which are released already, and is not running any more."""
        allocation, started, segments = self.held[job], self.started[job], self.segments
        segments.jobs.append(job)
        segments.starts.append(started)
        segments.ends.append(now)
        segments.works.append(self.done[job] - self.before[job])
        segments.allocations.append(allocation)
        self.held[job] = ()
        self.epoch[job] += 1
        self.service[job] += now - started

    def off(self, job: int) -> None:
        """Take a job out from among the running, and release its GPUs."""
        kind, place, allocation = self.kind[job], self.place[job], self.held[job]
        group = self.group[kind]
        places = self.running[group]
        del places[bisect_left(places, place)]
        for node, _ in allocation:
            del self.on[node][job]
        self.space.give(self.asking[kind], allocation)
        self.left.append((place, group, allocation))

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


# Placement and preemption: where a waiting job can go, and which running jobs stop for it.
#
# A waiting job can have the free GPUs and those of every running job that ranks after it. On no
# node does their number increase when a job that ranks after it starts, ends or is stopped; so a
# refused job is tried again only on nodes from which jobs that rank before it have left or dropped
# to the second queue.


_NOTHING = (1 << 62, True)


class ServiceRoom(ServiceState):
    """What `make_room` of `policies/preemptive.py` does, by places in the queue."""

    def bar(self, place: int) -> int:
        """The last place with the rank of this one: those behind it rank after it."""
        count = self.count
        return self.last[place] if place < count else self.last[place - count] + count

    def hopeless(self, head: tuple[int, int], left: Iterable[LeavingJob]) -> bool:
        """Whether a refused job would be refused again, since nothing has changed for it."""
        place, kind = head
        bar, group, wanted = self.bar(place), self.group[kind], self.gpus[kind]
        for was, of, allocation in left:
            if of == group and was > bar:
                continue
            if wanted > self.smallest or self.enough(allocation, group, bar, wanted):
                return False
        return True

    def enough(self, allocation: Allocation, group: int, bar: int, wanted: int) -> bool:
        """Whether one of these nodes could free this number of GPUs for a job with this bar."""
        free, places, kinds, groups = self.space.free, self.place, self.kind, self.group
        for node, _ in allocation:
            available = free[node].bit_count()
            for other, gpus in self.on[node].items():
                if places[other] > bar and groups[kinds[other]] == group:
                    available += gpus
            if available >= wanted:
                return True
        return False

    def offer(
        self,
        place: int,
        kind: int,
        unmet: dict[int, tuple[int, bool]],
        out: list[tuple[int, int]],
        stopped: list[int],
    ) -> Allocation | None:
        """Find and book GPUs for a job, preempting others if necessary; see `Preemptive`.

        `unmet`: by group, GPUs that no later job gets, and whether that is certain.
        """
        group, wanted, space = self.group[kind], self.gpus[kind], self.space
        least, certain = unmet.get(group, _NOTHING)
        allocation = space.place(self.asking[kind]) if space.idle else None
        if allocation is not None:
            return allocation
        if wanted < least:
            for at, other in out:
                if at < place and self.gpus[other] <= wanted and self.group[other] == group:
                    # Jobs that rank before it and need no more could not be placed either.
                    least, certain = wanted, True
                    break
        if wanted >= least:
            if wanted > self.smallest:
                self.sure[kind] = certain and self.alike
            return None
        bar = self.bar(place)
        if wanted <= space.largest:
            allocation, largest = self.on_a_node(kind, bar, stopped)
            certain = True
        else:
            allocation, certain = self.anywhere(kind, bar, stopped)
            largest = wanted
            self.sure[kind] = certain and self.alike
        if allocation is None:
            unmet[group] = min(wanted, largest + 1), certain
        else:
            space.take(self.asking[kind], allocation)
        return allocation

    def on_a_node(self, kind: int, bar: int, stopped: list[int]) -> tuple[Allocation | None, int]:
        """Stop the last jobs that rank after `bar`, so that the job fits on one node.

        If it cannot: the most GPUs that one node could free.
        """
        places = self.running[self.group[kind]]
        if not places or places[-1] <= bar:
            return None, self.space.freest(self.asking[kind])
        wanted, free, allocation_of, count = self.gpus[kind], self.space.free, self.held, self.count
        counts: dict[int, int] = {}
        walked: list[int] = []
        for place in reversed(places):
            if place <= bar:
                break
            job = place if place < count else place - count
            walked.append(job)
            enough = -1
            for node, mask in allocation_of[job]:
                before = counts.get(node)
                if before is None:
                    before = free[node].bit_count()
                counts[node] = after = before + mask.bit_count()
                if before < wanted <= after:
                    enough = node
            if enough >= 0:
                mask = free[enough]
                for job in walked:
                    for node, theirs in allocation_of[job]:
                        if node == enough:
                            mask |= theirs
                allocation = ((enough, lowest_gpus(mask, wanted)),)
                self.clear(allocation, walked, stopped)
                return allocation, 0
        return None, max(self.space.freest(self.asking[kind]), *counts.values())

    def anywhere(self, kind: int, bar: int, stopped: list[int]) -> tuple[Allocation | None, bool]:
        """GPUs for a gang over several nodes, from which running jobs are stopped; None: no room.

        Without room, also whether stopping all jobs that rank after it would not suffice.
        """
        space, wanted, count = self.space, self.gpus[kind], self.count
        free, whole, asking = space.free, space.largest, self.asking[kind]
        missing, gpus = wanted // whole - space.whole(asking), space.idle
        counts: dict[int, int] = {}
        walked: list[int] = []
        for place in reversed(self.running[self.group[kind]]):
            if place <= bar:
                break
            job = place if place < count else place - count
            walked.append(job)
            opened = False
            for node, mask in self.held[job]:
                before = counts[node] if node in counts else free[node].bit_count()
                counts[node] = after = before + mask.bit_count()
                gpus += mask.bit_count()
                if before < whole <= after:
                    missing -= 1
                    opened = True
            if (
                opened
                and missing <= 0
                and gpus >= wanted
                and (allocation := self.try_(kind, walked))
            ):
                self.clear(allocation, walked, stopped)
                return allocation, True
        return None, missing > 0 or gpus < wanted

    def try_(self, kind: int, walked: Sequence[int]) -> Allocation | None:
        """Where a job would go, were all of these off their GPUs."""
        space, asking = self.space, self.asking
        space.begin()
        for job in walked:
            space.give(asking[self.kind[job]], self.held[job])
        allocation = space.find(asking[kind])
        space.rollback()
        return allocation

    def clear(self, allocation: Allocation, walked: Iterable[int], stopped: list[int]) -> None:
        """Stop the examined jobs that are in the way."""
        wanted = dict(allocation)
        for job in walked:
            for node, mask in self.held[job]:
                if wanted.get(node, 0) & mask:
                    self.off(job)
                    stopped.append(job)
                    break


# The loop itself: submissions, ends and falls to the second queue, in order of time.


_TOLD = 1000


class ServiceRun(NamedTuple):
    """The times of a run."""

    first: array[float]
    """When each job first started [s]."""
    started: array[float]
    """When each started last [s]."""
    ended: array[float]
    held_s: array[float]
    order: array[int]
    """The jobs as they ended."""
    stops: array[int]
    """How often each was stopped."""
    segments: Segments
    events: int


class ServiceLoop(ServiceRoom):
    """The events of a run, in order of time."""

    def run(self, progress: Callable[[int], None] | None) -> ServiceRun:
        """Run all jobs to their ends and return their times."""
        events, waiting, submit_s, kind = self.events, self.waiting, self.submit_s, self.kind
        asking, place, count, handled = self.asking, self.space.place, self.count, 0
        position, upcoming, tell = 0, submit_s[0], _TOLD
        while events or position < count:
            changed = came = False
            if events and events[0][0] <= upcoming:
                now = events[0][0]
                while events and events[0][0] == now:
                    _, what, job, epoch = heappop(events)
                    if epoch == self.epoch[job]:
                        handled, changed = handled + 1, True
                        if what == END:
                            self.end(job, now)
                        else:
                            self.fall(job, now)
            else:
                now = upcoming
            while upcoming == now:
                came = True
                job, position = position, position + 1
                upcoming = submit_s[position] if position < count else NEVER
                if not (waiting or upcoming == now) and (allocation := place(asking[kind[job]])):
                    # No job waits: it starts at once.
                    self.left.clear()
                    self.begin(job, now, allocation)
                    break
                self.wait(job, job)
            if progress is not None and position >= tell:
                tell = position + _TOLD
                progress(position)
            if not waiting:
                self.left.clear()
            elif changed or (came and self.fresh):
                self.decide(now)
        self.segments.kinds = bytearray(len(self.segments.jobs))
        return ServiceRun(
            self.first,
            self.started,
            self.ended,
            self.service,
            self.order,
            self.stops,
            self.segments,
            handled + count,
        )

    def decide(self, now: float) -> None:
        """Offer the first job of each kind by place, and those behind it as long as they get
        GPUs."""
        waiting, refused, left, count = self.waiting, self.refused, self.left, self.count
        self.left, self.fresh = [], False
        heads: list[tuple[int, int]] = []
        out: list[tuple[int, int]] = []
        for kind, places in waiting.items():
            head = (places[0], kind)
            again = refused[kind] == places[0] and self.sure[kind]
            (out if again and self.hopeless(head, left) else heads).append(head)
        if not heads:
            return
        heapify(heads)
        unmet: dict[int, tuple[int, bool]] = {}
        stopped: list[int] = []
        started: list[tuple[int, Allocation]] = []
        while heads:
            place, kind = heads[0]
            before = len(stopped)
            allocation = self.offer(place, kind, unmet, out, stopped)
            if allocation is None:
                refused[kind] = place
                heappop(heads)
                continue
            started.append((place if place < count else place - count, allocation))
            refused[kind] = -1
            places = waiting[kind]
            heappop(places)
            if places:
                heapreplace(heads, (places[0], kind))
            else:
                del waiting[kind]
                heappop(heads)
            if out and len(stopped) > before:
                # Spare GPUs of the stopped jobs may suffice for a later one.
                gone = self.left[before:]
                for entry in [entry for entry in out if entry[0] > place]:
                    if not self.hopeless(entry, gone):
                        out.remove(entry)
                        heappush(heads, entry)
        for job in stopped:
            self.stop(job, now)
        for job, allocation in started:
            self.begin(job, now, allocation)
