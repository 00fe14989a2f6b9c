"""Finds GPUs for a job: consolidated best fit in constant time, with gangs, pods and parts of
one GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from schedmate.schedulers.free import Free, Hosts, Pool, Shares, Sites, bits, lowest_gpus
from schedmate.schedulers.model import Allocation, Cluster, Job, gpus_in

EVERY_NODE = -1
"""A bit set of all nodes."""

Order = Callable[[int], Iterator[int]]
"""The nodes of a bit set, best first; orders nodes that are equally full."""


def best_fit(
    job: Job,
    gpus: int,
    pool: Pool,
    free: list[int],
    hosts: Hosts,
    shares: Shares,
    sites: Sites | None,
    order: Order = bits,
    among: int = EVERY_NODE,
) -> Allocation | None:
    """GPUs for the job in this pool on the fewest nodes, those with the least left over.

    `free`: bit mask of the free GPUs of each node. `sites`: for a job with constraints. `order`:
    which of nodes that are equally full comes first; `among`: bit set of nodes that it may use.
    """
    constraints = job.constraints
    if constraints is None or sites is None:
        if job.share != 1.0:
            return _share(job, pool, free, hosts, shares, among, order)
        return _whole(job, gpus, pool, free, hosts, among, order)
    allowed = sites.allowed(constraints) & among

    def place(nodes: int) -> Allocation | None:
        if job.share != 1.0:
            return _share(job, pool, free, hosts, shares, nodes, order)
        if not constraints.pods:
            return _whole(job, gpus, pool, free, hosts, nodes, order)
        each = job.gpus // constraints.pods
        if gpus % each:
            return None
        most = 1 if constraints.apart else pool.size // each
        return _pods(job, each, gpus // each, most, pool, free, hosts, nodes, order)

    if not constraints.within_switch:
        return place(allowed)
    return _within_switch(gpus, pool, allowed, sites, place)


def _within_switch(
    gpus: int,
    pool: Pool,
    allowed: int,
    sites: Sites,
    place: Callable[[int], Allocation | None],
) -> Allocation | None:
    """GPUs below the switch with the fewest free GPUs that still has room; None: below none."""
    switches: list[tuple[int, int]] = []
    for switch in sites.switches():
        nodes = switch & allowed
        room = sum(
            count * (bucket & nodes).bit_count() for count, bucket in enumerate(pool.buckets)
        )
        if room >= gpus:
            switches.append((room, nodes))
    for _, nodes in sorted(switches):
        if allocation := place(nodes):
            return allocation
    return None


def _whole(
    job: Job,
    gpus: int,
    pool: Pool,
    free: list[int],
    hosts: Hosts,
    allowed: int,
    order: Order,
) -> Allocation | None:
    """Whole free nodes, then the rest on the node that it fills best; None: it does not fit."""
    chosen: list[tuple[int, int]] = []
    left = gpus
    if left > pool.size:
        for node in order(pool.buckets[pool.size] & allowed):
            if left < pool.size:
                break
            if hosts.afford(node, job, pool.size):
                chosen.append((node, free[node]))
                left -= pool.size
        if left >= pool.size:
            return None
    if left:
        taken = {node for node, _ in chosen}
        rest = next(
            (
                node
                for count in range(left, pool.size + 1)
                for node in order(pool.buckets[count] & allowed)
                if node not in taken and hosts.afford(node, job, left)
            ),
            None,
        )
        if rest is None:
            return None
        chosen.append((rest, lowest_gpus(free[rest], left)))
    return tuple(sorted(chosen))


def _pods(
    job: Job,
    each: int,
    pods: int,
    most: int,
    pool: Pool,
    free: list[int],
    hosts: Hosts,
    allowed: int,
    order: Order,
) -> Allocation | None:
    """Put as many pods as fit on the node that they fill best, until all are placed."""
    chosen: list[tuple[int, int]] = []
    left, together = pods, min(pods, most)
    while left and together:
        gpus = together * each
        node = next(
            (
                node
                for count in range(gpus, pool.size + 1)
                for node in order(pool.buckets[count] & allowed)
                if hosts.afford(node, job, gpus)
            ),
            None,
        )
        if node is None:
            together -= 1
            continue
        chosen.append((node, lowest_gpus(free[node], gpus)))
        allowed &= ~(1 << node)
        left -= together
        together = min(together, left)
    return None if left else tuple(sorted(chosen))


def _share(
    job: Job,
    pool: Pool,
    free: list[int],
    hosts: Hosts,
    shares: Shares,
    allowed: int,
    order: Order,
) -> Allocation | None:
    """The fullest GPU with room for the job's part of one, otherwise an unused GPU."""
    open_gpus = [
        (used, -node, -gpu)
        for (node, gpu), used in shares.used.items()
        if pool.nodes >> node & 1
        and allowed >> node & 1
        and shares.fits(job, (node, gpu))
        and hosts.afford(node, job, job.gpus)
    ]
    if open_gpus:
        _, node, gpu = max(open_gpus)
        return ((-node, -gpu),)
    for count in range(1, pool.size + 1):
        for node in order(pool.buckets[count] & allowed):
            if hosts.afford(node, job, job.gpus):
                return ((node, lowest_gpus(free[node], 1)),)
    return None


# The free space of a cluster: placing, booking, transactions.


GIVEN, CLAIMED = "given", "claimed"
_PLACES = 1 << 17
Booking = tuple[Job, Allocation] | tuple[Job, Allocation, str]
"""Taken GPUs; with `GIVEN`, released; with `CLAIMED`, claimed."""


class Space(Free):
    """The free GPUs: `find` places a job, `take` books GPUs, `give` releases them."""

    __slots__ = ("_journal", "_places")

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._places: dict[tuple[int, int, int], Allocation] = {}
        self._journal: list[Booking] | None = None

    # Where a job would go.

    def find(
        self,
        job: Job,
        role: str = "",
        *,
        gpus: int = 0,
        gpu_type: str = "",
        borrow: bool = False,
        order: Order | None = None,
        among: int = EVERY_NODE,
    ) -> Allocation | None:
        """GPUs for `job` on the fewest nodes with the fewest GPUs left over; None: it does not fit
        now.

        Args:
            gpus, gpu_type: override the request of an elastic job.
            borrow: use nodes of other virtual clusters, for a `Borrow` or a `Profile`.
            order: order of equally full nodes; by default that of the cluster.
            among: bit set of the nodes that may be used.
        """
        gpus = gpus or job.gpus
        if gpus > self.idle and job.share == 1.0:
            return None
        open_to = self._pools.of_others if borrow else self._pools.open_to
        pools = open_to(job.vc, gpu_type or job.gpu_type, role)
        plain = job.share == 1.0 and not job.cpus and not job.memory_mb and job.constraints is None
        plain = plain and order is None and among == EVERY_NODE
        for pool in pools:
            if plain and gpus <= pool.size:
                if (node := pool.fullest(gpus)) >= 0:
                    return self._place(node, gpus)
            elif allocation := self._fit(job, gpus, pool, order or bits, among):
                return allocation
        return None

    def full(self, job: Job) -> bool:
        """Whether the job certainly does not fit; much quicker than `find`."""
        gpus = job.gpus
        if job.share != 1.0:
            return False
        if gpus > self.idle:
            return True
        pool = self._sole.get((job.vc, job.gpu_type, ""))
        if pool is None:
            return False
        if gpus > pool.size:
            return pool.buckets[pool.size].bit_count() < gpus // pool.size
        return not pool.counts >> gpus

    def place(self, job: Job, role: str = "") -> Allocation | None:
        """Find GPUs for the job and book them in one step."""
        gpus = job.gpus
        if job.share == 1.0:
            if gpus > self.idle:
                return None
            pool = self._sole.get((job.vc, job.gpu_type, role))
            if (
                pool is not None
                and gpus <= pool.size
                and not (job.cpus or job.memory_mb or job.constraints)
            ):
                # The same as `find` and `take` for most jobs, with everything known in between.
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

    # Booking.

    def take(self, job: Job, allocation: Allocation, *, any_size: bool = False) -> bool:
        """Book the GPUs; return False, without effect, if one is not free or the number is wrong.

        `any_size`: accept any number of GPUs, whatever the job requests, for example to profile it.
        """
        if job.share != 1.0:
            ((node, gpu),) = allocation
            if (node, gpu) in self._shares.used:
                if not self._shares.fits(job, (node, gpu)):
                    return False
            elif not self.free[node] & gpu:
                return False
            if job.constraints is not None and not self.sites.admits(job, allocation):
                return False
            if (node, gpu) not in self._shares.used:
                self._take(allocation)
            self._shares.take(job, (node, gpu))
        else:
            free, gpus = self.free, 0
            for node, mask in allocation:
                gpus += mask.bit_count()
                if free[node] & mask != mask:
                    return self._some_apart and self._borrow(job, allocation)
            if gpus != job.gpus and not any_size and not job.min_gpus <= gpus <= job.max_gpus:
                return False
            if job.constraints is not None and not self.sites.admits(job, allocation):
                return False
            self._take(allocation)
        if job.cpus or job.memory_mb or job.constraints:
            self._charge(job, allocation, -1)
        if self._journal is not None:
            self._journal.append((job, allocation))
        return True

    def give(self, job: Job, allocation: Allocation) -> None:
        """Release what `take` booked."""
        if job.share == 1.0 or self._shares.give(job, allocation[0]):
            free, apart = self.free, self._some_apart
            for node, mask in allocation:
                if apart and not (mask := self._apart.give(node, mask)):
                    continue
                left = free[node]
                free[node] = left | mask
                before, count = left.bit_count(), mask.bit_count()
                self.idle += count
                pool, bit = self._pool_of[node], 1 << node
                buckets = pool.buckets
                buckets[before] ^= bit
                if not buckets[before]:
                    pool.counts ^= 1 << before
                before += count
                buckets[before] |= bit
                pool.counts |= 1 << before
        if job.cpus or job.memory_mb or job.constraints:
            self._charge(job, allocation, 1)
        if self._journal is not None:
            self._journal.append((job, allocation, GIVEN))

    def claim(self, job: Job, allocation: Allocation) -> None:
        """Reserve GPUs for a job that starts when their present users have left.

        Whatever of them is free or comes free stays apart until `end_claim`.
        """
        self._claim(allocation)
        if job.cpus or job.memory_mb or job.constraints:
            self._charge(job, allocation, -1)
        if self._journal is not None:
            self._journal.append((job, allocation, CLAIMED))

    def end_claim(self, job: Job, allocation: Allocation) -> None:
        """Release a claim: its idle GPUs are free again."""
        self._end_claim(allocation)
        if job.cpus or job.memory_mb or job.constraints:
            self._charge(job, allocation, 1)

    # Transactions.

    def begin(self) -> None:
        """Record bookings and releases from here on, for `rollback`."""
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
        for job, allocation, *how in reversed(journal):
            if how == [CLAIMED]:
                self.end_claim(job, allocation)
            elif how:
                self._retake(job, allocation)
            else:
                self.give(job, allocation)

    # For `find`, `take` and `give`.

    def _fit(self, job: Job, gpus: int, pool: Pool, order: Order, among: int) -> Allocation | None:
        sites = None if job.constraints is None else self.sites
        return best_fit(job, gpus, pool, self.free, self._hosts, self._shares, sites, order, among)

    def _borrow(self, job: Job, allocation: Allocation) -> bool:
        """Book GPUs that other jobs lend."""
        if gpus_in(allocation) != job.gpus or not self._apart.borrow(allocation):
            return False
        if job.cpus or job.memory_mb or job.constraints:
            self._charge(job, allocation, -1)
        if self._journal is not None:
            self._journal.append((job, allocation))
        return True

    def _retake(self, job: Job, allocation: Allocation) -> None:
        """Undo `give`, in whichever pool the GPUs are now."""
        if job.share == 1.0 or allocation[0] not in self._shares.used:
            if self._some_apart:
                apart = self._apart
                self._take(tuple((node, apart.retake(node, mask)) for node, mask in allocation))
            else:
                self._take(allocation)
        if job.share != 1.0:
            self._shares.take(job, allocation[0])
        if job.cpus or job.memory_mb or job.constraints:
            self._charge(job, allocation, -1)

    def _place(self, node: int, gpus: int) -> Allocation:
        # The same places come again and again: the same object then, while they are not too many.
        key = (node, self.free[node], gpus)
        place = self._places.get(key)
        if place is None:
            if len(self._places) > _PLACES:
                self._places.clear()
            place = self._places[key] = ((node, lowest_gpus(self.free[node], gpus)),)
        return place
