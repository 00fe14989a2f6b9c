"""The job history that the settings name, and the Scheduling Advisor on it."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from schedmate.errors import InputError, UsageError
from schedmate.jobs import Estimate, JobRecord, LaunchConfig, WorkloadMetadata
from schedmate.settings import Settings

if TYPE_CHECKING:
    from schedmate.retrieval.advisor import SchedulingAdvisor
    from schedmate.retrieval.embedders import Embedder
    from schedmate.retrieval.history import JobHistory


def embedder_of(settings: Settings) -> Embedder:
    """The embedder that the settings name; raises what `load_embedder` raises."""
    from schedmate.retrieval.embedders import load_embedder

    return load_embedder(
        settings.embedder, model=settings.embedder_model, base_url=settings.embedder_base_url
    )


class Advice:
    """Opened when first needed; may be used from any thread."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._opened: tuple[JobHistory, SchedulingAdvisor] | None = None
        self._closed = False

    def close(self) -> None:
        """Close the history; whoever asks later gets `UsageError`. May be repeated."""
        with self._lock:
            self._closed = True
            opened, self._opened = self._opened, None
        if opened is not None:
            opened[0].close()

    def prepare(self, *, create: bool) -> None:
        """Open the history and load what makes vectors, if it can be loaded before it is used."""
        opened = self.open(create=create)
        prepare = None if opened is None else getattr(opened[0].embedder, "prepare", None)
        if prepare is not None:
            prepare()

    def open(self, *, create: bool) -> tuple[JobHistory, SchedulingAdvisor] | None:
        """The history and the advisor on it; None when there is no history and none is wanted."""
        with self._lock:
            if self._closed:
                raise UsageError("this SchedMate is closed; make a new one.")
            if self._opened is None:
                from schedmate.retrieval.history import DATABASE
                from schedmate.retrieval.stores import open_history

                settings, place = self.settings, self.settings.history
                here = not isinstance(place, str)
                if here and not create and not (Path(place) / DATABASE).exists():
                    return None
                from schedmate.retrieval.advisor import SchedulingAdvisor

                history = open_history(
                    place,
                    embedder_of(settings),
                    create=create,
                    read_only=not create and here and not os.access(place, os.W_OK),
                    poll=True,
                )
                advisor = SchedulingAdvisor(
                    history,
                    threshold=settings.threshold,
                    k=settings.top_k,
                    method=settings.method,
                )
                self._opened = history, advisor
            return self._opened

    def estimate(
        self, metadata: WorkloadMetadata, launch: LaunchConfig, now: float | None
    ) -> tuple[Estimate, int]:
        """The advisor's estimate at the time `now` [s since epoch], and how many jobs it knows."""
        opened = self.open(create=False)
        if opened is None:
            return Estimate(reason=f"there is no history at {self.settings.history} yet"), 0
        history, advisor = opened
        return advisor.estimate(metadata, launch, now), len(history)

    def store(self, record: JobRecord) -> str:
        """Add a record to the history; gives its job id.

        A pending job of the same id is replaced. Raises `InputError` when the history cannot be
        written or says that the job of that id has ended.
        """
        opened = self.open(create=True)
        assert opened is not None
        history = opened[0]
        with self._writing:
            known = history.get(record.job_id)
            if known is not None and known.ended:
                raise InputError(
                    f"job {record.job_id} is in the history as {known.state}; "
                    "record this one under another job id."
                )
            history.add(record)
        return record.job_id

    def learn(self, records: Sequence[JobRecord]) -> None:
        """Add jobs that have ended; those of the same ids are replaced.

        Raises `InputError` when the history cannot be written.
        """
        opened = self.open(create=True)
        assert opened is not None
        with self._writing:
            opened[0].add_many(records)
