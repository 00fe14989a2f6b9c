"""Elastic jobs that progress by measured tables, with agents that learn from observations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from schedmate.errors import InputError
from schedmate.schedulers.goodput import Agent, Observation
from schedmate.schedulers.goodput.agent import Batch, Shape
from schedmate.schedulers.model import Allocation, Cluster, Job
from schedmate.schedulers.sim.elastic.tables import Application
from schedmate.schedulers.sim.observer import Observer
from schedmate.schedulers.sim.parameters import Parameters
from schedmate.schedulers.sim.world.physics import FOREVER

PROFILED_BATCHES = 10
"""Batch sizes measured on each type in a profile, spaced geometrically (Sia, section 3.2)."""

_PUBLISHED_ROUND_S = 60.0
"""The published simulator steps jobs from round to round, and agents learn at the end of one."""

_CLOCK_S = 1e-6
"""Sums of times are exact to this, over years."""


class TablePhysics(Observer):
    """Work is progress in iterations of the initial batch size, summed over epochs.

    A job's agent observes what a real one would: the step times of configurations in which the job
    has run for `Parameters.report_s`, and its gradient in the present epoch. In the published mode
    it also knows the true ratio of the speeds of single GPUs, moves between equal nodes cost
    nothing, and its reports come at the end of each round.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        applications: Sequence[Application],
        batches: Sequence[int | None],
        cluster: Cluster,
        parameters: Parameters,
        asked: Sequence[int | None] | None = None,
    ) -> None:
        """Args:
            jobs: in order of submission.
            applications: one for each job.
            batches: the fixed global batch size of each job; None: it may choose.
            asked: the global batch size of each request, which the published scheduler assumes.
            cluster: its GPU types are those of the tables.
            parameters: `sia_oracle` is the published mode.

        Raises `InputError` if no table has the speed of a job on any GPU type of the cluster.
        """
        self.jobs = jobs
        self.applications = applications
        self.cluster = cluster
        self.published = parameters.sia_oracle
        self.free_profiles = parameters.profiling_is_free and not self.published
        self._report_s = parameters.report_s
        self.work: Sequence[float] = [one.work for one in applications]
        self.agents = [
            self._agent(application, batch, wanted)
            for application, batch, wanted in zip(
                applications, batches, asked or [None] * len(batches), strict=True
            )
        ]
        self._running: dict[int, tuple[Shape, Batch]] = {}
        self._stopped: dict[int, float] = {}
        self._profiling: dict[int, Allocation] = {}
        self._begun: dict[int, tuple[str, float]] = {}

    def _agent(self, application: Application, batch: int | None, asked: int | None) -> Agent:
        types = {node.gpu_type for node in self.cluster.nodes}
        limits = {name: one.limits for name, one in application.steps.items() if name in types}
        if not limits:
            raise InputError(
                f"{application.name} was measured on {', '.join(application.steps)}, and the "
                f"cluster has {', '.join(sorted(types)) or 'no GPU types'}; write a cluster as "
                f"6x4:{min(application.steps)}."
            )
        return Agent(
            limits,
            initial_batch=application.batches[0],
            largest_batch=application.batches[-1],
            fixed_batch=batch,
            offered_batch=asked if self.published and application.counts_on_asked else None,
            restart_s=application.told_s if self.published else application.rescale_s,
            ratios={name: application.alone(name) for name in limits} if self.published else None,
        )

    # Physics.

    def pace(
        self, job: int, done: float, allocation: Allocation, partner: int | None
    ) -> tuple[float, float]:
        """The speed by the tables, until the epoch ends or the agent reports a measurement."""
        if job in self._profiling:
            return 0.0, FOREVER
        application, agent = self.applications[job], self.agents[job]
        shape, counts = self._shape(allocation)
        if shape.gpu_type not in application.steps:
            return 0.0, FOREVER
        epoch = application.epoch(done)
        if job in self._running:
            before, batch = self._running[job]
            self._observe(job, before, counts, batch)
            agent.set_noise(*application.noise(self._total(job, shape, batch), epoch))
        elif agent.noise is None:
            agent.set_noise(*application.noise(application.batches[0], epoch))
        batch = agent.batch(shape) or Batch(agent.limits[shape.gpu_type].smallest, 0)
        self._running[job] = (shape, batch)
        total = self._total(job, shape, batch)
        agent.set_noise(*application.noise(total, epoch))
        accumulation, step = application.steps[shape.gpu_type].times(counts, batch.size)
        seconds = (batch.steps * accumulation + step) * application.slowdown
        speed = float(agent.gain(total)) / seconds
        until = float(application.ends[epoch])
        if not self._is_known(job, shape, batch):
            until = min(until, done + speed * self._until_report_s(agent))
        return speed, until

    def _until_report_s(self, agent: Agent) -> float:
        """Time for which the job has to run until its agent knows its speed [s]."""
        if not self.published:
            return self._report_s
        left = _PUBLISHED_ROUND_S - max(self.watch.now, agent.restoring_until) % _PUBLISHED_ROUND_S
        # A round that ends within the rounding of the clock has ended: the next one counts.
        return left if left > _CLOCK_S else left + _PUBLISHED_ROUND_S

    def restart_s(self, job: int, allocation: Allocation, previous: Allocation) -> float:
        """The application's start time, also for its first start.

        In the published mode an immediate move to equal GPUs is free.
        """
        if self.jobs[job].profiling:
            self._profiling[job] = allocation
            return 0.0
        self._running.pop(job, None)
        agent = self.agents[job]
        moved = bool(previous) and self._stopped.get(job) == self.watch.now
        if moved and self.published and self._shape(allocation) == self._shape(previous):
            return 0.0
        if previous:
            agent.restarts += 1
        rescale_s = self.applications[job].rescale_s
        agent.restoring_until = self.watch.now + rescale_s
        return rescale_s

    def saved(self, job: int, done: float, since: float) -> float:
        """A checkpoint is made at the end of every epoch."""
        ends = self.applications[job].ends
        return max([since, *(float(end) for end in ends[ends <= done][-1:])])

    # Observer.

    def submitted(self, job: Job) -> None:
        """The job gets its agent, which knows nothing yet unless profiling is free."""
        agent = job.agent = self.agents[job.index]
        if self.free_profiles and not agent.models:
            self._measure(job.index, list(agent.limits))

    def started(self, job: Job) -> None:
        """Remember since when it holds which type."""
        self._begun[job.index] = (self._shape(job.allocation)[0].gpu_type, self.watch.now)

    def stopped(self, job: Job) -> None:
        """The job lost its GPUs; at the end of a profile, its agent knows the measurements."""
        index = job.index
        if index in self._begun:
            gpu_type, since = self._begun.pop(index)
            held = self.agents[index].held_s
            held[gpu_type] = held.get(gpu_type, 0.0) + self.watch.now - since
        self._stopped[index] = self.watch.now
        if index in self._profiling:
            nodes = [node for node, _ in self._profiling.pop(index)]
            types = dict.fromkeys(self.cluster.nodes[node].gpu_type for node in nodes)
            self._measure(index, list(types))

    # What agents learn.

    def _measure(self, job: int, types: list[str]) -> None:
        """A profile: one replica on each GPU type, at several batch sizes."""
        application, agent = self.applications[job], self.agents[job]
        for gpu_type in types:
            if gpu_type not in agent.limits:
                continue
            smallest, largest, _, gpus = agent.limits[gpu_type]
            for size in sorted({int(b) for b in np.geomspace(smallest, largest, PROFILED_BATCHES)}):
                times = application.steps[gpu_type].times((gpus,), size)
                agent.observe(gpu_type, Observation(1, 1, size, *times))
        if agent.noise is None:
            agent.set_noise(*application.noise(application.batches[0], 0))

    def _observe(self, job: int, shape: Shape, counts: tuple[int, ...], batch: Batch) -> None:
        if not self._is_known(job, shape, batch):
            times = self.applications[job].steps[shape.gpu_type].times(counts, batch.size)
            self.agents[job].observe(
                shape.gpu_type, Observation(*self._key(job, shape, batch), *times)
            )

    def _is_known(self, job: int, shape: Shape, batch: Batch) -> bool:
        seen = self.agents[job].observations.get(shape.gpu_type, {})
        return self._key(job, shape, batch) in seen

    def _key(self, job: int, shape: Shape, batch: Batch) -> tuple[int, int, int]:
        gpus = self.agents[job].limits[shape.gpu_type].gpus
        return (shape.nodes, max(1, shape.gpus // gpus), batch.size)

    def _total(self, job: int, shape: Shape, batch: Batch) -> int:
        return self._key(job, shape, batch)[1] * batch.size * (batch.steps + 1)

    def _shape(self, allocation: Allocation) -> tuple[Shape, tuple[int, ...]]:
        counts = tuple(mask.bit_count() for _, mask in allocation)
        gpu_type = self.cluster.nodes[allocation[0][0]].gpu_type
        return Shape(gpu_type, len(counts), sum(counts)), counts
