"""Keeps the board in step with the nodes of the cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from schedmate.schedulers.board import Board
from schedmate.schedulers.live.queue.backend import NodeSeen
from schedmate.schedulers.live.queue.outcomes import Outcomes
from schedmate.schedulers.model import Allocation, Cluster, Job, Node
from schedmate.schedulers.pools import lowest

RECENT_S = 8 * 86_400.0
"""Age of the submissions that a new board gets for its forecast of load [s]."""


class NodesOnBoard(Outcomes):
    """Rebuilds the board when nodes come, and marks nodes that are gone or drained."""

    def see_nodes(self) -> None:
        """Bring the board up to date with nodes that came, went, or are drained."""
        seen = {node.id: node for node in self.seats.nodes()}
        drains = self.store.drains()
        if set(seen) - set(self.places) and (self.board is None or not self.board.in_flight()):
            self._build(seen)
        if self.board is None:
            return
        for id_ in set(self.places) - set(seen) - self._gone:
            self._gone.add(id_)
            self._dirty = True
            # its runs end when their seats are found to be gone
            self.board.down(self.places[id_], self.now)
        for name in self._drains ^ set(drains):
            for id_, position in self.places.items():
                if self.board.cluster.nodes[position].name == name and id_ not in self._gone:
                    self._dirty = True
                    if name in drains:
                        self.board.drain(position, self.now)
                    else:
                        self.board.up(position, self.now)
        self._drains = set(drains)

    def _build(self, seen: Mapping[str, NodeSeen]) -> None:
        """Build a board of the present nodes with all waiting and running jobs."""
        nodes = sorted(seen.values(), key=lambda one: (one.name, one.id))
        cluster = Cluster(
            tuple(Node(one.name, one.gpus, one.gpu_type, one.cpus, one.memory_mb) for one in nodes)
        )
        running = [job for job in self.jobs.values() if job.allocation]
        before = {job.index: job.partner for job in running}
        since = {job.index: job.started for job in running}
        where = {job.index: self._ids_of(job.allocation) for job in running}
        self.board = Board(cluster, self.policy, self.options.can, self.options.late_s)
        self.places = {one.id: position for position, one in enumerate(nodes)}
        self._gone, self._drains, self._dirty = set(), set(), True
        view = self.board.view
        for number, submitted, gpus in self.store.submissions(self.now - RECENT_S):
            self._counted = number
            view.submitted.append(submitted)
            view.requested.append(view.requested[-1] + max(1, int(gpus)))
        for job in self.jobs.values():
            job.settle()
            job.allocation, job.partner = (), None
        for job in running:
            partner = before[job.index]
            host = partner if partner is not None and partner.allocation else None
            self.place(job, where[job.index], since[job.index], host)
        for job in self.jobs.values():
            if not job.allocation and job.index not in self.runs and job.index not in self._outside:
                self.board.rejoin(job, self.now)

    def _ids_of(self, allocation: Allocation) -> list[tuple[str, int]]:
        ids = {position: id_ for id_, position in self.places.items()}
        return [(ids[node], mask.bit_count()) for node, mask in allocation]

    def place(
        self, job: Job, where: Sequence[tuple[str, int]], since: float, host: Job | None
    ) -> None:
        """Put a running job on the board: this number of GPUs of each node, or those of `host`."""
        assert self.board is not None
        free = self.board.view.space.free
        parts = []
        for id_, gpus in where:
            position = self.places.get(id_)
            if position is None or (host is None and free[position].bit_count() < gpus):
                return  # its node is gone: its seat will be lost too
            parts.append((position, lowest(free[position], gpus)))
        allocation = host.allocation if host is not None else tuple(sorted(parts))
        self.board.resume(job, allocation, self.now, since, host)
