"""Results of queries of the record: the state of plans, and actions that were begun."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from schedmate.errors import ActionError
from schedmate.schedulers.live.actions import Action
from schedmate.schedulers.live.clock import Instant
from schedmate.schedulers.live.plans import Plan, State

Outcome = Literal[
    "done",  # it was taken, or was found to be so
    "failed",  # it was refused or went wrong, and is not in effect
    "void",  # it is certain that it was not taken; it may be begun again
]
"""What came of an attempt. None instead: undetermined, it may or may not have been taken."""


class StateError(ActionError):
    """A plan, or a step of one, is not in a state that allows this."""


class PlanStatus(NamedTuple):
    """The present state of a plan."""

    plan: Plan
    state: State
    since: Instant
    """When it came into this state."""
    by: str
    """Who changed it to this state."""
    note: str
    """Their comment."""
    number: int
    """Sequence number of its proposal: larger is newer."""


class Attempt(NamedTuple):
    """An action that was begun."""

    id: int
    """The number of its entry in the record."""
    plan: str
    step: int
    """Which action of the plan, from 0."""
    undo: bool
    """Whether `action` takes that one back."""
    action: Action
    at: Instant
    by: str
    outcome: Outcome | None
    detail: str
    data: dict[str, Any]

    @property
    def key(self) -> str:
        """The same for every attempt at this step, for executors that recognise a repeated
        request."""
        return f"{self.plan}-{self.step}{'-undo' if self.undo else ''}"
