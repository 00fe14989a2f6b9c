"""What seats hold, and what happens to runs on them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from schedmate.schedulers.live.queue.runner import Order


class Started(NamedTuple):
    """All commands of a run have started."""

    run: int
    at: float
    """[s since epoch]"""


class NotStarted(NamedTuple):
    """A run was not started on all of its nodes, and no part of it remains."""

    run: int
    why: str


class Ended(NamedTuple):
    """All commands of a run have ended; `report` is that of the one that failed first, if any."""

    run: int
    report: dict[str, Any]


class Lost(NamedTuple):
    """A runner or its node is gone; from `safe_at` on [s since epoch] nothing of it is alive."""

    run: int
    why: str
    safe_at: float


Event = Started | NotStarted | Ended | Lost


@dataclass(eq=False)
class Seat:
    name: str
    node: str
    gpus: float
    handle: Any
    runs: set[int] = field(default_factory=set)
    ready: bool = False
    born: float = 0.0
    idle_since: float = 0.0
    waits: bool = False
    """Whether a call for news is under way."""
    silent_since: float | None = None
    ask_at: float = 0.0
    seen: set[int] = field(default_factory=set)
    """Runs whose end is known, to be said with the next call."""


@dataclass(eq=False)
class Gang:
    """One run on its seats, by rank."""

    run: int
    seats: list[Seat]
    orders: list[Order]
    sent: bool = False
    started: dict[int, float] = field(default_factory=dict)
    ended: dict[int, dict[str, Any]] = field(default_factory=dict)
    gone: dict[int, str] = field(default_factory=dict)
    refused: str = ""
    safe_at: float = 0.0
    stop: tuple[int, float] | None = None
    """The signal and the grace time [s] with which it was told to stop."""

    @property
    def over(self) -> bool:
        return len(self.ended) + len(self.gone) == len(self.seats)
