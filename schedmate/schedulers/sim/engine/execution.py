"""The life of jobs: submission, end, failure, preemption, and requests of observers."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappush

from schedmate.errors import InputError
from schedmate.schedulers.model import Allocation, Job
from schedmate.schedulers.observer import Observer
from schedmate.schedulers.policy import Policy
from schedmate.schedulers.sim.engine.events import (
    PACKED,
    REORDER,
    SUBMIT,
    TICK,
    WAKE,
    PhysicsError,
)
from schedmate.schedulers.sim.engine.ledger import Dropped
from schedmate.schedulers.sim.engine.progress import Progress
from schedmate.schedulers.sim.parameters import Parameters
from schedmate.schedulers.sim.workload import Workload
from schedmate.schedulers.sim.world.faults import ORDINARY, Again, Failure, Faults
from schedmate.schedulers.sim.world.physics import Physics, TracePhysics
from schedmate.schedulers.terms import NEVER
from schedmate.schedulers.view import View

ASKED = 1
"""In the place of the epoch: a tick that is no round."""

_ATTEMPTS = 10_000
"""Failures of one job after which the faults object is assumed to be broken."""


class Execution(Progress):
    """The life of every job, from its submission to its end."""

    __slots__ = (
        "_initial",
        "_jobs_fail",
        "_reorders",
        "attended",
        "coming",
        "dirty",
        "ended",
        "failures",
        "faults",
        "jobs",
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
        physics = physics or TracePhysics(workload, parameters, view.space.cluster)
        super().__init__(workload, policy, view, physics, observers)
        self.parameters = parameters
        self.jobs = workload.jobs
        self._reorders = type(policy).waiting_until is not Policy.waiting_until
        self.faults = faults or ORDINARY
        self.coming = 0
        """Outstanding events that will happen whatever the policy decides, without rounds."""
        self.dirty = False
        """Whether the policy must decide at this instant."""
        self.ended = [NEVER] * len(workload)
        self.unfinished = len(workload)
        self.failures: dict[int, tuple[Failure, Again | None]] = {}
        self._jobs_fail = type(self.faults).fails_at is not Faults.fails_at
        self._initial = workload.initial
        self.attended = (
            self._jobs_fail or self._reorders or bool(self.observers) or bool(self._initial)
        )
        """Whether the faults, the policy or an observer need to know of submissions."""
        for observer in self.observers:
            observer.attach(self)

    # What happens by itself.

    def submit(self, job: Job) -> None:
        """The job waits for the first time, or again after a failure; or it runs already."""
        runs = self._initial.get(job.index) if self.started[job.index] == NEVER else None
        if runs is None:
            self.wait(job)
        if self._jobs_fail:
            self.fails_at[job.index] = self.faults.fails_at(job.index, job.failures)
        for observer in self.observers:
            observer.submitted(job)
        if runs is not None:
            self._resume(job, runs)

    def _resume(self, job: Job, allocation: Allocation) -> None:
        """The job holds these GPUs from its submission on, without a decision."""
        if not self.space.take(job, allocation, any_size=True):
            raise InputError(
                f"job {job.id} should run from the start on GPUs that are not free: nodes "
                f"{', '.join(self.space.cluster.nodes[node].name for node, _ in allocation)}."
            )
        self.begin(job, allocation)

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
        """Profiling ends with the job's profile; its work meanwhile is lost, as it was not
        saved."""
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

    # Actions on it.

    def join(self, job: Job, partner: Job) -> None:
        """The job runs on the GPUs of one that runs alone."""
        self.advance(partner)
        self.withdraw(partner)
        job.partner, partner.partner = partner, job
        self.run(partner)
        self.begin(job, partner.allocation, PACKED)
        for observer in self.observers:
            observer.packed(partner)

    def interrupt(self, job: Job) -> None:
        """The job leaves its GPUs with all its work kept, and waits again."""
        self.stop(job)
        self.wait(job)

    def drop(self, job: Job, why: str) -> None:
        """The job is given up, whether it runs or waits."""
        if job.allocation:
            self.stop(job)
        else:
            self.view.pending.remove(job)
        self.unfinished -= 1
        self.ledger.dropped[job.index] = Dropped(self.view.now, why)
        for observer in self.observers:
            observer.failed(job, again=False)

    def wait(self, job: Job) -> None:
        """The job is among the waiting."""
        now = self.view.now
        self.view.pending.add(job, now)
        if self._reorders and (until := self.policy.waiting_until(job, now)) < NEVER:
            heappush(self.events, (max(until, now), REORDER, job.index, -1))

    def reorder(self, job: Job) -> bool:
        """The rank or lane of a waiting job has changed by itself; whether it still waits."""
        if not self.view.pending.remove(job):
            return False
        now = self.view.now
        self.view.pending.add(job, now)
        until = self.policy.waiting_until(job, now)
        if now < until < NEVER:
            heappush(self.events, (until, REORDER, job.index, -1))
        return True

    def lost_s(self, job: Job) -> float:
        """Work of a running job that its last checkpoint does not hold, as time at its speed."""
        index, speed = job.index, self._speed[job.index]
        done = self.done[index] + max(0.0, self.view.now - self._since[index]) * speed
        done = min(self._work[index], self._until.get(index, NEVER), done)
        return (done - self.physics.saved(index, done, self.done_before[index])) / (speed or 1.0)

    def close(self) -> None:
        """The simulation is stopped: record the work of running jobs."""
        self.ledger.horizon = self.view.now
        for job in list(self.view.running):
            self.advance(job)
            self.release(job)

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
        """The time that this observer requested has come."""
        self.coming -= 1
        self.observers[which].woken(job)

    def changed(self, job: Job | None = None) -> None:
        """The policy decides again at this instant; with `job`, its rank and lane are renewed."""
        self.dirty = self.view.altered = True
        if job is None:
            return
        if self.view.pending.remove(job):
            self.wait(job)
        elif job.allocation:
            self.rerank(job)

    def ask_again(self, after_s: float) -> None:
        """The policy decides again after this time, whatever happens until then."""
        self._expect(self.view.now + after_s, TICK, -1, ASKED)

    def _expect(self, at: float, kind: int, index: int, epoch: int) -> None:
        self.coming += 1
        heappush(self.events, (at, kind, index, epoch))
