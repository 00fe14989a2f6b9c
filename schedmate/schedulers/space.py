"""Free GPUs and where a job would go: consolidated best fit in constant time.

Nodes with the same number of free GPUs form a bucket, one bit a node; finding the fullest node
that still fits is two bit operations, whatever the size of the cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from schedmate.schedulers.model import Allocation, Cluster, Job

_EPSILON = 1e-9
GIVEN = "given"
_PLACES = 1 << 17
Booking = tuple[Job, Allocation] | tuple[Job, Allocation, str]
"""What was taken, or with `GIVEN` released."""


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
        buckets = self.buckets
        left = buckets[before] = buckets[before] ^ bit
        if not left:
            self.counts ^= 1 << before
        buckets[after] |= bit
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
        self._places: dict[tuple[int, int, int], Allocation] = {}
        self._journal: list[Booking] | None = None
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
        pools = self._resolve(job.vc, gpu_type or job.gpu_type, role)
        plain = job.share == 1.0 and not job.cpus and not job.memory_mb
        for pool in pools:
            if plain and gpus <= pool.size:
                if counts := pool.counts >> gpus:
                    nodes = pool.buckets[gpus + (counts & -counts).bit_length() - 1]
                    node = (nodes & -nodes).bit_length() - 1
                    free = self.free[node]
                    return self._places.get((node, free, gpus)) or self._place(node, free, gpus)
            elif allocation := self._find(job, gpus, pool):
                return allocation
        return None

    def place(self, job: Job, role: str = "") -> Allocation | None:
        """Find GPUs for the job and book them, at once."""
        gpus = job.gpus
        if gpus > self.idle and job.share == 1.0:
            return None
        if job.share == 1.0 and not job.cpus and not job.memory_mb:
            pools = self._found.get((job.vc, job.gpu_type, role))
            if pools and gpus <= (pool := pools[0]).size:
                counts = pool.counts >> gpus
                if not counts and len(pools) == 1:
                    return None
                if counts:
                    before = gpus + (counts & -counts).bit_length() - 1
                    buckets = pool.buckets
                    nodes = buckets[before]
                    bit = nodes & -nodes
                    node, free = bit.bit_length() - 1, self.free
                    left = free[node]
                    place = self._places.get((node, left, gpus)) or self._place(node, left, gpus)
                    # What `take` does, with all that is known already.
                    free[node] = left ^ place[0][1]
                    self.idle -= gpus
                    nodes ^= bit
                    buckets[before] = nodes
                    if not nodes:
                        pool.counts ^= 1 << before
                    after = before - gpus
                    buckets[after] |= bit
                    pool.counts |= 1 << after
                    if self._journal is not None:
                        self._journal.append((job, place))
                    return place
        allocation = self.find(job, role)
        if allocation is not None:
            self.take(job, allocation)
        return allocation

    def whole(self, job: Job) -> int:
        """How many nodes are free as a whole, of those that the job may use."""
        pools = self._resolve(job.vc, job.gpu_type, "")
        return sum(pool.buckets[pool.size].bit_count() for pool in pools)

    def free_for(self, job: Job) -> int:
        """Free GPUs of the nodes that the job may use."""
        return sum(
            free * nodes.bit_count()
            for pool in self._resolve(job.vc, job.gpu_type, "")
            for free, nodes in enumerate(pool.buckets)
        )

    def freest(self, job: Job) -> int:
        """The most free GPUs on one of the nodes that the job may use."""
        pools = self._resolve(job.vc, job.gpu_type, "")
        return max((pool.counts.bit_length() - 1 for pool in pools), default=0)

    def could(self, job: Job, role: str = "") -> bool:
        """Whether one node of this role is large enough for the job, were it free."""
        return any(job.gpus <= pool.size for pool in self._resolve(job.vc, job.gpu_type, role))

    def take(self, job: Job, allocation: Allocation, *, any_size: bool = False) -> bool:
        """Book the GPUs; False, and nothing booked, when one is not free, or they are too many.

        `any_size`: as many as these are, whatever the job asks for, as to profile it.
        """
        if job.share != 1.0:
            return self._take_share(job, allocation)
        free, gpus = self.free, 0
        for node, mask in allocation:
            gpus += mask.bit_count()
            if free[node] & mask != mask:
                return False
        if gpus != job.gpus and not any_size and not job.min_gpus <= gpus <= job.max_gpus:
            return False
        for node, mask in allocation:
            left = free[node] = free[node] ^ mask
            taken, after = mask.bit_count(), left.bit_count()
            self.idle -= taken
            pool, bit, before = self._pool_of[node], 1 << node, after + taken
            buckets = pool.buckets
            buckets[before] ^= bit
            if not buckets[before]:
                pool.counts ^= 1 << before
            buckets[after] |= bit
            pool.counts |= 1 << after
        if job.cpus or job.memory_mb:
            self._charge(job, allocation, -1)
        if self._journal is not None:
            self._journal.append((job, allocation))
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
            before, given = free[node].bit_count(), mask.bit_count()
            free[node] |= mask
            self.idle += given
            pool, bit, after = self._pool_of[node], 1 << node, before + given
            buckets = pool.buckets
            buckets[before] ^= bit
            if not buckets[before]:
                pool.counts ^= 1 << before
            buckets[after] |= bit
            pool.counts |= 1 << after
        if job.cpus or job.memory_mb:
            self._charge(job, allocation, 1)
        if self._journal is not None:
            self._journal.append((job, allocation, GIVEN))

    def begin(self) -> None:
        """From here on, remember what is booked and released, for `rollback`."""
        self._journal = []

    def rollback(self) -> None:
        """Undo everything since `begin`."""
        journal, self._journal = self._journal, None
        if journal:
            self._undo(journal)

    def settle(self, bookings: list[Booking]) -> bool:
        """End the transaction, keeping it when it is exactly these bookings; else undo it."""
        if self._journal == bookings:
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
        self._journal = None
        self._undo(journal[mark:])
        self._journal = journal[:mark]

    def _undo(self, journal: list[Booking]) -> None:
        for job, allocation, *given in reversed(journal):
            if given:
                self.take(job, allocation)
            else:
                self.give(job, allocation)

    def _place(self, node: int, free: int, gpus: int) -> Allocation:
        # The same places come again and again: the same object then, while they are not too many.
        if len(self._places) > _PLACES:
            self._places.clear()
        place = self._places[node, free, gpus] = ((node, lowest(free, gpus)),)
        return place

    def _resolve(self, vc: str, gpu_type: str, role: str) -> list[_Pool]:
        # A node without a VC is open to all; a cluster without VCs runs the jobs of any.
        wanted = (vc, gpu_type, role)
        found = self._found.get(wanted)
        if found is None:
            has_vcs = any(name for name, _, _ in self._pools)
            found = self._found[wanted] = [
                pool
                for (pool_vc, pool_type, pool_role), pool in self._pools.items()
                if pool_role == role
                and (not has_vcs or pool_vc in ("", vc))
                and (not gpu_type or pool_type in ("", gpu_type))
            ]
        return found

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
            self._journal.append((job, allocation))
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
