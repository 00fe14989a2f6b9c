"""Where adapters get their knowledge of jobs: a live cluster implements the same as a simulation.

`simulated.py` has those of a simulation; `LogFiles` reads the logs of a real cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from schedmate.jobs import Progress
from schedmate.logparse.progress.tracker import NOTHING, track
from schedmate.logparse.reading import Log, LogError, open_log
from schedmate.schedulers.model import Job

if TYPE_CHECKING:
    from schedmate.jobs import WorkloadMetadata


class MetadataSource(Protocol):
    """A source of jobs' metadata."""

    def metadata_of(self, job: Job) -> WorkloadMetadata | None:
        """Metadata of one job; None: unknown."""
        ...

    def known_metadata(self) -> Iterable[WorkloadMetadata]:
        """All metadata that is known beforehand, which is embedded at once. Empty on a live
        cluster."""
        ...


class Window(Protocol):
    """Part of a job's log during which its circumstances did not change."""

    def progress(self) -> Progress:
        """The Metric Tracker's reading of it; the log is read when this is called."""
        ...


class LogSource(Protocol):
    """The logs of jobs while they run."""

    def kind_of(self, job: Job) -> str:
        """The workload that the job is a run of: jobs of one kind are equally fast alone."""
        ...

    def mark(self, job: Job) -> None:
        """The job runs differently from now on: it has started, got company, or is alone again."""
        ...

    def window(self, job: Job) -> Window:
        """What the job has written since the last `mark`, with all before it to compare."""
        ...

    def alone(self, job: Job) -> Window | None:
        """The window of a past job of this workload that ran alone; None: too little to measure its
        speed."""
        ...


class FailureLogs(Protocol):
    """The logs that failed jobs leave."""

    def of_failure(self, job: str, attempt: int) -> Log | None:
        """The log of an attempt, counted from 0, of the job with this id; None: there is none."""
        ...


def track_file(path: Path, since: int) -> Progress:
    """The Metric Tracker's answer about a file from this offset on [bytes].

    Untrusted logs are better read in a confined process (`schedmate.readers`).
    """
    try:
        with open_log(path) as log:
            return track(log.files[0], since=since)
    except LogError as error:
        return Progress(reason=str(error))


@dataclass(frozen=True)
class FileWindow:
    """A file from an offset on [bytes]."""

    path: Path
    since: int
    read: Callable[[Path, int], Progress] = track_file

    def progress(self) -> Progress:
        """See `Window`."""
        return self.read(self.path, self.since)


class LogFiles:
    """The logs of a live cluster: a `LogSource` over growing files.

    Args:
        path_of: the log file of a job; None: unknown.
        kind_of: see `LogSource`; by default each job is a workload of its own.
        read: reads a file from an offset on.
    """

    def __init__(
        self,
        path_of: Callable[[Job], Path | None],
        kind_of: Callable[[Job], str] = lambda job: job.id,
        read: Callable[[Path, int], Progress] = track_file,
    ) -> None:
        self._path_of = path_of
        self._kind_of = kind_of
        self._read = read
        self._marks: dict[str, int] = {}

    def kind_of(self, job: Job) -> str:
        """See `LogSource`."""
        return self._kind_of(job)

    def mark(self, job: Job) -> None:
        """See `LogSource`."""
        path = self._path_of(job)
        try:
            self._marks[job.id] = 0 if path is None else path.stat().st_size
        except OSError:
            # The job has not written anything yet.
            self._marks[job.id] = 0

    def window(self, job: Job) -> Window:
        """See `LogSource`."""
        path = self._path_of(job)
        since = self._marks.get(job.id, 0)
        return _NoWindow() if path is None else FileWindow(path, since, self._read)

    def alone(self, job: Job) -> Window | None:
        """See `LogSource`."""
        found = self.window(job)
        self._marks.pop(job.id, None)
        return found if isinstance(found, FileWindow) and found.path.exists() else None


class _NoWindow:
    def progress(self) -> Progress:
        return Progress(reason=NOTHING)
