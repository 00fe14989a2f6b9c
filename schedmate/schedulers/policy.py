"""What a scheduling policy is: a pure function from a view of the cluster to decisions.

The same policy object decides in the simulator and on a real cluster, and cannot tell them apart.
`docs/policies.md` has a complete example.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import ClassVar, NamedTuple

from schedmate.errors import UsageError
from schedmate.schedulers.decisions import Decision
from schedmate.schedulers.lanes import Rank
from schedmate.schedulers.model import Cluster, Job
from schedmate.schedulers.terms import NEVER
from schedmate.schedulers.view import View


class StaticRank(NamedTuple):
    """A rank that is fixed when the job is submitted.

    First by priority, then by `submit` times the submission time plus `predicted` times the
    predicted run time, times GPUs if `by_gpus`. A job without a prediction uses its time limit, or
    goes last.
    """

    submit: float = 0.0
    predicted: float = 0.0
    by_gpus: bool = False


HAIR = 1e-9
"""Relative tolerance: rounding may leave the service slightly below its threshold."""


class ServiceRank(NamedTuple):
    """Two queues: a job enters the second once its attained service passes a threshold.

    Service is GPUs times the time for which they were held (Tiresias, NSDI'19). Within a queue the
    first submitted goes first.
    """

    threshold_gpu_s: float
    """[GPU s]"""

    def is_low(self, served_s: float, gpus: int) -> bool:
        """Whether a job that has held `gpus` GPUs for `served_s` is in the second queue."""
        return served_s * gpus >= self.threshold_gpu_s * (1 - HAIR)

    def falls_after_s(self, served_s: float, gpus: int) -> float:
        """Time that it can still run before it enters the second; infinity: it is there [s]."""
        left = self.threshold_gpu_s - served_s * gpus
        return NEVER if left <= self.threshold_gpu_s * HAIR else left / gpus


class Policy:
    """Base of every policy: override `decide`, and whichever other hooks the policy needs.

    A policy stores nothing between calls: everything that it needs is in the view.
    """

    name: ClassVar[str]
    """Its name on the command line."""
    interval_s: float | None = None
    """Decide only at multiples of this time [s]; None: after every change."""
    rounds: bool = False
    """Decide at each multiple of `interval_s` while a job waits or runs, even without a change."""
    steady: bool = False
    """Whether a refused job stays refused until a job ends, stops or changes its rank.

    The policy is then not asked while no job waits, nor when only jobs have arrived that rank
    behind a refused one of their lane. Not for a policy that uses the clock or the length of the
    queue, or that decides about running jobs.
    """
    adapts_batch: ClassVar[bool] = False
    """Whether elastic jobs choose their batch size; else they keep the requested one."""

    packs: bool = False
    """Whether jobs share GPUs by their GPU use, which must be known."""

    one_pool: ClassVar[bool] = False
    """Whether the policy ignores virtual clusters, so that any job may get any node. It is refused
    on a cluster with several of them: see `check_pool`."""

    def decide(self, view: View) -> Sequence[Decision]:
        """The decisions to carry out now, in order."""
        raise NotImplementedError

    def rank(self, job: Job, now: float) -> Rank:
        """The job's place in the queue, or among the running: lowest first."""
        return job.submit_time

    def rank_until(self, job: Job, now: float) -> float:
        """When the rank of this running job changes with time and is computed again [s]."""
        return NEVER

    def waiting_until(self, job: Job, now: float) -> float:
        """When rank or lane of this waiting job change with time and are computed again [s]."""
        return NEVER

    def lane(self, job: Job) -> Hashable:
        """Jobs of one lane have the same request: see `Lanes`."""
        lane = (job.vc, job.gpus, job.gpu_type, job.share, job.cpus, job.memory_mb)
        return lane if job.constraints is None else (*lane, job.constraints)

    def static_rank(self) -> StaticRank | None:
        """The formula of `rank` for the simulator's specialised loop; None: not applicable.

        For a policy that only offers waiting jobs by rank to `Space.place`, in each lane up to the
        first that does not fit. Ignored if a derived class overrides anything else of the policy.
        """
        return None

    def service_rank(self) -> ServiceRank | None:
        """The formula of `rank` of a preemptive policy for the simulator's specialised loop.

        None: not applicable. The loop does what `Preemptive` does by this rank with its default
        settings. Ignored under the same condition as `static_rank`.
        """
        return None

    def set_aside(self, cluster: Cluster) -> Cluster:
        """The cluster with nodes reserved for the roles that this policy needs."""
        return cluster


def check_pool(policy: Policy, cluster: Cluster) -> None:
    """Raise `UsageError` if the policy ignores virtual clusters and the cluster has several."""
    vcs = sorted({node.vc for node in cluster.nodes})
    if policy.one_pool and len(vcs) > 1:
        shown = ", ".join(one or "(none)" for one in vcs[:4]) + ", ..." * (len(vcs) > 4)
        raise UsageError(
            f"policy {policy.name} does not support virtual clusters, and this cluster has "
            f"{len(vcs)}: {shown}. Choose a cluster without them (2x8:A100 instead of "
            f"2x8:A100@{vcs[-1]}), so that all jobs compete for all nodes, or another policy."
        )
