"""Executors with limited capabilities, or that refuse decisions."""

from __future__ import annotations

from schedmate.schedulers.decisions import Decision
from schedmate.schedulers.terms import EVERYTHING, Capabilities


class Executor:
    """Base of an executor in a simulation: it has the capabilities `can`, and refuses nothing else.

    With one, an impossible decision is refused and the policy notified, as on a real cluster, whose
    state may change before a decision is carried out; without one it is an error.
    """

    retry_s: float = 60.0
    """Time after a refusal until the policy is asked again, if nothing happens before [s]."""

    def __init__(self, can: Capabilities = EVERYTHING) -> None:
        self.can = can

    def refuses(self, decision: Decision, now: float) -> str:
        """Why this decision is not carried out now [s]; empty: it is."""
        return ""
