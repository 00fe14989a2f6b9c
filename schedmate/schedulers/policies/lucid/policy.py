"""Profiler, binder and orchestrator of Lucid, around one walk over the queue.

Section numbers are those of the paper (Hu et al., ASPLOS'23).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import ClassVar

from schedmate.schedulers.lanes import Rank
from schedmate.schedulers.load import BIN_S
from schedmate.schedulers.model import PROFILING, Cluster, Job
from schedmate.schedulers.model import Profile as Use
from schedmate.schedulers.policies.lucid.packing import Scorer, Thresholds, Tree
from schedmate.schedulers.policy import Decision, Evict, Pack, Policy, Profile, Start, View
from schedmate.schedulers.remaining import predicted_s

UNSTABLE = "unstable"
"""The lane of jobs that share GPUs and whose use was seen to change."""


class _Packed(set[int]):
    """The running jobs that a decision has packed so far."""

    def __init__(self) -> None:
        super().__init__()
        self.first: dict[Hashable, int] = {}
        """Of each lane, how many from the first on need not be looked at again."""


class Lucid(Policy):
    """Profile, then run by GPUs x estimated duration, sharing GPUs where it does no harm.

    Args:
        profiler_nodes: nodes kept for profiling, at most a quarter of the cluster (section 3.2).
        profile_limit_s: T_prof [s].
        profile_gpus: N_prof; larger jobs are not profiled before they run.
        burst: jobs waiting to be profiled, with those that the forecast says will join them
            within T_prof, above which there is a burst.
        time_aware: in a burst, halve T_prof and N_prof and lend the profiler free nodes of the
            others (time-aware scaling; by how much, the paper does not say).
        space_aware: profile the jobs of fewest GPUs first, instead of the first submitted.
        capacity: GPU sharing capacity G_SS: the most that the Sharing Scores of a pair add up to;
            -1: never share (section 3.3).
        gpu_memory_mb: what the memory of a pair may add up to.
        patience: a job joins only one whose priority value, times this, is at least its own: no
            long job is packed with one that is nearly done.
        lookahead_s: no GPUs are shared while those that a job would leave free are twice as many
            as the forecast says will be asked for in this time, and G_SS is at most 1 while they
            are as many (dynamic strategy; its thresholds are ours); 0: always the capacity.
        backfill: jobs that fit may pass one that does not.
        evict_unstable: take the job that joined off a pair when the use of either changes, and
            share with neither again (section 3.3, rule 4).
        scores: CSV of labelled jobs to learn the Packing Analyze Model from; empty: thresholds.
    """

    name: ClassVar[str] = "lucid"

    def __init__(
        self,
        profiler_nodes: int = 2,
        profile_limit_s: float = 200.0,
        profile_gpus: int = 8,
        burst: int = 10,
        time_aware: bool = True,
        space_aware: bool = True,
        capacity: int = 2,
        gpu_memory_mb: float = 24_576.0,
        patience: float = 2.0,
        lookahead_s: float = BIN_S,
        backfill: bool = True,
        evict_unstable: bool = True,
        scores: str = "",
    ) -> None:
        self.profiler_nodes = profiler_nodes
        self.profile_limit_s = profile_limit_s
        self.profile_gpus = profile_gpus
        self.burst = burst
        self.time_aware = time_aware
        self.space_aware = space_aware
        self.capacity = capacity
        self.packs = capacity >= 0
        self.gpu_memory_mb = gpu_memory_mb
        self.patience = patience
        self.lookahead_s = lookahead_s
        self.backfill = backfill
        self.evict_unstable = evict_unstable
        self.scorer: Scorer = Tree.read(Path(scores)) if scores else Thresholds()

    def set_aside(self, cluster: Cluster) -> Cluster:
        count = min(self.profiler_nodes, len(cluster.nodes) // 4) if self.profile_gpus else 0
        if not count:
            return cluster
        # From the largest virtual cluster, which misses them least.
        vcs = [node.vc for node in cluster.nodes]
        largest = max(sorted(set(vcs)), key=vcs.count)
        return cluster.with_role(
            [n for n, vc in enumerate(vcs) if vc == largest][-count:], PROFILING
        )

    def decide(self, view: View) -> Sequence[Decision]:
        unstable = view.running.lane(UNSTABLE) if self.evict_unstable else ()
        # Two that changed at once may be of one pair.
        leave = {one.index: one for one in map(newcomer, unstable)}
        decisions: list[Decision] = [Evict(one) for one in leave.values()]
        if decisions:
            # Asked again once they are gone.
            return decisions
        coming = self._coming(view)
        burst = self.time_aware and self._burst(view)
        packed = _Packed()
        stopped: set[Hashable] = set()

        def accept(job: Job) -> bool:
            profiles = self._unprofiled(job) and not (burst and self._unless_burst(job))
            group = (job.vc, job.gpu_type, profiles)
            if group in stopped:
                return False
            if profiles:
                decision = self._profile(view, job, burst)
                blocking = True
            else:
                decision = self._run(view, job, self._capacity(view, job, coming), packed)
                blocking = not self.backfill
            if decision is None:
                if blocking:
                    stopped.add(group)
                return False
            decisions.append(decision)
            return True

        view.pending.walk(accept)
        return decisions

    def rank(self, job: Job, now: float) -> Rank:
        if job.allocation:
            # Partners are looked for among the longest first.
            return -job.gpus * predicted_s(job)
        if self._unprofiled(job) and not self._unless_burst(job):
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
        stage = "run"
        if self._unprofiled(job):
            stage = "unless burst" if self._unless_burst(job) else PROFILING
        return (stage, super().lane(job), score)

    def use_of(self, job: Job) -> Use | None:
        """What the job uses; None: not known."""
        return job.profile

    def _unprofiled(self, job: Job) -> bool:
        # A job that has run was observed while it did.
        return not job.profiled and not job.service_s and job.gpus <= self.profile_gpus

    def _unless_burst(self, job: Job) -> bool:
        """Whether the job is above N_prof in a burst: it has its place in both queues."""
        return self.time_aware and 2 * job.gpus > self.profile_gpus

    def _profile(self, view: View, job: Job, burst: bool) -> Decision | None:
        """Least GPUs first, exclusive and consolidated (Algorithm 1)."""
        space = view.space
        own = space.could(job, PROFILING)
        allocation = space.find(job, PROFILING) if own else None
        if allocation is None and (burst or not own):
            allocation = space.find(job)
        if allocation is None:
            return None
        space.take(job, allocation)
        limit = self.profile_limit_s
        return Profile(job, allocation, limit / 2 if burst else limit)

    def _run(self, view: View, job: Job, capacity: int, packed: _Packed) -> Decision | None:
        """Share if there is a job to share with, else run alone (Algorithm 2)."""
        if capacity >= 0 and (partner := self._partner(view, job, capacity, packed)):
            packed.add(partner.index)
            return Pack(job, partner)
        allocation = view.space.place(job)
        return None if allocation is None else Start(job, allocation)

    def _partner(self, view: View, job: Job, capacity: int, packed: _Packed) -> Job | None:
        """The affine job: as many GPUs on one node, scores and memory that add up (section 3.3)."""
        profile = self.use_of(job)
        if profile is None or job.share != 1.0 or job.evictions or job.unstable:
            return None
        needed = job.gpus * predicted_s(job) / self.patience
        room = capacity - self.scorer.score(profile)
        for score in range(room + 1):
            lane = (job.vc, job.gpu_type, job.gpus, score)
            first = packed.first.get(lane, 0)
            for position, other in enumerate(view.running.lane(lane, first), first):
                if other.gpus * predicted_s(other) < needed:
                    break
                # A job is alone in the profiler by design, and one evicted stays alone for good.
                if other.index in packed or other.evictions or other.profiling:
                    if position == first:
                        first = packed.first[lane] = position + 1
                    continue
                memory = other.profile.memory_mb if other.profile else self.gpu_memory_mb
                if profile.memory_mb + memory <= self.gpu_memory_mb:
                    return other
        return None

    def _burst(self, view: View) -> bool:
        """Whether the profiler has more to do than it can do soon (time-aware scaling)."""
        lanes = view.pending.lanes()
        waiting = sum(view.pending.count(lane) for lane in lanes if _profiles(lane))
        if not waiting or waiting > self.burst:
            return waiting > 0
        coming = view.expected() * self.profile_limit_s / BIN_S
        return waiting + coming > self.burst

    def _coming(self, view: View) -> float:
        """GPUs to be asked for within `lookahead_s`, if jobs are as large as those that run."""
        if not self.lookahead_s or self.capacity < 0:
            return 0.0
        held = view.space.cluster.gpus - view.space.idle
        return view.expected() * self.lookahead_s / BIN_S * held / max(len(view.running), 1)

    def _capacity(self, view: View, job: Job, coming: float) -> int:
        """G_SS for the job now: less while GPUs are and will be idle (dynamic strategy)."""
        if not self.lookahead_s or self.capacity < 0 or view.space.find(job) is None:
            return self.capacity
        left = view.space.free_for(job) - job.gpus
        if left >= 2 * coming:
            return -1
        return min(self.capacity, 1) if left >= coming else self.capacity


def newcomer(job: Job) -> Job:
    """Of a pair, the one that joined the other."""
    assert job.partner is not None
    return max(job, job.partner, key=lambda one: (one.started, one.index))


def _profiles(lane: Hashable) -> bool:
    return isinstance(lane, tuple) and lane[0] == PROFILING
