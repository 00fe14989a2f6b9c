"""Room on nodes while tasks are placed and moved: the state that every search works on.

`Part` has some nodes of a snapshot with the tasks on them as plain lists, since Python reads single
items of lists faster than those of arrays; tasks and nodes are numbered from 0 within a part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from schedmate.schedulers.fleet.snapshot import MILLI, NONE, FleetSnapshot, Ints, fitting_labels

Floats = NDArray[np.float64]
NOWHERE = -1


@dataclass
class Part:
    """Some nodes and the tasks on them, as it travels between processes."""

    gpus: list[int]
    """Of each node, all of them."""
    cpus: list[int]
    """Of each node, all of them [milli-cores]."""
    memory: list[int]
    """[kB]"""
    kind: list[int]
    """Of each node, its kind: all nodes of a kind accept the same tasks."""
    need: list[int]
    """Of each task [milli-GPUs]."""
    need_cpus: list[int]
    need_memory: list[int]
    reach: list[int]
    """Of each task: position in `reaches`."""
    reaches: list[tuple[int, ...]]
    """Kinds of nodes."""
    group: list[int]
    avoid: list[tuple[int, ...]]
    movable: list[bool]
    node: list[int]
    """Of each task."""
    device: list[int]
    cost: list[float]
    """Of moving each task [GPU seconds]."""
    share: list[float] = field(default_factory=list)
    """Of each node: what emptying it wins of what the node is worth, above 0; empty: all of it."""


class Space:
    """What a snapshot's tasks and nodes are to each other, once for all its parts."""

    def __init__(
        self, snapshot: FleetSnapshot, cost: Floats | None = None, share: Floats | None = None
    ) -> None:
        """`cost` of moving each task [GPU seconds], 0 by default; `share`: see `Part`."""
        nodes, tasks = snapshot.nodes, snapshot.tasks
        self.cost = np.zeros(len(tasks)) if cost is None else cost
        self.share = share
        fits = fitting_labels(snapshot.require_sets, snapshot.label_sets)
        # nodes of one type whose labels no requirement distinguishes are of one kind
        columns, same = np.unique(fits, axis=1, return_inverse=True)
        key = nodes.gpu_type.astype(np.int64) * (columns.shape[1] + 1) + same.ravel()[nodes.labels]
        _, first, self.kind = np.unique(key, return_index=True, return_inverse=True)
        kind_type, kind_fits = nodes.gpu_type[first], fits[:, nodes.labels[first]]
        free = tasks.any_type | (tasks.gpus == 0)
        pinned = np.where(free, NONE, nodes.gpu_type[tasks.node]).astype(np.int64)
        width = len(snapshot.gpu_types) + 1
        wanted = tasks.require.astype(np.int64) * width + pinned + 1
        kinds, self.reach = np.unique(wanted, return_inverse=True)
        self.reaches: list[tuple[int, ...]] = []
        for one in kinds.tolist():
            required, gpu_type = one // width, one % width - 1
            good = kind_fits[required]
            if gpu_type != NONE:
                good = good & (kind_type == gpu_type)
            self.reaches.append(tuple(np.flatnonzero(good).tolist()))
        self.snapshot = snapshot
        self.order = np.argsort(tasks.node, kind="stable")
        self.starts = np.searchsorted(tasks.node[self.order], np.arange(len(nodes) + 1))

    def tasks_on(self, nodes: Ints, at: Ints | None = None) -> Ints:
        """The tasks on these nodes, by node; `at`: where tasks are by now."""
        if at is not None:
            inside = np.zeros(len(self.snapshot.nodes), dtype=bool)
            inside[nodes] = True
            return np.flatnonzero(inside[at])
        return np.concatenate(
            [self.order[self.starts[n] : self.starts[n + 1]] for n in nodes.tolist()]
            or [np.zeros(0, np.int64)]
        )

    def part(self, nodes: Ints, tasks: Ints, at: Ints, device: Ints) -> Part:
        """These nodes with these tasks, which are on them by `at`."""
        there, here = self.snapshot.nodes, self.snapshot.tasks
        local = np.full(len(there), NOWHERE)
        local[nodes] = np.arange(len(nodes))
        avoid_sets = self.snapshot.avoid_sets
        return Part(
            there.gpus[nodes].tolist(),
            there.cpus[nodes].tolist(),
            there.memory[nodes].tolist(),
            self.kind[nodes].tolist(),
            here.gpus[tasks].tolist(),
            here.cpus[tasks].tolist(),
            here.memory[tasks].tolist(),
            self.reach[tasks].tolist(),
            self.reaches,
            here.group[tasks].tolist(),
            [avoid_sets[code] for code in here.avoid[tasks].tolist()],
            (~here.locked[tasks]).tolist(),
            local[at[tasks]].tolist(),
            device[tasks].tolist(),
            self.cost[tasks].tolist(),
            [] if self.share is None else self.share[nodes].tolist(),
        )


# Room on nodes while tasks are placed and moved: the state that every search works on.


class Room:
    """The nodes of a part with room left, and where each task is; tasks come and go."""

    def __init__(self, part: Part, *, empty: bool = False) -> None:
        """With `empty`, no task is placed yet."""
        self.part = part
        self.whole, self.cpus, self.memory = part.gpus[:], part.cpus[:], part.memory[:]
        size = len(part.gpus)
        self.shared: list[dict[int, int]] = [{} for _ in range(size)]
        """Free parts of the GPUs with fractions on each node [milli-GPUs]."""
        self.tasks: list[dict[int, None]] = [{} for _ in range(size)]
        """Of each node, in order of arrival."""
        self.at = [NOWHERE] * len(part.need)
        self.device = part.device[:]
        self.groups: list[dict[int, int]] = [{} for _ in range(size)]
        """Of each node: tasks of each group."""
        self.avoided: list[dict[int, int]] = [{} for _ in range(size)]
        """Of each node: tasks that avoid each group."""
        kinds = max(part.kind, default=-1) + 1
        most = max(part.gpus, default=0)
        self.buckets: list[list[dict[int, None]]] = [
            [{} for _ in range(most + 1)] for _ in range(kinds)
        ]
        """By kind and number of GPUs that are wholly free: nodes that take tasks."""
        self.sharing: list[dict[int, None]] = [{} for _ in range(kinds)]
        """By kind: nodes that take tasks and have GPUs with fractions on them."""
        self.open = [True] * size
        self.reaches = [
            tuple(kind for kind in kinds_of if kind < kinds) for kinds_of in part.reaches
        ]
        self.pool = _pools(part, self.reaches, kinds)
        """Of each kind: kinds with one number share tasks that hold GPUs, directly or in steps."""
        self.free_gpus = [0] * kinds
        """By pool, on open nodes [milli-GPUs]."""
        self.free_cpus = 0
        """On open nodes [milli-cores]."""
        for n in range(size):
            self.buckets[part.kind[n]][self.whole[n]][n] = None
            self.free_gpus[self.pool[part.kind[n]]] += self.whole[n] * MILLI
            self.free_cpus += self.cpus[n]
        if not empty:
            for t, n in enumerate(part.node):
                self.put(t, n, part.device[t])

    def fits(self, t: int, n: int) -> bool:
        """Whether a node has room for a task now, and no group forbids it."""
        part = self.part
        if self.cpus[n] < part.need_cpus[t] or self.memory[n] < part.need_memory[t]:
            return False
        need = part.need[t]
        if need >= MILLI:
            if self.whole[n] * MILLI < need:
                return False
        elif need and not self.whole[n] and all(f < need for f in self.shared[n].values()):
            return False
        return self.compatible(t, n)

    def compatible(self, t: int, n: int) -> bool:
        """Whether neither the task nor one on the node avoids the other."""
        group, avoid = self.part.group[t], self.part.avoid[t]
        if group != NONE and group in self.avoided[n]:
            return False
        return not (avoid and any(one in self.groups[n] for one in avoid))

    def put(self, t: int, n: int, device: int = NONE) -> None:
        """Place a task; a fraction on `device`, or on the fullest GPU that has room for it."""
        part = self.part
        need = part.need[t]
        if need >= MILLI:
            self._count(n, self.whole[n] - need // MILLI)
        elif need:
            shared = self.shared[n]
            if device == NONE:
                room = [(free, group) for group, free in shared.items() if free >= need]
                device = (
                    min(room)[1] if room else next(d for d in range(1 << 20) if d not in shared)
                )
            if device not in shared:
                shared[device] = MILLI
                self._count(n, self.whole[n] - 1)
                if self.open[n]:
                    self.sharing[part.kind[n]][n] = None
            shared[device] -= need
        self.device[t] = device
        if self.open[n]:
            self.free_gpus[self.pool[part.kind[n]]] -= need
            self.free_cpus -= part.need_cpus[t]
        self.cpus[n] -= part.need_cpus[t]
        self.memory[n] -= part.need_memory[t]
        self.tasks[n][t] = None
        self.at[t] = n
        if part.group[t] != NONE:
            _count_up(self.groups[n], part.group[t])
        for group in part.avoid[t]:
            _count_up(self.avoided[n], group)

    def take(self, t: int) -> None:
        """Take a task off its node."""
        part, n = self.part, self.at[t]
        need = part.need[t]
        if need >= MILLI:
            self._count(n, self.whole[n] + need // MILLI)
        elif need:
            shared, device = self.shared[n], self.device[t]
            shared[device] += need
            if shared[device] == MILLI:
                del shared[device]
                self._count(n, self.whole[n] + 1)
                if not shared:
                    self.sharing[part.kind[n]].pop(n, None)
        if self.open[n]:
            self.free_gpus[self.pool[part.kind[n]]] += need
            self.free_cpus += part.need_cpus[t]
        self.cpus[n] += part.need_cpus[t]
        self.memory[n] += part.need_memory[t]
        del self.tasks[n][t]
        self.at[t] = NOWHERE
        if part.group[t] != NONE:
            _count_down(self.groups[n], part.group[t])
        for group in part.avoid[t]:
            _count_down(self.avoided[n], group)

    def close(self, n: int) -> None:
        """Let no more tasks onto a node."""
        if self.open[n]:
            self.open[n] = False
            self._total(n, -1)
            del self.buckets[self.part.kind[n]][self.whole[n]][n]
            self.sharing[self.part.kind[n]].pop(n, None)

    def reopen(self, n: int) -> None:
        """Let tasks onto a closed node again."""
        if not self.open[n]:
            self.open[n] = True
            self._total(n, 1)
            self.buckets[self.part.kind[n]][self.whole[n]][n] = None
            if self.shared[n]:
                self.sharing[self.part.kind[n]][n] = None

    def candidates(self, t: int, least: int = 0) -> Iterator[int]:
        """Open nodes of the right kind by GPUs left over, fewest first, whether it fits or not.

        `least`: GPUs that must be wholly free at least.
        """
        reach = self.reaches[self.part.reach[t]]
        for free in range(least, len(self.buckets[0]) if self.buckets else 0):
            for kind in reach:
                yield from self.buckets[kind][free]

    def best(self, t: int, banned: Sequence[int] = ()) -> int:
        """The node where a task leaves the least over, or `NOWHERE` (best fit).

        By GPUs first (a fraction joins others if it can), then by CPUs left over.
        """
        part = self.part
        need, cpus, memory = part.need[t], part.need_cpus[t], part.need_memory[t]
        constrained = part.group[t] != NONE or part.avoid[t]
        reach = self.reaches[part.reach[t]]
        if 0 < need < MILLI:
            best = self._beside(t, reach, banned)
            if best != NOWHERE:
                return best
        least = -(-need // MILLI)
        room, best, lowest = self.cpus, NOWHERE, 0
        for free in range(least, len(self.buckets[0]) if self.buckets else 0):
            for kind in reach:
                for n in self.buckets[kind][free]:
                    left = room[n] - cpus
                    if left < 0 or (best != NOWHERE and left >= lowest):
                        continue
                    if self.memory[n] < memory or n in banned:
                        continue
                    if constrained and not self.compatible(t, n):
                        continue
                    best, lowest = n, left
            if best != NOWHERE:
                return best
        return NOWHERE

    def _beside(self, t: int, reach: Sequence[int], banned: Sequence[int]) -> int:
        need, best, most = self.part.need[t], NOWHERE, MILLI + 1
        for kind in reach:
            for n in self.sharing[kind]:
                for free in self.shared[n].values():
                    if need <= free < most and n not in banned and self.fits(t, n):
                        best, most = n, free
            if most == need:
                break
        return best

    def enough(self, tasks: Iterable[int]) -> bool:
        """Whether all open nodes together have what tasks need; no chain helps where not."""
        part = self.part
        needs: dict[int, int] = {}
        cpus = 0
        for t in tasks:
            cpus += part.need_cpus[t]
            if part.need[t] and (reach := self.reaches[part.reach[t]]):
                pool = self.pool[reach[0]]
                needs[pool] = needs.get(pool, 0) + part.need[t]
        return cpus <= self.free_cpus and all(
            need <= self.free_gpus[pool] for pool, need in needs.items()
        )

    def _total(self, n: int, sign: int) -> None:
        free = self.whole[n] * MILLI + sum(self.shared[n].values())
        self.free_gpus[self.pool[self.part.kind[n]]] += sign * free
        self.free_cpus += sign * self.cpus[n]

    def _count(self, n: int, whole: int) -> None:
        if self.open[n]:
            buckets = self.buckets[self.part.kind[n]]
            del buckets[self.whole[n]][n]
            buckets[whole][n] = None
        self.whole[n] = whole


def _pools(part: Part, reaches: Sequence[Sequence[int]], kinds: int) -> list[int]:
    pool = list(range(kinds))
    for code in {part.reach[t] for t, need in enumerate(part.need) if need}:
        joined = {pool[kind] for kind in reaches[code]}
        if len(joined) > 1:
            pool = [min(joined) if one in joined else one for one in pool]
    return pool


def _count_up(counts: dict[int, int], key: int) -> None:
    counts[key] = counts.get(key, 0) + 1


def _count_down(counts: dict[int, int], key: int) -> None:
    if counts[key] == 1:
        del counts[key]
    else:
        counts[key] -= 1
