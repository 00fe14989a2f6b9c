"""Equal nodes by their number of free GPUs: one bit for each node.

Finding the fullest node that still fits takes two bit operations, whatever the size of the cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from schedmate.schedulers.model import Node


@cache
def lowest(mask: int, count: int) -> int:
    """The `count` lowest bits set in `mask`."""
    chosen = 0
    for _ in range(count):
        bit = mask & -mask
        chosen |= bit
        mask ^= bit
    return chosen


def bits(mask: int) -> Iterator[int]:
    """The positions of the bits set in `mask`, ascending."""
    while mask:
        bit = mask & -mask
        yield bit.bit_length() - 1
        mask ^= bit


class Pool:
    """Nodes of one virtual cluster, GPU type and role."""

    __slots__ = ("buckets", "counts", "nodes", "size", "vc")

    def __init__(self, size: int, vc: str = "") -> None:
        self.size = size
        """GPUs of the largest node."""
        self.vc = vc
        self.nodes = 0
        """Bit set of its nodes."""
        self.buckets = [0] * (size + 1)
        """Free GPUs -> bit set of nodes."""
        self.counts = 0
        """Bit set of the free counts whose bucket is not empty."""

    def move(self, bit: int, before: int, after: int) -> None:
        """A node, given by its bit, had `before` free GPUs and has `after` now."""
        buckets = self.buckets
        left = buckets[before] = buckets[before] ^ bit
        if not left:
            self.counts ^= 1 << before
        buckets[after] |= bit
        self.counts |= 1 << after

    def fullest(self, gpus: int) -> int:
        """The node with the fewest free GPUs among those with at least this number; -1: none."""
        counts = self.counts >> gpus
        if not counts:
            return -1
        nodes = self.buckets[gpus + (counts & -counts).bit_length() - 1]
        return (nodes & -nodes).bit_length() - 1

    def whole(self) -> int:
        """How many nodes are free as a whole."""
        return self.buckets[self.size].bit_count()

    def freest(self) -> int:
        """The most GPUs free on one node."""
        return self.counts.bit_length() - 1


class Pools:
    """The pools of a cluster, and which of them a request may use."""

    def __init__(self, nodes: tuple[Node, ...]) -> None:
        sizes: dict[tuple[str, str, str], int] = {}
        for node in nodes:
            key = (node.vc, node.gpu_type, node.role)
            sizes[key] = max(sizes.get(key, 0), node.gpus)
        self._pools = {key: Pool(size, key[0]) for key, size in sizes.items()}
        self._open: dict[tuple[str, str, str], list[Pool]] = {}
        self.sole: dict[tuple[str, str, str], Pool] = {}
        """The only pool open to the job."""
        self.of = [self._pools[node.vc, node.gpu_type, node.role] for node in nodes]
        """The pool of each node."""
        for position, (node, pool) in enumerate(zip(nodes, self.of, strict=True)):
            pool.buckets[node.gpus] |= 1 << position
            pool.counts |= 1 << node.gpus
            pool.nodes |= 1 << position

    def open_to(self, vc: str, gpu_type: str, role: str) -> list[Pool]:
        """Those that a job of this virtual cluster may use, for this role.

        A node without a virtual cluster is open to all; a cluster without any runs all jobs.
        """
        wanted = (vc, gpu_type, role)
        found = self._open.get(wanted)
        if found is None:
            has_vcs = any(name for name, _, _ in self._pools)
            found = self._open[wanted] = [
                pool
                for (pool_vc, pool_type, pool_role), pool in self._pools.items()
                if pool_role == role
                and (not has_vcs or pool_vc in ("", vc))
                and (not gpu_type or pool_type in ("", gpu_type))
            ]
            if len(found) == 1:
                self.sole[wanted] = found[0]
        return found

    def of_others(self, vc: str, gpu_type: str, role: str) -> list[Pool]:
        """Those of other virtual clusters, which may lend nodes to this one."""
        return [
            pool
            for (pool_vc, pool_type, pool_role), pool in self._pools.items()
            if pool_vc not in ("", vc)
            and pool_role == role
            and (not gpu_type or pool_type in ("", gpu_type))
        ]
