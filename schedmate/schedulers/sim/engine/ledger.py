"""Rare events of a simulation: evictions, moves, loans, outages of nodes, dropped jobs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from schedmate.schedulers.model import Allocation
from schedmate.schedulers.terms import NEVER


class Eviction(NamedTuple):
    """A job was taken off its GPUs."""

    job: int
    """Position in the workload."""
    asked: float
    """When it was asked to stop [s]."""
    left: float
    """When its GPUs were free [s]."""
    grace_s: float
    """Its grace time [s]."""
    done: float
    """Work done up to then, in the unit of the physics."""
    kept: float
    """The part of it from which it resumes."""
    saves: bool
    """Whether it saved a checkpoint on the request to stop."""


class Hold(NamedTuple):
    """A job held GPUs on which it was being started, and did not run yet."""

    job: int
    start: float
    end: float
    allocation: Allocation
    moved: bool
    """Whether it moved there; else the move was cancelled."""


class Loan(NamedTuple):
    """A job lent its GPUs."""

    job: int
    start: float
    called: float
    """When it reclaimed them [s]."""
    back: float
    """When the last borrower had left them and it used them again, or its own end [s]."""
    allocation: Allocation


class Outage(NamedTuple):
    """A node was not to be used."""

    node: int
    closed: float
    """Time from which nothing new could start there [s]."""
    down: float
    """Time from which nothing ran there [s]."""
    up: float
    """When it was back; infinity: not while the simulation ran [s]."""


class Dropped(NamedTuple):
    """A job was dropped."""

    time: float
    why: str


@dataclass(slots=True)
class Ledger:
    """All of it; what never happened is empty."""

    evictions: dict[int, Eviction] = field(default_factory=dict)
    """By position of the segment that ended so."""
    holds: list[Hold] = field(default_factory=list)
    handovers: dict[tuple[int, float], float] = field(default_factory=dict)
    """Pause of a job that moved to GPUs on which it had been started, by position in the workload
    and time [s]."""
    loans: list[Loan] = field(default_factory=list)
    outages: list[Outage] = field(default_factory=list)
    dropped: dict[int, Dropped] = field(default_factory=dict)
    """By position in the workload."""
    refused: dict[str, int] = field(default_factory=dict)
    """Number of refusals by reason."""
    horizon: float = NEVER
    """When the simulation was stopped at its horizon; infinity: it ran to its end [s]."""


NOTHING = Ledger()
"""The ledger of a run in which none of this could happen."""
