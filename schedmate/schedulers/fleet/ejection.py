"""Vacating the nodes of one part: Algorithm 1 of the ASI paper, its baselines, and our own rules.

All of them produce moves in an order in which each task finds room at its target while it still
holds its resources at the source: make before break, one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import nsmallest
from random import Random
from typing import NamedTuple

from schedmate.schedulers.fleet.parts import NOWHERE, Part
from schedmate.schedulers.fleet.room import Room
from schedmate.schedulers.fleet.snapshot import MILLI


class Move(NamedTuple):
    """A task that goes from one node to another."""

    task: int
    source: int
    target: int
    device: int
    """The GPU that a fraction goes to; -1 for others."""
    frees: int
    """The node that is vacated by it, and the moves of the same chain or node."""


@dataclass(frozen=True)
class Rules:
    """How nodes are vacated."""

    depth: int = 3
    """K: most moves from a task on the vacated node to the last one that makes room."""
    breadth: int = 6
    """Nodes tried at each level of a chain."""
    order: str = "pods"
    """Which nodes first: `pods`, fewest tasks (Algorithm 1); `cost`, least to lose by moving, which
    empties most nodes; `price`, the same for each GPU of the node, which empties large ones."""
    place: str = "best"
    """Where tasks go that fit: `best` fit, or `random`."""


class Vacating:
    """Vacates the nodes of a part one by one."""

    def __init__(self, part: Part, rules: Rules, seed: int = 0) -> None:
        self.part, self.rules = part, rules
        self.room = Room(part)
        self.moves: list[Move] = []
        self.emptied: list[int] = []
        self._draw = Random(seed)  # noqa: S311 - a search, no secret
        self._frees = NOWHERE
        for n, tasks in enumerate(self.room.tasks):
            if not tasks:  # moving tasks here gains nothing
                self.room.close(n)

    def candidates(self) -> list[int]:
        """Nodes with GPUs, with tasks, and with none that is locked, in the order of the rules."""
        part, tasks = self.part, self.room.tasks
        found = [
            n
            for n, here in enumerate(tasks)
            if here and self.room.open[n] and part.gpus[n] and all(part.movable[t] for t in here)
        ]
        if self.rules.order == "pods":
            return sorted(found, key=lambda n: (len(tasks[n]), n))
        costs = {n: sum(part.cost[t] for t in tasks[n]) for n in found}
        if part.share:
            costs = {n: cost / part.share[n] for n, cost in costs.items()}
        if self.rules.order == "price":
            costs = {n: cost / part.gpus[n] for n, cost in costs.items()}
        return sorted(found, key=lambda n: (costs[n], len(tasks[n]), n))

    def run(self) -> None:
        """Try each candidate once (lines 3 to 18 of Algorithm 1)."""
        for n in self.candidates():
            # one before may have made this node a target
            if self.room.tasks[n]:
                self.vacate(n)

    def vacate(self, n: int) -> bool:
        """Move all tasks off a node, or none; meanwhile the node takes no tasks."""
        was_open = self.room.open[n]
        self.room.close(n)
        mark = len(self.moves)
        self._frees = n
        if self.room.enough(self.room.tasks[n]) and all(
            self.eject(t, self.rules.depth, ()) for t in self._leaving(n)
        ):
            self.emptied.append(n)
            return True
        self.undo(mark)
        if was_open:
            self.room.reopen(n)
        return False

    def eject(self, t: int, depth: int, path: tuple[int, ...]) -> bool:
        """Move a task to a node with room, or make room on one by a chain of at most `depth`.

        Nodes on `path` are those that the chain makes room on.
        """
        n = self._place(t, path)
        if n != NOWHERE:
            self.move(t, n)
            return True
        if depth <= 1 or not self.room.enough((t,)):
            return False
        for n in self._crowded(t, path):
            mark = len(self.moves)
            if self._make_room(t, n, depth, (*path, n)):
                self.move(t, n)
                return True
            self.undo(mark)
        return False

    def move(self, t: int, n: int) -> None:
        """Carry out a move in the part."""
        room = self.room
        source = room.at[t]
        before = room.device[t]
        room.take(t)
        room.put(t, n)
        self.moves.append(Move(t, source, n, room.device[t], self._frees))
        self._before.append(before)

    def undo(self, mark: int) -> None:
        """Undo all moves after the first `mark`."""
        while len(self.moves) > mark:
            move = self.moves.pop()
            self.room.take(move.task)
            self.room.put(move.task, move.source, self._before.pop())

    @property
    def _before(self) -> list[int]:
        return self.__dict__.setdefault("devices", [])  # type: ignore[no-any-return]

    def _leaving(self, n: int) -> list[int]:
        here = list(self.room.tasks[n])
        if self.rules.order != "pods":
            # hardest to place first
            need, cpus = self.part.need, self.part.need_cpus
            here.sort(key=lambda t: (-need[t], -cpus[t], t))
        return here

    def _place(self, t: int, path: tuple[int, ...]) -> int:
        if self.rules.place == "best":
            # the node that it leaves is no target
            return self.room.best(t, (*path, self.room.at[t]))
        here = self.room.at[t]
        fitting = [
            n
            for n in self.room.candidates(t)
            if n != here and n not in path and self.room.fits(t, n)
        ]
        return self._draw.choice(fitting) if fitting else NOWHERE

    def _crowded(self, t: int, path: tuple[int, ...]) -> list[int]:
        """Nodes that are large enough, those that lack least first."""
        part, room = self.part, self.room
        need, cpus, memory = part.need[t], part.need_cpus[t], part.need_memory[t]
        here = room.at[t]
        least = -(-need // MILLI)
        found: list[tuple[float, int]] = []
        enough = 4 * self.rules.breadth
        for free in range(len(room.buckets[0]) - 1, -1, -1):
            for kind in room.reaches[part.reach[t]]:
                for n in room.buckets[kind][free]:
                    size = part.gpus[n]
                    if n == here or size < least or n in path:
                        continue
                    lacks = (least - free) / size if free < least else 0.0
                    if (more := cpus - room.cpus[n]) > 0:
                        lacks += more / (part.cpus[n] or 1)
                    if (more := memory - room.memory[n]) > 0:
                        lacks += more / (part.memory[n] or 1)
                    found.append((lacks, n))
            if len(found) > enough:
                break
        return [n for _, n in nsmallest(self.rules.breadth, found)]

    def _make_room(self, t: int, n: int, depth: int, path: tuple[int, ...]) -> bool:
        """Move tasks off a node until `t` fits, largest useful first."""
        room = self.room
        while not room.fits(t, n):
            victim = self._victim(t, n)
            if victim == NOWHERE or not self.eject(victim, depth - 1, path):
                return False
        return True

    def _victim(self, t: int, n: int) -> int:
        """The smallest task that makes room for `t` alone, else the largest that is smaller."""
        part, room = self.part, self.room
        need = part.need[t]
        lacks_gpus = max(0, need - room.whole[n] * MILLI)
        lacks_cpus = max(0, part.need_cpus[t] - room.cpus[n])
        lacks_memory = max(0, part.need_memory[t] - room.memory[n])
        best, chosen = (2, 0.0, 0.0), NOWHERE
        for v in room.tasks[n]:
            if not part.movable[v]:
                continue
            gpus, cpus = part.need[v], part.need_cpus[v]
            # placing a task as large or larger elsewhere is no easier than placing t there
            if gpus >= need and cpus >= part.need_cpus[t] and not part.avoid[t]:
                continue
            enough = gpus >= lacks_gpus and cpus >= lacks_cpus
            enough = enough and part.need_memory[v] >= lacks_memory
            score = gpus / MILLI + cpus / max(part.cpus[n], 1)
            key = (0, score, 0.0) if enough else (1, -score, 0.0)
            if key < best:
                best, chosen = key, v
        return chosen
