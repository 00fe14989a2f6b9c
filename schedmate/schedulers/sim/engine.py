"""The event loop: jobs arrive, run and end; after each change the policy decides.

Time moves from event to event, so a simulation is exact and costs what happens in it, not the
time that it covers.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterable
from heapq import heappop, heappush

from schedmate.errors import InputError
from schedmate.schedulers.estimators import ABSURD_S, Estimator
from schedmate.schedulers.load import Load
from schedmate.schedulers.model import PROFILING, Allocation, Cluster, Forecast, Job
from schedmate.schedulers.policy import NEVER, Policy, View
from schedmate.schedulers.sim.execution import DecisionError, Execution
from schedmate.schedulers.sim.faults import Faults
from schedmate.schedulers.sim.observer import Observer
from schedmate.schedulers.sim.parameters import HONEST, Parameters
from schedmate.schedulers.sim.physics import Physics, TracePhysics
from schedmate.schedulers.sim.progress import (
    DOWN,
    END,
    FAIL,
    PACE,
    RERANK,
    SUBMIT,
    TICK,
    UP,
)
from schedmate.schedulers.sim.record import Outcome
from schedmate.schedulers.sim.workload import Workload
from schedmate.schedulers.space import Space

_IDLE_ROUNDS = 1000
"""Rounds in which nothing runs, comes or is decided, after which a policy is given up."""


class Simulation:
    """One policy on one cluster over one workload.

    `physics` says how fast jobs progress (by default `TracePhysics`), `faults` when jobs fail and
    what becomes of them, `load` how many jobs are to be expected, `observers` watch.
    """

    def __init__(
        self,
        workload: Workload,
        policy: Policy,
        cluster: Cluster,
        *,
        estimator: Estimator | None = None,
        parameters: Parameters = HONEST,
        physics: Physics | None = None,
        faults: Faults | None = None,
        load: Load | None = None,
        observers: Iterable[Observer] = (),
        seed: int = 0,
    ) -> None:
        self.workload = workload
        self.policy = policy
        self.cluster = policy.set_aside(cluster)
        self.estimator = estimator
        self.parameters = parameters
        self.view = View(Space(self.cluster), policy, load)
        has_vcs = any(node.vc for node in self.cluster.nodes)
        for job, vc in zip(workload.jobs, workload.vcs or [""] * len(workload), strict=True):
            job.reset()
            job.vc = vc if has_vcs else ""
        self._check_sizes()
        self._execution = Execution(
            workload,
            policy,
            self.view,
            parameters,
            physics=physics,
            faults=faults,
            observers=observers,
        )
        self._fresh = False  # whether jobs arrived about which the policy was not asked
        self._by_trace = physics is None or isinstance(physics, TracePhysics)
        self._advice_is_late = self._learns = False
        if estimator is not None:
            self._advice_is_late = type(estimator).latency_s is not Estimator.latency_s
            self._learns = type(estimator).observe is not Estimator.observe
        self._bad_estimates = self._handled = self._idle_rounds = 0
        self._tick = -NEVER  # when the next round is, or the last one was
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
            execution.ended,
            [job.service_s for job in jobs],
            execution.segments,
            events,
            {kind.__name__: number for kind, number in execution.counts.items()},
            execution.failures,
            execution.physics.work,
            self._bad_estimates,
        )

    def _loop(self, progress: Callable[[int], None] | None) -> int:
        jobs, view, execution = self.workload.jobs, self.view, self._execution
        pending = view.pending
        events, count, arrived = execution.events, len(jobs), 0
        interval, steady = self.policy.interval_s, self.policy.steady
        submit = [job.submit_time for job in jobs]
        submit.append(NEVER)
        if self.parameters.node_mtbf_s is not None:
            for node in range(len(self.cluster.nodes)):
                self._next_failure(node, submit[0])
        upcoming = submit[0]
        while execution.unfinished and (arrived < count or events):
            if events and events[0][0] <= upcoming:
                now = view.now = events[0][0]
                self._happen(now)
            else:
                now = view.now = upcoming
            while upcoming == now:
                self._arrive(jobs[arrived])
                arrived += 1
                upcoming = submit[arrived]
                if progress is not None and not arrived % 1000:
                    progress(arrived)
            if self._fresh and not execution.dirty:
                execution.dirty = pending.new_heads()
            self._fresh = False
            if execution.dirty and steady and not pending.any():
                execution.dirty = False
            if execution.dirty and (interval is None or self._is_round(now)):
                decided = self._decide()
                waits = arrived < count or view.running.any() or execution.coming > 0
                if self.policy.rounds:
                    waits = self._next_round(now, idle=not (waits or decided)) or waits
                if not waits:
                    break
        if execution.unfinished:
            raise DecisionError(self._stuck())
        return self._handled + count

    def _decide(self) -> bool:
        """Ask the policy until nothing changes by it; whether it decided anything."""
        execution, view, space, decided = self._execution, self.view, self.view.space, False
        while execution.dirty:
            execution.dirty = False
            space.begin()
            if decisions := self.policy.decide(view):
                execution.carry_out(decisions)
                decided = True
            else:
                space.rollback()
        return decided

    def _is_round(self, now: float) -> bool:
        """Whether the policy decides now; if not, it will be asked at its next round."""
        interval = self.policy.interval_s
        if interval is None or now == self._tick:
            return True
        due = _due(now, interval)
        if due > now and due != self._tick:
            self._tick = due
            heappush(self._execution.events, (due, TICK, -1, -1))
        return due == now

    def _next_round(self, now: float, *, idle: bool) -> bool:
        """Enter the round after this one, unless there is nobody to decide about; whether so."""
        self._idle_rounds = self._idle_rounds + 1 if idle else 0
        view, interval = self.view, self.policy.interval_s
        if interval is None or not (len(view.pending) or len(view.running)):
            return False
        self._tick = _due(now, interval, after=True)
        heappush(self._execution.events, (self._tick, TICK, -1, -1))
        return self._idle_rounds < _IDLE_ROUNDS

    # What happens by itself.

    def _happen(self, now: float) -> None:
        """Handle all events of this instant."""
        execution = self._execution
        events, epochs, jobs = execution.events, execution.epoch, self.workload.jobs
        while events and events[0][0] == now:
            _, kind, index, epoch = heappop(events)
            if kind >= SUBMIT:
                self._outside(kind, index, epoch)
            elif epoch != epochs[index]:
                continue
            elif kind == END:
                job = jobs[index]
                execution.end(job)
                execution.dirty = True
                if self._learns:
                    self._learn(job)
            else:
                self._handle(kind, jobs[index])
            self._handled += 1

    def _arrive(self, job: Job) -> None:
        execution, estimator, view = self._execution, self.estimator, self.view
        view.submitted.append(job.submit_time)
        if self.parameters.profiling_is_free:
            job.profile = self.workload.profiles[job.index]
        if estimator is not None:
            job.forecast = self._usable(estimator.estimate(job))
            if self._advice_is_late and (wait_s := estimator.latency_s(job)) > 0:
                execution.later(job, wait_s)
                return
        if execution.attended:
            execution.submit(job)
        else:
            view.pending.add(job, view.now)
        if self.policy.steady:
            self._fresh = True
        else:
            execution.dirty = True

    def _handle(self, kind: int, job: Job) -> None:
        """Something of a running job itself."""
        execution = self._execution
        if kind == PACE:
            execution.pace(job)
            return
        execution.dirty = True
        if kind == RERANK:
            execution.rerank(job)
        elif kind == FAIL:
            if not execution.fail(job) and self._learns:
                self._learn(job)
        else:
            execution.stop_profiling(job)
            if self.estimator is not None:
                job.forecast = self._usable(self.estimator.estimate(job))
            self.view.pending.add(job, self.view.now)

    def _outside(self, kind: int, index: int, which: int) -> None:
        """Something that no running job does by itself."""
        execution = self._execution
        if kind in (DOWN, UP):
            self._node(kind, index)
        elif kind != TICK:
            execution.coming -= 1
            job = self.workload.jobs[index]
            if kind == SUBMIT:
                execution.submit(job)
            else:
                execution.observers[which].woken(job)
                return
        execution.dirty = True

    def _learn(self, job: Job) -> None:
        """Tell the estimator of a job that has ended."""
        assert self.estimator is not None
        index, states = job.index, self.workload.states
        if job.failures and self._execution.done[index] < self._execution.physics.work[index]:
            self.estimator.observe(job, job.service_s, completed=False)
            return
        # What it runs for by itself, without what sharing and restarts added.
        run_time_s = self.workload.duration_s[index] if self._by_trace else job.service_s
        self.estimator.observe(job, run_time_s, not states or states[index] == "COMPLETED")

    def _usable(self, forecast: Forecast | None) -> Forecast | None:
        """The forecast, unless it is no time that a job can take; an oracle knows better."""
        if forecast is None or 0 < forecast.duration_s <= ABSURD_S:
            return forecast
        if self.estimator is not None and self.estimator.oracle and forecast.duration_s >= 0:
            return forecast
        self._bad_estimates += 1
        return None

    def _next_failure(self, node: int, now: float) -> None:
        assert self.parameters.node_mtbf_s is not None
        wait = self._draw.expovariate(1.0 / self.parameters.node_mtbf_s)
        heappush(self._execution.events, (now + wait, DOWN, node, -1))

    def _node(self, kind: int, node: int) -> None:
        """A node fails, with all that runs on it, or is back."""
        space, now = self.view.space, self.view.now
        if kind == UP:
            self._execution.coming -= 1
            space.give(*self._down.pop(node))
            self._next_failure(node, now)
            return
        hit = [job for job in self.view.running if any(n == node for n, _ in job.allocation)]
        for job in hit:
            if not self._execution.fail(job, node) and self._learns:
                self._learn(job)
        gpus = self.cluster.nodes[node].gpus
        keeper = Job(f"repair of {self.cluster.nodes[node].name}", -1, now, gpus)
        everything = ((node, (1 << gpus) - 1),)
        space.take(keeper, everything)
        self._down[node] = (keeper, everything)
        self._execution.coming += 1
        heappush(self._execution.events, (now + self.parameters.repair_s, UP, node, -1))

    # What is said when something cannot be.

    def _check_sizes(self) -> None:
        """Raises `InputError` for a job that not even the empty cluster could hold."""
        fits: dict[tuple[object, ...], bool] = {}
        for job in self.workload.jobs:
            key = (job.vc, job.gpu_type, job.gpus, job.min_gpus, job.share, job.cpus, job.memory_mb)
            if key not in fits:
                fits[key] = (
                    self.view.space.find(job, gpus=job.min_gpus)
                    or self.view.space.find(job, PROFILING, gpus=job.min_gpus)
                ) is not None
            if not fits[key]:
                where = f" in virtual cluster {job.vc!r}" if job.vc else ""
                kind = f" of type {job.gpu_type}" if job.gpu_type else ""
                vcs = {node.vc for node in self.cluster.nodes}
                types = {node.gpu_type for node in self.cluster.nodes}
                if "" not in vcs and job.vc not in vcs:
                    why = f"no node is open to it: the cluster's are of {', '.join(sorted(vcs))}"
                elif job.gpu_type and not types & {"", job.gpu_type}:
                    why = f"the cluster's GPUs are of type {', '.join(sorted(types))}"
                else:
                    why = "more than its nodes can ever give"
                raise InputError(
                    f"job {job.id} asks for {job.gpus} GPUs{kind}{where}: {why}. "
                    "Choose another cluster, or cut the trace with `schedmate traces sample`."
                )

    def _stuck(self) -> str:
        first = self.view.pending.first()
        if first is None:
            first = next(iter(self.view.running))
            return f"job {first.id} runs at no speed for ever, and nothing else happens."
        return (
            f"policy {self.policy.name} left {len(self.view.pending)} jobs waiting for ever, the "
            f"first {first.id} ({first.gpus} GPUs), though nothing else runs or arrives."
        )


def _due(now: float, interval: float, *, after: bool = False) -> float:
    """The first multiple of `interval` from `now` on, or strictly after it."""
    rounds = now // interval
    due = rounds * interval
    while due < now or (after and due <= now):
        rounds += 1
        due = rounds * interval
    return due
