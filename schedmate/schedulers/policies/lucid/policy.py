"""Profiler, binder and orchestrator of Lucid, around one walk over the queue.

Section numbers are those of the paper (Hu et al., ASPLOS'23).
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Sequence
from heapq import merge
from pathlib import Path
from typing import ClassVar

from schedmate.errors import UsageError
from schedmate.schedulers.decisions import Decision, Evict, Pack, Profile, Start
from schedmate.schedulers.lanes import Rank
from schedmate.schedulers.load import BIN_S
from schedmate.schedulers.model import PROFILING, Cluster, Job
from schedmate.schedulers.model import Profile as Use
from schedmate.schedulers.policies.lucid.binder import (
    Bound,
    Rules,
    ends_s,
    running_partner,
    sharing_capacity,
    waiting_partner,
)
from schedmate.schedulers.policies.lucid.packing import Scorer, Thresholds, Tree
from schedmate.schedulers.policies.lucid.profiler import (
    find_profiling_gpus,
    is_burst,
    set_nodes_aside,
)
from schedmate.schedulers.policy import Policy
from schedmate.schedulers.remaining import predicted_s
from schedmate.schedulers.view import View

UNSTABLE = "unstable"
"""Lane of jobs that share GPUs and whose use was seen to change."""

RUN, UNLESS_BURST = "run", "unless burst"
"""First parts of the lanes of waiting jobs, besides `PROFILING`."""


class Lucid(Policy):
    """Profile jobs, then run them by GPUs x estimated duration, sharing GPUs where that is
    harmless.

    Args:
        profiler_nodes: nodes reserved for profiling, at most a quarter of the cluster (section
            3.2).
        profile_limit_s: T_prof [s].
        profile_gpus: N_prof; larger jobs are not profiled before they run.
        burst: number of jobs waiting for profiling, with those forecast within T_prof, above which
            there is a burst.
        time_aware: in a burst, halve T_prof and N_prof and lend the profiler free nodes of the
            other partition (time-aware scaling; the paper does not say by how much).
        loans: in a burst the profiler borrows from every virtual cluster without waiting jobs;
            false: only from the job's own.
        space_aware: profile the jobs with the fewest GPUs first, instead of the first submitted.
        cold_start: regular expression of the names of jobs that users have marked as slow to begin;
            empty: none (Long Cold-Start, section 3.2).
        cold_start_s: T_prof of those, also in a burst [s].
        capacity: GPU sharing capacity G_SS: the largest sum of the Sharing Scores of a pair; -1:
            never share (section 3.3).
        gpu_memory_mb: largest sum of the memory of a pair.
        patience: a job joins only a partner whose priority value, times this, is at least its own:
            no long job is packed with one that is nearly done.
        remaining: the value of a running job is its estimated remaining time (Algorithm 2, line 7);
            false: its whole estimate, as in the published simulator.
        pair_waiting: a job that starts on free GPUs is joined by an affine one that waits behind it
            (Algorithm 2 pairs over queue and running jobs); false: only running jobs are joined.
        lookahead_s: no GPUs are shared while those that a job would leave free are at least twice
            the forecast demand within this time, and G_SS is at most 1 while they are at least
            equal to it (dynamic strategy; its thresholds are ours); 0: always the capacity.
        demand: forecast the demand for GPUs; false: the number of jobs, of the mean size of running
            ones.
        backfill: jobs that fit may pass one that does not.
        evict_unstable: when the use of either job of a pair changes, evict the one that joined, and
            share with neither again (section 3.3, rule 4).
        scores: CSV of labelled jobs from which to learn the Packing Analyze Model; empty:
            thresholds.
    """

    name: ClassVar[str] = "lucid"

    def __init__(
        self,
        profiler_nodes: int = 2,
        profile_limit_s: float = 200.0,
        profile_gpus: int = 8,
        burst: int = 10,
        time_aware: bool = True,
        loans: bool = True,
        space_aware: bool = True,
        cold_start: str = "",
        cold_start_s: float = 600.0,
        capacity: int = 2,
        gpu_memory_mb: float = 24_576.0,
        patience: float = 2.0,
        remaining: bool = True,
        pair_waiting: bool = True,
        lookahead_s: float = BIN_S,
        demand: bool = True,
        backfill: bool = True,
        evict_unstable: bool = True,
        scores: str = "",
    ) -> None:
        self.profiler_nodes = profiler_nodes
        self.profile_limit_s = profile_limit_s
        self.profile_gpus = profile_gpus
        self.burst = burst
        self.time_aware = time_aware
        self.loans = loans
        self.space_aware = space_aware
        self.cold_start = _pattern(cold_start)
        self.cold_start_s = cold_start_s
        self.capacity = capacity
        self.packs = capacity >= 0
        self.gpu_memory_mb = gpu_memory_mb
        self.patience = patience
        self.remaining = remaining
        self.pair_waiting = pair_waiting
        self.lookahead_s = lookahead_s
        self.demand = demand
        self.backfill = backfill
        self.evict_unstable = evict_unstable
        self.scorer: Scorer = Tree.read(Path(scores)) if scores else Thresholds()
        self.rules = Rules(
            self.scorer, capacity, gpu_memory_mb, patience, remaining, lookahead_s, demand
        )

    def set_aside(self, cluster: Cluster) -> Cluster:
        return set_nodes_aside(cluster, self.profiler_nodes) if self.profile_gpus else cluster

    def decide(self, view: View) -> Sequence[Decision]:
        decisions: list[Decision] = []
        if self.evict_unstable and view.altered:
            unstable = view.running.lane(UNSTABLE)
            # Two jobs that changed at the same time may be one pair.
            leave = {one.index: one for one in map(newcomer, unstable)}
            decisions += [Evict(one) for one in leave.values()]
        if decisions or not view.pending.any():
            # The policy decides again once they are gone.
            return decisions
        bound = Bound()
        stopped: set[Hashable] = set()
        burst: bool | None = None if self.time_aware else False

        def accept(job: Job) -> bool:
            nonlocal burst
            profiles = self.is_unprofiled(job)
            if profiles and burst is None:
                burst = is_burst(view, self.burst, self.profile_limit_s)
            if profiles and burst and self._unless_burst(job):
                profiles = False
            group = (job.vc, job.gpu_type, profiles)
            if group in stopped:
                return False
            if job.index in bound:
                # It goes along with one that came before it.
                bound.pass_by(self.lane(job))
                return True
            if profiles:
                found = self._profile(view, job, bool(burst))
            else:
                found = self.start(view, job, bound)
            if found:
                decisions.extend(found)
                if self.pair_waiting and self.packs and not profiles:
                    bound.pass_by(self.lane(job))
            elif profiles or not self.backfill:
                stopped.add(group)
            return bool(found)

        full = view.space.full

        def hopeless(job: Job) -> bool:
            # It needs GPUs without a partner, and there are none.
            alone = full(job) and (not self.packs or self.use_of(job) is None)
            return alone and not self.is_unprofiled(job)

        view.pending.walk(accept, hopeless if self.backfill else None)
        return decisions

    def rank(self, job: Job, now: float) -> Rank:
        if job.allocation:
            # Partners are searched among the longest first.
            return -ends_s(job) if self.remaining else -job.gpus * predicted_s(job)
        if self.is_unprofiled(job) and not self._unless_burst(job):
            return (0.0, job.gpus if self.space_aware else 0.0, job.submit_time)
        return (1.0 - job.priority, job.gpus * predicted_s(job), job.submit_time)

    def lane(self, job: Job) -> Hashable:
        profile = self.use_of(job)
        score = None if profile is None else self.scorer.score(profile)
        if job.allocation:
            if job.unstable:
                return UNSTABLE if job.partner is not None else None
            alone = job.partner is None and len(job.allocation) == 1 and job.share == 1.0
            return (job.vc, job.gpu_type, job.gpus, score) if alone else None
        stage = RUN
        if self.is_unprofiled(job):
            stage = UNLESS_BURST if self._unless_burst(job) else PROFILING
        return (stage, super().lane(job), score)

    def use_of(self, job: Job) -> Use | None:
        """The job's use, or None if unknown."""
        return job.profile

    def is_unprofiled(self, job: Job) -> bool:
        # A job that has run was observed while it did.
        return not job.profiled and not job.service_s and job.gpus <= self.profile_gpus

    def _unless_burst(self, job: Job) -> bool:
        """Whether the job is above N_prof in a burst: it has its place in both queues."""
        return self.time_aware and 2 * job.gpus > self.profile_gpus

    def _profile(self, view: View, job: Job, burst: bool) -> list[Decision]:
        allocation = find_profiling_gpus(view, job, burst=burst, loans=self.loans)
        if allocation is None:
            return []
        view.space.take(job, allocation)
        limit = self.profile_limit_s / 2 if burst else self.profile_limit_s
        if self.cold_start is not None and self.cold_start.search(job.name):
            limit = max(limit, self.cold_start_s)
        return [Profile(job, allocation, limit)]

    def start(self, view: View, job: Job, bound: Bound) -> list[Decision]:
        """Share GPUs if there is a partner, else run alone (Algorithm 2)."""
        use = self.use_of(job) if self.packs and self._may_share(job) else None
        if use is not None and (partner := self._joined(view, job, use, bound)):
            bound.update((job.index, partner.index))
            return [Pack(job, partner)]
        allocation = view.space.place(job)
        if allocation is None:
            return []
        start = Start(job, allocation)
        bound.add(job.index)
        if use is None or not self.pair_waiting or len(allocation) > 1:
            return [start]
        other = waiting_partner(self._behind(view, job, use, bound), job, use, bound, self.rules)
        if other is None or self._too_much(view, use, other, bound):
            return [start]
        bound.add(other.index)
        return [start, Pack(other, job)]

    def _may_share(self, job: Job) -> bool:
        return job.share == 1.0 and not job.evictions and not job.unstable

    def _joined(self, view: View, job: Job, use: Use, bound: Bound) -> Job | None:
        """The running job to share GPUs with; the sharing capacity is computed only then."""
        found = self.find_partner(view, job, use, self.capacity, bound)
        if found is None:
            return None
        capacity = sharing_capacity(view, job, bound, self.rules)
        return (
            found
            if capacity == self.capacity
            else self.find_partner(view, job, use, capacity, bound)
        )

    def find_partner(
        self, view: View, job: Job, use: Use, capacity: int, bound: Bound
    ) -> Job | None:
        return running_partner(view, job, use, capacity, bound, self.rules)

    def _behind(
        self, view: View, job: Job, use: Use, bound: Bound
    ) -> Iterator[tuple[Job, Use | None]]:
        """Waiting jobs with the same request and fitting scores, shortest first."""
        room, base = self.capacity - self.scorer.score(use), super().lane(job)
        keys = [(RUN, base, score) for score in range(room + 1)]
        lanes = [view.pending.lane(key, bound.first.get(key, 0)) for key in keys]
        for other in merge(*lanes, key=lambda one: (predicted_s(one), one.index)):
            yield other, self.use_of(other)

    def _too_much(self, view: View, use: Use, other: Job, bound: Bound) -> bool:
        """Whether the pair is more than the capacity at this moment, by the dynamic strategy."""
        theirs = self.use_of(other)
        assert theirs is not None
        scores = self.scorer.score(use) + self.scorer.score(theirs)
        return scores > sharing_capacity(view, other, bound, self.rules)


def newcomer(job: Job) -> Job:
    """Of a pair, the one that joined the other."""
    assert job.partner is not None
    return max(job, job.partner, key=lambda one: (one.started, one.index))


def _pattern(text: str) -> re.Pattern[str] | None:
    try:
        return re.compile(text) if text else None
    except re.error as error:
        raise UsageError(
            f"policy lucid: cold_start={text} is not a regular expression: {error}; correct it."
        ) from None
