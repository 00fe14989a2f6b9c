"""Lucid (ASPLOS'23): profile, predict, pack jobs that do not harm each other, never preempt.

`Lucid` is the walk over the queue; profiler, binder and packing model are what it asks. Section
numbers are those of the paper (Hu et al.).
"""

from __future__ import annotations

import csv
import re
from collections.abc import Hashable, Iterator, Sequence
from heapq import merge
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

from schedmate.base.errors import UsageError, reason_of
from schedmate.base.reading import MOST_RECORDS, bounded_rows, open_text
from schedmate.schedulers.estimators import BIN_S, predicted_s, remaining_s
from schedmate.schedulers.lanes import Rank
from schedmate.schedulers.model import PROFILING, Allocation, Cluster, Job, Profile
from schedmate.schedulers.model import Profile as Use
from schedmate.schedulers.policy import (
    Decision,
    Evict,
    Pack,
    Policy,
    Start,
    View,
    require_schedulers_extra,
)
from schedmate.schedulers.policy import Profile as PolicyProfile

# The Packing Analyze Model: from a profile to a Sharing Score (Lucid, section 3.5.1).
#
# Tiny (0) jobs hardly disturb another on the same GPU, medium (1) ones a little, jumbo (2) ones
# much.


TINY, MEDIUM, JUMBO = range(3)

FEATURES = ("gpu_util", "memory_util", "memory_mb", "amp")


class Scorer(Protocol):
    """Scores how much a job slows down another on the same GPU."""

    def score(self, profile: Profile) -> int:
        """The Sharing Score: 0, 1 or 2."""
        ...


class Thresholds:
    """Scores by GPU utilisation alone, the most important feature (section 3.5.1).

    A job is tiny if it and one of 50 % both run at over 0.95 of their speed together, by the curve
    of `sim.parameters.UtilisationCurve`, and medium at over 0.85: the paper's thresholds.
    """

    def __init__(self, tiny: float = 31.0, medium: float = 81.0) -> None:
        self.tiny = tiny
        self.medium = medium

    def score(self, profile: Profile) -> int:
        util = profile.gpu_util
        return TINY if util <= self.tiny else MEDIUM if util <= self.medium else JUMBO

    def __str__(self) -> str:
        return (
            f"gpu_util <= {self.tiny:g} %: tiny\ngpu_util <= {self.medium:g} %: medium\nelse: jumbo"
        )


class Tree:
    """A decision tree over the four features, pruned at minimal cost-complexity.

    Learnt from measured jobs and their labels; printable. Needs the `schedulers` extra.
    """

    def __init__(self, rows: list[tuple[Profile, int]], ccp_alpha: float = 0.01) -> None:
        require_schedulers_extra("sklearn", what="learning scores from a file")
        from sklearn.tree import DecisionTreeClassifier

        self._tree: Any = DecisionTreeClassifier(ccp_alpha=ccp_alpha, random_state=0)
        self._tree.fit([list(map(float, profile)) for profile, _ in rows], [s for _, s in rows])
        self._known: dict[Profile, int] = {}

    def score(self, profile: Profile) -> int:
        score = self._known.get(profile)
        if score is None:
            score = self._known[profile] = int(self._tree.predict([list(map(float, profile))])[0])
        return score

    def __str__(self) -> str:
        from sklearn.tree import export_text

        return str(export_text(self._tree, feature_names=list(FEATURES)))

    @classmethod
    def read(cls, path: Path) -> Tree:
        """From a CSV with gpu_util, gmem_util, gmem, amp and label (0, 1, 2).

        Raises `UsageError` when it is not one.
        """
        try:
            with open_text(path, newline="") as stream:
                rows = [
                    (
                        Profile(
                            float(row["gpu_util"]),
                            float(row["gmem_util"]),
                            float(row["gmem"]),
                            row["amp"] == "1",
                        ),
                        int(row["label"]),
                    )
                    for row in bounded_rows(csv.DictReader(stream), path, MOST_RECORDS)
                ]
        except (OSError, KeyError, ValueError, UnicodeError) as error:
            raise UsageError(
                f"policy lucid: {path} is not a table of labelled jobs ({reason_of(error)}); it "
                "needs the columns gpu_util, gmem_util, gmem, amp and label."
            ) from None
        if not rows:
            raise UsageError(
                f"policy lucid: {path} has no labelled job; give rows, or leave scores out."
            )
        return cls(rows)


# Lucid's Affine-Jobpair Binder: which jobs share GPUs, and when (section 3.3).


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
        for position, candidate in enumerate(running.lane(lane, first), first):
            left_s = remaining_s(candidate, now) if remaining else predicted_s(candidate)
            if candidate.gpus * left_s < needed:
                if remaining and ends_s(candidate) <= now:
                    continue  # beyond its estimate, where the order means nothing
                break
            # A job is alone in the profiler by design, and one evicted stays alone for good.
            if candidate.index in bound or candidate.evictions or candidate.profiling:
                if position == first:
                    first = bound.first[lane] = position + 1
                continue
            if has_room(use, candidate.profile, rules):
                return candidate
    return None


def waiting_partner(
    offered: Iterator[tuple[Job, Use | None]], job: Job, use: Use, bound: Bound, rules: Rules
) -> Job | None:
    """The affine job that waits behind one that is about to start alone.

    `offered`: waiting jobs, shortest first, with their profiles.
    """
    longest = predicted_s(job) * rules.patience
    for candidate, theirs in offered:
        if predicted_s(candidate) > longest:
            return None
        if candidate.index in bound or candidate.evictions or candidate.unstable:
            continue
        if theirs is not None and has_room(use, theirs, rules):
            return candidate
    return None


def gpus_to_come(view: View, rules: Rules) -> float:
    """Forecast number of GPUs requested within `lookahead_s`.

    By a forecast of GPU demand, or of the number of jobs, if these are as large as running ones.
    """
    if rules.demand:
        return view.expected_gpus() * rules.lookahead_s / BIN_S
    gpus_held = view.space.cluster.gpus - view.space.idle
    return view.expected() * rules.lookahead_s / BIN_S * gpus_held / max(len(view.running), 1)


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


# Profiler, binder and orchestrator of Lucid, around one walk over the queue.
#
# Section numbers are those of the paper (Hu et al., ASPLOS'23).


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
                started = self._profile(view, job, bool(burst))
            else:
                started = self.start(view, job, bound)
            if started:
                decisions.extend(started)
                if self.pair_waiting and self.packs and not profiles:
                    bound.pass_by(self.lane(job))
            elif profiles or not self.backfill:
                stopped.add(group)
            return bool(started)

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
        return [PolicyProfile(job, allocation, limit)]

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
        waiting = waiting_partner(self._behind(view, job, use, bound), job, use, bound, self.rules)
        if waiting is None or self._too_much(view, use, waiting, bound):
            return [start]
        bound.add(waiting.index)
        return [start, Pack(waiting, job)]

    def _may_share(self, job: Job) -> bool:
        return job.share == 1.0 and not job.evictions and not job.unstable

    def _joined(self, view: View, job: Job, use: Use, bound: Bound) -> Job | None:
        """The running job to share GPUs with; the sharing capacity is computed only then."""
        partner = self.find_partner(view, job, use, self.capacity, bound)
        if partner is None:
            return None
        capacity = sharing_capacity(view, job, bound, self.rules)
        return (
            partner
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
        for candidate in merge(*lanes, key=lambda one: (predicted_s(one), one.index)):
            yield candidate, self.use_of(candidate)

    def _too_much(self, view: View, use: Use, partner: Job, bound: Bound) -> bool:
        """Whether the pair is more than the capacity at this moment, by the dynamic strategy."""
        theirs = self.use_of(partner)
        assert theirs is not None
        scores = self.scorer.score(use) + self.scorer.score(theirs)
        return scores > sharing_capacity(view, partner, bound, self.rules)


def newcomer(job: Job) -> Job:
    """The job of a pair that joined the other."""
    assert job.partner is not None
    return max(job, job.partner, key=lambda one: (one.started, one.index))


def _pattern(text: str) -> re.Pattern[str] | None:
    try:
        return re.compile(text) if text else None
    except re.error as error:
        raise UsageError(
            f"policy lucid: cold_start={text} is not a regular expression: {error}; correct it."
        ) from None


# Lucid's Non-intrusive Job Profiler: how long, where, and whose nodes it borrows (section 3.2).


def set_nodes_aside(cluster: Cluster, count: int) -> Cluster:
    """The cluster with `count` nodes reserved for profiling, at most a quarter of it."""
    count = min(count, len(cluster.nodes) // 4)
    if not count:
        return cluster
    # From the largest virtual cluster, which misses them least.
    vcs = [node.vc for node in cluster.nodes]
    largest = max(sorted(set(vcs)), key=vcs.count)
    return cluster.with_role([n for n, vc in enumerate(vcs) if vc == largest][-count:], PROFILING)


def is_burst(view: View, most: int, limit_s: float) -> bool:
    """Whether the profiler has more to do than it can do soon (time-aware scaling).

    `most`: jobs waiting, with those to come within `limit_s`, up to which it has not.
    """
    pending, waiting = view.pending, 0
    for lane in pending.lanes():
        if _profiles(lane):
            waiting += pending.count(lane)
    if not waiting or waiting > most:
        return waiting > 0
    return waiting + view.expected() * limit_s / BIN_S > most


def find_profiling_gpus(view: View, job: Job, *, burst: bool, loans: bool) -> Allocation | None:
    """Exclusive and consolidated GPUs on the profiler's nodes (Algorithm 1).

    In a burst also on free nodes of the job's own virtual cluster and, with `loans`, then on those
    of another without waiting jobs.
    """
    space = view.space
    own = space.could(job, PROFILING)
    allocation = space.find(job, PROFILING) if own else None
    if allocation is None and (burst or not own):
        allocation = space.find(job)
    if allocation is None and burst and loans:
        allocation = space.find(job, borrow=True)
        if allocation is not None:
            lender = space.cluster.nodes[allocation[0][0]].vc
            lanes = view.pending.lanes()
            if any(lane[1][0] == lender for lane in lanes if _runs(lane)):  # type: ignore[index]
                return None
    return allocation


def _profiles(lane: Hashable) -> bool:
    return isinstance(lane, tuple) and lane[0] == PROFILING


def _runs(lane: Hashable) -> bool:
    return isinstance(lane, tuple) and lane[0] != PROFILING
