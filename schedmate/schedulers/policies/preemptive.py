"""Policies that take GPUs back: SRTF, for the shortest remaining time, and Tiresias (NSDI'19).

Tiresias ranks by two-dimensional attained service in two queues. Whom both stop is chosen alike
(`make_room`): the last in rank, no more than needed.
"""

from __future__ import annotations

import csv
import re
from bisect import bisect_right
from collections.abc import Hashable, Iterable, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import ClassVar, NamedTuple

from schedmate.base.errors import UsageError, reason_of
from schedmate.base.reading import bounded_rows, open_text
from schedmate.schedulers.estimators import predicted_s
from schedmate.schedulers.free import lowest_gpus
from schedmate.schedulers.lanes import Rank
from schedmate.schedulers.model import NEVER, Allocation, Job
from schedmate.schedulers.policy import HAIR, Decision, Policy, Preempt, ServiceRank, Start, View

RESTART_S = 62.0
"""What a restart takes (Tiresias, NSDI'19) [s]."""


class Stopped(set[Job]):
    """The running jobs that a decision has stopped so far."""

    def __init__(self) -> None:
        super().__init__()
        self.first: dict[Hashable, int] = {}
        """Number of jobs at the end of each group that can be skipped."""


class Room(NamedTuple):
    """The jobs to stop so that a job can start."""

    victims: list[Job]
    """Released in the view's space already."""
    allocation: Allocation | None
    """The job's allocation; None: it cannot fit."""
    largest: int = 0
    """If it cannot: the most GPUs that one node could free."""


def make_room(view: View, job: Job, bar: Rank, stopped: Stopped) -> Room:
    """Release the last of the running jobs that rank after `bar`, so that `job` fits.

    They are of the job's own group: its lane among the running is (VC, GPU type). Only those on
    the nodes that the job will get are released.
    """
    plain = job.share == 1.0 and not job.cpus and not job.memory_mb
    if plain and job.gpus <= view.space.largest:
        return _on_a_node(view, job, bar, stopped)
    return _anywhere(view, job, bar, stopped)


def _on_a_node(view: View, job: Job, bar: Rank, stopped: Stopped) -> Room:
    wanted, group = job.gpus, (job.vc, job.gpu_type)
    free = view.space.free
    counts: dict[int, int] = {}  # of a node, were those so far released
    first, stops_on = stopped.first.get(group, 0), counts.get
    walked = first
    for victim in view.running.after(bar, group, first):
        walked += 1
        if not victim.preemptible or victim in stopped:
            if walked == first + 1:
                first = stopped.first[group] = walked
            continue
        enough = -1
        for node, mask in view.space.freed(victim.allocation):
            before = stops_on(node)
            if before is None:
                before = free[node].bit_count()
            counts[node] = count = before + mask.bit_count()
            if before < wanted <= count:
                enough = node
        if enough < 0:
            continue
        victims = [victim]
        if walked > first + 1:
            victims = _walked(view, group, bar, stopped, first, walked)
        if all(evicted.share == 1.0 for evicted in victims):
            # No other node has enough, or it would have been found before.
            mask = free[enough]
            for evicted in victims:
                for node, gpus in view.space.freed(evicted.allocation):
                    if node == enough:
                        mask |= gpus
            return _release(view, victims, ((enough, lowest_gpus(mask, wanted)),))
        if allocation := _try(view, job, victims):
            return _release(view, victims, allocation)
    largest = view.space.freest(job)
    return Room([], None, max(largest, *counts.values()) if counts else largest)


def _anywhere(view: View, job: Job, bar: Rank, stopped: Stopped) -> Room:
    """Make room for a gang over several nodes, or for a job with requests besides whole GPUs."""
    space, free, group = view.space, view.space.free, (job.vc, job.gpu_type)
    whole = min(job.gpus, space.largest)
    missing, gpus = job.gpus // whole - space.whole(job), space.idle
    counts: dict[int, int] = {}
    first = stopped.first.get(group, 0)
    for walked, victim in enumerate(view.running.after(bar, group, first), first + 1):
        if victim in stopped or not victim.preemptible:
            continue
        opened = False
        for node, mask in space.freed(victim.allocation):
            before = counts[node] if node in counts else free[node].bit_count()
            counts[node] = count = before + mask.bit_count()
            gpus += mask.bit_count()
            if before < whole <= count:
                missing -= 1
                opened = True
        if opened and missing <= 0 and gpus >= job.gpus:
            victims = _walked(view, group, bar, stopped, first, walked)
            if allocation := _try(view, job, victims):
                return _release(view, victims, allocation)
    return Room([], None, job.gpus)


def _walked(
    view: View, group: Hashable, bar: Rank, stopped: Stopped, first: int, last: int
) -> list[Job]:
    """The jobs between two places of the walk that can be stopped."""
    numbered = zip(range(first, last), view.running.after(bar, group, first), strict=False)
    return [one for _, one in numbered if one.preemptible and one not in stopped]


def _try(view: View, job: Job, victims: Iterable[Job]) -> Allocation | None:
    """Where the job would go, were all of these released."""
    space = view.space
    mark = space.mark()
    for victim in victims:
        space.give(victim, victim.allocation)
    allocation = space.find(job)
    space.return_to(mark)
    return allocation


def _release(view: View, victims: list[Job], allocation: Allocation) -> Room:
    """Release those of the victims that are in the way."""
    wanted, needed = dict(allocation), []
    for victim in victims:
        for node, mask in victim.allocation:
            if wanted.get(node, 0) & mask:
                needed.append(victim)
                view.space.give(victim, victim.allocation)
                break
    return Room(needed, allocation)


# Policies that take GPUs back, and the one that does so for the shortest remaining time.


class Preemptive(Policy):
    """Run the jobs that rank first; jobs that rank after a waiting job may be stopped for it.

    Victims are taken from the last rank upwards, and only on the nodes that the job will get.
    `backfill`: a job that cannot be placed even so lets later ones pass, until these can be stopped
    for it. `quota`: jobs are chosen by the number of GPUs alone; one that then fits on no nodes
    waits, with its number reserved. Published simulators do so.
    """

    backfill: bool = True
    quota: bool = False
    stops: bool = True
    """Whether running jobs may be stopped; if not, this is a queue as in queues.py."""
    steady = True

    def decide(self, view: View) -> Sequence[Decision]:
        if self.quota:
            return self._by_quota(view)
        space, now, backfill = view.space, view.now, self.backfill
        if not (self.stops or space.idle or space.sharing):
            return []
        place = space.place
        if type(self).place is not Preemptive.place:
            place = partial(self.place, view)
        decisions: list[Decision] = []
        stopped = Stopped()
        # Jobs are offered by rank, so a later one has fewer victims: what could not be made room
        # for before an earlier one cannot be either.
        unmet: dict[Hashable, int] = {}

        def accept(job: Job) -> bool:
            group = (job.vc, job.gpu_type)
            least = unmet.get(group)
            if least is not None and (not backfill or (job.gpus >= least and not space.idle)):
                return False
            allocation = place(job)
            if allocation is None:
                if least is not None and job.gpus >= least:
                    return False
                if not self.stops:
                    if not backfill:
                        unmet[group] = 0
                    return False
                bar = self.rank_if_running(job, now)
                victims, allocation, largest = make_room(view, job, bar, stopped)
                if allocation is None:
                    unmet[group] = min(job.gpus, largest + 1)
                    return False
                stopped.update(victims)
                decisions.extend(map(Preempt, victims))
                space.take(job, allocation)
            decisions.append(Start(job, allocation))
            return True

        view.pending.walk(accept)
        return decisions

    def lane(self, job: Job) -> Hashable:
        # The running are only ever walked from the last, so one lane a group keeps them sorted.
        return (job.vc, job.gpu_type) if job.allocation else super().lane(job)

    def place(self, view: View, job: Job) -> Allocation | None:
        """Find free GPUs for a job and book them; None: there are none."""
        return view.space.place(job)

    def rank_if_running(self, job: Job, now: float) -> Rank:
        """The rank that this waiting job would have among the running."""
        return self.rank(job, now)

    def _by_quota(self, view: View) -> Sequence[Decision]:
        """Let those run that rank first while the count of GPUs lasts, as far as they fit."""
        now, space = view.now, view.space
        nodes = space.cluster.nodes
        left = sum(node.gpus for at, node in enumerate(nodes) if not space.closed(at))
        # jobs on closed nodes end there: stopping them would make room for nobody
        running = [job for job in view.running if space.freed(job.allocation)]
        stops, walked = list[Decision](), 0

        def place(job: Job) -> tuple[Rank, int]:
            return (self.rank_if_running(job, now), job.index)

        def keep(bar: tuple[Rank, int] | None) -> None:
            """Keep the running jobs up to that rank, or stop them."""
            nonlocal walked, left
            while walked < len(running) and (bar is None or place(running[walked]) < bar):
                job = running[walked]
                walked += 1
                if job.gpus <= left or not job.preemptible:
                    left -= job.gpus
                else:
                    stops.append(Preempt(job))
                    view.space.give(job, job.allocation)

        def accept(job: Job) -> bool:
            nonlocal left
            keep(place(job))
            if job.gpus > left:
                return False
            left -= job.gpus
            return True

        starts = view.pending.walk(accept)
        keep(None)
        decisions = stops
        for job, _ in starts:
            if allocation := self.place(view, job):
                decisions.append(Start(job, allocation))
        return decisions


class Srtf(Preemptive):
    """Shortest remaining time first: the estimate less the time it has run.

    Args:
        backfill: jobs that fit may pass one that does not.
        quota: choose jobs by the number of GPUs alone, wherever these are free.
    """

    name: ClassVar[str] = "srtf"

    def __init__(self, backfill: bool = True, quota: bool = False) -> None:
        self.backfill = backfill
        self.quota = quota

    def rank(self, job: Job, now: float) -> Rank:
        # A running job's rank is when it would end, which does not move while it runs.
        remaining = max(predicted_s(job) - job.attained_s(now), 0.0)
        return now + remaining if job.allocation else remaining

    def rank_if_running(self, job: Job, now: float) -> Rank:
        return now + max(predicted_s(job) - job.attained_s(now), 0.0)


# Tiresias (NSDI'19): two-dimensional attained service in two queues, preemptive.


_STEPS = 64
"""Values that a Gittins index takes; at each the rank of a running job changes."""


class Tiresias(Preemptive):
    """Two-dimensional least attained service, or Gittins index, in two queues (section 3.3).

    A job whose GPUs x time exceed `threshold_gpu_s` moves to the second queue; within a queue the
    first submitted goes first, or the one with the highest Gittins index.

    Args:
        threshold_gpu_s: GPU time received after which a job moves to the second queue [GPU s];
            5 GPU hours, as Lucid's authors compare with.
        interval_s: time between decisions; 0: after every change [s].
        promote: PROMOTEKNOB: a job that has waited for this many times its run time so far moves to
            the first queue with its service reset, until it is stopped again; 0: never.
        history: CSV with a column `gpu_s`, the GPUs x time of past jobs: then jobs go by Gittins
            index within a queue (2D-Gittins); empty: by submission (2D-LAS).
        consolidate: regular expression of the names of jobs whose model has large tensors and so
            needs all GPUs together; the others may be spread over any free ones (section 3.4).
            Empty: all need it.
        backfill: a job that cannot be placed lets later ones pass.
        quota: jobs are chosen by the number of GPUs alone, as in published simulators.
    """

    name: ClassVar[str] = "tiresias"

    def __init__(
        self,
        threshold_gpu_s: float = 18_000.0,
        interval_s: float = 0.0,
        backfill: bool = True,
        quota: bool = False,
        promote: float = 0.0,
        history: str = "",
        consolidate: str = "",
    ) -> None:
        self.backfill = backfill
        self.quota = quota
        self.threshold_gpu_s = threshold_gpu_s
        self.interval_s = interval_s or None
        if not 0 <= promote < NEVER:
            raise UsageError(
                f"policy tiresias: promote={promote} must be at least 0 (0: no job is promoted)."
            )
        self.promote = promote
        self.gittins = Gittins.read(Path(history), threshold_gpu_s) if history else None
        try:
            self.together = re.compile(consolidate) if consolidate else None
        except re.error as error:
            raise UsageError(
                f"policy tiresias: consolidate={consolidate} is not a regular expression: {error}; "
                "correct it."
            ) from None

    def rank(self, job: Job, now: float) -> Rank:
        attained = self._attained_gpu_s(job, now)
        queue = float(attained >= self.threshold_gpu_s * (1 - HAIR))
        if self.gittins is None:
            return (queue, job.submit_time)
        return (queue, -self.gittins.index(attained * (1 + HAIR)), job.submit_time)

    def rank_until(self, job: Job, now: float) -> float:
        attained = self._attained_gpu_s(job, now)
        left = self.threshold_gpu_s - attained
        if left <= self.threshold_gpu_s * HAIR:
            left = NEVER
        if self.gittins is not None:
            left = min(left, self.gittins.next(attained * (1 + HAIR)) - attained)
        return now + left / job.gpus

    def waiting_until(self, job: Job, now: float) -> float:
        if not self.promote or not job.service_s:
            return NEVER
        at = job.stopped + self.promote * job.service_s
        return at if at > now and self._attained_gpu_s(job, now) > 0 else NEVER

    def service_rank(self) -> ServiceRank | None:
        usual = self.backfill and not (self.quota or self.promote or self.interval_s)
        if not usual or self.gittins is not None or self.together is not None:
            return None
        return ServiceRank(self.threshold_gpu_s)

    def lane(self, job: Job) -> Hashable:
        lane = super().lane(job)
        # One that may be spread fits where another does not.
        return lane if self.together is None or job.allocation else (lane, self._spreads(job))

    def _spreads(self, job: Job) -> bool:
        return self.together is not None and self.together.search(job.name) is None

    def place(self, view: View, job: Job) -> Allocation | None:
        allocation = view.space.place(job)
        if allocation is not None or not self._spreads(job):
            return allocation
        allocation = _spread(view, job)
        return allocation if allocation and view.space.take(job, allocation) else None

    def _attained_gpu_s(self, job: Job, now: float) -> float:
        """GPUs x time since the job was submitted, or promoted."""
        if self.promote and job.service_s:
            since = job.started if job.allocation else now
            if since - job.stopped >= self.promote * job.service_s * (1 - HAIR):
                return (now - job.started) * job.gpus if job.allocation else 0.0
        return job.attained_s(now) * job.gpus


def _spread(view: View, job: Job) -> Allocation | None:
    """Any free GPUs of the nodes that the job may use, the smallest leftovers first."""
    space, left, chosen = view.space, job.gpus, []
    if job.share != 1.0 or job.cpus or job.memory_mb or job.constraints or space.idle < job.gpus:
        return None
    has_vcs = any(node.vc for node in space.cluster.nodes)
    open_nodes = [
        (space.free[position].bit_count(), position)
        for position, node in enumerate(space.cluster.nodes)
        if space.free[position]
        and not node.role
        and (not has_vcs or node.vc in ("", job.vc))
        and (not job.gpu_type or node.gpu_type in ("", job.gpu_type))
    ]
    for count, position in sorted(open_nodes):
        taken = min(count, left)
        chosen.append((position, lowest_gpus(space.free[position], taken)))
        left -= taken
        if not left:
            return tuple(sorted(chosen))
    return None


class Gittins:
    """The Gittins index of a job by its attained service, from the total service of past jobs.

    Of the past jobs that needed more: the share that ended within `quantum` more, over the mean of
    their further service, at most `quantum`.
    """

    def __init__(self, taken: list[float], quantum: float) -> None:
        """Args:
        taken: service of past jobs [GPU s], at least one.
        quantum: service to look ahead [GPU s]."""
        taken = sorted(taken)
        sums = [0.0, *accumulate(taken)]
        steps = sorted({0.0, *(taken[len(taken) * n // _STEPS] for n in range(_STEPS))})
        self._from = steps
        self._index = []
        for attained in steps:
            first, last = (bisect_right(taken, one) for one in (attained, attained + quantum))
            still = sums[last] - sums[first] - attained * (last - first)
            still += quantum * (len(taken) - last)
            self._index.append((last - first) / still if still else 0.0)

    def index(self, attained: float) -> float:
        """At this attained service [GPU s], 1 / [GPU s]."""
        return self._index[bisect_right(self._from, attained) - 1]

    def next(self, attained: float) -> float:
        """Service at which the index changes next; infinity: never [GPU s]."""
        place = bisect_right(self._from, attained)
        return self._from[place] if place < len(self._from) else NEVER

    @classmethod
    def read(cls, path: Path, quantum: float) -> Gittins:
        """From a CSV with a column gpu_s. Raises `UsageError` when it is not one."""
        try:
            with open_text(path, newline="") as stream:
                taken = [float(row["gpu_s"]) for row in bounded_rows(csv.DictReader(stream), path)]
        except (OSError, KeyError, TypeError, ValueError, UnicodeError, csv.Error) as error:
            raise UsageError(
                f"policy tiresias: {path} is not a table ({reason_of(error)}); it needs a column "
                "gpu_s."
            ) from None
        if not taken or not all(0 <= one < NEVER for one in taken):
            raise UsageError(
                f"policy tiresias: the column gpu_s of {path} has to hold times, and at least one."
            )
        return cls(taken, quantum)
