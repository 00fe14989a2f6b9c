"""What happens to jobs: submission, end, failure, preemption, and what observers ask for."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappush

from schedmate.schedulers.model import Job
from schedmate.schedulers.policy import NEVER, Policy, View
from schedmate.schedulers.sim.engine.progress import PACKED, SUBMIT, WAKE, PhysicsError, Progress
from schedmate.schedulers.sim.observer import Observer
from schedmate.schedulers.sim.parameters import Parameters
from schedmate.schedulers.sim.workload import Workload
from schedmate.schedulers.sim.world.faults import ORDINARY, Again, Failure, Faults
from schedmate.schedulers.sim.world.physics import Physics, TracePhysics

_ATTEMPTS = 10_000
"""Failures of one job after which the faults object is taken to be broken."""


class Execution(Progress):
    """The life of every job, from its submission to its end."""

    __slots__ = (
        "_jobs_fail",
        "attended",
        "coming",
        "dirty",
        "ended",
        "failures",
        "faults",
        "parameters",
        "unfinished",
    )

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
        self._jobs_fail = type(self.faults).fails_at is not Faults.fails_at
        self.attended = self._jobs_fail or bool(self.observers)
        """Whether anybody has to be told or asked when a job is submitted."""
        for observer in self.observers:
            observer.attach(self)

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
        self.dirty = True
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

    # What is done to it.

    def join(self, job: Job, partner: Job) -> None:
        """The job runs on the GPUs of one that runs alone."""
        self.advance(partner)
        self.withdraw(partner)
        job.partner, partner.partner = partner, job
        self.run(partner)
        self.begin(job, partner.allocation, PACKED)
        for observer in self.observers:
            observer.packed(partner)

    def evict(self, job: Job) -> None:
        """The job leaves the GPUs that it shares; nothing asks it to save its work first.

        SchedMate, section 4.1.
        """
        index = job.index
        self.advance(job)
        self.done[index] = self.physics.saved(index, self.done[index], self.done_before[index])
        self.interrupt(job)

    def interrupt(self, job: Job) -> None:
        """The job leaves its GPUs with all its work kept, and waits again."""
        self.stop(job)
        self.view.pending.add(job, self.view.now)

    def stop(self, job: Job) -> None:
        """The job leaves its GPUs with all its work kept."""
        self.advance(job)
        self.previous[job.index] = job.allocation
        self.release(job)
        for observer in self.observers:
            observer.stopped(job)

    # For observers.

    def wake(self, observer: Observer, job: Job, at: float) -> None:
        """Have `observer.woken(job)` called at `at` [s]."""
        if not self.view.now <= at < NEVER:
            raise PhysicsError(f"an observer cannot be woken at {at} s: it is {self.view.now} s.")
        self._expect(at, WAKE, job.index, self.observers.index(observer))

    def woken(self, job: Job, which: int) -> None:
        """It is the time that this observer asked for."""
        self.coming -= 1
        self.observers[which].woken(job)

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
