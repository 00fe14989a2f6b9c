"""Looking up jobs in the history, from several threads over one connection."""

from __future__ import annotations

import threading

from schedmate.jobs import JobRecord
from schedmate.retrieval.history import JobHistory
from schedmate.serve.errors import AbsentError


class Browsing:
    """A read-only history behind a lock."""

    def __init__(self, history: JobHistory) -> None:
        self._history = history
        self._lock = threading.Lock()

    def __len__(self) -> int:
        with self._lock:
            return len(self._history)

    def get(self, job_id: str) -> JobRecord | None:
        """The job with this id; None: there is none."""
        with self._lock:
            return self._history.get(job_id)

    def one(self, job_id: str) -> tuple[int, list[JobRecord]]:
        """Number of jobs, and the one with this id. Raises `AbsentError` if there is none."""
        found = self.get(job_id)
        if found is None:
            raise AbsentError(f"no job {job_id!r} in the history.")
        return len(self), [found]

    def page(
        self, limit: int, offset: int, state: str | None, user: str | None
    ) -> tuple[int, list[JobRecord]]:
        """Number of jobs, and some of them: newest first, of a state and user if given."""
        with self._lock:
            return len(self._history), self._history.list(limit, offset, state, user)
