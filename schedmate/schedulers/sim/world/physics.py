"""How fast jobs progress and what moving them costs: replaceable, the engine only keeps count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from schedmate.schedulers.model import Allocation, Cluster, Profile, gpus_in
from schedmate.schedulers.sim.parameters import Parameters
from schedmate.schedulers.sim.workload import Workload

FOREVER = float("inf")


class Physics(Protocol):
    """The truth about the progress of jobs, which no policy sees.

    Work is in any unit that the physics chooses (seconds alone on the requested GPUs, iterations);
    the engine only adds it up. Jobs and partners are given by position in the workload.
    """

    @property
    def work(self) -> Sequence[float]:
        """Work that each job needs."""
        ...

    def pace(
        self, job: int, done: float, allocation: Allocation, partner: int | None
    ) -> tuple[float, float]:
        """Speed [work / s], and the amount of work done up to which it holds.

        Called whenever a job's GPUs or partner change, and again when that amount is reached, so a
        speed that depends on progress is exact and costs one event for each change. The amount must
        be more than `done`; infinity: until the end.
        """
        ...

    def restart_s(self, job: int, allocation: Allocation, previous: Allocation) -> float:
        """Time for which the job holds `allocation` before it makes progress [s].

        `previous` is its last allocation; empty on its first start.
        """
        ...

    def saved(self, job: int, done: float, since: float) -> float:
        """Work that survives a failure; `since` of it was done before the present allocation."""
        ...


class TracePhysics:
    """Work is seconds of the trace: 1 per second alone, less beside another (`Parameters`).

    With `Parameters.spanning` a job on nodes of several of the cluster's switches is slower.
    """

    def __init__(
        self, workload: Workload, parameters: Parameters, cluster: Cluster | None = None
    ) -> None:
        self.work: Sequence[float] = workload.duration_s
        self._workload = workload
        self._parameters = parameters
        self._jobs = workload.jobs
        self._spanning = None if cluster is None else parameters.spanning
        self._switches = [node.switch for node in cluster.nodes] if cluster is not None else []
        self._communication = workload.columns.get("communication")

    @property
    def by_place(self) -> bool:
        """Whether the speed of a job depends on which GPUs it has."""
        return self._spanning is not None

    def pace(
        self, job: int, done: float, allocation: Allocation, partner: int | None
    ) -> tuple[float, float]:
        """Slower beside a partner and across switches; an elastic job by a power of its GPUs."""
        speed, until = self._pace(job, allocation, partner)
        if self._spanning is not None and len(allocation) > 1:
            first = self._switches[allocation[0][0]]
            if any(self._switches[node] != first for node, _ in allocation):
                said = self._communication
                speed *= self._spanning.speed(None if said is None else said[job])
        return speed, until

    def _pace(self, job: int, allocation: Allocation, partner: int | None) -> tuple[float, float]:
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
        """The job's use, or None if the trace has none."""
        return self._workload.profiles[job]

    def restart_s(self, job: int, allocation: Allocation, previous: Allocation) -> float:
        """Only a job that resumes after a stop is charged."""
        return self._parameters.restart(self._jobs[job].gpus) if previous else 0.0

    def saved(self, job: int, done: float, since: float) -> float:
        """Work in the last checkpoint; a deliberate stop makes one too."""
        terms, every = self._jobs[job].terms, self._parameters.checkpoint_s
        if terms is not None and terms.checkpoint_s is not None:
            every = terms.checkpoint_s
        return max(since, done - done % every)
