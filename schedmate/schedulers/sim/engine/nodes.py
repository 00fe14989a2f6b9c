"""Nodes that fail, if they do, are drained for maintenance, and come back."""

from __future__ import annotations

import random
from collections.abc import Sequence
from heapq import heappush

from schedmate.errors import InputError
from schedmate.schedulers.model import Cluster, Job
from schedmate.schedulers.sim.engine.events import DOWN, DRAIN, UP
from schedmate.schedulers.sim.engine.execution import Execution
from schedmate.schedulers.sim.engine.ledger import Outage
from schedmate.schedulers.sim.engine.underway import Underway
from schedmate.schedulers.sim.parameters import Parameters
from schedmate.schedulers.sim.world.maintenance import Maintenance
from schedmate.schedulers.terms import NEVER, NodeNews

_AT_RANDOM = -1


class Nodes:
    """Nodes fail at random, with all jobs on them, and come back after a repair.

    Maintenance is announced: from the drain on nothing new starts on a node.
    """

    def __init__(
        self,
        cluster: Cluster,
        execution: Execution,
        underway: Underway,
        parameters: Parameters,
        seed: int,
        maintenance: Sequence[Maintenance] = (),
    ) -> None:
        self._cluster = cluster
        self._execution = execution
        self._underway = underway
        self._mtbf_s = parameters.node_mtbf_s
        self._repair_s = parameters.repair_s
        self._draw = random.Random(seed)  # noqa: S311 - an experiment, not a secret
        self._maintenance = maintenance
        self._closed: dict[int, int] = {}  # number of reasons for each
        self._outages: dict[tuple[int, int], Outage] = {}  # by node and reason
        for one in maintenance:
            if not 0 <= one.node < len(cluster.nodes) or not one.drain <= one.down <= one.up:
                raise InputError(
                    f"maintenance of node {one.node} from {one.drain:g} s, down from {one.down:g} "
                    f"to {one.up:g} s: the cluster has nodes 0 to {len(cluster.nodes) - 1}, and "
                    "these times have to ascend."
                )

    def begin(self, now: float) -> None:
        """All nodes are well now, and for as long as it lasts."""
        for node in range(len(self._cluster.nodes)):
            self._next(node, now)
        for number, one in enumerate(self._maintenance):
            self._expect(one.drain, DRAIN, one.node, number)

    def drain(self, node: int, number: int) -> None:
        """Drain a node: nothing new starts on it, and it goes down later."""
        one, now = self._maintenance[number], self._execution.view.now
        self._execution.coming -= 1
        self._close(node, number, Outage(node, now, one.down, NEVER))
        view = self._execution.view
        view.draining[node] = min(one.down, view.draining.get(node, NEVER))
        view.news.append(NodeNews(node, "drain", now, one.down))
        self._expect(one.down, DOWN, node, number)

    def fail(self, node: int, now: float, number: int = _AT_RANDOM) -> list[Job]:
        """A node fails, or is taken down; the jobs that ended by it."""
        execution, view = self._execution, self._execution.view
        up = now + self._repair_s if number == _AT_RANDOM else self._maintenance[number].up
        self._underway.cancel_starts(node)
        hit = view.running.by_rank(view.on(node))
        ended = [job for job in hit if not execution.fail(job, node)]
        if number == _AT_RANDOM:
            self._close(node, number, Outage(node, now, now, NEVER))
            execution.coming += 1
        view.news.append(NodeNews(node, "down", now, up, [job.id for job in hit]))
        heappush(execution.events, (up, UP, node, number))
        return ended

    def back(self, node: int, now: float, number: int = _AT_RANDOM) -> None:
        """A node is repaired, or its maintenance over."""
        execution, view = self._execution, self._execution.view
        execution.coming -= 1
        outage = self._outages.pop((node, number))
        execution.ledger.outages.append(outage._replace(up=now))
        self._closed[node] -= 1
        if not self._closed[node]:
            execution.space.reopen(node)
            view.draining.pop(node, None)
            view.news.append(NodeNews(node, "up", now))
        if number == _AT_RANDOM:
            self._next(node, now)

    def end(self) -> None:
        """The simulation is over: nodes that are down stay down."""
        self._execution.ledger.outages.extend(self._outages.values())

    def _close(self, node: int, number: int, outage: Outage) -> None:
        self._outages[node, number] = outage
        self._closed[node] = self._closed.get(node, 0) + 1
        self._underway.lose(node)
        if self._closed[node] == 1:
            self._execution.space.close(node)

    def _next(self, node: int, now: float) -> None:
        if self._mtbf_s is not None:
            wait_s = self._draw.expovariate(1.0 / self._mtbf_s)
            heappush(self._execution.events, (now + wait_s, DOWN, node, _AT_RANDOM))

    def _expect(self, at: float, kind: int, node: int, number: int) -> None:
        self._execution.coming += 1
        heappush(self._execution.events, (at, kind, node, number))
