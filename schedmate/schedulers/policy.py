"""What a scheduling policy is: a pure function from a view of the cluster to decisions.

The same object decides in the simulator and on a real cluster; nothing it is given says which.
`docs/policies.md` has a complete one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import ClassVar, NamedTuple

from schedmate.schedulers.lanes import Lanes, Rank
from schedmate.schedulers.load import Load
from schedmate.schedulers.model import Allocation, Cluster, Job
from schedmate.schedulers.space import Space

NEVER = float("inf")


class Start(NamedTuple):
    """Run a waiting job on GPUs that are free."""

    job: Job
    allocation: Allocation


class Pack(NamedTuple):
    """Run a waiting job on the GPUs of one that runs alone on as many."""

    job: Job
    partner: Job


class Evict(NamedTuple):
    """Take a job off the GPUs it shares; it waits again, its partner runs on alone.

    What it did since its last checkpoint is lost.
    """

    job: Job


class Preempt(NamedTuple):
    """Stop a job that runs alone; it keeps its progress and waits again."""

    job: Job


class Resize(NamedTuple):
    """Give an elastic job other GPUs, more or fewer."""

    job: Job
    allocation: Allocation


class Migrate(NamedTuple):
    """Move a running job to other GPUs, as many as it has."""

    job: Job
    allocation: Allocation


class Profile(NamedTuple):
    """Run a waiting job alone for at most `limit_s` to see what it uses.

    A job that ends within the limit is done; any other waits again, its `profile` known.
    """

    job: Job
    allocation: Allocation
    limit_s: float


Decision = Start | Pack | Evict | Preempt | Resize | Migrate | Profile


class View:
    """What a policy sees: the clock, the free GPUs, who waits, who runs.

    `space` is the policy's to book on while it decides; all of that is undone afterwards, and only
    the decisions it returns are carried out.
    """

    __slots__ = ("load", "now", "pending", "running", "space", "submitted", "warnings")

    def __init__(self, space: Space, policy: Policy, load: Load | None = None) -> None:
        self.now = 0.0
        """[s]"""
        self.space = space
        self.pending = Lanes(policy.lane, policy.rank)
        """Submitted, holding no GPU, by `Policy.lane` and `Policy.rank`."""
        self.running = Lanes(policy.lane, policy.rank)
        """Holding GPUs, by the same two."""
        self.submitted: list[float] = []
        """When the jobs so far were submitted, ascending [s]."""
        self.warnings: Counter[str] = Counter()
        """What went wrong and how often, for the summary."""
        self.load = Load() if load is None else load
        """Forecasts how many are to come."""

    def jobs(self) -> list[Job]:
        """All who wait or run, in order of submission."""
        return sorted((*self.pending, *self.running), key=lambda job: job.index)

    def warn(self, what: str) -> None:
        """Count something that went wrong and was worked around."""
        self.warnings[what] += 1

    def expected(self) -> float:
        """Jobs to be submitted in the next ten minutes, by the forecast."""
        return self.load.expected(self.submitted, self.now)


class Policy:
    """Base of every policy: override `decide`, and what of the rest the policy needs.

    A policy keeps nothing between calls: whatever it needs is in the view.
    """

    name: ClassVar[str]
    """What the command line calls it."""
    interval_s: float | None = None
    """Decide only at multiples of this [s]; None: whenever something changed."""
    rounds: bool = False
    """Decide at each multiple of `interval_s` at which a job waits or runs, changed or not."""
    steady: bool = False
    """Whether a job that was refused stays refused until something ends, stops or changes rank.

    Then no decision is asked for when no job waits, or all that happened is that jobs arrived which
    rank behind a refused one of their lane. Not for a policy that looks at the clock or at the
    queue's length, or that has something to decide about jobs that run.
    """
    adapts_batch: ClassVar[bool] = False
    """Whether elastic jobs choose their batch size themselves; else they keep what they ask for."""

    packs: bool = False
    """Whether jobs share GPUs by how they use them, which somebody has to say."""

    def decide(self, view: View) -> Sequence[Decision]:
        """The decisions to carry out now, in this order."""
        raise NotImplementedError

    def rank(self, job: Job, now: float) -> Rank:
        """The job's place in the queue, or among the running: lowest first."""
        return job.submit_time

    def rank_until(self, job: Job, now: float) -> float:
        """When the rank of this running job changes by itself; it is then asked for anew [s]."""
        return NEVER

    def lane(self, job: Job) -> Hashable:
        """Jobs of one lane are alike to the policy: see `Lanes`."""
        return (job.vc, job.gpus, job.gpu_type, job.share, job.cpus, job.memory_mb)

    def set_aside(self, cluster: Cluster) -> Cluster:
        """The cluster with the roles this policy wants for its nodes."""
        return cluster
