"""A scheduling policy: jobs of few GPUs first, but nobody starves."""

from __future__ import annotations

from collections.abc import Sequence

from schedmate.schedulers import Decision, Job, Policy, Start, View


class FewestGpus(Policy):
    """First come, first served, as if each job had come `per_gpu_s` later for each of its GPUs."""

    name = "fewest-gpus"

    def __init__(self, per_gpu_s: float = 3600.0) -> None:
        self.per_gpu_s = per_gpu_s

    def rank(self, job: Job, now: float) -> float:
        """The lowest goes first; among equals, the first submitted."""
        return job.submit_time + self.per_gpu_s * job.gpus

    def decide(self, view: View) -> Sequence[Decision]:
        """Start what fits, in the order of `rank`; a job that does not fit is passed by others."""
        placed = view.pending.walk(view.space.place)
        return [Start(job, allocation) for job, allocation in placed]
