"""The nodes of a cluster for guards: their partitions, and whether they are in service."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from schedmate.schedulers.live.actions import REASON_PREFIX


@dataclass(frozen=True)
class Inventory:
    """All nodes, as last observed. Empty: unknown, and no node may be taken out of service."""

    partitions: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The nodes of each partition; a node may be in several."""
    out: Mapping[str, str] = field(default_factory=dict)
    """Nodes out of service, with the scheduler's reason."""
    seen: int = 0
    """The number of the record's last entry at the time of observation: later drains are not
    included."""

    @property
    def nodes(self) -> frozenset[str]:
        """Every node of every partition."""
        return frozenset().union(*self.partitions.values())

    @property
    def ours(self) -> frozenset[str]:
        """The nodes that are out of service for a reason of schedmate's."""
        return frozenset(
            node for node, reason in self.out.items() if reason.startswith(REASON_PREFIX)
        )

    @classmethod
    def of(cls, nodes: Iterable[tuple[str, Iterable[str], str | None]]) -> Inventory:
        """From (node, its partitions, the reason why it is out of service or None)."""
        partitions: dict[str, set[str]] = {}
        out: dict[str, str] = {}
        for node, places, reason in nodes:
            for place in places:
                partitions.setdefault(place, set()).add(node)
            if reason is not None:
                out[node] = reason
        return cls({name: frozenset(one) for name, one in partitions.items()}, out)


class HasInventory(Protocol):
    """An executor that lists the nodes of its cluster."""

    def inventory(self) -> Inventory:
        """The nodes as they are now. Raises `ExecutorError` when they cannot be listed."""
        ...
