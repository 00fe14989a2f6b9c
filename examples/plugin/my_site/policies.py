"""A policy: `schedmate simulate --policy fewest-gpus`."""

from __future__ import annotations

from schedmate.schedulers import Policy, Start


class FewestGpus(Policy):
    """First come, first served, as if each job had come `per_gpu_s` later for each of its GPUs."""

    name = "fewest-gpus"

    def __init__(self, per_gpu_s=3600.0):
        self.per_gpu_s = per_gpu_s

    def rank(self, job, now):
        return job.submit_time + self.per_gpu_s * job.gpus

    def decide(self, view):
        return [Start(*placed) for placed in view.pending.walk(view.space.place)]
