"""Queues without preemption, which differ only in their order."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import ClassVar

from schedmate.schedulers.estimators import predicted_s
from schedmate.schedulers.lanes import Rank
from schedmate.schedulers.model import Job
from schedmate.schedulers.policy import Decision, Policy, Start, StaticRank, View

_new = tuple.__new__  # what a NamedTuple does in twice the time


class Queue(Policy):
    """Start jobs by rank, each on the fewest nodes possible (consolidated best fit).

    Args:
        backfill: a job that does not fit lets later ones pass, without a reservation; otherwise it
            blocks all later jobs that compete for the same nodes.
    """

    steady = True

    def __init__(self, backfill: bool = False) -> None:
        self.backfill = backfill

    def decide(self, view: View) -> Sequence[Decision]:
        space = view.space
        if not (space.idle or space.sharing):
            return []
        return [_new(Start, found) for found in view.pending.walk(space.place)]

    def lane(self, job: Job) -> Hashable:
        # Without backfill a job blocks all jobs for the same nodes, whatever their size.
        return super().lane(job) if self.backfill else (job.vc, job.gpu_type)


class Fifo(Queue):
    """First in, first out."""

    name: ClassVar[str] = "fifo"

    def rank(self, job: Job, now: float) -> Rank:
        return (-job.priority, job.submit_time)

    def static_rank(self) -> StaticRank:
        return StaticRank(submit=1.0)


class Sjf(Queue):
    """Shortest job first, by the estimate; it is as good as the estimator."""

    name: ClassVar[str] = "sjf"

    def rank(self, job: Job, now: float) -> Rank:
        return (-job.priority, predicted_s(job))

    def static_rank(self) -> StaticRank:
        return StaticRank(predicted=1.0)


class SjfAgeing(Queue):
    """Shortest job first with ageing, so that no job starves.

    All jobs age at the same rate, so their order never changes while they wait.

    Args:
        weight: seconds by which a job's estimate is lowered for each second that it has waited.
    """

    name: ClassVar[str] = "sjf-ageing"

    def __init__(self, backfill: bool = False, weight: float = 0.1) -> None:
        super().__init__(backfill)
        self.weight = weight

    def rank(self, job: Job, now: float) -> Rank:
        return (-job.priority, predicted_s(job) + self.weight * job.submit_time)

    def static_rank(self) -> StaticRank:
        return StaticRank(submit=self.weight, predicted=1.0)


class Qssf(Queue):
    """Quasi-shortest service first: by estimated duration times GPUs (Helios, SC'21, section 4.2).

    What makes it QSSF is its estimator, `schedulers.learned.QuasiShortest` (`--estimator qssf`).
    """

    name: ClassVar[str] = "qssf"

    def rank(self, job: Job, now: float) -> Rank:
        return (-job.priority, predicted_s(job) * job.gpus)

    def static_rank(self) -> StaticRank:
        return StaticRank(predicted=1.0, by_gpus=True)
