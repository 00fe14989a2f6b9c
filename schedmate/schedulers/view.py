"""What a policy sees of the cluster when it decides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from typing import Protocol

from schedmate.schedulers.decisions import Answer
from schedmate.schedulers.holders import Census, Evictions, Holders
from schedmate.schedulers.lanes import Lanes, Rank
from schedmate.schedulers.load import Load
from schedmate.schedulers.model import Allocation, Job
from schedmate.schedulers.space import Space
from schedmate.schedulers.terms import EVERYTHING, Capabilities, NodeNews


class Ordering(Protocol):
    """The part of a policy that orders jobs."""

    def lane(self, job: Job) -> Hashable:
        """Jobs of one lane have the same request."""
        ...

    def rank(self, job: Job, now: float) -> Rank:
        """The job's place in the queue: lowest first."""
        ...


class View:
    """A policy's view of the cluster: the clock, free GPUs, waiting and running jobs.

    A policy may book GPUs in `space` while it decides; its bookings are undone afterwards, and only
    the decisions that it returns are carried out.
    """

    __slots__ = (
        "altered",
        "answers",
        "can",
        "draining",
        "evicted",
        "holders",
        "leaving",
        "load",
        "lost",
        "news",
        "now",
        "pending",
        "requested",
        "running",
        "space",
        "starting",
        "submitted",
        "warnings",
    )

    def __init__(self, space: Space, policy: Ordering, load: Load | None = None) -> None:
        self.now = 0.0
        """[s]"""
        self.space = space
        self.pending = Lanes(policy.lane, policy.rank)
        """Waiting jobs by the policy's lane and rank."""
        self.running = Lanes(policy.lane, policy.rank)
        """Jobs that hold GPUs, by the same two."""
        self.submitted: list[float] = []
        """Submission times of the jobs so far, ascending [s]."""
        self.requested: list[int] = [0]
        """Running totals of the GPUs that they requested, beginning with 0."""
        self.warnings: Counter[str] = Counter()
        """Number of times that each problem was worked around, for the summary."""
        self.load = Load() if load is None else load
        """Forecast of submissions."""
        self.altered = False
        """Whether an observer ever reported new knowledge of a job since its submission."""
        self.can: Capabilities = EVERYTHING
        """Capabilities of the executor."""
        self.answers: list[Answer] = []
        """Answers to decisions since the policy was last asked, if not all were accepted."""
        self.news: list[NodeNews] = []
        """Nodes that changed since the policy was last asked."""
        self.draining: dict[int, float] = {}
        """Nodes on which nothing new may start, with the time at which they go down [s]."""
        self.evicted = Evictions()
        """Number of evictions from each node."""
        self.leaving: dict[int, Job] = {}
        """Jobs that were asked to stop and still hold their GPUs, by position."""
        self.starting: dict[int, tuple[Job, Allocation]] = {}
        """Jobs that start when others have left their GPUs, by position, with their allocations."""
        self.lost: Callable[[Job], float] | None = None
        """The executor's function behind `lost_s`."""
        self.holders: Holders | None = None
        """Jobs by node, maintained from the first call of `on`."""

    def on(self, node: int) -> list[Job]:
        """The jobs that hold GPUs of a node, in order of submission, without scanning others."""
        if self.holders is None:
            self.holders = Holders(self.running)
        return self.holders.on(node)

    def census(self) -> Census:
        """Nodes by the classes of the jobs on them, and GPUs by tenant."""
        if self.holders is None:
            self.holders = Holders(self.running)
        if self.holders.census is None:
            self.holders.census = Census(self.running)
        return self.holders.census

    def lost_s(self, job: Job) -> float:
        """Work of a running job since its last checkpoint, which an `Evict` would lose [s].

        If the executor does not know it, all since the job got its GPUs.
        """
        if not job.allocation:
            return 0.0
        return self.now - job.started if self.lost is None else self.lost(job)

    def jobs(self) -> list[Job]:
        """All waiting and running jobs, in order of submission."""
        return sorted((*self.pending, *self.running), key=lambda job: job.index)

    def warn(self, what: str) -> None:
        """Count a problem that was worked around."""
        self.warnings[what] += 1

    def expected(self) -> float:
        """Forecast number of jobs submitted in the next ten minutes."""
        return self.load.expected(self.submitted, self.now)

    def expected_gpus(self) -> float:
        """Forecast number of GPUs that these will request together."""
        return self.load.expected_gpus(self.submitted, self.requested, self.now)
