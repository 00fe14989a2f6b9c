"""Checks for jobs that this cluster, or any cluster, could never run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from schedmate.errors import InputError
from schedmate.plain import LONGEST_S
from schedmate.schedulers.model import PROFILING, Job
from schedmate.schedulers.sim.workload import Workload
from schedmate.schedulers.space import Space
from schedmate.terminal import counted


def check_times(jobs: Sequence[Job], durations_s: Sequence[float]) -> None:
    """Raises `InputError` for a time that is none; sums of those that are stay exact and finite.

    A service has no duration: it is infinite.
    """
    for job, duration_s in zip(jobs, durations_s, strict=True):
        endless = job.terms is not None and job.terms.endless
        if endless and duration_s != float("inf"):
            raise InputError(
                f"job {job.id} is a service (endless), which runs until it is stopped, but has "
                f"a duration of {duration_s:g} s: give it an infinite duration, or terms that are "
                "not endless."
            )
        if not ((endless or 0 <= duration_s <= LONGEST_S) and abs(job.submit_time) <= LONGEST_S):
            raise InputError(
                f"job {job.id} comes at {job.submit_time:g} s and runs for {duration_s:g} s; "
                f"times go up to {LONGEST_S:g} s, and no duration is negative."
            )


def check_sizes(jobs: Iterable[Job], space: Space) -> None:
    """Raises `InputError` for a job that does not fit into the space, which is empty."""
    fits: dict[tuple[object, ...], bool] = {}
    unfit = []
    for job in jobs:
        asked = (job.vc, job.gpu_type, job.gpus, job.min_gpus, job.share, job.cpus, job.memory_mb)
        key = asked if job.constraints is None else (*asked, job.constraints)
        if key not in fits:
            if job.constraints is not None and job.constraints.pods:
                check_pods(job)
            fits[key] = any(
                space.find(job, role, gpus=job.min_gpus) is not None for role in ("", PROFILING)
            )
        if not fits[key]:
            unfit.append(job)
    if unfit:
        raise InputError(_why(unfit[0], space, len(unfit) - 1))


def _why(job: Job, space: Space, others: int) -> str:
    where = f" in virtual cluster {job.vc!r}" if job.vc else ""
    kind = f" of type {job.gpu_type}" if job.gpu_type else ""
    asked = counted(job.gpus, "GPU")
    part = ""
    vcs = {node.vc for node in space.cluster.nodes}
    types = {node.gpu_type for node in space.cluster.nodes}
    if "" not in vcs and job.vc not in vcs:
        why = f"no node is open to it: the cluster's are of {', '.join(sorted(vcs))}"
    elif job.gpu_type and not types & {"", job.gpu_type}:
        why = f"the cluster's GPUs are of type {', '.join(sorted(types))}"
    else:
        why = "more than its nodes can ever give"
        part = f" --max-gpus {job.gpus - 1}" if job.gpus > 1 and not job.cpus else ""
    more = f" ({others:,} more cannot run there either)" if others else ""
    return (
        f"job {job.id} asks for {asked}{kind}{where}: {why}{more}. Choose another cluster, or cut "
        f"the trace with `schedmate traces sample{part}`."
    )


def check_pods(job: Job) -> None:
    """Raises `InputError` for GPUs that cannot be divided among the job's pods."""
    assert job.constraints is not None
    pods = job.constraints.pods
    if pods < 1 or job.gpus % pods or (pods > 1 and job.share != 1.0):
        raise InputError(
            f"job {job.id} asks for {job.gpus} GPUs in {pods} equal pods; the number of GPUs must "
            "be a multiple of that of pods."
        )


def check_windows(workload: Workload) -> None:
    """Raises `InputError` for windows of lending that end before they begin, or overlap."""
    for index, windows in workload.standby.items():
        before = float("-inf")
        for start, until in windows:
            if not before <= start <= until <= LONGEST_S:
                raise InputError(
                    f"job {workload.jobs[index].id} lends its GPUs from {start:g} to {until:g} s: "
                    "its windows have to be in order, and none may end before it begins."
                )
            before = until
