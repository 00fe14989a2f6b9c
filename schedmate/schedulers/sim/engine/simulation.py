"""The event loop: jobs arrive, run and end; after each change the policy decides.

Time moves from event to event, so a simulation is exact and costs what happens in it, not the
time that it covers.
"""

from __future__ import annotations

import gc
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from operator import attrgetter

from schedmate.errors import UsageError
from schedmate.plain import LONGEST_S
from schedmate.schedulers.estimators import ABSURD_S, Estimator
from schedmate.schedulers.load import Load
from schedmate.schedulers.model import Cluster, Forecast, Job
from schedmate.schedulers.observer import Observer
from schedmate.schedulers.policy import NEVER, Policy, View, check_pool
from schedmate.schedulers.sim.engine.decisions import DecisionError, Decisions
from schedmate.schedulers.sim.engine.execution import ASKED, Execution
from schedmate.schedulers.sim.engine.nodes import Nodes
from schedmate.schedulers.sim.engine.progress import (
    DOWN,
    DRAIN,
    END,
    FAIL,
    HORIZON,
    LEFT,
    LEND,
    MOVED,
    PACE,
    PROFILED,
    RECLAIM,
    REORDER,
    RERANK,
    SUBMIT,
    TICK,
    UP,
    WAKE,
)
from schedmate.schedulers.sim.engine.record import COUNTED, Outcome
from schedmate.schedulers.sim.engine.rounds import Rounds, check_rounds
from schedmate.schedulers.sim.engine.sizes import check_sizes, check_times, check_windows
from schedmate.schedulers.sim.parameters import HONEST, Parameters
from schedmate.schedulers.sim.workload import Workload
from schedmate.schedulers.sim.world.executor import Executor
from schedmate.schedulers.sim.world.faults import Faults
from schedmate.schedulers.sim.world.maintenance import Maintenance
from schedmate.schedulers.sim.world.physics import Physics, TracePhysics
from schedmate.schedulers.space import Space
from schedmate.terminal import counted

_UNDER_WAY = frozenset((LEFT, MOVED, LEND, RECLAIM, REORDER))


class Simulation:
    """One policy on one cluster over one workload.

    `physics` says how fast jobs progress (by default `TracePhysics`), `faults` when jobs fail and
    what becomes of them, `load` how many jobs are to be expected, `observers` watch. `maintenance`
    takes nodes down, `executor` refuses decisions. `space` makes the free GPUs of a cluster, and
    with them says where jobs are put. `until` is a horizon: the simulation stops there, whatever
    goes on [s].
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
        maintenance: Sequence[Maintenance] = (),
        executor: Executor | None = None,
        until: float = NEVER,
        seed: int = 0,
        space: Callable[[Cluster], Space] = Space,
    ) -> None:
        self.workload = workload
        check_pool(policy, cluster)
        self.policy = policy
        self.cluster = policy.set_aside(cluster)
        self.estimator = estimator
        self.parameters = parameters
        self.view = View(space(self.cluster), policy, load)
        has_vcs = any(node.vc for node in self.cluster.nodes)
        for job, vc in zip(workload.jobs, workload.vcs or [""] * len(workload), strict=True):
            job.reset()
            job.vc = vc if has_vcs else ""
        check_times(workload.jobs, workload.duration_s)
        check_sizes(workload.jobs, self.view.space)
        check_windows(workload)
        self._until = until
        self._by_trace = physics is None or isinstance(physics, TracePhysics)
        if policy.interval_s is not None and not 0 < policy.interval_s <= LONGEST_S:
            raise UsageError(
                f"policy {policy.name}: interval_s has to be above 0; write "
                f"{policy.name}:interval_s=60."
            )
        if self._by_trace and policy.rounds and policy.interval_s is not None:
            check_rounds(_ending(workload), policy.name, policy.interval_s)
        self._execution = Execution(
            workload,
            policy,
            self.view,
            parameters,
            physics=physics,
            faults=faults,
            observers=observers,
        )
        self._decisions = Decisions(self._execution, policy, executor)
        # Whether there can be news of nodes, or answers to decisions.
        changing = bool(maintenance) or parameters.node_mtbf_s is not None
        self._hears = changing or executor is not None
        decisions = self._decisions
        self._carry_out = decisions.carry_out if executor is None else decisions.answer
        self.view.lost = self._execution.lost_s
        if executor is not None:
            self.view.can = executor.can
        if until == NEVER:
            # Nobody waits for a service to end.
            self._execution.unfinished = sum(1 for _ in _ending(workload))
        self._rounds: Rounds | None = None
        if policy.interval_s is not None:
            self._rounds = Rounds(policy.interval_s, self.view, self._execution.events)
        self._nodes = Nodes(self.cluster, self._execution, parameters, seed, maintenance)
        self._submit = [job.submit_time for job in workload.jobs]
        self._submit.append(NEVER)
        self._advice_is_late = self._learns = False
        self._estimate = None if estimator is None else estimator.estimate
        if estimator is not None:
            self._advice_is_late = type(estimator).latency_s is not Estimator.latency_s
            self._learns = type(estimator).observe is not Estimator.observe
        self._progress: Callable[[int], None] | None = None
        self._bad_estimates = self._handled = self._told = 0

    def run(self, progress: Callable[[int], None] | None = None) -> Outcome:
        """Simulate until the last job has ended; once.

        `progress` is told now and then how many jobs have been submitted. Raises `DecisionError`
        for a decision that cannot be carried out, and when jobs are left that never start.
        """
        self._progress = progress
        # Nothing here is cyclic garbage, and looking for it takes a third of the time.
        collecting = gc.isenabled()
        gc.disable()
        try:
            events = self._loop()
        finally:
            if collecting:
                gc.enable()
        execution, jobs = self._execution, self.workload.jobs
        self._nodes.end()
        return Outcome(
            execution.started,
            execution.ended,
            [job.service_s for job in jobs],
            execution.segments,
            events,
            {kind.__name__: number for kind, number in self._decisions.counts.items()},
            execution.failures,
            execution.physics.work,
            self._bad_estimates,
            execution.underway.ledger,
            told_s=array(
                "d", (NEVER if job.forecast is None else job.forecast.duration_s for job in jobs)
            ),
            counts={name: array("q", map(attrgetter(name), jobs)) for name in COUNTED},
        )

    def _loop(self) -> int:
        """Handle all events and submissions; how many there were."""
        view, execution, rounds = self.view, self._execution, self._rounds
        events, pending, steady = execution.events, view.pending, self.policy.steady
        happen, arrive, upcoming = self._happen, self._arrive, self._submit[0]
        self._nodes.begin(upcoming)
        execution.underway.begin()
        if self._until < NEVER:
            heappush(events, (self._until, HORIZON, -1, -1))
        while execution.unfinished and (events or upcoming < NEVER):
            if events and events[0][0] <= upcoming:
                now = view.now = events[0][0]
                happen(now)
                if upcoming == now:
                    upcoming = arrive(now)
                if steady and execution.dirty and not pending.any():
                    execution.dirty = False
            else:
                now = view.now = upcoming
                upcoming = arrive(now)
            if execution.dirty and (rounds is None or rounds.due(now)):
                decided = self._decide()
                waits = upcoming < NEVER or view.running.any() or execution.coming > 0
                if rounds is not None and self.policy.rounds:
                    waits = rounds.next(now, idle=not (waits or decided)) or waits
                if not waits:
                    break
        if execution.unfinished and execution.underway.ledger.horizon == NEVER:
            if self._until == NEVER:
                raise DecisionError(self._stuck())
            view.now = self._until
            execution.close()
        elif view.running.any() and execution.underway.ledger.horizon == NEVER:
            execution.close()
        return self._handled + len(self.workload)

    def _decide(self) -> bool:
        """Ask the policy until nothing changes by it; whether it decided anything."""
        execution, view, space, decided = self._execution, self.view, self.view.space, False
        while execution.dirty:
            execution.dirty = False
            space.begin()
            if decisions := self.policy.decide(self.view):
                if self._hears:
                    view.news, view.answers = [], []
                self._carry_out(decisions)
                decided = True
            else:
                space.rollback()
                if self._hears:
                    view.news, view.answers = [], []
        return decided

    # What happens by itself.

    def _happen(self, now: float) -> None:
        """Handle all events of this instant."""
        execution, events = self._execution, self._execution.events
        while events and events[0][0] == now:
            _, kind, index, which = heappop(events)
            if kind < DRAIN and which != execution.epoch[index]:
                continue
            self._handled += 1
            if kind == END:
                execution.end(self.workload.jobs[index])
                if self._learns:
                    self._learn(self.workload.jobs[index])
            else:
                self._other(kind, index, which)

    def _arrive(self, now: float) -> float:
        """Submit all jobs of this instant; when the next ones come."""
        execution, view, came = self._execution, self.view, False
        arrived = len(view.submitted)
        while self._submit[arrived] == now:
            job = self.workload.jobs[arrived]
            view.submitted.append(now)
            view.asked.append(view.asked[-1] + job.gpus)
            arrived += 1
            if self.parameters.profiling_is_free:
                job.profile = self.workload.profiles[job.index]
            if self._estimate is not None:
                job.forecast = self._usable(self._estimate(job))
                if self._advice_is_late and self._wait(job):
                    continue
            came = True
            if execution.attended:
                execution.submit(job)
            else:
                view.pending.add(job, now)
        if came and not execution.dirty:
            # A steady policy is asked only if one of them is the first of its lane.
            execution.dirty = not self.policy.steady or view.pending.new_heads()
        if self._progress is not None and arrived >= self._told:
            # Often enough for few jobs whose policy thinks for long about each.
            self._told = arrived + min(1000, 1 + len(self._submit) // 200)
            self._progress(arrived)
        return self._submit[arrived]

    def _wait(self, job: Job) -> bool:
        """Whether the job is submitted only when the advice about it has come."""
        assert self.estimator is not None
        wait_s = self.estimator.latency_s(job)
        if wait_s > 0:
            self._execution.later(job, wait_s)
        return wait_s > 0

    def _other(self, kind: int, index: int, which: int) -> None:
        """Any event but the end of a job."""
        execution, now = self._execution, self.view.now
        if kind == PACE:
            execution.pace(self.workload.jobs[index])
            return
        if kind == WAKE:
            execution.woken(self.workload.jobs[index], which)
            return
        if kind in _UNDER_WAY:
            if self._under_way(kind, self.workload.jobs[index], which):
                execution.dirty = True
            return
        execution.dirty = True
        if kind == UP:
            self._nodes.back(index, now, which)
        elif kind == DRAIN:
            self._nodes.drain(index, which)
        elif kind == DOWN:
            for job in self._nodes.fail(index, now, which):
                self._learn(job)
        elif kind == HORIZON:
            execution.close()
            execution.unfinished = 0
            execution.dirty = False
        elif kind == TICK:
            execution.coming -= which == ASKED
        else:
            self._change(kind, self.workload.jobs[index])

    def _under_way(self, kind: int, job: Job, which: int) -> bool:
        """Something about a job that few ever meet; whether it was still to happen."""
        underway = self._execution.underway
        if kind == LEFT:
            underway.leave(job)
            return True
        if kind == MOVED:
            return underway.moved(job, which)
        if kind == LEND:
            return underway.lend(job, which)
        if kind == RECLAIM:
            return underway.reclaim(job, which)
        return self._execution.reorder(job)

    def _change(self, kind: int, job: Job) -> None:
        """Something about one job that the policy has to hear of."""
        execution = self._execution
        if kind == RERANK:
            execution.rerank(job)
        elif kind == SUBMIT:
            execution.coming -= 1
            execution.submit(job)
        elif kind == FAIL:
            if not execution.fail(job):
                self._learn(job)
        elif kind == PROFILED:
            execution.stop_profiling(job)
            if self._estimate is not None:
                job.forecast = self._usable(self._estimate(job))
            execution.wait(job)

    def _learn(self, job: Job) -> None:
        """Tell the estimator, if it wants to know, of a job that has ended."""
        if not self._learns:
            return
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

    def _stuck(self) -> str:
        first = self.view.pending.first()
        if first is None:
            first = next(iter(self.view.running))
            return f"job {first.id} runs at speed 0 for ever, and nothing else happens."
        return (
            f"policy {self.policy.name} left {counted(len(self.view.pending), 'job')} "
            f"waiting for ever, the first {first.id} ({counted(first.gpus, 'GPU')}), though "
            "nothing else runs or arrives."
        )


def _ending(workload: Workload) -> Iterator[float]:
    """The durations of those jobs that end by themselves [s]."""
    for job, duration_s in zip(workload.jobs, workload.duration_s, strict=True):
        if job.terms is None or not job.terms.endless:
            yield duration_s
