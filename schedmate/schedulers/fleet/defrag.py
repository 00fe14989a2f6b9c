"""Iterative partitioned consolidation (Section 4.1): which tasks to move so that nodes become
empty.

Nodes are partitioned again in each round, the groups are searched in parallel, and the results are
merged in the order of the groups: for a seed the result is the same on any number of cores. Within
a group nodes are vacated by Algorithm 1 of the ASI paper, its baselines, or our own rules; all give
moves in an order in which each task finds room at its target while it still holds its source.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import nsmallest
from random import Random
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schedmate.base.spread import spread
from schedmate.schedulers.fleet.room import NOWHERE, Floats, Part, Room, Space
from schedmate.schedulers.fleet.snapshot import MILLI, FleetSnapshot, Ints


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
        nodes = [
            n
            for n, here in enumerate(tasks)
            if here and self.room.open[n] and part.gpus[n] and all(part.movable[t] for t in here)
        ]
        if self.rules.order == "pods":
            return sorted(nodes, key=lambda n: (len(tasks[n]), n))
        costs = {n: sum(part.cost[t] for t in tasks[n]) for n in nodes}
        if part.share:
            costs = {n: cost / part.share[n] for n, cost in costs.items()}
        if self.rules.order == "price":
            costs = {n: cost / part.gpus[n] for n, cost in costs.items()}
        return sorted(nodes, key=lambda n: (costs[n], len(tasks[n]), n))

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
        crowded: list[tuple[float, int]] = []
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
                    crowded.append((lacks, n))
            if len(crowded) > enough:
                break
        return [n for _, n in nsmallest(self.rules.breadth, crowded)]

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


# Iterative partitioned consolidation (Section 4.1): which tasks to move to empty nodes.
#
# Nodes are partitioned again in each round, the groups are searched in parallel, and the results
# are merged in the order of the groups: for a seed the result is the same on any number of cores.
# Tasks and nodes are positions in the snapshot.


Progress = Callable[[int, str], None]


@dataclass(frozen=True)
class Costs:
    """What a migration costs and an emptied node is worth, in GPU hours."""

    overlap_s: float = 300.0
    """Time for which a task holds GPUs on both nodes [s]: start, pull of the image, warm-up."""
    per_move_gpu_h: float = 0.01
    """Of any migration, whatever it holds."""
    worth_h: float = 24.0
    """Hours for which GPUs of an emptied node are worth more than scattered ones: to the next
    run."""
    least_won: float = 0.5
    """Of what a node is worth: nodes that emptying wins less of are left alone."""

    def of_moves(self, snapshot: FleetSnapshot) -> Floats:
        """Cost of moving each task [GPU seconds]: its work since the last checkpoint is
        repeated."""
        tasks = snapshot.tasks
        again = tasks.gpus / MILLI * (tasks.checkpoint_age_s + self.overlap_s)
        return np.asarray(again + self.per_move_gpu_h * 3600.0, dtype=np.float64)

    def of_nodes(self, snapshot: FleetSnapshot) -> Floats:
        """Value of emptying each node [GPU seconds], by when it would be empty
        without a move."""
        horizon = self.worth_h * 3600.0
        # A node whose tasks end sooner would have been free from then on anyway.
        until = np.clip(node_ends(snapshot) - self.overlap_s, 0.0, horizon)
        return np.asarray(snapshot.nodes.gpus * until, dtype=np.float64)

    def shares(self, snapshot: FleetSnapshot) -> Floats:
        """Share of each node's value that emptying it gains, at least a thousandth."""
        full = np.maximum(snapshot.nodes.gpus * self.worth_h * 3600.0, 1e-9)
        return np.asarray(np.maximum(self.of_nodes(snapshot) / full, 1e-3), dtype=np.float64)

    def not_worth_it(self, snapshot: FleetSnapshot) -> NDArray[np.bool_]:
        """Nodes that are not emptied, as they will be free before that pays.

        Emptying them costs more than it gains, or gains less than half of the node's value: then
        more is lost by the tasks that move there than can be gained.
        """
        own = np.bincount(
            snapshot.tasks.node, weights=self.of_moves(snapshot), minlength=len(snapshot.nodes)
        )
        soon = node_ends(snapshot) < self.worth_h * 3600.0
        little = (self.of_nodes(snapshot) <= own) | (self.shares(snapshot) < self.least_won)
        unworthy: NDArray[np.bool_] = soon & little & (snapshot.nodes.gpus > 0)
        return unworthy


def node_ends(snapshot: FleetSnapshot) -> Floats:
    """Time until the last task of each node ends [s]; infinity if unknown, 0 for empty nodes."""
    ends = np.zeros(len(snapshot.nodes))
    np.maximum.at(ends, snapshot.tasks.node, snapshot.tasks.remaining_s)
    return ends


@dataclass(frozen=True)
class SearchOptions:
    """Settings of a search for moves."""

    rules: Rules = field(default_factory=lambda: Rules(order="cost"))
    rounds: int = 5
    """Most rounds; a search ends when two rounds in a row find nothing."""
    group: int = 500
    """Nodes per group."""
    by_type: bool = True
    """Whether every second round partitions each GPU type by itself."""
    seed: int = 0


PUBLISHED = SearchOptions(Rules(), by_type=False)
"""Algorithm 1 as published."""
BEST_FIT = SearchOptions(Rules(depth=1), by_type=False)
"""Algorithm 1 without ejection chains."""
RANDOM_EVICTION = SearchOptions(Rules(depth=1, place="random"), by_type=False)
"""What Algorithm 1 is compared with: evicted tasks go to any node with room."""
METHODS = {
    "schedmate": SearchOptions(),
    "large-nodes": SearchOptions(Rules(order="price")),
    "published": PUBLISHED,
    "best-fit": BEST_FIT,
    "random-eviction": RANDOM_EVICTION,
}


@dataclass
class FoundMoves:
    """The moves of a search, in an order that can be carried out one by one."""

    moves: list[Move]
    emptied: list[int]
    rounds: list[int]
    """Nodes emptied in each round."""


@dataclass(frozen=True)
class _Group:
    number: int
    part: Part
    rules: Rules
    seed: int


def search_moves(
    snapshot: FleetSnapshot,
    options: SearchOptions,
    costs: Costs | None = None,
    *,
    processes: int = 1,
    progress: Progress = lambda _done, _text: None,
) -> FoundMoves:
    """Moves that empty nodes. `progress` is called with the number of groups done."""
    state = _SearchState(snapshot, options, costs or Costs())
    if processes == 1:
        done = 0
        while groups := state.next_round():
            vacated = {}
            for item in state.items(groups):
                vacated[item.number] = _vacate(item)
                done += 1
                progress(done, state.summary())
            state.finish(groups, vacated)
        return state.found
    # one pool for all rounds: the items of a round are drawn when the one before is finished
    finished: queue.Queue[bool] = queue.Queue()
    current: list[list[Ints]] = []

    def items() -> Iterator[_Group]:
        while groups := state.next_round():
            current.append(groups)
            yield from state.items(groups)
            finished.get()

    results: dict[int, _Result] = {}
    answers = spread(_vacate, items(), None, processes=processes, most=1)
    for done, (item, result) in enumerate(answers, start=1):
        # a group whose process was killed stays unchanged
        results[item.number] = result if result is not None else ([], [], [], [])
        progress(done, state.summary())
        if len(results) == len(current[-1]):
            state.finish(current[-1], results)
            results = {}
            finished.put(True)
    return state.found


_Result = tuple[list[Move], list[int], list[int], list[int]]


def _vacate(item: _Group, _shared: None = None) -> _Result:
    vacating = Vacating(item.part, item.rules, item.seed)
    vacating.run()
    return vacating.moves, vacating.emptied, vacating.room.at, vacating.room.device


class _SearchState:
    """Where tasks are after each round."""

    def __init__(self, snapshot: FleetSnapshot, options: SearchOptions, costs: Costs) -> None:
        self.snapshot, self.options = snapshot, options
        self.space = Space(snapshot, costs.of_moves(snapshot), costs.shares(snapshot))
        self.at = snapshot.tasks.node.astype(np.int64)
        self.device = snapshot.tasks.device.astype(np.int64)
        self.found = FoundMoves([], [], [])
        # moving tasks to an empty node gains nothing
        self.used = (snapshot.task_count > 0) & ~costs.not_worth_it(snapshot)

    def summary(self) -> str:
        return f"{len(self.found.emptied):,} nodes emptied"

    def next_round(self) -> list[Ints]:
        """The groups of the next round; none when the search is over."""
        rounds, options = self.found.rounds, self.options
        if len(rounds) >= options.rounds or rounds[-2:] == [0, 0]:
            return []
        draw = np.random.default_rng((options.seed, len(rounds)))
        nodes = draw.permutation(np.flatnonzero(self.used))
        if options.by_type and len(rounds) % 2:
            kind = self.snapshot.nodes.gpu_type[nodes]
            pools = [nodes[kind == code] for code in range(len(self.snapshot.gpu_types))]
        else:
            pools = [nodes]
        groups = []
        for pool in pools:
            if len(pool) > 1:
                parts = np.array_split(pool, -(-len(pool) // options.group))
                groups += [np.sort(part) for part in parts]
        return groups

    def _with_tasks(self, groups: list[Ints]) -> list[tuple[Ints, Ints]]:
        """Each group of nodes with its tasks, in order of their position."""
        owner = np.full(len(self.snapshot.nodes), -1)
        for number, nodes in enumerate(groups):
            owner[nodes] = number
        of = owner[self.at]
        order = np.argsort(of, kind="stable")
        ends = np.searchsorted(of[order], np.arange(len(groups) + 1))
        return [
            (nodes, order[start:end])
            for nodes, start, end in zip(groups, ends[:-1], ends[1:], strict=True)
        ]

    def items(self, groups: list[Ints]) -> Iterator[_Group]:
        for number, (nodes, tasks) in enumerate(self._with_tasks(groups)):
            part = self.space.part(nodes, tasks, self.at, self.device)
            seed = len(self.found.rounds) * 1_000_003 + number + self.options.seed * 7_919
            yield _Group(number, part, self.options.rules, seed)

    def finish(self, groups: list[Ints], results: dict[int, _Result]) -> None:
        """Take over what a round found, group by group."""
        count = 0
        for number, (nodes, tasks) in enumerate(self._with_tasks(groups)):
            moves, emptied, at, device = results[number]
            if not moves:
                continue
            self.found.moves += [
                Move(
                    int(tasks[move.task]),
                    int(nodes[move.source]),
                    int(nodes[move.target]),
                    move.device,
                    int(nodes[move.frees]),
                )
                for move in moves
            ]
            self.found.emptied += nodes[emptied].tolist()
            self.used[nodes[emptied]] = False
            count += len(emptied)
            self.at[tasks] = nodes[np.array(at)]
            self.device[tasks] = np.array(device)
        self.found.rounds.append(count)
