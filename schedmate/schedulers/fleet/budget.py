"""Which nodes are worth emptying: by what their GPUs are worth, what moves cost, and a budget.

Any choice of moves that has, with each move, those it waits for is safe, as the others can be
thought of as having failed. So nodes are chosen one by one, best value for its cost first, each
with all moves that it needs and that are not chosen yet.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from schedmate.schedulers.fleet.defrag import Costs
from schedmate.schedulers.fleet.plan import Plan, Step, arrange


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


def choose(plan: Plan, costs: Costs, budget: int | None = None) -> Choice:
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
    found, open_ = set(first), list(first)
    while open_:
        for k in steps[open_.pop()].after:
            if k not in found:
                found.add(k)
                open_.append(k)
    return found
