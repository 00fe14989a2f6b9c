"""Lucid's Affine-Jobpair Binder: which jobs share GPUs, and when (section 3.3)."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import NamedTuple

from schedmate.schedulers.load import BIN_S
from schedmate.schedulers.model import Job
from schedmate.schedulers.model import Profile as Use
from schedmate.schedulers.policies.lucid.packing import Scorer
from schedmate.schedulers.remaining import predicted_s, remaining_s
from schedmate.schedulers.view import View


class Bound(set[int]):
    """Positions of the jobs that a decision has disposed of so far: started, or in a pair."""

    __slots__ = ("coming", "first")

    def __init__(self) -> None:
        self.first: dict[Hashable, int] = {}
        """Number of jobs at the head of each lane that can be skipped."""
        self.coming: float | None = None
        """Forecast demand for GPUs; None: not yet computed."""

    def pass_by(self, lane: Hashable) -> None:
        """The first of a lane that was not passed yet is disposed of."""
        self.first[lane] = self.first.get(lane, 0) + 1


class Rules(NamedTuple):
    """The settings of `Lucid` that the binder needs, by the same names."""

    scorer: Scorer
    capacity: int
    gpu_memory_mb: float
    patience: float
    remaining: bool
    lookahead_s: float
    demand: bool


def ends_s(job: Job) -> float:
    """When a running job ends by its estimate, as if it ran alone [s]."""
    return job.started - job.service_s + predicted_s(job)


def has_room(first: Use, second: Use | None, rules: Rules) -> bool:
    """Whether both fit into GPU memory; a job of unknown use takes all of it."""
    memory = second.memory_mb if second is not None else rules.gpu_memory_mb
    return first.memory_mb + memory <= rules.gpu_memory_mb


def running_partner(
    view: View, job: Job, use: Use, capacity: int, bound: Bound, rules: Rules
) -> Job | None:
    """The running affine job: on the same number of GPUs of one node, with scores and memory that
    fit.

    The longest is preferred; a job that ends too soon to share much with is never joined.
    """
    now, remaining, running = view.now, rules.remaining, view.running
    needed = job.gpus * predicted_s(job) / rules.patience
    for score in range(capacity - rules.scorer.score(use) + 1):
        lane = (job.vc, job.gpu_type, job.gpus, score)
        first = bound.first.get(lane, 0)
        for position, other in enumerate(running.lane(lane, first), first):
            left_s = remaining_s(other, now) if remaining else predicted_s(other)
            if other.gpus * left_s < needed:
                if remaining and ends_s(other) <= now:
                    continue  # beyond its estimate, where the order means nothing
                break
            # A job is alone in the profiler by design, and one evicted stays alone for good.
            if other.index in bound or other.evictions or other.profiling:
                if position == first:
                    first = bound.first[lane] = position + 1
                continue
            if has_room(use, other.profile, rules):
                return other
    return None


def waiting_partner(
    offered: Iterator[tuple[Job, Use | None]], job: Job, use: Use, bound: Bound, rules: Rules
) -> Job | None:
    """The affine job that waits behind one that is about to start alone.

    `offered`: waiting jobs, shortest first, with their profiles.
    """
    longest = predicted_s(job) * rules.patience
    for other, theirs in offered:
        if predicted_s(other) > longest:
            return None
        if other.index in bound or other.evictions or other.unstable:
            continue
        if theirs is not None and has_room(use, theirs, rules):
            return other
    return None


def gpus_to_come(view: View, rules: Rules) -> float:
    """Forecast number of GPUs requested within `lookahead_s`.

    By a forecast of GPU demand, or of the number of jobs, if these are as large as running ones.
    """
    if rules.demand:
        return view.expected_gpus() * rules.lookahead_s / BIN_S
    held = view.space.cluster.gpus - view.space.idle
    return view.expected() * rules.lookahead_s / BIN_S * held / max(len(view.running), 1)


def sharing_capacity(view: View, job: Job, bound: Bound, rules: Rules) -> int:
    """G_SS for the job now: less while GPUs are and will be idle (dynamic strategy)."""
    if not rules.lookahead_s or rules.capacity < 0 or view.space.find(job) is None:
        return rules.capacity
    if bound.coming is None:
        bound.coming = gpus_to_come(view, rules)
    left = view.space.free_for(job) - job.gpus
    if left >= 2 * bound.coming:
        return -1
    return min(rules.capacity, 1) if left >= bound.coming else rules.capacity
