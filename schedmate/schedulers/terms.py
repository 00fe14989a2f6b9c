"""What few jobs and executors have: constraints, terms, missing capabilities, changed nodes.

A `Job` without constraints or terms holds None for them; jobs with the same ones share one object.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

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
