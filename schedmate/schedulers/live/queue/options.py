"""Options of the queue."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from schedmate.schedulers.live.queue.requests import StoredJob
from schedmate.schedulers.terms import Capabilities

CAN = Capabilities(pin=False, overlap=False, borrow=False)
"""GPUs of a node are equal, jobs move by stopping, and there are no virtual clusters to borrow
from."""


def unchanged(stored: StoredJob) -> str:
    """The command as it was submitted: it finds its newest checkpoint by itself."""
    return stored.request.spec.command or ""


class Options(NamedTuple):
    """Settings of a queue; times in [s]."""

    folder: Path
    """Logs, and how commands ended; on a file system that all nodes share."""
    lease_s: float = 60.0
    """Lease of a command: without contact to its runner for this time it ends, and if its node is
    lost, it is not started elsewhere before [s]."""
    keep_s: float = 30.0
    """How long a runner is kept for the next job."""
    start_s: float = 120.0
    """Time within which Ray must provide GPUs that should be free."""
    advise_s: float = 10.0
    """How long a new job waits for its estimate."""
    again_s: float = 5.0
    """Pause before a start that failed is tried again, doubled each time."""
    most_losses: int = 10
    """Times a job is started again after the cluster has lost it."""
    late_s: float = 180.0
    """After which a decision that has not been carried out counts as late."""
    can: Capabilities = CAN
    resume: Callable[[StoredJob], str] = unchanged
    """The command that resumes a job that has run before."""

    @property
    def logs(self) -> Path:
        """A folder for each job."""
        return self.folder / "logs"

    @property
    def claims(self) -> Path:
        """Locks of jobs."""
        return self.folder / "claims"
