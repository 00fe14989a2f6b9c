"""The event loop: jobs arrive, run and end; after each change the policy decides.

Time advances from event to event, so times are exact, and the cost depends on the number of events,
not on the simulated time.
"""

from __future__ import annotations

import gc
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from operator import attrgetter

from schedmate.errors import UsageError
from schedmate.plain import LONGEST_S
from schedmate.schedulers.estimators import Estimator
from schedmate.schedulers.load import Load
from schedmate.schedulers.model import Cluster
from schedmate.schedulers.observer import Observer
from schedmate.schedulers.policy import Policy, check_pool
from schedmate.schedulers.sim.engine.actions import DecisionError
from schedmate.schedulers.sim.engine.advice import Advice
from schedmate.schedulers.sim.engine.decisions import Decisions
from schedmate.schedulers.sim.engine.events import DRAIN, HORIZON
from schedmate.schedulers.sim.engine.execution import Execution
from schedmate.schedulers.sim.engine.handlers import Handlers
from schedmate.schedulers.sim.engine.nodes import Nodes
from schedmate.schedulers.sim.engine.record import COUNTED, Outcome
from schedmate.schedulers.sim.engine.rounds import Rounds, check_rounds
from schedmate.schedulers.sim.engine.sizes import check_sizes, check_times, check_windows
from schedmate.schedulers.sim.engine.underway import Underway
from schedmate.schedulers.sim.parameters import HONEST, Parameters
from schedmate.schedulers.sim.workload import Workload
from schedmate.schedulers.sim.world.executor import Executor
from schedmate.schedulers.sim.world.faults import Faults
from schedmate.schedulers.sim.world.maintenance import Maintenance
from schedmate.schedulers.sim.world.physics import Physics, TracePhysics
from schedmate.schedulers.space import Space
from schedmate.schedulers.terms import NEVER
from schedmate.schedulers.view import View
from schedmate.terminal import counted


class Simulation:
    """One policy on one cluster over one workload.

    Args:
        workload: the jobs; their state is reset.
        policy: what decides.
        cluster: the nodes, from which the policy may set some aside.
        estimator: source of the jobs' forecasts; None: they have none.
        parameters: what profiling, restarts, sharing and failures cost.
        physics: how fast jobs progress; by default `TracePhysics`.
        faults: when jobs fail, and whether they are restarted.
        load: forecast of submissions.
        observers: objects that are notified of what happens to jobs.
        maintenance: periods in which nodes are drained and down.
        executor: refuses decisions, as a real cluster may; by default none is refused.
        until: horizon at which the simulation stops [s].
        seed: of random node failures.
        space: makes the free GPUs of a cluster, with their placement rule.

    Raises `UsageError` or `InputError` for a policy that does not suit the cluster, and for jobs
    that no node can hold or whose times are impossible.
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
        by_trace = physics is None or isinstance(physics, TracePhysics)
        if policy.interval_s is not None and not 0 < policy.interval_s <= LONGEST_S:
            raise UsageError(
                f"policy {policy.name}: interval_s must be above 0; write "
                f"{policy.name}:interval_s=60."
            )
        if by_trace and policy.rounds and policy.interval_s is not None:
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
        self._underway = Underway(self._execution, workload)
        self._decisions = Decisions(self._execution, self._underway, policy, executor)
        changing = bool(maintenance) or parameters.node_mtbf_s is not None
        self._has_news = changing or executor is not None  # of nodes, or answers to decisions
        decisions = self._decisions
        self._carry_out = decisions.carry_out if executor is None else decisions.answer
        self.view.lost = self._execution.lost_s
        if executor is not None:
            self.view.can = executor.can
        if until == NEVER:
            # Services never end: the simulation does not wait for them.
            self._execution.unfinished = sum(1 for _ in _ending(workload))
        self._rounds: Rounds | None = None
        if policy.interval_s is not None:
            self._rounds = Rounds(policy.interval_s, self.view, self._execution.events)
        self._nodes = Nodes(
            self.cluster, self._execution, self._underway, parameters, seed, maintenance
        )
        self._advice = (
            Advice(estimator, workload, self._execution, trace_durations=by_trace)
            if estimator is not None
            else None
        )
        self._handlers = Handlers(self._execution, self._underway, self._nodes, self._advice)
        self._submit = [job.submit_time for job in workload.jobs]
        self._submit.append(NEVER)
        self._progress: Callable[[int], None] | None = None
        self._handled = self._reported = 0

    def run(self, progress: Callable[[int], None] | None = None) -> Outcome:
        """Simulate until the last job has ended. Can be called once.

        `progress` is called from time to time with the number of jobs submitted so far. Raises
        `DecisionError` for a decision that cannot be carried out, and if jobs remain that never
        start.
        """
        self._progress = progress
        # The run makes no cyclic garbage, and looking for it takes a third of the time.
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
            0 if self._advice is None else self._advice.rejected,
            execution.ledger,
            assumed_s=array(
                "d", (NEVER if job.forecast is None else job.forecast.duration_s for job in jobs)
            ),
            counts={name: array("q", map(attrgetter(name), jobs)) for name in COUNTED},
        )

    def _loop(self) -> int:
        """Handle all events and submissions; return their number."""
        view, execution, rounds = self.view, self._execution, self._rounds
        events, pending, steady = execution.events, view.pending, self.policy.steady
        happen, arrive, upcoming = self._happen, self._arrive, self._submit[0]
        self._nodes.begin(upcoming)
        self._underway.begin()
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
        if execution.unfinished and execution.ledger.horizon == NEVER:
            if self._until == NEVER:
                raise DecisionError(self._stuck())
            view.now = self._until
            self._handlers.close()
        elif view.running.any() and execution.ledger.horizon == NEVER:
            self._handlers.close()
        return self._handled + len(self.workload)

    def _decide(self) -> bool:
        """Ask the policy until its decisions change nothing; return whether it decided anything."""
        execution, view, space, decided = self._execution, self.view, self.view.space, False
        while execution.dirty:
            execution.dirty = False
            space.begin()
            if decisions := self.policy.decide(self.view):
                if self._has_news:
                    view.news, view.answers = [], []
                self._carry_out(decisions)
                decided = True
            else:
                space.rollback()
                if self._has_news:
                    view.news, view.answers = [], []
        return decided

    # What happens by itself.

    def _happen(self, now: float) -> None:
        """Handle all events of this instant."""
        execution, events, handle = self._execution, self._execution.events, self._handlers.handle
        while events and events[0][0] == now:
            _, kind, index, which = heappop(events)
            if kind < DRAIN and which != execution.epoch[index]:
                continue
            self._handled += 1
            handle(kind, index, which)

    def _arrive(self, now: float) -> float:
        """Submit all jobs of this instant; return when the next ones arrive [s]."""
        execution, view, advice, came = self._execution, self.view, self._advice, False
        arrived = len(view.submitted)
        while self._submit[arrived] == now:
            job = self.workload.jobs[arrived]
            view.submitted.append(now)
            view.requested.append(view.requested[-1] + job.gpus)
            arrived += 1
            if self.parameters.profiling_is_free:
                job.profile = self.workload.profiles[job.index]
            if advice is not None:
                job.forecast = advice.forecast(job)
                if advice.is_late and (wait_s := advice.latency_s(job)) > 0:
                    execution.later(job, wait_s)
                    continue
            came = True
            if execution.attended:
                execution.submit(job)
            else:
                view.pending.add(job, now)
        if came and not execution.dirty:
            # A steady policy is asked only if one of them is the first of its lane.
            execution.dirty = not self.policy.steady or view.pending.new_heads()
        if self._progress is not None and arrived >= self._reported:
            # Often enough for a small trace under a slow policy.
            self._reported = arrived + min(1000, 1 + len(self._submit) // 200)
            self._progress(arrived)
        return self._submit[arrived]

    def _stuck(self) -> str:
        first = self.view.pending.first()
        if first is None:
            first = next(iter(self.view.running))
            return f"job {first.id} runs at speed 0 forever, and no other event is due."
        return (
            f"policy {self.policy.name} left {counted(len(self.view.pending), 'job')} "
            f"waiting forever, the first {first.id} ({counted(first.gpus, 'GPU')}), although "
            "no other job runs or arrives."
        )


def _ending(workload: Workload) -> Iterator[float]:
    """Durations of the jobs that end by themselves, all but services [s]."""
    for job, duration_s in zip(workload.jobs, workload.duration_s, strict=True):
        if job.terms is None or not job.terms.endless:
            yield duration_s
