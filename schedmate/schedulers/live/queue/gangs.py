"""Seats, gangs (one run on its seats) and the events of runs."""

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
    """A run did not start on all of its nodes, and no part of it remains."""

    run: int
    why: str


class Ended(NamedTuple):
    """All commands of a run have ended; `report` is that of the one that failed first, if any."""

    run: int
    report: dict[str, Any]


class Lost(NamedTuple):
    """A runner or its node is gone; its commands have ended by `safe_at` [s since epoch]."""

    run: int
    why: str
    safe_at: float


Event = Started | NotStarted | Ended | Lost


@dataclass(eq=False)
class Seat:
    """A runner that holds GPUs of one node."""

    name: str
    node: str
    gpus: float
    handle: Any
    runs: set[int] = field(default_factory=set)
    ready: bool = False
    born: float = 0.0
    idle_since: float = 0.0
    waits: bool = False
    """Whether a call for news is pending."""
    silent_since: float | None = None
    ask_at: float = 0.0
    seen: set[int] = field(default_factory=set)
    """Runs whose end is known, which the next call acknowledges."""


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
    """Signal and grace time [s] of the request to stop."""

    @property
    def over(self) -> bool:
        """Whether every seat's command has ended or is lost."""
        return len(self.ended) + len(self.gone) == len(self.seats)

    def result(self) -> Event:
        """The outcome of a run that is over."""
        if self.gone:
            return Lost(self.run, next(iter(self.gone.values())), self.safe_at)
        if self.refused:
            return NotStarted(self.run, self.refused)
        reports = sorted(self.ended.values(), key=lambda one: float(one.get("ended", 0.0)))
        failed = [one for one in reports if one.get("exit_code") != 0]
        return Ended(self.run, failed[0] if failed else reports[-1])
