"""Converts jobs of the store to jobs as policies see them."""

from __future__ import annotations

from schedmate.schedulers.live.queue.requests import StoredJob
from schedmate.schedulers.model import Job, Profile
from schedmate.schedulers.terms import Constraints


def job_of(stored: StoredJob) -> Job:
    """A job, with its past runs."""
    request, spec = stored.request, stored.request.spec
    return Job(
        id=str(stored.id),
        index=stored.id,
        submit_time=stored.submitted,
        gpus=max(1, int(request.gpus)),
        share=min(request.gpus, 1.0),
        name=spec.name or "",
        user=spec.user or "",
        vc=request.queue,
        gpu_type=spec.launch.gpu_type or "",
        priority=request.priority,
        min_gpus=request.min_gpus,
        max_gpus=request.max_gpus,
        time_limit_s=spec.launch.time_limit_s,
        constraints=Constraints(without=frozenset(stored.exclude)) if stored.exclude else None,
        profile=profile_of(stored.profile),
        profiled=stored.profiled,
        evictions=stored.evictions,
        preemptions=stored.preemptions,
        failures=stored.restarts + stored.losses,
        service_s=stored.service_s,
    )


def profile_of(use: dict[str, float] | None) -> Profile | None:
    """The profile that a meter has measured."""
    if use is None:
        return None
    return Profile(use["gpu_util"], use["memory_util"], use["memory_mb"])
