"""Quotas with cohorts, borrowing and fair sharing, as Kueue admits workloads on Kubernetes.

A tenant is a ClusterQueue with a nominal quota of GPUs (`--quota`), and all tenants are one cohort:
what one does not use others may borrow, up to their borrowing limit, but for what the owner does
not lend. GPUs of the cluster beyond all quotas belong to the cohort, so a tenant without a quota
only borrows. A waiting job that its quotas allow is admitted; else it may evict: jobs of its own
tenant with lower priority (`within`), and jobs of tenants that borrow, while its own is within its
nominal quota (`reclaim`) or, with fair sharing, has the smaller share. The share of a tenant is
what it borrows, as a part of all that the cohort can lend, divided by its weight (dominant resource
share).

Source: Kueue's documentation of ClusterQueue, cohorts, preemption and fair sharing (v1beta1). One
flavour of one resource; no nested cohorts. Kueue admits by quota alone; here the job must also fit
on nodes, as with topology-aware scheduling.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from schedmate.base.errors import UsageError
from schedmate.schedulers.lanes import Rank
from schedmate.schedulers.model import Job
from schedmate.schedulers.policy import Decision, Drop, Evict, Policy, Preempt, Start, View

_HAIR = 1e-9


def tenant_of(job: Job) -> str:
    """The queue that a job belongs to."""
    return job.terms.tenant if job.terms is not None else ""


@dataclass
class Cohort:
    """The quotas of all tenants, and what they use [GPUs]."""

    nominal: Mapping[str, int]
    own: int
    """GPUs that are in no tenant's quota."""
    borrow: Mapping[str, int] = field(default_factory=dict)
    """The most that a tenant borrows; not listed: no limit."""
    lend: Mapping[str, int] = field(default_factory=dict)
    """The most of its quota that a tenant lends; not listed: all."""
    weight: Mapping[str, float] = field(default_factory=dict)
    used: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._keeps = {
            one: quota - min(quota, self.lend.get(one, quota))
            for one, quota in self.nominal.items()
        }
        self.lendable = self.own + sum(
            quota - self._keeps[one] for one, quota in self.nominal.items()
        )

    def borrowed(self, tenant: str, more: int = 0) -> int:
        """GPUs beyond its nominal quota, if it used `more`."""
        return max(0, self.used[tenant] + more - self.nominal.get(tenant, 0))

    def available(self, tenant: str) -> int:
        """GPUs that the tenant may use besides those that it has."""
        kept = self._keeps.get
        taken = sum(max(0, gpus - kept(one, 0)) for one, gpus in self.used.items())
        own = max(0, kept(tenant, 0) - self.used[tenant])
        limit = self.borrow.get(tenant)
        room = own + self.lendable - taken
        if limit is None:
            return room
        return min(room, self.nominal.get(tenant, 0) + limit - self.used[tenant])

    def most(self, tenant: str) -> int:
        """GPUs that the tenant could use if no other used any."""
        all_of_it = self._keeps.get(tenant, 0) + self.lendable
        limit = self.borrow.get(tenant)
        return all_of_it if limit is None else min(all_of_it, self.nominal.get(tenant, 0) + limit)

    def share(self, tenant: str, more: int = 0) -> float:
        """Weighted dominant resource share, if it used `more` GPUs."""
        borrowed = self.borrowed(tenant, more)
        if not borrowed:
            return 0.0
        weight = self.weight.get(tenant, 1.0)
        return borrowed / max(1, self.lendable) / weight if weight else float("inf")


class Kueue(Policy):
    """Kueue: quotas of tenants in a cohort, borrowing, reclaiming, and fair shares."""

    name: ClassVar[str] = "kueue"

    def __init__(
        self,
        fair: bool = True,
        reclaim: str = "any",
        within: str = "lower",
        strict: bool = False,
        borrow: str = "",
        lend: str = "",
        weights: str = "",
    ) -> None:
        """Args:
        fair: admit by the smallest share first, and evict for the smaller share (fairSharing).
        reclaim: jobs of borrowing tenants that are evicted for a tenant within its nominal quota:
            `any`, those of `lower` priority, or `never` (reclaimWithinCohort).
        within: whether jobs of the same tenant are evicted for one of higher priority: `lower` or
            `never` (withinClusterQueue).
        strict: the first job of a tenant that cannot be admitted blocks its later ones
            (StrictFIFO); else these may pass (BestEffortFIFO).
        borrow: borrowing limits of tenants, as `ads=8+search=0` [GPUs].
        lend: lending limits of tenants [GPUs].
        weights: weights of tenants in fair sharing, as `ads=2`; others have 1."""
        if reclaim not in ("any", "lower", "never"):
            raise UsageError(f"kueue:reclaim={reclaim}: write any, lower or never.")
        if within not in ("lower", "never"):
            raise UsageError(f"kueue:within={within}: write lower or never.")
        self.fair = fair
        self.reclaim = reclaim
        self.within = within
        self.strict = strict
        self.borrow, self.lend, self.weights = borrow, lend, weights
        self._limits = {
            name: _by_tenant(name, text)
            for name, text in (("borrow", borrow), ("lend", lend), ("weights", weights))
        }

    def rank(self, job: Job, now: float) -> Rank:
        return (-job.priority, job.submit_time)

    def lane(self, job: Job) -> Hashable:
        return (tenant_of(job), super().lane(job))

    def cohort(self, view: View) -> Cohort:
        """The quotas, and what running jobs use."""
        cluster = view.space.cluster
        nominal = dict(cluster.quotas)
        return Cohort(
            nominal,
            max(0, cluster.gpus - sum(nominal.values())),
            {name: int(limit) for name, limit in self._limits["borrow"].items()},
            {name: int(limit) for name, limit in self._limits["lend"].items()},
            self._limits["weights"],
            Counter(_gpus(view.running)),
        )

    def decide(self, view: View) -> Sequence[Decision]:
        queues: dict[str, deque[Job]] = {}
        for job in view.pending:
            if job.index not in view.starting:
                queues.setdefault(tenant_of(job), deque()).append(job)
        if not queues:
            return []
        cohort, decisions, stopped = self.cohort(view), list[Decision](), set[int]()
        for job, _ in view.starting.values():
            cohort.used[tenant_of(job)] += job.gpus
        refused: set[Hashable] = set()
        while queues:
            tenant = min(queues, key=lambda one: self._order(cohort, one, queues[one][0]))
            job = queues[tenant].popleft()
            if not queues[tenant]:
                del queues[tenant]
            if job.gpus > (most := cohort.most(tenant)):
                decisions.append(Drop(job, f"{tenant or 'its tenant'} may use {most} GPUs"))
                continue
            lane = (self.lane(job), job.priority)
            if lane not in refused and self._admit(view, cohort, job, decisions, stopped):
                continue
            refused.add(lane)
            if self.strict:
                queues.pop(tenant, None)
        return decisions

    def _order(self, cohort: Cohort, tenant: str, job: Job) -> tuple[float, int, float, int]:
        first = (
            cohort.share(tenant, job.gpus)
            if self.fair
            else float(cohort.borrowed(tenant, job.gpus) > 0)
        )
        return first, -job.priority, job.submit_time, job.index

    def _admit(
        self,
        view: View,
        cohort: Cohort,
        job: Job,
        decisions: list[Decision],
        stopped: set[int],
    ) -> bool:
        tenant, space = tenant_of(job), view.space
        if job.gpus <= cohort.available(tenant) and (found := space.place(job)) is not None:
            decisions.append(Start(job, found))
            cohort.used[tenant] += job.gpus
            return True
        victims = self._victims(view, cohort, job, stopped)
        if not victims:
            return False
        for victim in victims:
            decisions.append(Evict(victim) if view.can.evict else Preempt(victim))
            space.give(victim, victim.allocation)
            cohort.used[tenant_of(victim)] -= victim.gpus
            stopped.add(victim.index)
        found = space.place(job)
        assert found is not None  # as `_victims` has tried
        decisions.append(Start(job, found))
        cohort.used[tenant] += job.gpus
        return True

    def _victims(self, view: View, cohort: Cohort, job: Job, stopped: set[int]) -> list[Job]:
        """The jobs to evict, no more than needed; none where that would not help.

        One at a time: of other tenants first, the tenant with the largest share, then of the own;
        of each the lowest priority, and of these the last admitted (Kueue's order). With fair
        sharing all jobs are tried by the first strategy before any is by the second.
        """
        tenant, space, mark = tenant_of(job), view.space, view.space.mark()
        queues = self._candidates(view, cohort, job, stopped)
        victims: list[Job] = []

        def fits() -> bool:
            return job.gpus <= cohort.available(tenant) and space.find(job) is not None

        def change(one: Job, by: int) -> None:
            cohort.used[tenant_of(one)] += by * one.gpus

        for final_share in (True, False) if self.fair else (False,):
            untried = {
                name: [one for one in jobs if one not in victims] for name, jobs in queues.items()
            }
            while not fits() and (
                names := [
                    name
                    for name, jobs in untried.items()
                    if jobs and (name == tenant or cohort.borrowed(name))
                ]
            ):
                name = max(names, key=lambda one: (one != tenant, cohort.share(one), one))
                one = untried[name].pop()
                if name == tenant or self._gives_way(cohort, job, one, final_share=final_share):
                    victims.append(one)
                    change(one, -1)
                    space.give(one, one.allocation)
        found = fits()
        for one in victims[-2::-1] if found else ():  # which of the earlier ones were not needed?
            victims.remove(one)
            change(one, 1)
            space.return_to(mark)
            for other in victims:
                space.give(other, other.allocation)
            if not fits():
                victims.append(one)
                change(one, -1)
        space.return_to(mark)
        for one in victims:
            change(one, 1)
        return victims if found else []

    def _candidates(
        self, view: View, cohort: Cohort, job: Job, stopped: set[int]
    ) -> dict[str, list[Job]]:
        """The jobs that Kueue's settings allow to evict, by tenant, the first to go last."""
        queues: dict[str, list[Job]] = {}
        for one in view.running if view.can.evict or view.can.preempt else ():
            if one.preemptible and one.partner is None and one.index not in stopped:
                if self._may_evict(cohort, job, one):
                    queues.setdefault(tenant_of(one), []).append(one)
        for jobs in queues.values():
            jobs.sort(key=lambda one: (-one.priority, one.started, one.index))
        return queues

    def _may_evict(self, cohort: Cohort, job: Job, one: Job) -> bool:
        """Whether Kueue's settings make `one` a candidate at all."""
        if tenant_of(one) == tenant_of(job):
            return self.within == "lower" and one.priority < job.priority
        if self.reclaim == "never" or not cohort.borrowed(tenant_of(one)):
            return False
        if not self.fair and cohort.borrowed(tenant_of(job), job.gpus):
            return False
        return self.reclaim == "any" or one.priority < job.priority

    def _gives_way(self, cohort: Cohort, job: Job, one: Job, *, final_share: bool) -> bool:
        """Whether a borrowing tenant has to give up this job of its.

        With fair sharing: where the evicting tenant's share does not exceed what the other's is
        after that (LessThanOrEqualToFinalShare), or is below what it is (LessThanInitialShare).
        """
        if not self.fair:
            return True
        mine, theirs = cohort.share(tenant_of(job), job.gpus), tenant_of(one)
        if final_share:
            return mine <= cohort.share(theirs, -one.gpus) + _HAIR
        return mine < cohort.share(theirs) - _HAIR


def _gpus(jobs: Iterable[Job]) -> dict[str, int]:
    used: dict[str, int] = {}
    for job in jobs:
        used[tenant_of(job)] = used.get(tenant_of(job), 0) + job.gpus
    return used


def _by_tenant(name: str, text: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for part in filter(None, text.split("+")):
        tenant, _, value = part.rpartition("=")
        try:
            found[tenant] = float(value)
        except ValueError:
            found[tenant] = -1.0
        if not tenant or not 0 <= found[tenant] < 1e9:
            raise UsageError(f"kueue:{name}={text}: write TENANT=NUMBER+TENANT=NUMBER.")
    return found
