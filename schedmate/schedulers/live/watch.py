"""Repeats an agent's passes: the pauses between them, and the backoff after failures."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from schedmate.schedulers.live.executor import ExecutorError
from schedmate.schedulers.live.loop import Agent
from schedmate.schedulers.live.report import Pass

LONGEST_WAIT_S = 300.0
"""The longest pause while the scheduler does not answer [s]."""


def pause_s(poll_s: float, failures: int, chance: float) -> float:
    """The pause after this number of failed passes in a row [s].

    It doubles, up to `LONGEST_WAIT_S`. `chance`, from 0 to 1, shortens it by up to a quarter, so
    that agents that lost one controller do not all return at once.
    """
    if not failures:
        return poll_s
    longest = max(poll_s, LONGEST_WAIT_S)
    return float(min(longest, poll_s * 2.0 ** min(failures, 30)) * (1.0 - 0.25 * chance))


def watch(
    agent: Agent,
    tell: Callable[[Pass], None],
    warn: Callable[[str], None],
    *,
    wait: Callable[[float], object] = time.sleep,
    goes_on: Callable[[], bool] = lambda: True,
) -> None:
    """Make passes until `goes_on` is false. An outage is reported when it starts and ends."""
    failures = 0
    while goes_on():
        began = time.monotonic()
        try:
            found = agent.once()
        except ExecutorError as error:
            if not failures:
                warn(f"{error}; nothing is done until it answers again.")
            failures += 1
        else:
            if failures:
                warn("the scheduler answers again.")
            failures = 0
            tell(found)
        took = time.monotonic() - began if not failures else 0.0
        # an agent that is slow pauses as long as it worked: it never takes more than half a core
        rest = pause_s(agent.bounds.poll, failures, random.random())  # noqa: S311 - no secret
        if goes_on():
            wait(max(rest - took, min(took, rest)))
