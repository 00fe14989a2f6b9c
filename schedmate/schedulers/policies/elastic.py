"""What policies of elastic jobs share: the shapes that a job may get, and from shapes to GPUs.

Shapes are those of Sia (section 3.1), and so is the placement with few moves (section 3.3).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

from schedmate.schedulers.free import lowest_gpus
from schedmate.schedulers.goodput import Shape
from schedmate.schedulers.model import Allocation, Cluster, Job, gpus_in
from schedmate.schedulers.policy import Decision, Migrate, Preempt, Resize, Start, View


@lru_cache(maxsize=64)
def cluster_shapes(cluster: Cluster) -> tuple[Shape, ...]:
    """Powers of two within a node, whole nodes beyond, for every GPU type of the cluster."""
    shapes: list[Shape] = []
    for gpu_type, count, size in node_groups(cluster):
        gpus = 1
        while gpus <= size:
            shapes.append(Shape(gpu_type, 1, gpus))
            gpus *= 2
        if gpus // 2 < size:
            shapes.append(Shape(gpu_type, 1, size))
        shapes += [Shape(gpu_type, nodes, nodes * size) for nodes in range(2, count + 1)]
    return tuple(shapes)


@lru_cache(maxsize=64)
def node_groups(cluster: Cluster) -> tuple[tuple[str, int, int], ...]:
    """(GPU type, nodes, GPUs of a node) of the nodes that run jobs.

    A type on nodes of several sizes counts with the size that most of them have.
    """
    kinds: dict[str, list[int]] = {}
    for node in cluster.nodes:
        if not node.role:
            kinds.setdefault(node.gpu_type, []).append(node.gpus)
    result = []
    for gpu_type, sizes in kinds.items():
        count, size = max((len(list(same)), size) for size, same in groupby(sorted(sizes)))
        result.append((gpu_type, count, size))
    return tuple(result)


def shape_of(cluster: Cluster, allocation: Allocation) -> Shape:
    """An allocation as the throughput model describes it: with the type of its first node."""
    gpus = gpus_in(allocation)
    return Shape(cluster.nodes[allocation[0][0]].gpu_type, len(allocation), gpus)


def allowed_shapes(job: Job, cluster: Cluster) -> tuple[Shape, ...]:
    """The shapes that this job may get now; one without an agent gets its request."""
    agent = job.agent
    if agent is not None and job.min_gpus < job.max_gpus:
        types = _usable_types(job, cluster)
        return _shapes_within(cluster, agent.most_replicas, job.min_gpus, job.max_gpus, types)
    return requested_shapes(job, cluster)


def requested_shapes(job: Job, cluster: Cluster) -> tuple[Shape, ...]:
    """The requested number of GPUs, of each type that the job can use."""
    return _shapes_of_size(job.gpus, cluster, _usable_types(job, cluster))


def _usable_types(job: Job, cluster: Cluster) -> tuple[tuple[str, int, int], ...]:
    """(GPU type, GPUs of a replica, most nodes) of those that the job can use."""
    if job.agent is None:
        anything = [(gpu_type, 1, count) for gpu_type, count, _ in node_groups(cluster)]
    else:
        anything = [(name, limit.gpus, limit.nodes) for name, limit in job.agent.limits.items()]
    return tuple(one for one in anything if job.gpu_type in ("", one[0]))


@lru_cache(maxsize=1 << 12)
def _shapes_within(
    cluster: Cluster, replicas: int, low: int, high: int, types: tuple[tuple[str, int, int], ...]
) -> tuple[Shape, ...]:
    limits = {gpu_type: (gpus, nodes) for gpu_type, gpus, nodes in types}
    return tuple(
        shape
        for shape in cluster_shapes(cluster)
        if shape.gpu_type in limits
        and shape.gpus % limits[shape.gpu_type][0] == 0
        and shape.nodes <= limits[shape.gpu_type][1]
        and shape.gpus // limits[shape.gpu_type][0] <= replicas
        and low <= shape.gpus <= high
    )


@lru_cache(maxsize=1 << 12)
def _shapes_of_size(
    gpus: int, cluster: Cluster, types: tuple[tuple[str, int, int], ...]
) -> tuple[Shape, ...]:
    """On as few nodes of each type as can hold them."""
    limits = {gpu_type: (unit, nodes) for gpu_type, unit, nodes in types}
    shapes = []
    for gpu_type, count, size in node_groups(cluster):
        nodes = -(-gpus // size)
        if gpu_type in limits and nodes <= min(count, limits[gpu_type][1]):
            if gpus % limits[gpu_type][0] == 0:
                shapes.append(Shape(gpu_type, nodes, gpus))
    return tuple(shapes)


# From a shape for each job to GPUs, with few moves (Sia, section 3.3), and to decisions.
#
# Larger jobs are placed first, and of one size those that keep their GPUs, so that sizes that are
# powers of two leave no gaps; a new job goes where it displaces the fewest others.


_PINNED = 1000
"""How many times over a job that should not move counts."""


class Wish(NamedTuple):
    """A job and its chosen shape."""

    job: Job
    shape: Shape
    pinned: bool = False


class Placement:
    """The GPUs of every job, kept where possible.

    With `split` a shape that does not fit its nodes is spread over more of them. Without it, the
    job is in `unplaced`. As larger jobs are placed first, no smaller one could make room for it.
    """

    def __init__(self, view: View, wishes: Iterable[Wish], *, split: bool = True) -> None:
        self.split = split
        self.cluster = view.space.cluster
        self.free = _free_or_held(view)
        self.nodes: dict[str, list[int]] = {}
        for position, node in enumerate(self.cluster.nodes):
            if not node.role:
                self.nodes.setdefault(node.gpu_type, []).append(position)
        self.wanted = [0] * len(self.free)  # masks of jobs that would like to stay
        self.weight = [0] * len(self.free)
        self.placed: dict[int, Allocation] = {}
        self.unplaced: list[Job] = []
        self.add(wishes)

    def add(self, wishes: Iterable[Wish]) -> None:
        """Find GPUs for more wishes, in what the earlier ones left free."""
        order = []
        for wish in wishes:
            stays = self._stays(wish)
            immovable = stays and not wish.job.migratable
            size = (not immovable, -wish.shape.gpus)
            order.append((size, not stays, not wish.pinned, wish.job.index, wish))
            if stays:
                self._like(wish, 1)
        order.sort(key=lambda one: one[:4])
        for _, moves, _, index, wish in order:
            allocation = None
            if not moves:
                self._like(wish, -1)
                if all(self.free[node] & mask == mask for node, mask in wish.job.allocation):
                    allocation = wish.job.allocation
            if allocation is None:
                allocation = self._place(wish.shape)
            if allocation is None:
                self.unplaced.append(wish.job)
                continue
            for node, mask in allocation:
                self.free[node] &= ~mask
            self.placed[index] = allocation

    def _stays(self, wish: Wish) -> bool:
        allocation = wish.job.allocation
        return (
            bool(allocation)
            and not wish.job.profiling
            and self.cluster.nodes[allocation[0][0]].gpu_type == wish.shape.gpu_type
            and gpus_in(allocation) == wish.shape.gpus
        )

    def _like(self, wish: Wish, sign: int) -> None:
        for node, mask in wish.job.allocation:
            self.wanted[node] ^= mask
            self.weight[node] += sign * mask.bit_count() * (_PINNED if wish.pinned else 1)

    def _place(self, shape: Shape) -> Allocation | None:
        nodes = self.nodes.get(shape.gpu_type, [])
        each = -(-shape.gpus // shape.nodes)
        chosen: list[tuple[int, int]] = []
        left = shape.gpus
        while left:
            need = min(each, left)
            taken = {node for node, _ in chosen}
            fitting = [
                (self._displaced(node, need), self.free[node].bit_count(), node)
                for node in nodes
                if node not in taken and self.free[node].bit_count() >= need
            ]
            if not fitting:
                return self._scattered(shape) if self.split else None
            node = min(fitting)[2]
            chosen.append((node, self._mask(node, need)))
            left -= need
        return tuple(sorted(chosen))

    def _displaced(self, node: int, need: int) -> int:
        room = (self.free[node] & ~self.wanted[node]).bit_count()
        return self.weight[node] if room < need else 0

    def _mask(self, node: int, need: int) -> int:
        unwanted = self.free[node] & ~self.wanted[node]
        if unwanted.bit_count() >= need:
            return lowest_gpus(unwanted, need)
        return unwanted | lowest_gpus(self.free[node] & ~unwanted, need - unwanted.bit_count())

    def _scattered(self, shape: Shape) -> Allocation | None:
        """On as many nodes as necessary: odd sizes leave gaps."""
        chosen, left = [], shape.gpus
        for node in sorted(
            self.nodes.get(shape.gpu_type, ()), key=lambda node: -self.free[node].bit_count()
        ):
            need = min(left, self.free[node].bit_count())
            if need:
                chosen.append((node, self._mask(node, need)))
                left -= need
            if not left:
                return tuple(sorted(chosen))
        return None


def place_without_stopping(view: View, wishes: Iterable[Wish]) -> dict[int, Allocation]:
    """GPUs for wishes of which none may cost a running job all its GPUs.

    If nodes have no room for all changes at once, all running jobs keep their GPUs, and others
    start where they can.
    """
    wishes = list(wishes)
    placement = Placement(view, wishes, split=False)
    if not any(job.allocation for job in placement.unplaced):
        return placement.placed
    view.warn("running jobs stayed as they were, as nodes had no room for all changes")
    cluster = view.space.cluster
    stay = [
        Wish(wish.job, shape_of(cluster, wish.job.allocation), pinned=True)
        for wish in wishes
        if wish.job.allocation
    ]
    placement = Placement(view, stay, split=False)
    placement.add(wish for wish in wishes if not wish.job.allocation)
    return placement.placed


def changeable(view: View) -> list[Job]:
    """The jobs whose GPUs may change: waiting ones, and running ones whose GPUs others could use.

    A job that is being profiled keeps its GPUs, and so does one on a node that is closed.
    """
    freed = view.space.freed
    return [
        job
        for job in view.jobs()
        if not job.profiling and (not job.allocation or freed(job.allocation) == job.allocation)
    ]


def _free_or_held(view: View) -> list[int]:
    """By node, the GPUs that are free or held by jobs whose GPUs may change."""
    free = list(view.space.free)
    for job in changeable(view):
        for position, mask in job.allocation:
            free[position] |= mask
    return free


def decisions_for(view: View, placed: dict[int, Allocation], jobs: Iterable[Job]) -> list[Decision]:
    """The decisions that lead from the present allocations to `placed`; other jobs lose their GPUs.

    In an order that can be carried out: a job moves when its new GPUs are free, and where jobs
    wait for each other's, one is stopped first.
    """
    free = list(view.space.free)
    decisions: list[Decision] = []

    def release(job: Job) -> None:
        for node, mask in job.allocation:
            free[node] |= mask

    starts: list[tuple[Job, Allocation]] = []
    resizes: list[tuple[Job, Allocation]] = []
    for job in jobs:
        wanted = placed.get(job.index)
        if wanted == job.allocation or (wanted is None and not job.allocation):
            continue
        if wanted is None:
            release(job)
            decisions.append(Preempt(job))
        elif job.allocation:
            resizes.append((job, wanted))
        else:
            starts.append((job, wanted))
    while resizes:
        waiting = []
        for job, wanted in resizes:
            own = dict(job.allocation)
            if all((free[node] | own.get(node, 0)) & mask == mask for node, mask in wanted):
                release(job)
                for node, mask in wanted:
                    free[node] &= ~mask
                same = gpus_in(job.allocation) == gpus_in(wanted)
                decisions.append(Migrate(job, wanted) if same else Resize(job, wanted))
            else:
                waiting.append((job, wanted))
        if len(waiting) == len(resizes):
            job, wanted = waiting.pop()
            release(job)
            decisions.append(Preempt(job))
            starts.append((job, wanted))
        resizes = waiting
    decisions += [Start(job, wanted) for job, wanted in starts]
    return decisions


def capacity_of(view: View) -> dict[str, int]:
    """GPUs of each type that are free or held by jobs that can be moved."""
    cluster, free = view.space.cluster, _free_or_held(view)
    capacity = {gpu_type: 0 for gpu_type, _, _ in node_groups(cluster)}
    for node, mask in zip(cluster.nodes, free, strict=True):
        if not node.role:
            capacity[node.gpu_type] += mask.bit_count()
    return capacity
