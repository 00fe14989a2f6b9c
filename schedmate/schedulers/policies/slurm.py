"""Slurm's queue: multifactor priority, backfill with reservations, time limits that end jobs.

Priority is Slurm's weighted sum of factors between 0 and 1 (priority/multifactor). Backfill plans
with predicted run times and ends jobs by their requested limits, as Tsafrir, Etsion and Feitelson,
"Backfilling using system-generated predictions" (TPDS 2007), propose.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Sequence
from typing import ClassVar, NamedTuple

from schedmate.base.errors import UsageError
from schedmate.schedulers.model import NEVER, Allocation, Job
from schedmate.schedulers.policy import Decision, Drop, Policy, Start, View

CORRECTIONS_S = tuple(
    60.0 * minutes for minutes in (1, 5, 15, 30, 60, 120, 300, 600, 1200, 3000, 6000)
)
"""What is added, one after the other, to the prediction of a job that outlives it [s]: 1, 5, 15 and
30 minutes, 1, 2, 5, 10, 20, 50 and 100 hours (Tsafrir, Etsion, Feitelson 2007, section 4)."""
OUT_OF_TIME = "time limit"
"""Reason of the `Drop` of a job that has run for its limit."""
ALL_JOBS = 1_000_000_000
_ROUNDING_S = 1e-6


def corrected_s(predicted_s: float, limit_s: float, ran_s: float) -> float:
    """The predicted run time of a job that has run for `ran_s`: above that, and corrected upward
    by `CORRECTIONS_S` until it is, but at most the limit while that is ahead [s]."""
    total = min(predicted_s, limit_s)
    ran_s += _ROUNDING_S
    for more_s in CORRECTIONS_S:
        if total > ran_s:
            break
        total += more_s
    if total <= ran_s:  # the last one as often as it takes
        total += CORRECTIONS_S[-1] * (1 + (ran_s - total) // CORRECTIONS_S[-1])
    return limit_s if total > limit_s > ran_s else total


class _Reservation(NamedTuple):
    """GPUs that are planned for a waiting job."""

    job: Job
    allocation: Allocation
    start: float
    end: float


class Slurm(Policy):
    """Start jobs by multifactor priority; others pass a blocked one if that delays no reservation.

    Args:
        reservations: number of blocked jobs with a reservation: 1 is EASY backfill; 0 is none,
            so that jobs pass at will; all (`conservative`) is conservative backfill.
        conservative: give every blocked job a reservation, whatever `reservations` is.
        strict: let no job pass a blocked one that competes for the same nodes.
        shortest: try those that may pass in order of their predicted run time (SJBF) instead of
            their priority.
        depth: most waiting jobs that are looked at in one decision (bf_max_job_test).
        predict: plan with predicted run times, at most the requested limit; otherwise with limits.
        default_s: planned run time of a job with neither limit nor prediction (DefaultTime) [s].
        limits: end jobs that have run for their limit.
        age, size, partition, qos, fair_share: weights of the factors of the priority.
        small: the size factor is highest for the smallest jobs instead of the largest.
        max_age_s: age at which the age factor is 1 (PriorityMaxAge) [s].
        half_life_s: time in which a user's past usage counts half (PriorityDecayHalfLife) [s].
        partitions: factor of each virtual cluster, as `debug=1,long=0.2`; others have 0.
        top_qos: the `priority` of a job at which its QOS factor is 1.
    """

    name: ClassVar[str] = "slurm"

    def __init__(
        self,
        reservations: int = 1,
        conservative: bool = False,
        strict: bool = False,
        shortest: bool = False,
        depth: int = 500,
        predict: bool = True,
        default_s: float = 86_400.0,
        limits: bool = True,
        age: float = 1000.0,
        size: float = 0.0,
        partition: float = 0.0,
        qos: float = 1000.0,
        fair_share: float = 0.0,
        small: bool = False,
        max_age_s: float = 7 * 86_400.0,
        half_life_s: float = 7 * 86_400.0,
        partitions: str = "",
        top_qos: int = 1,
    ) -> None:
        self.reservations = ALL_JOBS if conservative else reservations
        self.strict = strict
        self.shortest = shortest
        self.depth = depth
        self.predict = predict
        self.default_s = default_s
        self.limits = limits
        self.age = age
        self.size = size
        self.partition = partition
        self.qos = qos
        self.fair_share = fair_share
        self.small = small
        self.max_age_s = max_age_s
        self.partitions = _partitions(partitions)
        self.top_qos = top_qos
        if min(max_age_s, half_life_s, top_qos, depth, default_s) <= 0 or self.reservations < 0:
            raise UsageError(
                "policy slurm: max_age_s, half_life_s, top_qos, depth and default_s must be above "
                "0, reservations at least 0."
            )
        # Without a weight, nobody has to account for usage.
        self.usage_half_life_s = half_life_s if fair_share else None

    # Times.

    def planned_s(self, job: Job, now: float) -> float:
        """The run time that backfill plans with, from the start of the job [s]."""
        limit_s = NEVER if job.time_limit_s is None else job.time_limit_s
        predicted_s = self.default_s if limit_s == NEVER else limit_s
        if job.forecast is not None and (self.predict or limit_s == NEVER):
            predicted_s = job.forecast.duration_s
        return corrected_s(predicted_s, limit_s, now - job.started if job.allocation else 0.0)

    def rank_until(self, job: Job, now: float) -> float:
        # The plan changes when a job outlives its prediction; the limit ends it.
        return job.started + self.planned_s(job, now)

    def _overdue(self, view: View) -> list[Job]:
        """Jobs that have run for their limit."""
        if not self.limits or not view.can.drop:
            return []
        return [
            job
            for job in view.running
            if job.time_limit_s is not None
            and view.now >= job.started + job.time_limit_s
            and job.status is None
        ]

    # Priority.

    def priorities(self, view: View, jobs: Sequence[Job]) -> list[float]:
        """Slurm's priority of each of these waiting jobs: highest goes first."""
        now, gpus = view.now, max(1, view.space.cluster.gpus)
        share = _fair_shares(view) if self.fair_share and view.usage is not None else {}
        result = []
        for job in jobs:
            size = job.gpus / gpus
            total = self.age * min(1.0, (now - job.submit_time) / self.max_age_s)
            total += self.size * (1.0 - size if self.small else size)
            total += self.qos * min(1.0, max(0.0, job.priority / self.top_qos))
            total += self.partition * self.partitions.get(job.vc, 0.0)
            total += self.fair_share * share.get(job.user, 1.0)
            result.append(total)
        return result

    # Decisions.

    def eligible(self, view: View) -> list[Job]:
        """The waiting jobs that no limit holds back."""
        return list(view.pending)

    def decide(self, view: View) -> Sequence[Decision]:
        if overdue := self._overdue(view):
            # Their GPUs are free when the policy is asked again, at this instant.
            return [Drop(job, OUT_OF_TIME) for job in overdue]
        space = view.space
        if not (space.idle or space.sharing) or not view.pending.any():
            return []
        waiting = self.eligible(view)
        ranked = sorted(
            zip(self.priorities(view, waiting), waiting, strict=True),
            key=lambda one: (-one[0], one[1].index),
        )
        queue = [job for _, job in ranked[: self.depth]]
        starts: list[Start] = []
        at = 0
        while at < len(queue) and (found := space.place(queue[at])):
            starts.append(Start(queue[at], found))
            at += 1
        if at < len(queue):
            rest = queue[at:]
            starts += self._elsewhere(view, rest) if self.strict else self._pass(view, rest, starts)
        return starts

    def _elsewhere(self, view: View, queue: list[Job]) -> Iterator[Start]:
        """A job waits for those before it that compete for the same nodes."""
        blocked: set[tuple[str, str]] = set()
        for job in queue:
            key = (job.vc, job.gpu_type)
            if key not in blocked and (found := view.space.place(job)):
                yield Start(job, found)
            else:
                blocked.add(key)

    def _pass(self, view: View, queue: list[Job], started: list[Start]) -> Iterator[Start]:
        """Jobs of the queue that start now although the first is blocked, by reservations."""
        now, space = view.now, view.space
        plan = _Plan(view, self)
        for start in started:
            plan.runs(start)
        reserved = 0
        if not self.shortest or self.reservations > 1:
            order = queue
        else:
            # The blocked one keeps its reservation; the others pass the shortest first.
            order = queue[:1] + sorted(queue[1:], key=lambda job: (plan.length(job), job.index))
        for job in order:
            if reserved < self.reservations:
                reservation = plan.earliest(job)
                if reservation is None:
                    continue  # never, by what is known: nothing can be kept for it
                if reservation.start > now:
                    plan.reserved.append(reservation)
                    reserved += 1
                    continue
                found: Allocation | None = reservation.allocation
            else:
                found = None if space.full(job) else plan.room(job, now)
            if found:
                space.take(job, found)
                start = Start(job, found)
                plan.runs(start)
                yield start


class _Plan:
    """Predicted ends of running jobs, and reservations, on the exact GPUs of each."""

    def __init__(self, view: View, policy: Slurm) -> None:
        self._view = view
        self._policy = policy
        self.reserved: list[_Reservation] = []
        now = view.now
        self._ends: list[tuple[float, int, Job, Allocation]] = [
            (job.started + policy.planned_s(job, now), job.index, job, job.allocation)
            for job in view.running
            if job.partner is None and job.status is None
        ]
        self._ends.sort(key=lambda one: one[:2])

    def length(self, job: Job) -> float:
        """Its planned run time [s]."""
        return self._policy.planned_s(job, self._view.now)

    def runs(self, start: Start) -> None:
        """A job that was just started holds its GPUs up to its planned end."""
        job, allocation = start
        entry = (self._view.now + self.length(job), job.index, job, allocation)
        insort(self._ends, entry, key=lambda one: one[:2])

    def room(self, job: Job, at: float) -> Allocation | None:
        """GPUs that are free now and unreserved from `at` for its planned run time.

        The space must be as it is at `at`.
        """
        space, end = self._view.space, at + self.length(job)
        mark = space.mark()
        for one in self.reserved:
            if one.start >= end or one.end <= at:
                continue
            if one.job.share != 1.0:
                space.take(one.job, one.allocation)
            else:
                free = tuple((n, mask & space.free[n]) for n, mask in one.allocation)
                if free := tuple(place for place in free if place[1]):
                    space.take(_holder(one.job), free, any_size=True)
        found = space.find(job)
        space.return_to(mark)
        return found

    def earliest(self, job: Job) -> _Reservation | None:
        """The first time from now on at which it has room for all of its planned run time."""
        space, now = self._view.space, self._view.now
        times = sorted({now, *(one[0] for one in self._ends), *(one.end for one in self.reserved)})
        mark, left, found = space.mark(), 0, None
        for at in times:
            while left < len(self._ends) and self._ends[left][0] <= at:
                _, _, other, allocation = self._ends[left]
                space.give(other, allocation)
                left += 1
            if not space.full(job) and (found := self.room(job, at)):
                break
        space.return_to(mark)
        if not found:
            return None
        return _Reservation(job, found, at, at + self.length(job))


def _holder(job: Job) -> Job:
    """A stand-in that holds a part of the job's planned GPUs, whatever its constraints are."""
    if job.constraints is None:
        return job
    return Job(job.id, job.index, job.submit_time, job.gpus, cpus=job.cpus, memory_mb=job.memory_mb)


def _fair_shares(view: View) -> dict[str, float]:
    """Each user's fair-share factor: 2 to the power of -(share of all usage / share due to it).

    Usage is GPU time that decays; every user who has used anything is due the same share. Users
    without usage have 1 (Slurm's classic fair share, damping factor 1).
    """
    assert view.usage is not None
    used = view.usage.by_user(view.now, view.running)
    total = sum(used.values())
    if not total:
        return {}
    return {user: 2.0 ** -(one / total * len(used)) for user, one in used.items()}


def _partitions(text: str) -> dict[str, float]:
    factors: dict[str, float] = {}
    for part in filter(None, text.split(",")):
        name, _, value = part.partition("=")
        try:
            factors[name.strip()] = float(value)
        except ValueError:
            raise UsageError(
                f"policy slurm: partitions={text}: {part!r} is not NAME=FACTOR; write "
                "slurm:partitions='debug=1,long=0.2'."
            ) from None
        if not 0 <= factors[name.strip()] <= 1:
            raise UsageError(f"policy slurm: the factor in {part!r} must lie between 0 and 1.")
    return factors
