"""Which shapes of GPUs a job may get (Sia, section 3.1)."""

from __future__ import annotations

from functools import lru_cache
from itertools import groupby

from schedmate.schedulers.goodput.agent import Shape
from schedmate.schedulers.model import Allocation, Cluster, Job, gpus_in


@lru_cache(maxsize=64)
def shapes(cluster: Cluster) -> tuple[Shape, ...]:
    """Powers of two within a node, whole nodes beyond, for every GPU type of the cluster."""
    found: list[Shape] = []
    for gpu_type, count, size in groups(cluster):
        gpus = 1
        while gpus <= size:
            found.append(Shape(gpu_type, 1, gpus))
            gpus *= 2
        if gpus // 2 < size:
            found.append(Shape(gpu_type, 1, size))
        found += [Shape(gpu_type, nodes, nodes * size) for nodes in range(2, count + 1)]
    return tuple(found)


@lru_cache(maxsize=64)
def groups(cluster: Cluster) -> tuple[tuple[str, int, int], ...]:
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


def allowed(job: Job, cluster: Cluster) -> tuple[Shape, ...]:
    """The shapes that this job may get now; one without an agent gets its request."""
    agent = job.agent
    if agent is not None and job.min_gpus < job.max_gpus:
        types = _types(job, cluster)
        return _within(cluster, agent.most_replicas, job.min_gpus, job.max_gpus, types)
    return of_size(job, cluster)


def of_size(job: Job, cluster: Cluster) -> tuple[Shape, ...]:
    """The requested number of GPUs, of each type that the job can use."""
    return _of_size(job.gpus, cluster, _types(job, cluster))


def _types(job: Job, cluster: Cluster) -> tuple[tuple[str, int, int], ...]:
    """(GPU type, GPUs of a replica, most nodes) of those that the job can use."""
    if job.agent is None:
        anything = [(gpu_type, 1, count) for gpu_type, count, _ in groups(cluster)]
    else:
        anything = [(name, limit.gpus, limit.nodes) for name, limit in job.agent.limits.items()]
    return tuple(one for one in anything if job.gpu_type in ("", one[0]))


@lru_cache(maxsize=1 << 12)
def _within(
    cluster: Cluster, replicas: int, low: int, high: int, types: tuple[tuple[str, int, int], ...]
) -> tuple[Shape, ...]:
    limits = {gpu_type: (gpus, nodes) for gpu_type, gpus, nodes in types}
    return tuple(
        shape
        for shape in shapes(cluster)
        if shape.gpu_type in limits
        and shape.gpus % limits[shape.gpu_type][0] == 0
        and shape.nodes <= limits[shape.gpu_type][1]
        and shape.gpus // limits[shape.gpu_type][0] <= replicas
        and low <= shape.gpus <= high
    )


@lru_cache(maxsize=1 << 12)
def _of_size(
    gpus: int, cluster: Cluster, types: tuple[tuple[str, int, int], ...]
) -> tuple[Shape, ...]:
    """On as few nodes of each type as can hold them."""
    limits = {gpu_type: (unit, nodes) for gpu_type, unit, nodes in types}
    found = []
    for gpu_type, count, size in groups(cluster):
        nodes = -(-gpus // size)
        if gpu_type in limits and nodes <= min(count, limits[gpu_type][1]):
            if gpus % limits[gpu_type][0] == 0:
                found.append(Shape(gpu_type, nodes, gpus))
    return tuple(found)
