"""Lucid's Non-intrusive Job Profiler: how long, where, and whose nodes it borrows (section 3.2)."""

from __future__ import annotations

from collections.abc import Hashable

from schedmate.schedulers.load import BIN_S
from schedmate.schedulers.model import PROFILING, Allocation, Cluster, Job
from schedmate.schedulers.view import View


def set_nodes_aside(cluster: Cluster, count: int) -> Cluster:
    """The cluster with `count` nodes reserved for profiling, at most a quarter of it."""
    count = min(count, len(cluster.nodes) // 4)
    if not count:
        return cluster
    # From the largest virtual cluster, which misses them least.
    vcs = [node.vc for node in cluster.nodes]
    largest = max(sorted(set(vcs)), key=vcs.count)
    return cluster.with_role([n for n, vc in enumerate(vcs) if vc == largest][-count:], PROFILING)


def is_burst(view: View, most: int, limit_s: float) -> bool:
    """Whether the profiler has more to do than it can do soon (time-aware scaling).

    `most`: jobs waiting, with those to come within `limit_s`, up to which it has not.
    """
    pending, waiting = view.pending, 0
    for lane in pending.lanes():
        if _profiles(lane):
            waiting += pending.count(lane)
    if not waiting or waiting > most:
        return waiting > 0
    return waiting + view.expected() * limit_s / BIN_S > most


def find_profiling_gpus(view: View, job: Job, *, burst: bool, loans: bool) -> Allocation | None:
    """Exclusive and consolidated GPUs on the profiler's nodes (Algorithm 1).

    In a burst also on free nodes of the job's own virtual cluster and, with `loans`, then on those
    of another without waiting jobs.
    """
    space = view.space
    own = space.could(job, PROFILING)
    allocation = space.find(job, PROFILING) if own else None
    if allocation is None and (burst or not own):
        allocation = space.find(job)
    if allocation is None and burst and loans:
        allocation = space.find(job, borrow=True)
        if allocation is not None:
            lender = space.cluster.nodes[allocation[0][0]].vc
            lanes = view.pending.lanes()
            if any(lane[1][0] == lender for lane in lanes if _runs(lane)):  # type: ignore[index]
                return None
    return allocation


def _profiles(lane: Hashable) -> bool:
    return isinstance(lane, tuple) and lane[0] == PROFILING


def _runs(lane: Hashable) -> bool:
    return isinstance(lane, tuple) and lane[0] != PROFILING
