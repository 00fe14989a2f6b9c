"""How far every job is, and when that will matter next."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappush
from typing import Protocol

from schedmate.schedulers.model import Allocation, Job
from schedmate.schedulers.observer import Observer
from schedmate.schedulers.policy import Policy
from schedmate.schedulers.sim.engine.events import (
    END,
    FAIL,
    LEFT,
    PACE,
    PROFILE,
    PROFILED,
    RERANK,
    RUN,
    Event,
    PhysicsError,
)
from schedmate.schedulers.sim.engine.ledger import Ledger
from schedmate.schedulers.sim.engine.record import Segments
from schedmate.schedulers.sim.workload import Workload
from schedmate.schedulers.sim.world.physics import Physics, TracePhysics
from schedmate.schedulers.terms import NEVER
from schedmate.schedulers.view import View

_ALONE = (RUN, PROFILE)


class Departures(Protocol):
    """Frees the GPUs of jobs that leave them while they have a `Status`."""

    def give(self, job: Job, allocation: Allocation) -> None:
        """Free these GPUs, and whatever else the job's status reserves."""
        ...

    def settle(self, job: Job) -> None:
        """End the job's status, now that it holds no GPUs."""
        ...


class Progress:
    """The state of every job that holds GPUs, the events that follow from it, and the record.

    Lists are by position in the workload; dictionaries have what few jobs need.
    """

    __slots__ = (
        "_pace",
        "_plain",
        "_profiles",
        "_reranks",
        "_since",
        "_speed",
        "_until",
        "_work",
        "booked",
        "departures",
        "done",
        "done_before",
        "epoch",
        "events",
        "fails_at",
        "halted",
        "kind",
        "ledger",
        "observers",
        "physics",
        "policy",
        "previous",
        "profiled_at",
        "segments",
        "space",
        "started",
        "view",
    )

    departures: Departures
    """Set by the object that manages statuses."""

    def __init__(
        self,
        workload: Workload,
        policy: Policy,
        view: View,
        physics: Physics,
        observers: Iterable[Observer],
    ) -> None:
        self.policy = policy
        self.view = view
        self.space = view.space
        self.physics = physics
        self.observers = list(observers)
        count = len(workload)
        self.events: list[Event] = []
        """A heap."""
        self.epoch = [0] * count
        """Events of a job's older epochs are void."""
        self.started = [NEVER] * count
        """When each job first held GPUs [s]."""
        self.segments = Segments()
        self.ledger = Ledger()
        self.kind: dict[int, int] = {}
        """Of a job that does more or less than run: `PACKED` or `PROFILE`."""
        self.done = [0.0] * count
        """Work done up to `_since`."""
        self.done_before = [0.0] * count
        """Work done before the present allocation."""
        self.fails_at: dict[int, float] = {}
        self.profiled_at: dict[int, float] = {}
        self.previous: dict[int, Allocation] = {}
        """GPUs last held by a job that resumes its work."""
        self.halted: dict[int, float] = {}
        """Jobs that hold GPUs without progress: until when; infinity: until others leave [s]."""
        self.booked = False
        """Whether the GPUs of the decision being carried out are booked already."""
        self._work = physics.work
        self._profiles = workload.profiles
        self._speed = [1.0] * count
        self._until: dict[int, float] = {}  # up to which done work the speed holds, if not all
        self._since = [0.0] * count
        self._reranks = type(policy).rank_until is not Policy.rank_until
        self._plain = type(physics) is TracePhysics and not (
            self._reranks
            or physics.by_place
            or self.observers
            or any(job.min_gpus or (job.terms and job.terms.endless) for job in workload.jobs)
        )
        self._pace = physics.pace

    def begin(
        self, job: Job, allocation: Allocation, kind: int = RUN, *, most_s: float = NEVER
    ) -> None:
        """The job gets GPUs, which are booked. If it resumes, it does so within `most_s` [s]."""
        view = self.view
        index, now = job.index, view.now
        job.allocation = allocation
        job.started = self._since[index] = now
        # Its use can be observed while it runs.
        job.profile = self._profiles[index]
        if kind:
            self.kind[index] = kind
            job.profiling = kind == PROFILE
        if self.started[index] == NEVER:
            self.started[index] = now
        done = self.done_before[index] = self.done[index]
        previous = self.previous.pop(index, ()) if self.previous else ()
        if self._plain and kind in _ALONE and not (previous or self.fails_at):
            # A shortcut for most jobs, in half the time.
            self._speed[index] = 1.0
            at, what = now + (self._work[index] - done), END
            if kind and self.profiled_at[index] < at:
                at, what = self.profiled_at[index], PROFILED
            heappush(self.events, (at, what, index, self.epoch[index]))
            view.running.add(job, now)
            if view.holders is not None:
                view.holders.add(job)
            return
        restart_s = self.physics.restart_s(index, allocation, previous)
        if restart_s > most_s:
            restart_s = self.ledger.handovers[index, now] = most_s
        if restart_s:
            if not 0.0 < restart_s < NEVER:
                raise PhysicsError(f"job {job.id} cannot take {restart_s} s to start.")
            self._since[index] = now + restart_s
        if view.holders is not None:
            view.holders.add(job)
        self.run(job)
        for observer in self.observers:
            observer.started(job)

    def run(self, job: Job, *, anew: bool = True) -> None:
        """Ask the physics for the job's speed from now on, and schedule the next event.

        `anew`: it was not among the running.
        """
        index, partner = job.index, job.partner
        done, goal, kind = self.done[index], self._work[index], END
        speed, until = self._pace(
            index, done, job.allocation, None if partner is None else partner.index
        )
        if not 0.0 <= speed < NEVER or until <= done < goal:
            raise PhysicsError(
                f"job {job.id} cannot run at speed {speed} until {until} of its {goal} are done, "
                f"with {done} done."
            )
        self._speed[index] = speed
        if until < goal:
            self._until[index] = goal = until
            kind = PACE
        elif self._until:
            self._until.pop(index, None)
        if self.fails_at and (fails_at := self.fails_at.get(index, NEVER)) <= goal:
            goal, kind = max(fails_at, done), FAIL
        at = self._since[index] + (goal - done) / speed if speed else NEVER
        if job.profiling and self.profiled_at[index] < at:
            at, kind = self.profiled_at[index], PROFILED
        if job.status is not None and (halted := self.halted.get(index)) is not None:
            at, kind, self._speed[index] = halted, LEFT, 0.0
        if at < NEVER:
            heappush(self.events, (at, kind, index, self.epoch[index]))
        if anew:
            now = self.view.now
            self.view.running.add(job, now)
            if self._reranks and (until := self.policy.rank_until(job, now)) < NEVER:
                heappush(self.events, (max(until, now), RERANK, index, self.epoch[index]))

    def pace(self, job: Job) -> None:
        """The job has reached the work up to which its speed was known."""
        index = job.index
        self.done[index] = self._until[index]
        self._since[index] = self.view.now
        self.run(job, anew=False)

    def advance(self, job: Job) -> None:
        """Account for the work done up to now."""
        index, now = job.index, self.view.now
        since = self._since[index]
        if now > since:
            done = self.done[index] + (now - since) * self._speed[index]
            self.done[index] = min(self._work[index], self._until.get(index, NEVER), done)
            self._since[index] = now

    def release(self, job: Job) -> None:
        """Take a job off its GPUs; a partner runs on alone."""
        view, segments = self.view, self.segments
        index, now = job.index, view.now
        started, allocation, partner = job.started, job.allocation, job.partner
        segments.jobs.append(index)
        segments.starts.append(started)
        segments.ends.append(now)
        segments.works.append(self.done[index] - self.done_before[index])
        segments.allocations.append(allocation)
        segments.kinds.append(self.kind.pop(index, RUN) if self.kind else RUN)
        view.running.remove(job)
        if view.holders is not None:
            view.holders.remove(job)
        self.epoch[index] += 1
        job.service_s += now - started
        job.stopped = now
        if job.profiling:
            job.profiling = False
            del self.profiled_at[index]
        status = job.status
        if partner is None:
            if status is not None:
                self.departures.give(job, allocation)
            elif not self.booked:
                self.space.give(job, allocation)
        else:
            self.advance(partner)
            self.withdraw(partner)
            job.partner = partner.partner = None
            self.run(partner)
            for observer in self.observers:
                observer.unpacked(partner)
        job.allocation = ()
        if status is not None:
            self.departures.settle(job)

    def withdraw(self, job: Job) -> None:
        """Cancel the scheduled event of a running job, as its circumstances change."""
        self.view.running.remove(job)
        self.epoch[job.index] += 1

    def rerank(self, job: Job) -> None:
        """The rank of a running job has changed by itself."""
        index, now = job.index, self.view.now
        self.view.running.remove(job)
        self.view.running.add(job, now)
        until = self.policy.rank_until(job, now)
        if now < until < NEVER:
            heappush(self.events, (until, RERANK, index, self.epoch[index]))

    def repace(self, job: Job) -> None:
        """The speed of a running job has changed by something outside it."""
        self.advance(job)
        self.withdraw(job)
        self.run(job)

    @property
    def now(self) -> float:
        """The clock [s]."""
        return self.view.now

    def work_done(self, job: Job) -> float:
        """Work done so far, in the unit of the physics."""
        if job.allocation:
            self.advance(job)
        return self.done[job.index]

    def speed(self, job: Job) -> float:
        """Work a second from now on; 0 while it waits or restarts."""
        running = job.allocation and self._since[job.index] <= self.view.now
        return self._speed[job.index] if running else 0.0
