"""From moves to a plan: waves of migrations that are safe at every step, which of them are worth
it, and the plan as JSON (`schedmate.fleet-plan/v1`).

Within a wave every new instance is started before its old one ends, so both hold resources. A
migration that fails leaves its task where it was; each move lists the moves that it waits for.
"""

from __future__ import annotations

import heapq
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from schedmate.base.errors import InputError, SchedmateError
from schedmate.base.reading import read_text
from schedmate.schedulers.fleet.defrag import Costs, Move
from schedmate.schedulers.fleet.snapshot import MILLI, NONE, FleetSnapshot, Ints
from schedmate.schedulers.fleet.verify import Planned, plan_faults


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
        self.loads = {n: NodeLoad(snapshot, n) for n in targets.tolist()}
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


# Which nodes are worth emptying: by what their GPUs are worth, what moves cost, and a budget.
#
# Any choice of moves that has, with each move, those it waits for is safe, as the others can be
# thought of as having failed. So nodes are chosen one by one, best value for its cost first, each
# with all moves that it needs and that are not chosen yet.


@dataclass(frozen=True)
class Choice:
    """The part of a plan that is worth its cost."""

    plan: Plan
    cost_gpu_h: float
    worth_gpu_h: float
    too_dear: int
    """Nodes left as they are because emptying them costs more than it is worth."""
    over_budget: int
    """Nodes left as they are because the budget of migrations is used up."""
    ending: int = 0
    """Nodes left alone because they will be free before emptying them pays, by estimates."""


def choose_steps(plan: Plan, costs: Costs, budget: int | None = None) -> Choice:
    """The part of a plan that is worth it, within a budget of migrations."""
    snapshot = plan.snapshot
    of_move = costs.of_moves(snapshot)
    of_node = costs.of_nodes(snapshot)
    emptied = set(plan.emptied)
    needs: dict[int, set[int]] = {n: set() for n in plan.emptied}
    for k, step in enumerate(plan.steps):
        for n in step.frees & emptied:
            needs[n].add(k)
        # moves that leave or pass an emptied node are cancelled
        if step.source in emptied:
            needs[step.source].add(k)
    closed = [_closure(plan.steps, {k}) for k in range(len(plan.steps))]
    whole = {n: set().union(*(closed[k] for k in moves)) for n, moves in needs.items()}
    chosen: set[int] = set()
    left = {"dear": 0, "budget": 0}
    worth = 0.0

    def rate(n: int) -> float:
        return float(sum(of_move[plan.steps[k].task] for k in whole[n] - chosen) / of_node[n])

    heap = [(rate(n), n) for n in whole]
    heapq.heapify(heap)
    while heap:
        ratio, n = heapq.heappop(heap)
        # other nodes may have paid for some of its moves meanwhile
        if (now := rate(n)) < ratio:
            heapq.heappush(heap, (now, n))
            continue
        more = whole[n] - chosen
        if ratio > 1.0:
            left["dear"] += 1
        elif budget is not None and len(chosen) + len(more) > budget:
            left["budget"] += 1
        else:
            chosen |= more
            worth += float(of_node[n])
    if len(chosen) < len(plan.steps):
        steps = [plan.steps[k] for k in sorted(chosen)]
        plan = arrange(
            snapshot, [Step(s.task, s.source, s.target, s.device, s.frees) for s in steps]
        )
    cost = sum(float(of_move[step.task]) for step in plan.steps)
    ending = int((costs.not_worth_it(snapshot) & (snapshot.task_count > 0)).sum())
    return Choice(plan, cost / 3600, worth / 3600, left["dear"], left["budget"], ending)


def _closure(steps: list[Step], first: set[int]) -> set[int]:
    closure, open_ = set(first), list(first)
    while open_:
        for k in steps[open_.pop()].after:
            if k not in closure:
                closure.add(k)
                open_.append(k)
    return closure


# `schedmate.fleet-plan/v1`: a plan as JSON, and back.


PLAN_SCHEMA = "schedmate.fleet-plan/v1"


class ReadPlan(NamedTuple):
    """A plan read from a file, on a snapshot."""

    moves: list[Planned]
    emptied: list[int]
    same_snapshot: bool
    """Whether it was made from this snapshot."""


def planned_moves(plan: Plan) -> list[Planned]:
    """The moves of a plan as the checker takes them."""
    return [Planned(s.task, s.source, s.target, s.device, s.wave, s.after) for s in plan.steps]


def require_safe(plan: Plan) -> None:
    """Raise `SchedmateError` for a plan that is not proved to be safe."""
    if wrong := plan_faults(plan.snapshot, planned_moves(plan), plan.emptied):
        raise SchedmateError(
            f"the plan found is not safe ({wrong[0]}), so it is withheld; report this with the "
            "snapshot."
        )


def plan_document(choice: Choice, seconds: float, method: str, seed: int) -> dict[str, Any]:
    """The plan as `--json` prints it."""
    plan = choice.plan
    snapshot, nodes = plan.snapshot, plan.snapshot.nodes.name
    waves: list[list[dict[str, Any]]] = [[] for _ in range(plan.waves)]
    for k, step in enumerate(plan.steps):
        move: dict[str, Any] = {
            "move": k,
            "task": snapshot.tasks.name[step.task],
            "from": nodes[step.source],
            "to": nodes[step.target],
        }
        if step.device != NONE:
            move["device"] = step.device
        if step.after:
            move["after"] = step.after
        waves[step.wave].append(move)
    regained = sum(int(snapshot.nodes.gpus[n]) for n in plan.emptied)
    return {
        "schema": PLAN_SCHEMA,
        "snapshot": snapshot.hash,
        "origin": snapshot.origin,
        "method": method,
        "seed": seed,
        "waves": waves,
        "emptied": [nodes[n] for n in plan.emptied],
        "emptied_gpus": regained,
        "migrations": len(plan.steps),
        "slack_before": snapshot.slack(),
        "slack_after": snapshot.slack(plan.node_after()),
        "cost_gpu_h": round(choice.cost_gpu_h, 3),
        "worth_gpu_h": round(choice.worth_gpu_h, 3),
        "left_too_dear": choice.too_dear,
        "left_over_budget": choice.over_budget,
        "left_ending": choice.ending,
        "seconds": round(seconds, 3),
    }


def read_plan(path: Path, snapshot: FleetSnapshot) -> ReadPlan:
    """A plan from its JSON, with names looked up in a snapshot; raises `InputError`.

    A task or node that the snapshot lacks means that the cluster has changed since.
    """
    try:
        document = json.loads(read_text(path))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"cannot read the plan {path}: {error}.") from None
    if not isinstance(document, dict) or document.get("schema") != PLAN_SCHEMA:
        raise InputError(
            f"{path} is no {PLAN_SCHEMA} document; `schedmate fleet defrag -o FILE` writes one."
        )
    node = {name: n for n, name in enumerate(snapshot.nodes.name)}
    task = {name: t for t, name in enumerate(snapshot.tasks.name)}
    moves: list[Planned] = []
    try:
        for wave, listed in enumerate(document["waves"]):
            for move in listed:
                if move.get("move", len(moves)) != len(moves):
                    _refuse(path, f"its moves are not numbered in order at {move['move']!r}")
                after = move.get("after", [])
                device = move.get("device", NONE)
                if not all(type(one) is int for one in (device, *after)):
                    _refuse(
                        path, f"move {len(moves)} has an 'after' or 'device' that is not a number"
                    )
                moves.append(
                    Planned(
                        _position(task, move["task"], "task"),
                        _position(node, move["from"], "node"),
                        _position(node, move["to"], "node"),
                        device,
                        wave,
                        after,
                    )
                )
        emptied = [_position(node, name, "node") for name in document["emptied"]]
        return ReadPlan(moves, emptied, document["snapshot"] == snapshot.hash)
    except (KeyError, TypeError, AttributeError) as error:
        _refuse(path, f"it lacks or misuses {error}")


def _position(names: dict[str, int], name: Any, what: str) -> int:
    if name not in names:
        raise InputError(
            f"the plan names {what} {name!r}, which the snapshot does not have: the cluster has "
            "changed; make a new plan."
        )
    return names[name]


def _refuse(path: Path, what: str) -> NoReturn:
    raise InputError(
        f"{path} is not a complete plan: {what}; "
        "write it again with `schedmate fleet defrag -o FILE`."
    )


# Tasks on one node, where a task may be on two nodes at once.


class NodeLoad:
    """The tasks on a node, and its free resources."""

    def __init__(self, snapshot: FleetSnapshot, node: int) -> None:
        nodes = snapshot.nodes
        self.snapshot = snapshot
        self.whole = int(nodes.gpus[node])
        self.cpus, self.memory = int(nodes.cpus[node]), int(nodes.memory[node])
        self.tasks: dict[int, int] = {}
        """Each with its GPU if it holds a part of one."""
        self.shared: dict[int, int] = {}
        """Free parts of the GPUs with fractions [milli-GPUs]."""
        self.groups: Counter[int] = Counter()
        self.avoided: Counter[int] = Counter()

    def fits(self, t: int, device: int) -> bool:
        """Whether a task could come now, a fraction onto that GPU."""
        tasks = self.snapshot.tasks
        if self.cpus < tasks.cpus[t] or self.memory < tasks.memory[t]:
            return False
        need = int(tasks.gpus[t])
        if need >= MILLI:
            if self.whole * MILLI < need:
                return False
        elif need:
            free = self.shared.get(device)
            if (free is None and not self.whole) or (free is not None and free < need):
                return False
        avoid = self.snapshot.avoid_sets[tasks.avoid[t]]
        return not self.avoided[int(tasks.group[t])] and not any(self.groups[g] for g in avoid)

    def put(self, t: int, device: int) -> None:
        """Add a task to the node, whether it fits or not."""
        self._add(t, device, 1)
        self.tasks[t] = device

    def take(self, t: int) -> None:
        """Remove a task from the node."""
        self._add(t, self.tasks.pop(t), -1)

    def _add(self, t: int, device: int, sign: int) -> None:
        tasks = self.snapshot.tasks
        need = int(tasks.gpus[t])
        self.cpus -= sign * int(tasks.cpus[t])
        self.memory -= sign * int(tasks.memory[t])
        if need >= MILLI:
            self.whole -= sign * need // MILLI
        elif need:
            if device not in self.shared:
                self.shared[device] = MILLI
                self.whole -= 1
            self.shared[device] -= sign * need
            if self.shared[device] == MILLI:
                del self.shared[device]
                self.whole += 1
        if tasks.group[t] != NONE:
            self.groups[int(tasks.group[t])] += sign
        for group in self.snapshot.avoid_sets[tasks.avoid[t]]:
            self.avoided[group] += sign
