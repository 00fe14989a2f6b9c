"""Use of a node besides whole GPUs: parts of GPUs, CPUs, memory."""

from __future__ import annotations

from schedmate.schedulers.model import Allocation, Job, Node

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
        """They may be shared again."""
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
