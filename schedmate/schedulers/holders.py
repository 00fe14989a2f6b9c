"""Which jobs hold GPUs of each node."""

from __future__ import annotations

from collections.abc import Iterable

from schedmate.schedulers.model import Job


class Holders:
    """Jobs by node, so that what concerns one node does not cost a look at every running job."""

    __slots__ = ("_jobs",)

    def __init__(self, running: Iterable[Job]) -> None:
        self._jobs: dict[int, dict[int, Job]] = {}
        for job in running:
            self.add(job)

    def on(self, node: int) -> list[Job]:
        """The jobs that hold GPUs of this node, in order of submission."""
        jobs = self._jobs.get(node, {})
        return [jobs[index] for index in sorted(jobs)]

    def add(self, job: Job) -> None:
        """The job has its allocation."""
        for node, _ in job.allocation:
            self._jobs.setdefault(node, {})[job.index] = job

    def remove(self, job: Job) -> None:
        """The job is about to lose it."""
        for node, _ in job.allocation:
            del self._jobs[node][job.index]
