"""Selects the jobs and GPUs of a run that an audit has to check one by one.

All others are proved at once, in columns. What is not plainly correct is left to the audit, which
alone decides: for example, two jobs on one GPU may be correct.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schedmate.schedulers.model import Allocation, Cluster, gpus_in
from schedmate.schedulers.sim.engine.record import KINDS, Outcome, Segment, Segments
from schedmate.schedulers.sim.outcome.held import Held, Ints, Pieces
from schedmate.schedulers.sim.workload import Workload

Flags = NDArray[np.bool_]

_PLAIN = {"name", "user", "vc", "gpu_type", "cpus", "memory_mb", "priority", "time_limit_s"}
_PLAIN |= {"share", "min_gpus", "max_gpus", "preemptible", "migratable"}
"""Requests that are supported here."""
_RECORDED = {
    *("first_start", "end", "held_s", "segments", "events", "decisions", "failures", "work"),
    *("bad_estimates", "assumed_s", "counts"),
}
"""Fields of an outcome that are supported here."""
_AT_ONCE = 1 << 20
"""Rows sorted at once."""


def doubtful_jobs(workload: Workload, cluster: Cluster, outcome: Outcome, held: Held) -> Flags:
    """Whether each job is not plainly in order."""
    requests, count = workload.requests, len(workload)
    recorded: Sequence[Segment] = outcome.segments
    usual = outcome._field_defaults
    unknown = [
        name
        for name in outcome._fields
        if name not in _RECORDED and getattr(outcome, name) != usual.get(name)
    ]
    if unknown or not (isinstance(recorded, Segments) and requests.only(_PLAIN)):
        return np.ones(count, bool)
    jobs, starts, ends = held.jobs, held.starts, held.ends
    odd = np.zeros(len(jobs), bool)
    odd |= np.frombuffer(bytes(outcome.segments.kinds), np.uint8) >= len(_KNOWN)
    odd |= ~(starts >= requests.submit_s[jobs]) | ~(ends >= starts)
    order = np.argsort(jobs, kind="stable")
    same = jobs[order][1:] == jobs[order][:-1]
    odd[order[1:]] |= same & ~(starts[order][1:] >= ends[order][:-1])
    odd |= held.each(gpus_in) != requests.gpus[jobs]
    odd |= _elsewhere(workload, cluster, held)
    doubt = np.zeros(count, bool)
    doubt[jobs[odd]] = True
    doubt[[jobs[position] for position in outcome.failures if position < len(jobs)]] = True
    done = np.bincount(jobs, held.works, count)
    time = np.bincount(jobs, ends - starts, count)
    last = np.full(count, -np.inf)
    last[jobs[order]] = ends[order]  # the last of each job stays
    needed, told = np.asarray(outcome.work, float), np.asarray(outcome.held_s, float)
    doubt |= ~_same(needed, done) | ~_same(time, told) | (np.asarray(outcome.end) != last)
    return doubt


_KNOWN = KINDS[:3]


def _same(one: NDArray[Any], other: NDArray[Any]) -> Flags:
    """Stricter than the audit, which adds in another order."""
    flags: Flags = np.abs(one - other) <= 0.5e-6 * np.maximum(1.0, one)
    return flags


def _elsewhere(workload: Workload, cluster: Cluster, held: Held) -> Flags:
    """Whether a segment is on a node of another GPU type or virtual cluster than it may be."""
    found = np.zeros(len(held.jobs), bool)
    requests = workload.requests
    known: dict[str, int] = {"": 0}

    def codes(names: Sequence[str]) -> Ints:
        return np.array([known.setdefault(name, len(known)) for name in names], np.int64)

    has_vcs = any(node.vc for node in cluster.nodes)
    types = requests.values("gpu_type")
    if types is None and not has_vcs:
        return found
    segment, (node,) = Pieces(held, _nodes).rows()
    job = held.jobs[segment]
    if types is not None:
        asked = codes(types)[job]
        got = codes([one.gpu_type for one in cluster.nodes])[node]
        found[segment[(asked != 0) & (got != 0) & (got != asked)]] = True
    if has_vcs:
        own = codes(workload.vcs or [""] * len(workload))[job]
        at = codes([one.vc for one in cluster.nodes])[node]
        found[segment[(at != 0) & (at != own)]] = True
    return found


def _nodes(allocation: Allocation) -> Iterator[tuple[int, ...]]:
    return ((node,) for node, _ in allocation)


def doubtful_segments(cluster: Cluster, held: Held) -> Ints:
    """The segments that share a GPU with another at some time, or name one that is not there."""
    stride = max(node.gpus for node in cluster.nodes)
    nodes = len(cluster.nodes)
    lasts = held.ends > held.starts
    strange = np.array(
        [
            not all(
                0 <= node < nodes and 0 <= mask >> cluster.nodes[node].gpus == 0
                for node, mask in one
            )
            for one in held.allocations
        ],
        bool,
    )[held.code]
    found = strange & lasts
    pieces = Pieces(held, lambda one: _gpus(one, stride))
    gpu = pieces.columns[0]
    blocks = pieces.count() // _AT_ONCE + 1
    per_block = -(-stride * nodes // blocks)
    for block in range(blocks):
        chosen = gpu // per_block == block
        segment, (which,) = pieces.rows(chosen)
        _mark_shared(segment[lasts[segment]], which[lasts[segment]], held, found)
    return np.flatnonzero(found)


def _gpus(allocation: Allocation, stride: int) -> Iterator[tuple[int, ...]]:
    for node, mask in allocation:
        for gpu in range(min(mask.bit_length(), stride)):
            if mask >> gpu & 1:
                yield (node * stride + gpu,)


def _mark_shared(segment: Ints, gpu: Ints, held: Held, found: Flags) -> None:
    """Mark the segments that overlap with another on one of these GPUs."""
    order = np.lexsort((held.starts[segment], gpu))
    segment, gpu = segment[order], gpu[order]
    starts, ends = held.starts[segment], held.ends[segment]
    # Where any two overlap on a GPU, two that follow each other do.
    overlap = (gpu[1:] == gpu[:-1]) & ~(starts[1:] >= ends[:-1])
    for one in sorted({*gpu[1:][overlap].tolist()}):
        first, last = np.searchsorted(gpu, (one, one + 1))
        until = np.maximum.accumulate(ends[first:last])
        begins = np.concatenate(([True], starts[first + 1 : last] >= until[:-1]))
        group = np.cumsum(begins) - 1
        found[segment[first:last][np.bincount(group)[group] > 1]] = True
