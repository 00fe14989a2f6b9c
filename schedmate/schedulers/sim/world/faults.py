"""Failures of jobs: when an attempt fails, and whether the job is restarted."""

from __future__ import annotations

from typing import NamedTuple


class Failure(NamedTuple):
    """One attempt of a job has failed. Work is in the unit of the physics."""

    job: int
    """Position in the workload."""
    time: float
    """[s]"""
    attempt: int
    """How many failed before."""
    done: float
    """Work done up to then."""
    saved: float
    """The part of it that the last checkpoint holds."""
    node: int | None
    """The node that failed under it; None: the job failed by itself."""


class Again(NamedTuple):
    """The job is submitted again."""

    wait_s: float
    """Time until then, taken by a handler or its user [s]."""
    work: float
    """Work that it resumes from, at most the work done."""


class Faults:
    """Base of what fails jobs, and the ordinary world: only nodes fail, and take jobs with them."""

    def fails_at(self, job: int, attempt: int) -> float:
        """Work at which this attempt fails by itself; infinity: not at all.

        Called when the attempt is submitted. A value below the work it resumes from makes it fail
        as soon as it runs.
        """
        return float("inf")

    def after(self, failure: Failure) -> Again | None:
        """When and from where the job restarts after a failure; None if it ends."""
        return Again(0.0, failure.saved)


ORDINARY = Faults()
