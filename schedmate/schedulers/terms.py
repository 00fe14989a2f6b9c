"""What jobs ask for besides GPUs, on which terms they run, and what is under way with them.

Few jobs have any of it: a `Job` holds None where it has none, and jobs alike share one object.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from schedmate.schedulers.model import Allocation

NEVER = float("inf")

Labels = tuple[tuple[str, str], ...]
"""Names and values, as Kubernetes has them on nodes."""


@dataclass(frozen=True, slots=True)
class Constraints:
    """Where a job may be put, besides virtual cluster and GPU type."""

    pods: int = 0
    """A gang of so many equal pods, each on one node with its part of the job's GPUs, processors
    and memory; 0: not said, the job is put on as few nodes as possible."""
    require: Labels = ()
    """Labels that a node must have (node affinity)."""
    group: str = ""
    """What others may keep away from; empty: nothing."""
    avoid: frozenset[str] = frozenset()
    """Groups with which it shares no node (anti-affinity, in both directions). A job that avoids
    its own group has each of its pods on a node of its own."""
    within_switch: bool = False
    """Whether all of it must be below one switch."""
    without: frozenset[str] = frozenset()
    """Nodes, by name, that it must not be put on: one that may be faulty for it."""

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
    """When it has to have ended, on the clock of the view [s]."""
    checkpoint_s: float | None = None
    """Work between two checkpoints, set by its user; None: the cluster's custom [s]."""
    saves: bool = False
    """Whether it makes a checkpoint when it is told to stop, if the grace time is enough."""
    endless: bool = False
    """A service: it runs until it is stopped."""
    tenant: str = ""
    """Whose it is, as far as quotas go; empty: nobody's, and without a quota."""


@dataclass(slots=True)
class Status:
    """What is in progress for a job with GPUs; meanwhile it is not `preemptible`.

    A job with which nothing is under way has none.
    """

    leaves_by: float = NEVER
    """It was told to stop and holds its GPUs until it has, at most until then [s]."""
    moves_to: Allocation = ()
    """GPUs that it holds as well, on which it is being brought up."""
    lends_until: float = NEVER
    """It lends its GPUs until then, as announced, or until it wants them back [s]."""
    lends: bool = False
    preemptible: bool = True
    """Whether the job may be stopped once nothing is under way."""

    @property
    def leaving(self) -> bool:
        """Whether it was told to stop."""
        return self.leaves_by < NEVER


class Left(NamedTuple):
    """A job's remaining work by its log."""

    seconds: float
    """At the speed of then [s]."""
    at: float
    """When it was seen [s]."""


class Capabilities(NamedTuple):
    """Capabilities of an executor. A policy without one decides otherwise; a decision that needs
    what the executor cannot do is refused."""

    pin: bool = True
    """Give a job the very GPUs that it was assigned, not just as many of a node."""
    pack: bool = True
    """Run two jobs on the same GPUs."""
    preempt: bool = True
    """Stop a job so that it can go on later from where it was."""
    evict: bool = True
    """Stop a job that goes on later from its last checkpoint."""
    migrate: bool = True
    """Move a running job."""
    overlap: bool = True
    """Bring a job up on its new GPUs before it leaves the old ones."""
    resize: bool = True
    """Run an elastic job on another number of GPUs."""
    profile: bool = True
    """Stop a job at a limit, and say what it used."""
    borrow: bool = True
    """Run a job on GPUs that are lent to it."""
    drop: bool = True
    """Cancel a job."""


EVERYTHING = Capabilities()
"""An executor that can do all there is, such as the simulator."""


@dataclass(slots=True)
class NodeNews:
    """A node that changed since the policy was last asked."""

    node: int
    """Position in the cluster."""
    what: str
    """`down` (gone, with all that ran on it), `drain` (nothing new may start there) or `up`."""
    at: float
    """[s]"""
    until: float = NEVER
    """When it is to go down after a drain, or to come back, as far as announced [s]."""
    stopped: list[str] = field(default_factory=list)
    """Jobs that went down with it, by id."""
