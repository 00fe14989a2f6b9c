"""What a queue on a Ray cluster is started with, and how its actors are named."""

from __future__ import annotations

from typing import NamedTuple


class Setup(NamedTuple):
    """What a queue is started with: it is what `up` says, kept for when the actor comes back."""

    name: str
    state: str
    """Directory of the queue's files; on the machine of the actor."""
    policy: str
    folder: str
    """Logs and locks, on a file system that all nodes share."""
    history: str | None = None
    recovery: str | None = None
    restart: bool = False
    """Restart failed jobs as the Failure Handler says, within recovery's default limits."""
    estimate: bool = True
    """Estimate jobs from their code and the history."""
    meter: tuple[str, ...] | None = None
    lease_s: float = 60.0
    keep_s: float = 30.0
    poll_s: float = 1.0


def prefix_of(name: str) -> str:
    """How the names of a queue's actors begin."""
    return f"schedmate-{name}"
