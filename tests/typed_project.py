"""A project that uses the package: `make types` checks it, and that what is wrong here is found."""

from __future__ import annotations

from schedmate import Diagnosis, JobSpec, LaunchConfig, SchedMate


def delay(mate: SchedMate, log: str) -> float:
    job = JobSpec(job_id="7", repo=".", command="python train.py", launch=LaunchConfig(gpus=2))
    estimate = mate.on_submit(job, deadline_s=0.2)
    found: Diagnosis | None = mate.on_failure(job, log)
    if estimate is None or estimate.duration_s is None:
        return 60.0 if found is not None and found.recoverable else 0.0
    return estimate.duration_s


def wrong(mate: SchedMate) -> str:
    # without these errors the comment would be one: strict mypy refuses an ignore that is not used
    return mate.on_submit(JobSpec(job_id="7")).duration_s  # type: ignore[union-attr, return-value]
