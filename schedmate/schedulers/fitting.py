"""Where a job would go in one pool of nodes: gangs, pods and parts of one GPU, best fit first."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from schedmate.schedulers.demands import Hosts, Shares
from schedmate.schedulers.model import Allocation, Job
from schedmate.schedulers.pools import Pool, bits, lowest
from schedmate.schedulers.sites import Sites

EVERY = -1
"""A bit set of all nodes."""

Order = Callable[[int], Iterator[int]]
"""The nodes of a bit set, best first; orders nodes that are equally full."""


def fit(
    job: Job,
    gpus: int,
    pool: Pool,
    free: list[int],
    hosts: Hosts,
    shares: Shares,
    sites: Sites | None,
    order: Order = bits,
    among: int = EVERY,
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
    """Below the switch with the fewest free GPUs that still has room."""
    found: list[tuple[int, int]] = []
    for switch in sites.switches():
        nodes = switch & allowed
        room = sum(
            count * (bucket & nodes).bit_count() for count, bucket in enumerate(pool.buckets)
        )
        if room >= gpus:
            found.append((room, nodes))
    for _, nodes in sorted(found):
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
    """Whole free nodes, then the rest on the node it fills best."""
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
        chosen.append((rest, lowest(free[rest], left)))
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
        chosen.append((node, lowest(free[node], gpus)))
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
    """The fullest GPU with room for it, otherwise an unused GPU."""
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
                return ((node, lowest(free[node], 1)),)
    return None
