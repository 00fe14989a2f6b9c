"""Carrying out what a policy decided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from schedmate.errors import SchedmateError
from schedmate.schedulers.model import Allocation, Job, gpus_in
from schedmate.schedulers.policy import (
    Decision,
    Evict,
    Migrate,
    Pack,
    Policy,
    Preempt,
    Profile,
    Resize,
    Start,
)
from schedmate.schedulers.sim.engine.execution import Execution
from schedmate.schedulers.sim.engine.progress import PROFILE
from schedmate.schedulers.space import GIVEN, Booking


class DecisionError(SchedmateError):
    """A policy decided something impossible."""


class Decisions:
    """What becomes of each kind of decision, and how many of each there were."""

    def __init__(self, execution: Execution, policy: Policy) -> None:
        self.counts: Counter[type] = Counter()
        self._execution = execution
        self._policy = policy
        self._view = execution.view
        self._space = execution.space
        self._apply: dict[type, Callable[..., None]] = {
            Pack: self._pack,
            Evict: self._evict,
            Resize: self._reallocate,
            Migrate: self._reallocate,
            Profile: self._profile,
        }

    def carry_out(self, decisions: Sequence[Decision]) -> None:
        """Do it, ending the policy's transaction on the space.

        Raises `DecisionError` for the first decision that is impossible.
        """
        # Mostly a policy has booked just what it returns: then that is kept.
        counts, leave, starts = self.counts, self._view.pending.remove, 0
        execution = self._execution
        bookings: Sequence[Booking | Decision] = decisions
        for decision in decisions:
            if type(decision) is not Start:
                bookings = _bookings(decisions)
                break
        booked = self._space.settle(bookings)
        for decision in decisions:
            if type(decision) is Start:
                starts += 1
                if not booked:
                    self._take(decision.job, decision.allocation, decision)
                elif not leave(decision[0]):
                    raise self._impossible(decision, "the job is not waiting")
                execution.begin(*decision)
                continue
            counts[type(decision)] += 1
            if type(decision) is Preempt:
                execution.booked = booked
                self._preempt(decision)
                execution.booked = False
            else:
                self._apply[type(decision)](decision)
        if starts:
            counts[Start] += starts

    def _profile(self, decision: Profile) -> None:
        job, allocation, limit = decision
        execution, view = self._execution, self._view
        left = execution.physics.work[job.index] - execution.done[job.index]
        if execution.parameters.profiling_is_free and left > limit:
            self._leave_queue(job, decision)
            job.profiled = True
            view.pending.add(job, view.now)
            execution.dirty = True
            return
        self._take(job, allocation, decision)
        execution.profiled_at[job.index] = view.now + limit
        execution.begin(job, allocation, PROFILE)

    def _pack(self, decision: Pack) -> None:
        job, partner = decision
        if not partner.allocation or partner.partner is not None or partner.gpus != job.gpus:
            raise self._impossible(
                decision, "the partner does not run alone on as many GPUs as the job asks for"
            )
        if partner.profiling:
            raise self._impossible(decision, "the partner is being profiled")
        self._leave_queue(job, decision)
        self._execution.join(job, partner)

    def _evict(self, decision: Evict) -> None:
        if decision.job.partner is None:
            raise self._impossible(decision, "the job shares its GPUs with no other")
        decision.job.evictions += 1
        self._execution.evict(decision.job)

    def _preempt(self, decision: Decision) -> None:
        job = decision.job
        if not job.allocation or job.profiling:
            raise self._impossible(decision, "the job is not running")
        job.preemptions += 1
        self._execution.interrupt(job)

    def _reallocate(self, decision: Resize | Migrate) -> None:
        job, allocation = decision
        if not job.allocation or job.partner is not None or job.profiling:
            raise self._impossible(decision, "the job does not run alone")
        gpus = gpus_in(allocation)
        if isinstance(decision, Migrate):
            if gpus != gpus_in(job.allocation) or not job.migratable:
                raise self._impossible(decision, "it moves to as many GPUs, if it may move")
        elif not job.min_gpus <= gpus <= job.max_gpus:
            raise self._impossible(decision, "the job cannot run on so many GPUs")
        self._execution.stop(job)
        if not self._space.take(job, allocation):
            raise self._impossible(decision, "not all of these GPUs are free")
        job.moves += 1
        self._execution.begin(job, allocation)

    def _leave_queue(self, job: Job, decision: Decision) -> None:
        if not self._view.pending.remove(job):
            raise self._impossible(decision, "the job is not waiting")

    def _take(self, job: Job, allocation: Allocation, decision: Decision) -> None:
        gpus = gpus_in(allocation)
        fits = gpus == job.gpus or (job.elastic and job.min_gpus <= gpus <= job.max_gpus)
        if not fits and not isinstance(decision, Profile):
            raise self._impossible(decision, f"it is given {gpus} GPUs and asks for {job.gpus}")
        self._leave_queue(job, decision)
        if not self._space.take(job, allocation, any_size=not fits):
            raise self._impossible(decision, "not all of these GPUs are free")

    def _impossible(self, decision: Decision, why: str) -> DecisionError:
        return DecisionError(
            f"policy {self._policy.name} decided {type(decision).__name__} of job "
            f"{decision.job.id} at {self._view.now:.3f} s, which is impossible: {why}."
        )


def _bookings(decisions: Sequence[Decision]) -> list[Booking]:
    """What a policy that books all it decides has done to the space."""
    return [
        one if type(one) is Start else (one.job, one.job.allocation, GIVEN)
        for one in decisions
        if type(one) is Start or (type(one) is Preempt and one.job.partner is None)
    ]
