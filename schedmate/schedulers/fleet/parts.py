"""Some nodes of a snapshot with the tasks on them, as plain lists, for the searches.

Python reads single items of lists faster than those of arrays. Tasks and nodes are numbered from 0
within a part.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from schedmate.schedulers.fleet.faults import fitting
from schedmate.schedulers.fleet.snapshot import NONE, FleetSnapshot, Ints

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
    """Of each node: nodes of a kind take the same tasks."""
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
        fits = fitting(snapshot.require_sets, snapshot.label_sets)
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
