"""What carries out decisions, where it cannot do all that there is, or fails at it."""

from __future__ import annotations

from schedmate.schedulers.decisions import Decision
from schedmate.schedulers.terms import EVERYTHING, Capabilities


class Executor:
    """Base of an executor in a simulation: it can do what `can` says, and refuses nothing else.

    With one, a decision that is impossible is refused and the policy told, as on a real cluster
    where things happen between a decision and its execution; without one it is an error.
    """

    retry_s: float = 60.0
    """Time after a refusal until the policy is asked again, if nothing happens before [s]."""

    def __init__(self, can: Capabilities = EVERYTHING) -> None:
        self.can = can

    def refuses(self, decision: Decision, now: float) -> str:
        """Why this decision is not carried out now [s]; empty: it is."""
        return ""
