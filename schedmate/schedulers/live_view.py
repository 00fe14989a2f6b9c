"""The state of a live cluster as a policy sees it: its queue, running jobs and nodes.

`LiveView` knows nothing of decisions. An executor reports events to it; whoever carries out
decisions, like `Board`, tells it with `wait`, `run`, `join`, `release` and `leave` what became of a
job.
"""

from __future__ import annotations

from heapq import heappop, heappush

from schedmate.schedulers.model import Allocation, Cluster, Job
from schedmate.schedulers.policy import Policy, check_pool
from schedmate.schedulers.space import Space
from schedmate.schedulers.terms import EVERYTHING, NEVER, Capabilities, NodeNews
from schedmate.schedulers.view import View


class LiveView:
    """Keeps the `View` of one policy, with the ranks of its jobs, up to date.

    Args:
        cluster: its nodes; the policy may set some aside.
        policy: whose ranks order the jobs.
        can: what the executor can do.

    Raises `UsageError` for a policy without virtual clusters on a cluster of several.
    """

    def __init__(self, cluster: Cluster, policy: Policy, can: Capabilities = EVERYTHING) -> None:
        check_pool(policy, cluster)
        self.policy = policy
        self.cluster = policy.set_aside(cluster)
        self.view = View(Space(self.cluster), policy)
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
