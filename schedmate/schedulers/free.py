"""Which GPUs of a cluster are free, and which are set apart: what `Space` books on."""

from __future__ import annotations

from schedmate.schedulers.apart import Apart
from schedmate.schedulers.demands import Hosts, Shares
from schedmate.schedulers.model import Allocation, Cluster, Job
from schedmate.schedulers.pools import Pools, lowest
from schedmate.schedulers.sites import Sites


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
        """Bit set of the nodes that the job may use, whatever is free there, and the GPUs of the
        largest of them."""
        nodes = size = 0
        for pool in self._pools.open_to(job.vc, job.gpu_type, ""):
            nodes |= pool.nodes
            size = max(size, pool.size)
        if job.constraints is not None:
            nodes &= self.sites.allowed(job.constraints)
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
            found = ((node, lowest(lent, job.gpus)),)
            if not self._hosts.afford(node, job, job.gpus):
                continue
            if job.constraints is not None and not self.sites.admits(job, found):
                continue
            if best is None or (size, node) < best[:2]:
                best = (size, node, found)
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
        before, given = self.free[node].bit_count(), mask.bit_count()
        if given:
            self.free[node] |= mask
            self.idle += given
            self._pool_of[node].move(1 << node, before, before + given)

    def _charge(self, job: Job, allocation: Allocation, sign: int) -> None:
        """Book (-1) or release (1) what goes with the GPUs."""
        if job.cpus or job.memory_mb:
            self._hosts.charge(job, allocation, sign)
        if job.constraints is not None:
            (self.sites.take if sign < 0 else self.sites.give)(job, allocation)
