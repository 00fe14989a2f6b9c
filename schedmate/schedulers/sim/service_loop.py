"""The event loop of two preemptive queues by attained service.

It does what the engine does for such a policy, event by event and to the last digit, on numbers
instead of jobs. A waiting job can have the GPUs that are free and those of every running job that
ranks after it. On no node do these become more because a job that ranks after it starts, ends or is
stopped; so one that was refused is looked at again only on the nodes of those that rank before it
and have left or fallen behind.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import NamedTuple

import numpy as np

from schedmate.schedulers.model import Allocation, Job
from schedmate.schedulers.policy import ServiceRank
from schedmate.schedulers.pools import lowest
from schedmate.schedulers.sim.engine.record import Segments
from schedmate.schedulers.space import Space

NEVER = float("inf")
_END, _FALLS = 0, 1
_TOLD = 1000

_NOTHING = (1 << 62, True)

Left = tuple[int, int, Allocation]
"""Who no longer holds its place among the running: the place, its group, its GPUs."""


class Served(NamedTuple):
    """Jobs by position in order of submission; those that ask for the same are of one kind."""

    submit_s: Sequence[float]
    run_s: Sequence[float]
    kind: Sequence[int]
    asking: Sequence[Job]
    """A job of each kind, for the space."""
    group: Sequence[int]
    """The group of each kind: jobs make room only for those of their own."""
    restart_s: Sequence[float]
    """What going on after a stop takes a job of each kind [s]."""
    rank: ServiceRank


class Ran(NamedTuple):
    """What happened."""

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


class Loop:
    """All that is known while it runs.

    The place of a job is its position, and in the second queue that many more as there are jobs.
    """

    def __init__(self, served: Served, space: Space) -> None:
        self.submit_s, self.run_s, self.kind, self.asking, self.group, self.restart_s, _ = served
        self.space = space
        self.count = count = len(self.submit_s)
        self.rank = served.rank
        self.smallest = space.smallest
        self.gpus = [job.gpus for job in self.asking]
        self.sure = [job.gpus <= space.smallest for job in self.asking]
        """By kind: whether it is certain that those who are refused could not have made room."""
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
        """By kind: the places of those who wait, a heap."""
        self.refused = [-1] * len(self.asking)
        """By kind: the place of the first who waits, if it was refused since it came."""
        self.running: list[list[int]] = [[] for _ in range(max(self.group) + 1)]
        """By group: the places of those who run, ascending."""
        self.on: list[dict[int, int]] = [{} for _ in space.free]
        """By node: who runs there, with how many GPUs."""
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
        heappush(self.events, (started + (self.run_s[job] - done), _END, job, epoch))
        left = self.rank.falls_after_s(served, gpus)
        if left < NEVER:
            heappush(self.events, (now + left, _FALLS, job, epoch))
        place = job + self.count if self.rank.is_low(served, gpus) else job
        self.place[job] = place
        insort(self.running[self.group[kind]], place)
        for node, mask in held:
            self.on[node][job] = mask.bit_count()

    def leave(self, job: int, now: float) -> None:
        """The job is off its GPUs, which are released already, and no longer among the running."""
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
        """The job, which is off its GPUs, keeps what it has done and waits again."""
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
        """The job has had what it may have in the first queue."""
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
            heappush(self.events, (now + left, _FALLS, job, self.epoch[job]))

    # Time.

    def run(self, told: Callable[[int], None] | None) -> Ran:
        """Run all jobs."""
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
                        if what == _END:
                            self.end(job, now)
                        else:
                            self.fall(job, now)
            else:
                now = upcoming
            while upcoming == now:
                came = True
                job, position = position, position + 1
                upcoming = submit_s[position] if position < count else NEVER
                if not (waiting or upcoming == now) and (held := place(asking[kind[job]])):
                    # Nobody waits: it starts at once.
                    self.left.clear()
                    self.begin(job, now, held)
                    break
                self.wait(job, job)
            if told is not None and position >= tell:
                tell = position + _TOLD
                told(position)
            if not waiting:
                self.left.clear()
            elif changed or (came and self.fresh):
                self.decide(now)
        self.segments.kinds = bytearray(len(self.segments.jobs))
        return Ran(
            self.first,
            self.started,
            self.ended,
            self.service,
            self.order,
            self.stops,
            self.segments,
            handled + count,
        )

    # Who runs.

    def decide(self, now: float) -> None:
        """Offer the first of each kind by place, and those behind them as long as they get GPUs."""
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
            held = self.offer(place, kind, unmet, out, stopped)
            if held is None:
                refused[kind] = place
                heappop(heads)
                continue
            started.append((place if place < count else place - count, held))
            refused[kind] = -1
            places = waiting[kind]
            heappop(places)
            if places:
                heapreplace(heads, (places[0], kind))
            else:
                del waiting[kind]
                heappop(heads)
            if out and len(stopped) > before:
                # What is left of the GPUs of those stopped may do for one behind.
                gone = self.left[before:]
                for one in [one for one in out if one[0] > place]:
                    if not self.hopeless(one, gone):
                        out.remove(one)
                        heappush(heads, one)
        for job in stopped:
            self.stop(job, now)
        for job, held in started:
            self.begin(job, now, held)

    def bar(self, place: int) -> int:
        """The last place whose rank is that of this one: those behind it rank after it."""
        count = self.count
        return self.last[place] if place < count else self.last[place - count] + count

    def hopeless(self, head: tuple[int, int], left: Iterable[Left]) -> bool:
        """Whether one who was refused would be again: nothing that has happened since helps it."""
        place, kind = head
        bar, group, wanted = self.bar(place), self.group[kind], self.gpus[kind]
        for was, of, held in left:
            if of == group and was > bar:
                continue
            if wanted > self.smallest or self.enough(held, group, bar, wanted):
                return False
        return True

    def enough(self, held: Allocation, group: int, bar: int, wanted: int) -> bool:
        """Whether one of these nodes could give so many GPUs to a job of this bar."""
        free, places, kinds, groups = self.space.free, self.place, self.kind, self.group
        for node, _ in held:
            found = free[node].bit_count()
            for other, gpus in self.on[node].items():
                if places[other] > bar and groups[kinds[other]] == group:
                    found += gpus
            if found >= wanted:
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
        """Find GPUs for a job and book them, if need be those of others; see `Preemptive`.

        `unmet`: by group, GPUs that nobody behind gets, and whether that is certain.
        """
        group, wanted, space = self.group[kind], self.gpus[kind], self.space
        least, certain = unmet.get(group, _NOTHING)
        held = space.place(self.asking[kind]) if space.idle else None
        if held is not None:
            return held
        if wanted < least:
            for at, other in out:
                if at < place and self.gpus[other] <= wanted and self.group[other] == group:
                    # Who ranks before it and needs no more could not make room.
                    least, certain = wanted, True
                    break
        if wanted >= least:
            if wanted > self.smallest:
                self.sure[kind] = certain and self.alike
            return None
        bar = self.bar(place)
        if wanted <= space.largest:
            held, largest = self.on_a_node(kind, bar, stopped)
            certain = True
        else:
            held, certain = self.anywhere(kind, bar, stopped)
            largest = wanted
            self.sure[kind] = certain and self.alike
        if held is None:
            unmet[group] = min(wanted, largest + 1), certain
        else:
            space.take(self.asking[kind], held)
        return held

    def on_a_node(self, kind: int, bar: int, stopped: list[int]) -> tuple[Allocation | None, int]:
        """Stop the last who rank after `bar`, so that there is room on one node.

        Where there is not: the most GPUs that one node could give.
        """
        places = self.running[self.group[kind]]
        if not places or places[-1] <= bar:
            return None, self.space.freest(self.asking[kind])
        wanted, free, held, count = self.gpus[kind], self.space.free, self.held, self.count
        counts: dict[int, int] = {}
        walked: list[int] = []
        for place in reversed(places):
            if place <= bar:
                break
            job = place if place < count else place - count
            walked.append(job)
            enough = -1
            for node, mask in held[job]:
                before = counts.get(node)
                if before is None:
                    before = free[node].bit_count()
                counts[node] = after = before + mask.bit_count()
                if before < wanted <= after:
                    enough = node
            if enough >= 0:
                mask = free[enough]
                for job in walked:
                    for node, theirs in held[job]:
                        if node == enough:
                            mask |= theirs
                found = ((enough, lowest(mask, wanted)),)
                self.clear(found, walked, stopped)
                return found, 0
        return None, max(self.space.freest(self.asking[kind]), *counts.values())

    def anywhere(self, kind: int, bar: int, stopped: list[int]) -> tuple[Allocation | None, bool]:
        """The same for a gang over several nodes.

        Where there is no room: whether there would not be any were all of them stopped.
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
            if opened and missing <= 0 and gpus >= wanted and (found := self.try_(kind, walked)):
                self.clear(found, walked, stopped)
                return found, True
        return None, missing > 0 or gpus < wanted

    def try_(self, kind: int, walked: Sequence[int]) -> Allocation | None:
        """Where a job would go, were all of these off their GPUs."""
        space, asking = self.space, self.asking
        space.begin()
        for job in walked:
            space.give(asking[self.kind[job]], self.held[job])
        found = space.find(asking[kind])
        space.rollback()
        return found

    def clear(self, allocation: Allocation, walked: Iterable[int], stopped: list[int]) -> None:
        """Take those of the walked off their GPUs who are in the way."""
        wanted = dict(allocation)
        for job in walked:
            for node, mask in self.held[job]:
                if wanted.get(node, 0) & mask:
                    self.off(job)
                    stopped.append(job)
                    break
