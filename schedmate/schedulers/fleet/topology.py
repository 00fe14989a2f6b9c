"""Chooses access switches for a large job: as few as possible, as unequal as possible (§4.1).

The paper's entropy of a job is H = -sum p log p over the shares p of its GPUs under each switch.
Algorithm 2, `published`, adds in each step the switch that minimises the entropy of the allocation
so far. It is stated to be optimal for one job, and as printed is not: the first step is a tie of
all switches, as one has entropy 0, and each later one prefers the smallest switch, as it adds
little entropy. With 10, 9 and 1 GPUs free a job of 19 gets 10 + 1 + 8, not 10 + 9.

`fewest` takes the largest switches first, and for the rest the tightest that has room. That is
optimal: of all ways to take G GPUs, the k largest parts never add up to more than min(G, the k
largest capacities), which is what it takes; it majorizes all others, and entropy is Schur-concave.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import permutations
from random import Random

import numpy as np

from schedmate.schedulers.fleet.snapshot import FleetSnapshot, Ints

Parts = dict[int, int]
"""GPUs by switch."""
Rule = Callable[[int, dict[int, int]], Parts]
SEARCHED = 2_000
"""Orders tried for several jobs, unless all are fewer."""


def entropy(parts: Sequence[int]) -> float:
    """Equation 1, natural logarithm; 0 for one part or none."""
    total = sum(parts)
    return sum(-g / total * math.log(g / total) for g in parts if g) + 0.0 if total else 0.0


def published(gpus: int, room: dict[int, int]) -> Parts:
    """Algorithm 2 as printed; ties go to the larger part, then to the first switch.

    If there are not enough GPUs, the result has fewer than requested.
    """
    plan: Parts = {}
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


def fewest(gpus: int, room: dict[int, int]) -> Parts:
    """The allocation of least entropy, under as few switches as possible; see the module's
    docstring.

    If there are not enough GPUs, it takes all.
    """
    plan: Parts = {}
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


def within(gpus: int, room: dict[int, int]) -> Parts:
    """All GPUs under one switch, the tightest that has room; empty if none has."""
    fitting = [(free, s) for s, free in room.items() if free >= gpus]
    return {min(fitting)[1]: gpus} if fitting else {}


@dataclass(frozen=True)
class Allocation:
    """The nodes and GPUs that one job gets."""

    gpus: int
    """The request, which is met as a whole or not at all."""
    parts: Parts
    """Empty if it does not fit."""

    @property
    def entropy(self) -> float:
        return entropy(list(self.parts.values()))


def allocate(sizes: Sequence[int], room: dict[int, int], rule: Rule) -> list[Allocation]:
    """Jobs one after the other in this order."""
    left = dict(room)
    found = []
    for gpus in sizes:
        parts = rule(gpus, left)
        if sum(parts.values()) < gpus:
            parts = {}
        for s, taken in parts.items():
            left[s] -= taken
        found.append(Allocation(gpus, parts))
    return found


def score(found: Sequence[Allocation]) -> tuple[int, float, int]:
    """GPUs of jobs without room, then entropy of all, then switches: less is better."""
    missing = sum(one.gpus for one in found if not one.parts)
    return (
        missing,
        round(sum(one.entropy for one in found), 9),
        sum(len(one.parts) for one in found),
    )


def several(
    sizes: Sequence[int], room: dict[int, int], rule: Rule = fewest, seed: int = 0
) -> list[Allocation]:
    """Several jobs, in the given order: largest first as published, then better orders.

    All orders of few jobs are tried; of many, random exchanges that do not worsen the result.
    """
    first = sorted(range(len(sizes)), key=lambda j: (-sizes[j], j))

    def tried(order: Sequence[int]) -> list[Allocation]:
        found = allocate([sizes[j] for j in order], room, rule)
        back = dict(zip(order, found, strict=True))
        return [back[j] for j in range(len(sizes))]

    best = tried(first)
    if len(sizes) <= 6:
        return min((tried(order) for order in permutations(first)), key=score, default=best)
    draw = Random(seed)  # noqa: S311 - a search, no secret
    order = list(first)
    for _ in range(SEARCHED):
        i, j = draw.sample(range(len(order)), 2)
        changed = order[:]
        changed.insert(j, changed.pop(i))
        found = tried(changed)
        if score(found) <= score(best):
            best, order = found, changed
        if score(best)[:2] == (0, 0.0):
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


def on_nodes(found: Capacity, parts: Parts, taken: Ints) -> dict[int, int]:
    """GPUs of each node for an allocation: few nodes, with a tight fit on the last.

    `taken`, the GPUs of each node that earlier jobs got, is updated.
    """
    chosen: dict[int, int] = {}
    for switch, gpus in parts.items():
        under = np.flatnonzero(found.domain == switch)
        free = {int(n): int(found.of_node[n] - taken[n]) for n in under}
        for n, count in fewest(gpus, free).items():
            chosen[n] = count
            taken[n] += count
    return chosen
