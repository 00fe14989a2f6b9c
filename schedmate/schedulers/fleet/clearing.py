"""Making room for a job under one access switch by moving tasks away from it (Section 4.1)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from schedmate.schedulers.fleet.defrag import Costs
from schedmate.schedulers.fleet.ejection import Move, Rules, Vacating
from schedmate.schedulers.fleet.parts import Space
from schedmate.schedulers.fleet.plan import Plan, make_plan
from schedmate.schedulers.fleet.snapshot import FleetSnapshot, Ints
from schedmate.schedulers.fleet.topology import Capacity

TRIED = 12
"""Switches examined, those that lack least first."""
MOST_NODES = 4_000
"""Nodes that tasks may go to."""


class Cleared(NamedTuple):
    """A switch with room, once a plan is carried out."""

    switch: int
    plan: Plan
    cost_gpu_h: float
    gpus: dict[int, int]
    """What each node under it can provide then."""


def clear_switch(
    snapshot: FleetSnapshot,
    found: Capacity,
    gpus: int,
    needs: tuple[int, int, int],
    gpu_type: str | None,
    costs: Costs | None = None,
    seed: int = 0,
) -> Cleared | None:
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
    reachable = np.where(locked, found.of_node, nodes.gpus) * usable
    wired = nodes.switch >= 0
    most = np.bincount(nodes.switch[wired], weights=reachable[wired], minlength=1)
    candidates = [s for s in np.argsort(-most, kind="stable").tolist() if most[s] >= gpus]
    candidates.sort(key=lambda s: (-found.room.get(s, 0), s))
    best: Cleared | None = None
    draw = np.random.default_rng(seed)
    for s in candidates[:TRIED]:
        inside = np.flatnonzero((nodes.switch == s) & usable)
        outside = np.flatnonzero((nodes.switch != s) & usable & (snapshot.task_count > 0))
        if len(outside) > MOST_NODES:
            outside = draw.choice(outside, MOST_NODES, replace=False)
        moves = _clear(space, np.sort(inside), np.sort(outside), gpus, needs)
        if moves is None:
            continue
        plan = make_plan(snapshot, moves)
        cost = sum(float(space.cost[step.task]) for step in plan.steps) / 3600
        if best is None or cost < best.cost_gpu_h:
            best = Cleared(s, plan, cost, _after(snapshot, plan, inside, needs))
    return best


def _clear(
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
    one = Vacating(space.part(every, tasks, at, device), Rules(order="cost"))
    room, part = one.room, one.part
    here = range(len(inside))
    open_before = [n for n in one.candidates() if n < len(inside)]
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
        if one.vacate(n):
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
        for move in one.moves
    ]


def _after(
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
