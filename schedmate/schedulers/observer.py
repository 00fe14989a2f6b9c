"""Observers of scheduling, such as readers of logs beside a policy."""

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
        """Have `observer.woken(job)` called at `at` [s], whatever state the job is in by then."""
        ...

    def changed(self, job: Job | None = None) -> None:
        """Report that something in the policy's view has changed: it decides again now.

        With `job`, the job's lane and rank are computed again, as its forecast may have changed.
        """
        ...


class Observer:
    """Base of every observer: override the events of interest. No method returns anything."""

    watch: Watch

    def attach(self, watch: Any) -> None:
        """Jobs begin to come."""
        self.watch = watch

    def submitted(self, job: Job) -> None:
        """It waits for the first time, or again after a failure."""

    def started(self, job: Job) -> None:
        """The job got GPUs, alone or beside `job.partner`; also after a move or resize."""

    def packed(self, job: Job) -> None:
        """It ran alone and now shares its GPUs with `job.partner`."""

    def unpacked(self, job: Job) -> None:
        """Its partner has left; it runs on alone."""

    def stopped(self, job: Job) -> None:
        """It lost its GPUs before it was done: it waits, or is about to start elsewhere."""

    def failed(self, job: Job, *, again: bool) -> None:
        """The job lost its GPUs and perhaps work, or was dropped; without `again`, it is over."""

    def ended(self, job: Job) -> None:
        """It has done its work."""

    def woken(self, job: Job) -> None:
        """The time requested by `watch.wake` has come."""
