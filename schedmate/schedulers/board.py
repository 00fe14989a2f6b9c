"""A policy's view of a live cluster, and its decisions from the decision until its answer.

What jobs and nodes do is in the base, `LiveView`; `Board` adds what is to be done with them.

An executor reports events to the `Board` (`submit`, `ended`, `stopped`, `down` ...), calls
`decide`, carries out the decisions and answers each with `accept` or `refuse`. Until then the GPUs
are booked, and nothing else is decided about the job. To the policy, this view looks like that of a
simulation.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Literal

from schedmate.schedulers.model import (
    EVERYTHING,
    NEVER,
    Allocation,
    Capabilities,
    Cluster,
    Job,
    NodeNews,
    Status,
)
from schedmate.schedulers.model import Profile as Use
from schedmate.schedulers.policy import (
    Answer,
    Borrow,
    Decision,
    Drop,
    Evict,
    Migrate,
    Pack,
    Policy,
    Preempt,
    Profile,
    Resize,
    Start,
    Usage,
    View,
    bars,
    check_pool,
    deciding,
    needs,
)
from schedmate.schedulers.space import Space


class LiveView:
    """Keeps the `View` of one policy, with the ranks of its jobs, up to date.

    Args:
        cluster: its nodes; the policy may set some aside.
        policy: whose ranks order the jobs.
        can: what the executor can do.

    Raises `UsageError` as `check_pool` does.
    """

    def __init__(self, cluster: Cluster, policy: Policy, can: Capabilities = EVERYTHING) -> None:
        check_pool(policy, cluster)
        self.policy = policy
        self.cluster = policy.set_aside(cluster)
        self.view = View(Space(self.cluster), policy)
        if policy.usage_half_life_s is not None:
            self.view.usage = Usage(policy.usage_half_life_s)
        self.view.can = can
        self._closed: set[int] = set()
        self._wakes: list[tuple[float, int, Job]] = []

    def submit(self, job: Job, now: float) -> None:
        """Add a submitted job, with its `forecast` if it has one."""
        self.view.now = now
        self.view.submitted.append(now)
        self.view.requested.append(self.view.requested[-1] + job.gpus)
        self.wait(job)

    def resume(
        self,
        job: Job,
        allocation: Allocation,
        now: float,
        since: float,
        partner: Job | None = None,
    ) -> bool:
        """Take over a job that has been running since `since` [s]; False if its GPUs are not free.

        With a `partner`, which must run alone, the job shares its GPUs.
        """
        self.view.now = now
        if partner is not None:
            self.join(job, partner, since)
            return True
        if not self.view.space.take(job, allocation, any_size=True):
            return False
        self.run(job, allocation, since)
        return True

    def rejoin(self, job: Job, now: float) -> None:
        """Queue a job that was withdrawn, or that was submitted before this view was made."""
        self.view.now = now
        self.wait(job)

    def drain(self, node: int, now: float, until: float = NEVER) -> None:
        """Start nothing new on a node, which is announced to go down at `until` [s]."""
        self.view.now = now
        self._close(node)
        self.view.draining[node] = until
        self.view.news.append(NodeNews(node, "drain", now, until))

    def down(self, node: int, now: float, until: float = NEVER) -> list[Job]:
        """Mark a node as lost; returns the jobs on it.

        For each of them the caller has to report how it left, as by `Board.ended` or `stopped`.
        """
        self.view.now = now
        self._close(node)
        hit = self.view.on(node)
        self.view.news.append(NodeNews(node, "down", now, until, [job.id for job in hit]))
        return hit

    def up(self, node: int, now: float) -> None:
        """Return a node to service."""
        self.view.now = now
        if node in self._closed:
            self._closed.discard(node)
            self.view.space.reopen(node)
            self.view.draining.pop(node, None)
            self.view.news.append(NodeNews(node, "up", now))

    def changed(self, job: Job, now: float) -> None:
        """Rank a job again after its data has changed."""
        self.view.now, self.view.altered = now, True
        if self.view.pending.remove(job):
            self.wait(job)
        elif self.view.running.remove(job):
            self._rank(job)

    def next_change(self) -> float:
        """The next time at which the rank of a job changes by itself, or `NEVER` [s]."""
        view = self.view
        while self._wakes:
            job = self._wakes[0][2]
            if job in view.pending or job in view.running:
                break
            heappop(self._wakes)
        return self._wakes[0][0] if self._wakes else NEVER

    def rank_due(self, now: float) -> None:
        """Rank the jobs again whose rank has changed by itself until now."""
        self.view.now = now
        while self._wakes and self._wakes[0][0] <= now:
            self.changed(heappop(self._wakes)[2], now)

    def wait(self, job: Job) -> None:
        """Put a job into the queue."""
        self.view.pending.add(job, self.view.now)
        self._wake(job, self.policy.waiting_until(job, self.view.now))

    def _rank(self, job: Job) -> None:
        self.view.running.add(job, self.view.now)
        self._wake(job, self.policy.rank_until(job, self.view.now))

    def _wake(self, job: Job, at: float) -> None:
        if self.view.now < at < NEVER:
            heappush(self._wakes, (at, job.index, job))

    def run(self, job: Job, allocation: Allocation, since: float) -> None:
        """Record that a job runs on GPUs that are booked for it."""
        job.settle()
        job.allocation, job.started = allocation, since
        if self.view.holders is not None:
            self.view.holders.add(job)
        self._rank(job)

    def join(self, job: Job, partner: Job, since: float) -> None:
        """Record that a job runs on the GPUs of a partner that ran alone."""
        self.view.running.remove(partner)
        job.partner, partner.partner = partner, job
        self._rank(partner)
        self.run(job, partner.allocation, since)

    def settle(self, job: Job) -> None:
        """Record that no decision about a job is under way any more."""
        job.settle()
        self.view.leaving.pop(job.index, None)

    def release(self, job: Job) -> None:
        """Record that a job no longer has its allocation; the caller frees the GPUs."""
        view = self.view
        view.running.remove(job)
        if view.holders is not None:
            view.holders.remove(job)
        if view.usage is not None:
            view.usage.add(job, view.now)
        job.service_s += view.now - job.started
        self.settle(job)
        job.allocation, job.profiling = (), False

    def leave(self, job: Job) -> None:
        """Remove a job from the queue or its GPUs; its partner continues alone."""
        if not job.allocation:
            self.view.pending.remove(job)
            return
        partner, allocation = job.partner, job.allocation
        self.release(job)
        if partner is None:
            self.view.space.give(job, allocation)
            return
        job.partner = partner.partner = None
        self.view.running.remove(partner)
        self._rank(partner)

    def _close(self, node: int) -> None:
        if node not in self._closed:
            self._closed.add(node)
            self.view.space.close(node)


# Decisions in flight: from the policy's decision until the executor's answer.


@dataclass(slots=True)
class _Flight:
    """A decision that was sent, or waits for GPUs that others are to leave."""

    decision: Decision
    since: float
    """When it was decided [s]."""
    sent: bool = True
    claims: bool = False
    """Whether the GPUs are kept for it until others have left them."""


class Board(LiveView):
    """A `LiveView` with the decisions of its policy that are not answered yet.

    Args:
        cluster: its nodes; the policy may set some aside.
        policy: makes the decisions.
        can: what the executor can do.
        late_s: time after which an answer counts as late [s].

    Raises `UsageError` as `check_pool` does.
    """

    def __init__(
        self,
        cluster: Cluster,
        policy: Policy,
        can: Capabilities = EVERYTHING,
        late_s: float = 60.0,
    ) -> None:
        super().__init__(cluster, policy, can)
        self.late_s = late_s
        self._ask = deciding(policy, self.cluster)
        self._flights: dict[int, _Flight] = {}  # by job

    def withdraw(self, job: Job, now: float) -> list[Decision]:
        """Take a job out, waiting or running, until it rejoins; see `ended`."""
        return self.ended(job, now)

    def ended(self, job: Job, now: float) -> list[Decision]:
        """A job has left its GPUs for good; what can be sent now that others waited for."""
        self.view.now = now
        flight = self._flights.pop(job.index, None)
        if flight is not None:
            self._undo(flight)
            self._answer(flight, "refused", "the job has ended")
        self.leave(job)
        return self._send()

    def stopped(self, job: Job, now: float) -> list[Decision]:
        """A job has left its GPUs without a decision, and waits again; see `ended`."""
        found = self.ended(job, now)
        self.wait(job)
        return found

    def profiled(self, job: Job, use: Use | None, now: float) -> list[Decision]:
        """A profiled job has reached its limit; `use` is its measured profile."""
        job.profiled, job.profile = True, use
        return self.stopped(job, now)

    def decide(self, now: float) -> list[Decision]:
        """Decisions to carry out now, in order; each must be answered.

        Impossible decisions, and those beyond the executor's capabilities, are refused immediately.
        """
        self.rank_due(now)
        view = self.view
        view.space.begin()
        decisions = list(self._ask(view))
        view.space.rollback()
        view.news, view.answers = [], []
        for decision in decisions:
            self._take_off(decision)
        return self._send()

    def accept(
        self, decision: Decision, now: float, allocation: Allocation | None = None
    ) -> list[Decision]:
        """It has been carried out; what can be sent now that others waited for.

        `allocation`: the GPUs that the job really got, where the executor cannot pin them. A stop
        is carried out when the job has left its GPUs.
        """
        self.view.now = now
        flight = self._flights.pop(decision.job.index)
        late = now - flight.since > self.late_s
        self._done(decision, allocation)
        if late:
            self._answer(flight, "late", f"it took {now - flight.since:.0f} s")
        return self._send()

    def refuse(self, decision: Decision, why: str, now: float) -> list[Decision]:
        """A decision was not carried out, and its bookings are undone; see `accept`."""
        self.view.now = now
        flight = self._flights.pop(decision.job.index)
        self._undo(flight)
        self._answer(flight, "refused", why)
        return self._send()

    def overdue(self, now: float) -> list[Decision]:
        """Decisions that were sent and should have been answered by now."""
        return [
            flight.decision
            for flight in self._flights.values()
            if flight.sent and now - flight.since > self.late_s
        ]

    def in_flight(self) -> list[Decision]:
        """All that has not been answered, in the order of its making."""
        return [flight.decision for flight in self._flights.values()]

    # Sending.

    def _take_off(self, decision: Decision) -> None:
        view, job = self.view, decision.job
        flight = _Flight(decision, view.now, sent=False)
        if why := self._why_not(decision):
            self._answer(flight, "refused", why)
            return
        if not job.allocation:
            view.pending.remove(job)
        else:
            target = decision.allocation if isinstance(decision, Migrate | Resize) else ()
            grace_s = decision.grace_s if isinstance(decision, Evict) else self.late_s
            leaves = NEVER if target else view.now + grace_s
            job.put_under_way(Status(leaves_by=leaves, moves_to=target))
            if not target:
                view.leaving[job.index] = job
        self._flights[job.index] = flight

    def _why_not(self, decision: Decision) -> str:
        """Why the decision is impossible or beyond this executor; empty if it is possible."""
        view, job = self.view, decision.job
        if lacking := needs(decision, view.can):
            return f"the executor cannot {lacking}"
        if barred := bars(decision, view.space):
            return barred
        if job.index in self._flights:
            return "another decision about the job is not answered yet"
        waits = job in view.pending
        if isinstance(decision, Start | Borrow | Profile | Pack):
            if not waits:
                return "the job is not waiting"
            if isinstance(decision, Pack):
                partner = decision.partner
                alone = partner.partner is None and partner.status is None
                if not partner.allocation or not alone or partner.gpus != job.gpus:
                    return (
                        "the partner does not run alone on the number of GPUs that the job asks for"
                    )
            return ""
        if not job.allocation and not (isinstance(decision, Drop) and waits):
            return "the job is not running"
        if isinstance(decision, Migrate | Resize) and job.partner is not None:
            return "the job does not run alone"
        return ""

    def _send(self) -> list[Decision]:
        """Book what can be booked of what waits, in order; refuse what never can."""
        sent: list[Decision] = []
        for index, flight in list(self._flights.items()):
            if flight.sent:
                continue
            self._end_claim(flight)
            if self._book(flight.decision):
                flight.sent = True
                sent.append(flight.decision)
            elif not any(self._leaves(one.decision) for one in self._flights.values() if one.sent):
                del self._flights[index]
                self._undo(flight)
                self._answer(flight, "refused", "not all of these GPUs are free")
            elif isinstance(flight.decision, Start):
                job, allocation = flight.decision
                self.view.space.claim(job, allocation)
                self.view.starting[index] = (job, allocation)
                flight.claims = True
        return sent

    def _end_claim(self, flight: _Flight) -> None:
        if flight.claims:
            flight.claims = False
            job, allocation = self.view.starting.pop(flight.decision.job.index)
            self.view.space.end_claim(job, allocation)

    def _leaves(self, decision: Decision) -> bool:
        """Whether carrying it out makes room for others."""
        return isinstance(decision, Preempt | Evict | Migrate | Resize | Drop)

    def _book(self, decision: Decision) -> bool:
        space, job = self.view.space, decision.job
        if isinstance(decision, Start | Borrow):
            return space.take(job, decision.allocation)
        if isinstance(decision, Profile):
            return space.take(job, decision.allocation, any_size=True)
        if isinstance(decision, Migrate | Resize):
            if isinstance(decision, Migrate) and decision.overlap:
                return space.take(job, decision.allocation)
            space.give(job, job.allocation)
            if space.take(job, decision.allocation):
                return True
            space.take(job, job.allocation, any_size=True)
            return False
        if isinstance(decision, Pack):
            # The partner may have ended since the decision.
            return bool(decision.partner.allocation) and decision.partner.partner is None
        return True

    # Answers.

    def _done(self, decision: Decision, actual: Allocation | None) -> None:
        view, job = self.view, decision.job
        if isinstance(decision, Start | Borrow | Profile):
            allocation = self._instead(job, decision.allocation, actual)
            job.profiling = isinstance(decision, Profile)
            self.run(job, allocation, view.now)
        elif isinstance(decision, Pack):
            self.join(job, decision.partner, view.now)
        elif isinstance(decision, Migrate | Resize):
            overlap = isinstance(decision, Migrate) and decision.overlap
            allocation = self._instead(job, decision.allocation, actual)
            if overlap:
                view.space.give(job, job.allocation)
            self.release(job)
            job.moves += 1
            self.run(job, allocation, view.now)
        elif isinstance(decision, Drop):
            self.leave(job)
        else:
            job.preemptions += isinstance(decision, Preempt)
            if isinstance(decision, Evict):
                job.evictions += 1
                self.view.evicted.add(job)
            self.leave(job)
            self.wait(job)

    def _instead(self, job: Job, booked: Allocation, actual: Allocation | None) -> Allocation:
        """Book the GPUs that the job really got."""
        if actual is None or actual == booked:
            return booked
        self.view.space.give(job, booked)
        if self.view.space.take(job, actual, any_size=True):
            return actual
        self.view.space.take(job, booked, any_size=True)
        self.view.warn("a job got GPUs that were booked for another")
        return booked

    def _undo(self, flight: _Flight) -> None:
        decision, space, job = flight.decision, self.view.space, flight.decision.job
        self._end_claim(flight)
        if isinstance(decision, Start | Borrow | Profile | Pack):
            if flight.sent and not isinstance(decision, Pack):
                space.give(job, decision.allocation)
            self.wait(job)
        elif isinstance(decision, Migrate | Resize):
            job.settle()
            if flight.sent:
                space.give(job, decision.allocation)
                if not (isinstance(decision, Migrate) and decision.overlap):
                    space.take(job, job.allocation, any_size=True)
        elif isinstance(decision, Drop) and not job.allocation:
            self.wait(job)
        else:
            self.settle(job)

    def _answer(self, flight: _Flight, state: Literal["refused", "late"], why: str) -> None:
        self.view.answers.append(Answer(flight.decision, state, why, self.view.now))
