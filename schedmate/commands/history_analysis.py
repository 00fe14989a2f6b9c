"""Semantic metadata for accounting rows, from the directory each job was submitted in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from schedmate.base.errors import SchedmateError
from schedmate.base.journal import Journal, Memo
from schedmate.base.spread import spread
from schedmate.jobs import JobRecord, JobSpec, WorkloadMetadata
from schedmate.readers import Readers

BUDGET_S = 10.0
"""CPU time of one repository [s]."""
CACHE_SIZE = 4096
"""Repositories of which a process remembers what it found."""
MOST = 100
"""Records of one task of a Ray cluster: a repository takes far longer than a task costs."""

NOTHING = ""
"""Stands for the metadata of a record whose code cannot be read or is not named."""


@dataclass(frozen=True, slots=True)
class Row:
    """A record as it was read, and the directory in which its command was typed."""

    index: int
    record: JobRecord
    workdir: str | None

    @property
    def key(self) -> str:
        """A key that is equal for equal metadata; `NOTHING` without metadata."""
        record = self.record
        if not self.workdir or not record.command:
            return NOTHING
        return f"{self.workdir}\0{record.command}\0{record.launch.model_dump_json()}"


class Workdirs:
    """What an importer calls for each record, just before it gives that record."""

    def __init__(self) -> None:
        self.last: str | None = None

    def __call__(self, record: JobRecord, workdir: str | None) -> JobRecord:
        """The record, unchanged; sets `last` to the working directory of its job."""
        self.last = workdir
        return record


class MetadataCache:
    """The metadata read from repositories: in a journal, or the last few thousand in memory."""

    def __init__(self, journal: Journal | None) -> None:
        self._journal = journal
        self._in_memory: dict[str, str] = {}

    def get(self, key: str) -> str | None:
        """The stored metadata (JSON) of a key, or None."""
        if key == NOTHING:
            return NOTHING
        metadata = self._in_memory.get(key)
        if metadata is None and self._journal is not None:
            metadata = self._journal.get(key)
        return metadata

    def put(self, key: str, result: str) -> None:
        """Store the metadata (JSON) of a key, unless it has some already."""
        if key in self._in_memory:
            return
        if len(self._in_memory) >= CACHE_SIZE:
            self._in_memory.pop(next(iter(self._in_memory)))
        self._in_memory[key] = result
        if self._journal is not None and result:
            self._journal.put(key, result)


class Extractor:
    """Reads repositories in one process of a pool; pickled as its memory limit [MiB] alone."""

    def __init__(self, memory_mb: int) -> None:
        self._memory_mb = memory_mb

    @cached_property
    def _readers(self) -> Readers:
        return Readers(self._memory_mb)

    @cached_property
    def _results(self) -> dict[str, str]:
        return {}

    def __getstate__(self) -> dict[str, Any]:
        return {"_memory_mb": self._memory_mb}

    def close(self) -> None:
        """End the confined processes of this process."""
        self._readers.close()

    def metadata(self, row: Row) -> str:
        """The metadata (JSON) in the code of a row's job; `NOTHING` if there is no code to read.

        The repository is read as it is now, which may not be as it was when the job ran. One result
        is kept per directory, command and launch, so that a thousand resubmissions cost one.
        """
        if row.key not in self._results:
            if len(self._results) >= CACHE_SIZE:
                self._results.pop(next(iter(self._results)))
            self._results[row.key] = self._read(row)
        return self._results[row.key]

    def _read(self, row: Row) -> str:
        assert row.workdir is not None
        record = row.record
        try:
            if not Path(row.workdir).is_dir():
                return NOTHING
            spec = JobSpec(repo=row.workdir, command=record.command, launch=record.launch)
            extraction = self._readers.extract(spec, BUDGET_S)
        except (SchedmateError, OSError):
            return NOTHING
        return extraction.metadata.model_dump_json(by_alias=True)


class RepositoryAnalysis:
    """Fills the metadata of many records; `analysed` and `skipped` count them.

    In `at_once` processes of this machine, or on the Ray cluster at the address `ray`, whose
    machines must see the directories under the same paths.
    """

    def __init__(
        self,
        memory_mb: int,
        *,
        at_once: int = 1,
        ray: str | None = None,
        journal: Journal | None = None,
    ) -> None:
        self.analysed = 0
        self.skipped = 0
        self.overtaken = 0
        """Records that were left out for later ones of the same job, which were done before."""
        self._extractor = Extractor(memory_mb)
        self._at_once = at_once
        self._ray = ray
        self._cache = MetadataCache(journal)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._extractor.close()

    def __call__(self, jobs: Iterable[tuple[JobRecord, str | None]]) -> Iterator[JobRecord]:
        """The records with metadata where there was something to read, as they are done.

        `jobs` are records with the directories in which their commands were typed. Of several
        records of one job the last one comes last.
        """
        rows = (Row(number, *job) for number, job in enumerate(jobs))
        memo: Memo[Row, str] = Memo(self._cache, lambda row: row.key, str, str)
        results = spread(
            _work,
            rows,
            self._extractor,
            threads=None if self._ray else self._at_once,
            ray=self._ray,
            memo=memo,
            most=MOST,
        )
        latest: dict[str, int] = {}
        for row, text in results:
            if text:
                self.analysed += 1
            else:
                self.skipped += 1
            if latest.get(row.record.job_id, -1) > row.index:
                self.overtaken += 1
                continue
            latest[row.record.job_id] = row.index
            yield row.record.model_copy(update={"metadata": _of(text)}) if text else row.record


def _work(row: Row, extractor: Extractor) -> str:
    return extractor.metadata(row)


def _of(text: str) -> WorkloadMetadata:
    return WorkloadMetadata.model_validate_json(text)
