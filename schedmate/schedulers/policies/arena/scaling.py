"""Scaling jobs down to launch another, and up where GPUs are idle (Arena, section 3.5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush, nlargest
from typing import NamedTuple

from schedmate.schedulers.goodput.planned import Size
from schedmate.schedulers.model import Job
from schedmate.schedulers.policies.arena.objectives import Objective, Prospect, Worth

Prospects = Callable[[Job], Prospect]


class Change(NamedTuple):
    """A job gets other GPUs."""

    job: Job
    size: Size
    freed: int
    """GPUs of its present type that others can have then."""
    worth: Worth
    """Gain of the objective; negative for a loss."""


@dataclass
class Allocations:
    """The GPUs of each job by type, while a round decides."""

    free: dict[str, int]
    held: dict[Job, Size] = field(default_factory=dict)
    pinned: set[Job] = field(default_factory=set)
    """Jobs that are being started or moved: they are left alone."""

    def set(self, job: Job, size: Size | None) -> None:
        """Give a job these GPUs instead of its present ones."""
        before = self.held.pop(job, None)
        if before is not None:
            self.free[before[0]] += before[1]
        if size is not None:
            self.free[size[0]] -= size[1]
            self.held[job] = size

    def fits(self, size: Size, besides: Size | None = None) -> bool:
        """Whether this number of GPUs is free once those of `besides` are returned."""
        left = self.free.get(size[0], 0)
        if besides is not None and besides[0] == size[0]:
            left += besides[1]
        return size[1] <= left


class Scaling:
    """The launching and scaling of one round, on allocations that it changes."""

    def __init__(self, now: Allocations, prospects: Prospects, objective: Objective) -> None:
        self.now, self.prospects, self.objective = now, prospects, objective
        # Jobs that can be scaled down, with their options: in a full cluster they are few.
        self._shrinks: dict[Job, list[Change]] = {}
        for one, size in now.held.items():
            self._remember(one, size)
        # Whether a job can be launched depends on its smallest sizes alone: those that cannot be
        # now, so that a long queue of equal jobs costs one attempt.
        self._hopeless: set[tuple[Size, ...]] = set()
        self.launched: list[Job] = []

    def launch(self, job: Job, depth: int) -> bool:
        """Launch `job`, after scaling down at most `depth` others; False: nothing was changed.

        Each step scales down the job with the least loss for each GPU that it frees. No job loses
        all its GPUs: launched jobs run to completion.
        """
        now, own = self.now, self.prospects(job)
        least: dict[str, int] = {}
        for gpu_type, gpus in own.speeds:
            least[gpu_type] = min(gpus, least.get(gpu_type, gpus))
        smallest = tuple(sorted(least.items()))
        if not least or smallest in self._hopeless:
            return False
        undo: list[tuple[Job, Size]] = []
        for step in range(depth + 1):
            size = self._best_fit(own)
            if size is not None:
                self._give(job, size)
                self.launched.append(job)
                self._hopeless.clear()
                return True
            change = None
            if step < depth:
                ways = list(self._smaller(least))
                if self._enough(ways, least, depth - step):
                    change = max(ways, key=lambda one: (one.worth, -one.job.index))
            if change is None:
                break
            undo.append((change.job, now.held[change.job]))
            self._give(change.job, change.size)
        for other, before in reversed(undo):
            self._give(other, before)
        self._hopeless.add(smallest)
        return False

    def _best_fit(self, own: Prospect) -> Size | None:
        """The free size with the most throughput for each GPU; of equals the largest.

        GPUs that are idle once all jobs are launched go to the jobs that gain most (`scale_up`).
        """
        speeds = own.speeds
        fitting = [size for size in speeds if self.now.fits(size)]
        return max(fitting, key=lambda size: (speeds[size] / size[1], size[1]), default=None)

    def _enough(self, ways: list[Change], least: dict[str, int], depth: int) -> bool:
        """Whether this number of changes could free the GPUs that are needed of some type."""
        freed: dict[str, list[int]] = {gpu_type: [] for gpu_type in least}
        for change in ways:
            freed[self.now.held[change.job][0]].append(change.freed)
        return any(
            bool(freed[gpu_type])
            and self.now.free.get(gpu_type, 0) + sum(nlargest(depth, freed[gpu_type])) >= gpus
            for gpu_type, gpus in least.items()
        )

    def _smaller(self, types: dict[str, int]) -> Iterator[Change]:
        """Ways to free GPUs of the types: a job gets half of them, or the same number of another
        type."""
        now = self.now
        for job, changes in self._shrinks.items():
            gpu_type = now.held[job][0]
            if gpu_type in types:
                for change in changes:
                    if change.size[0] == gpu_type or now.fits(change.size):
                        yield change

    def _give(self, job: Job, size: Size) -> None:
        self.now.set(job, size)
        self._remember(job, size)

    def _remember(self, job: Job, size: Size) -> None:
        """Keep how a job could be scaled down from this size."""
        gpu_type, gpus = size
        found = []
        if job not in self.now.pinned:
            one = self.prospects(job)
            found = [
                Change(job, other, freed, self.objective.loss(one, size, other, freed))
                for other in one.speeds
                if (freed := gpus - other[1] if other[0] == gpu_type else gpus) > 0
                and (other == (gpu_type, gpus // 2) or (other[0] != gpu_type and other[1] <= gpus))
            ]
        if found:
            self._shrinks[job] = found
        else:
            self._shrinks.pop(job, None)

    def enlarge(self, least: float) -> None:
        """Give idle GPUs to the jobs that are launched now, as that costs them no restart.

        Repeatedly to the job with the largest gain for each GPU, if each doubling gains at least
        the part `least` of its throughput.
        """
        now = self.now
        heap: list[tuple[float, int, Size, Job]] = []
        for job in self.launched:
            self._offer(heap, job, least)
        while heap:
            _, _, size, job = heappop(heap)
            held = now.held[job]
            if now.fits(size, held):
                now.set(job, size)
                self._offer(heap, job, least)

    def _offer(self, heap: list[tuple[float, int, Size, Job]], job: Job, least: float) -> None:
        """Twice the GPUs of a job, for each type that has them."""
        one, held = self.prospects(job), self.now.held[job]
        for size, speed in one.speeds.items():
            if size[1] == 2 * held[1] and speed >= one.speeds[held] * (1 + least):
                worth = self.objective.gain(one, held, size)[0]
                if worth > 0 and self.now.fits(size, held):
                    heappush(heap, (-worth / held[1], job.index, size, job))

    def scale_up(self, depth: int, least: float) -> None:
        """Give idle GPUs to the jobs with the largest gains, at most `depth` times.

        A change has to gain at least the part `least` of the job's throughput.
        """
        now = self.now
        gains: list[Change] = []
        for job, size in now.held.items():
            if job in now.pinned:
                continue
            one = self.prospects(job)
            enough = one.speeds.get(size, 0.0) * (1 + least)
            for other, speed in one.speeds.items():
                grown = other[0] != size[0] or other[1] == 2 * size[1]
                if grown and speed >= enough and now.fits(other, size):
                    worth = self.objective.gain(one, size, other)
                    if worth[0] > 0:
                        gains.append(Change(job, other, 0, worth))
        gains.sort(key=lambda change: change.worth, reverse=True)  # stable: first come first
        for change in gains:
            if depth == 0:
                return
            # What a change leaves free is offered in the next round: it opens no others in this.
            if change.job not in now.pinned and now.fits(change.size, now.held[change.job]):
                now.set(change.job, change.size)
                now.pinned.add(change.job)
                depth -= 1
