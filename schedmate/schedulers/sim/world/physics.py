"""How fast jobs progress and what moving them costs: replaceable, the engine only keeps count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from schedmate.schedulers.model import Allocation, Profile, gpus_in
from schedmate.schedulers.sim.parameters import Parameters
from schedmate.schedulers.sim.workload import Workload

FOREVER = float("inf")


class Physics(Protocol):
    """The truth about the progress of jobs, which no policy sees.

    Work is counted in whatever unit the physics chooses (seconds alone on the GPUs asked for,
    iterations); the engine adds it up and hands it back. Jobs are given by position in the
    workload, partners too.
    """

    @property
    def work(self) -> Sequence[float]:
        """Work that each job needs."""
        ...

    def pace(
        self, job: int, done: float, allocation: Allocation, partner: int | None
    ) -> tuple[float, float]:
        """Speed [work / s], and the amount of done work up to which it holds.

        Asked whenever a job's GPUs or partner change, and again when that amount is reached, so a
        speed that depends on progress costs one event a change and is exact. It must be more than
        `done`; infinity: until the end.
        """
        ...

    def restart_s(self, job: int, allocation: Allocation, previous: Allocation) -> float:
        """Time for which the job holds `allocation` before it makes progress [s].

        `previous` is what it held before; empty when it starts anew.
        """
        ...

    def saved(self, job: int, done: float, since: float) -> float:
        """Work that survives a failure; `since` of it was done before the present allocation."""
        ...


class TracePhysics:
    """Work is seconds of the trace: 1 a second alone, less beside another (`Parameters`)."""

    def __init__(self, workload: Workload, parameters: Parameters) -> None:
        self.work: Sequence[float] = workload.duration_s
        self._workload = workload
        self._parameters = parameters
        self._jobs = workload.jobs

    def pace(
        self, job: int, done: float, allocation: Allocation, partner: int | None
    ) -> tuple[float, float]:
        """Slower beside a partner; an elastic job by a power of its GPUs."""
        if partner is not None:
            configs = self._workload.configs
            one, two = sorted((job, partner))
            pair = (configs[one], configs[two]) if configs else ("", "")
            speeds = self._parameters.interference.speeds(
                self.profile(one), self.profile(two), pair
            )
            return speeds[job != one], FOREVER
        one_job = self._jobs[job]
        if not one_job.min_gpus:
            return 1.0, FOREVER
        gpus = gpus_in(allocation)
        return float((gpus / one_job.gpus) ** self._parameters.scaling), FOREVER

    def profile(self, job: int) -> Profile | None:
        """What the job uses; None: the trace does not say."""
        return self._workload.profiles[job]

    def restart_s(self, job: int, allocation: Allocation, previous: Allocation) -> float:
        """Only what goes on after a stop is charged."""
        return self._parameters.restart(self._jobs[job].gpus) if previous else 0.0

    def saved(self, job: int, done: float, since: float) -> float:
        """What the last checkpoint holds; a stop on purpose makes one too."""
        terms, every = self._jobs[job].terms, self._parameters.checkpoint_s
        if terms is not None and terms.checkpoint_s is not None:
            every = terms.checkpoint_s
        return max(since, done - done % every)
