"""The conservation laws, checked from what a simulation recorded and by nothing that it used."""

from __future__ import annotations

from schedmate.errors import SchedmateError
from schedmate.schedulers.model import Cluster
from schedmate.schedulers.sim.engine import Outcome
from schedmate.schedulers.sim.workload import Workload

_SHARERS = 2


class LawBrokenError(SchedmateError):
    """A simulation broke a law of conservation: a bug in the simulator, never in its input."""


def audit(workload: Workload, cluster: Cluster, outcome: Outcome) -> None:
    """Check that the run could have happened.

    No GPU is held by two jobs that do not share it nor by a third, no job holds a GPU before its
    submission, a job has one allocation at a time, the work it got adds up to the work it needs,
    time never runs backwards, and every job ends. Raises `LawBrokenError`.
    """
    _jobs(workload, outcome)
    _gpus(workload, cluster, outcome)


def _jobs(workload: Workload, outcome: Outcome) -> None:
    done = [0.0] * len(workload)
    held = [0.0] * len(workload)
    last = [float("-inf")] * len(workload)
    for one in outcome.segments:
        job = workload.jobs[one.job]
        if one.start < job.submit_time:
            raise LawBrokenError(f"job {job.id} ran at {one.start}, before its submission.")
        if one.end < one.start or one.start < last[one.job]:
            raise LawBrokenError(f"job {job.id} was in two places at {one.start}.")
        last[one.job] = one.end
        done[one.job] += one.work_s
        held[one.job] += one.end - one.start
    for job, needed, got, time in zip(workload.jobs, workload.duration_s, done, held, strict=True):
        # Clock times are large, so a difference of two of them is rounded.
        if abs(needed - got) > 1e-6 * max(1.0, needed):
            raise LawBrokenError(f"job {job.id} needs {needed} s of work and got {got}.")
        if outcome.end[job.index] != last[job.index] or abs(
            outcome.held_s[job.index] - time
        ) > 1e-6 * max(1.0, time):
            raise LawBrokenError(f"job {job.id}: its times do not agree with its segments.")


def _gpus(workload: Workload, cluster: Cluster, outcome: Outcome) -> None:
    """Sweep over time: at one instant, what ends is released before what starts is booked."""
    changes = sorted(
        (time, kind, position)
        for position, one in enumerate(outcome.segments)
        if one.end > one.start
        for time, kind in ((one.end, 0), (one.start, 1))
    )
    holders: dict[tuple[int, int], set[int]] = {}
    for time, kind, position in changes:
        one = outcome.segments[position]
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
            raise LawBrokenError(f"{where} is given away more than once.")
    elif (
        len(held) > _SHARERS
        or any(one.kind == "profile" for one in held)
        or all(one.kind != "packed" for one in held)
        or len({one.allocation for one in held}) > 1
    ):
        raise LawBrokenError(f"{where} is used by two jobs that do not share it.")
