"""A whole cluster at one moment as columns, an array for each property of nodes and tasks.

Quantities are whole numbers, so that sums are exact: GPUs in thousandths (`MILLI` is a whole GPU),
CPUs in thousandths of a core, memory in kB. What repeats (GPU types, switches, sets of labels) is
held once, and columns refer to it by position.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Codes = NDArray[np.int32]
Bools = NDArray[np.bool_]

MILLI = 1000
"""A whole GPU, and a whole CPU core."""
UNLIMITED = 2**53
"""CPUs or memory of a node that does not say how much it has."""
NONE = -1
"""Marks a missing entry in a column of positions."""


@dataclass(frozen=True)
class Nodes:
    """A row for each machine."""

    name: list[str]
    gpu_type: Codes
    """Position in `FleetSnapshot.gpu_types`."""
    gpus: Ints
    """Whole GPUs; 0: a node of CPUs only."""
    cpus: Ints
    """[milli-cores], `UNLIMITED` where unknown."""
    memory: Ints
    """[kB], `UNLIMITED` where unknown."""
    switch: Codes
    """Access switch: position in `FleetSnapshot.switches`, or `NONE`."""
    aggregation: Codes
    """Aggregation switch: position in `FleetSnapshot.aggregations`, or `NONE`."""
    labels: Codes
    """Position in `FleetSnapshot.label_sets`."""

    def __len__(self) -> int:
        return len(self.name)


@dataclass(frozen=True)
class Tasks:
    """A row for each running task: a pod, a Slurm job's share of a node, an instance."""

    name: list[str]
    job: Codes
    """Position in `FleetSnapshot.jobs`."""
    node: Codes
    """Position in `Nodes`."""
    gpus: Ints
    """[milli-GPUs]: whole GPUs, or less than one."""
    device: Codes
    """Which GPU of its node a task with a fraction is on; `NONE` for others."""
    cpus: Ints
    """[milli-cores]"""
    memory: Ints
    """[kB]"""
    low_priority: Bools
    """Class `lp`: spot."""
    locked: Bools
    """May not be moved."""
    any_type: Bools
    """Runs on every type of GPU; others only on the type that they are on now."""
    group: Codes
    """Position in `FleetSnapshot.groups`, or `NONE`."""
    avoid: Codes
    """Groups that it shares no node with: position in `FleetSnapshot.avoid_sets`."""
    require: Codes
    """Labels that its node must have: position in `FleetSnapshot.require_sets`."""
    checkpoint_age_s: NDArray[np.float64]
    """Time since its last checkpoint [s]: work that a restart loses."""
    remaining_s: NDArray[np.float64]
    """Estimated remaining time [s]; infinity if unknown."""

    def __len__(self) -> int:
        return len(self.name)


@dataclass(frozen=True)
class FleetSnapshot:
    """Nodes and the tasks on them; made by a reader, or by `builder.Builder`."""

    nodes: Nodes
    tasks: Tasks
    gpu_types: list[str]
    switches: list[str]
    aggregations: list[str]
    label_sets: list[Mapping[str, str]]
    jobs: list[str]
    groups: list[str]
    avoid_sets: list[tuple[int, ...]]
    """Of positions in `groups`."""
    require_sets: list[Mapping[str, str]]
    origin: str = "unstated"
    """`recorded`, `synthetic: ...` (with the synthetic parts) or `unstated`."""
    notes: list[str] = field(default_factory=list)
    """What a reader noticed, in sentences without a full stop."""

    @cached_property
    def fraction(self) -> Bools:
        """Which tasks hold less than a GPU, and some of one."""
        return (self.tasks.gpus > 0) & (self.tasks.gpus < MILLI)

    @cached_property
    def whole_used(self) -> Ints:
        """GPUs of each node that tasks hold whole."""
        return self._sum(np.where(self.fraction, 0, self.tasks.gpus)) // MILLI

    @cached_property
    def shared_devices(self) -> tuple[Ints, Ints]:
        """Shared GPUs: the node of each, and its free part [milli-GPUs]."""
        rows = np.flatnonzero(self.fraction)
        if not len(rows):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        key = self.tasks.node[rows].astype(np.int64) << 20 | self.tasks.device[rows]
        keys, where = np.unique(key, return_inverse=True)
        used = np.bincount(where, weights=self.tasks.gpus[rows]).astype(np.int64)
        return keys >> 20, MILLI - used

    @cached_property
    def whole_free(self) -> Ints:
        """Wholly free GPUs of each node."""
        shared = np.bincount(self.shared_devices[0], minlength=len(self.nodes))
        return self.nodes.gpus - self.whole_used - shared

    @cached_property
    def shared_free(self) -> Ints:
        """Free capacity of shared GPUs, by node [milli-GPUs]."""
        nodes, free = self.shared_devices
        return np.bincount(nodes, weights=free, minlength=len(self.nodes)).astype(np.int64)

    @cached_property
    def cpus_free(self) -> Ints:
        """[milli-cores]; that of a node without a limit is beyond any request."""
        return self.nodes.cpus - self._sum(self.tasks.cpus)

    @cached_property
    def memory_free(self) -> Ints:
        """[kB]; that of a node without a limit is beyond any request."""
        return self.nodes.memory - self._sum(self.tasks.memory)

    @cached_property
    def gpus_held(self) -> Ints:
        """GPU capacity of each node that tasks hold [milli-GPUs]."""
        return self._sum(self.tasks.gpus)

    @cached_property
    def task_count(self) -> Ints:
        """Tasks on each node."""
        return np.bincount(self.tasks.node, minlength=len(self.nodes)).astype(np.int64)

    @property
    def gpus(self) -> int:
        """GPUs of all nodes."""
        return int(self.nodes.gpus.sum())

    @property
    def domains(self) -> Ints:
        """The access switch of each node, by position; a node without one counts as a switch, as a
        task on one node needs no switch."""
        alone = len(self.switches) + np.arange(len(self.nodes))
        return np.where(self.nodes.switch == NONE, alone, self.nodes.switch).astype(np.int64)

    @property
    def idle_gpus(self) -> float:
        """Idle GPUs, fractions included [GPUs]."""
        return self.gpus - int(self.tasks.gpus.sum()) / MILLI

    @property
    def synthetic(self) -> bool:
        return self.origin.startswith("synthetic")

    def slack(self, at: Ints | None = None) -> int:
        """Nodes that are not fully occupied: some of their GPUs are held, and some are idle.

        `at`: the node of each task, where tasks have moved.
        """
        held = self.gpus_held
        if at is not None:
            sums = np.bincount(at, weights=self.tasks.gpus, minlength=len(self.nodes))
            held = sums.astype(np.int64)
        return int(((held > 0) & (held < self.nodes.gpus * MILLI)).sum())

    @cached_property
    def hash(self) -> str:
        """Digest of everything that a plan depends on, whatever the order of nodes and tasks.

        Ages of checkpoints and remaining times are left out: they change with time, and never make
        a plan unsafe.
        """
        nodes, tasks = self.nodes, self.tasks
        digest = sha256()
        by_name = np.array(sorted(range(len(nodes)), key=nodes.name.__getitem__), dtype=np.int64)
        rank = np.empty(len(nodes), np.int64)
        rank[by_name] = np.arange(len(nodes))
        _add(digest, [nodes.name[n] for n in by_name])
        _add(digest, [self.gpu_types[code] for code in nodes.gpu_type[by_name]])
        _add(digest, [_named(self.switches, code) for code in nodes.switch[by_name]])
        _add(digest, [_named(self.aggregations, code) for code in nodes.aggregation[by_name]])
        _add(digest, _texts(self.label_sets, nodes.labels[by_name]))
        for column in (nodes.gpus, nodes.cpus, nodes.memory):
            digest.update(column[by_name].astype("<i8").tobytes())
        order = np.array(sorted(range(len(tasks)), key=tasks.name.__getitem__), dtype=np.int64)
        _add(digest, [tasks.name[t] for t in order])
        _add(digest, [self.jobs[code] for code in tasks.job[order]])
        _add(digest, [_named(self.groups, code) for code in tasks.group[order]])
        avoided = [sorted(self.groups[g] for g in groups) for groups in self.avoid_sets]
        _add(digest, _texts(avoided, tasks.avoid[order]))
        _add(digest, _texts(self.require_sets, tasks.require[order]))
        at = rank[tasks.node] if len(tasks) else tasks.node
        for values in (at, tasks.gpus, tasks.device, tasks.cpus, tasks.memory):
            digest.update(values[order].astype("<i8").tobytes())
        for flags in (tasks.low_priority, tasks.locked, tasks.any_type):
            digest.update(flags[order].tobytes())
        return f"sha256:{digest.hexdigest()}"

    def _sum(self, values: Ints) -> Ints:
        """A property of tasks, added up by node; exact below 2**53."""
        sums = np.bincount(self.tasks.node, weights=values, minlength=len(self.nodes))
        return sums.astype(np.int64)


def _named(names: list[str], code: int) -> str:
    return "" if code == NONE else names[code]


def _texts(sets: list[Any], codes: Codes) -> list[str]:
    texts = [repr(sorted(one.items()) if isinstance(one, Mapping) else one) for one in sets]
    return [texts[code] for code in codes]


def _add(digest: Any, texts: list[str]) -> None:
    digest.update("\0".join(texts).encode("utf-8", "surrogatepass") + b"\1")
