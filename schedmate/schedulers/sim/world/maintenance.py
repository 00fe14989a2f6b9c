"""Nodes that are taken down on purpose."""

from __future__ import annotations

from typing import NamedTuple


class Maintenance(NamedTuple):
    """One node is drained, goes down, and comes back. Times are on the clock of the trace [s]."""

    node: int
    """Position in the cluster."""
    drain: float
    """Time from which nothing new starts there [s]."""
    down: float
    """When it goes down, with all that still runs there [s]."""
    up: float
    """When it is back [s]."""
