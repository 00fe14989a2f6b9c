"""Observers of a simulation, who can see more than those of a cluster."""

from __future__ import annotations

from typing import Any, Protocol

from schedmate.schedulers import observer
from schedmate.schedulers.model import Job


class Watch(observer.Watch, Protocol):
    """The interface of a simulation to its observers."""

    def work_done(self, job: Job) -> float:
        """Work done so far, in the unit of the physics; the truth, which no policy may use."""
        ...

    def speed(self, job: Job) -> float:
        """Work a second from now on; 0 while it waits or restarts."""
        ...

    def repace(self, job: Job) -> None:
        """Report that the speed of a running job changes: its physics is asked again."""
        ...


class Observer(observer.Observer):
    """Base of observers that make up the world of a simulation, or its logs."""

    watch: Watch

    def attach(self, watch: Any) -> None:
        """A simulation begins."""
        self.watch = watch
