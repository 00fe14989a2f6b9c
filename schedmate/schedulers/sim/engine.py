"""The event loop: jobs arrive, run and end; after each change the policy decides.

Time moves from event to event, so a simulation is exact and costs what happens in it, not the
time that it covers.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable
from heapq import heappop, heappush
from typing import NamedTuple

from schedmate.errors import InputError
from schedmate.schedulers.estimators import Estimator
from schedmate.schedulers.model import PROFILING, Allocation, Cluster, Job
from schedmate.schedulers.policy import NEVER, Policy, View
from schedmate.schedulers.sim.execution import (
    DOWN,
    END,
    RERANK,
    TICK,
    UP,
    DecisionError,
    Execution,
    Segment,
)
from schedmate.schedulers.sim.parameters import HONEST, Parameters
from schedmate.schedulers.sim.workload import Workload
from schedmate.schedulers.space import Space


class Outcome(NamedTuple):
    """Everything that happened, by position in the workload where it is about jobs."""

    first_start: list[float]
    end: list[float]
    held_s: list[float]
    """Time for which the job held GPUs, in profiling too [s]."""
    segments: list[Segment]
    events: int
    decisions: dict[str, int]
    """How many of each kind were carried out."""
    failures: int
    """Times a job lost its node."""
    bad_estimates: int
    """Estimates that were no positive number, and taken as an abstention."""


class Simulation:
    """One policy on one cluster over one workload."""

    def __init__(
        self,
        workload: Workload,
        policy: Policy,
        cluster: Cluster,
        *,
        estimator: Estimator | None = None,
        parameters: Parameters = HONEST,
        seed: int = 0,
    ) -> None:
        self.workload = workload
        self.policy = policy
        self.cluster = policy.set_aside(cluster)
        self.estimator = estimator
        self.parameters = parameters
        self.view = View(Space(self.cluster))
        has_vcs = any(node.vc for node in self.cluster.nodes)
        for job, vc in zip(workload.jobs, workload.vcs or [""] * len(workload), strict=True):
            job.reset()
            job.vc = vc if has_vcs else ""
        self._check_sizes()
        self._execution = Execution(workload, policy, self.view, parameters)
        self._ended = [NEVER] * len(workload)
        self._unfinished = len(workload)
        self._bad_estimates = self._handled = 0
        self._draw = random.Random(seed)  # noqa: S311 - an experiment, not a secret
        self._down: dict[int, tuple[Job, Allocation]] = {}  # node -> what keeps its GPUs

    def run(self, progress: Callable[[int], None] | None = None) -> Outcome:
        """Simulate until the last job has ended; once.

        `progress` is told now and then how many jobs have been submitted. Raises `DecisionError`
        for a decision that cannot be carried out, and when jobs are left that never start.
        """
        # Nothing here is cyclic garbage, and looking for it takes a third of the time.
        collecting = gc.isenabled()
        gc.disable()
        try:
            events = self._loop(progress)
        finally:
            if collecting:
                gc.enable()
        execution, jobs = self._execution, self.workload.jobs
        return Outcome(
            execution.started,
            self._ended,
            [job.service_s for job in jobs],
            execution.segments,
            events,
            {kind.__name__: number for kind, number in execution.counts.items()},
            sum(job.failures for job in jobs),
            self._bad_estimates,
        )

    def _loop(self, progress: Callable[[int], None] | None) -> int:
        jobs, interval, view = self.workload.jobs, self.policy.interval_s, self.view
        execution, decide = self._execution, self.policy.decide
        events = execution.events
        count, arrived, tick = len(jobs), 0, -1.0
        submit = [job.submit_time for job in jobs] + [NEVER]
        if self.parameters.node_mtbf_s is not None:
            for node in range(len(self.cluster.nodes)):
                self._next_failure(node, submit[0])
        while self._unfinished and (arrived < count or events):
            now = submit[arrived]
            if events and events[0][0] < now:
                now = events[0][0]
            view.now = now
            changed = bool(events) and events[0][0] == now and self._happen(now)
            while submit[arrived] == now:
                self._arrive(jobs[arrived])
                arrived += 1
                changed = True
                if progress is not None and not arrived % 1000:
                    progress(arrived)
            if not changed:
                continue
            if interval is not None and now % interval:
                due = (now // interval + 1) * interval
                if due != tick:
                    tick = due
                    heappush(events, (due, TICK, -1, -1))
                continue
            again = True
            while again:
                view.space.begin()
                again = execution.carry_out(decide(view))
            if arrived == count and not len(view.running) and not self._down:
                break
        if self._unfinished:
            raise DecisionError(self._stuck())
        return self._handled + count

    # What happens by itself.

    def _happen(self, now: float) -> bool:
        """Handle all events of this instant; whether one of them still held."""
        events, epochs = self._execution.events, self._execution.epoch
        before = self._handled
        while events and events[0][0] == now:
            _, kind, index, epoch = heappop(events)
            if kind >= TICK:
                self._handled += 1
                if kind != TICK:
                    self._node(kind, index)
            elif epoch == epochs[index]:
                self._handled += 1
                self._handle(kind, self.workload.jobs[index])
        return self._handled > before

    def _arrive(self, job: Job) -> None:
        if self.parameters.profiling_is_free:
            job.profile = self.workload.profiles[job.index]
        self.view.submitted.append(job.submit_time)
        self._forecast(job)
        self._execution.enqueue(job)

    def _handle(self, kind: int, job: Job) -> None:
        execution = self._execution
        if kind == RERANK:
            execution.rerank(job)
        elif kind == END:
            execution.end(job)
            self._ended[job.index] = self.view.now
            self._unfinished -= 1
            if self.estimator is not None:
                states = self.workload.states
                completed = not states or states[job.index] == "COMPLETED"
                self.estimator.observe(job, self.workload.duration_s[job.index], completed)
        else:
            execution.stop_profiling(job)
            self._forecast(job)
            execution.enqueue(job)

    def _forecast(self, job: Job) -> None:
        if self.estimator is None:
            return
        forecast = self.estimator.estimate(job)
        if forecast is not None and not 0 <= forecast.duration_s < NEVER:
            self._bad_estimates += 1
            forecast = None
        job.forecast = forecast

    def _next_failure(self, node: int, now: float) -> None:
        assert self.parameters.node_mtbf_s is not None
        wait = self._draw.expovariate(1.0 / self.parameters.node_mtbf_s)
        heappush(self._execution.events, (now + wait, DOWN, node, -1))

    def _node(self, kind: int, node: int) -> None:
        """A node fails, with all that runs on it, or is back."""
        space, now = self.view.space, self.view.now
        if kind == UP:
            space.give(*self._down.pop(node))
            self._next_failure(node, now)
            return
        hit = [job for job in self.view.running if any(n == node for n, _ in job.allocation)]
        for job in hit:
            self._execution.fail(job)
        gpus = self.cluster.nodes[node].gpus
        keeper = Job(f"repair of {self.cluster.nodes[node].name}", -1, now, gpus)
        everything = ((node, (1 << gpus) - 1),)
        space.take(keeper, everything)
        self._down[node] = (keeper, everything)
        heappush(self._execution.events, (now + self.parameters.repair_s, UP, node, -1))

    # What is said when something cannot be.

    def _check_sizes(self) -> None:
        """Raises `InputError` for a job that not even the empty cluster could hold."""
        fits: dict[tuple[object, ...], bool] = {}
        for job in self.workload.jobs:
            key = (job.vc, job.gpu_type, job.gpus, job.share, job.cpus, job.memory_mb)
            if key not in fits:
                fits[key] = (
                    self.view.space.find(job) or self.view.space.find(job, PROFILING)
                ) is not None
            if not fits[key]:
                where = f" in virtual cluster {job.vc!r}" if job.vc else ""
                kind = f" of type {job.gpu_type}" if job.gpu_type else ""
                raise InputError(
                    f"job {job.id} asks for {job.gpus} GPUs{kind}{where}, more than its nodes "
                    "can ever give; choose a larger cluster."
                )

    def _stuck(self) -> str:
        first = self.view.pending.first()
        assert first is not None
        return (
            f"policy {self.policy.name} left {len(self.view.pending)} jobs waiting for ever, the "
            f"first {first.id} ({first.gpus} GPUs), though nothing else runs or arrives."
        )
