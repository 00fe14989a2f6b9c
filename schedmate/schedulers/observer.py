"""Watching jobs as they are scheduled: for what reads logs or keeps books beside a policy."""

from __future__ import annotations

from typing import Any, Protocol

from schedmate.schedulers.model import Job


class Watch(Protocol):
    """The interface of a simulation or a cluster to its observers."""

    @property
    def now(self) -> float:
        """The clock [s]."""
        ...

    def wake(self, observer: Any, job: Job, at: float) -> None:
        """Have `observer.woken(job)` called at `at` [s], whatever becomes of the job meanwhile."""
        ...

    def changed(self, job: Job | None = None) -> None:
        """Something that the policy sees has changed: it decides again at this instant.

        With `job`, the job's lane and rank are asked for anew, as its forecast may be another.
        """
        ...


class Observer:
    """Base of every observer: override what is to be noticed. Nothing here returns anything."""

    watch: Watch

    def attach(self, watch: Any) -> None:
        """Jobs begin to come."""
        self.watch = watch

    def submitted(self, job: Job) -> None:
        """It waits for the first time, or again after a failure."""

    def started(self, job: Job) -> None:
        """It has GPUs, alone or beside `job.partner`; after a move or resize too."""

    def packed(self, job: Job) -> None:
        """It ran alone and now shares its GPUs with `job.partner`."""

    def unpacked(self, job: Job) -> None:
        """Its partner has left; it runs on alone."""

    def stopped(self, job: Job) -> None:
        """It lost its GPUs before it was done: it waits, or is about to start elsewhere."""

    def failed(self, job: Job, *, again: bool) -> None:
        """It lost its GPUs and perhaps work, or was given up; not `again`: this was its end."""

    def ended(self, job: Job) -> None:
        """It has done its work."""

    def woken(self, job: Job) -> None:
        """The time asked for by `watch.wake` has come."""
