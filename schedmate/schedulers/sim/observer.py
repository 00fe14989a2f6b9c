"""Watching a simulation: for what reads logs or keeps books beside it."""

from __future__ import annotations

from typing import Protocol

from schedmate.schedulers.model import Job


class Watch(Protocol):
    """What a simulation lets its observers see and do."""

    @property
    def now(self) -> float:
        """The clock [s]."""
        ...

    def work_done(self, job: Job) -> float:
        """Work done so far, in the unit of the physics. The truth: no policy may be told it."""
        ...

    def speed(self, job: Job) -> float:
        """Work a second from now on; 0 while it waits or restarts."""
        ...

    def wake(self, observer: Observer, job: Job, at: float) -> None:
        """Have `observer.woken(job)` called at `at` [s], whatever becomes of the job meanwhile."""
        ...

    def changed(self, job: Job | None = None) -> None:
        """Something that the policy sees has changed: it decides again at this instant.

        With `job`, the job's lane and rank are asked for anew, as its forecast may be another.
        """
        ...

    def repace(self, job: Job) -> None:
        """The speed of a running job is another from now on: its physics is asked again."""
        ...


class Observer:
    """Base of every observer: override what is to be noticed. Nothing here returns anything."""

    watch: Watch

    def attach(self, watch: Watch) -> None:
        """A simulation begins."""
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
        """It lost its GPUs and perhaps work; not `again`: this was its end."""

    def ended(self, job: Job) -> None:
        """It has done its work."""

    def woken(self, job: Job) -> None:
        """The time asked for by `watch.wake` has come."""
