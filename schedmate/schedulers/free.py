"""Which GPUs of a cluster are free and which are set apart: what `Space` books on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache

from schedmate.schedulers.model import Allocation, Cluster, Constraints, Job, Node


class Sites:
    """Labels and switches of nodes, and the groups of the jobs on them."""

    def __init__(self, nodes: tuple[Node, ...]) -> None:
        self._every = (1 << len(nodes)) - 1
        self._labels: dict[tuple[str, str], int] = {}
        self._switches: dict[str, int] = {}
        self._switch_of = [node.switch for node in nodes]
        self._named = {node.name: 1 << position for position, node in enumerate(nodes)}
        for position, node in enumerate(nodes):
            for label in node.labels:
                self._labels[label] = self._labels.get(label, 0) | 1 << position
            self._switches[node.switch] = self._switches.get(node.switch, 0) | 1 << position
        self._held = _Counts()  # by group: nodes on which a job of it runs
        self._shunned = _Counts()  # by group: nodes on which a job runs that avoids it

    def allowed(self, constraints: Constraints) -> int:
        """The nodes that a job may use now."""
        nodes = self._every
        for label in constraints.require:
            nodes &= self._labels.get(label, 0)
        for group in constraints.avoid:
            nodes &= ~self._held.nodes(group)
        if constraints.group:
            nodes &= ~self._shunned.nodes(constraints.group)
        for name in constraints.without:
            nodes &= ~self._named.get(name, 0)
        return nodes

    def switches(self) -> Iterable[int]:
        """The nodes of each switch."""
        return self._switches.values()

    def admits(self, job: Job, allocation: Allocation) -> bool:
        """Whether the allocation is one that the job's constraints allow now."""
        constraints = job.constraints
        assert constraints is not None
        allowed = self.allowed(constraints)
        if any(not allowed >> node & 1 for node, _ in allocation):
            return False
        if constraints.within_switch and len({self._switch_of[node] for node, _ in allocation}) > 1:
            return False
        if not constraints.pods or job.share != 1.0:
            return True
        each = job.gpus // constraints.pods
        counts = [mask.bit_count() for _, mask in allocation]
        if constraints.apart:
            return all(count == each for count in counts)
        return all(count % each == 0 for count in counts)

    def take(self, job: Job, allocation: Allocation) -> None:
        """The job holds these nodes."""
        self._change(job, allocation, 1)

    def give(self, job: Job, allocation: Allocation) -> None:
        """The job leaves these nodes."""
        self._change(job, allocation, -1)

    def _change(self, job: Job, allocation: Allocation, by: int) -> None:
        constraints = job.constraints
        assert constraints is not None
        for node, _ in allocation:
            if constraints.group:
                self._held.change(constraints.group, node, by)
            for group in constraints.avoid:
                self._shunned.change(group, node, by)


class _Counts:
    """How many jobs of each group are on each node, and the nodes with any."""

    def __init__(self) -> None:
        self._count: dict[tuple[str, int], int] = {}
        self._nodes: dict[str, int] = {}

    def nodes(self, group: str) -> int:
        return self._nodes.get(group, 0)

    def change(self, group: str, node: int, by: int) -> None:
        count = self._count.get((group, node), 0) + by
        before = self._nodes.get(group, 0)
        if count:
            self._count[group, node] = count
            self._nodes[group] = before | 1 << node
        else:
            del self._count[group, node]
            self._nodes[group] = before & ~(1 << node)


# The free GPUs, by node and by pool.


class Free:
    """The free GPUs of each node, by pools of equal nodes."""

    __slots__ = (
        "_apart",
        "_hosts",
        "_pool_of",
        "_pools",
        "_shares",
        "_sites",
        "_sole",
        "_some_apart",
        "cluster",
        "free",
        "idle",
        "largest",
        "smallest",
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
        self.smallest = min(node.gpus for node in nodes)
        """GPUs of the smallest node."""
        self._hosts = Hosts(nodes)
        self._shares = Shares()
        self._pools = Pools(nodes)
        self._pool_of = self._pools.of
        self._sole = self._pools.sole
        self._apart = Apart()
        self._some_apart = False
        self._sites: Sites | None = None  # until a job has constraints

    @property
    def sharing(self) -> bool:
        """Whether a GPU is cut up among fractional jobs."""
        return bool(self._shares.used)

    @property
    def sites(self) -> Sites:
        """The nodes that constraints allow; maintained once a job has constraints."""
        if self._sites is None:
            self._sites = Sites(self.cluster.nodes)
        return self._sites

    def part_used(self, node: int, gpu: int) -> float:
        """Part of a GPU, given by its bit, that fractional jobs hold: 0 to 1."""
        return self._shares.used.get((node, gpu), 0.0)

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

    def open_to(self, job: Job) -> tuple[int, int]:
        """Bit set of the nodes that the job may use, whatever is free there, without closed ones,
        and the GPUs of the largest of them."""
        nodes = size = 0
        for pool in self._pools.open_to(job.vc, job.gpu_type, ""):
            nodes |= pool.nodes
            size = max(size, pool.size)
        if job.constraints is not None:
            nodes &= self.sites.allowed(job.constraints)
        for node in self._apart.closed:
            nodes &= ~(1 << node)
        return nodes, size

    def spare(self, node: int) -> tuple[float, float]:
        """Free CPUs and memory of a node [cores, MB]."""
        return self._hosts.spare(node)

    def ready(self, job: Job, allocation: Allocation) -> bool:
        """Whether the GPUs are free, and with them what else the job needs there."""
        if job.share != 1.0 and allocation[0] in self._shares.used:
            return self._shares.fits(job, allocation[0])
        return all(
            self.free[node] & mask == mask and self.affords(node, job, mask.bit_count())
            for node, mask in allocation
        )

    def affords(self, node: int, job: Job, gpus: int) -> bool:
        """Whether the node has the CPUs and memory that belong to this number of the job's GPUs."""
        return self._hosts.afford(node, job, gpus)

    def could(self, job: Job, role: str = "") -> bool:
        """Whether one node of this role is large enough for the job, were it free."""
        sole = self._sole.get((job.vc, job.gpu_type, role))
        if sole is not None:
            return job.gpus <= sole.size
        pools = self._pools.open_to(job.vc, job.gpu_type, role)
        return any(job.gpus <= pool.size for pool in pools)

    # GPUs that are set apart: of nodes that are closed, and lent.

    def close(self, node: int) -> None:
        """Close the node: nothing new may start there, and returned GPUs stay unused."""
        free = self.free[node]
        self._take(((node, free),))
        self._apart.close(node, free)
        self._some_apart = True

    def reopen(self, node: int) -> None:
        """The node is as any other again."""
        self._release(node, self._apart.reopen(node))
        self._some_apart = bool(self._apart)

    def closed(self, node: int) -> bool:
        """Whether the node is closed."""
        return node in self._apart.closed

    def freed(self, allocation: Allocation) -> Allocation:
        """What of an allocation others could use if it were given back: not on closed nodes."""
        if not self._some_apart:
            return allocation
        return tuple(
            (node, rest) for node, mask in allocation if (rest := self._apart.freed(node, mask))
        )

    def lend(self, job: Job, allocation: Allocation) -> None:
        """The job keeps its GPUs but does not use them: others may borrow them."""
        for node, mask in allocation:
            self._apart.lend(node, mask)
        self._some_apart = True
        self._hosts.charge(job, allocation, 1)

    def call_back(self, allocation: Allocation) -> None:
        """End lending of these GPUs; present borrowers keep using them."""
        for node, mask in allocation:
            self._apart.call_back(node, mask)

    def end_loan(self, job: Job, allocation: Allocation, *, left: bool) -> None:
        """The job uses its GPUs again, or with `left`, leaves them, some perhaps to borrowers."""
        for node, mask in allocation:
            self._release(node, self._apart.end_loan(node, mask, left=left))
        self._some_apart = bool(self._apart)
        if not left:
            self._hosts.charge(job, allocation, -1)
        elif job.constraints is not None:
            self.sites.give(job, allocation)

    def owed(self, node: int) -> int:
        """Bit mask of the GPUs of a node that are reserved: for the job that lends them, or for one
        about to start."""
        return self._apart.lending.get(node, 0) | self._apart.claimed.get(node, 0)

    def _claim(self, allocation: Allocation) -> None:
        for node, mask in allocation:
            free = self.free[node] & mask
            self._take(((node, free),))
            self._apart.claim(node, mask, free)
            self._shares.promise(node, mask)
        self._some_apart = True

    def _end_claim(self, allocation: Allocation) -> None:
        for node, mask in allocation:
            self._release(node, self._apart.end_claim(node, mask))
            self._shares.end_promise(node, mask)
        self._some_apart = bool(self._apart)

    def lent(self, node: int) -> int:
        """Bit mask of the GPUs of a node that can be borrowed now."""
        return self._apart.lent(node)

    def borrows(self, allocation: Allocation) -> bool:
        """Whether any of these GPUs is one that a job lends."""
        lending = self._apart.lending
        return bool(lending) and any(lending.get(node, 0) & mask for node, mask in allocation)

    def lending(self) -> int:
        """Number of GPUs that can be borrowed now."""
        return sum(self._apart.lent(node).bit_count() for node in self._apart.lendable)

    def find_lent(self, job: Job) -> Allocation | None:
        """GPUs on one node that other jobs lend, those of the smallest loan that is enough."""
        nodes, apart = self.cluster.nodes, self._apart
        best: tuple[int, int, Allocation] | None = None
        unheld, closed = apart.unheld, apart.closed
        for node, mask in apart.lendable.items() if job.share == 1.0 else ():
            lent = mask & unheld[node] if node in unheld and node not in closed else 0
            size = lent.bit_count()
            if size < job.gpus or (job.gpu_type and nodes[node].gpu_type not in ("", job.gpu_type)):
                continue
            place = ((node, lowest_gpus(lent, job.gpus)),)
            if not self._hosts.afford(node, job, job.gpus):
                continue
            if job.constraints is not None and not self.sites.admits(job, place):
                continue
            if best is None or (size, node) < best[:2]:
                best = (size, node, place)
        return None if best is None else best[2]

    def _take(self, allocation: Allocation) -> None:
        free = self.free
        for node, mask in allocation:
            before, taken = free[node].bit_count(), mask.bit_count()
            if taken:
                free[node] ^= mask
                self.idle -= taken
                self._pool_of[node].move(1 << node, before, before - taken)

    def _release(self, node: int, mask: int) -> None:
        before, count = self.free[node].bit_count(), mask.bit_count()
        if count:
            self.free[node] |= mask
            self.idle += count
            self._pool_of[node].move(1 << node, before, before + count)

    def _charge(self, job: Job, allocation: Allocation, sign: int) -> None:
        """Book (-1) or release (1) what goes with the GPUs."""
        if job.cpus or job.memory_mb:
            self._hosts.charge(job, allocation, sign)
        if job.constraints is not None:
            (self.sites.take if sign < 0 else self.sites.give)(job, allocation)


# Equal nodes by their number of free GPUs: one bit for each node.
#
# Finding the fullest node that still fits takes two bit operations, whatever the size of the
# cluster.


@cache
def lowest_gpus(mask: int, count: int) -> int:
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
        pools = self._open.get(wanted)
        if pools is None:
            has_vcs = any(name for name, _, _ in self._pools)
            pools = self._open[wanted] = [
                pool
                for (pool_vc, pool_type, pool_role), pool in self._pools.items()
                if pool_role == role
                and (not has_vcs or pool_vc in ("", vc))
                and (not gpu_type or pool_type in ("", gpu_type))
            ]
            if len(pools) == 1:
                self.sole[wanted] = pools[0]
        return pools

    def of_others(self, vc: str, gpu_type: str, role: str) -> list[Pool]:
        """The pools of other virtual clusters, which may lend nodes to this one."""
        return [
            pool
            for (pool_vc, pool_type, pool_role), pool in self._pools.items()
            if pool_vc not in ("", vc)
            and pool_role == role
            and (not gpu_type or pool_type in ("", gpu_type))
        ]


# Use of a node besides whole GPUs: parts of GPUs, CPUs, memory.


_EPSILON = 1e-9


class Shares:
    """The parts of GPUs that fractional jobs hold."""

    def __init__(self) -> None:
        self.used: dict[tuple[int, int], float] = {}
        """(node, bit of the GPU) -> part in use, of those that are cut up."""
        self.promised: dict[int, int] = {}
        """Shared GPUs, by node, that are reserved for another job once their users have left."""

    def fits(self, job: Job, gpu: tuple[int, int]) -> bool:
        """Whether a GPU that is cut up has room for the job."""
        if self.promised and self.promised.get(gpu[0], 0) & gpu[1]:
            return False
        return self.used[gpu] + job.share <= 1.0 + _EPSILON

    def promise(self, node: int, mask: int) -> None:
        """Admit no further job to these shared GPUs."""
        self.promised[node] = self.promised.get(node, 0) | mask

    def end_promise(self, node: int, mask: int) -> None:
        """End a promise: these GPUs may be shared again."""
        left = self.promised.pop(node, 0) & ~mask
        if left:
            self.promised[node] = left

    def take(self, job: Job, gpu: tuple[int, int]) -> None:
        """The job holds its part of the GPU."""
        self.used[gpu] = self.used.get(gpu, 0.0) + job.share

    def give(self, job: Job, gpu: tuple[int, int]) -> bool:
        """The job leaves; whether the GPU is free as a whole again."""
        left = self.used[gpu] - job.share
        if left > _EPSILON:
            self.used[gpu] = left
            return False
        del self.used[gpu]
        return True


class Hosts:
    """Processors and memory that are left on each node."""

    def __init__(self, nodes: tuple[Node, ...]) -> None:
        self._cpus = [node.cpus or float("inf") for node in nodes]
        self._memory = [node.memory_mb or float("inf") for node in nodes]

    def afford(self, node: int, job: Job, gpus: int) -> bool:
        """Whether the node has the CPUs and memory that belong to this number of the job's GPUs."""
        part = gpus / job.gpus if job.gpus else 1.0
        return (
            job.cpus * part <= self._cpus[node] + _EPSILON
            and job.memory_mb * part <= self._memory[node] + _EPSILON
        )

    def spare(self, node: int) -> tuple[float, float]:
        """What the node has left [cores, MB]."""
        return self._cpus[node], self._memory[node]

    def charge(self, job: Job, allocation: Allocation, sign: int) -> None:
        """Take (-1) or return (1) what belongs to these GPUs."""
        for node, mask in allocation:
            part = sign * mask.bit_count() / job.gpus if job.gpus else float(sign)
            self._cpus[node] += part * job.cpus
            self._memory[node] += part * job.memory_mb


# GPUs that do not go back to the free ones: of nodes that are drained or down, lent or claimed.


class Apart:
    """By node, the GPUs set apart and which of them are idle."""

    __slots__ = ("claimed", "closed", "lendable", "lending", "unheld")

    def __init__(self) -> None:
        self.closed: set[int] = set()
        """Nodes on which nothing new may start."""
        self.lending: dict[int, int] = {}
        """GPUs of jobs that lend them, or that reclaim them from their borrowers."""
        self.lendable: dict[int, int] = {}
        """Of these, those that may be borrowed from now on."""
        self.claimed: dict[int, int] = {}
        """GPUs kept for jobs that start when others have left all of theirs."""
        self.unheld: dict[int, int] = {}
        """GPUs of any of these kinds that no job uses."""

    def __bool__(self) -> bool:
        return bool(self.closed or self.lending or self.claimed)

    def close(self, node: int, free: int) -> None:
        """Close a node with these free GPUs: nothing new may start there."""
        self.closed.add(node)
        self._mark(node, free)

    def reopen(self, node: int) -> int:
        """Return the node to normal use; return its free GPUs."""
        self.closed.discard(node)
        return self._unmark(node, ~(self.lending.get(node, 0) | self.claimed.get(node, 0)))

    def lend(self, node: int, mask: int) -> None:
        """Lend these GPUs, which their holder does not use at present."""
        self.lending[node] = self.lending.get(node, 0) | mask
        self.lendable[node] = self.lendable.get(node, 0) | mask
        self._mark(node, mask)

    def call_back(self, node: int, mask: int) -> None:
        """End lending of these GPUs; present borrowers keep using them."""
        self.lendable[node] = self.lendable.get(node, 0) & ~mask

    def end_loan(self, node: int, mask: int, *, left: bool) -> int:
        """End a loan: the holder uses these GPUs again, or has `left` them.

        Returns the mask of the GPUs that are free now.
        """
        for masks in (self.lending, self.lendable):
            if rest := masks.get(node, 0) & ~mask:
                masks[node] = rest
            else:
                masks.pop(node, None)
        if left and node in self.closed:
            return 0
        unheld = self._unmark(node, mask)
        return unheld if left else 0

    def claim(self, node: int, mask: int, free: int) -> None:
        """Reserve GPUs for a job; some of them are `free` already."""
        self.claimed[node] = self.claimed.get(node, 0) | mask
        self._mark(node, free)

    def end_claim(self, node: int, mask: int) -> int:
        """End the claim of these GPUs; return those that are free now."""
        if rest := self.claimed.get(node, 0) & ~mask:
            self.claimed[node] = rest
        else:
            self.claimed.pop(node, None)
        return 0 if node in self.closed else self._unmark(node, mask)

    def lent(self, node: int) -> int:
        """GPUs of a node that can be borrowed now."""
        return 0 if node in self.closed else self.unheld.get(node, 0) & self.lendable.get(node, 0)

    def borrow(self, allocation: Allocation) -> bool:
        """Borrow these; False, without effect, if one of them cannot be borrowed."""
        if any(self.lent(node) & mask != mask for node, mask in allocation):
            return False
        for node, mask in allocation:
            self._unmark(node, mask)
        return True

    def give(self, node: int, mask: int) -> int:
        """Release GPUs; return those that are free for other jobs now."""
        apart = mask & ~self.freed(node, mask)
        if apart:
            self._mark(node, apart)
        return mask & ~apart

    def freed(self, node: int, mask: int) -> int:
        """The GPUs that would be free for other jobs were these given back."""
        if node in self.closed:
            return 0
        return mask & ~(self.lending.get(node, 0) | self.claimed.get(node, 0))

    def retake(self, node: int, mask: int) -> int:
        """Undo `give`; return the GPUs that were free."""
        return mask & ~self._unmark(node, mask)

    def _mark(self, node: int, mask: int) -> None:
        self.unheld[node] = self.unheld.get(node, 0) | mask

    def _unmark(self, node: int, mask: int) -> int:
        unheld = self.unheld.get(node, 0)
        if rest := unheld & ~mask:
            self.unheld[node] = rest
        else:
            self.unheld.pop(node, None)
        return unheld & mask
