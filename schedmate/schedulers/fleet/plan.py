"""From moves to a plan: waves of migrations that are safe at every step, whatever fails.

Within a wave every new instance is started before its old one ends, so both hold resources. A
migration that fails leaves its task where it was. Each move lists the moves that must have
succeeded before it (`after`); a move whose list is not complete is skipped, and so are those that
depend on it.

For each node the moves onto it are in an order in which the lists only grow. Then the largest load
on a node at the time of a move is: all initial tasks, without those that the moves of the list take
away, and all earlier arrivals. If that fits, everything that can happen fits, as any other state
has a subset of these tasks on the same GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from schedmate.schedulers.fleet.ejection import Move
from schedmate.schedulers.fleet.load import Load
from schedmate.schedulers.fleet.snapshot import FleetSnapshot, Ints


@dataclass
class Step:
    """One migration. Tasks and nodes are positions in the snapshot."""

    task: int
    source: int
    target: int
    device: int
    """The GPU that a fraction goes to; `NONE` for others."""
    frees: set[int]
    """The nodes that cannot be emptied without it."""
    after: list[int] = field(default_factory=list)
    """Positions of the steps that must have succeeded."""
    wave: int = 0


@dataclass(frozen=True)
class Plan:
    """An ordered list of waves."""

    snapshot: FleetSnapshot
    steps: list[Step]
    """By wave, each after those in its `after`."""
    emptied: list[int]
    """Nodes that had tasks and have none in the end."""

    @property
    def waves(self) -> int:
        return self.steps[-1].wave + 1 if self.steps else 0

    def node_after(self) -> Ints:
        """The node of each task in the end."""
        at = self.snapshot.tasks.node.astype(np.int64)
        for step in self.steps:
            at[step.task] = step.target
        return at


def make_plan(snapshot: FleetSnapshot, moves: Iterable[Move]) -> Plan:
    """A plan of moves that can be carried out in their order, one by one."""
    steps = [Step(m.task, m.source, m.target, m.device, {m.frees}) for m in moves]
    return arrange(snapshot, _direct(steps))


def arrange(snapshot: FleetSnapshot, steps: list[Step]) -> Plan:
    """The plan of these steps in as few waves as their order allows."""
    _Arrangement(snapshot, steps).run()
    order = sorted(range(len(steps)), key=lambda k: (steps[k].wave, k))
    position = {k: number for number, k in enumerate(order)}
    for step in steps:
        step.after = sorted(position[k] for k in step.after)
    ordered = [steps[k] for k in order]
    at = snapshot.tasks.node.astype(np.int64)
    for step in ordered:
        at[step.task] = step.target
    before = snapshot.task_count
    now = np.bincount(at, minlength=len(snapshot.nodes))
    return Plan(snapshot, ordered, np.flatnonzero((before > 0) & (now == 0)).tolist())


def _direct(steps: list[Step]) -> list[Step]:
    """Merge the moves of tasks that move twice, if the room in between is not needed.

    A task may stay at its first node until its last move if no task arrives there in between.
    """
    arrivals: dict[int, list[int]] = {}
    for k, step in enumerate(steps):
        arrivals.setdefault(step.target, []).append(k)
    last: dict[int, int] = {}
    dropped = set()
    for k, step in enumerate(steps):
        first = last.get(step.task)
        if first is not None:
            origin = steps[first].source
            if not any(first < a < k for a in arrivals.get(origin, ())):
                dropped.add(first)
                arrivals[steps[first].target].remove(first)
                step.source = origin
                step.frees |= steps[first].frees
                if step.target == origin:
                    dropped.add(k)
                    arrivals[step.target].remove(k)
                    del last[step.task]
                    continue
        last[step.task] = k
    return [step for k, step in enumerate(steps) if k not in dropped]


class _Arrangement:
    """Computes `after` and `wave` of steps; `after` has positions in the given list."""

    def __init__(self, snapshot: FleetSnapshot, steps: list[Step]) -> None:
        self.steps = steps
        targets = np.array(sorted({step.target for step in steps}), dtype=np.int64)
        self.loads = {n: Load(snapshot, n) for n in targets.tolist()}
        for t in np.flatnonzero(np.isin(snapshot.tasks.node, targets)).tolist():
            self.loads[int(snapshot.tasks.node[t])].put(t, int(snapshot.tasks.device[t]))

    def run(self) -> None:
        leaving: dict[int, list[int]] = {n: [] for n in self.loads}
        """Moves off each node, in order, that no move onto it needs yet."""
        gone: dict[int, list[int]] = {n: [] for n in self.loads}
        """Moves off each node that every further move onto it needs."""
        wave = dict.fromkeys(self.loads, 0)
        previous: dict[int, int] = {}
        for k, step in enumerate(self.steps):
            n, t = step.target, step.task
            load = self.loads[n]
            # a task that comes back must have left
            while t in load.tasks or not load.fits(t, step.device):
                first = leaving[n].pop(0)
                gone[n].append(first)
                load.take(self.steps[first].task)
            load.put(t, step.device)
            before = previous.get(t)
            step.after = sorted({*gone[n]} | ({before} if before is not None else set()))
            # moves onto a node never overtake each other
            step.wave = max([wave[n], *(self.steps[j].wave + 1 for j in step.after)])
            wave[n] = step.wave
            if step.source in leaving:
                leaving[step.source].append(k)
            previous[t] = k
