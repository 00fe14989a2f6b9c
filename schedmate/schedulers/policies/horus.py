"""Horus: share GPUs by predicted utilisation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import ClassVar

from schedmate.base.errors import UsageError
from schedmate.schedulers.lanes import Rank
from schedmate.schedulers.model import Job
from schedmate.schedulers.policy import Decision, Pack, Policy, Start, View

ORDERS = ("utilisation", "submission")
ABOVE = 1.6
"""How much worse utilisation above 100 % is than as much below."""
MEMORY = 1.3
"""Cost of a GPU's whole memory, relative to 100 % of utilisation."""
MARGIN_MB = 500.0
"""GPU memory that stays free."""


class Horus(Policy):
    """Interference-aware placement by predicted utilisation (Horus, TPDS 2022).

    Jobs with the lowest utilisation go first, and of the `lookahead` jobs at the head each that
    fits is started: on free GPUs, else on those of the running job with the same number of GPUs
    beside which it costs least. The cost of a GPU is the number of its jobs, plus the distance of
    their summed utilisation from 100 %, with more weight above than below, plus the share of its
    memory that they use. Order, look-ahead, cost and constants are those of the simulator of Horus'
    first author (github.com/matthewygf/GPUSchedule), as the article could not be read. Predictions
    are from the estimator, before the job runs; without one a job goes last and runs alone.

    Differences: at most two jobs share a GPU, not three; they share all their GPUs, within one
    node; memory counts as a share of the GPU's, where there it is a number of megabytes that
    outweighs everything; and all jobs that fit start at once, not one a minute. Horus+, which takes
    turns between clusters of jobs, is not implemented.
    """

    name: ClassVar[str] = "horus"
    packs = True

    def __init__(
        self,
        order: str = "utilisation",
        lookahead: int = 5,
        max_util: float = 200.0,
        gpu_memory_mb: float = 24_576.0,
        backfill: bool = False,
    ) -> None:
        """Args:
        order: `utilisation`, the lowest first, or `submission`.
        lookahead: number of jobs at the head of the queue that are tried; those behind wait.
        max_util: most summed utilisation of two jobs on one GPU [%].
        gpu_memory_mb: memory of one GPU [MB].
        backfill: try all waiting jobs."""
        if order not in ORDERS:
            raise UsageError(f"policy horus: order={order} is none of {', '.join(ORDERS)}.")
        if lookahead < 1:
            raise UsageError(f"policy horus: lookahead={lookahead} must be at least 1.")
        self.order = order
        self.lookahead = lookahead
        self.max_util = max_util
        self.gpu_memory_mb = gpu_memory_mb
        self.backfill = backfill

    def decide(self, view: View) -> Sequence[Decision]:
        space = view.space
        decisions: list[Decision] = []
        packed: set[int] = set()

        def accept(job: Job) -> bool:
            if allocation := space.find(job):
                space.take(job, allocation)
                decisions.append(Start(job, allocation))
                return True
            partner = self._partner(view, job, packed)
            if partner is None:
                return False
            packed.add(partner.index)
            decisions.append(Pack(job, partner))
            return True

        if self.backfill:
            view.pending.walk(accept)
            return decisions
        # Jobs for another virtual cluster or GPU type have a separate queue.
        open_to = {(lane[0][0], lane[0][2]) for lane in view.pending.lanes()}  # type: ignore[index]
        refused: Counter[Hashable] = Counter()
        for job in view.pending:
            if not open_to:
                break
            queue = (job.vc, job.gpu_type)
            if queue in open_to and not accept(job):
                refused[queue] += 1
                if refused[queue] == self.lookahead:
                    open_to.remove(queue)
        return decisions

    def lane(self, job: Job) -> Hashable:
        # A waiting job's chances depend on its utilisation, in steps of ten per cent.
        util = job.forecast.gpu_util if job.forecast else None
        step = None if util is None else int(util // 10)
        if job.allocation:
            return (job.vc, job.gpu_type, job.gpus, job.partner is None and len(job.allocation))
        return (super().lane(job), step)

    def rank(self, job: Job, now: float) -> Rank:
        if job.allocation or self.order == "submission":
            return job.submit_time
        util, _ = _needs(job)
        return (100.0 if util is None else util, job.submit_time)

    def _partner(self, view: View, job: Job, packed: set[int]) -> Job | None:
        util, memory = _needs(job)
        if util is None or job.share != 1.0:
            return None
        best, least = None, 0.0
        for candidate in view.running.lane((job.vc, job.gpu_type, job.gpus, 1)):
            other_util, other_memory = _needs(candidate)
            if other_util is None or candidate.index in packed or candidate.share != 1.0:
                continue
            both, taken = util + other_util, memory + other_memory
            if both > self.max_util or taken + MARGIN_MB > self.gpu_memory_mb:
                continue
            cost = self.cost(both, taken)
            if best is None or cost < least:
                best, least = candidate, cost
        return best

    def cost(self, util: float, memory_mb: float) -> float:
        """Cost of a GPU with jobs of this summed utilisation [%] and memory, without the number of
        jobs, which is the same for all that are compared."""
        off = util - 100.0
        return abs(off) / 100.0 * (ABOVE if off > 0 else 1.0) + MEMORY * (
            memory_mb / self.gpu_memory_mb
        )


def _needs(job: Job) -> tuple[float | None, float]:
    forecast = job.forecast
    if forecast is None:
        return None, 0.0
    return forecast.gpu_util, forecast.gpu_mem_mb or 0.0
