"""The view of a live cluster, kept by what its executor reports, and the decisions in flight.

A policy cannot tell it from a simulation's. An executor tells the `Board` what happens (`submit`,
`ended`, `stopped`, `down` ...), has it `decide`, carries out what comes back, and answers each
decision: `accept` or `refuse`. Until then the GPUs are booked, and nothing else is decided about
the job.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Literal

from schedmate.schedulers.model import Allocation, Cluster, Job
from schedmate.schedulers.model import Profile as Use
from schedmate.schedulers.policy import (
    NEVER,
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
    View,
    check_pool,
    needs,
)
from schedmate.schedulers.space import Space
from schedmate.schedulers.terms import EVERYTHING, Capabilities, NodeNews, Status


@dataclass(slots=True)
class _Flight:
    """A decision that was sent, or waits for GPUs that others are to leave."""

    decision: Decision
    since: float
    """When it was decided [s]."""
    sent: bool = True
    claims: bool = False
    """Whether the GPUs are kept for it until others have left them."""


class Board:
    """What is known of a cluster, for one policy.

    Args:
        cluster: its nodes; the policy may set some aside.
        policy: who decides.
        can: what the executor can do.
        late_s: time after which an answer counts as late [s].

    Raises `UsageError` for a policy without virtual clusters on a cluster of several.
    """

    def __init__(
        self,
        cluster: Cluster,
        policy: Policy,
        can: Capabilities = EVERYTHING,
        late_s: float = 60.0,
    ) -> None:
        check_pool(policy, cluster)
        self.policy = policy
        self.cluster = policy.set_aside(cluster)
        self.view = View(Space(self.cluster), policy)
        self.view.can = can
        self.late_s = late_s
        self._flights: dict[int, _Flight] = {}  # by job
        self._closed: set[int] = set()
        self._wakes: list[tuple[float, int, Job]] = []

    # What happens on the cluster.

    def submit(self, job: Job, now: float) -> None:
        """A job has come, with its `forecast` where there is one."""
        self.view.now = now
        self.view.submitted.append(now)
        self.view.asked.append(self.view.asked[-1] + job.gpus)
        self._wait(job)

    def resume(
        self,
        job: Job,
        allocation: Allocation,
        now: float,
        since: float,
        partner: Job | None = None,
    ) -> bool:
        """A job runs already, since `since` [s], on the GPUs of `partner` if there is one, which
        runs alone so far; False: its GPUs are not free."""
        self.view.now = now
        if partner is not None:
            self._join(job, partner, since)
            return True
        if not self.view.space.take(job, allocation, any_size=True):
            return False
        self._run(job, allocation, since)
        return True

    def withdraw(self, job: Job, now: float) -> list[Decision]:
        """A job is not to be started for now, wherever it was; see `ended`."""
        return self.ended(job, now)

    def rejoin(self, job: Job, now: float) -> None:
        """A job that was withdrawn waits again, or one that came before the board was made."""
        self.view.now = now
        self._wait(job)

    def ended(self, job: Job, now: float) -> list[Decision]:
        """A job has left its GPUs for good; what can be sent now that others waited for."""
        self.view.now = now
        flight = self._flights.pop(job.index, None)
        if flight is not None:
            self._undo(flight)
            self._answer(flight, "refused", "the job has ended")
        self._leave(job)
        return self._send()

    def stopped(self, job: Job, now: float) -> list[Decision]:
        """A job has left its GPUs without being told to, and waits again; see `ended`."""
        found = self.ended(job, now)
        self._wait(job)
        return found

    def profiled(self, job: Job, use: Use | None, now: float) -> list[Decision]:
        """Its limit has stopped a job that was profiled, and this is what it used."""
        job.profiled, job.profile = True, use
        return self.stopped(job, now)

    def drain(self, node: int, now: float, until: float = NEVER) -> None:
        """Nothing new may start on a node, which goes down at `until` as far as announced [s]."""
        self.view.now = now
        self._close(node)
        self.view.draining[node] = until
        self.view.news.append(NodeNews(node, "drain", now, until))

    def down(self, node: int, now: float, until: float = NEVER) -> list[Job]:
        """A node is gone; the jobs on it, for each of which `ended` or `stopped` has to follow."""
        self.view.now = now
        self._close(node)
        hit = self.view.on(node)
        self.view.news.append(NodeNews(node, "down", now, until, [job.id for job in hit]))
        return hit

    def up(self, node: int, now: float) -> None:
        """A node is back."""
        self.view.now = now
        if node in self._closed:
            self._closed.discard(node)
            self.view.space.reopen(node)
            self.view.draining.pop(node, None)
            self.view.news.append(NodeNews(node, "up", now))

    def changed(self, job: Job, now: float) -> None:
        """What is known of a job has changed: its place among the others is asked for anew."""
        self.view.now, self.view.altered = now, True
        if self.view.pending.remove(job):
            self._wait(job)
        elif self.view.running.remove(job):
            self._rank(job)

    # Decisions.

    def next_change(self) -> float:
        """When the rank of a job changes by itself, so that `decide` should be called then [s]."""
        view = self.view
        while self._wakes:
            job = self._wakes[0][2]
            if job in view.pending or job in view.running:
                break
            heappop(self._wakes)
        return self._wakes[0][0] if self._wakes else NEVER

    def decide(self, now: float) -> list[Decision]:
        """What to carry out now, in this order; each is to be answered.

        What the executor cannot do, or nobody could, is refused at once.
        """
        view = self.view
        view.now = now
        while self._wakes and self._wakes[0][0] <= now:
            self.changed(heappop(self._wakes)[2], now)
        view.space.begin()
        decisions = list(self.policy.decide(view))
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
        """It has not been carried out, and all is as before; see `accept`."""
        self.view.now = now
        flight = self._flights.pop(decision.job.index)
        self._undo(flight)
        self._answer(flight, "refused", why)
        return self._send()

    def overdue(self, now: float) -> list[Decision]:
        """Decisions that were sent and should have been answered by now."""
        return [
            one.decision
            for one in self._flights.values()
            if one.sent and now - one.since > self.late_s
        ]

    def in_flight(self) -> list[Decision]:
        """All that has not been answered, in the order of its making."""
        return [one.decision for one in self._flights.values()]

    # A decision goes off.

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
        """Why nobody could do this, or this executor could not; empty: nothing speaks against."""
        view, job = self.view, decision.job
        if lacking := needs(decision, view.can):
            return f"the executor cannot {lacking}"
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
                    return "the partner does not run alone on as many GPUs as the job asks for"
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
            # A partner that ended meanwhile is no longer there.
            return bool(decision.partner.allocation) and decision.partner.partner is None
        return True

    # It is answered.

    def _done(self, decision: Decision, actual: Allocation | None) -> None:
        view, job = self.view, decision.job
        if isinstance(decision, Start | Borrow | Profile):
            allocation = self._instead(job, decision.allocation, actual)
            job.profiling = isinstance(decision, Profile)
            self._run(job, allocation, view.now)
        elif isinstance(decision, Pack):
            self._join(job, decision.partner, view.now)
        elif isinstance(decision, Migrate | Resize):
            overlap = isinstance(decision, Migrate) and decision.overlap
            allocation = self._instead(job, decision.allocation, actual)
            if overlap:
                view.space.give(job, job.allocation)
            self._off(job)
            job.moves += 1
            self._run(job, allocation, view.now)
        elif isinstance(decision, Drop):
            self._leave(job)
        else:
            job.preemptions += isinstance(decision, Preempt)
            if isinstance(decision, Evict):
                job.evictions += 1
                self.view.evicted.add(job)
            self._leave(job)
            self._wait(job)

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
            self._wait(job)
        elif isinstance(decision, Migrate | Resize):
            job.settle()
            if flight.sent:
                space.give(job, decision.allocation)
                if not (isinstance(decision, Migrate) and decision.overlap):
                    space.take(job, job.allocation, any_size=True)
        elif isinstance(decision, Drop) and not job.allocation:
            self._wait(job)
        else:
            self._settle(job)

    def _settle(self, job: Job) -> None:
        job.settle()
        self.view.leaving.pop(job.index, None)

    def _answer(self, flight: _Flight, state: Literal["refused", "late"], why: str) -> None:
        self.view.answers.append(Answer(flight.decision, state, why, self.view.now))

    # A job's place.

    def _wait(self, job: Job) -> None:
        self.view.pending.add(job, self.view.now)
        self._wake(job, self.policy.waiting_until(job, self.view.now))

    def _rank(self, job: Job) -> None:
        self.view.running.add(job, self.view.now)
        self._wake(job, self.policy.rank_until(job, self.view.now))

    def _wake(self, job: Job, at: float) -> None:
        if self.view.now < at < NEVER:
            heappush(self._wakes, (at, job.index, job))

    def _run(self, job: Job, allocation: Allocation, since: float) -> None:
        job.settle()
        job.allocation, job.started = allocation, since
        if self.view.holders is not None:
            self.view.holders.add(job)
        self._rank(job)

    def _join(self, job: Job, partner: Job, since: float) -> None:
        self.view.running.remove(partner)
        job.partner, partner.partner = partner, job
        self._rank(partner)
        self._run(job, partner.allocation, since)

    def _off(self, job: Job) -> None:
        """The job holds its allocation no more; its GPUs are somebody else's matter."""
        view = self.view
        view.running.remove(job)
        if view.holders is not None:
            view.holders.remove(job)
        job.service_s += view.now - job.started
        self._settle(job)
        job.allocation, job.profiling = (), False

    def _leave(self, job: Job) -> None:
        """The job leaves wherever it is; a partner runs on alone."""
        if not job.allocation:
            self.view.pending.remove(job)
            return
        partner, allocation = job.partner, job.allocation
        self._off(job)
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
