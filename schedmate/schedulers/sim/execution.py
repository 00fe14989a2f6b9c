"""Carrying out decisions, and the state of every job that holds GPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import heappush
from typing import NamedTuple

from schedmate.errors import SchedmateError
from schedmate.schedulers.model import Allocation, Job
from schedmate.schedulers.policy import (
    NEVER,
    Decision,
    Evict,
    Migrate,
    Pack,
    Policy,
    Preempt,
    Profile,
    Resize,
    Start,
    View,
)
from schedmate.schedulers.sim.faults import ORDINARY, Again, Failure, Faults
from schedmate.schedulers.sim.observer import Observer
from schedmate.schedulers.sim.parameters import Parameters
from schedmate.schedulers.sim.physics import Physics, TracePhysics
from schedmate.schedulers.sim.workload import Workload

END, FAIL, PROFILED, PACE, RERANK, SUBMIT, WAKE, UP, DOWN, TICK = range(10)
"""Kinds of events; at one instant they happen in this order."""


_ATTEMPTS = 10_000
"""Failures of one job after which the faults object is taken to be broken."""


class DecisionError(SchedmateError):
    """A policy decided something impossible."""


class PhysicsError(SchedmateError):
    """A physics or a faults object answered something impossible."""


class Segment(NamedTuple):
    """A job held GPUs from `start` to `end` and did `work` of what it needs."""

    job: int
    """Position in the workload."""
    start: float
    end: float
    allocation: Allocation
    work: float
    """In the unit of the physics, [s] by default. None of what is done while profiling is kept,
    unless the job ends by it."""
    kind: str
    """`run`, `packed` (joined another job) or `profile`."""


class Execution:
    """Which job runs where, how far it is, and when it will end."""

    def __init__(
        self,
        workload: Workload,
        policy: Policy,
        view: View,
        parameters: Parameters,
        *,
        physics: Physics | None = None,
        faults: Faults | None = None,
        observers: Iterable[Observer] = (),
    ) -> None:
        self.workload = workload
        self.policy = policy
        self.view = view
        self.space = view.space
        self.parameters = parameters
        self.physics: Physics = physics or TracePhysics(workload, parameters)
        self.faults = faults or ORDINARY
        self.observers = list(observers)
        count = len(workload)
        self.events: list[tuple[float, int, int, int]] = []
        """(time, kind, job or node, epoch; of a wake: which observer): a heap."""
        self.epoch = [0] * count
        """Of each job: an event of an older epoch no longer holds."""
        self.coming = 0
        """Events outstanding that happen whatever the policy decides, besides rounds."""
        self.dirty = False
        """Whether the policy has to decide at this instant."""
        self.started = [NEVER] * count
        self.segments: list[Segment] = []
        self.failures: dict[int, tuple[Failure, Again | None]] = {}
        self.counts: dict[type, int] = {}
        self._work = self.physics.work
        self._done = [0.0] * count
        self._done_at_start = [0.0] * count
        self._speed = [1.0] * count
        self._until = [NEVER] * count  # up to which done work the speed holds
        self._since = [0.0] * count  # up to when `_done` is accounted for
        self._kind = ["run"] * count
        self._profiled_at: dict[int, float] = {}
        self._fails_at: dict[int, float] = {}
        self._previous: dict[int, Allocation] = {}  # of jobs that go on from where they were
        self._booked = False
        self._apply: dict[type, Callable[..., None]] = {
            Start: self._start,
            Pack: self._pack,
            Evict: self._evict,
            Preempt: self._preempt,
            Resize: self._reallocate,
            Migrate: self._reallocate,
            Profile: self._profile,
        }
        for observer in self.observers:
            observer.attach(self)

    def carry_out(self, decisions: Sequence[Decision]) -> None:
        """Do what the policy decided, ending its transaction on the space.

        Raises `DecisionError` for the first decision that is impossible.
        """
        # Mostly a policy has booked just the starts that it returns: then that is kept.
        starts = [one for one in decisions if type(one) is Start] if decisions else []
        self._booked = self.space.settle(starts)
        for decision in decisions:
            kind = type(decision)
            self._apply[kind](decision)
            self.counts[kind] = self.counts.get(kind, 0) + 1

    # What happens by itself.

    def submit(self, job: Job) -> None:
        """The job waits for the first time, or again after a failure."""
        fails_at = self.faults.fails_at(job.index, job.failures)
        if fails_at < NEVER:
            self._fails_at[job.index] = fails_at
        self.enqueue(job)
        for observer in self.observers:
            observer.submitted(job)

    def later(self, job: Job, wait_s: float) -> None:
        """Submit the job after this time."""
        if not 0 <= wait_s < NEVER:
            raise PhysicsError(f"job {job.id} cannot be submitted after {wait_s} s.")
        self._expect(self.view.now + wait_s, SUBMIT, job.index, -1)

    def enqueue(self, job: Job) -> None:
        """The job waits."""
        policy = self.policy
        self.view.pending.add(job, policy.lane(job), policy.rank(job, self.view.now))

    def end(self, job: Job) -> None:
        """The job has done its work."""
        self._done[job.index] = self._work[job.index]
        self._release(job)
        for observer in self.observers:
            observer.ended(job)

    def stop_profiling(self, job: Job) -> None:
        """Its profile is known. What it did meanwhile is lost: nobody says that it was saved."""
        index = job.index
        self._done[index] = self._done_at_start[index]
        self._release(job)
        job.profiled = True
        for observer in self.observers:
            observer.stopped(job)

    def pace(self, job: Job) -> None:
        """The job has done the work up to which its speed was known."""
        index = job.index
        self._done[index] = self._until[index]
        self._since[index] = self.view.now
        self._foresee(job)

    def fail(self, job: Job, node: int | None = None) -> bool:
        """The job fails, by itself or with its node; whether it will be submitted again."""
        self._advance(job)
        index = job.index
        since = self._done_at_start[index]
        if node is None:
            self._done[index] = max(since, self._fails_at[index])
        if self._kind[index] == "profile":
            self._done[index] = since
        else:
            self._previous[index] = job.allocation
        done = self._done[index]
        saved = self.physics.saved(index, done, since)
        failure = Failure(index, self.view.now, job.failures, done, saved, node)
        self._release(job)
        job.failures += 1
        self._fails_at.pop(index, None)
        again = self.faults.after(failure)
        self.failures[len(self.segments) - 1] = (failure, again)
        if job.failures > _ATTEMPTS:
            raise PhysicsError(f"job {job.id} failed {_ATTEMPTS} times, and is always restarted.")
        if again is not None:
            if not 0 <= again.work <= done:
                raise PhysicsError(
                    f"job {job.id} failed with {done} done and cannot resume from {again.work}."
                )
            self._done[index] = again.work
            if again.wait_s:
                self.later(job, again.wait_s)
        for observer in self.observers:
            observer.failed(job, again=again is not None)
        if again is not None and not again.wait_s:
            self.submit(job)
        return again is not None

    def rerank(self, job: Job) -> None:
        """The rank of a running job has changed by itself."""
        policy, now = self.policy, self.view.now
        self.view.running.remove(job)
        self.view.running.add(job, policy.lane(job), policy.rank(job, now))
        until = policy.rank_until(job, now)
        if now < until < NEVER:
            heappush(self.events, (until, RERANK, job.index, self.epoch[job.index]))

    # For observers.

    @property
    def now(self) -> float:
        """The clock [s]."""
        return self.view.now

    def work_done(self, job: Job) -> float:
        """Work done so far, in the unit of the physics."""
        if job.allocation:
            self._advance(job)
        return self._done[job.index]

    def speed(self, job: Job) -> float:
        """Work a second from now on; 0 while it waits or restarts."""
        running = job.allocation and self._since[job.index] <= self.view.now
        return self._speed[job.index] if running else 0.0

    def wake(self, observer: Observer, job: Job, at: float) -> None:
        """Have `observer.woken(job)` called at `at` [s]."""
        if not self.view.now <= at < NEVER:
            raise PhysicsError(f"an observer cannot be woken at {at} s: it is {self.view.now} s.")
        self._expect(at, WAKE, job.index, self.observers.index(observer))

    def changed(self, job: Job | None = None) -> None:
        """The policy decides again at this instant; with `job`, its rank and lane are renewed."""
        self.dirty = True
        if job is None:
            return
        if job in self.view.pending:
            self.view.pending.remove(job)
            self.enqueue(job)
        elif job in self.view.running:
            self.rerank(job)

    def _expect(self, at: float, kind: int, index: int, epoch: int) -> None:
        self.coming += 1
        heappush(self.events, (at, kind, index, epoch))

    # Decisions.

    def _start(self, decision: Start) -> None:
        self._hold(decision.job, decision.allocation, decision, self._booked)
        self._begin(decision.job, "run")

    def _profile(self, decision: Profile) -> None:
        job, limit = decision.job, decision.limit_s
        left = self._work[job.index] - self._done[job.index]
        if self.parameters.profiling_is_free and left > limit:
            job.profiled = True
            self._leave_queue(job, decision)
            self.enqueue(job)
            self.dirty = True
            return
        self._hold(job, decision.allocation, decision)
        self._profiled_at[job.index] = self.view.now + limit
        self._begin(job, "profile")

    def _pack(self, decision: Pack) -> None:
        job, partner = decision.job, decision.partner
        if not partner.allocation or partner.partner is not None or partner.gpus != job.gpus:
            raise self._impossible(
                decision, "the partner does not run alone on as many GPUs as the job asks for"
            )
        if self._kind[partner.index] == "profile":
            raise self._impossible(decision, "the partner is being profiled")
        self._leave_queue(job, decision)
        self._advance(partner)
        self.view.running.remove(partner)
        job.partner, partner.partner = partner, job
        job.allocation = partner.allocation
        self._run(partner)
        self._begin(job, "packed")
        for observer in self.observers:
            observer.packed(partner)

    def _evict(self, decision: Evict) -> None:
        if decision.job.partner is None:
            raise self._impossible(decision, "the job shares its GPUs with no other")
        decision.job.evictions += 1
        self._interrupt(decision.job)

    def _preempt(self, decision: Preempt) -> None:
        job = decision.job
        if not job.allocation or self._kind[job.index] == "profile":
            raise self._impossible(decision, "the job is not running")
        job.preemptions += 1
        self._interrupt(job)

    def _reallocate(self, decision: Resize | Migrate) -> None:
        job, allocation = decision.job, decision.allocation
        if not job.allocation or job.partner is not None or self._kind[job.index] != "run":
            raise self._impossible(decision, "the job does not run alone")
        gpus = sum(mask.bit_count() for _, mask in allocation)
        held = sum(mask.bit_count() for _, mask in job.allocation)
        if isinstance(decision, Migrate):
            if gpus != held or not job.migratable:
                raise self._impossible(decision, "it moves to as many GPUs, if it may move")
        elif not job.min_gpus <= gpus <= job.max_gpus:
            raise self._impossible(decision, "the job cannot run on so many GPUs")
        self._stop(job)
        if not self.space.take(job, allocation):
            raise self._impossible(decision, "not all of these GPUs are free")
        job.moves += 1
        job.allocation = allocation
        self._begin(job, "run")

    # The state of one job.

    def _leave_queue(self, job: Job, decision: Decision) -> None:
        if job not in self.view.pending:
            raise self._impossible(decision, "the job is not waiting")
        self.view.pending.remove(job)

    def _hold(
        self, job: Job, allocation: Allocation, decision: Decision, booked: bool = False
    ) -> None:
        gpus = 0
        for _, mask in allocation:
            gpus += mask.bit_count()
        if gpus != job.gpus and not (job.elastic and job.min_gpus <= gpus <= job.max_gpus):
            raise self._impossible(decision, f"it is given {gpus} GPUs and asks for {job.gpus}")
        self._leave_queue(job, decision)
        if not booked and not self.space.take(job, allocation):
            raise self._impossible(decision, "not all of these GPUs are free")
        job.allocation = allocation

    def _begin(self, job: Job, kind: str) -> None:
        index, now = job.index, self.view.now
        job.started = now
        # While it runs, what it uses can be seen.
        job.profile = self.workload.profiles[index]
        job.profiling = kind == "profile"
        self._kind[index] = kind
        self._done_at_start[index] = self._done[index]
        if self.started[index] == NEVER:
            self.started[index] = now
        previous = self._previous.pop(index, ())
        self._since[index] = now + self.physics.restart_s(index, job.allocation, previous)
        self._run(job)
        for observer in self.observers:
            observer.started(job)

    def _run(self, job: Job) -> None:
        """Enter the job among the running, and foresee its end and its change of rank."""
        index, now, policy = job.index, self.view.now, self.policy
        epoch = self.epoch[index] = self.epoch[index] + 1
        self._foresee(job)
        self.view.running.add(job, policy.lane(job), policy.rank(job, now))
        until = policy.rank_until(job, now)
        if until < NEVER:
            heappush(self.events, (max(until, now), RERANK, index, epoch))

    def _foresee(self, job: Job) -> None:
        """Ask how fast the job is from here on, and enter what that leads to."""
        index, partner = job.index, job.partner
        done, goal, kind = self._done[index], self._work[index], END
        speed, until = self.physics.pace(
            index, done, job.allocation, None if partner is None else partner.index
        )
        if not 0.0 <= speed < NEVER or until <= done < goal:
            raise PhysicsError(
                f"job {job.id} cannot run at speed {speed} until {until} of its {goal} are done, "
                f"with {done} done."
            )
        self._speed[index] = speed
        self._until[index] = until
        if until < goal:
            goal, kind = until, PACE
        if self._fails_at and (fails_at := self._fails_at.get(index, NEVER)) <= goal:
            goal, kind = max(fails_at, done), FAIL
        at = self._since[index] + (goal - done) / speed if speed else NEVER
        if self._kind[index] == "profile" and self._profiled_at[index] < at:
            at, kind = self._profiled_at[index], PROFILED
        if at < NEVER:
            heappush(self.events, (at, kind, index, self.epoch[index]))

    def _advance(self, job: Job) -> None:
        """Account for the work done up to now."""
        index, now = job.index, self.view.now
        if now > self._since[index]:
            done = self._done[index] + (now - self._since[index]) * self._speed[index]
            self._done[index] = min(self._work[index], self._until[index], done)
            self._since[index] = now

    def _interrupt(self, job: Job) -> None:
        self._stop(job)
        self.enqueue(job)

    def _stop(self, job: Job) -> None:
        """Take a job off its GPUs with all its work kept."""
        self._advance(job)
        self._previous[job.index] = job.allocation
        self._release(job)
        for observer in self.observers:
            observer.stopped(job)

    def _release(self, job: Job) -> None:
        """Take a job off its GPUs; a partner runs on alone."""
        index, now = job.index, self.view.now
        kind, work = self._kind[index], self._done[index] - self._done_at_start[index]
        self.segments.append(Segment(index, job.started, now, job.allocation, work, kind))
        self.view.running.remove(job)
        self.epoch[index] += 1
        job.service_s += now - job.started
        if kind == "profile":
            del self._profiled_at[index]
        partner = job.partner
        if partner is None:
            self.space.give(job, job.allocation)
        else:
            self._advance(partner)
            self.view.running.remove(partner)
            job.partner = partner.partner = None
            self._run(partner)
            for observer in self.observers:
                observer.unpacked(partner)
        job.allocation = ()
        job.profiling = False

    def _impossible(self, decision: Decision, why: str) -> DecisionError:
        return DecisionError(
            f"policy {self.policy.name} decided {type(decision).__name__} of job "
            f"{decision.job.id} at {self.view.now:.3f} s, which is impossible: {why}."
        )
