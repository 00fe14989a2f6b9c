"""The event loop of two preemptive queues by attained service.

It does what the engine does for such a policy, event by event and with exactly the same numbers, on
arrays instead of job objects.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from heapq import heapify, heappop, heappush, heapreplace
from typing import NamedTuple

from schedmate.schedulers.model import Allocation
from schedmate.schedulers.sim.engine.record import Segments
from schedmate.schedulers.sim.service_room import Room
from schedmate.schedulers.sim.serving import END, NEVER

_TOLD = 1000


class Ran(NamedTuple):
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


class Loop(Room):
    """All that happens, and when."""

    def run(self, progress: Callable[[int], None] | None) -> Ran:
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
                if not (waiting or upcoming == now) and (held := place(asking[kind[job]])):
                    # No job waits: it starts at once.
                    self.left.clear()
                    self.begin(job, now, held)
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
                # Spare GPUs of the stopped jobs may suffice for a later one.
                gone = self.left[before:]
                for one in [one for one in out if one[0] > place]:
                    if not self.hopeless(one, gone):
                        out.remove(one)
                        heappush(heads, one)
        for job in stopped:
            self.stop(job, now)
        for job, held in started:
            self.begin(job, now, held)
