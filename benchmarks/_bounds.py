"""Modules that know the truth: what no better tracker could improve upon."""

from __future__ import annotations

from typing import ClassVar

from schedmate.schedulers.adapters.lucid import LucidWithSchedMate
from schedmate.schedulers.model import Job
from schedmate.schedulers.sim.equipment import Equipment, World
from schedmate.schedulers.sim.observer import Observer


class Knowing(Observer):
    """Tells the true slowdown of every pair, at once."""

    def packed(self, job: Job) -> None:
        """It ran alone and now shares its GPUs."""
        job.slowdown = self.watch.speed(job)
        self.watch.changed(job)

    def unpacked(self, job: Job) -> None:
        """It is alone again."""
        self.stopped(job)
        self.watch.changed(job)

    def stopped(self, job: Job) -> None:
        """It does not run."""
        job.slowdown = None


class KnowingLucid(LucidWithSchedMate):
    """Lucid with SchedMate, whose tracker is never wrong and never late."""

    name: ClassVar[str] = "lucid+schedmate"

    def equip(self, world: World) -> Equipment:
        """See `Equipped`."""
        self.tracker = False
        parts = super().equip(world)
        return parts._replace(observers=(*parts.observers, Knowing()))
