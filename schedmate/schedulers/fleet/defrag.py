"""Iterative partitioned consolidation (Section 4.1): which tasks to move to empty nodes.

Nodes are partitioned again in each round, the groups are searched in parallel, and the results are
merged in the order of the groups: for a seed the result is the same on any number of cores. Tasks
and nodes are positions in the snapshot.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from schedmate.scale.spread import spread
from schedmate.schedulers.fleet.ejection import Move, Rules, Vacating
from schedmate.schedulers.fleet.parts import Floats, Part, Space
from schedmate.schedulers.fleet.snapshot import MILLI, FleetSnapshot, Ints

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
        until = np.clip(ends(snapshot) - self.overlap_s, 0.0, horizon)
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
        soon = ends(snapshot) < self.worth_h * 3600.0
        little = (self.of_nodes(snapshot) <= own) | (self.shares(snapshot) < self.least_won)
        found: NDArray[np.bool_] = soon & little & (snapshot.nodes.gpus > 0)
        return found


def ends(snapshot: FleetSnapshot) -> Floats:
    """Time until the last task of each node ends [s]; infinity if unknown, 0 for empty nodes."""
    found = np.zeros(len(snapshot.nodes))
    np.maximum.at(found, snapshot.tasks.node, snapshot.tasks.remaining_s)
    return found


@dataclass(frozen=True)
class Options:
    """How to search."""

    rules: Rules = field(default_factory=lambda: Rules(order="cost"))
    rounds: int = 5
    """Most rounds; a search ends when two rounds in a row find nothing."""
    group: int = 500
    """Nodes per group."""
    by_type: bool = True
    """Whether every second round partitions each GPU type by itself."""
    seed: int = 0


PUBLISHED = Options(Rules(), by_type=False)
"""Algorithm 1 as published."""
BEST_FIT = Options(Rules(depth=1), by_type=False)
"""The same without ejection chains."""
RANDOM_EVICTION = Options(Rules(depth=1, place="random"), by_type=False)
"""What Algorithm 1 is compared with: evicted tasks go to any node with room."""
METHODS = {
    "schedmate": Options(),
    "large-nodes": Options(Rules(order="price")),
    "published": PUBLISHED,
    "best-fit": BEST_FIT,
    "random-eviction": RANDOM_EVICTION,
}


@dataclass
class Found:
    """The moves of a search, in an order that can be carried out one by one."""

    moves: list[Move]
    emptied: list[int]
    rounds: list[int]
    """Nodes emptied in each round."""


@dataclass(frozen=True)
class _Item:
    number: int
    part: Part
    rules: Rules
    seed: int


def search(
    snapshot: FleetSnapshot,
    options: Options,
    costs: Costs | None = None,
    *,
    processes: int = 1,
    progress: Progress = lambda _done, _text: None,
) -> Found:
    """Moves that empty nodes. `progress` is called with the number of groups done."""
    state = _State(snapshot, options, costs or Costs())
    if processes == 1:
        done = 0
        while groups := state.next_round():
            found = {}
            for item in state.items(groups):
                found[item.number] = _vacate(item)
                done += 1
                progress(done, state.summary())
            state.finish(groups, found)
        return state.found
    # one pool for all rounds: the items of a round are drawn when the one before is finished
    finished: queue.Queue[bool] = queue.Queue()
    current: list[list[Ints]] = []

    def items() -> Iterator[_Item]:
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


def _vacate(item: _Item, _shared: None = None) -> _Result:
    one = Vacating(item.part, item.rules, item.seed)
    one.run()
    return one.moves, one.emptied, one.room.at, one.room.device


class _State:
    """Where tasks are after each round."""

    def __init__(self, snapshot: FleetSnapshot, options: Options, costs: Costs) -> None:
        self.snapshot, self.options = snapshot, options
        self.space = Space(snapshot, costs.of_moves(snapshot), costs.shares(snapshot))
        self.at = snapshot.tasks.node.astype(np.int64)
        self.device = snapshot.tasks.device.astype(np.int64)
        self.found = Found([], [], [])
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

    def items(self, groups: list[Ints]) -> Iterator[_Item]:
        for number, (nodes, tasks) in enumerate(self._with_tasks(groups)):
            part = self.space.part(nodes, tasks, self.at, self.device)
            seed = len(self.found.rounds) * 1_000_003 + number + self.options.seed * 7_919
            yield _Item(number, part, self.options.rules, seed)

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
