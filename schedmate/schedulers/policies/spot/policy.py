"""Jobs of high priority (HP) as if they were alone, and spot jobs (LP) on the idle GPUs.

The rules are those of SpotGPU (ASI paper, section 4.2): `ranking.py` ranks nodes, `victims.py`
chooses the jobs to evict. HP jobs go first, and evict spot jobs if they do not fit; spot jobs never
evict. A spot job without free GPUs borrows those of a job that lends its own for a while (Standby).
A tenant's HP jobs hold no more GPUs together than its quota.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import ClassVar

from schedmate.errors import UsageError, did_you_mean
from schedmate.schedulers.decisions import Borrow, Decision, Drop, Evict, Start
from schedmate.schedulers.fitting import Order
from schedmate.schedulers.lanes import Rank
from schedmate.schedulers.model import Allocation, Job
from schedmate.schedulers.policies.spot.knowing import evicting_costs, window_is_worth
from schedmate.schedulers.policies.spot.ranking import Ranking
from schedmate.schedulers.policies.spot.victims import Victims
from schedmate.schedulers.policy import Policy
from schedmate.schedulers.remaining import remaining_s
from schedmate.schedulers.view import View

_VICTIMS = ("cost", "random", "remaining", "none")
_WINDOWS = ("all", "worth", "none")


class Spot(Policy):
    """SpotGPU (ASI, section 4.2): high-priority (HP) jobs first, spot jobs on the remaining GPUs.

    Args:
        victims: spot jobs that an HP job evicts: by `cost`, as published; `random` ones of a random
            node; `remaining`, by cost and estimated remaining time (ours); `none`.
        windows: GPUs that spot jobs borrow: `all` that are lent; those whose window is `worth`
            entering by the job's estimate and checkpoints (ours); `none`.
        colocation: whether HP jobs go to nodes with HP jobs and spot jobs to the others.
        history: whether the number of evictions on a node counts.
        shortest: whether the spot job with the least estimated remaining time goes first (ours);
            else the first submitted.
        protect: whether HP jobs are placed as if there were no spot jobs, and evict those in the
            way (ours); else they use free GPUs if there are any, as published, and scatter: large
            HP jobs then wait longer for each other than they would alone.
        grace_s: grace time of an evicted job: SIGKILL follows after 60 s [s].
    """

    name: ClassVar[str] = "spot"
    steady = True

    def __init__(
        self,
        victims: str = "cost",
        windows: str = "all",
        colocation: bool = True,
        history: bool = True,
        shortest: bool = False,
        protect: bool = False,
        grace_s: float = 60.0,
    ) -> None:
        for name, value, known in (
            ("victims", victims, _VICTIMS),
            ("windows", windows, _WINDOWS),
        ):
            if value not in known:
                raise UsageError(
                    f"policy spot: {name}={value} is none of {', '.join(known)}"
                    f"{did_you_mean(value, known) or '.'}"
                )
        self.victims = victims
        self.windows = windows
        self.colocation = colocation
        self.history = history
        self.shortest = shortest
        self.protect = protect
        self.grace_s = grace_s

    def rank(self, job: Job, now: float) -> Rank:
        low = is_low(job)
        last = remaining_s(job, now) if low and self.shortest else job.submit_time
        return (low, -job.priority, last)

    def lane(self, job: Job) -> Hashable:
        # Quotas apply to jobs of high priority, so tenants distinguish only these.
        low = is_low(job)
        tenant = "" if job.terms is None or low else job.terms.tenant
        return (super().lane(job), low, tenant)

    def decide(self, view: View) -> Sequence[Decision]:
        return _Call(self, view).decisions()


class _Call:
    """One call of the policy."""

    def __init__(self, policy: Spot, view: View) -> None:
        self._policy = policy
        self._view = view
        self._ranking = Ranking(view, colocation=policy.colocation, history=policy.history)
        self._high = self._ranking.order(low=False)
        self._low = self._ranking.order(low=True)
        self._victims: Victims | None = None
        self._unlent: dict[str, int] = {}  # by GPU type: as many GPUs are lent nowhere
        self._decisions: list[Decision] = []
        self._quotas = dict(view.space.cluster.quotas)
        self._held: Counter[str] = Counter()
        if self._quotas:
            self._held.update(view.census().tenants)
            for job, _ in view.starting.values():
                if job.terms is not None and not job.terms.low:
                    self._held[job.terms.tenant] += job.gpus

    def decisions(self) -> list[Decision]:
        self._view.pending.walk(self._accept)
        return self._decisions

    def _accept(self, job: Job) -> bool:
        if is_low(job):
            return self._place(job, self._low, low=True) or self._borrow(job)
        tenant = "" if job.terms is None else job.terms.tenant
        quota = self._quotas.get(tenant)
        if quota is not None:
            if job.gpus > quota:
                self._decisions.append(Drop(job, f"the quota of {tenant} is {quota} GPUs"))
                return True
            if self._held[tenant] + job.gpus > quota:
                return False
        first, then = self._place_high, self._make_room
        if self._policy.protect:
            first, then = then, first
        if not (first(job) or then(job)):
            return False
        self._held[tenant] += job.gpus
        return True

    def _place_high(self, job: Job) -> bool:
        return self._place(job, self._high, low=False)

    def _place(self, job: Job, order: Order, *, low: bool) -> bool:
        """Start the job on free GPUs."""
        space = self._view.space
        if job.gpus > space.idle and job.share == 1.0:
            return False
        allocation = space.find(job, order=order)
        if allocation is None:
            return False
        space.take(job, allocation)
        self._start(job, allocation, low=low)
        return True

    def _make_room(self, job: Job) -> bool:
        """Start an HP job where spot jobs are evicted."""
        view, policy = self._view, self._policy
        if policy.victims == "none" or not view.can.evict:
            return False
        if self._victims is None:
            self._victims = self._search()
        found = self._victims.room(job)
        if found is None:
            return False
        victims, allocation = found
        self._decisions += [Evict(victim, policy.grace_s) for victim in victims]
        self._start(job, allocation, low=False)
        return True

    def _start(self, job: Job, allocation: Allocation, *, low: bool) -> None:
        self._ranking.placed(allocation, low=low)
        if self._victims is not None and job.share != 1.0:
            self._victims.forget(allocation[0][0])
        self._decisions.append(Start(job, allocation))

    def _search(self) -> Victims:
        view, how = self._view, self._policy.victims
        if how == "random":
            now = view.now

            def draw(*what: object) -> float:
                return random.Random(f"{now}/{what}").random()  # noqa: S311 - no secret

            return Victims(
                view,
                lambda victim: draw(victim.id),
                node_cost=lambda job, node: draw(job.id, node),
            )
        packed = self._policy.protect
        if how == "remaining":
            return Victims(
                view, lambda victim: evicting_costs(view, victim), prune=True, packed=packed
            )
        return Victims(
            view, lambda victim: victim.gpus * victim.share * view.lost_s(victim), packed=packed
        )

    def _borrow(self, job: Job) -> bool:
        """Start a spot job on GPUs that their holder lends."""
        view, windows = self._view, self._policy.windows
        if windows == "none" or not view.can.borrow or job.share != 1.0:
            return False
        plain = not (job.cpus or job.memory_mb or job.constraints)
        if plain and job.gpus >= self._unlent.get(job.gpu_type, job.gpus + 1):
            return False
        allocation = view.space.find_lent(job)
        if allocation is None:
            if plain:
                self._unlent[job.gpu_type] = job.gpus
            return False
        if windows == "worth" and not window_is_worth(view, job, allocation):
            return False
        view.space.take(job, allocation)
        self._decisions.append(Borrow(job, allocation))
        return True


def is_low(job: Job) -> bool:
    """Whether a job is a spot job, of low priority."""
    return job.terms is not None and job.terms.low
