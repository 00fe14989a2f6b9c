"""Carries out all that a policy decided at one time, or refuses it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from schedmate.base.errors import SchedmateError
from schedmate.base.terminal import counted
from schedmate.schedulers.model import Allocation, Job, gpus_in
from schedmate.schedulers.policy import (
    Answer,
    Borrow,
    Decision,
    Drop,
    Evict,
    Migrate,
    Pack,
    Policy,
    Preempt,
    Profile,
    Resize,
    Start,
    bars,
    needs,
)
from schedmate.schedulers.sim.execution import LOAN, PROFILE, Execution, Underway
from schedmate.schedulers.sim.world import Executor
from schedmate.schedulers.space import GIVEN, Booking


class Decisions:
    """Carries out lists of decisions, and counts them by kind.

    Without an `executor` an impossible decision ends the simulation; with one it is refused, as on
    a real cluster, and reported to the policy.
    """

    def __init__(
        self,
        execution: Execution,
        underway: Underway,
        policy: Policy,
        executor: Executor | None = None,
    ) -> None:
        self.counts: Counter[type] = Counter()
        self._execution = execution
        self._executor = executor
        self._in_vain = 0
        self._policy = policy
        self._view = execution.view
        self._space = execution.space
        self._actions = Actions(execution, underway, policy, may_refuse=executor is not None)

    def carry_out(self, decisions: Sequence[Decision]) -> None:
        """Carry out the decisions, ending the policy's transaction on the space.

        Raises `DecisionError` for the first decision that is impossible.
        """
        # A policy has mostly booked exactly what it returns: then the bookings are kept.
        counts, leave, starts = self.counts, self._view.pending.remove, 0
        execution, actions, apply = self._execution, self._actions, self._actions.apply
        bookings: Sequence[Booking | Decision] = decisions
        for decision in decisions:
            if type(decision) is not Start:
                bookings = _bookings(decisions)
                break
        booked = self._space.settle(bookings)
        try:
            for decision in decisions:
                if type(decision) is Start:
                    starts += 1
                    if not booked:
                        actions.check_open(decision)
                        if actions.start_later(*decision):
                            continue
                        actions.take(decision.job, decision.allocation)
                    elif not leave(decision[0]):
                        raise RefusedError(NOT_WAITING)
                    execution.begin(*decision)
                    continue
                counts[type(decision)] += 1
                execution.booked = booked and type(decision) in _BOOKED
                apply(decision)
                execution.booked = False
        except RefusedError as refused:
            raise DecisionError(
                f"policy {self._policy.name} decided {type(decision).__name__} of job "
                f"{decision.job.id} at {self._view.now:.3f} s, which is impossible: {refused}."
            ) from None
        if starts:
            counts[Start] += starts

    def answer(self, decisions: Sequence[Decision]) -> None:
        """Carry out what the executor does not refuse, and report the refusals to the policy."""
        executor, apply = self._executor, self._actions.apply
        assert executor is not None
        self._space.rollback()
        refusals, now = self._execution.ledger.refused, self._view.now
        self._in_vain += 1
        for decision in decisions:
            try:
                if lacking := needs(decision, executor.can):
                    raise RefusedError(f"the executor cannot {lacking}")
                if why := executor.refuses(decision, now):
                    raise RefusedError(why)
                apply(decision)
            except RefusedError as refused:
                why = str(refused)
                refusals[why] = refusals.get(why, 0) + 1
                self._view.answers.append(Answer(decision, "refused", why, now))
            else:
                self._in_vain = 0
                self.counts[type(decision)] += 1
        if self._in_vain > _MOST_IN_VAIN:
            raise DecisionError(
                f"the executor refused all that policy {self._policy.name} decided {_MOST_IN_VAIN} "
                f"times in a row, the last time because {self._view.answers[-1].why}."
            )
        if self._view.answers:
            self._execution.ask_again(executor.retry_s)


_MOST_IN_VAIN = 1000
"""Refusals of everything in a row after which the simulation ends."""

_BOOKING = (Start, Borrow, Profile)
_BOOKED = (Preempt, Borrow, Profile)
"""Decisions besides `Start` whose bookings can be kept."""


def _bookings(decisions: Sequence[Decision]) -> list[Booking]:
    """The bookings of a policy that books all its decisions."""
    booked: list[Booking] = []
    for decision in decisions:
        if isinstance(decision, _BOOKING):
            booked.append((decision.job, decision.allocation))
        elif isinstance(decision, Preempt) and decision.job.partner is None:
            booked.append((decision.job, decision.job.allocation, GIVEN))
    return booked


# Carrying out a single decision of a policy, or refusing it.


MOST_REPEATS = 10_000
"""Evictions at one instant after which a policy is assumed never to stop."""

NOT_WAITING = "the job is not waiting"
LENT = "these GPUs are lent by another job and can only be borrowed"


class DecisionError(SchedmateError):
    """A policy decided something impossible."""


class RefusedError(Exception):
    """A decision cannot be carried out; nothing was changed."""


class Actions:
    """Carries out one decision of any kind.

    `may_refuse`: whether a refusal leaves the simulation running, so that a job must not lose its
    GPUs before those that it moves to are certain.
    """

    def __init__(
        self, execution: Execution, underway: Underway, policy: Policy, *, may_refuse: bool
    ) -> None:
        self._execution = execution
        self._underway = underway
        self._policy = policy
        self._may_refuse = may_refuse
        self._view = execution.view
        self._space = execution.space
        self._asked = (float("-inf"), 0)
        self._by_kind: dict[type, Callable[..., None]] = {
            Start: self._start,
            Preempt: self._preempt,
            Pack: self._pack,
            Evict: self._evict,
            Resize: self._reallocate,
            Migrate: self._reallocate,
            Profile: self._profile,
            Borrow: self._borrow,
            Drop: self._drop,
        }

    def apply(self, decision: Decision) -> None:
        """Carry out a decision. Raises `RefusedError` where that is impossible."""
        if not self._execution.booked:  # else it has just been found, among the open ones
            self.check_open(decision)
        self._by_kind[type(decision)](decision)

    def check_open(self, decision: Decision) -> None:
        """Raises `RefusedError` if the GPUs are not open to the job, even if they are free."""
        if why := bars(decision, self._space):
            raise RefusedError(why)

    def _start(self, decision: Start) -> None:
        if self.start_later(*decision):
            return
        self.take(decision.job, decision.allocation)
        self._execution.begin(*decision)

    def start_later(self, job: Job, allocation: Allocation) -> bool:
        """Whether the job will start once jobs that were asked to stop have left these GPUs."""
        if not self._view.leaving or gpus_in(allocation) != job.gpus:
            return False
        if self._space.ready(job, allocation) or job not in self._view.pending:
            return False
        if self._space.borrows(allocation):
            return False
        if not self._underway.start_later(job, allocation):
            return False
        self._view.pending.remove(job)
        return True

    def _profile(self, decision: Profile) -> None:
        job, allocation, limit = decision
        execution, view = self._execution, self._view
        if execution.parameters.profiling_is_free and (
            execution.physics.work[job.index] - execution.done[job.index] > limit
        ):
            self._leave_queue(job)
            if execution.booked:
                self._space.give(job, allocation)
            job.profiled = True
            execution.wait(job)
            execution.dirty = True
            return
        if execution.booked:
            self._leave_queue(job)
        else:
            self.take(job, allocation, any_size=True)
        execution.profiled_at[job.index] = view.now + limit
        execution.begin(job, allocation, PROFILE)

    def _borrow(self, decision: Borrow) -> None:
        job, allocation = decision
        if not self._execution.booked:
            nodes = self._space.cluster.nodes
            others = all(nodes[node].vc not in ("", job.vc) for node, _ in allocation)
            if not others and not self._space.borrows(allocation):
                raise RefusedError("no job or virtual cluster lends these GPUs")
            self.take(job, allocation, borrow=True)
        else:
            self._leave_queue(job)
        self._execution.begin(job, allocation, LOAN)

    def _pack(self, decision: Pack) -> None:
        job, partner = decision
        if not partner.allocation or partner.partner is not None or partner.gpus != job.gpus:
            raise RefusedError(
                "the partner does not run alone on the number of GPUs that the job asks for"
            )
        if partner.profiling:
            raise RefusedError("the partner is being profiled")
        if self._execution.kind.get(partner.index) == LOAN:
            raise RefusedError("the partner runs on borrowed GPUs")
        self._check_settled(partner)
        self._leave_queue(job)
        self._execution.join(job, partner)

    def _evict(self, decision: Evict) -> None:
        job = decision.job
        if not job.allocation or (job.profiling and job.partner is None):
            raise RefusedError("the job is not running")
        # A job that was asked to stop can still be stopped at once.
        if job.status is None or not job.status.leaving or decision.grace_s > 0:
            self._check_settled(job)
        job.evictions += 1
        # The GPUs of a pair stay with the partner; those of a single job are free now.
        if job.partner is None:
            self._ask_again()
        self._underway.evict(job, decision.grace_s)

    def _preempt(self, decision: Preempt) -> None:
        job = decision.job
        if not job.allocation or job.profiling:
            raise RefusedError("the job is not running")
        self._check_settled(job)
        job.preemptions += 1
        self._execution.interrupt(job)

    def _drop(self, decision: Drop) -> None:
        if not decision.job.allocation and decision.job not in self._view.pending:
            raise RefusedError("the job neither waits nor runs")
        self._ask_again()
        self._execution.drop(decision.job, decision.why)

    def _reallocate(self, decision: Resize | Migrate) -> None:
        job, allocation = decision[:2]
        if not job.allocation or job.partner is not None or job.profiling:
            raise RefusedError("the job does not run alone")
        self._check_settled(job)
        gpus = gpus_in(allocation)
        if isinstance(decision, Migrate):
            if gpus != gpus_in(job.allocation) or not job.migratable:
                raise RefusedError(
                    "the job can only move to the same number of GPUs, if it may move at all"
                )
        elif not job.min_gpus <= gpus <= job.max_gpus:
            raise RefusedError("the job cannot run on that many GPUs")
        if self._space.borrows(allocation):
            raise RefusedError(LENT)
        if isinstance(decision, Migrate) and decision.overlap:
            if not self._space.take(job, allocation):
                raise RefusedError(self._why_not(job, allocation))
            self._underway.bring_up(job, allocation)
            return
        if self._may_refuse and not self._fits_instead(job, allocation):
            raise RefusedError(self._why_not(job, allocation))
        self._execution.stop(job)
        if not self._space.take(job, allocation):
            raise RefusedError(self._why_not(job, allocation))
        job.moves += 1
        self._execution.begin(job, allocation)

    def _ask_again(self) -> None:
        """Let the policy decide again at this instant, with the GPUs that this decision frees."""
        if self._execution.dirty:
            return
        now = self._view.now
        self._asked = (now, self._asked[1] + 1 if self._asked[0] == now else 1)
        if self._asked[1] > MOST_REPEATS:
            raise DecisionError(
                f"policy {self._policy.name} evicts and starts the same jobs endlessly at "
                f"{now:g} s."
            )
        self._execution.dirty = True

    def _fits_instead(self, job: Job, allocation: Allocation) -> bool:
        """Whether the job could get these GPUs once it has left its own."""
        space = self._space
        space.begin()
        space.give(job, job.allocation)
        free = space.take(job, allocation)
        space.rollback()
        return free

    def _leave_queue(self, job: Job) -> None:
        if not self._view.pending.remove(job):
            raise RefusedError(NOT_WAITING)

    def take(
        self, job: Job, allocation: Allocation, *, any_size: bool = False, borrow: bool = False
    ) -> None:
        gpus = gpus_in(allocation)
        fits = gpus == job.gpus or (job.elastic and job.min_gpus <= gpus <= job.max_gpus)
        if not fits and not any_size:
            raise RefusedError(f"it would get {counted(gpus, 'GPU')} and asks for {job.gpus}")
        if job not in self._view.pending:
            raise RefusedError(NOT_WAITING)
        if not borrow and self._space.borrows(allocation):
            raise RefusedError(LENT)
        if not self._space.take(job, allocation, any_size=not fits):
            raise RefusedError(self._why_not(job, allocation))
        self._view.pending.remove(job)

    def _why_not(self, job: Job, allocation: Allocation) -> str:
        """Why the job cannot get these GPUs."""
        if job.constraints is not None and not self._space.sites.admits(job, allocation):
            return "its constraints do not allow these GPUs"
        return "not all of these GPUs are free"

    def _check_settled(self, job: Job) -> None:
        if job.status is not None:
            what = "lends its GPUs" if job.status.lends else "is being moved"
            raise RefusedError(
                "the job was asked to stop" if job.status.leaving else f"the job {what}"
            )
