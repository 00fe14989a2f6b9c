"""Horus: share GPUs where the predicted utilisation says that both jobs fit."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import ClassVar

from schedmate.schedulers.lanes import Rank
from schedmate.schedulers.model import Job
from schedmate.schedulers.policy import Decision, Pack, Policy, Start, View


class Horus(Policy):
    """Interference-aware placement by predicted utilisation (Horus, TPDS 2021).

    First come, first served; a job that finds no free GPUs joins the running job of as many GPUs
    whose predicted utilisation, added to its own, is the lowest, at most `max_util`, and within
    GPU memory. Predictions come from the estimator before the job runs; without one the job runs
    alone. As in the comparison of Lucid (section 4.1) at most two jobs share, within one node.
    """

    name: ClassVar[str] = "horus"
    packs = True

    def __init__(
        self, max_util: float = 100.0, gpu_memory_mb: float = 24_576.0, backfill: bool = False
    ) -> None:
        self.max_util = max_util
        self.gpu_memory_mb = gpu_memory_mb
        self.backfill = backfill

    def decide(self, view: View) -> Sequence[Decision]:
        space = view.space
        decisions: list[Decision] = []
        packed: set[int] = set()
        stopped: set[Hashable] = set()

        def accept(job: Job) -> bool:
            if (job.vc, job.gpu_type) in stopped:
                return False
            if allocation := space.find(job):
                space.take(job, allocation)
                decisions.append(Start(job, allocation))
                return True
            partner = self._partner(view, job, packed)
            if partner is None:
                if not self.backfill:
                    stopped.add((job.vc, job.gpu_type))
                return False
            packed.add(partner.index)
            decisions.append(Pack(job, partner))
            return True

        view.pending.walk(accept)
        return decisions

    def lane(self, job: Job) -> Hashable:
        # A waiting job's chances depend on its own utilisation, in steps of ten per cent.
        util = job.forecast.gpu_util if job.forecast else None
        step = None if util is None else int(util // 10)
        if job.allocation:
            return (job.vc, job.gpu_type, job.gpus, job.partner is None and len(job.allocation))
        return (super().lane(job), step)

    def rank(self, job: Job, now: float) -> Rank:
        if job.allocation:
            return (job.forecast.gpu_util or 0.0) if job.forecast else 0.0
        return job.submit_time

    def _partner(self, view: View, job: Job, packed: set[int]) -> Job | None:
        util, memory = _needs(job)
        if util is None or job.share != 1.0:
            return None
        for other in view.running.lane((job.vc, job.gpu_type, job.gpus, 1)):
            other_util, other_memory = _needs(other)
            if other_util is None or other.index in packed:
                continue
            if util + other_util > self.max_util:
                return None
            if memory + other_memory <= self.gpu_memory_mb and other.share == 1.0:
                return other
        return None


def _needs(job: Job) -> tuple[float | None, float]:
    forecast = job.forecast
    if forecast is None:
        return None, 0.0
    return forecast.gpu_util, forecast.gpu_mem_mb or 0.0
