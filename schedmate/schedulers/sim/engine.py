"""The event loop: jobs arrive, run and end; after each change the policy decides.

Time moves from event to event, so a simulation is exact and costs what happens in it, not the
time that it covers.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from heapq import heappop, heappush
from typing import NamedTuple

from schedmate.errors import InputError, SchedmateError
from schedmate.schedulers.estimators import Estimator
from schedmate.schedulers.model import PROFILING, Allocation, Cluster, Job
from schedmate.schedulers.policy import (
    NEVER,
    Decision,
    Evict,
    Migrate,
    Pack,
    Policy,
    Preempt,
    Profile,
    Resize,
    Start,
    View,
)
from schedmate.schedulers.sim.parameters import HONEST, Parameters
from schedmate.schedulers.sim.workload import Workload
from schedmate.schedulers.space import Space

_END, _PROFILED, _RERANK, _TICK = range(4)


class DecisionError(SchedmateError):
    """A policy decided something impossible."""


class Segment(NamedTuple):
    """A job held GPUs from `start` to `end` and got `work_s` of its work done."""

    job: int
    """Position in the workload."""
    start: float
    end: float
    allocation: Allocation
    work_s: float
    kind: str
    """`run`, `packed` (joined another job) or `profile`."""


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
    ) -> None:
        self.workload = workload
        self.policy = policy
        self.cluster = policy.set_aside(cluster)
        self.estimator = estimator
        self.parameters = parameters
        self.space = Space(self.cluster)
        self.view = View(self.space)
        has_vcs = any(node.vc for node in self.cluster.nodes)
        for job, vc in zip(workload.jobs, workload.vcs or [""] * len(workload), strict=True):
            job.vc = vc if has_vcs else ""
        self._check_sizes()
        count = len(workload)
        self._left = list(workload.duration_s)  # work still to do at speed 1 [s]
        self._left_at_start = list(self._left)
        self._speed = [1.0] * count
        self._since = [0.0] * count  # up to when `_left` is accounted for
        self._epoch = [0] * count  # an event of an older epoch no longer holds
        self._kind = ["run"] * count
        self._events: list[tuple[float, int, int, int]] = []
        self._started = [NEVER] * count
        self._ended = [NEVER] * count
        self._segments: list[Segment] = []
        self._counts: dict[type, int] = {}
        self._bad_estimates = 0
        self._again = self._booked = False
        self._apply: dict[type, Callable[..., None]] = {
            Start: self._start,
            Pack: self._pack,
            Evict: self._evict,
            Preempt: self._preempt,
            Resize: self._reallocate,
            Migrate: self._reallocate,
            Profile: self._profile,
        }

    def run(self, progress: Callable[[int], None] | None = None) -> Outcome:
        """Simulate until the last job has ended.

        `progress` is told now and then how many jobs have been submitted. Raises `DecisionError`
        for a decision that cannot be carried out, and when jobs are left that never start.
        """
        # Nothing here is cyclic garbage, and looking for it takes a third of the time.
        collecting = gc.isenabled()
        gc.disable()
        try:
            return self._loop(progress)
        finally:
            if collecting:
                gc.enable()

    def _loop(self, progress: Callable[[int], None] | None) -> Outcome:
        jobs, events, interval = self.workload.jobs, self._events, self.policy.interval_s
        for job in jobs:
            job.reset()
        count, arrived, handled, tick = len(jobs), 0, 0, -1.0
        submit = [job.submit_time for job in jobs] + [NEVER]
        while arrived < count or events:
            now = submit[arrived]
            if events and events[0][0] < now:
                now = events[0][0]
            self.view.now = now
            changed = False
            while events and events[0][0] == now:
                _, kind, index, epoch = heappop(events)
                if kind == _TICK:
                    changed = True
                elif epoch == self._epoch[index]:
                    handled += 1
                    changed = True
                    self._handle(kind, jobs[index])
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
                    heappush(events, (due, _TICK, -1, -1))
            else:
                while self._decide():
                    pass
        if len(self.view.pending):
            raise DecisionError(self._stuck())
        return Outcome(
            self._started,
            self._ended,
            [job.service_s for job in jobs],
            self._segments,
            handled + count,
            {kind.__name__: number for kind, number in self._counts.items()},
            self._bad_estimates,
        )

    def _decide(self) -> bool:
        """Ask the policy once; whether it has to be asked again at this instant."""
        self.space.begin()
        decisions = self.policy.decide(self.view)
        self._again = False
        # Mostly a policy has booked just the starts that it returns: then that is kept.
        starts = [one for one in decisions if type(one) is Start] if decisions else []
        self._booked = self.space.settle(starts)
        for decision in decisions:
            kind = type(decision)
            self._apply[kind](decision)
            self._counts[kind] = self._counts.get(kind, 0) + 1
        return self._again

    # What happens by itself.

    def _arrive(self, job: Job) -> None:
        if self.parameters.profiling_is_free:
            job.profile = self.workload.profiles[job.index]
        self.view.submitted.append(job.submit_time)
        self._forecast(job)
        self._enqueue(job)

    def _handle(self, kind: int, job: Job) -> None:
        if kind == _RERANK:
            self._rerank(job)
        elif kind == _END:
            self._left[job.index] = 0.0
            self._ended[job.index] = self.view.now
            self._release(job)
            if self.estimator is not None:
                states = self.workload.states
                completed = not states or states[job.index] == "COMPLETED"
                self.estimator.observe(job, self.workload.duration_s[job.index], completed)
        else:
            # What was done while profiling is lost: nothing is said to have been saved.
            self._release(job)
            self._left[job.index] = self.workload.duration_s[job.index]
            job.profile = self.workload.profiles[job.index]
            job.profiled = True
            self._forecast(job)
            self._enqueue(job)

    # Decisions.

    def _start(self, decision: Start) -> None:
        self._hold(decision.job, decision.allocation, decision, self._booked)
        self._begin(decision.job, "run")

    def _profile(self, decision: Profile) -> None:
        job, limit = decision.job, decision.limit_s
        if self.parameters.profiling_is_free and self._left[job.index] > limit:
            job.profiled = True
            self._leave_queue(job, decision)
            self._enqueue(job)
            self._again = True
            return
        self._hold(job, decision.allocation, decision)
        self._begin(job, "profile", limit)

    def _pack(self, decision: Pack) -> None:
        job, partner = decision.job, decision.partner
        if not partner.allocation or partner.partner is not None or partner.gpus != job.gpus:
            raise self._impossible(
                decision, "the partner does not run alone on as many GPUs as the job asks for"
            )
        if self._kind[partner.index] == "profile":
            raise self._impossible(decision, "the partner is being profiled")
        self._leave_queue(job, decision)
        self._advance(partner)
        self.view.running.remove(partner)
        job.partner, partner.partner = partner, job
        job.allocation = partner.allocation
        self._set_speeds(job, partner)
        self._begin(job, "packed")
        self._run(partner)

    def _evict(self, decision: Evict) -> None:
        if decision.job.partner is None:
            raise self._impossible(decision, "the job shares its GPUs with no other")
        decision.job.evictions += 1
        self._interrupt(decision.job)

    def _preempt(self, decision: Preempt) -> None:
        job = decision.job
        if not job.allocation or self._kind[job.index] == "profile":
            raise self._impossible(decision, "the job is not running")
        job.preemptions += 1
        self._interrupt(job)

    def _reallocate(self, decision: Resize | Migrate) -> None:
        job, allocation = decision.job, decision.allocation
        if not job.allocation or job.partner is not None or self._kind[job.index] != "run":
            raise self._impossible(decision, "the job does not run alone")
        gpus = sum(mask.bit_count() for _, mask in allocation)
        held = sum(mask.bit_count() for _, mask in job.allocation)
        if isinstance(decision, Migrate):
            if gpus != held or not job.migratable:
                raise self._impossible(decision, "it moves to as many GPUs, if it may move")
        elif not job.min_gpus <= gpus <= job.max_gpus:
            raise self._impossible(decision, "the job cannot run on so many GPUs")
        self._advance(job)
        self._release(job)
        if not self.space.take(job, allocation):
            raise self._impossible(decision, "not all of these GPUs are free")
        job.allocation = allocation
        self._speed[job.index] = (gpus / job.gpus) ** self.parameters.scaling
        self._begin(job, "run", restart=True)

    # The state of one job.

    def _forecast(self, job: Job) -> None:
        if self.estimator is None:
            return
        forecast = self.estimator.estimate(job)
        if forecast is not None and not 0 <= forecast.duration_s < NEVER:
            self._bad_estimates += 1
            forecast = None
        job.forecast = forecast

    def _enqueue(self, job: Job) -> None:
        policy = self.policy
        self.view.pending.add(job, policy.lane(job), policy.rank(job, self.view.now))

    def _leave_queue(self, job: Job, decision: Decision) -> None:
        if job not in self.view.pending:
            raise self._impossible(decision, "the job is not waiting")
        self.view.pending.remove(job)

    def _hold(
        self, job: Job, allocation: Allocation, decision: Decision, booked: bool = False
    ) -> None:
        gpus = 0
        for _, mask in allocation:
            gpus += mask.bit_count()
        if gpus != job.gpus and not (job.elastic and job.min_gpus <= gpus <= job.max_gpus):
            raise self._impossible(decision, f"it is given {gpus} GPUs and asks for {job.gpus}")
        self._leave_queue(job, decision)
        if not booked and not self.space.take(job, allocation):
            raise self._impossible(decision, "not all of these GPUs are free")
        job.allocation = allocation
        if gpus != job.gpus:
            self._speed[job.index] = (gpus / job.gpus) ** self.parameters.scaling

    def _begin(
        self, job: Job, kind: str, limit: float | None = None, *, restart: bool = False
    ) -> None:
        index, now = job.index, self.view.now
        job.started = now
        # While it runs, what it uses can be seen.
        job.profile = self.workload.profiles[index]
        job.profiling = kind == "profile"
        self._kind[index] = kind
        self._left_at_start[index] = self._left[index]
        if self._started[index] == NEVER:
            self._started[index] = now
        again = restart or job.preemptions or job.evictions
        self._since[index] = now + self.parameters.restart(job.gpus) if again else now
        self._run(job, limit)

    def _run(self, job: Job, limit: float | None = None) -> None:
        """Enter the job among the running, and foresee its end and its change of rank."""
        index, now, policy = job.index, self.view.now, self.policy
        epoch = self._epoch[index] = self._epoch[index] + 1
        left = self._left[index] / self._speed[index]
        if limit is not None and left > limit:
            heappush(self._events, (now + limit, _PROFILED, index, epoch))
        else:
            heappush(self._events, (self._since[index] + left, _END, index, epoch))
        self.view.running.add(job, policy.lane(job), policy.rank(job, now))
        until = policy.rank_until(job, now)
        if until < NEVER:
            heappush(self._events, (max(until, now), _RERANK, index, epoch))

    def _rerank(self, job: Job) -> None:
        policy, now = self.policy, self.view.now
        self.view.running.remove(job)
        self.view.running.add(job, policy.lane(job), policy.rank(job, now))
        until = policy.rank_until(job, now)
        if now < until < NEVER:
            heappush(self._events, (until, _RERANK, job.index, self._epoch[job.index]))

    def _advance(self, job: Job) -> None:
        """Account for the work done up to now."""
        index, now = job.index, self.view.now
        if now > self._since[index]:
            done = (now - self._since[index]) * self._speed[index]
            self._left[index] = max(0.0, self._left[index] - done)
            self._since[index] = now

    def _interrupt(self, job: Job) -> None:
        self._advance(job)
        self._release(job)
        self._enqueue(job)

    def _release(self, job: Job) -> None:
        """Take a job off its GPUs; a partner runs on alone."""
        index, now = job.index, self.view.now
        work = self._left_at_start[index] - self._left[index]
        kind = self._kind[index]
        self._segments.append(
            Segment(
                index,
                job.started,
                now,
                job.allocation,
                0.0 if kind == "profile" and self._left[index] else work,
                kind,
            )
        )
        self.view.running.remove(job)
        self._epoch[index] += 1
        job.service_s += now - job.started
        partner = job.partner
        if partner is None:
            self.space.give(job, job.allocation)
        else:
            self._advance(partner)
            self.view.running.remove(partner)
            job.partner = partner.partner = None
            self._speed[partner.index] = 1.0
            self._run(partner)
        job.allocation = ()
        job.profiling = False
        self._speed[index] = 1.0

    def _set_speeds(self, job: Job, partner: Job) -> None:
        workload, one, two = self.workload, job.index, partner.index
        configs = workload.configs
        self._speed[one], self._speed[two] = self.parameters.interference.speeds(
            workload.profiles[one],
            workload.profiles[two],
            (configs[one], configs[two]) if configs else ("", ""),
        )

    # What is said when something cannot be.

    def _check_sizes(self) -> None:
        """Raises `InputError` for a job that not even the empty cluster could hold."""
        fits: dict[tuple[object, ...], bool] = {}
        for job in self.workload.jobs:
            key = (job.vc, job.gpu_type, job.gpus, job.share, job.cpus, job.memory_mb)
            if key not in fits:
                fits[key] = (self.space.find(job) or self.space.find(job, PROFILING)) is not None
            if not fits[key]:
                where = f" in virtual cluster {job.vc!r}" if job.vc else ""
                kind = f" of type {job.gpu_type}" if job.gpu_type else ""
                raise InputError(
                    f"job {job.id} asks for {job.gpus} GPUs{kind}{where}, more than its nodes "
                    "can ever give; choose a larger cluster."
                )

    def _impossible(self, decision: Decision, why: str) -> DecisionError:
        return DecisionError(
            f"policy {self.policy.name} decided {type(decision).__name__} of job "
            f"{decision.job.id} at {self.view.now:.3f} s, which is impossible: {why}."
        )

    def _stuck(self) -> str:
        first = self.view.pending.first()
        assert first is not None
        return (
            f"policy {self.policy.name} left {len(self.view.pending)} jobs waiting for ever, the "
            f"first {first.id} ({first.gpus} GPUs), though nothing else runs or arrives."
        )
