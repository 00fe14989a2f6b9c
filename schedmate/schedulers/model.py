"""The cluster and its jobs as a policy sees them: nodes, requests, allocations, profiles,
constraints.

A job's true run time and speed are not here: a policy must not know them. They belong to the
executor, that is the simulator or a real cluster.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from schedmate.base.errors import UsageError

if TYPE_CHECKING:
    from schedmate.jobs import Estimate
    from schedmate.schedulers.goodput import Agent


NEVER = float("inf")
"""A time that never comes [s]."""

Labels = tuple[tuple[str, str], ...]
"""Names and values, as Kubernetes has them on nodes."""


@dataclass(frozen=True, slots=True)
class Constraints:
    """Where a job may be put, besides virtual cluster and GPU type."""

    pods: int = 0
    """Number of equal pods of the gang, each on one node with its share of the job's GPUs, CPUs and
    memory; 0: not stated, the job is placed on as few nodes as possible."""
    require: Labels = ()
    """Labels that a node must have (node affinity)."""
    group: str = ""
    """The group that `avoid` of other jobs refers to; empty: none."""
    avoid: frozenset[str] = frozenset()
    """Groups with which it shares no node (anti-affinity, in both directions). The pods of a job
    that avoids its own group are all on different nodes."""
    within_switch: bool = False
    """Whether all its nodes must be below one switch."""
    without: frozenset[str] = frozenset()
    """Names of nodes that it must not run on, such as one suspected to be faulty."""

    @property
    def apart(self) -> bool:
        """Whether no two pods of the job may share a node."""
        return bool(self.group) and self.group in self.avoid


@dataclass(frozen=True, slots=True)
class Terms:
    """Terms of a job: class, deadline, checkpoints, tenant."""

    low: bool = False
    """Its service class: low priority (spot), which may be evicted for one of high priority."""
    deadline: float = NEVER
    """When it must have ended, on the clock of the view [s]."""
    checkpoint_s: float | None = None
    """Work between two checkpoints, set by its user; None: the cluster's default [s]."""
    saves: bool = False
    """Whether it saves a checkpoint on a request to stop, if the grace time suffices."""
    endless: bool = False
    """A service: it runs until it is stopped."""
    tenant: str = ""
    """Tenant whose quota it counts against; empty: none."""


class Capabilities(NamedTuple):
    """What an executor can do.

    A policy avoids decisions that need a missing capability; the executor refuses such a decision.
    """

    pin: bool = True
    """Give a job exactly the assigned GPUs, not only that number of GPUs of the node."""
    pack: bool = True
    """Run two jobs on the same GPUs."""
    preempt: bool = True
    """Stop a job and resume it later without losing work."""
    evict: bool = True
    """Stop a job and resume it later from its last checkpoint."""
    migrate: bool = True
    """Move a running job."""
    overlap: bool = True
    """Start a job on its new GPUs before it leaves the old ones."""
    resize: bool = True
    """Run an elastic job on another number of GPUs."""
    profile: bool = True
    """Stop a job after a time limit and measure what it used."""
    borrow: bool = True
    """Run a job on GPUs that are lent to it."""
    drop: bool = True
    """Cancel a job."""


EVERYTHING = Capabilities()
"""Every capability, as the simulator has."""


@dataclass(slots=True)
class NodeNews:
    """A node that changed since the policy was last asked."""

    node: int
    """Position in the cluster."""
    what: str
    """`down` (its jobs were lost), `drain` (nothing new may start there) or `up`."""
    at: float
    """[s]"""
    until: float = NEVER
    """Announced time at which it goes down after a drain, or comes back [s]."""
    stopped: list[str] = field(default_factory=list)
    """Ids of the jobs that ran on it when it went down."""


# Nodes, allocations and the cluster; then jobs, their forecasts and profiles.


PROFILING = "profiling"
"""The role of nodes that a policy sets aside for profiling (Lucid, section 3.2)."""

Allocation = tuple[tuple[int, int], ...]
"""The GPUs a job holds: (node index, bit mask of GPUs) for each node, by ascending node."""


def gpus_in(allocation: Allocation) -> int:
    """The number of GPUs of an allocation."""
    return sum(mask.bit_count() for _, mask in allocation)


def without(allocation: Allocation, other: Allocation) -> Allocation:
    """The GPUs of an allocation that are not in another."""
    theirs = dict(other)
    return tuple((node, own) for node, mask in allocation if (own := mask & ~theirs.get(node, 0)))


class Node(NamedTuple):
    """A machine of the cluster, as configured."""

    name: str
    gpus: int
    gpu_type: str = ""
    cpus: float = 0
    """CPU cores; 0: not limited."""
    memory_mb: float = 0
    """Host memory [MB]; 0: not limited."""
    switch: str = ""
    """Switch domain: nodes with the same name are close to each other."""
    vc: str = ""
    """Virtual cluster; empty: open to every job."""
    role: str = ""
    """Purpose that the node is reserved for; empty: ordinary jobs."""
    labels: Labels = ()
    """Names and values that the constraints of jobs refer to."""


_GROUP = re.compile(r"\s*(\d{1,9})x(\d{1,9})(?::([\w.+-]+))?(?:@([\w.+-]+))?\s*")
MOST_NODES, MOST_OF_A_NODE = 1_000_000, 10_000
"""The largest cluster that can be described: each node is an object, its GPUs bits of a number."""


@dataclass(frozen=True)
class Cluster:
    """The nodes, in a fixed order: an `Allocation` refers to them by position."""

    nodes: tuple[Node, ...]
    quotas: tuple[tuple[str, int], ...] = ()
    """Each tenant's limit on the GPUs that its jobs of high priority may hold; a tenant that is not
    listed has no quota."""

    @cached_property
    def gpus(self) -> int:
        """GPUs of all nodes."""
        return sum(node.gpus for node in self.nodes)

    def with_role(self, positions: Iterable[int], role: str) -> Cluster:
        """The same cluster with these nodes reserved for `role`, open to all virtual clusters."""
        chosen = set(positions)
        return replace(
            self,
            nodes=tuple(
                node._replace(role=role, vc="") if position in chosen else node
                for position, node in enumerate(self.nodes)
            ),
        )

    @classmethod
    def parse(cls, text: str) -> Cluster:
        """A cluster from `108x8`, or `6x4:T4,2x8:A100@vc1`: nodes x GPUs [: type] [@ VC].

        Raises `UsageError` for anything else.
        """
        nodes: list[Node] = []
        for group in text.split(","):
            match = _GROUP.fullmatch(group)
            if match is None or int(match[1]) == 0 or int(match[2]) == 0:
                raise UsageError(
                    f"{group.strip()!r} is not a group of nodes; write a cluster as 108x8 (nodes x "
                    "GPUs), with a GPU type and a virtual cluster as 6x4:T4@vision,2x8:A100@nlp."
                )
            count, gpus = int(match[1]), int(match[2])
            if len(nodes) + count > MOST_NODES or gpus > MOST_OF_A_NODE:
                raise UsageError(
                    f"{group.strip()!r} makes the cluster larger than {MOST_NODES:,} nodes of "
                    f"{MOST_OF_A_NODE:,} GPUs."
                )
            nodes += [
                Node(f"node{len(nodes) + n}", gpus, gpu_type=match[3] or "", vc=match[4] or "")
                for n in range(count)
            ]
        return cls(tuple(nodes))


class Profile(NamedTuple):
    """Result of a short exclusive run (Lucid, section 3.2)."""

    gpu_util: float
    """Share of time with a kernel running [%]."""
    memory_util: float
    """Share of time in which GPU memory was read or written [%]."""
    memory_mb: float
    """GPU memory in use [MB of one GPU]."""
    amp: bool = False
    """Whether training uses mixed precision."""


class Forecast(NamedTuple):
    """A prediction about a job before it runs: the part of an `Estimate` that policies use."""

    duration_s: float
    """[s]"""
    gpu_util: float | None = None
    """[%]"""
    gpu_mem_mb: float | None = None
    """[MB of one GPU]"""
    method: str = ""
    quantiles_s: tuple[float, ...] | None = None
    """The distribution of the duration: n times, ascending, each of which stands for 1/n of the
    probability; None: unknown [s]."""

    @classmethod
    def of(cls, estimate: Estimate | None) -> Forecast | None:
        """From the Scheduling Advisor's answer; None when it abstained."""
        if estimate is None or estimate.abstained or estimate.duration_s is None:
            return None
        return cls(
            estimate.duration_s,
            estimate.gpu_util,
            estimate.gpu_mem_mb,
            estimate.method,
            tuple(estimate.quantiles_s) if estimate.quantiles_s else None,
        )


class Left(NamedTuple):
    """A job's remaining run time according to its log."""

    seconds: float
    """Remaining time at the speed of that moment [s]."""
    at: float
    """When the log stated it [s]."""


@dataclass(slots=True)
class Status:
    """A transition of a job with GPUs: it is leaving, moving or lending them.

    Meanwhile the job is not `preemptible`. A job that simply runs or waits has no status.
    """

    leaves_by: float = NEVER
    """Deadline of a request to stop: it holds its GPUs until it has stopped, at most until then
    [s]."""
    moves_to: Allocation = ()
    """GPUs that it holds in addition, where it is being started before it moves there."""
    lends_until: float = NEVER
    """It lends its GPUs until this announced time, or until it reclaims them [s]."""
    lends: bool = False
    preemptible: bool = True
    """Whether the job is preemptible again after the transition."""

    @property
    def leaving(self) -> bool:
        """Whether it was asked to stop."""
        return self.leaves_by < NEVER


@dataclass(slots=True, eq=False)
class Job:
    """A job: its request, and what any executor can observe of it.

    Policies only read it; the executor updates the observations.
    """

    id: str
    index: int
    """Position in order of submission: the tie-breaker everywhere."""
    submit_time: float
    """[s]"""
    gpus: int
    """Requested GPUs, over all nodes."""
    name: str = ""
    user: str = ""
    vc: str = ""
    gpu_type: str = ""
    """Requested GPU type; empty: any."""
    share: float = 1.0
    """Part of one GPU, for a job of one GPU; 1: whole GPUs."""
    cpus: float = 0
    memory_mb: float = 0
    """Host memory over all nodes [MB]."""
    priority: int = 0
    """The operator's priority: higher goes first."""
    min_gpus: int = 0
    """Fewest GPUs an elastic job can use; 0: not elastic."""
    max_gpus: int = 0
    preemptible: bool = True
    migratable: bool = True
    time_limit_s: float | None = None
    constraints: Constraints | None = None
    """Placement constraints; None: any free GPUs will do."""
    terms: Terms | None = None
    """Service class, deadline, checkpoints; None: the defaults."""

    forecast: Forecast | None = None
    """The estimate of its run time; None: the estimator abstained."""
    profile: Profile | None = None
    """Its GPU use; None until it was profiled or has run."""
    agent: Agent | None = None
    """The performance model of an elastic job; None: it has none."""
    profiled: bool = False
    """Whether a profiling run took place."""
    allocation: Allocation = ()
    """Empty while it waits."""
    profiling: bool = False
    """Whether it holds its allocation only for profiling."""
    started: float = 0.0
    """Start of its present allocation [s]."""
    stopped: float = 0.0
    """When it last lost an allocation [s]."""
    service_s: float = 0.0
    """Time it held GPUs before the present allocation [s]."""
    partner: Job | None = None
    """The job it shares its GPUs with."""
    preemptions: int = 0
    evictions: int = 0
    """Times it lost its GPUs and its work since the last checkpoint."""
    moves: int = 0
    """Times it was moved or resized: it resumed at once on other GPUs."""
    failures: int = 0
    """Times it failed, by itself or with its node."""
    unstable: bool = False
    """Whether its GPU use was seen to change."""
    slowdown: float | None = None
    """Speed beside its partner divided by its speed alone, from its log; None: unknown."""
    left: Left | None = None
    """Its remaining run time, from its log; None: unknown."""
    status: Status | None = None
    """Its transition (leaving, moving, lending); None: it simply runs or waits."""

    def attained_s(self, now: float) -> float:
        """Time for which it has held GPUs so far [s]."""
        return self.service_s + (now - self.started if self.allocation else 0.0)

    def put_under_way(self, status: Status) -> None:
        """Begin a transition, during which the job is not preemptible."""
        status.preemptible = self.preemptible
        self.status, self.preemptible = status, False

    def settle(self) -> None:
        """End its transition, if it is in one."""
        if self.status is not None:
            self.preemptible = self.status.preemptible
            self.status = None

    @property
    def elastic(self) -> bool:
        return self.min_gpus > 0

    def reset(self) -> None:
        """Return to the state before its submission."""
        self.settle()
        self.forecast = self.profile = self.agent = self.partner = None
        self.profiled = self.profiling = self.unstable = False
        self.allocation = ()
        self.started = self.stopped = self.service_s = 0.0
        self.preemptions = self.evictions = self.moves = self.failures = 0
        self.slowdown = self.left = None
