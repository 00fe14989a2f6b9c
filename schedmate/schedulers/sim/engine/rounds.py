"""When a policy that decides in rounds is asked."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappush

from schedmate.durations import format_duration
from schedmate.errors import InputError
from schedmate.schedulers.sim.engine.events import TICK, Event
from schedmate.schedulers.terms import NEVER
from schedmate.schedulers.view import View

_IDLE = 1000
"""Rounds without running jobs, arrivals or decisions after which the simulation fails."""


MOST_ROUNDS = 1_000_000
"""Rounds that one job may run for: eleven years of six minutes. Each costs, whatever happens."""


def check_rounds(durations_s: Iterable[float], policy: str, interval_s: float) -> None:
    """Raises `InputError` for a job that would keep a policy deciding for hours of real time."""
    longest = max(durations_s, default=0.0)
    if longest / interval_s > MOST_ROUNDS:
        raise InputError(
            f"a job of the trace runs for {format_duration(longest)}, and policy {policy} decides "
            f"every {interval_s:g} s, which is {longest / interval_s:.2g} times. Leave that job "
            "out of the trace, or take a policy that decides when something happens."
        )


class Rounds:
    """The multiples of a policy's interval [s], each an event when it is needed."""

    def __init__(self, interval_s: float, view: View, events: list[Event]) -> None:
        self._interval_s = interval_s
        self._view = view
        self._events = events
        self._at = -NEVER  # the next round, or the last one
        self._idle = 0

    def due(self, now: float) -> bool:
        """Whether the policy decides now; if not, it will at its next round."""
        if now == self._at:
            return True
        at = self._first(now)
        if at > now and at != self._at:
            self._enter(at)
        return at == now

    def next(self, now: float, *, idle: bool) -> bool:
        """Enter the next round unless there are no jobs; returns whether it did."""
        self._idle = self._idle + 1 if idle else 0
        if not (self._view.pending.any() or self._view.running.any()):
            return False
        self._enter(self._first(now, after=True))
        return self._idle < _IDLE

    def _first(self, now: float, *, after: bool = False) -> float:
        """The first round from `now` on, or strictly after it."""
        rounds = now // self._interval_s
        at = rounds * self._interval_s
        while at < now or (after and at <= now):
            rounds += 1
            at = rounds * self._interval_s
        return at

    def _enter(self, at: float) -> None:
        self._at = at
        heappush(self._events, (at, TICK, -1, -1))
