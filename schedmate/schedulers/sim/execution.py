"""Carrying out decisions, and what a failure, an observer or an answer brings about."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import heappush

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
from schedmate.schedulers.sim.progress import (
    PACKED,
    PROFILE,
    SUBMIT,
    WAKE,
    PhysicsError,
    Progress,
)
from schedmate.schedulers.sim.workload import Workload
from schedmate.schedulers.space import GIVEN, Booking

_ATTEMPTS = 10_000
"""Failures of one job after which the faults object is taken to be broken."""


class DecisionError(SchedmateError):
    """A policy decided something impossible."""


class Execution(Progress):
    """Which job runs where: the decisions of the policy, and what comes from outside."""

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
        physics = physics or TracePhysics(workload, parameters)
        super().__init__(workload, policy, view, physics, observers)
        self.parameters = parameters
        self.faults = faults or ORDINARY
        self.coming = 0
        """Events outstanding that happen whatever the policy decides, besides rounds."""
        self.dirty = False
        """Whether the policy has to decide at this instant."""
        self.ended = [NEVER] * len(workload)
        self.unfinished = len(workload)
        self.failures: dict[int, tuple[Failure, Again | None]] = {}
        self.counts: dict[type, int] = {}
        self._jobs_fail = type(self.faults).fails_at is not Faults.fails_at
        self.attended = self._jobs_fail or bool(self.observers)
        """Whether anybody has to be told or asked when a job is submitted."""
        self._apply: dict[type, Callable[..., None]] = {
            Pack: self._pack,
            Evict: self._evict,
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
        # Mostly a policy has booked just what it returns: then that is kept.
        bookings: list[Booking] = [
            one if type(one) is Start else (one.job, one.job.allocation, GIVEN)
            for one in decisions
            if type(one) is Start or (type(one) is Preempt and one.job.partner is None)
        ]
        booked, counts, leave = self.space.settle(bookings), self.counts, self.view.pending.remove
        for decision in decisions:
            kind = type(decision)
            counts[kind] = counts.get(kind, 0) + 1
            if type(decision) is Start:
                job, allocation = decision
                if not booked:
                    self._take(job, allocation, decision)
                elif not leave(job):
                    raise self._impossible(decision, "the job is not waiting")
                self.begin(job, allocation)
            elif kind is Preempt:
                self.booked = booked
                self._preempt(decision)
                self.booked = False
            else:
                self._apply[kind](decision)

    # What happens by itself.

    def submit(self, job: Job) -> None:
        """The job waits for the first time, or again after a failure."""
        self.view.pending.add(job, self.view.now)
        if self._jobs_fail:
            self.fails_at[job.index] = self.faults.fails_at(job.index, job.failures)
        for observer in self.observers:
            observer.submitted(job)

    def later(self, job: Job, wait_s: float) -> None:
        """Submit the job after this time."""
        if not 0 <= wait_s < NEVER:
            raise PhysicsError(f"job {job.id} cannot be submitted after {wait_s} s.")
        self._expect(self.view.now + wait_s, SUBMIT, job.index, -1)

    def end(self, job: Job) -> None:
        """The job has done its work."""
        index = job.index
        self.done[index] = self._work[index]
        self.release(job)
        self.ended[index] = self.view.now
        self.unfinished -= 1
        for observer in self.observers:
            observer.ended(job)

    def stop_profiling(self, job: Job) -> None:
        """Its profile is known. What it did meanwhile is lost: nobody says that it was saved."""
        self.done[job.index] = self.done_before[job.index]
        self.release(job)
        job.profiled = True
        job.profile = self.parameters.profiled(job.id, job.profile)
        for observer in self.observers:
            observer.stopped(job)

    def fail(self, job: Job, node: int | None = None) -> bool:
        """The job fails, by itself or with its node; whether it will be submitted again."""
        index, before = job.index, self.done_before[job.index]
        self.advance(job)
        if node is None:
            self.done[index] = max(before, self.fails_at[index])
        if job.profiling:
            self.done[index] = before
        else:
            self.previous[index] = job.allocation
        done = self.done[index]
        saved = self.physics.saved(index, done, before)
        failure = Failure(index, self.view.now, job.failures, done, saved, node)
        self.release(job)
        job.failures += 1
        again = self.faults.after(failure)
        self.failures[len(self.segments) - 1] = (failure, again)
        if job.failures > _ATTEMPTS:
            raise PhysicsError(f"job {job.id} failed {_ATTEMPTS} times, and is always restarted.")
        if again is not None:
            if not 0 <= again.work <= done:
                raise PhysicsError(
                    f"job {job.id} failed with {done} done and cannot resume from {again.work}."
                )
            self.done[index] = again.work
        for observer in self.observers:
            observer.failed(job, again=again is not None)
        if again is None:
            self.ended[index] = self.view.now
            self.unfinished -= 1
            return False
        if again.wait_s:
            self.later(job, again.wait_s)
        else:
            self.submit(job)
        return True

    # For observers.

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
        if self.view.pending.remove(job):
            self.view.pending.add(job, self.view.now)
        elif job.allocation:
            self.rerank(job)

    def _expect(self, at: float, kind: int, index: int, epoch: int) -> None:
        self.coming += 1
        heappush(self.events, (at, kind, index, epoch))

    # Decisions.

    def _profile(self, decision: Profile) -> None:
        job, allocation, limit = decision
        left = self._work[job.index] - self.done[job.index]
        if self.parameters.profiling_is_free and left > limit:
            self._leave_queue(job, decision)
            job.profiled = True
            self.view.pending.add(job, self.view.now)
            self.dirty = True
            return
        self._take(job, allocation, decision)
        self.profiled_at[job.index] = self.view.now + limit
        self.begin(job, allocation, PROFILE)

    def _pack(self, decision: Pack) -> None:
        job, partner = decision
        if not partner.allocation or partner.partner is not None or partner.gpus != job.gpus:
            raise self._impossible(
                decision, "the partner does not run alone on as many GPUs as the job asks for"
            )
        if partner.profiling:
            raise self._impossible(decision, "the partner is being profiled")
        self._leave_queue(job, decision)
        self.advance(partner)
        self.withdraw(partner)
        job.partner, partner.partner = partner, job
        self.run(partner)
        self.begin(job, partner.allocation, PACKED)
        for observer in self.observers:
            observer.packed(partner)

    def _evict(self, decision: Evict) -> None:
        if decision.job.partner is None:
            raise self._impossible(decision, "the job shares its GPUs with no other")
        job, index = decision.job, decision.job.index
        job.evictions += 1
        # Nothing asks it to save its work first (SchedMate, section 4.1).
        self.advance(job)
        self.done[index] = self.physics.saved(index, self.done[index], self.done_before[index])
        self._interrupt(job)

    def _preempt(self, decision: Decision) -> None:
        job = decision.job
        if not job.allocation or job.profiling:
            raise self._impossible(decision, "the job is not running")
        job.preemptions += 1
        self._interrupt(job)

    def _reallocate(self, decision: Resize | Migrate) -> None:
        job, allocation = decision
        if not job.allocation or job.partner is not None or job.index in self.kind:
            raise self._impossible(decision, "the job does not run alone")
        gpus = _size(allocation)
        if isinstance(decision, Migrate):
            if gpus != _size(job.allocation) or not job.migratable:
                raise self._impossible(decision, "it moves to as many GPUs, if it may move")
        elif not job.min_gpus <= gpus <= job.max_gpus:
            raise self._impossible(decision, "the job cannot run on so many GPUs")
        self._stop(job)
        if not self.space.take(job, allocation):
            raise self._impossible(decision, "not all of these GPUs are free")
        job.moves += 1
        self.begin(job, allocation)

    def _leave_queue(self, job: Job, decision: Decision) -> None:
        if not self.view.pending.remove(job):
            raise self._impossible(decision, "the job is not waiting")

    def _take(self, job: Job, allocation: Allocation, decision: Decision) -> None:
        gpus = 0
        for _, mask in allocation:
            gpus += mask.bit_count()
        fits = gpus == job.gpus or (job.elastic and job.min_gpus <= gpus <= job.max_gpus)
        if not fits and not isinstance(decision, Profile):
            raise self._impossible(decision, f"it is given {gpus} GPUs and asks for {job.gpus}")
        if not self.view.pending.remove(job):
            raise self._impossible(decision, "the job is not waiting")
        if not self.space.take(job, allocation, any_size=not fits):
            raise self._impossible(decision, "not all of these GPUs are free")

    def _interrupt(self, job: Job) -> None:
        self._stop(job)
        self.view.pending.add(job, self.view.now)

    def _stop(self, job: Job) -> None:
        """Take a job off its GPUs with all its work kept."""
        self.advance(job)
        self.previous[job.index] = job.allocation
        self.release(job)
        for observer in self.observers:
            observer.stopped(job)

    def _impossible(self, decision: Decision, why: str) -> DecisionError:
        return DecisionError(
            f"policy {self.policy.name} decided {type(decision).__name__} of job "
            f"{decision.job.id} at {self.view.now:.3f} s, which is impossible: {why}."
        )


def _size(allocation: Allocation) -> int:
    return sum(mask.bit_count() for _, mask in allocation)
