"""Why idle GPUs are not available to a request (Section 4.1, Figures 13 and 14).

Every idle GPU is counted once: as allocatable, or under the first of these causes that applies, in
the order in which a scheduler would meet them.

1. fractional: it is the remainder of a shared GPU, or too small a remainder;
2. stranded: too few are left on its node, or of its GPU type, for one more request;
3. cpu: the node's CPUs are used up before its GPUs are;
4. memory: its CPUs suffice, its memory is used up;
5. topology: enough are left of its GPU type, but not under one access switch.

So a GPU that is stranded on a node without CPUs counts as stranded: CPUs would not free it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schedmate.schedulers.fleet.requests import Request
from schedmate.schedulers.fleet.snapshot import MILLI, UNLIMITED, FleetSnapshot, Ints

CAUSES = ("fractional", "stranded", "cpu", "memory", "topology")
MOST_NODES = 20
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Shape:
    """One request on the snapshot."""

    request: Request
    fulfilled: int
    """Requests that could be placed now, one after the other."""
    by_type: dict[str, int]
    """The same by GPU type."""
    mixed: int
    """Requests that could be placed if their pods could have GPUs of different types."""
    allocatable: float
    """Idle GPUs that these would get."""
    lost: dict[str, float]
    """Idle GPUs by cause; with `allocatable` they add up to all idle GPUs."""
    lost_by_type: dict[str, dict[str, float]]
    node_lost: Floats
    """Unallocatable GPUs of each node by causes 1 to 4."""
    node_cause: NDArray[np.int8]
    """The largest of these causes, by position in `CAUSES`."""


@dataclass(frozen=True)
class Diagnosis:
    """All requests on one snapshot."""

    snapshot: FleetSnapshot
    shapes: Sequence[Shape]

    @property
    def idle(self) -> float:
        return self.snapshot.idle_gpus

    def worst_nodes(self, most: int = MOST_NODES) -> list[dict[str, Any]]:
        """The nodes with most unallocatable GPUs, on average over the requests."""
        snapshot, nodes = self.snapshot, self.snapshot.nodes
        lost = np.mean([shape.node_lost for shape in self.shapes], axis=0)
        found = []
        for n in np.argsort(-lost, kind="stable")[:most].tolist():
            if lost[n] <= 0:
                break
            causes: dict[str, float] = {}
            for shape in self.shapes:
                cause = CAUSES[shape.node_cause[n]]
                causes[cause] = causes.get(cause, 0.0) + float(shape.node_lost[n])
            idle = nodes.gpus[n] * MILLI - snapshot.gpus_held[n]
            found.append(
                {
                    "node": nodes.name[n],
                    "gpu_type": snapshot.gpu_types[nodes.gpu_type[n]],
                    "unallocatable_gpus": round(float(lost[n]), 3),
                    "idle_gpus": float(idle) / MILLI,
                    "free_cpus": (
                        None if nodes.cpus[n] == UNLIMITED else float(snapshot.cpus_free[n]) / MILLI
                    ),
                    "tasks": int(snapshot.task_count[n]),
                    "cause": max(causes, key=lambda one: causes[one]),
                }
            )
        return found


def diagnose(snapshot: FleetSnapshot, requests: Sequence[Request]) -> Diagnosis:
    """Each request on the snapshot; time and memory grow with nodes times requests."""
    return Diagnosis(snapshot, [_shape(snapshot, request) for request in requests])


def _shape(snapshot: FleetSnapshot, request: Request) -> Shape:
    nodes = snapshot.nodes
    need = request.gpus
    idle = nodes.gpus * MILLI - snapshot.gpus_held
    if need < MILLI:
        # each GPU by itself: whole ones that are free, and the rests of shared ones
        on, rests = snapshot.shared_devices
        fits = snapshot.whole_free * (MILLI // need)
        fits = fits + np.bincount(on, weights=rests // need, minlength=len(nodes)).astype(np.int64)
        fractional, stranded = idle - fits * need, np.zeros_like(idle)
    else:
        fits = snapshot.whole_free // (need // MILLI)
        fractional = idle - snapshot.whole_free * MILLI
        stranded = snapshot.whole_free * MILLI - fits * need
    by_cpu = np.minimum(fits, _times(snapshot.cpus_free, request.cpus))
    by_memory = np.minimum(by_cpu, _times(snapshot.memory_free, request.memory))
    cpu, memory = (fits - by_cpu) * need, (by_cpu - by_memory) * need
    pods = by_memory
    per_node = np.stack([fractional, stranded, cpu, memory])

    types = len(snapshot.gpu_types)
    of_type = np.bincount(nodes.gpu_type, weights=pods, minlength=types).astype(np.int64)
    across = of_type // request.pods
    filled = across
    if request.within_switch:
        filled = np.zeros(types, np.int64)
        domain = snapshot.domains
        size = int(domain.max(initial=0)) + 1
        keys, where = np.unique(nodes.gpu_type * size + domain, return_inverse=True)
        under = np.bincount(where, weights=pods).astype(np.int64) // request.pods
        np.add.at(filled, keys // size, under)
    size = request.pods * need  # whole numbers, to add up exactly
    lost_by_type = {}
    for code, name in enumerate(snapshot.gpu_types):
        mine = nodes.gpu_type == code
        milli = dict(zip(CAUSES, per_node[:, mine].sum(axis=1).tolist(), strict=False))
        milli["stranded"] += int(of_type[code] * need - across[code] * size)
        milli["topology"] = int((across[code] - filled[code]) * size)
        lost_by_type[name] = milli
    return Shape(
        request,
        int(filled.sum()),
        {name: int(filled[code]) for code, name in enumerate(snapshot.gpu_types)},
        int(_mixed(snapshot, pods, request)),
        float(filled.sum() * size) / MILLI,
        {cause: sum(one[cause] for one in lost_by_type.values()) / MILLI for cause in CAUSES},
        {
            name: {cause: lost / MILLI for cause, lost in one.items()}
            for name, one in lost_by_type.items()
        },
        per_node.sum(axis=0) / MILLI,
        per_node.argmax(axis=0).astype(np.int8),
    )


def _mixed(snapshot: FleetSnapshot, pods: Ints, request: Request) -> int:
    if not request.within_switch:
        return int(pods.sum()) // request.pods
    under = np.bincount(snapshot.domains, weights=pods).astype(np.int64)
    return int((under // request.pods).sum())


def _times(free: Ints, need: int) -> Ints:
    """The number of times that `need` fits; a sum of rounded numbers may be slightly below 0."""
    if not need:
        return np.full(len(free), 2**53)
    return np.asarray(np.maximum(free, 0) // need, dtype=np.int64)
