"""Modules that policies of benchmarks have: ones that know the truth, and a history on disk."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

from schedmate.retrieval.embedders import load_embedder
from schedmate.retrieval.history import JobHistory
from schedmate.schedulers.adapters.modules import Advisor
from schedmate.schedulers.adapters.policies import LucidWithSchedMate
from schedmate.schedulers.estimators import Estimator
from schedmate.schedulers.model import Job
from schedmate.schedulers.sim.workload import Workload
from schedmate.schedulers.sim.world import Equipment, SimulationObserver, World


class Knowing(SimulationObserver):
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


class StoredAdvisor(Advisor):
    """The advisor over the history that schedulers use, SQLite and FAISS, in a new folder."""

    def __init__(self, workload: Workload, fallback: Estimator | None = None, **how: Any) -> None:
        self.folder = TemporaryDirectory(prefix="history-")
        history = JobHistory.open(Path(self.folder.name) / "history.db", embedder=load_embedder())
        super().__init__(workload, fallback, history=history, **how)


class StoredLucid(LucidWithSchedMate):
    """Lucid with SchedMate whose advisor keeps its history on disk."""

    name: ClassVar[str] = "lucid+schedmate"
    advisor_type = StoredAdvisor
