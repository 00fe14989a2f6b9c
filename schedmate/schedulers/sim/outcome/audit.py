"""The conservation laws, checked from the record of a run, independently of the simulator."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from schedmate.schedulers.model import Allocation, Cluster, Job
from schedmate.schedulers.sim.engine.record import Outcome
from schedmate.schedulers.sim.outcome.doubt import Flags, doubtful_jobs, doubtful_segments
from schedmate.schedulers.sim.outcome.held import Held
from schedmate.schedulers.sim.outcome.laws import LawBrokenError, check_laws
from schedmate.schedulers.sim.outcome.laws.loans import in_use
from schedmate.schedulers.sim.workload import Workload
from schedmate.terminal import counted

__all__ = ["LawBrokenError", "audit"]

_SHARERS = 2


def audit(workload: Workload, cluster: Cluster, outcome: Outcome) -> None:
    """Check that the run was possible.

    No GPU is held by two jobs that do not share it or by three, no job holds a GPU before its
    submission, and a job has one allocation at a time, of a permitted size and of the requested
    type. The work that a job did, less what failures lost, adds up to the work it needs; after a
    failure it runs no earlier than its new submission, and not at all if the failure was its end.
    Time never runs backwards, and every job ends unless `outcome.laws` knows a reason. Raises
    `LawBrokenError`.
    """
    held = Held.of(outcome.segments)
    doubtful = doubtful_jobs(workload, cluster, outcome, held)
    if doubtful.any():
        _jobs(workload, cluster, outcome, np.flatnonzero(doubtful).tolist(), doubtful[held.jobs])
    used = in_use(outcome)
    users = held if used is outcome else Held.of(used.segments)
    _gpus(workload, cluster, used, doubtful_segments(cluster, users).tolist())
    check_laws(workload, cluster, outcome)


def _jobs(
    workload: Workload, cluster: Cluster, outcome: Outcome, chosen: list[int], theirs: Flags
) -> None:
    """Follow some of the jobs, one by one, through the segments that are theirs."""
    jobs = {index: workload.jobs[index] for index in chosen}
    done, held = dict.fromkeys(chosen, 0.0), dict.fromkeys(chosen, 0.0)
    last = dict.fromkeys(chosen, float("-inf"))
    earliest = {index: job.submit_time for index, job in jobs.items()}
    for position in np.flatnonzero(theirs).tolist():
        one = outcome.segments[position]
        index, job = one.job, jobs[one.job]
        if one.start < earliest[index]:
            raise LawBrokenError(f"job {job.id} ran at {one.start}, before its submission.")
        if one.end < one.start or one.start < last[index]:
            raise LawBrokenError(f"job {job.id} was in two places at {one.start}.")
        _check_request(job, cluster, one.allocation, one.kind)
        last[index] = one.end
        done[index] += one.work
        held[index] += one.end - one.start
        if position in outcome.failures:
            failure, again = outcome.failures[position]
            if (failure.job, failure.time) != (index, one.end):
                raise LawBrokenError(f"job {job.id} failed at {failure.time} while it did not run.")
            if not _same(failure.done, done[index]):
                raise LawBrokenError(f"job {job.id} did {done[index]}, not {failure.done}.")
            if again is None:
                earliest[index] = float("inf")
            else:
                if again.work > failure.done:
                    raise LawBrokenError(f"job {job.id} gained work by a failure.")
                earliest[index] = one.end + again.wait_s
                done[index] = again.work
    for index, job in jobs.items():
        needed, got, time = outcome.work[index], done[index], held[index]
        if outcome.end[index] == float("inf"):
            continue
        # Clock times are large, so a difference of two of them is rounded.
        if not _same(needed, got) and (earliest[index] < float("inf") or got > needed):
            raise LawBrokenError(f"job {job.id} needs {needed} of work and got {got}.")
        if outcome.end[index] != last[index] or not _same(time, outcome.held_s[index]):
            raise LawBrokenError(f"job {job.id}: its times do not agree with its segments.")


def _same(one: float, other: float) -> bool:
    return abs(one - other) <= 1e-6 * max(1.0, one)


def _check_request(job: Job, cluster: Cluster, allocation: Allocation, kind: str) -> None:
    gpus = sum(mask.bit_count() for _, mask in allocation)
    fits = gpus == job.gpus or (job.elastic and job.min_gpus <= gpus <= job.max_gpus)
    if not fits and kind != "profile":
        raise LawBrokenError(f"job {job.id} asks for {counted(job.gpus, 'GPU')} and got {gpus}.")
    has_vcs = any(node.vc for node in cluster.nodes)
    for position, _ in allocation:
        node = cluster.nodes[position]
        if job.gpu_type and node.gpu_type not in ("", job.gpu_type):
            raise LawBrokenError(f"job {job.id} asks for {job.gpu_type} and got {node.gpu_type}.")
        # A profile is short; what else runs elsewhere has borrowed it.
        if has_vcs and node.vc not in ("", job.vc) and kind not in ("loan", "profile"):
            raise LawBrokenError(f"job {job.id} of {job.vc!r} ran in {node.vc!r}.")


def _gpus(workload: Workload, cluster: Cluster, outcome: Outcome, chosen: Sequence[int]) -> None:
    """Sweep over time: at one instant, what ends is released before what starts is booked."""
    segments = {position: outcome.segments[position] for position in chosen}
    changes = sorted(
        (time, kind, position)
        for position, one in segments.items()
        if one.end > one.start
        for time, kind in ((one.end, 0), (one.start, 1))
    )
    holders: dict[tuple[int, int], set[int]] = {}
    for time, kind, position in changes:
        one = segments[position]
        for node, mask in one.allocation:
            if mask >> cluster.nodes[node].gpus:
                raise LawBrokenError(f"node {cluster.nodes[node].name} has no GPU {mask:b}.")
            for gpu in range(mask.bit_length()):
                if not mask >> gpu & 1:
                    continue
                sharing = holders.setdefault((node, gpu), set())
                if kind == 0:
                    sharing.discard(position)
                    continue
                sharing.add(position)
                _check_sharing(workload, outcome, sharing, f"GPU {gpu} of node {node} at {time}")


def _check_sharing(workload: Workload, outcome: Outcome, sharing: set[int], where: str) -> None:
    if len(sharing) == 1:
        return
    held = [outcome.segments[position] for position in sharing]
    shares = [workload.jobs[one.job].share for one in held]
    if all(share < 1.0 for share in shares):
        if sum(shares) > 1.0 + 1e-6:
            raise LawBrokenError(f"{where} is given to several jobs at once.")
    elif (
        len(held) > _SHARERS
        or any(one.kind == "profile" for one in held)
        or all(one.kind != "packed" for one in held)
        or len({one.allocation for one in held}) > 1
    ):
        raise LawBrokenError(f"{where} is used by two jobs that do not share it.")
