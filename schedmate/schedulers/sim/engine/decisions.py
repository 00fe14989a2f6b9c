"""Carrying out all that a policy decided at one time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from schedmate.schedulers.decisions import Answer, Borrow, Decision, Preempt, Profile, Start, needs
from schedmate.schedulers.policy import Policy
from schedmate.schedulers.sim.engine.actions import (
    NOT_WAITING,
    Actions,
    DecisionError,
    RefusedError,
)
from schedmate.schedulers.sim.engine.execution import Execution
from schedmate.schedulers.sim.engine.underway import Underway
from schedmate.schedulers.sim.world.executor import Executor
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
    for one in decisions:
        if isinstance(one, _BOOKING):
            booked.append((one.job, one.allocation))
        elif isinstance(one, Preempt) and one.job.partner is None:
            booked.append((one.job, one.job.allocation, GIVEN))
    return booked
