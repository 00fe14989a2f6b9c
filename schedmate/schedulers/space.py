"""Free GPUs and where a job would go: consolidated best fit in constant time.

Nodes with the same number of free GPUs form a bucket, one bit a node; finding the fullest node
that still fits is two bit operations, whatever the size of the cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

from schedmate.schedulers.model import Allocation, Cluster, Job

_EPSILON = 1e-9


@cache
def lowest(mask: int, count: int) -> int:
    """The `count` lowest bits set in `mask`."""
    chosen = 0
    for _ in range(count):
        bit = mask & -mask
        chosen |= bit
        mask ^= bit
    return chosen


class _Pool:
    """Nodes of one virtual cluster, GPU type and role."""

    __slots__ = ("buckets", "counts", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.buckets = [0] * (size + 1)  # free GPUs -> bit set of nodes
        self.counts = 0  # bit set of the free counts whose bucket is not empty

    def move(self, node: int, before: int, after: int) -> None:
        bit = 1 << node
        left = self.buckets[before] ^ bit
        self.buckets[before] = left
        if not left:
            self.counts &= ~(1 << before)
        self.buckets[after] |= bit
        self.counts |= 1 << after


class Space:
    """Which GPUs are free. Jobs are put by `find`, booked by `take`, released by `give`."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        nodes = cluster.nodes
        self.free = [(1 << node.gpus) - 1 for node in nodes]
        """Bit mask of each node's free GPUs."""
        self.idle = cluster.gpus
        """Free GPUs of all nodes."""
        self.largest = max(node.gpus for node in nodes)
        """GPUs of the largest node."""
        self._cpus = [node.cpus or float("inf") for node in nodes]
        self._memory = [node.memory_mb or float("inf") for node in nodes]
        self._shared: dict[tuple[int, int], float] = {}  # (node, GPU bit) -> part in use
        self._pools: dict[tuple[str, str, str], _Pool] = {}
        self._pool_of: list[_Pool] = []
        self._found: dict[tuple[str, str, str], list[_Pool]] = {}
        self._journal: list[tuple[bool, Job, Allocation]] | None = None
        sizes: dict[tuple[str, str, str], int] = {}
        for node in nodes:
            key = (node.vc, node.gpu_type, node.role)
            sizes[key] = max(sizes.get(key, 0), node.gpus)
        self._pools = {key: _Pool(size) for key, size in sizes.items()}
        for position, node in enumerate(nodes):
            pool = self._pools[node.vc, node.gpu_type, node.role]
            pool.buckets[node.gpus] |= 1 << position
            pool.counts |= 1 << node.gpus
            self._pool_of.append(pool)

    @property
    def sharing(self) -> bool:
        """Whether a GPU is cut up among fractional jobs."""
        return bool(self._shared)

    def find(
        self, job: Job, role: str = "", *, gpus: int = 0, gpu_type: str = ""
    ) -> Allocation | None:
        """GPUs for `job` on the fewest nodes, those with the least left over; None: not now.

        `gpus` and `gpu_type` instead of what the job asks for, for one that is elastic.
        """
        gpus = gpus or job.gpus
        if gpus > self.idle and job.share == 1.0:
            return None
        wanted = (job.vc, gpu_type or job.gpu_type, role)
        pools = self._found.get(wanted)
        if pools is None:
            pools = self._found[wanted] = self._resolve(*wanted)
        plain = job.share == 1.0 and not job.cpus and not job.memory_mb
        for pool in pools:
            if plain and gpus <= pool.size:
                counts = pool.counts >> gpus
                if counts:
                    nodes = pool.buckets[gpus + (counts & -counts).bit_length() - 1]
                    node = (nodes & -nodes).bit_length() - 1
                    return ((node, lowest(self.free[node], gpus)),)
            elif allocation := self._find(job, gpus, pool):
                return allocation
        return None

    def could(self, job: Job, role: str = "") -> bool:
        """Whether one node of this role is large enough for the job, were it free."""
        return any(job.gpus <= pool.size for pool in self._resolve(job.vc, job.gpu_type, role))

    def take(self, job: Job, allocation: Allocation) -> bool:
        """Book the GPUs; False, and nothing booked, when one of them is not free."""
        if job.share != 1.0:
            return self._take_share(job, allocation)
        free = self.free
        for node, mask in allocation:
            if free[node] & mask != mask:
                return False
        for node, mask in allocation:
            before = free[node]
            after = before ^ mask
            free[node] = after
            taken = mask.bit_count()
            self.idle -= taken
            left = after.bit_count()
            self._pool_of[node].move(node, left + taken, left)
        if job.cpus or job.memory_mb:
            self._charge(job, allocation, -1)
        if self._journal is not None:
            self._journal.append((True, job, allocation))
        return True

    def give(self, job: Job, allocation: Allocation) -> None:
        """Release what `take` booked."""
        free = self.free
        if job.share != 1.0:
            ((node, mask),) = allocation
            used = self._shared[node, mask] - job.share
            if used > _EPSILON:
                self._shared[node, mask] = used
                allocation_freed: Allocation = ()
            else:
                del self._shared[node, mask]
                allocation_freed = allocation
        else:
            allocation_freed = allocation
        for node, mask in allocation_freed:
            before = free[node]
            free[node] = before | mask
            given = mask.bit_count()
            self.idle += given
            had = before.bit_count()
            self._pool_of[node].move(node, had, had + given)
        if job.cpus or job.memory_mb:
            self._charge(job, allocation, 1)
        if self._journal is not None:
            self._journal.append((False, job, allocation))

    def begin(self) -> None:
        """From here on, remember what is booked and released, for `rollback`."""
        self._journal = []

    def rollback(self) -> None:
        """Undo everything since `begin`."""
        journal, self._journal = self._journal, None
        for taken, job, allocation in reversed(journal or ()):
            if taken:
                self.give(job, allocation)
            else:
                self.take(job, allocation)

    def settle(self, bookings: Sequence[tuple[Job, Allocation]]) -> bool:
        """End the transaction, keeping it when it is exactly these bookings; else undo it."""
        journal = self._journal or ()
        if len(journal) == len(bookings):
            for (taken, job, allocation), (wanted, place) in zip(journal, bookings, strict=True):
                if not taken or job is not wanted or allocation is not place:
                    break
            else:
                self._journal = None
                return True
        self.rollback()
        return False

    def mark(self) -> int:
        """A point inside a transaction to `return_to`."""
        return len(self._journal or ())

    def return_to(self, mark: int) -> None:
        """Undo everything since `mark`, and stay in the transaction."""
        journal = self._journal
        assert journal is not None
        undone = journal[mark:]
        self._journal = None
        for taken, job, allocation in reversed(undone):
            if taken:
                self.give(job, allocation)
            else:
                self.take(job, allocation)
        self._journal = journal[:mark]

    def _resolve(self, vc: str, gpu_type: str, role: str) -> list[_Pool]:
        # A node without a VC is open to all; a cluster without VCs runs the jobs of any.
        has_vcs = any(name for name, _, _ in self._pools)
        return [
            pool
            for (pool_vc, pool_type, pool_role), pool in self._pools.items()
            if pool_role == role
            and (not has_vcs or pool_vc in ("", vc))
            and (not gpu_type or pool_type in ("", gpu_type))
        ]

    def _find(self, job: Job, gpus: int, pool: _Pool) -> Allocation | None:
        if job.share != 1.0:
            return self._find_share(job, pool)
        chosen: list[tuple[int, int]] = []
        left = gpus
        if left > pool.size:
            # A gang: whole free nodes, then the rest on the node it fills best.
            for node in _bits(pool.buckets[pool.size]):
                if left < pool.size:
                    break
                if self._affords(node, job, pool.size):
                    chosen.append((node, self.free[node]))
                    left -= pool.size
            if left >= pool.size:
                return None
        if left:
            taken = {node for node, _ in chosen}
            rest = next(
                (
                    node
                    for count in range(left, pool.size + 1)
                    for node in _bits(pool.buckets[count])
                    if node not in taken and self._affords(node, job, left)
                ),
                None,
            )
            if rest is None:
                return None
            chosen.append((rest, lowest(self.free[rest], left)))
        return tuple(sorted(chosen))

    def _find_share(self, job: Job, pool: _Pool) -> Allocation | None:
        # The fullest GPU with room for it, else a GPU of its own.
        open_gpus = [
            (used, node, gpu)
            for (node, gpu), used in self._shared.items()
            if self._pool_of[node] is pool
            and used + job.share <= 1.0 + _EPSILON
            and self._affords(node, job, job.gpus)
        ]
        if open_gpus:
            _, node, gpu = max(open_gpus, key=lambda one: (one[0], -one[1], -one[2]))
            return ((node, gpu),)
        for count in range(1, pool.size + 1):
            for node in _bits(pool.buckets[count]):
                if self._affords(node, job, job.gpus):
                    return ((node, lowest(self.free[node], 1)),)
        return None

    def _take_share(self, job: Job, allocation: Allocation) -> bool:
        ((node, mask),) = allocation
        used = self._shared.get((node, mask))
        if used is None:
            if self.free[node] & mask != mask:
                return False
            before = self.free[node].bit_count()
            self.free[node] ^= mask
            self.idle -= 1
            self._pool_of[node].move(node, before, before - 1)
            used = 0.0
        elif used + job.share > 1.0 + _EPSILON:
            return False
        self._shared[node, mask] = used + job.share
        if job.cpus or job.memory_mb:
            self._charge(job, allocation, -1)
        if self._journal is not None:
            self._journal.append((True, job, allocation))
        return True

    def _affords(self, node: int, job: Job, gpus: int) -> bool:
        part = gpus / job.gpus
        return (
            job.cpus * part <= self._cpus[node] + _EPSILON
            and job.memory_mb * part <= self._memory[node] + _EPSILON
        )

    def _charge(self, job: Job, allocation: Allocation, sign: int) -> None:
        for node, mask in allocation:
            part = sign * mask.bit_count() / job.gpus
            self._cpus[node] += part * job.cpus
            self._memory[node] += part * job.memory_mb


def _bits(mask: int) -> Iterator[int]:
    while mask:
        bit = mask & -mask
        yield bit.bit_length() - 1
        mask ^= bit
