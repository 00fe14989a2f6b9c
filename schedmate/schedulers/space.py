"""Free GPUs and where a job would go: consolidated best fit in constant time."""

from __future__ import annotations

from collections.abc import Sequence

from schedmate.schedulers.demands import Hosts, Shares
from schedmate.schedulers.model import Allocation, Cluster, Job
from schedmate.schedulers.pools import Pool, Pools, bits, lowest

GIVEN = "given"
_PLACES = 1 << 17
Booking = tuple[Job, Allocation] | tuple[Job, Allocation, str]
"""What was taken, or with `GIVEN` released."""


class Space:
    """Which GPUs are free. Jobs are put by `find`, booked by `take`, released by `give`."""

    __slots__ = (
        "_hosts",
        "_journal",
        "_places",
        "_pool_of",
        "_pools",
        "_shares",
        "_sole",
        "cluster",
        "free",
        "idle",
        "largest",
    )

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        nodes = cluster.nodes
        self.free = [(1 << node.gpus) - 1 for node in nodes]
        """Bit mask of each node's free GPUs."""
        self.idle = cluster.gpus
        """Free GPUs of all nodes."""
        self.largest = max(node.gpus for node in nodes)
        """GPUs of the largest node."""
        self._hosts = Hosts(nodes)
        self._shares = Shares()
        self._pools = Pools(nodes)
        self._pool_of = self._pools.of
        self._sole = self._pools.sole
        self._places: dict[tuple[int, int, int], Allocation] = {}
        self._journal: list[Booking] | None = None

    @property
    def sharing(self) -> bool:
        """Whether a GPU is cut up among fractional jobs."""
        return bool(self._shares.used)

    # Where a job would go.

    def find(
        self, job: Job, role: str = "", *, gpus: int = 0, gpu_type: str = ""
    ) -> Allocation | None:
        """GPUs for `job` on the fewest nodes, those with the least left over; None: not now.

        `gpus` and `gpu_type` instead of what the job asks for, for one that is elastic.
        """
        gpus = gpus or job.gpus
        if gpus > self.idle and job.share == 1.0:
            return None
        pools = self._pools.open_to(job.vc, gpu_type or job.gpu_type, role)
        plain = job.share == 1.0 and not job.cpus and not job.memory_mb
        for pool in pools:
            if plain and gpus <= pool.size:
                if (node := pool.fullest(gpus)) >= 0:
                    return self._place(node, gpus)
            elif allocation := self._find(job, gpus, pool):
                return allocation
        return None

    def place(self, job: Job, role: str = "") -> Allocation | None:
        """Find GPUs for the job and book them, at once."""
        gpus = job.gpus
        if job.share == 1.0:
            if gpus > self.idle:
                return None
            pool = self._sole.get((job.vc, job.gpu_type, role))
            if pool is not None and gpus <= pool.size and not (job.cpus or job.memory_mb):
                # What `find` and `take` do, for most jobs, with all that is known in between.
                counts = pool.counts >> gpus
                if not counts:
                    return None
                before = gpus + (counts & -counts).bit_length() - 1
                buckets, free = pool.buckets, self.free
                nodes = buckets[before]
                bit = nodes & -nodes
                node = bit.bit_length() - 1
                left = free[node]
                place = self._places.get((node, left, gpus)) or self._place(node, gpus)
                free[node] = left ^ place[0][1]
                self.idle -= gpus
                nodes ^= bit
                buckets[before] = nodes
                if not nodes:
                    pool.counts ^= 1 << before
                buckets[before - gpus] |= bit
                pool.counts |= 1 << before - gpus
                if self._journal is not None:
                    self._journal.append((job, place))
                return place
        allocation = self.find(job, role)
        if allocation is not None:
            self.take(job, allocation)
        return allocation

    def whole(self, job: Job) -> int:
        """How many nodes are free as a whole, of those that the job may use."""
        return sum(pool.whole() for pool in self._pools.open_to(job.vc, job.gpu_type, ""))

    def free_for(self, job: Job) -> int:
        """Free GPUs of the nodes that the job may use."""
        return sum(
            free * nodes.bit_count()
            for pool in self._pools.open_to(job.vc, job.gpu_type, "")
            for free, nodes in enumerate(pool.buckets)
        )

    def freest(self, job: Job) -> int:
        """The most free GPUs on one of the nodes that the job may use."""
        pools = self._pools.open_to(job.vc, job.gpu_type, "")
        return max((pool.freest() for pool in pools), default=0)

    def could(self, job: Job, role: str = "") -> bool:
        """Whether one node of this role is large enough for the job, were it free."""
        pools = self._pools.open_to(job.vc, job.gpu_type, role)
        return any(job.gpus <= pool.size for pool in pools)

    # Booking.

    def take(self, job: Job, allocation: Allocation, *, any_size: bool = False) -> bool:
        """Book the GPUs; False, and nothing booked, when one is not free, or they are too many.

        `any_size`: as many as these are, whatever the job asks for, as to profile it.
        """
        if job.share != 1.0:
            ((node, gpu),) = allocation
            if (node, gpu) in self._shares.used:
                if not self._shares.fits(job, (node, gpu)):
                    return False
            elif not self.free[node] & gpu:
                return False
            else:
                self._take(allocation)
            self._shares.take(job, (node, gpu))
        else:
            free, gpus = self.free, 0
            for node, mask in allocation:
                gpus += mask.bit_count()
                if free[node] & mask != mask:
                    return False
            if gpus != job.gpus and not any_size and not job.min_gpus <= gpus <= job.max_gpus:
                return False
            self._take(allocation)
        if job.cpus or job.memory_mb:
            self._hosts.charge(job, allocation, -1)
        if self._journal is not None:
            self._journal.append((job, allocation))
        return True

    def give(self, job: Job, allocation: Allocation) -> None:
        """Release what `take` booked."""
        if job.share == 1.0 or self._shares.give(job, allocation[0]):
            free = self.free
            for node, mask in allocation:
                left = free[node]
                free[node] = left | mask
                before, given = left.bit_count(), mask.bit_count()
                self.idle += given
                pool, bit = self._pool_of[node], 1 << node
                buckets = pool.buckets
                buckets[before] ^= bit
                if not buckets[before]:
                    pool.counts ^= 1 << before
                before += given
                buckets[before] |= bit
                pool.counts |= 1 << before
        if job.cpus or job.memory_mb:
            self._hosts.charge(job, allocation, 1)
        if self._journal is not None:
            self._journal.append((job, allocation, GIVEN))

    # Transactions.

    def begin(self) -> None:
        """From here on, remember what is booked and released, for `rollback`."""
        self._journal = []

    def rollback(self) -> None:
        """Undo everything since `begin`."""
        journal, self._journal = self._journal, None
        if journal:
            self._undo(journal)

    def settle(self, bookings: Sequence[object]) -> bool:
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
                self.take(job, allocation, any_size=True)
            else:
                self.give(job, allocation)

    def _take(self, allocation: Allocation) -> None:
        free = self.free
        for node, mask in allocation:
            before, taken = free[node].bit_count(), mask.bit_count()
            free[node] ^= mask
            self.idle -= taken
            self._pool_of[node].move(1 << node, before, before - taken)

    def _place(self, node: int, gpus: int) -> Allocation:
        # The same places come again and again: the same object then, while they are not too many.
        key = (node, self.free[node], gpus)
        place = self._places.get(key)
        if place is None:
            if len(self._places) > _PLACES:
                self._places.clear()
            place = self._places[key] = ((node, lowest(self.free[node], gpus)),)
        return place

    def _find(self, job: Job, gpus: int, pool: Pool) -> Allocation | None:
        if job.share != 1.0:
            return self._find_share(job, pool)
        chosen: list[tuple[int, int]] = []
        left = gpus
        if left > pool.size:
            # A gang: whole free nodes, then the rest on the node it fills best.
            for node in bits(pool.buckets[pool.size]):
                if left < pool.size:
                    break
                if self._hosts.afford(node, job, pool.size):
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
                    for node in bits(pool.buckets[count])
                    if node not in taken and self._hosts.afford(node, job, left)
                ),
                None,
            )
            if rest is None:
                return None
            chosen.append((rest, lowest(self.free[rest], left)))
        return tuple(sorted(chosen))

    def _find_share(self, job: Job, pool: Pool) -> Allocation | None:
        # The fullest GPU with room for it, else a GPU of its own.
        open_gpus = [
            (used, -node, -gpu)
            for (node, gpu), used in self._shares.used.items()
            if self._pool_of[node] is pool
            and self._shares.fits(job, (node, gpu))
            and self._hosts.afford(node, job, job.gpus)
        ]
        if open_gpus:
            _, node, gpu = max(open_gpus)
            return ((-node, -gpu),)
        for count in range(1, pool.size + 1):
            for node in bits(pool.buckets[count]):
                if self._hosts.afford(node, job, job.gpus):
                    return ((node, lowest(self.free[node], 1)),)
        return None
