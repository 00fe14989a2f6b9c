"""Plans that wait for approval, as the record of live actions holds them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from schedmate.schedulers.live.plans import OPEN
from schedmate.schedulers.live.record import Record
from schedmate.schedulers.live.statuses import PlanStatus, StateError
from schedmate.serve.errors import AbsentError, ConflictError

T = TypeVar("T")

SHOWN = 100


class Plans:
    """Reads the record, and approves or rejects plans; the agent carries them out.

    Without a record, because no agent has written one yet, there are no plans.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()

    def list(self, *, open_only: bool = False, limit: int = SHOWN) -> list[PlanStatus]:
        """The newest plans first."""
        states = OPEN if open_only else None
        return self._ask(lambda one: one.plans(states=states, limit=limit), [])

    def counts(self) -> dict[str, int]:
        """How many plans are in each state."""
        return self._ask(lambda one: {str(k): n for k, n in one.counts().items()}, {})

    def decide(self, plan: str, *, approve: bool, by: str, note: str = "") -> PlanStatus:
        """Approve or reject a plan.

        Raises `AbsentError`, or `ConflictError` if its state does not allow that any more.
        """
        if not self.path.exists():
            raise AbsentError(f"no plan {plan!r}: no plan has been recorded yet.")
        with self._lock, Record(self.path) as record:
            try:
                status = record.plan(plan)
            except StateError as error:
                raise AbsentError(str(error)) from None
            try:
                decide = record.approve if approve else record.reject
                return decide(status.plan.id, by=by, note=note)
            except StateError as error:
                raise ConflictError(str(error)) from None

    def _ask(self, question: Callable[[Record], T], without: T) -> T:
        if not self.path.exists():
            return without
        with self._lock, Record(self.path, read_only=True) as record:
            return question(record)
