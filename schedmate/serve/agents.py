"""What an agent of this machine knows, for the dashboard: read from its files, never written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from schedmate.base.errors import InputError
from schedmate.cluster import MEMORY_FILE, RECORD_FILE
from schedmate.cluster.expected import STARTS
from schedmate.cluster.memory import Memory
from schedmate.cluster.record import Record
from schedmate.cluster.report import Failed
from schedmate.cluster.usage import USED
from schedmate.jobs import JobRecord, JobSpec
from schedmate.serve.board import Advised, Diagnosed, Heard, Tracked, Update

BACK_S = 86_400.0
"""How far the first look goes back [s]."""


class AgentNews:
    """What is new in an agent's memory and record since the last look.

    An agent that has not run yet, or whose files are being replaced, has no news.
    """

    def __init__(self, folder: Path, now: float) -> None:
        self._folder = folder
        self._since = now - BACK_S
        self._read: dict[str, float] = {}
        self._entry = 0
        self.starts: dict[str, dict[str, float | None]] = {}
        """When waiting jobs are expected to start: `expected.STARTS`."""
        self.used: dict[str, dict[str, float | None]] = {}
        """What running jobs use: `usage.USED`."""

    def look(self, now: float) -> list[Update]:
        """The updates of the board that follow, the oldest kind first: estimates, progress,
        failures, ends."""
        found: list[Update] = []
        with suppress(InputError), Memory(self._folder / MEMORY_FILE, read_only=True) as memory:
            found += self._of_memory(memory)
            self.starts = memory.mark(STARTS) or {}
            self.used = memory.mark(USED) or {}
        with suppress(InputError), Record(self._folder / RECORD_FILE, read_only=True) as record:
            found += self._of_record(record)
        self._since = now
        return found

    def _of_memory(self, memory: Memory) -> Iterator[Update]:
        for known in memory.recent(self._since):
            spec = known.spec.model_copy(update={"job_id": _job(known.key)})
            yield Advised(spec, known.estimate, known.at)
        for job, (at, progress) in memory.progress().items():
            if self._read.get(job) != at:
                self._read[job] = at
                yield Tracked(JobSpec(job_id=job), progress, at, None, None, follow=False)
        for run in memory.checked(self._since):
            record = JobRecord(
                job_id=_job(run.run), user=run.user, state=run.state,
                duration_s=run.took_s, end_time=run.ended,
            )  # fmt: skip
            yield Heard(record, run.ended)

    def _of_record(self, record: Record) -> Iterator[Update]:
        for entry in record.entries(after=self._entry, kind="failure"):
            self._entry = entry.seq
            with record.parsing(entry.seq):
                failed = Failed.model_validate(entry.body)
            if failed.diagnosis is not None and entry.at.time >= self._since - BACK_S:
                spec = JobSpec(job_id=failed.job, node_names=list(failed.nodes))
                yield Diagnosed(spec, failed.diagnosis, entry.at.time)


def _job(key: str) -> str:
    """The scheduler's id in the key of a submission or run."""
    return key.partition("@")[0]
