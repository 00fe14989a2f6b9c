"""Chooses access switches for a large job, and makes room under one by moving tasks (Section
4.1).

As few switches as possible, as unequal as possible: the paper's entropy of a job is
H = -sum p log p over the shares p of its GPUs under each switch. `published` is Algorithm 2 as
printed, `fewest` the allocation of least entropy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import permutations
from random import Random
from typing import NamedTuple

import numpy as np

from schedmate.schedulers.fleet.defrag import Costs, Move, Rules, Vacating
from schedmate.schedulers.fleet.plan import Plan, make_plan
from schedmate.schedulers.fleet.room import Space
from schedmate.schedulers.fleet.snapshot import FleetSnapshot, Ints

SwitchParts = dict[int, int]
"""GPUs by switch."""
AllocationRule = Callable[[int, dict[int, int]], SwitchParts]
SEARCHED = 2_000
"""Orders tried for several jobs, unless all are fewer."""


def entropy(parts: Sequence[int]) -> float:
    """Equation 1, natural logarithm; 0 for one part or none."""
    total = sum(parts)
    return sum(-g / total * math.log(g / total) for g in parts if g) + 0.0 if total else 0.0


def published(gpus: int, room: dict[int, int]) -> SwitchParts:
    """Algorithm 2 as printed; ties go to the larger part, then to the first switch.

    If there are not enough GPUs, the result has fewer than requested.
    """
    plan: SwitchParts = {}
    left = dict(room)
    missing = gpus
    while missing > 0 and left:
        best = min(
            left,
            key=lambda s: (
                round(entropy([*plan.values(), min(left[s], missing)]), 12),
                -min(left[s], missing),
                s,
            ),
        )
        if taken := min(left.pop(best), missing):
            plan[best] = taken
            missing -= taken
    return plan


def fewest(gpus: int, room: dict[int, int]) -> SwitchParts:
    """The allocation of least entropy, under as few switches as possible; see the module's
    docstring.

    If there are not enough GPUs, it takes all.
    """
    plan: SwitchParts = {}
    missing = gpus
    for s in sorted(room, key=lambda s: (-room[s], s)):
        if missing <= 0 or not room[s]:
            break
        if room[s] >= missing:
            # the others could not end it; of those that can, the tightest keeps most for others
            tight = min((free, t) for t, free in room.items() if t not in plan and free >= missing)
            plan[tight[1]] = missing
            return plan
        plan[s] = room[s]
        missing -= room[s]
    return plan


def under_one_switch(gpus: int, room: dict[int, int]) -> SwitchParts:
    """All GPUs under one switch, the tightest that has room; empty if none has."""
    fitting = [(free, s) for s, free in room.items() if free >= gpus]
    return {min(fitting)[1]: gpus} if fitting else {}


@dataclass(frozen=True)
class Allocation:
    """The nodes and GPUs that one job gets."""

    gpus: int
    """The request, which is met as a whole or not at all."""
    parts: SwitchParts
    """Empty if it does not fit."""

    @property
    def entropy(self) -> float:
        return entropy(list(self.parts.values()))


def allocate(sizes: Sequence[int], room: dict[int, int], rule: AllocationRule) -> list[Allocation]:
    """Jobs one after the other in this order."""
    left = dict(room)
    allocations = []
    for gpus in sizes:
        parts = rule(gpus, left)
        if sum(parts.values()) < gpus:
            parts = {}
        for s, taken in parts.items():
            left[s] -= taken
        allocations.append(Allocation(gpus, parts))
    return allocations


def allocation_score(allocations: Sequence[Allocation]) -> tuple[int, float, int]:
    """GPUs of jobs without room, then entropy of all, then switches: less is better."""
    missing = sum(allocation.gpus for allocation in allocations if not allocation.parts)
    return (
        missing,
        round(sum(allocation.entropy for allocation in allocations), 9),
        sum(len(allocation.parts) for allocation in allocations),
    )


def allocate_in_best_order(
    sizes: Sequence[int], room: dict[int, int], rule: AllocationRule = fewest, seed: int = 0
) -> list[Allocation]:
    """Several jobs, in the given order: largest first as published, then better orders.

    All orders of few jobs are tried; of many, random exchanges that do not worsen the result.
    """
    first = sorted(range(len(sizes)), key=lambda j: (-sizes[j], j))

    def tried(order: Sequence[int]) -> list[Allocation]:
        allocations = allocate([sizes[j] for j in order], room, rule)
        back = dict(zip(order, allocations, strict=True))
        return [back[j] for j in range(len(sizes))]

    best = tried(first)
    if len(sizes) <= 6:
        return min(
            (tried(order) for order in permutations(first)), key=allocation_score, default=best
        )
    draw = Random(seed)  # noqa: S311 - a search, no secret
    order = list(first)
    for _ in range(SEARCHED):
        i, j = draw.sample(range(len(order)), 2)
        changed = order[:]
        changed.insert(j, changed.pop(i))
        allocations = tried(changed)
        if allocation_score(allocations) <= allocation_score(best):
            best, order = allocations, changed
        if allocation_score(best)[:2] == (0, 0.0):
            break
    return best


@dataclass(frozen=True)
class Capacity:
    """GPUs that each node could provide for a job."""

    of_node: Ints
    domain: Ints
    """The switch of each node; a node without one counts as a switch."""
    room: dict[int, int]
    """By switch."""


def capacity(
    snapshot: FleetSnapshot,
    gpu_type: str | None,
    cpus_per_gpu: int,
    memory_per_gpu: int = 0,
    pod: int = 1,
) -> Capacity:
    """GPUs that are idle and have CPUs [milli-cores] and memory [kB] to go with them.

    `pod`: a node provides a multiple of this number of GPUs. `gpu_type`: None for all.
    """
    nodes = snapshot.nodes
    fits = snapshot.whole_free // pod
    for free, need in (
        (snapshot.cpus_free, cpus_per_gpu * pod),
        (snapshot.memory_free, memory_per_gpu * pod),
    ):
        if need:
            fits = np.minimum(fits, np.maximum(free, 0) // need)
    if gpu_type is not None:
        wanted = np.array([name == gpu_type for name in snapshot.gpu_types])
        fits = np.where(wanted[nodes.gpu_type], fits, 0)
    domain = snapshot.domains
    sums = np.bincount(domain, weights=fits * pod).astype(np.int64)
    room = {int(s): int(sums[s]) for s in np.flatnonzero(sums)}
    return Capacity(fits * pod, domain, room)


def on_nodes(capacities: Capacity, parts: SwitchParts, taken: Ints) -> dict[int, int]:
    """GPUs of each node for an allocation: few nodes, with a tight fit on the last.

    `taken`, the GPUs of each node that earlier jobs got, is updated.
    """
    chosen: dict[int, int] = {}
    for switch, gpus in parts.items():
        under = np.flatnonzero(capacities.domain == switch)
        free = {int(n): int(capacities.of_node[n] - taken[n]) for n in under}
        for n, count in fewest(gpus, free).items():
            chosen[n] = count
            taken[n] += count
    return chosen


# Making room for a job under one access switch by moving tasks away from it (Section 4.1).


MOST_TRIED = 12
"""Switches examined, those that lack least first."""
MOST_NODES = 4_000
"""Nodes that tasks may go to."""


class ClearedSwitch(NamedTuple):
    """A switch with room, once a plan is carried out."""

    switch: int
    plan: Plan
    cost_gpu_h: float
    gpus: dict[int, int]
    """What each node under it can provide then."""


def clear_switch(
    snapshot: FleetSnapshot,
    capacities: Capacity,
    gpus: int,
    needs: tuple[int, int, int],
    gpu_type: str | None,
    costs: Costs | None = None,
    seed: int = 0,
) -> ClearedSwitch | None:
    """The cheapest of some switches under which moving tasks away makes room for a job.

    `needs`: CPUs [milli-cores] and memory [kB] of a GPU, and GPUs of a pod. Whole nodes are
    vacated; tasks go to nodes under other switches. None where no switch can be cleared far enough.
    """
    costs = costs or Costs()
    nodes = snapshot.nodes
    space = Space(snapshot, costs.of_moves(snapshot))
    usable = np.ones(len(nodes), dtype=bool)
    if gpu_type is not None:
        usable = nodes.gpu_type == snapshot.gpu_types.index(gpu_type)
    locked = np.bincount(
        snapshot.tasks.node, weights=snapshot.tasks.locked, minlength=len(nodes)
    ).astype(bool)
    reachable = np.where(locked, capacities.of_node, nodes.gpus) * usable
    wired = nodes.switch >= 0
    most = np.bincount(nodes.switch[wired], weights=reachable[wired], minlength=1)
    candidates = [s for s in np.argsort(-most, kind="stable").tolist() if most[s] >= gpus]
    candidates.sort(key=lambda s: (-capacities.room.get(s, 0), s))
    best: ClearedSwitch | None = None
    draw = np.random.default_rng(seed)
    for s in candidates[:MOST_TRIED]:
        inside = np.flatnonzero((nodes.switch == s) & usable)
        outside = np.flatnonzero((nodes.switch != s) & usable & (snapshot.task_count > 0))
        if len(outside) > MOST_NODES:
            outside = draw.choice(outside, MOST_NODES, replace=False)
        moves = _clear_one(space, np.sort(inside), np.sort(outside), gpus, needs)
        if moves is None:
            continue
        plan = make_plan(snapshot, moves)
        cost = sum(float(space.cost[step.task]) for step in plan.steps) / 3600
        if best is None or cost < best.cost_gpu_h:
            best = ClearedSwitch(s, plan, cost, _capacity_after(snapshot, plan, inside, needs))
    return best


def _clear_one(
    space: Space,
    inside: Ints,
    outside: Ints,
    gpus: int,
    needs: tuple[int, int, int],
) -> list[Move] | None:
    """Moves that leave `gpus` under the switch, or None."""
    snapshot = space.snapshot
    every = np.concatenate([inside, outside])
    tasks = space.tasks_on(every)
    at, device = snapshot.tasks.node.astype(np.int64), snapshot.tasks.device.astype(np.int64)
    vacating = Vacating(space.part(every, tasks, at, device), Rules(order="cost"))
    room, part = vacating.room, vacating.part
    here = range(len(inside))
    open_before = [n for n in vacating.candidates() if n < len(inside)]
    for n in here:
        room.close(n)

    def gives(n: int) -> int:
        pods = room.whole[n] // needs[2]
        if needs[0]:
            pods = min(pods, room.cpus[n] // (needs[0] * needs[2]))
        if needs[1]:
            pods = min(pods, room.memory[n] // (needs[1] * needs[2]))
        return max(pods, 0) * needs[2]

    total = sum(gives(n) for n in here)

    # most GPUs for the cost first
    def price(n: int) -> tuple[float, int]:
        gain = part.gpus[n] // needs[2] * needs[2] - gives(n)
        cost = sum(part.cost[t] for t in room.tasks[n])
        return (cost / gain if gain else float("inf"), n)

    for n in sorted(open_before, key=price):
        if total >= gpus:
            break
        before = gives(n)
        if vacating.vacate(n):
            total += gives(n) - before
    if total < gpus:
        return None
    return [
        Move(
            int(tasks[move.task]),
            int(every[move.source]),
            int(every[move.target]),
            move.device,
            int(every[move.frees]),
        )
        for move in vacating.moves
    ]


def _capacity_after(
    snapshot: FleetSnapshot,
    plan: Plan,
    inside: Ints,
    needs: tuple[int, int, int],
) -> dict[int, int]:
    """What nodes can provide for a job once a plan that only moves tasks off them is carried
    out."""
    whole, cpus, memory = (
        values[inside].copy()
        for values in (snapshot.whole_free, snapshot.cpus_free, snapshot.memory_free)
    )
    emptied = np.isin(inside, plan.emptied)
    whole[emptied] = snapshot.nodes.gpus[inside][emptied]
    cpus[emptied] = snapshot.nodes.cpus[inside][emptied]
    memory[emptied] = snapshot.nodes.memory[inside][emptied]
    pods = whole // needs[2]
    for free, need in ((cpus, needs[0]), (memory, needs[1])):
        if need:
            pods = np.minimum(pods, np.maximum(free, 0) // (need * needs[2]))
    return {int(n): int(count) * needs[2] for n, count in zip(inside, pods, strict=True) if count}
