"""What a scheduling policy is: a pure function from a view of the cluster to decisions.

The same object decides in the simulator and on a real cluster; nothing it is given says which.
`docs/policies.md` has a complete one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import ClassVar, Literal, NamedTuple

from schedmate.errors import UsageError
from schedmate.schedulers import terms
from schedmate.schedulers.holders import Census, Evictions, Holders
from schedmate.schedulers.lanes import Lanes, Rank
from schedmate.schedulers.load import Load
from schedmate.schedulers.model import Allocation, Cluster, Job
from schedmate.schedulers.space import Space
from schedmate.schedulers.terms import EVERYTHING, Capabilities, NodeNews

NEVER = terms.NEVER


class Start(NamedTuple):
    """Run a waiting job on GPUs that are free, or will be when jobs that were told to stop have
    left them: then it starts as soon as they have, and nobody else gets these GPUs.
    """

    job: Job
    allocation: Allocation


class Pack(NamedTuple):
    """Run a waiting job on the GPUs of one that runs alone on as many."""

    job: Job
    partner: Job


class Evict(NamedTuple):
    """Take a job off its GPUs; it waits again, and a partner runs on alone.

    What it did since its last checkpoint is lost. With `grace_s` it is told to stop and holds its
    GPUs until it has, at most for that time; it loses nothing if it saves its work meanwhile.
    """

    job: Job
    grace_s: float = 0.0
    """[s]"""


class Preempt(NamedTuple):
    """Stop a job that runs alone; it keeps its progress and waits again."""

    job: Job


class Resize(NamedTuple):
    """Give an elastic job other GPUs, more or fewer."""

    job: Job
    allocation: Allocation


class Migrate(NamedTuple):
    """Move a running job to other GPUs, as many as it has.

    With `overlap` it goes on running until it has been brought up there, and holds both.
    """

    job: Job
    allocation: Allocation
    overlap: bool = False


class Borrow(NamedTuple):
    """Run a waiting job on GPUs that are not its own: idle ones of another virtual cluster, to be
    reclaimed by an `Evict` or `Preempt`, or ones that a job lends, which takes them back itself.
    """

    job: Job
    allocation: Allocation


class Drop(NamedTuple):
    """Give a job up, waiting or running: it never ends."""

    job: Job
    why: str = ""


class Profile(NamedTuple):
    """Run a waiting job alone for at most `limit_s` to see what it uses.

    A job that ends within the limit is done; any other waits again, its `profile` known.
    """

    job: Job
    allocation: Allocation
    limit_s: float


Decision = Start | Pack | Evict | Preempt | Resize | Migrate | Profile | Borrow | Drop


_NEEDS: dict[type, str] = {
    Pack: "pack",
    Preempt: "preempt",
    Evict: "evict",
    Resize: "resize",
    Migrate: "migrate",
    Profile: "profile",
    Borrow: "borrow",
    Drop: "drop",
}


def needs(decision: Decision, can: Capabilities) -> str:
    """What this decision needs and the executor cannot do, by the name of the flag; empty: it
    can."""
    what = _NEEDS.get(type(decision), "")
    if what and not getattr(can, what):
        return what
    return "overlap" if isinstance(decision, Migrate) and decision.overlap > can.overlap else ""


class Answer(NamedTuple):
    """The executor's answer to a decision."""

    decision: Decision
    state: Literal["accepted", "refused", "late"]
    """`late`: it was carried out, but only after the executor's deadline."""
    why: str = ""
    """Why it was refused."""
    at: float = 0.0
    """[s]"""


class View:
    """A policy's view: the clock, free GPUs, waiting and running jobs.

    `space` is the policy's to book on while it decides; all of that is undone afterwards, and only
    the decisions it returns are carried out.
    """

    __slots__ = (
        "altered",
        "answers",
        "asked",
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
        "running",
        "space",
        "starting",
        "submitted",
        "warnings",
    )

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
        self.asked: list[int] = [0]
        """GPUs that the first of them asked for: none, the first, the first two ..."""
        self.warnings: Counter[str] = Counter()
        """What went wrong and how often, for the summary."""
        self.load = Load() if load is None else load
        """Forecasts how many are to come."""
        self.altered = False
        """Whether it was ever said of a job that more is known of it than when it was put in."""
        self.can: Capabilities = EVERYTHING
        """What the executor can do."""
        self.answers: list[Answer] = []
        """What became of decisions since the policy was last asked, where not all was accepted."""
        self.news: list[NodeNews] = []
        """Nodes that changed since the policy was last asked."""
        self.draining: dict[int, float] = {}
        """Nodes on which nothing new may start, and when they are to go down [s]."""
        self.evicted = Evictions()
        """By node, how often jobs were evicted from it."""
        self.leaving: dict[int, Job] = {}
        """By position: jobs that were told to stop and still hold their GPUs."""
        self.starting: dict[int, tuple[Job, Allocation]] = {}
        """By position: jobs that will start when others have left GPUs, and what they will hold."""
        self.lost: Callable[[Job], float] | None = None
        """How an executor says what stopping a job would lose: see `lost_s`."""
        self.holders: Holders | None = None
        """Jobs by node, kept up from the first time that `on` is asked."""

    def on(self, node: int) -> list[Job]:
        """The jobs that hold GPUs of a node, in order of submission, whatever else runs."""
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
        """Work of a running job since its last checkpoint: what an `Evict` of it would lose [s].

        Where the executor does not say, all since it got its GPUs.
        """
        if not job.allocation:
            return 0.0
        return self.now - job.started if self.lost is None else self.lost(job)

    def jobs(self) -> list[Job]:
        """All waiting and running jobs, in order of submission."""
        return sorted((*self.pending, *self.running), key=lambda job: job.index)

    def warn(self, what: str) -> None:
        """Count something that went wrong and was worked around."""
        self.warnings[what] += 1

    def expected(self) -> float:
        """Jobs to be submitted in the next ten minutes, by the forecast."""
        return self.load.expected(self.submitted, self.now)

    def expected_gpus(self) -> float:
        """GPUs that they will ask for together, by the forecast."""
        return self.load.expected_gpus(self.submitted, self.asked, self.now)


class StaticRank(NamedTuple):
    """A rank that is settled when the job is submitted.

    By priority, then by the sum of submission x `submit` and predicted duration x `predicted`,
    that once more times GPUs with `by_gpus`; a job of unknown duration goes by its time limit, or
    last.
    """

    submit: float = 0.0
    predicted: float = 0.0
    by_gpus: bool = False


HAIR = 1e-9
"""Woken at a threshold, rounding may leave the service this much below it."""


class ServiceRank(NamedTuple):
    """Two queues: a job falls into the second once its GPUs x time pass a threshold.

    Inside a queue the first submitted goes first.
    """

    threshold_gpu_s: float

    def is_low(self, served_s: float, gpus: int) -> bool:
        """Whether a job that has held so many GPUs for this time [s] is in the second queue."""
        return served_s * gpus >= self.threshold_gpu_s * (1 - HAIR)

    def falls_after_s(self, served_s: float, gpus: int) -> float:
        """How long it can go on until it falls there; infinity: it is there [s]."""
        left = self.threshold_gpu_s - served_s * gpus
        return NEVER if left <= self.threshold_gpu_s * HAIR else left / gpus


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

    one_pool: ClassVar[bool] = False
    """Whether any job may get any node, as no virtual clusters are known to the policy. Such a one
    is refused on a cluster that has several: see `check_pool`."""

    def decide(self, view: View) -> Sequence[Decision]:
        """The decisions to carry out now, in this order."""
        raise NotImplementedError

    def rank(self, job: Job, now: float) -> Rank:
        """The job's place in the queue, or among the running: lowest first."""
        return job.submit_time

    def rank_until(self, job: Job, now: float) -> float:
        """When the rank of this running job changes by itself; it is then asked for anew [s]."""
        return NEVER

    def waiting_until(self, job: Job, now: float) -> float:
        """When the rank or lane of this waiting job changes by itself; both are then asked for
        anew [s]."""
        return NEVER

    def lane(self, job: Job) -> Hashable:
        """Jobs of one lane are alike to the policy: see `Lanes`."""
        lane = (job.vc, job.gpus, job.gpu_type, job.share, job.cpus, job.memory_mb)
        return lane if job.constraints is None else (*lane, job.constraints)

    def static_rank(self) -> StaticRank | None:
        """The formula of `rank`; None if it has none, or if the policy does more than start jobs.

        For a policy that offers waiting jobs by rank to `Space.place`, in each lane up to the first
        that finds no place: the simulator has a short loop for these. It is asked only if no class
        derived from the one that says it overrides anything else of a policy.
        """
        return None

    def service_rank(self) -> ServiceRank | None:
        """The formula of `rank` of a policy that runs the first ranks at the cost of the last.

        None: something else. The simulator has a short loop for what `Preemptive` does by this
        rank with its usual settings; it is asked under the same condition as `static_rank`.
        """
        return None

    def set_aside(self, cluster: Cluster) -> Cluster:
        """The cluster with the roles this policy wants for its nodes."""
        return cluster


def check_pool(policy: Policy, cluster: Cluster) -> None:
    """Raises `UsageError` for a policy without virtual clusters on a cluster of several."""
    vcs = sorted({node.vc for node in cluster.nodes})
    if policy.one_pool and len(vcs) > 1:
        shown = ", ".join(one or "(none)" for one in vcs[:4]) + ", ..." * (len(vcs) > 4)
        raise UsageError(
            f"policy {policy.name} knows no virtual clusters, and this cluster has {len(vcs)}: "
            f"{shown}. Choose a cluster without them (2x8:A100 instead of 2x8:A100@{vcs[-1]}), so "
            "that all jobs compete for all nodes, or another policy."
        )
