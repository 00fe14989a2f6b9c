"""Jobs in the policy's order, grouped into lanes of jobs that are alike to it."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Iterator
from heapq import heapify, heappop, heapreplace

from schedmate.schedulers.model import Job

Rank = float | tuple[float, ...]
"""What a policy sorts by, ascending; ties go by order of submission."""

_Entry = tuple[Rank, int, Job]


class Lanes:
    """A set of jobs, each in one lane, sorted by rank inside it.

    Jobs of one lane are alike to the policy (the same GPUs asked for, say), so that what does not
    fit for the first does not fit for the rest: a decision costs the number of lanes, not jobs.
    """

    __slots__ = ("_lanes", "_where")

    def __init__(self) -> None:
        self._lanes: dict[Hashable, list[_Entry]] = {}
        self._where: dict[int, tuple[Hashable, Rank]] = {}

    def __len__(self) -> int:
        return len(self._where)

    def __contains__(self, job: Job) -> bool:
        return job.index in self._where

    def __iter__(self) -> Iterator[Job]:
        """All jobs by rank."""
        for lane in _merged(list(self._lanes.values())):
            yield lane[2]

    def lanes(self) -> list[Hashable]:
        """The keys of the lanes that are not empty."""
        return list(self._lanes)

    def count(self, lane: Hashable) -> int:
        """How many jobs a lane holds."""
        return len(self._lanes.get(lane, ()))

    def lane(self, key: Hashable) -> Iterator[Job]:
        """The jobs of one lane by rank."""
        for entry in self._lanes.get(key, ()):
            yield entry[2]

    def first(self) -> Job | None:
        """The job that ranks first."""
        best = None
        for lane in self._lanes.values():
            head = lane[0]
            if best is None or head < best:
                best = head
        return None if best is None else best[2]

    def walk(self, accept: Callable[[Job], bool]) -> None:
        """Offer jobs by rank; a lane whose job is not accepted is left alone from there on.

        Costs the lanes plus the jobs accepted, however long the queue is.
        """
        lanes = self._lanes
        if len(lanes) == 1:
            for lane in lanes.values():
                for entry in lane:
                    if not accept(entry[2]):
                        return
            return
        heads = [(lane[0], 0, lane) for lane in lanes.values()]
        heapify(heads)
        while heads:
            entry, position, lane = heads[0]
            if accept(entry[2]) and position + 1 < len(lane):
                heapreplace(heads, (lane[position + 1], position + 1, lane))
            else:
                heappop(heads)

    def after(self, rank: Rank, lane: Hashable) -> Iterator[Job]:
        """The jobs of one lane that rank after `rank`, the last first."""
        for entry in reversed(self._lanes.get(lane, ())):
            if not entry[0] > rank:  # type: ignore[operator]
                return
            yield entry[2]

    def add(self, job: Job, lane: Hashable, rank: Rank) -> None:
        """Put a job in; it must not be there."""
        self._where[job.index] = (lane, rank)
        entries = self._lanes.get(lane)
        if entries is None:
            self._lanes[lane] = [(rank, job.index, job)]
        else:
            insort(entries, (rank, job.index, job))

    def remove(self, job: Job) -> None:
        """Take a job out; it must be there."""
        lane, rank = self._where.pop(job.index)
        entries = self._lanes[lane]
        if len(entries) == 1:
            del self._lanes[lane]
        else:
            del entries[bisect_left(entries, (rank, job.index))]


def _merged(lanes: list[list[_Entry]]) -> Iterator[_Entry]:
    heads = [(lane[0], 0, lane) for lane in lanes]
    heapify(heads)
    while heads:
        entry, position, lane = heads[0]
        yield entry
        if position + 1 < len(lane):
            heapreplace(heads, (lane[position + 1], position + 1, lane))
        else:
            heappop(heads)
