"""Carrying out decisions, and the state of every job that holds GPUs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappush
from typing import NamedTuple

from schedmate.errors import SchedmateError
from schedmate.schedulers.model import Allocation, Job
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
from schedmate.schedulers.sim.parameters import Parameters
from schedmate.schedulers.sim.workload import Workload

END, PROFILED, RERANK, TICK, DOWN, UP = range(6)
"""Kinds of events; at one instant they happen in this order."""


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


class Execution:
    """Which job runs where, how far it is, and when it will end."""

    def __init__(
        self, workload: Workload, policy: Policy, view: View, parameters: Parameters
    ) -> None:
        self.workload = workload
        self.policy = policy
        self.view = view
        self.space = view.space
        self.parameters = parameters
        count = len(workload)
        self.events: list[tuple[float, int, int, int]] = []
        """(time, kind, job or node, epoch): a heap."""
        self.epoch = [0] * count
        """Of each job: an event of an older epoch no longer holds."""
        self.started = [NEVER] * count
        self.segments: list[Segment] = []
        self.counts: dict[type, int] = {}
        self._left = list(workload.duration_s)  # work still to do at speed 1 [s]
        self._left_at_start = list(self._left)
        self._speed = [1.0] * count
        self._since = [0.0] * count  # up to when `_left` is accounted for
        self._kind = ["run"] * count
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

    def carry_out(self, decisions: Sequence[Decision]) -> bool:
        """Do what the policy decided, ending its transaction on the space.

        True when the policy has to be asked again at this instant. Raises `DecisionError` for the
        first decision that is impossible.
        """
        self._again = False
        # Mostly a policy has booked just the starts that it returns: then that is kept.
        starts = [one for one in decisions if type(one) is Start] if decisions else []
        self._booked = self.space.settle(starts)
        for decision in decisions:
            kind = type(decision)
            self._apply[kind](decision)
            self.counts[kind] = self.counts.get(kind, 0) + 1
        return self._again

    def end(self, job: Job) -> None:
        """The job has done its work."""
        self._left[job.index] = 0.0
        self._release(job)

    def stop_profiling(self, job: Job) -> None:
        """Its profile is known. What it did meanwhile is lost: nobody says that it was saved."""
        self._release(job)
        self._left[job.index] = self.workload.duration_s[job.index]
        job.profiled = True

    def fail(self, job: Job) -> None:
        """The job's node is gone, and its work since the last checkpoint."""
        self._advance(job)
        index = job.index
        if self._kind[index] == "profile":
            self._left[index] = self._left_at_start[index]
        else:
            done = self.workload.duration_s[index] - self._left[index]
            lost = done % self.parameters.checkpoint_s
            self._left[index] = min(self._left[index] + lost, self._left_at_start[index])
        job.failures += 1
        self._release(job)
        self.enqueue(job)

    def enqueue(self, job: Job) -> None:
        """The job waits."""
        policy = self.policy
        self.view.pending.add(job, policy.lane(job), policy.rank(job, self.view.now))

    def rerank(self, job: Job) -> None:
        """The rank of a running job has changed by itself."""
        policy, now = self.policy, self.view.now
        self.view.running.remove(job)
        self.view.running.add(job, policy.lane(job), policy.rank(job, now))
        until = policy.rank_until(job, now)
        if now < until < NEVER:
            heappush(self.events, (until, RERANK, job.index, self.epoch[job.index]))

    # Decisions.

    def _start(self, decision: Start) -> None:
        self._hold(decision.job, decision.allocation, decision, self._booked)
        self._begin(decision.job, "run")

    def _profile(self, decision: Profile) -> None:
        job, limit = decision.job, decision.limit_s
        if self.parameters.profiling_is_free and self._left[job.index] > limit:
            job.profiled = True
            self._leave_queue(job, decision)
            self.enqueue(job)
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
        if self.started[index] == NEVER:
            self.started[index] = now
        again = restart or job.preemptions or job.evictions or job.failures
        self._since[index] = now + self.parameters.restart(job.gpus) if again else now
        self._run(job, limit)

    def _run(self, job: Job, limit: float | None = None) -> None:
        """Enter the job among the running, and foresee its end and its change of rank."""
        index, now, policy = job.index, self.view.now, self.policy
        epoch = self.epoch[index] = self.epoch[index] + 1
        left = self._left[index] / self._speed[index]
        if limit is not None and left > limit:
            heappush(self.events, (now + limit, PROFILED, index, epoch))
        else:
            heappush(self.events, (self._since[index] + left, END, index, epoch))
        self.view.running.add(job, policy.lane(job), policy.rank(job, now))
        until = policy.rank_until(job, now)
        if until < NEVER:
            heappush(self.events, (max(until, now), RERANK, index, epoch))

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
        self.enqueue(job)

    def _release(self, job: Job) -> None:
        """Take a job off its GPUs; a partner runs on alone."""
        index, now = job.index, self.view.now
        work = self._left_at_start[index] - self._left[index]
        kind = self._kind[index]
        self.segments.append(
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
        self.epoch[index] += 1
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

    def _impossible(self, decision: Decision, why: str) -> DecisionError:
        return DecisionError(
            f"policy {self.policy.name} decided {type(decision).__name__} of job "
            f"{decision.job.id} at {self.view.now:.3f} s, which is impossible: {why}."
        )
