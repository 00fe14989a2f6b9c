"""The replaceable parts of a simulated world: how fast jobs progress, when they fail, who
watches.

`Equipment` is what a policy may bring along besides its decisions: an estimator, observers, failure
handling. Adapters use it; a policy without `equip` runs as it is.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, Protocol, runtime_checkable

from schedmate.base.errors import UsageError
from schedmate.base.inputs import parse_duration
from schedmate.schedulers import policy
from schedmate.schedulers.estimators import Estimator
from schedmate.schedulers.model import (
    EVERYTHING,
    NEVER,
    Allocation,
    Capabilities,
    Cluster,
    Job,
    Profile,
    gpus_in,
)
from schedmate.schedulers.policy import Decision, Observer
from schedmate.schedulers.sim.parameters import Parameters, read_settings
from schedmate.schedulers.sim.starts import Runners
from schedmate.schedulers.sim.workload import Workload

# How fast jobs progress and what moving them costs: replaceable, the engine only keeps count.


FOREVER = float("inf")


class Physics(Protocol):
    """The truth about the progress of jobs, which no policy sees.

    Work is in any unit that the physics chooses (seconds alone on the requested GPUs, iterations);
    the engine only adds it up. Jobs and partners are given by position in the workload.
    """

    @property
    def work(self) -> Sequence[float]:
        """Work that each job needs."""
        ...

    def pace(
        self, job: int, done: float, allocation: Allocation, partner: int | None
    ) -> tuple[float, float]:
        """Speed [work / s], and the amount of work done up to which it holds.

        Called whenever a job's GPUs or partner change, and again when that amount is reached, so a
        speed that depends on progress is exact and costs one event for each change. The amount must
        be more than `done`; infinity: until the end.
        """
        ...

    def restart_s(self, job: int, allocation: Allocation, previous: Allocation) -> float:
        """Time for which the job holds `allocation` before it makes progress [s].

        `previous` is its last allocation; empty on its first start.
        """
        ...

    def saved(self, job: int, done: float, since: float) -> float:
        """Work that survives a failure; `since` of it was done before the present allocation."""
        ...


class TracePhysics:
    """Work is seconds of the trace: 1 per second alone, less beside another (`Parameters`).

    With `Parameters.spanning` a job on nodes of several of the cluster's switches is slower.
    """

    def __init__(
        self, workload: Workload, parameters: Parameters, cluster: Cluster | None = None
    ) -> None:
        self.work: Sequence[float] = workload.duration_s
        self._workload = workload
        self._parameters = parameters
        self._jobs = workload.jobs
        self._spanning = None if cluster is None else parameters.spanning
        self._switches = [node.switch for node in cluster.nodes] if cluster is not None else []
        self._communication = workload.columns.get("communication")
        self._starts: dict[int, int] = {}
        self._runners = Runners()

    @property
    def starts_at_once(self) -> bool:
        """Whether a job works from the moment at which it gets its GPUs."""
        return self._parameters.start_delays is None

    @property
    def by_place(self) -> bool:
        """Whether the speed of a job depends on which GPUs it has."""
        return self._spanning is not None

    def pace(
        self, job: int, done: float, allocation: Allocation, partner: int | None
    ) -> tuple[float, float]:
        """Slower beside a partner and across switches; an elastic job by a power of its GPUs."""
        speed, until = self._pace(job, allocation, partner)
        if self._spanning is not None and len(allocation) > 1:
            first = self._switches[allocation[0][0]]
            if any(self._switches[node] != first for node, _ in allocation):
                communication = self._communication
                speed *= self._spanning.speed(None if communication is None else communication[job])
        return speed, until

    def _pace(self, job: int, allocation: Allocation, partner: int | None) -> tuple[float, float]:
        if partner is not None:
            configs = self._workload.configs
            first, second = sorted((job, partner))
            pair = (configs[first], configs[second]) if configs else ("", "")
            speeds = self._parameters.interference.speeds(
                self.profile(first), self.profile(second), pair
            )
            return speeds[job != first], FOREVER
        one_job = self._jobs[job]
        if not one_job.min_gpus:
            return 1.0, FOREVER
        gpus = gpus_in(allocation)
        return float((gpus / one_job.gpus) ** self._parameters.scaling), FOREVER

    def profile(self, job: int) -> Profile | None:
        """The job's use, or None if the trace has none."""
        return self._workload.profiles[job]

    def restart_s(self, job: int, allocation: Allocation, previous: Allocation) -> float:
        """A job that resumes after a stop is charged for that, another its start delay."""
        delays = self._parameters.start_delays
        kept = delays is not None and self._runners.kept(allocation)
        if previous:
            return self._parameters.restart(self._jobs[job].gpus)
        if delays is None:
            return 0.0
        count = self._starts[job] = self._starts.get(job, 0) + 1
        return delays.takes_s(self._jobs[job].id, count, self._jobs[job].gpus, kept)

    def saved(self, job: int, done: float, since: float) -> float:
        """Work in the last checkpoint; a deliberate stop makes one too."""
        terms, every = self._jobs[job].terms, self._parameters.checkpoint_s
        if terms is not None and terms.checkpoint_s is not None:
            every = terms.checkpoint_s
        return max(since, done - done % every)


# Failures of jobs: when an attempt fails, and whether the job is restarted.


class Failure(NamedTuple):
    """One attempt of a job has failed. Work is in the unit of the physics."""

    job: int
    """Position in the workload."""
    time: float
    """[s]"""
    attempt: int
    """How many failed before."""
    done: float
    """Work done up to then."""
    saved: float
    """The part of it that the last checkpoint holds."""
    node: int | None
    """The node that failed under it; None: the job failed by itself."""


class Again(NamedTuple):
    """The job is submitted again."""

    wait_s: float
    """Time until then, taken by a handler or its user [s]."""
    work: float
    """Work that it resumes from, at most the work done."""


class Faults:
    """Base of what fails jobs, and the ordinary world: only nodes fail, and take jobs with them."""

    def fails_at(self, job: int, attempt: int) -> float:
        """Work at which this attempt fails by itself; infinity: not at all.

        Called when the attempt is submitted. A value below the work it resumes from makes it fail
        as soon as it runs.
        """
        return float("inf")

    def after(self, failure: Failure) -> Again | None:
        """When and from where the job restarts after a failure; None if it ends."""
        return Again(0.0, failure.saved)


ORDINARY_FAULTS = Faults()


# Failures of jobs by themselves: of their hardware, and by their bugs.
#
# SchedMate (section 5.3) takes them from a trace that is not public; here they are drawn. By
# default only users restart jobs.


LEAST_MTBF_S = 600.0
"""Nodes or GPUs that fail more often end no job, and the simulation neither [s]."""


@dataclass(frozen=True)
class FailureRates:
    """How often jobs fail and how long people take; `gpu_mtbf=2000d,bugs=0.2,user=2h` sets some."""

    gpu_mtbf: float = 50_676.0 * 3600
    """GPU time between two failures of the infrastructure: Llama 3 saw 419 in 54 days on 16,384
    GPUs (section 3.3.4) [s of one GPU]."""
    bugs: float = 0.1
    """Share of jobs that fail once for a bug: an assumption; of Acme's jobs about 40 % fail."""
    bug_after: float = 300.0
    """Mean work until they do, exponential: bugs show early; an assumption [s]."""
    user: float = 3600.0
    """Time until a user notices a failure, fixes its cause and restarts the job: an assumption,
    much too short for nights and weekends [s]."""

    @classmethod
    def parse(cls, text: str) -> FailureRates:
        """Parse `gpu_mtbf=2000d,bugs=0.2,user=2h`; raises `UsageError` for anything else."""
        values: dict[str, float] = {}
        defaults = {field.name: field.default for field in fields(cls)}
        for part in filter(None, text.split(",")):
            key, _, value = part.partition("=")
            try:
                values[key] = float(value) if key == "bugs" else parse_duration(value)
                if key not in defaults or not 0 <= values[key] < NEVER:
                    raise ValueError(key)
            except ValueError:
                raise UsageError(
                    f"--failures: {part!r} is not a setting; write gpu_mtbf=2000d,bugs=0.2,user=2h "
                    "(bug_after too)."
                ) from None
        if values.get("bugs", 0.0) > 1 or values.get("gpu_mtbf", LEAST_MTBF_S) < LEAST_MTBF_S:
            raise UsageError(
                f"--failures: bugs is a share from 0 to 1, gpu_mtbf at least {LEAST_MTBF_S:g} s."
            )
        return cls(**values)


class JobFailures(Faults):
    """Fails jobs by `rates`, and lets their users restart them from the last checkpoint.

    Infrastructure fails at random over the GPU time that a job uses. A bug fails its job at the
    same work again and again until the user has mended it. The seed decides both, whatever the
    policy.
    """

    def __init__(self, workload: Workload, rates: FailureRates, seed: int = 0) -> None:
        self.rates = rates
        self.seed = seed
        self._workload = workload
        self._mended: set[int] = set()
        self._resumed: dict[int, float] = {}
        self._broken: dict[int, int] = {}

    def fails_at(self, job: int, attempt: int) -> float:
        """See `Faults.fails_at`."""
        return min(self._bug_at(job), self._breaks_at(job))

    def after(self, failure: Failure) -> Again | None:
        """See `Faults.after`."""
        if failure.node is not None:
            self._resumed[failure.job] = failure.saved
            return super().after(failure)
        return self.by_user(failure)

    def is_bug(self, failure: Failure) -> bool:
        """Whether it was a bug: the truth, which no handler knows."""
        return self._bug_at(failure.job) <= self._breaks_at(failure.job)

    def by_user(self, failure: Failure) -> Again:
        """The user restarts the job, with the bug mended if that was it."""
        bug = self.is_bug(failure)
        again = self.restart(failure, self.rates.user)
        if bug:
            self._mended.add(failure.job)
        return again

    def restart(self, failure: Failure, wait_s: float) -> Again:
        """The job resumes from its checkpoint, unchanged."""
        job = failure.job
        if not self.is_bug(failure):
            self._broken[job] = self._broken.get(job, 0) + 1
        self._resumed[job] = failure.saved
        return Again(wait_s, failure.saved)

    def _bug_at(self, job: int) -> float:
        if job in self._mended:
            return NEVER
        draw = random.Random(f"{self.seed}/bug/{job}")  # noqa: S311 - an experiment
        if draw.random() >= self.rates.bugs:
            return NEVER
        at = draw.expovariate(1.0 / max(self.rates.bug_after, 1e-9))
        return min(at, 0.9 * self._workload.duration_s[job])

    def _breaks_at(self, job: int) -> float:
        count = self._broken.get(job, 0)
        draw = random.Random(f"{self.seed}/break/{job}/{count}")  # noqa: S311 - an experiment
        mean = self.rates.gpu_mtbf / self._workload.jobs[job].gpus
        return self._resumed.get(job, 0.0) + draw.expovariate(1.0 / mean)


# What a policy may bring along besides its decisions: an estimator, observers, failure handling.
#
# Adapters use it; a policy without `equip` runs as it is.


class World(NamedTuple):
    """The inputs of a run that are the same for every policy."""

    workload: Workload
    estimator: Estimator | None
    """The estimator of the comparison."""
    failures: FailureRates | None
    """How jobs fail; None: they do not."""
    seed: int


class Equipment(NamedTuple):
    """Replacements for the ordinary parts; None keeps the ordinary one."""

    estimator: Estimator | None = None
    faults: Faults | None = None
    physics: Physics | None = None
    observers: tuple[Observer, ...] = ()
    report: Callable[[], dict[str, Any]] = dict
    """Returns the counters at the end of the run, which become `schedmate` in the results."""


@runtime_checkable
class Equipped(Protocol):
    """A policy with modules around it."""

    def equip(self, world: World) -> Equipment:
        """New parts for one run in this world."""
        ...


# Observers of a simulation, who can see more than those of a cluster.


class SimulationWatch(policy.Watch, Protocol):
    """The interface of a simulation to its observers."""

    def work_done(self, job: Job) -> float:
        """Work done so far, in the unit of the physics; the truth, which no policy may use."""
        ...

    def speed(self, job: Job) -> float:
        """Work a second from now on; 0 while it waits or restarts."""
        ...

    def repace(self, job: Job) -> None:
        """Report that the speed of a running job changes: its physics is asked again."""
        ...


class SimulationObserver(policy.Observer):
    """Base of observers that make up the world of a simulation, or its logs."""

    watch: SimulationWatch

    def attach(self, watch: Any) -> None:
        """Called once before the first job is submitted; `watch` is the simulation."""
        self.watch = watch


# GPU use that changes while a job runs. A trace states one figure for each job; this varies it.


@dataclass(frozen=True)
class Phases:
    """Jobs that warm up and then use more; `share=0.3,rise=40` sets some parameters.

    All of it is an assumption: Lucid (section 3.3) evicts packed jobs of unstable use without
    saying how many there are, and no available trace has use over time.
    """

    share: float = 0.2
    """Share of jobs whose GPU utilisation changes: an assumption."""
    rise: float = 50.0
    """By how much it rises then, to 100 % at most: an assumption [percentage points]."""
    latest: float = 0.5
    """Largest share of its work that such a job has done by then, drawn uniformly: an
    assumption."""

    @classmethod
    def parse(cls, text: str) -> Phases:
        """Parse `share=0.3,rise=40,latest=0.2`; raises `UsageError` for anything else."""
        most = {"share": 1.0, "rise": 100.0, "latest": 1.0}
        limits = "rise in percentage points, the others from 0 to 1"
        return cls(**read_settings(cls, "--phases", text, most, limits))


class ChangingUse(TracePhysics, SimulationObserver):
    """`TracePhysics` in which the GPU use of some jobs increases at some point of their work.

    The policy sees it, as a monitor of a cluster's GPUs would: `Job.profile` is the present use,
    and `Job.unstable` means that it has changed. The seed determines the jobs and times, whatever
    the policy.
    """

    def __init__(
        self,
        workload: Workload,
        parameters: Parameters,
        phases: Phases,
        seed: int = 0,
        cluster: Cluster | None = None,
    ) -> None:
        super().__init__(workload, parameters, cluster)
        self._changes: dict[int, tuple[float, Profile]] = {}
        self._changed: set[int] = set()
        for job, profile, work in zip(workload.jobs, workload.profiles, self.work, strict=True):
            draw = random.Random(f"{seed}/phase/{job.id}")  # noqa: S311 - an experiment
            if profile is None or draw.random() >= phases.share:
                continue
            later = profile._replace(gpu_util=min(100.0, profile.gpu_util + phases.rise))
            self._changes[job.index] = (draw.uniform(0.0, phases.latest) * work, later)

    def profile(self, job: int) -> Profile | None:
        """The job's present use."""
        return self._changes[job][1] if job in self._changed else super().profile(job)

    def pace(
        self, job: int, done: float, allocation: Allocation, partner: int | None
    ) -> tuple[float, float]:
        """The pace at the present GPU use of job and partner, until that of the job changes."""
        until, change = FOREVER, self._changes.get(job)
        if change is not None:
            # A failure can throw a job back to before.
            self._changed.discard(job)
            if done < change[0]:
                until = change[0]
            else:
                self._changed.add(job)
                self.watch.wake(self, self._jobs[job], self.watch.now)
        speed, _ = super().pace(job, done, allocation, partner)
        return speed, until

    def stopped(self, job: Job) -> None:
        """An evicted job may be placed again immediately."""
        self.watch.changed()

    def woken(self, job: Job) -> None:
        """The job's use changes: its partner slows down, and the policy sees it."""
        if not job.allocation or job.profiling or job.index not in self._changed:
            return
        profile = self.profile(job.index)
        if job.profile == profile:
            return
        job.profile, job.unstable = profile, True
        if job.partner is not None:
            self.watch.repace(job.partner)
        self.watch.changed(job)


# Nodes that are taken down on purpose.


class Maintenance(NamedTuple):
    """One node is drained, goes down, and comes back. Times are on the clock of the trace [s]."""

    node: int
    """Position in the cluster."""
    drain: float
    """Time from which nothing new starts there [s]."""
    down: float
    """When it goes down, with all that still runs there [s]."""
    up: float
    """When it is back [s]."""


# Executors with limited capabilities, or that refuse decisions.


class Executor:
    """Base of an executor in a simulation: it has the capabilities `can`, and refuses nothing else.

    With one, an impossible decision is refused and the policy notified, as on a real cluster, whose
    state may change before a decision is carried out; without one it is an error.
    """

    retry_s: float = 60.0
    """Time after a refusal until the policy is asked again, if nothing happens before [s]."""

    def __init__(self, can: Capabilities = EVERYTHING) -> None:
        self.can = can

    def refuses(self, decision: Decision, now: float) -> str:
        """Why this decision is not carried out now [s]; empty: it is."""
        return ""
