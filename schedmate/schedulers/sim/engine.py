"""The event engine, which runs one policy over one workload: after each change the policy
decides.

Time advances from event to event, so times are exact, and the cost depends on the number of events,
not on the simulated time. `actions.py` carries out what the policy decides, `execution.py` is the
life of jobs.
"""

from __future__ import annotations

import gc
import random
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from operator import attrgetter

from schedmate.base.data import LONGEST_S
from schedmate.base.errors import InputError, UsageError
from schedmate.base.inputs import format_duration
from schedmate.base.terminal import counted
from schedmate.schedulers.estimators import ABSURD_S, Estimator, Load
from schedmate.schedulers.model import NEVER, PROFILING, Cluster, Forecast, Job, NodeNews
from schedmate.schedulers.policy import Observer, Policy, Usage, View, check_pool, deciding
from schedmate.schedulers.sim.actions import DecisionError, Decisions
from schedmate.schedulers.sim.execution import (
    ASKED,
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
    Event,
    Execution,
    Underway,
)
from schedmate.schedulers.sim.parameters import HONEST, Parameters
from schedmate.schedulers.sim.record import COUNTED, Outage, Outcome
from schedmate.schedulers.sim.workload import Workload
from schedmate.schedulers.sim.world import Executor, Faults, Maintenance, Physics, TracePhysics
from schedmate.schedulers.space import Space

# The event loop: jobs arrive, run and end; after each change the policy decides.


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
        self._ask = deciding(policy, self.cluster)
        self.parameters = parameters
        self.view = View(space(self.cluster), policy, load)
        if policy.usage_half_life_s is not None:
            self.view.usage = Usage(policy.usage_half_life_s)
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
                if (
                    rounds is not None
                    and self.policy.rounds
                    and (decided or not self.policy.settled(view))
                ):
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
            if decisions := self._ask(view):
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


# What the estimator contributes to a simulation: forecasts at submission, lessons at the end.


class Advice:
    """Asks the estimator about jobs, rejects impossible answers, and lets it learn.

    Args:
        trace_durations: whether the true run time of a job is that of the trace; else it is the
            time for which the job held GPUs.
    """

    __slots__ = (
        "_durations",
        "_estimate",
        "_estimator",
        "_execution",
        "_states",
        "is_late",
        "learns",
        "rejected",
    )

    def __init__(
        self,
        estimator: Estimator,
        workload: Workload,
        execution: Execution,
        *,
        trace_durations: bool,
    ) -> None:
        self._estimator = estimator
        self._estimate = estimator.estimate
        self._execution = execution
        self._durations = workload.duration_s if trace_durations else None
        self._states = workload.states
        self.is_late = type(estimator).latency_s is not Estimator.latency_s
        """Whether estimates take time, so that jobs are submitted later."""
        self.learns = type(estimator).observe is not Estimator.observe
        """Whether the estimator wants to know of jobs that have ended."""
        self.rejected = 0
        """Number of unusable forecasts: durations that no job can have."""

    def forecast(self, job: Job) -> Forecast | None:
        """The estimator's forecast for a job, unless it is an impossible duration.

        A duration of 0 or an absurdly long one is only accepted from an oracle.
        """
        forecast = self._estimate(job)
        if forecast is None or 0 < forecast.duration_s <= ABSURD_S:
            return forecast
        if self._estimator.oracle and forecast.duration_s >= 0:
            return forecast
        self.rejected += 1
        return None

    def latency_s(self, job: Job) -> float:
        """Time that the estimate for this job takes [s]."""
        return self._estimator.latency_s(job)

    def learn(self, job: Job) -> None:
        """Report a job that has ended to the estimator, if that learns."""
        if not self.learns:
            return
        index, execution, states = job.index, self._execution, self._states
        if job.failures and execution.done[index] < execution.physics.work[index]:
            self._estimator.observe(job, job.service_s, completed=False)
            return
        # The run time without the effects of sharing and restarts.
        run_time_s = job.service_s if self._durations is None else self._durations[index]
        self._estimator.observe(job, run_time_s, not states or states[index] == "COMPLETED")


# Nodes that fail, if they do, are drained for maintenance, and come back.


_AT_RANDOM = -1


class Nodes:
    """Nodes fail at random, with all jobs on them, and come back after a repair.

    Maintenance is announced: from the drain on nothing new starts on a node.
    """

    def __init__(
        self,
        cluster: Cluster,
        execution: Execution,
        underway: Underway,
        parameters: Parameters,
        seed: int,
        maintenance: Sequence[Maintenance] = (),
    ) -> None:
        self._cluster = cluster
        self._execution = execution
        self._underway = underway
        self._mtbf_s = parameters.node_mtbf_s
        self._repair_s = parameters.repair_s
        self._draw = random.Random(seed)  # noqa: S311 - an experiment, not a secret
        self._maintenance = maintenance
        self._closed: dict[int, int] = {}  # number of reasons for each
        self._outages: dict[tuple[int, int], Outage] = {}  # by node and reason
        for period in maintenance:
            if (
                not 0 <= period.node < len(cluster.nodes)
                or not period.drain <= period.down <= period.up
            ):
                raise InputError(
                    f"maintenance of node {period.node} from {period.drain:g} s, down from "
                    f"{period.down:g} to {period.up:g} s: the cluster has nodes 0 to "
                    f"{len(cluster.nodes) - 1}, and these times have to ascend."
                )

    def begin(self, now: float) -> None:
        """All nodes are well now, and for as long as it lasts."""
        for node in range(len(self._cluster.nodes)):
            self._next(node, now)
        for number, period in enumerate(self._maintenance):
            self._expect(period.drain, DRAIN, period.node, number)

    def drain(self, node: int, number: int) -> None:
        """Drain a node: nothing new starts on it, and it goes down later."""
        period, now = self._maintenance[number], self._execution.view.now
        self._execution.coming -= 1
        self._close(node, number, Outage(node, now, period.down, NEVER))
        view = self._execution.view
        view.draining[node] = min(period.down, view.draining.get(node, NEVER))
        view.news.append(NodeNews(node, "drain", now, period.down))
        self._expect(period.down, DOWN, node, number)

    def fail(self, node: int, now: float, number: int = _AT_RANDOM) -> list[Job]:
        """A node fails, or is taken down; the jobs that ended by it."""
        execution, view = self._execution, self._execution.view
        up = now + self._repair_s if number == _AT_RANDOM else self._maintenance[number].up
        self._underway.cancel_starts(node)
        hit = view.running.by_rank(view.on(node))
        ended = [job for job in hit if not execution.fail(job, node)]
        if number == _AT_RANDOM:
            self._close(node, number, Outage(node, now, now, NEVER))
            execution.coming += 1
        view.news.append(NodeNews(node, "down", now, up, [job.id for job in hit]))
        heappush(execution.events, (up, UP, node, number))
        return ended

    def back(self, node: int, now: float, number: int = _AT_RANDOM) -> None:
        """A node is repaired, or its maintenance over."""
        execution, view = self._execution, self._execution.view
        execution.coming -= 1
        outage = self._outages.pop((node, number))
        execution.ledger.outages.append(outage._replace(up=now))
        self._closed[node] -= 1
        if not self._closed[node]:
            execution.space.reopen(node)
            view.draining.pop(node, None)
            view.news.append(NodeNews(node, "up", now))
        if number == _AT_RANDOM:
            self._next(node, now)

    def end(self) -> None:
        """The simulation is over: nodes that are down stay down."""
        self._execution.ledger.outages.extend(self._outages.values())

    def _close(self, node: int, number: int, outage: Outage) -> None:
        self._outages[node, number] = outage
        self._closed[node] = self._closed.get(node, 0) + 1
        self._underway.lose(node)
        if self._closed[node] == 1:
            self._execution.space.close(node)

    def _next(self, node: int, now: float) -> None:
        if self._mtbf_s is not None:
            wait_s = self._draw.expovariate(1.0 / self._mtbf_s)
            heappush(self._execution.events, (now + wait_s, DOWN, node, _AT_RANDOM))

    def _expect(self, at: float, kind: int, node: int, number: int) -> None:
        self._execution.coming += 1
        heappush(self._execution.events, (at, kind, node, number))


# What each kind of event does to jobs and nodes.


_TRANSITIONS = frozenset((LEFT, MOVED, LEND, RECLAIM, REORDER))
"""Events that may be void by the time they happen."""


class Handlers:
    """Handles events, the most frequent kinds first."""

    def __init__(
        self, execution: Execution, underway: Underway, nodes: Nodes, advice: Advice | None
    ) -> None:
        self._execution = execution
        self._underway = underway
        self._nodes = nodes
        self._advice = advice
        self._learns = advice is not None and advice.learns

    def handle(self, kind: int, index: int, which: int) -> None:
        """Handle one event: its kind, the position of its job or node, and its last part."""
        execution = self._execution
        if kind == END:
            job = execution.jobs[index]
            execution.end(job)
            if self._learns:
                self._learn(job)
        elif kind == PACE:
            execution.pace(execution.jobs[index])
        elif kind == WAKE:
            execution.woken(execution.jobs[index], which)
        elif kind in _TRANSITIONS:
            if self._transition(kind, execution.jobs[index], which):
                execution.dirty = True
        else:
            execution.dirty = True
            self._change(kind, index, which)

    def close(self) -> None:
        """Stop the simulation: no job starts any more, and running ones are recorded so far."""
        self._underway.cancel_starts()
        self._execution.close()

    def _transition(self, kind: int, job: Job, which: int) -> bool:
        """A step of a job's transition, or of its rank; False if the event is void."""
        if kind == LEFT:
            self._underway.leave(job)
            return True
        if kind == MOVED:
            return self._underway.moved(job, which)
        if kind == LEND:
            return self._underway.lend(job, which)
        if kind == RECLAIM:
            return self._underway.reclaim(job, which)
        return self._execution.reorder(job)

    def _change(self, kind: int, index: int, which: int) -> None:
        """An event after which the policy always decides."""
        execution = self._execution
        if kind == RERANK:
            execution.rerank(execution.jobs[index])
        elif kind == SUBMIT:
            execution.coming -= 1
            execution.submit(execution.jobs[index])
        elif kind == FAIL:
            if not execution.fail(execution.jobs[index]):
                self._learn(execution.jobs[index])
        elif kind == PROFILED:
            self._stop_profiling(execution.jobs[index])
        elif kind == TICK:
            execution.coming -= which == ASKED
        elif kind == UP:
            self._nodes.back(index, execution.now, which)
        elif kind == DRAIN:
            self._nodes.drain(index, which)
        elif kind == DOWN:
            for job in self._nodes.fail(index, execution.now, which):
                self._learn(job)
        elif kind == HORIZON:
            self.close()
            execution.unfinished = 0
            execution.dirty = False

    def _stop_profiling(self, job: Job) -> None:
        self._execution.stop_profiling(job)
        if self._advice is not None:
            job.forecast = self._advice.forecast(job)
        self._execution.wait(job)

    def _learn(self, job: Job) -> None:
        if self._advice is not None:
            self._advice.learn(job)


# When a policy that decides in rounds is asked.


_IDLE = 1000
"""Rounds without running jobs, arrivals or decisions after which the simulation fails."""


MOST_ROUNDS = 1_000_000
"""Rounds that one job may run for: eleven years of six minutes. Each costs, whatever happens."""


def check_rounds(durations_s: Iterable[float], policy: str, interval_s: float) -> None:
    """Raises `InputError` for a job that would keep a policy deciding for hours of real time."""
    longest = max(durations_s, default=0.0)
    if longest / interval_s > MOST_ROUNDS:
        raise InputError(
            f"a job of the trace runs for {format_duration(longest)}, and policy {policy} decides "
            f"every {interval_s:g} s, which is {longest / interval_s:.2g} times. Leave that job "
            "out of the trace, or take a policy that decides when something happens."
        )


class Rounds:
    """The multiples of a policy's interval [s], each an event when it is needed."""

    def __init__(self, interval_s: float, view: View, events: list[Event]) -> None:
        self._interval_s = interval_s
        self._view = view
        self._events = events
        self._at = -NEVER  # the next round, or the last one
        self._idle = 0

    def due(self, now: float) -> bool:
        """Whether the policy decides now; if not, it will at its next round."""
        if now == self._at:
            return True
        at = self._first(now)
        if at > now and at != self._at:
            self._enter(at)
        return at == now

    def next(self, now: float, *, idle: bool) -> bool:
        """Enter the next round unless there are no jobs; returns whether it did."""
        self._idle = self._idle + 1 if idle else 0
        if not (self._view.pending.any() or self._view.running.any()):
            return False
        self._enter(self._first(now, after=True))
        return self._idle < _IDLE

    def _first(self, now: float, *, after: bool = False) -> float:
        """The first round from `now` on, or strictly after it."""
        rounds = now // self._interval_s
        at = rounds * self._interval_s
        while at < now or (after and at <= now):
            rounds += 1
            at = rounds * self._interval_s
        return at

    def _enter(self, at: float) -> None:
        self._at = at
        heappush(self._events, (at, TICK, -1, -1))


# Checks for jobs that this cluster, or any cluster, could never run.


def check_times(jobs: Sequence[Job], durations_s: Sequence[float]) -> None:
    """Raises `InputError` for a time that is none; sums of those that are stay exact and finite.

    A service has no duration: it is infinite.
    """
    for job, duration_s in zip(jobs, durations_s, strict=True):
        endless = job.terms is not None and job.terms.endless
        if endless and duration_s != float("inf"):
            raise InputError(
                f"job {job.id} is a service (endless), which runs until it is stopped, but has "
                f"a duration of {duration_s:g} s: give it an infinite duration, or terms that are "
                "not endless."
            )
        if not ((endless or 0 <= duration_s <= LONGEST_S) and abs(job.submit_time) <= LONGEST_S):
            raise InputError(
                f"job {job.id} comes at {job.submit_time:g} s and runs for {duration_s:g} s; "
                f"times go up to {LONGEST_S:g} s, and no duration is negative."
            )


def check_sizes(jobs: Iterable[Job], space: Space) -> None:
    """Raises `InputError` for a job that does not fit into the space, which is empty."""
    fits: dict[tuple[object, ...], bool] = {}
    unfit = []
    for job in jobs:
        asked = (job.vc, job.gpu_type, job.gpus, job.min_gpus, job.share, job.cpus, job.memory_mb)
        key = asked if job.constraints is None else (*asked, job.constraints)
        if key not in fits:
            if job.constraints is not None and job.constraints.pods:
                check_pods(job)
            fits[key] = any(
                space.find(job, role, gpus=job.min_gpus) is not None for role in ("", PROFILING)
            )
        if not fits[key]:
            unfit.append(job)
    if unfit:
        raise InputError(_why_too_large(unfit[0], space, len(unfit) - 1))


def _why_too_large(job: Job, space: Space, others: int) -> str:
    where = f" in virtual cluster {job.vc!r}" if job.vc else ""
    kind = f" of type {job.gpu_type}" if job.gpu_type else ""
    asked = counted(job.gpus, "GPU")
    part = ""
    vcs = {node.vc for node in space.cluster.nodes}
    types = {node.gpu_type for node in space.cluster.nodes}
    if "" not in vcs and job.vc not in vcs:
        why = f"no node is open to it: the cluster's are of {', '.join(sorted(vcs))}"
    elif job.gpu_type and not types & {"", job.gpu_type}:
        why = f"the cluster's GPUs are of type {', '.join(sorted(types))}"
    else:
        why = "more than its nodes can ever give"
        part = f" --max-gpus {job.gpus - 1}" if job.gpus > 1 and not job.cpus else ""
    more = f" ({others:,} more cannot run there either)" if others else ""
    return (
        f"job {job.id} asks for {asked}{kind}{where}: {why}{more}. Choose another cluster, or cut "
        f"the trace with `schedmate traces sample{part}`."
    )


def check_pods(job: Job) -> None:
    """Raises `InputError` for GPUs that cannot be divided among the job's pods."""
    assert job.constraints is not None
    pods = job.constraints.pods
    if pods < 1 or job.gpus % pods or (pods > 1 and job.share != 1.0):
        raise InputError(
            f"job {job.id} asks for {job.gpus} GPUs in {pods} equal pods; the number of GPUs must "
            "be a multiple of that of pods."
        )


def check_windows(workload: Workload) -> None:
    """Raises `InputError` for windows of lending that end before they begin, or overlap, and for
    phases that are none."""
    for index, phases in workload.phases.items():
        job, constraints = workload.jobs[index], workload.jobs[index].constraints
        if not phases or any(
            not (0 < phase.work_s <= LONGEST_S and 1 <= phase.gpus <= job.gpus) for phase in phases
        ):
            raise InputError(
                f"job {job.id} has a phase without work, or of other GPUs than its {job.gpus}."
            )
        apart = constraints is not None and (constraints.group or constraints.avoid)
        if index in workload.standby or job.share != 1.0 or job.elastic or apart:
            raise InputError(
                f"job {job.id} has phases: it cannot have windows of lending, share a GPU, change "
                "its size or keep away from others, too."
            )
    for index, windows in workload.standby.items():
        before = float("-inf")
        for start, until in windows:
            if not before <= start <= until <= LONGEST_S:
                raise InputError(
                    f"job {workload.jobs[index].id} lends its GPUs from {start:g} to {until:g} s: "
                    "its windows have to be in order, and none may end before it begins."
                )
            before = until
