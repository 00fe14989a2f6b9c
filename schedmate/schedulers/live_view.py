"""The view of a live cluster: its jobs and nodes as an executor reports them."""

from __future__ import annotations

from heapq import heappop, heappush

from schedmate.schedulers.model import Allocation, Cluster, Job
from schedmate.schedulers.policy import Policy, check_pool
from schedmate.schedulers.space import Space
from schedmate.schedulers.terms import EVERYTHING, NEVER, Capabilities, NodeNews
from schedmate.schedulers.view import View


class LiveView:
    """Keeps the `View` of one policy up to date: the base of `Board`, which adds its decisions.

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
        """A job was submitted, with its `forecast` if there is one."""
        self.view.now = now
        self.view.submitted.append(now)
        self.view.requested.append(self.view.requested[-1] + job.gpus)
        self._wait(job)

    def resume(
        self,
        job: Job,
        allocation: Allocation,
        now: float,
        since: float,
        partner: Job | None = None,
    ) -> bool:
        """Add a job that runs already, since `since` [s], alone or beside `partner`.

        Returns False if its GPUs are not free.
        """
        self.view.now = now
        if partner is not None:
            self._join(job, partner, since)
            return True
        if not self.view.space.take(job, allocation, any_size=True):
            return False
        self._run(job, allocation, since)
        return True

    def rejoin(self, job: Job, now: float) -> None:
        """A job that was withdrawn waits again, or one that came before the board was made."""
        self.view.now = now
        self._wait(job)

    def drain(self, node: int, now: float, until: float = NEVER) -> None:
        """Close a node, which goes down at `until` if that was announced [s]."""
        self.view.now = now
        self._close(node)
        self.view.draining[node] = until
        self.view.news.append(NodeNews(node, "drain", now, until))

    def down(self, node: int, now: float, until: float = NEVER) -> list[Job]:
        """A node is gone; `ended` or `stopped` has to follow for each job on it."""
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
        """A job's data has changed: it is ranked again."""
        self.view.now, self.view.altered = now, True
        if self.view.pending.remove(job):
            self._wait(job)
        elif self.view.running.remove(job):
            self._rank(job)

    def next_change(self) -> float:
        """When the rank of a job changes by itself, so that `decide` should be called then [s]."""
        view = self.view
        while self._wakes:
            job = self._wakes[0][2]
            if job in view.pending or job in view.running:
                break
            heappop(self._wakes)
        return self._wakes[0][0] if self._wakes else NEVER

    def _rank_due(self, now: float) -> None:
        """Update the jobs whose rank has changed with time."""
        self.view.now = now
        while self._wakes and self._wakes[0][0] <= now:
            self.changed(heappop(self._wakes)[2], now)

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

    def _settle(self, job: Job) -> None:
        job.settle()
        self.view.leaving.pop(job.index, None)

    def _off(self, job: Job) -> None:
        """The job loses its allocation; the caller frees its GPUs."""
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
