"""Jobs that hold GPUs of each node, with their class and tenant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from schedmate.schedulers.model import Job


class Census:
    """Jobs by node, class and tenant; the GPUs of low-priority jobs can be reclaimed."""

    __slots__ = ("_high", "_low", "high", "low", "low_gpus", "tenants")

    def __init__(self, jobs: Iterable[Job]) -> None:
        self.high = 0
        """Bit set of the nodes on which a job of high priority runs."""
        self.low = 0
        """Bit set of those on which one of low priority runs."""
        self.low_gpus: Counter[int] = Counter()
        """By node: GPUs of jobs of low priority; parts of one count as one each."""
        self.tenants: Counter[str] = Counter()
        """GPUs that jobs of high priority hold, by tenant."""
        self._high: Counter[int] = Counter()
        self._low: Counter[int] = Counter()
        for job in jobs:
            self.change(job, 1)

    def change(self, job: Job, by: int) -> None:
        """The job has its allocation (1), or is about to lose it (-1)."""
        terms = job.terms
        low = terms is not None and terms.low
        if terms is not None and terms.tenant and not low:
            self.tenants[terms.tenant] += by * job.gpus
        count, nodes = (self._low, self.low) if low else (self._high, self.high)
        for node, mask in job.allocation:
            count[node] += by
            nodes = nodes | 1 << node if count[node] else nodes & ~(1 << node)
            if low:
                self.low_gpus[node] += by * mask.bit_count()
        if low:
            self.low = nodes
        else:
            self.high = nodes


class Evictions:
    """How often jobs were evicted from each node."""

    __slots__ = ("_count", "_ever", "_levels")

    def __init__(self) -> None:
        self._ever = 0
        self._count: dict[int, int] = {}
        self._levels: dict[int, int] = {}  # number of evictions -> bit set of nodes

    def __getitem__(self, node: int) -> int:
        return self._count.get(node, 0)

    def __bool__(self) -> bool:
        return bool(self._count)

    def add(self, job: Job) -> None:
        """The job is about to be evicted from its nodes."""
        for node, _ in job.allocation:
            count, bit = self._count.get(node, 0), 1 << node
            if count:
                self._levels[count] &= ~bit
                if not self._levels[count]:
                    del self._levels[count]
            self._ever |= bit
            self._count[node] = count + 1
            self._levels[count + 1] = self._levels.get(count + 1, 0) | bit

    def levels(self) -> list[int]:
        """Bit sets of nodes with equal numbers of evictions, from 0 upwards."""
        return [~self._ever, *(self._levels[count] for count in sorted(self._levels))]


class Holders:
    """Jobs by node, so that what concerns one node does not cost a look at every running job."""

    __slots__ = ("_jobs", "census")

    def __init__(self, running: Iterable[Job]) -> None:
        self._jobs: dict[int, dict[int, Job]] = {}
        self.census: Census | None = None
        """Maintained from the first access."""
        for job in running:
            self.add(job)

    def on(self, node: int) -> list[Job]:
        """The jobs that hold GPUs of this node, in order of submission."""
        jobs = self._jobs.get(node, {})
        return [jobs[index] for index in sorted(jobs)]

    def add(self, job: Job) -> None:
        """The job has its allocation."""
        for node, _ in job.allocation:
            self._jobs.setdefault(node, {})[job.index] = job
        if self.census is not None:
            self.census.change(job, 1)

    def remove(self, job: Job) -> None:
        """The job is about to lose it."""
        for node, _ in job.allocation:
            del self._jobs[node][job.index]
        if self.census is not None:
            self.census.change(job, -1)
