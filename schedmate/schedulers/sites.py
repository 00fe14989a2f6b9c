"""Which nodes a job's constraints leave to it, as bit sets: one bit a node."""

from __future__ import annotations

from collections.abc import Iterable

from schedmate.schedulers.model import Allocation, Job, Node
from schedmate.schedulers.terms import Constraints


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
        found = self._every
        for label in constraints.require:
            found &= self._labels.get(label, 0)
        for group in constraints.avoid:
            found &= ~self._held.nodes(group)
        if constraints.group:
            found &= ~self._shunned.nodes(constraints.group)
        for name in constraints.without:
            found &= ~self._named.get(name, 0)
        return found

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
        """It leaves them."""
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
