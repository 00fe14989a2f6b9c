"""What happened besides jobs that ran: evictions, moves, loans, nodes, jobs given up."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from schedmate.schedulers.model import Allocation
from schedmate.schedulers.terms import NEVER


class Eviction(NamedTuple):
    """A job was taken off its GPUs."""

    job: int
    """Position in the workload."""
    told: float
    """When it was told to stop [s]."""
    left: float
    """When its GPUs were free [s]."""
    grace_s: float
    """Time that it was given [s]."""
    done: float
    """Work done up to then, in the unit of the physics."""
    kept: float
    """The part of it from which it goes on."""
    saves: bool
    """Whether it made a checkpoint when it was told."""


class Hold(NamedTuple):
    """A job held GPUs on which it did not run yet: it was brought up there."""

    job: int
    start: float
    end: float
    allocation: Allocation
    moved: bool
    """Whether it went on there; else something came between."""


class Loan(NamedTuple):
    """A job lent its GPUs."""

    job: int
    start: float
    called: float
    """When it wanted them back [s]."""
    back: float
    """When the last borrower had left them and it used them again, or its own end [s]."""
    allocation: Allocation


class Outage(NamedTuple):
    """A node was not to be used."""

    node: int
    closed: float
    """From when nothing new could start there [s]."""
    down: float
    """From when nothing ran there [s]."""
    up: float
    """When it was back; infinity: not while the simulation ran [s]."""


class Dropped(NamedTuple):
    """A job was given up."""

    time: float
    why: str


@dataclass(slots=True)
class Ledger:
    """All of it; what never happened is empty."""

    evictions: dict[int, Eviction] = field(default_factory=dict)
    """By position of the segment that ended so."""
    holds: list[Hold] = field(default_factory=list)
    handovers: dict[tuple[int, float], float] = field(default_factory=dict)
    """By position in the workload and time: the pause of a job that went where it had been brought
    up [s]."""
    loans: list[Loan] = field(default_factory=list)
    outages: list[Outage] = field(default_factory=list)
    dropped: dict[int, Dropped] = field(default_factory=dict)
    """By position in the workload."""
    refused: dict[str, int] = field(default_factory=dict)
    """How often each reason was given."""
    horizon: float = NEVER
    """When the simulation was stopped, whatever went on; infinity: it ran to its end [s]."""


NOTHING = Ledger()
"""Of a run in which none of it could happen."""
