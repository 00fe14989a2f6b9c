"""Semantic metadata for accounting rows, from the directory each job was submitted in."""

from __future__ import annotations

from pathlib import Path

from schedmate.agent.extraction import Extraction
from schedmate.errors import SchedmateError
from schedmate.jobs import JobRecord, JobSpec, LaunchConfig
from schedmate.readers import Readers

_CACHE_SIZE = 4096


class RepositoryAnalyser:
    """Runs static extraction for a record whose working directory still exists here.

    The repository is read as it is now, which may not be as it was when the job ran; that is why
    an import does it only when asked. One result is kept per (directory, command, launch), so a
    thousand resubmissions cost one analysis. `analysed` and `skipped` count records.
    """

    def __init__(self, readers: Readers, budget_s: float = 10.0) -> None:
        self.analysed = 0
        self.skipped = 0
        self._readers = readers
        self._budget_s = budget_s
        self._seen: dict[tuple[str, str, str], Extraction | None] = {}

    def __call__(self, record: JobRecord, workdir: str | None) -> JobRecord:
        """The record with metadata, or unchanged where there is nothing to analyse."""
        extraction = None
        if workdir and record.command:
            key = (workdir, record.command, record.launch.model_dump_json())
            if key not in self._seen:
                if len(self._seen) >= _CACHE_SIZE:
                    self._seen.pop(next(iter(self._seen)))
                self._seen[key] = self._extract(Path(workdir), record.command, record.launch)
            extraction = self._seen[key]
        if extraction is None:
            self.skipped += 1
            return record
        self.analysed += 1
        return record.model_copy(update={"metadata": extraction.metadata})

    def _extract(self, repo: Path, command: str, launch: LaunchConfig) -> Extraction | None:
        if not repo.is_dir():
            return None
        try:
            return self._readers.extract(
                JobSpec(repo=str(repo), command=command, launch=launch), self._budget_s
            )
        except (SchedmateError, OSError):
            return None
