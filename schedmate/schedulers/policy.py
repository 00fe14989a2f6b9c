"""What a scheduling policy is, sees and decides: a pure function from a view of the cluster to
decisions.

The same policy object decides in the simulator and on a real cluster, and cannot tell them apart.
`docs/policies.md` has a complete example.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from copy import copy
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

from schedmate.base import errors
from schedmate.base.errors import UsageError
from schedmate.schedulers.estimators import Load
from schedmate.schedulers.lanes import Lanes, Rank
from schedmate.schedulers.model import (
    EVERYTHING,
    NEVER,
    Allocation,
    Capabilities,
    Cluster,
    Job,
    NodeNews,
)
from schedmate.schedulers.space import Space


class Start(NamedTuple):
    """Run a waiting job on free GPUs, or on GPUs of jobs that were asked to stop.

    In the latter case the GPUs are reserved, and the job starts when those have left.
    """

    job: Job
    allocation: Allocation


class Pack(NamedTuple):
    """Run a waiting job on the GPUs of another that runs alone on the same number."""

    job: Job
    partner: Job


class Evict(NamedTuple):
    """Take a job off its GPUs; it waits again, and a partner continues alone.

    Its work since the last checkpoint is lost. With `grace_s` it is asked to stop and holds its
    GPUs until it has, at most for that time; it loses nothing if it saves a checkpoint meanwhile.
    """

    job: Job
    grace_s: float = 0.0
    """[s]"""


class Preempt(NamedTuple):
    """Stop a job that runs alone; it keeps its progress and waits again."""

    job: Job


class Resize(NamedTuple):
    """Move an elastic job to other GPUs, more or fewer."""

    job: Job
    allocation: Allocation


class Migrate(NamedTuple):
    """Move a running job to the same number of other GPUs.

    With `overlap` it keeps running while it is started there, and holds both sets meanwhile.
    """

    job: Job
    allocation: Allocation
    overlap: bool = False


class Borrow(NamedTuple):
    """Run a waiting job on borrowed GPUs: of another virtual cluster, or lent by a job.

    A virtual cluster gets them back by an `Evict` or `Preempt`; a job reclaims them by itself.
    """

    job: Job
    allocation: Allocation


class Drop(NamedTuple):
    """Give up a job, waiting or running: it is counted as dropped."""

    job: Job
    why: str = ""


class Profile(NamedTuple):
    """Run a waiting job alone for at most `limit_s` to measure its GPU use.

    A job that ends within the limit is done; any other waits again, with its `profile` known.
    """

    job: Job
    allocation: Allocation
    limit_s: float
    """[s]"""


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
    """The capability that this decision needs and the executor lacks, by name; empty: none."""
    what = _NEEDS.get(type(decision), "")
    if what and not getattr(can, what):
        return what
    return "overlap" if isinstance(decision, Migrate) and decision.overlap > can.overlap else ""


def bars(decision: Decision, space: Space) -> str:
    """Why the job may not get the GPUs of this decision, even if they are free; empty: it may.

    They are none of the cluster's, or on a node that is closed, of another GPU type or of another
    virtual cluster; a `Pack` may join a job on a closed node, and a `Borrow` or `Profile` may be
    anywhere.
    """
    if isinstance(decision, Preempt | Evict | Drop):
        return ""
    job, nodes = decision.job, space.cluster.nodes
    joins = isinstance(decision, Pack)
    allocation = decision.partner.allocation if isinstance(decision, Pack) else decision.allocation
    anywhere = isinstance(decision, Borrow | Profile)
    if len({position for position, _ in allocation}) < len(allocation):
        return "one node is named twice"
    for position, mask in allocation:
        if not 0 <= position < len(nodes) or not 0 < mask < 1 << nodes[position].gpus:
            return "there are no such GPUs"
        name, vc, gpu_type = nodes[position].name, nodes[position].vc, nodes[position].gpu_type
        if not joins and space.closed(position):
            return f"node {name} is closed"
        if not anywhere and vc not in ("", job.vc):
            return f"node {name} is of virtual cluster {vc}"
        if job.gpu_type and gpu_type not in ("", job.gpu_type):
            return f"node {name} has GPUs of type {gpu_type}"
    return ""


class Answer(NamedTuple):
    """The executor's answer to a decision."""

    decision: Decision
    state: Literal["accepted", "refused", "late"]
    """`late`: carried out, but after the executor's deadline."""
    why: str = ""
    """Reason of a refusal."""
    at: float = 0.0
    """[s]"""


# Jobs that hold GPUs of each node, with their class and tenant.


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


class Usage:
    """GPU time that each user has received, of which a part decays all the time.

    Args:
        half_life_s: time after which it counts half [s].
    """

    __slots__ = ("_rate", "_used")

    def __init__(self, half_life_s: float) -> None:
        self._rate = math.log(2.0) / half_life_s
        self._used: dict[str, tuple[float, float]] = {}  # GPU seconds, and as of when

    def add(self, job: Job, now: float) -> None:
        """The job is about to lose its allocation."""
        before, at = self._used.get(job.user, (0.0, now))
        decayed = before * math.exp(-self._rate * (now - at))
        self._used[job.user] = (decayed + self._of(job, now), now)

    def by_user(self, now: float, running: Iterable[Job] = ()) -> dict[str, float]:
        """Decayed GPU time of each user up to now, with that of the running jobs [GPU s]."""
        used = {
            user: amount * math.exp(-self._rate * (now - at))
            for user, (amount, at) in self._used.items()
        }
        for job in running:
            used[job.user] = used.get(job.user, 0.0) + self._of(job, now)
        return used

    def _of(self, job: Job, now: float) -> float:
        """Decayed GPU time of its present allocation."""
        held = -math.expm1(-self._rate * (now - job.started)) / self._rate
        return held * job.share * sum(mask.bit_count() for _, mask in job.allocation)


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
        """The job is about to lose its allocation."""
        for node, _ in job.allocation:
            del self._jobs[node][job.index]
        if self.census is not None:
            self.census.change(job, -1)


# What a policy sees of the cluster when it decides.


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
        "usage",
        "warnings",
    )

    def __init__(self, space: Space, policy: Policy, load: Load | None = None) -> None:
        self.now = 0.0
        """[s]"""
        self.space = space
        self.pending = Lanes(policy.lane, policy.rank)
        """Waiting jobs by the policy's lane and rank."""
        self.running = Lanes(policy.lane, policy.rank)
        """Jobs that hold GPUs, by the policy's lane and rank."""
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
        self.usage: Usage | None = None
        """Past usage by user, for a policy with `usage_half_life_s`."""

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


# The base of policies, and the ranks that the simulator's specialised loops know.


class StaticRank(NamedTuple):
    """A rank that is fixed when the job is submitted.

    First by priority, then by `submit` times the submission time plus `predicted` times the
    predicted run time, times GPUs if `by_gpus`. A job without a prediction uses its time limit, or
    goes last.
    """

    submit: float = 0.0
    predicted: float = 0.0
    by_gpus: bool = False


HAIR = 1e-9
"""Relative tolerance: rounding may leave the service slightly below its threshold."""


class ServiceRank(NamedTuple):
    """Two queues: a job enters the second once its attained service passes a threshold.

    Service is GPUs times the time for which they were held (Tiresias, NSDI'19). Within a queue the
    first submitted goes first.
    """

    threshold_gpu_s: float
    """[GPU s]"""

    def is_low(self, served_s: float, gpus: int) -> bool:
        """Whether a job that has held `gpus` GPUs for `served_s` is in the second queue."""
        return served_s * gpus >= self.threshold_gpu_s * (1 - HAIR)

    def falls_after_s(self, served_s: float, gpus: int) -> float:
        """Time that it can still run before it enters the second; infinity: it is there [s]."""
        left = self.threshold_gpu_s - served_s * gpus
        return NEVER if left <= self.threshold_gpu_s * HAIR else left / gpus


class Policy:
    """Base of every policy: override `decide`, and whichever other hooks the policy needs.

    A policy stores nothing between calls: everything that it needs is in the view.
    """

    name: ClassVar[str]
    """Its name on the command line."""
    interval_s: float | None = None
    """Decide only at multiples of this time [s]; None: after every change."""
    rounds: bool = False
    """Decide at each multiple of `interval_s` while a job waits or runs, even without a change."""
    steady: bool = False
    """Whether a refused job stays refused until a job ends, stops or changes its rank.

    The policy is then not asked while no job waits, nor when only jobs have arrived that rank
    behind a refused one of their lane. Not for a policy that uses the clock or the length of the
    queue, or that decides about running jobs.
    """
    adapts_batch: ClassVar[bool] = False
    """Whether elastic jobs choose their batch size; else they keep the requested one."""

    usage_half_life_s: float | None = None
    """Time in which past usage of users counts half; None: the policy does not ask for usage."""

    packs: bool = False
    """Whether jobs share GPUs by their GPU use, which must be known."""

    borrows: ClassVar[bool] = False
    """Whether it uses GPUs that other jobs lend; only then do jobs lend them between phases."""

    one_pool: ClassVar[bool] = False
    """Whether the policy ignores virtual clusters, so that any job may get any node. It is asked
    for each of them on its own: see `deciding`."""

    def decide(self, view: View) -> Sequence[Decision]:
        """The decisions to carry out now, in order."""
        raise NotImplementedError

    def settled(self, view: View) -> bool:
        """Whether `decide`, which has just changed nothing, will change nothing before an event.

        Rounds until then are left out. Not for a policy that uses the clock for any job there is.
        """
        return False

    def rank(self, job: Job, now: float) -> Rank:
        """The job's place in the queue, or among the running: lowest first."""
        return job.submit_time

    def rank_until(self, job: Job, now: float) -> float:
        """When the rank of this running job changes with time and is computed again [s]."""
        return NEVER

    def waiting_until(self, job: Job, now: float) -> float:
        """When rank or lane of this waiting job change with time and are computed again [s]."""
        return NEVER

    def lane(self, job: Job) -> Hashable:
        """Jobs of one lane have the same request: see `Lanes`."""
        lane = (job.vc, job.gpus, job.gpu_type, job.share, job.cpus, job.memory_mb)
        return lane if job.constraints is None else (*lane, job.constraints)

    def static_rank(self) -> StaticRank | None:
        """The formula of `rank` for the simulator's specialised loop; None: not applicable.

        For a policy that only offers waiting jobs by rank to `Space.place`, in each lane up to the
        first that does not fit. Ignored if a derived class overrides anything else of the policy.
        """
        return None

    def service_rank(self) -> ServiceRank | None:
        """The formula of `rank` of a preemptive policy for the simulator's specialised loop.

        None: not applicable. The loop does what `Preemptive` does by this rank with its default
        settings. Ignored under the same condition as `static_rank`.
        """
        return None

    def set_aside(self, cluster: Cluster) -> Cluster:
        """The cluster with nodes reserved for the roles that this policy needs."""
        return cluster


def check_pool(policy: Policy, cluster: Cluster) -> None:
    """Raise `UsageError` if the policy ignores virtual clusters and the cluster has nodes both of
    them and of none, which are open to all of them at once."""
    vcs = sorted({node.vc for node in cluster.nodes if not node.role})
    if policy.one_pool and len(vcs) > 1 and not vcs[0]:
        raise UsageError(
            f"policy {policy.name} decides for each virtual cluster on its own, and this cluster "
            f"has nodes of {vcs[1]} and others of none. Give each node a virtual cluster, as "
            f"2x8:A100@{vcs[1]}, or none, or choose another policy."
        )


_ELSEWHERE = "elsewhere"
"""Role of the nodes of other virtual clusters, for a policy that ignores these."""


def deciding(policy: Policy, cluster: Cluster) -> Callable[[View], Sequence[Decision]]:
    """How to ask the policy on this cluster.

    One that ignores virtual clusters is asked for each of several in turn, as if its nodes and jobs
    were all there are.
    """
    nodes = cluster.nodes
    vcs = sorted({node.vc for node in nodes if not node.role})
    if not policy.one_pool or len(vcs) < 2:
        return policy.decide
    others = [[n for n, one in enumerate(nodes) if not one.role and one.vc != vc] for vc in vcs]
    parts = {
        vc: cluster.with_role(hidden, _ELSEWHERE) for vc, hidden in zip(vcs, others, strict=True)
    }

    order = (policy.lane, policy.rank)

    def decide(view: View) -> Sequence[Decision]:
        decisions: list[Decision] = []
        try:
            for vc, view.space.cluster in parts.items():
                part = copy(view)
                part.pending, part.running = Lanes(*order), Lanes(*order)
                for job in view.pending:
                    if job.vc == vc:
                        part.pending.add(job, view.now)
                for job in view.running:
                    if job.vc == vc:
                        part.running.add(job, view.now)
                decisions += policy.decide(part)
        finally:
            view.space.cluster = cluster
        return decisions

    return decide


# Observers of scheduling, such as readers of logs beside a policy.


class Watch(Protocol):
    """The interface of a simulation or a cluster to its observers."""

    @property
    def now(self) -> float:
        """The clock [s]."""
        ...

    def wake(self, observer: Any, job: Job, at: float) -> None:
        """Have `observer.woken(job)` called at `at` [s], whatever state the job is in by then."""
        ...

    def changed(self, job: Job | None = None) -> None:
        """Report that something in the policy's view has changed: it decides again now.

        With `job`, the job's lane and rank are computed again, as its forecast may have changed.
        """
        ...


class Observer:
    """Base of every observer: override the events of interest. No method returns anything."""

    watch: Watch

    def attach(self, watch: Any) -> None:
        """Called once before the first job is submitted; `watch` is the simulation or cluster."""
        self.watch = watch

    def submitted(self, job: Job) -> None:
        """The job waits for the first time, or again after a failure."""

    def started(self, job: Job) -> None:
        """The job got GPUs, alone or beside `job.partner`; also after a move or resize."""

    def packed(self, job: Job) -> None:
        """The job ran alone and now shares its GPUs with `job.partner`."""

    def unpacked(self, job: Job) -> None:
        """The job's partner has left; it continues alone."""

    def stopped(self, job: Job) -> None:
        """The job lost its GPUs before it was done: it waits, or is about to start elsewhere."""

    def failed(self, job: Job, *, again: bool) -> None:
        """The job lost its GPUs and perhaps work, or was dropped; without `again`, it is over."""

    def ended(self, job: Job) -> None:
        """The job has done its work."""

    def woken(self, job: Job) -> None:
        """The time requested by `watch.wake` has come."""


# The `schedulers` extra, which has the packages of the learned models.


def require_schedulers_extra(*packages: str, what: str = "this model") -> None:
    """Raises `MissingExtraError` when one of these cannot be imported."""
    errors.require(what, "schedulers", *packages)
