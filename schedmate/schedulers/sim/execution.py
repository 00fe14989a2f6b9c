"""The life of simulated jobs: submission, progress, moves and loans, failure, preemption, end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heappush

from schedmate.base.errors import InputError, SchedmateError
from schedmate.schedulers.model import NEVER, Allocation, Job, Status, gpus_in, without
from schedmate.schedulers.policy import Observer, Policy, View
from schedmate.schedulers.sim.parameters import Parameters
from schedmate.schedulers.sim.record import KINDS, Dropped, Eviction, Hold, Ledger, Loan, Segments
from schedmate.schedulers.sim.workload import Workload, turn_at
from schedmate.schedulers.sim.world import (
    ORDINARY_FAULTS,
    Again,
    Failure,
    Faults,
    Physics,
    TracePhysics,
)

END, FAIL, PROFILED, LEFT, PACE, RERANK = range(6)
"""Events of a job's present run; void once its epoch has changed."""
DRAIN, MOVED, RECLAIM, LEND, SUBMIT, WAKE, REORDER, UP, DOWN, TICK, HORIZON = range(6, 17)
"""Events that hold whatever the job has done since: of jobs, nodes and the clock."""

Event = tuple[float, int, int, int]
"""Time [s], kind, position of the job or node, epoch (of a wake: the observer's position)."""

RUN, PACKED, PROFILE, LOAN = range(len(KINDS))
"""Kinds of segments: how a job holds its GPUs."""

PHASE = -1
"""In the place of the number of a window: a phase of the job's begins."""


class PhysicsError(SchedmateError):
    """A physics, a faults object or an observer asked for something impossible."""


# How far every job is, and when that will matter next.


_ALONE = (RUN, PROFILE)


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
        "phases",
        "physics",
        "policy",
        "previous",
        "profiled_at",
        "segments",
        "space",
        "started",
        "view",
    )

    departures: Underway
    """Frees the GPUs of jobs that leave them while they have a `Status`."""

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
        """By job, unless it simply runs: `PACKED` or `PROFILE`."""
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
        self.phases = workload.phases if policy.borrows else {}
        self._speed = [1.0] * count
        self._until: dict[int, float] = {}  # up to which done work the speed holds, if not all
        self._since = [0.0] * count
        self._reranks = type(policy).rank_until is not Policy.rank_until
        self._plain = type(physics) is TracePhysics and not (
            self._reranks
            or self.phases
            or physics.by_place
            or not physics.starts_at_once
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
        if index in self.phases and index not in self.halted:
            until = min(until, turn_at(self.phases[index], done, ()).until)
            heappush(self.events, (self._since[index], LEND, index, PHASE))
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
        if view.usage is not None:
            view.usage.add(job, now)
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

    def reaches(self, job: Job, work: float) -> float:
        """When a running job will have done this much work, at its speed [s]."""
        index = job.index
        speed = self._speed[index]
        left = min(work, self._work[index]) - self.done[index]
        return self._since[index] + left / speed if speed else NEVER

    def speed(self, job: Job) -> float:
        """Work a second from now on; 0 while it waits or restarts."""
        running = job.allocation and self._since[job.index] <= self.view.now
        return self._speed[job.index] if running else 0.0


# The life of jobs: submission, end, failure, preemption, and requests of observers.


ASKED = 1
"""In the place of an event's epoch: a tick that was asked for and is not a round."""

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
        self.faults = faults or ORDINARY_FAULTS
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


# Transitions of jobs that hold GPUs: leaving, moving and lending them (see `Status`).
#
# They cost nothing for jobs without a status.


@dataclass(slots=True)
class _Lent:
    """A loan that has not ended; see `record.Loan`."""

    serial: int
    start: float
    allocation: Allocation
    done: float
    called: float = NEVER


class Underway:
    """Jobs that were asked to stop, are being started elsewhere, or lend their GPUs."""

    def __init__(self, execution: Execution, workload: Workload) -> None:
        self._execution = execution
        self._ledger = execution.ledger
        self._halted = execution.halted
        execution.departures = self
        self._windows = workload.standby
        self._requests: dict[int, tuple[float, float, bool]] = {}
        """Requests to stop, by job: when [s], grace time [s], whether the job saves its work."""
        self._moves: dict[int, tuple[int, float]] = {}  # serial number, when it began
        self._loans: dict[int, _Lent] = {}
        self._borrowers: dict[int, set[int]] = {}  # borrowers of a job that reclaims its GPUs
        self._awaited: dict[int, set[int]] = {}
        """Jobs that have yet to leave, by the job that is about to start on their GPUs."""
        self._serial = 0

    def begin(self) -> None:
        """Schedule the windows in which jobs lend their GPUs."""
        for index, windows in self._windows.items():
            for number, (start, _) in enumerate(windows):
                heappush(self._execution.events, (start, LEND, index, number))

    # Leaving.

    def evict(self, job: Job, grace_s: float = 0.0) -> None:
        """Take the job off its GPUs (SchedMate, section 4.1).

        Without a grace time it is not asked to save its work first.
        """
        if grace_s > 0:
            self.ask_to_stop(job, grace_s)
        else:
            self.leave(job)

    def ask_to_stop(self, job: Job, grace_s: float) -> None:
        """The job stops its work, and leaves when its handler is done or the grace time is over."""
        execution, index, now = self._execution, job.index, self._execution.view.now
        takes_s = execution.parameters.shutdown.takes_s(job.id, job.evictions)
        saves = job.terms is not None and job.terms.saves and takes_s <= grace_s
        self._requests[index] = (now, grace_s, saves)
        execution.advance(job)
        execution.withdraw(job)
        job.put_under_way(Status(leaves_by=now + grace_s))
        execution.view.leaving[index] = job
        self._halted[index] = now + min(takes_s, grace_s)
        execution.run(job)

    def leave(self, job: Job) -> None:
        """The job leaves, with what its last checkpoint holds, and waits again."""
        execution, index = self._execution, job.index
        asked, grace_s, saves = self._requests.pop(index, (execution.view.now, 0.0, False))
        execution.advance(job)
        done = execution.done[index]
        before = execution.done_before[index]
        kept_work = done if saves else execution.physics.saved(index, done, before)
        execution.done[index] = kept_work
        execution.view.evicted.add(job)
        execution.interrupt(job)
        self._ledger.evictions[len(execution.segments) - 1] = Eviction(
            index, asked, execution.view.now, grace_s, done, kept_work, saves
        )

    # Starting where others leave.

    def start_later(self, job: Job, allocation: Allocation) -> bool:
        """Start the job when the present users have left these GPUs; False if some stay."""
        execution, leavers = self._execution, set[int]()
        space = execution.space
        for node, mask in allocation:
            missing = mask & ~space.free[node]
            # Whose CPUs and memory these are is not known: it waits for all of the jobs.
            poor = not space.affords(node, job, mask.bit_count())
            for holder in execution.view.on(node) if missing or poor else ():
                held_gpus = next(theirs for at, theirs in holder.allocation if at == node) & mask
                leaves = holder.status is not None and holder.status.leaving
                if leaves and (held_gpus or poor):
                    leavers.add(holder.index)
                    missing &= ~held_gpus
                elif held_gpus:
                    return False
            if missing or mask & space.owed(node):
                return False
        execution.space.claim(job, allocation)
        execution.view.starting[job.index] = (job, allocation)
        self._awaited[job.index] = leavers
        return True

    def _start(self, index: int) -> None:
        """The job starts, as all jobs that it waited for have left its GPUs."""
        job, allocation = self._end_wait(index)
        space = self._execution.space
        if space.ready(job, allocation) and space.take(job, allocation):
            self._execution.begin(job, allocation)
        else:
            self._execution.wait(job)

    def _end_wait(self, index: int) -> tuple[Job, Allocation]:
        del self._awaited[index]
        job, allocation = self._execution.view.starting.pop(index)
        self._execution.space.end_claim(job, allocation)
        return job, allocation

    def cancel_starts(self, node: int | None = None) -> None:
        """Jobs that are about to start on this node (None: on any) wait for another place."""
        for index, (_, allocation) in list(self._execution.view.starting.items()):
            if node is None or any(at == node for at, _ in allocation):
                job, _ = self._end_wait(index)
                self._execution.wait(job)
                self._execution.dirty = True

    # Moving.

    def bring_up(self, job: Job, allocation: Allocation) -> None:
        """The job also holds these booked GPUs, on which it is started before it moves there."""
        execution, now = self._execution, self._execution.view.now
        self._serial += 1
        self._moves[job.index] = (self._serial, now)
        job.put_under_way(Status(moves_to=allocation))
        at = now + execution.parameters.restart(gpus_in(allocation))
        heappush(execution.events, (at, MOVED, job.index, self._serial))

    def moved(self, job: Job, serial: int) -> bool:
        """The job is up elsewhere and moves there, unless the move was cancelled; return whether it
        moves."""
        if job.index not in self._moves or self._moves[job.index][0] != serial:
            return False
        assert job.status is not None
        execution, allocation = self._execution, job.status.moves_to
        self._hold_ends(job, moved=True)
        job.settle()
        execution.stop(job)
        self.settle(job)
        job.moves += 1
        execution.begin(job, allocation, most_s=execution.parameters.handover_s)
        return True

    def lose(self, node: int) -> None:
        """Cancel moves to this node; the jobs keep running where they are."""
        execution = self._execution
        self.cancel_starts(node)
        for index in list(self._moves):
            job = execution.jobs[index]
            assert job.status is not None
            if any(at == node for at, _ in job.status.moves_to):
                execution.space.give(job, job.status.moves_to)
                self._hold_ends(job, moved=False)
                job.settle()

    def _hold_ends(self, job: Job, *, moved: bool) -> None:
        assert job.status is not None
        _, began = self._moves.pop(job.index)
        now = self._execution.view.now
        self._ledger.holds.append(Hold(job.index, began, now, job.status.moves_to, moved))

    # Lending.

    def lend(self, job: Job, number: int) -> bool:
        """One of its windows opens, or a phase begins: the job lends its GPUs if it can; return
        whether anything changes."""
        if number == PHASE:
            return self._turn(job)
        until = self._windows[job.index][number][1]
        if not self._lend(job, job.allocation, until):
            return False
        heappush(self._execution.events, (until, RECLAIM, job.index, self._serial))
        return True

    def _turn(self, job: Job) -> bool:
        """A phase of the job's begins, or the job: it has back what it lent in the last one, and
        lends what it does not use in this one."""
        execution, index = self._execution, job.index
        done, phases = execution.work_done(job), execution.phases[index]
        loan, changed = self._loans.get(index), False
        if loan is not None:
            if loan.called < NEVER or turn_at(phases, loan.done, ()).until > done:
                return False
            changed = self.reclaim(job, loan.serial)
        if not job.allocation or not execution.speed(job):
            return changed
        turn = turn_at(phases, done, job.allocation)
        until = execution.reaches(job, turn.until)
        return (bool(turn.idle) and self._lend(job, turn.idle, until)) or changed

    def _lend(self, job: Job, allocation: Allocation, until: float) -> bool:
        execution, now = self._execution, self._execution.view.now
        alone = job.allocation and job.partner is None and not job.profiling
        borrows = execution.kind.get(job.index) == LOAN
        if not alone or borrows or job.status is not None or job.share != 1.0 or until <= now:
            return False
        self._serial += 1
        done = execution.work_done(job)
        self._loans[job.index] = _Lent(self._serial, now, allocation, done)
        job.put_under_way(Status(lends=True, lends_until=until))
        execution.space.lend(job, allocation)
        return True

    def reclaim(self, job: Job, serial: int) -> bool:
        """The job reclaims its GPUs: the borrowers are asked to stop, and it waits for them."""
        execution, index, now = self._execution, job.index, self._execution.view.now
        loan = self._loans.get(index)
        if loan is None or loan.serial != serial:
            return False
        loan.called = now
        execution.space.call_back(loan.allocation)
        borrowers = self.borrowers(job)
        if not borrowers:
            self._back(job)
            return True
        self._borrowers[index] = {borrower.index for borrower in borrowers}
        execution.advance(job)
        execution.withdraw(job)
        self._halted[index] = NEVER
        execution.run(job)
        for borrower in borrowers:
            if borrower.status is None:
                borrower.evictions += 1
                self.ask_to_stop(borrower, execution.parameters.reclaim_grace_s)
        return True

    def borrowers(self, lender: Job) -> list[Job]:
        """Jobs on GPUs that the job lends."""
        lent, by_position = dict(self._loans[lender.index].allocation), {}
        for node in lent:
            for job in self._execution.view.on(node):
                if job is not lender and any(lent.get(at, 0) & mask for at, mask in job.allocation):
                    by_position[job.index] = job
        return list(by_position.values())

    def _back(self, job: Job) -> None:
        """The lender uses its GPUs again: its loan ends."""
        execution = self._execution
        execution.space.end_loan(job, self._record_loan(job), left=False)
        job.settle()
        if self._halted.pop(job.index, None) is not None:
            execution.advance(job)
            execution.withdraw(job)
            execution.run(job)

    def _record_loan(self, job: Job) -> Allocation:
        """Record that the loan has ended; return its GPUs."""
        now, loan = self._execution.view.now, self._loans.pop(job.index)
        called, lent = min(loan.called, now), loan.allocation
        self._ledger.loans.append(Loan(job.index, loan.start, called, now, lent, loan.done))
        return lent

    # Whatever ends it.

    def give(self, job: Job, allocation: Allocation) -> None:
        """Release what a job with a status holds."""
        assert job.status is not None
        space = self._execution.space
        if job.status.lends:
            lent = self._record_loan(job)
            space.end_loan(job, lent, left=True)
            if used := without(allocation, lent):
                space.give(job, used)
            self._borrowers.pop(job.index, None)
            return
        space.give(job, allocation)
        if job.status.moves_to:
            space.give(job, job.status.moves_to)
            self._hold_ends(job, moved=False)

    def settle(self, job: Job) -> None:
        """The job has left its GPUs: its transition is over."""
        job.settle()
        self._execution.view.leaving.pop(job.index, None)
        self._halted.pop(job.index, None)
        self._requests.pop(job.index, None)
        for lender, left in list(self._borrowers.items()):
            left.discard(job.index)
            if not left:
                del self._borrowers[lender]
                self._back(self._execution.jobs[lender])
        for index, awaited in list(self._awaited.items()):
            awaited.discard(job.index)
            if not awaited:
                self._start(index)
