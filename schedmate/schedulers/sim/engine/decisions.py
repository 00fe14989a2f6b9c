"""Carrying out what a policy decided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from schedmate.errors import SchedmateError
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
    needs,
)
from schedmate.schedulers.sim.engine.execution import Execution
from schedmate.schedulers.sim.engine.progress import LOAN, PROFILE
from schedmate.schedulers.sim.world.executor import Executor
from schedmate.schedulers.space import GIVEN, Booking
from schedmate.terminal import counted


class DecisionError(SchedmateError):
    """A policy decided something impossible."""


class _RefusedError(Exception):
    """A decision cannot be carried out; nothing was changed."""


class Decisions:
    """Carries out each kind of decision, and counts them.

    Without an `executor` an impossible decision ends the simulation; with one it is refused, as on
    a real cluster, and the policy hears of it.
    """

    def __init__(
        self, execution: Execution, policy: Policy, executor: Executor | None = None
    ) -> None:
        self.counts: Counter[type] = Counter()
        self._execution = execution
        self._executor = executor
        self._in_vain = 0
        self._asked = (float("-inf"), 0)
        self._policy = policy
        self._view = execution.view
        self._space = execution.space
        self._apply: dict[type, Callable[..., None]] = {
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
        try:
            for decision in decisions:
                if type(decision) is Start:
                    starts += 1
                    if not booked:
                        if self._start_later(*decision):
                            continue
                        self._take(decision.job, decision.allocation)
                    elif not leave(decision[0]):
                        raise _RefusedError(NOT_WAITING)
                    execution.begin(*decision)
                    continue
                counts[type(decision)] += 1
                execution.booked = booked and type(decision) in _BOOKED
                self._apply[type(decision)](decision)
                execution.booked = False
        except _RefusedError as refused:
            raise DecisionError(
                f"policy {self._policy.name} decided {type(decision).__name__} of job "
                f"{decision.job.id} at {self._view.now:.3f} s, which is impossible: {refused}."
            ) from None
        if starts:
            counts[Start] += starts

    def answer(self, decisions: Sequence[Decision]) -> None:
        """Carry out what is possible and answer the rest, where there is an executor that fails."""
        executor = self._executor
        assert executor is not None
        self._space.rollback()
        refusals, now = self._execution.underway.ledger.refused, self._view.now
        self._in_vain += 1
        for decision in decisions:
            try:
                if lacking := needs(decision, executor.can):
                    raise _RefusedError(f"the executor cannot {lacking}")
                if why := executor.refuses(decision, now):
                    raise _RefusedError(why)
                self._apply[type(decision)](decision)
            except _RefusedError as refused:
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

    def _start(self, decision: Start) -> None:
        if self._start_later(*decision):
            return
        self._take(decision.job, decision.allocation)
        self._execution.begin(*decision)

    def _start_later(self, job: Job, allocation: Allocation) -> bool:
        """Whether the job starts when others, who were told to stop, have left these GPUs."""
        execution = self._execution
        if not self._view.leaving or gpus_in(allocation) != job.gpus:
            return False
        if self._space.ready(job, allocation) or job not in self._view.pending:
            return False
        if self._space.borrows(allocation):
            return False
        if not execution.underway.start_later(job, allocation):
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
            self._take(job, allocation, any_size=True)
        execution.profiled_at[job.index] = view.now + limit
        execution.begin(job, allocation, PROFILE)

    def _borrow(self, decision: Borrow) -> None:
        job, allocation = decision
        if not self._execution.booked:
            nodes = self._space.cluster.nodes
            others = all(nodes[node].vc not in ("", job.vc) for node, _ in allocation)
            if not others and not self._space.borrows(allocation):
                raise _RefusedError("nobody lends these GPUs")
            self._take(job, allocation, borrow=True)
        else:
            self._leave_queue(job)
        self._execution.begin(job, allocation, LOAN)

    def _pack(self, decision: Pack) -> None:
        job, partner = decision
        if not partner.allocation or partner.partner is not None or partner.gpus != job.gpus:
            raise _RefusedError(
                "the partner does not run alone on as many GPUs as the job asks for"
            )
        if partner.profiling:
            raise _RefusedError("the partner is being profiled")
        if self._execution.kind.get(partner.index) == LOAN:
            raise _RefusedError("the partner runs on borrowed GPUs")
        self._check_settled(partner)
        self._leave_queue(job)
        self._execution.join(job, partner)

    def _evict(self, decision: Evict) -> None:
        job = decision.job
        if not job.allocation or (job.profiling and job.partner is None):
            raise _RefusedError("the job is not running")
        # Who was told to stop can still be ended at once.
        if job.status is None or not job.status.leaving or decision.grace_s > 0:
            self._check_settled(job)
        job.evictions += 1
        # Of a pair, the one that stays keeps the GPUs; else they are free for others now.
        if job.partner is None:
            self._ask_again()
        self._execution.evict(job, decision.grace_s)

    def _preempt(self, decision: Preempt) -> None:
        job = decision.job
        if not job.allocation or job.profiling:
            raise _RefusedError("the job is not running")
        self._check_settled(job)
        job.preemptions += 1
        self._execution.interrupt(job)

    def _drop(self, decision: Drop) -> None:
        if not decision.job.allocation and decision.job not in self._view.pending:
            raise _RefusedError("the job neither waits nor runs")
        self._ask_again()
        self._execution.drop(decision.job, decision.why)

    def _reallocate(self, decision: Resize | Migrate) -> None:
        job, allocation = decision[:2]
        if not job.allocation or job.partner is not None or job.profiling:
            raise _RefusedError("the job does not run alone")
        self._check_settled(job)
        gpus = gpus_in(allocation)
        if isinstance(decision, Migrate):
            if gpus != gpus_in(job.allocation) or not job.migratable:
                raise _RefusedError("it moves to as many GPUs, if it may move")
        elif not job.min_gpus <= gpus <= job.max_gpus:
            raise _RefusedError("the job cannot run on that many GPUs")
        if self._space.borrows(allocation):
            raise _RefusedError(LENT)
        if isinstance(decision, Migrate) and decision.overlap:
            if not self._space.take(job, allocation):
                raise _RefusedError(self._why_not(job, allocation))
            self._execution.underway.bring_up(job, allocation)
            return
        if self._executor is not None and not self._fits_instead(job, allocation):
            raise _RefusedError(self._why_not(job, allocation))
        self._execution.stop(job)
        if not self._space.take(job, allocation):
            raise _RefusedError(self._why_not(job, allocation))
        job.moves += 1
        self._execution.begin(job, allocation)

    def _ask_again(self) -> None:
        """The policy decides once more at this instant, with what this decision leaves."""
        if self._execution.dirty:
            return
        now = self._view.now
        self._asked = (now, self._asked[1] + 1 if self._asked[0] == now else 1)
        if self._asked[1] > _MOST_ASKED:
            raise DecisionError(
                f"policy {self._policy.name} evicts and starts the same jobs without end at "
                f"{now:g} s."
            )
        self._execution.dirty = True

    def _fits_instead(self, job: Job, allocation: Allocation) -> bool:
        """Whether the job could have these GPUs once it has left its own."""
        space = self._space
        space.begin()
        space.give(job, job.allocation)
        free = space.take(job, allocation)
        space.rollback()
        return free

    def _leave_queue(self, job: Job) -> None:
        if not self._view.pending.remove(job):
            raise _RefusedError(NOT_WAITING)

    def _take(
        self, job: Job, allocation: Allocation, *, any_size: bool = False, borrow: bool = False
    ) -> None:
        gpus = gpus_in(allocation)
        fits = gpus == job.gpus or (job.elastic and job.min_gpus <= gpus <= job.max_gpus)
        if not fits and not any_size:
            raise _RefusedError(f"it is given {counted(gpus, 'GPU')} and asks for {job.gpus}")
        if job not in self._view.pending:
            raise _RefusedError(NOT_WAITING)
        if not borrow and self._space.borrows(allocation):
            raise _RefusedError(LENT)
        if not self._space.take(job, allocation, any_size=not fits):
            raise _RefusedError(self._why_not(job, allocation))
        self._view.pending.remove(job)

    def _why_not(self, job: Job, allocation: Allocation) -> str:
        """Why the job could not have these GPUs."""
        if job.constraints is not None and not self._space.sites.admits(job, allocation):
            return "its constraints do not allow these GPUs"
        return "not all of these GPUs are free"

    def _check_settled(self, job: Job) -> None:
        if job.status is not None:
            what = "lends its GPUs" if job.status.lends else "is being moved"
            raise _RefusedError(
                "the job was told to stop" if job.status.leaving else f"the job {what}"
            )


_MOST_IN_VAIN = 1000
"""Times in a row that everything is refused, after which an executor is given up."""

_MOST_ASKED = 10_000
"""Times at one instant after which a policy that evicts is taken never to be content."""

_BOOKING = (Start, Borrow, Profile)
_BOOKED = (Preempt, Borrow, Profile)
"""Decisions that a policy books itself, besides those to start."""

NOT_WAITING = "the job is not waiting"
LENT = "these GPUs are lent by another job, and only to be borrowed"


def _bookings(decisions: Sequence[Decision]) -> list[Booking]:
    """The bookings of a policy that books all its decisions."""
    booked: list[Booking] = []
    for one in decisions:
        if isinstance(one, _BOOKING):
            booked.append((one.job, one.allocation))
        elif isinstance(one, Preempt) and one.job.partner is None:
            booked.append((one.job, one.job.allocation, GIVEN))
    return booked
