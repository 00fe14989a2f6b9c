"""Pods, labels, switches and groups that keep apart."""

from __future__ import annotations

from collections import Counter

from schedmate.schedulers.model import Allocation, Cluster, Job
from schedmate.schedulers.sim.engine.record import Outcome
from schedmate.schedulers.sim.outcome.laws.broken import LawBrokenError
from schedmate.schedulers.sim.workload import Workload


def check_constraints(workload: Workload, cluster: Cluster, outcome: Outcome) -> None:
    """Check that every job ran where its constraints allow, and not with a job that it avoids.

    Raises `LawBrokenError`.
    """
    if workload.requests.values("constraints") is None:
        return
    jobs = workload.jobs
    held = [
        (one.job, one.start, one.end, one.allocation)
        for one in (*outcome.segments, *outcome.ledger.holds)
        if jobs[one.job].constraints is not None
    ]
    for index, _, _, allocation in held:
        _check_place(jobs[index], cluster, allocation)
    changes = sorted(
        (time, kind, node, index)
        for index, start, end, allocation in held
        if end > start
        for node, _ in allocation
        for time, kind in ((end, 0), (start, 1))
    )
    there: dict[int, Counter[int]] = {}
    for time, kind, node, index in changes:
        beside = there.setdefault(node, Counter())
        if kind == 0:
            beside[index] -= 1
            continue
        for other, count in beside.items():
            if count > 0 and other != index and _keep_apart(jobs[index], jobs[other]):
                raise LawBrokenError(
                    f"jobs {jobs[index].id} and {jobs[other].id} keep apart, and shared node "
                    f"{cluster.nodes[node].name} at {time}."
                )
        beside[index] += 1


def _check_place(job: Job, cluster: Cluster, allocation: Allocation) -> None:
    asked = job.constraints
    assert asked is not None
    nodes = [cluster.nodes[node] for node, _ in allocation]
    for node in nodes:
        missing = [label for label in asked.require if label not in node.labels]
        if missing:
            raise LawBrokenError(
                f"job {job.id} asks for {missing[0][0]}={missing[0][1]}; node {node.name} is none."
            )
    if asked.within_switch and len({node.switch for node in nodes}) > 1:
        raise LawBrokenError(f"job {job.id} asks for one switch and was below several.")
    if not asked.pods or job.share != 1.0:
        return
    each = job.gpus // asked.pods
    for node, (_, mask) in zip(nodes, allocation, strict=True):
        gpus = mask.bit_count()
        if gpus % each:
            raise LawBrokenError(
                f"job {job.id} has pods of {each} GPUs, and {gpus} GPUs of {node.name}."
            )
        if asked.group and asked.group in asked.avoid and gpus > each:
            raise LawBrokenError(f"two pods of job {job.id} keep apart, and shared {node.name}.")


def _keep_apart(one: Job, other: Job) -> bool:
    first, second = one.constraints, other.constraints
    assert first is not None
    assert second is not None
    return (bool(second.group) and second.group in first.avoid) or (
        bool(first.group) and first.group in second.avoid
    )
