"""Why idle GPUs are not available to a request (Section 4.1, Figures 13 and 14).

Every idle GPU is counted once: as allocatable, or under the first of these causes that applies, in
the order in which a scheduler would meet them.

1. fractional: it is the remainder of a shared GPU, or too small a remainder;
2. stranded: too few are left on its node, or of its GPU type, for one more request;
3. cpu: the node's CPUs are used up before its GPUs are;
4. memory: its CPUs suffice, its memory is used up;
5. topology: enough are left of its GPU type, but not under one access switch.

So a GPU that is stranded on a node without CPUs counts as stranded: CPUs would not free it.
Requests are texts: `8G128C`, `0.25G2C`, `128x1G12C@switch`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schedmate.base.errors import UsageError
from schedmate.schedulers.fleet.snapshot import MILLI, UNLIMITED, FleetSnapshot, Ints

_FORM = re.compile(
    r"(?:(\d{1,6})x)?(\d{1,5}(?:\.\d{1,3})?)g(?:(\d{1,6}(?:\.\d{1,3})?)c)?"
    r"(?:(\d{1,8}(?:\.\d{1,3})?)m)?(@switch)?",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Request:
    """Pods that are placed together: each on one node, all on GPUs of one type."""

    pods: int
    gpus: int
    """Of a pod [milli-GPUs]."""
    cpus: int
    """Of a pod [milli-cores]."""
    memory: int = 0
    """Of a pod [kB]."""
    within_switch: bool = False
    """All pods under one access switch."""

    @classmethod
    def parse(cls, text: str) -> Request:
        """A request from `[PODSx]GPUSg[CPUSc][MEMORY_GBm][@switch]`; raises `UsageError`."""
        match = _FORM.fullmatch(text.strip())
        if match is None:
            raise UsageError(
                f"{text!r} is not a request; write GPUs and CPUs of a pod as 8G128C or 0.25G2C, "
                "with memory in GB as 8G128C900M, pods before it as 16x8G96C, @switch after it."
            )
        pods, gpus = int(match[1] or 1), round(float(match[2]) * MILLI)
        if not pods or not gpus:
            raise UsageError(f"{text!r} requests no GPU; write at least 0.001G, or 1x1G.")
        if gpus > MILLI and gpus % MILLI:
            raise UsageError(f"{text!r}: a pod has whole GPUs, or less than one.")
        return cls(
            pods,
            gpus,
            round(float(match[3] or 0) * MILLI),
            round(float(match[4] or 0) * 1e6),
            match[5] is not None,
        )

    def __str__(self) -> str:
        pods = f"{self.pods}x" if self.pods > 1 else ""
        memory = f"{self.memory / 1e6:g}M" if self.memory else ""
        place = "@switch" if self.within_switch else ""
        return f"{pods}{self.gpus / MILLI:g}G{self.cpus / MILLI:g}C{memory}{place}"


SHAPES = tuple(map(Request.parse, ("1G8C", "2G16C", "4G32C", "8G64C", "8G128C")))
"""Figure 13."""
FRACTIONS = (Request.parse("0.5G4C"),)
LARGE = tuple(
    map(Request.parse, ("128x1G12C", "128x1G12C@switch", "256x1G12C", "256x1G12C@switch"))
)
"""Figure 14: 128 and 256 GPUs with 12 CPUs each, across access switches and within one."""
DEFAULT_REQUESTS = (*FRACTIONS, *SHAPES, *LARGE)


# Why idle GPUs are not available to a request (Section 4.1, Figures 13 and 14).
#
# Every idle GPU is counted once: as allocatable, or under the first of these causes that applies,
# in the order in which a scheduler would meet them.
#
# 1. fractional: it is the remainder of a shared GPU, or too small a remainder; 2. stranded: too
# few are left on its node, or of its GPU type, for one more request; 3. cpu: the node's CPUs are
# used up before its GPUs are; 4. memory: its CPUs suffice, its memory is used up; 5. topology:
# enough are left of its GPU type, but not under one access switch.
#
# So a GPU that is stranded on a node without CPUs counts as stranded: CPUs would not free it.


CAUSES = ("fractional", "stranded", "cpu", "memory", "topology")
MOST_NODES = 20
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class RequestDiagnosis:
    """How often a request could be placed on the snapshot, and why not more often."""

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
class FleetDiagnosis:
    """All requests on one snapshot."""

    snapshot: FleetSnapshot
    shapes: Sequence[RequestDiagnosis]

    @property
    def idle(self) -> float:
        return self.snapshot.idle_gpus

    def worst_nodes(self, most: int = MOST_NODES) -> list[dict[str, Any]]:
        """The nodes with most unallocatable GPUs, on average over the requests."""
        snapshot, nodes = self.snapshot, self.snapshot.nodes
        lost = np.mean([shape.node_lost for shape in self.shapes], axis=0)
        rows = []
        for n in np.argsort(-lost, kind="stable")[:most].tolist():
            if lost[n] <= 0:
                break
            causes: dict[str, float] = {}
            for shape in self.shapes:
                cause = CAUSES[shape.node_cause[n]]
                causes[cause] = causes.get(cause, 0.0) + float(shape.node_lost[n])
            idle = nodes.gpus[n] * MILLI - snapshot.gpus_held[n]
            rows.append(
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
        return rows


def diagnose(snapshot: FleetSnapshot, requests: Sequence[Request]) -> FleetDiagnosis:
    """Each request on the snapshot; time and memory grow with nodes times requests."""
    return FleetDiagnosis(snapshot, [_diagnose_request(snapshot, request) for request in requests])


def _diagnose_request(snapshot: FleetSnapshot, request: Request) -> RequestDiagnosis:
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
    by_cpu = np.minimum(fits, _times_that_fit(snapshot.cpus_free, request.cpus))
    by_memory = np.minimum(by_cpu, _times_that_fit(snapshot.memory_free, request.memory))
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
    return RequestDiagnosis(
        request,
        int(filled.sum()),
        {name: int(filled[code]) for code, name in enumerate(snapshot.gpu_types)},
        int(_requests_that_fit(snapshot, pods, request)),
        float(filled.sum() * size) / MILLI,
        {
            cause: sum(lost_by_cause[cause] for lost_by_cause in lost_by_type.values()) / MILLI
            for cause in CAUSES
        },
        {
            name: {cause: lost / MILLI for cause, lost in lost_by_cause.items()}
            for name, lost_by_cause in lost_by_type.items()
        },
        per_node.sum(axis=0) / MILLI,
        per_node.argmax(axis=0).astype(np.int8),
    )


def _requests_that_fit(snapshot: FleetSnapshot, pods: Ints, request: Request) -> int:
    if not request.within_switch:
        return int(pods.sum()) // request.pods
    under = np.bincount(snapshot.domains, weights=pods).astype(np.int64)
    return int((under // request.pods).sum())


def _times_that_fit(free: Ints, need: int) -> Ints:
    """The number of times that `need` fits; a sum of rounded numbers may be slightly below 0."""
    if not need:
        return np.full(len(free), 2**53)
    return np.asarray(np.maximum(free, 0) // need, dtype=np.int64)
