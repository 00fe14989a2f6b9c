"""GPU use that changes while a job runs. A trace states one figure for each job; this varies it."""

from __future__ import annotations

import random
from dataclasses import dataclass, fields

from schedmate.errors import UsageError
from schedmate.schedulers.model import Allocation, Cluster, Job, Profile
from schedmate.schedulers.sim.observer import Observer
from schedmate.schedulers.sim.parameters import Parameters
from schedmate.schedulers.sim.workload import Workload
from schedmate.schedulers.sim.world.physics import FOREVER, TracePhysics


@dataclass(frozen=True)
class Phases:
    """Jobs that warm up and then use more; `share=0.3,rise=40` sets some parameters.

    All of it is an assumption: Lucid (section 3.3) evicts packed jobs of unstable use without
    saying how many there are, and no available trace has use over time.
    """

    share: float = 0.2
    """Share of jobs whose GPU utilisation changes: an assumption."""
    rise: float = 50.0
    """By how much it rises then, to 100 % at most: an assumption [percentage points]."""
    latest: float = 0.5
    """Largest share of its work that such a job has done by then, drawn uniformly: an
    assumption."""

    @classmethod
    def parse(cls, text: str) -> Phases:
        """Parse `share=0.3,rise=40,latest=0.2`; raises `UsageError` for anything else."""
        limits = {"share": 1.0, "rise": 100.0, "latest": 1.0}
        values = {}
        for part in filter(None, text.split(",")):
            key, _, value = part.partition("=")
            try:
                values[key] = float(value)
                if not 0.0 <= values[key] <= limits[key]:
                    raise ValueError(key)
            except (KeyError, ValueError):
                known = ", ".join(f"{one.name}={one.default:g}" for one in fields(cls))
                raise UsageError(
                    f"--phases: {part!r} is not a setting; there are {known} (rise in percentage "
                    "points, the others from 0 to 1)."
                ) from None
        return cls(**values)


class ChangingUse(TracePhysics, Observer):
    """`TracePhysics` in which the GPU use of some jobs increases at some point of their work.

    The policy sees it, as a monitor of a cluster's GPUs would: `Job.profile` is the present use,
    and `Job.unstable` means that it has changed. The seed determines the jobs and times, whatever
    the policy.
    """

    def __init__(
        self,
        workload: Workload,
        parameters: Parameters,
        phases: Phases,
        seed: int = 0,
        cluster: Cluster | None = None,
    ) -> None:
        super().__init__(workload, parameters, cluster)
        self._changes: dict[int, tuple[float, Profile]] = {}
        self._changed: set[int] = set()
        for job, profile, work in zip(workload.jobs, workload.profiles, self.work, strict=True):
            draw = random.Random(f"{seed}/phase/{job.id}")  # noqa: S311 - an experiment
            if profile is None or draw.random() >= phases.share:
                continue
            later = profile._replace(gpu_util=min(100.0, profile.gpu_util + phases.rise))
            self._changes[job.index] = (draw.uniform(0.0, phases.latest) * work, later)

    def profile(self, job: int) -> Profile | None:
        """The job's present use."""
        return self._changes[job][1] if job in self._changed else super().profile(job)

    def pace(
        self, job: int, done: float, allocation: Allocation, partner: int | None
    ) -> tuple[float, float]:
        """As of what both use now, until the job itself changes."""
        until, change = FOREVER, self._changes.get(job)
        if change is not None:
            # A failure can throw a job back to before.
            self._changed.discard(job)
            if done < change[0]:
                until = change[0]
            else:
                self._changed.add(job)
                self.watch.wake(self, self._jobs[job], self.watch.now)
        speed, _ = super().pace(job, done, allocation, partner)
        return speed, until

    def stopped(self, job: Job) -> None:
        """An evicted job may be placed again immediately."""
        self.watch.changed()

    def woken(self, job: Job) -> None:
        """The job's use changes: its partner slows down, and the policy sees it."""
        if not job.allocation or job.profiling or job.index not in self._changed:
            return
        profile = self.profile(job.index)
        if job.profile == profile:
            return
        job.profile, job.unstable = profile, True
        if job.partner is not None:
            self.watch.repace(job.partner)
        self.watch.changed(job)
