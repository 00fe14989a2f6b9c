"""Jobs in the policy's order, grouped into lanes of jobs with the same request."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Hashable, Iterable, Iterator
from heapq import heapify, heappop, heapreplace
from operator import itemgetter
from typing import Any, TypeVar

from schedmate.schedulers.model import Job

T = TypeVar("T")

Rank = float | tuple[float, ...]
"""What a policy sorts by, ascending; ties go by order of submission."""

_Entry = tuple[Any, ...]
"""The numbers of the rank, one after the other, the position of the job, and the job."""

_JOB = itemgetter(-1)
_LAST = 1 << 62  # after every position of a job
_SLACK = 32  # entries already passed that a lane may keep before it is cut


class _Lane:
    """The entries from `head` on are sorted; those before have left, mostly in order."""

    __slots__ = ("entries", "head", "key")

    def __init__(self, key: Hashable, entry: _Entry) -> None:
        self.key = key
        self.entries = [entry]
        self.head = 0


class Lanes:
    """A set of jobs, each in one lane, sorted by rank within the lane.

    Jobs of one lane are equal to the policy (for example, the same number of GPUs), so that if the
    first does not fit, the others do not either: a decision costs the number of lanes, not of jobs.
    Lane and rank of a job are computed on the first access, as of the time of its insertion.
    """

    __slots__ = ("_lane_of", "_lanes", "_new", "_rank_of", "_where")

    def __init__(
        self, lane_of: Callable[[Job], Hashable], rank_of: Callable[[Job, float], Rank]
    ) -> None:
        self._lane_of = lane_of
        self._rank_of = rank_of
        self._lanes: dict[Hashable, _Lane] = {}
        self._where: dict[int, tuple[_Lane, _Entry]] = {}
        self._new: dict[int, tuple[Job, float]] = {}

    def __len__(self) -> int:
        return len(self._where) + len(self._new)

    def any(self) -> bool:
        """Whether there is any job."""
        return bool(self._new or self._where)

    def __contains__(self, job: Job) -> bool:
        return job.index in self._where or job.index in self._new

    def __iter__(self) -> Iterator[Job]:
        """All jobs by rank."""
        self._sort()
        heads = [(lane.entries[lane.head], lane.head, lane.entries) for lane in self._heads()]
        heapify(heads)
        while heads:
            entry, position, entries = heads[0]
            yield entry[-1]
            position += 1
            if position < len(entries):
                heapreplace(heads, (entries[position], position, entries))
            else:
                heappop(heads)

    def lanes(self) -> list[Hashable]:
        """The keys of the lanes that are not empty."""
        self._sort()
        return list(self._lanes)

    def count(self, lane: Hashable) -> int:
        """How many jobs a lane holds."""
        self._sort()
        entries = self._lanes.get(lane)
        return 0 if entries is None else len(entries.entries) - entries.head

    def lane(self, key: Hashable, skip: int = 0) -> Iterator[Job]:
        """The jobs of one lane by rank, without the first `skip`."""
        if self._new:
            self._sort()
        lane = self._lanes.get(key)
        if lane is None:
            return iter(())
        return _jobs(lane.entries, range(lane.head + skip, len(lane.entries)))

    def by_rank(self, jobs: Iterable[Job]) -> list[Job]:
        """These of the jobs that are in, by rank."""
        self._sort()
        where = self._where
        return [one[-1] for one in sorted(where[job.index][1] for job in jobs)]

    def first(self) -> Job | None:
        """The job that ranks first."""
        self._sort()
        best = min((lane.entries[lane.head] for lane in self._heads()), default=None)
        return None if best is None else best[-1]

    def walk(
        self, accept: Callable[[Job], T], hopeless: Callable[[Job], bool] | None = None
    ) -> list[tuple[Job, T]]:
        """Offer jobs by rank; after a refusal, the rest of the lane is skipped.

        `accept` returns something true, such as an allocation, or something false. Returns the
        accepted jobs with those results. Costs the number of lanes plus the accepted jobs, however
        long the queue is.

        A lane whose first job is `hopeless` is skipped without an offer, which must have no effect
        otherwise.
        """
        lanes, new = self._lanes, self._new
        if not lanes and len(new) == 1:
            # A single job needs no sorting; mostly it is accepted and leaves.
            for job, _ in new.values():
                return [(job, answer)] if (answer := accept(job)) else []
        if new:
            self._sort()
        answers: list[tuple[Job, T]] = []
        if len(lanes) == 1:
            for lane in lanes.values():
                entries = lane.entries
                for position in range(lane.head, len(entries)):
                    job = entries[position][-1]
                    if not (answer := accept(job)):
                        break
                    answers.append((job, answer))
            return answers
        heads = [(lane.entries[lane.head], lane.head, lane.entries) for lane in lanes.values()]
        if hopeless is not None:
            heads = [one for one in heads if not hopeless(one[0][-1])]
        heapify(heads)
        while heads:
            entry, position, entries = heads[0]
            position += 1
            if answer := accept(entry[-1]):
                answers.append((entry[-1], answer))
            if answer and position < len(entries):
                heapreplace(heads, (entries[position], position, entries))
            else:
                heappop(heads)
        return answers

    def after(self, rank: Rank, lane: Hashable, skip: int = 0) -> Iterator[Job]:
        """The jobs of one lane that rank after `rank`, the last first, without `skip` of them."""
        if self._new:
            self._sort()
        jobs = self._lanes.get(lane)
        if jobs is None:
            return iter(())
        entries = jobs.entries
        begin = bisect_right(entries, _entry(rank, _LAST), lo=jobs.head)
        return _jobs(entries, range(len(entries) - skip - 1, begin - 1, -1))

    def add(self, job: Job, now: float) -> None:
        """Insert a job, which must not be in the set."""
        self._new[job.index] = (job, now)

    def remove(self, job: Job) -> bool:
        """Take a job out; False when it is not there."""
        index = job.index
        if self._new.pop(index, None) is not None:
            return True
        place = self._where.pop(index, None)
        if place is None:
            return False
        lane, entry = place
        entries, head = lane.entries, lane.head
        if entries[head] is not entry:
            del entries[bisect_left(entries, entry, lo=head)]
            return True
        head += 1
        if head == len(entries):
            del self._lanes[lane.key]
        elif head > _SLACK and head * 2 > len(entries):
            del entries[:head]
            lane.head = 0
        else:
            lane.head = head
        return True

    def _heads(self) -> Iterator[_Lane]:
        return iter(self._lanes.values())

    def new_heads(self) -> bool:
        """Whether a job inserted since the last access is the first of its lane."""
        return (not self._lanes and len(self._new) == 1) or self._sort()

    def _sort(self) -> bool:
        """Sort new jobs into their lanes; return whether one is the first of its lane."""
        if not self._new:
            return False
        changed, lanes, where, lane_of, rank_of = (
            False,
            self._lanes,
            self._where,
            self._lane_of,
            self._rank_of,
        )
        for index, (job, now) in self._new.items():
            key, rank = lane_of(job), rank_of(job, now)
            entry = (*rank, index, job) if type(rank) is tuple else (rank, index, job)
            lane = lanes.get(key)
            if lane is None:
                lane = lanes[key] = _Lane(key, entry)
                changed = True
            elif entry > lane.entries[-1]:
                lane.entries.append(entry)
            else:
                insort(lane.entries, entry, lo=lane.head)
                changed = changed or lane.entries[lane.head] is entry
            where[index] = (lane, entry)
        self._new.clear()
        return changed


def _jobs(entries: list[_Entry], places: range) -> Iterator[Job]:
    # Costs the jobs visited, however many were skipped.
    return map(_JOB, map(entries.__getitem__, places))


def _entry(rank: Rank, *rest: Any) -> _Entry:
    return (*rank, *rest) if isinstance(rank, tuple) else (rank, *rest)
